// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Captures what this process writes to its standard error while the object lives.
#pragma once

#include <cstdio>
#include <stdexcept>
#include <string>

#include <unistd.h>

namespace collx_test {

class caught_stderr {
public:
    caught_stderr() : file_(std::tmpfile()), real_(::dup(2)) {
        if (file_ == nullptr || real_ < 0 || ::dup2(::fileno(file_), 2) < 0) throw std::runtime_error("no file");
    }
    ~caught_stderr() {
        ::dup2(real_, 2);
        ::close(real_);
        std::fclose(file_);
    }
    caught_stderr(const caught_stderr&) = delete;
    caught_stderr& operator=(const caught_stderr&) = delete;

    // Returns everything written since the previous call.
    std::string text() {
        std::fflush(stderr);
        std::string s(65536, '\0');
        const auto n = ::pread(::fileno(file_), s.data(), s.size(), read_);
        s.resize(n < 0 ? 0 : static_cast<std::size_t>(n));
        read_ += n < 0 ? 0 : n;
        return s;
    }

private:
    std::FILE* file_;
    int real_;
    off_t read_ = 0;
};

} // namespace collx_test
