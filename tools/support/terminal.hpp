// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// What a descriptor can show: whether it is a terminal, whether it may be coloured, how wide it is. The only place that
// reads TERM and NO_COLOR (no-color.org: any non-empty value turns colours off).
#pragma once

#include <sys/ioctl.h>
#include <unistd.h>

#include <cstdlib>
#include <string>
#include <string_view>

namespace collx::tools {

inline bool is_terminal(int fd) {
    const char* term = std::getenv("TERM");
    return ::isatty(fd) == 1 && !(term != nullptr && std::string_view(term) == "dumb");
}

inline bool may_colour(int fd) {
    const char* no_color = std::getenv("NO_COLOR");
    return is_terminal(fd) && (no_color == nullptr || *no_color == '\0');
}

/// Columns of the terminal, 80 where unknown.
inline int terminal_width(int fd) {
    winsize size{};
    if (::ioctl(fd, TIOCGWINSZ, &size) == 0 && size.ws_col > 0) return size.ws_col;
    return 80;
}

/// Colours text with one of six plain colours in turn, readable on dark and light backgrounds.
inline std::string coloured(std::string_view text, int index) {
    static constexpr int codes[] = {36, 33, 35, 32, 34, 31};
    return "\033[" + std::to_string(codes[index % 6]) + "m" + std::string(text) + "\033[0m";
}

} // namespace collx::tools
