// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Any bytes as one word, for file names and launchers' protocols.
#pragma once

#include <cstdio>

#include <collx/core/kept_text.hpp>

COLLX_BEGIN_NAMESPACE
namespace detail {

// Appends bytes to a word: letters, digits and ._- stay, other bytes become %xx.
inline void append_plain(kept_text& word, name_view bytes) {
    for (const char c : bytes) {
        const bool stays = (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '.' ||
                           c == '_' || c == '-';
        char escaped[4];
        std::snprintf(escaped, sizeof escaped, "%%%02x", static_cast<unsigned char>(c));
        if (stays) word += c;
        else word += escaped;
    }
}

} // namespace detail
COLLX_END_NAMESPACE
