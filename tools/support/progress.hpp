// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// One line that shows how far a long run is, on a terminal only: a log file or a pipe gets nothing. The line is erased
// when the object ends, so results printed to the same terminal are never mixed with it.
#pragma once

#include <unistd.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include <collx/core/clock.hpp>

#include "format.hpp"
#include "terminal.hpp"

namespace collx::tools {

/// " 42 %  all_reduce 64 KiB  3 s left", cut to `width`. No estimate before the first item is done.
inline std::string progress_text(std::size_t done, std::size_t total, double elapsed_ns, std::string_view item,
                                 int width) {
    done = std::min(done, total);
    const auto percent = total == 0 ? std::size_t{100} : done * 100 / total;
    std::string text = std::to_string(percent) + " %  ";
    text.insert(0, percent < 10 ? "  " : percent < 100 ? " " : "");
    text += item;
    if (done > 0 && done < total) {
        const double left_ns = elapsed_ns / static_cast<double>(done) * static_cast<double>(total - done);
        text += "  " + (left_ns < 1e9 ? std::string("less than 1 s") : duration_text(left_ns)) + " left";
    }
    if (width > 0 && text.size() > static_cast<std::size_t>(width)) text.resize(static_cast<std::size_t>(width));
    return text;
}

class progress_line {
public:
    explicit progress_line(std::size_t total, bool wanted = true, int fd = STDERR_FILENO)
        : total_(total), fd_(fd), shown_(wanted && is_terminal(fd)), start_ns_(now_ns()) {}
    progress_line(const progress_line&) = delete;
    progress_line& operator=(const progress_line&) = delete;
    ~progress_line() { erase(); }

    /// `done` items are finished and `item` comes next. Cost: nothing unless it is a terminal and 100 ms have passed.
    void update(std::size_t done, std::string_view item) {
        if (!shown_) return;
        const auto now = now_ns();
        if (drawn_ && now - last_ns_ < 100'000'000) return;
        last_ns_ = now;
        drawn_ = true;
        const auto elapsed = static_cast<double>(now - start_ns_);
        // One column stays free: some terminals wrap when the last one is used.
        write("\r\033[K" + progress_text(done, total_, elapsed, item, terminal_width(fd_) - 1));
    }

    /// Erases the line, for example before a row of results is printed; the next update draws it again.
    void erase() {
        if (drawn_) write("\r\033[K");
        drawn_ = false;
    }

private:
    // A progress line that cannot be written is not worth an error.
    void write(std::string_view text) const {
        [[maybe_unused]] const auto written = ::write(fd_, text.data(), text.size());
    }

    std::size_t total_;
    int fd_;
    bool shown_;
    bool drawn_ = false;
    std::int64_t start_ns_;
    std::int64_t last_ns_ = 0;
};

} // namespace collx::tools
