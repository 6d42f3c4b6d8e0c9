// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Runs a built tool and keeps its output. timeout(1) ends a tool that hangs.
#pragma once

#include <sys/wait.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <sstream>
#include <string>

#include "support/patience.hpp"
#include "support/skip.hpp"

namespace collx_test {

inline std::string file_contents(const std::string& path) {
    std::ifstream file(path, std::ios::binary);
    std::ostringstream text;
    text << file.rdbuf();
    return text.str();
}

// A unique path; the destructor removes the file.
class temporary_file {
public:
    explicit temporary_file(const std::string& ending = "") {
        const char* folder = std::getenv("TMPDIR");
        path_ = std::string(folder != nullptr ? folder : "/tmp") + "/collx_test_XXXXXX" + ending;
        const int fd = ::mkstemps(path_.data(), static_cast<int>(ending.size()));
        if (fd < 0) std::abort();
        ::close(fd);
    }
    temporary_file(const temporary_file&) = delete;
    ~temporary_file() { ::unlink(path_.c_str()); }
    [[nodiscard]] const std::string& path() const { return path_; }

private:
    std::string path_;
};

struct finished {
    int status = -1; // as a shell reports it
    std::string out, err;

    [[nodiscard]] bool prints(const std::string& text) const { return out.find(text) != std::string::npos; }
    [[nodiscard]] bool complains(const std::string& text) const { return err.find(text) != std::string::npos; }
};

// `before`: assignments like COLLX_RANK=1, or ulimit commands that end in a semicolon.
inline finished run_program(const std::string& path, const std::string& arguments, const std::string& before = "") {
    const temporary_file errors;
    const std::string line = before + " timeout -k 5 " + std::to_string(patient_s(120)) + " '" + path + "' " +
                             arguments + " 2>'" + errors.path() + "' </dev/null";
    finished f;
    std::FILE* pipe = ::popen(line.c_str(), "r");
    if (pipe == nullptr) return f;
    char block[4096];
    for (std::size_t n; (n = std::fread(block, 1, sizeof block, pipe)) != 0;) f.out.append(block, n);
    const int status = ::pclose(pipe);
    f.status = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
    f.err = file_contents(errors.path());
    return f;
}

// Gets the path of a tool of this build, or skips the case. Not from a variable: the tools refuse unknown COLLX_* ones.
inline bool find_program(const std::string& name, std::string& path) {
    path = std::string(COLLX_TOOL_DIR) + "/" + name;
    if (::access(path.c_str(), X_OK) == 0) return true;
    skip("the tool was not built.");
    return false;
}

} // namespace collx_test
