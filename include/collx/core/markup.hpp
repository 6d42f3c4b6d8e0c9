// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Text inside XML and SVG.
#pragma once

#include <string>

#include <collx/version.hpp>

COLLX_BEGIN_NAMESPACE
namespace detail {

// Text as it may stand between tags and in an attribute.
inline std::string marked_up(const std::string& text) {
    std::string s;
    for (const char c : text) {
        if (c == '<') s += "&lt;";
        else if (c == '>') s += "&gt;";
        else if (c == '&') s += "&amp;";
        else if (c == '"') s += "&quot;";
        else s += c;
    }
    return s;
}

} // namespace detail
COLLX_END_NAMESPACE
