// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Escaped text for XML and HTML, and the few SVG elements that the charts use. Independent of data.
#pragma once

#include <string>
#include <string_view>

#include "format.hpp"

namespace collx::tools {

/// Safe in text and in quoted attributes. Control characters, which XML 1.0 forbids, become blanks.
inline std::string escaped(std::string_view text) {
    std::string out;
    for (const char c : text) {
        switch (c) {
            case '&': out += "&amp;"; break;
            case '<': out += "&lt;"; break;
            case '>': out += "&gt;"; break;
            case '"': out += "&quot;"; break;
            case '\'': out += "&#39;"; break;
            default: out += static_cast<unsigned char>(c) < 0x20 && c != '\n' && c != '\t' ? ' ' : c;
        }
    }
    return out;
}

namespace detail {

// A coordinate: a tenth of a pixel is finer than any screen shows.
inline std::string px(double v) { return number_text(std::round(v * 10) / 10, 6); }

inline std::string attribute(std::string_view name, std::string_view value) {
    return " " + std::string(name) + "=\"" + escaped(value) + "\"";
}

inline std::string svg_line(std::string_view css, double x1, double y1, double x2, double y2) {
    return "<line" + attribute("class", css) + attribute("x1", px(x1)) + attribute("y1", px(y1)) +
           attribute("x2", px(x2)) + attribute("y2", px(y2)) + "/>\n";
}

inline std::string svg_text(std::string_view css, double x, double y, std::string_view text) {
    return "<text" + attribute("class", css) + attribute("x", px(x)) + attribute("y", px(y)) + ">" + escaped(text) +
           "</text>\n";
}

} // namespace detail

} // namespace collx::tools
