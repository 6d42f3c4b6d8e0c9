// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// A temporary file with a text, for tests of what reads files.
#pragma once

#include <unistd.h>

#include <cstdlib>
#include <string>

namespace collx_test {

// The destructor deletes the file.
class written_file {
public:
    explicit written_file(const std::string& text) {
        char name[] = "/tmp/collx-test-XXXXXX";
        const int f = ::mkstemp(name);
        if (f < 0 || ::write(f, text.data(), text.size()) != static_cast<ssize_t>(text.size())) std::abort();
        ::close(f);
        name_ = name;
    }
    written_file(const written_file&) = delete;
    ~written_file() { ::unlink(name_.c_str()); }
    const std::string& name() const { return name_; }

private:
    std::string name_;
};

} // namespace collx_test
