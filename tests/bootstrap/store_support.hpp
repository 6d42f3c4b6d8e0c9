// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// A test's own directory; the destructor deletes it.
#pragma once

#include <dirent.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstdlib>
#include <string>
#include <vector>

namespace collx_test {

inline std::vector<std::string> names_in(const std::string& folder) {
    std::vector<std::string> names;
    if (DIR* d = ::opendir(folder.c_str())) {
        while (const dirent* e = ::readdir(d))
            if (std::string name = e->d_name; name != "." && name != "..") names.push_back(name);
        ::closedir(d);
    }
    return names;
}

struct scratch_directory {
    std::string path;
    scratch_directory() {
        const char* base = std::getenv("TMPDIR");
        path = std::string(base != nullptr ? base : "/tmp") + "/collx-test-XXXXXX";
        if (::mkdtemp(path.data()) == nullptr) std::abort();
    }
    scratch_directory(const scratch_directory&) = delete;
    ~scratch_directory() {
        for (const auto& name : names_in(path)) {
            const std::string inner = path + "/" + name;
            for (const auto& file : names_in(inner)) ::unlink((inner + "/" + file).c_str());
            if (::unlink(inner.c_str()) != 0) ::rmdir(inner.c_str());
        }
        ::rmdir(path.c_str());
    }
};

} // namespace collx_test
