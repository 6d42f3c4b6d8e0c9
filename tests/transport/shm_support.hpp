// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// What the tests of joining share: names that no other run uses, and the counts that must not grow.
#pragma once

#include <dirent.h>
#include <unistd.h>

#include <cstdio>
#include <cstring>
#include <string>

#include <collx/transport/shm.hpp>

namespace collx_test {

inline std::string fresh_job() {
    static int number = 0;
    return "test-" + std::to_string(::getpid()) + "-" + std::to_string(++number) + "-" +
           std::to_string(collx::now_ns());
}

inline int join_and_leave(const std::string& job, int rank, int ranks, int limit_ms) {
    (void)collx::join_shm(job.c_str(), rank, ranks, collx::deadline::in_ns(std::int64_t{limit_ms} * 1'000'000));
    return 0;
}

inline int lines_with(const char* file, const char* text) {
    std::FILE* f = std::fopen(file, "re");
    if (f == nullptr) return -1;
    int n = 0;
    char line[1024];
    while (std::fgets(line, sizeof line, f) != nullptr) n += std::strstr(line, text) != nullptr;
    std::fclose(f);
    return n;
}
inline int unix_sockets_named(const char* text) { return lines_with("/proc/net/unix", text); }

inline int entries_of(const char* folder) {
    DIR* d = ::opendir(folder);
    if (d == nullptr) return -1;
    int n = 0;
    while (::readdir(d) != nullptr) ++n;
    ::closedir(d);
    return n;
}

struct counts {
    int descriptors, shared_mappings, shm_names;
    bool operator==(const counts&) const = default;
};
// Mappings of memfds, not all mappings: malloc makes those as it likes.
inline counts count_mine() {
    return {entries_of("/proc/self/fd"), lines_with("/proc/self/maps", "memfd:collx"), entries_of("/dev/shm")};
}

} // namespace collx_test
