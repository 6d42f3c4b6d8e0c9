// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Shared by the tests of joining: names that no other run uses, and the counts that must not grow.
#pragma once

#include <dirent.h>
#include <unistd.h>

#include <chrono>
#include <cstdio>
#include <cstring>
#include <string>
#include <thread>

#include <collx/transport/shm.hpp>

#include "support/patience.hpp"

namespace collx_test {

inline std::string fresh_job() {
    static int number = 0;
    return "test-" + std::to_string(::getpid()) + "-" + std::to_string(++number) + "-" +
           std::to_string(collx::now_ns());
}

// Limits of ten seconds and more are for hangs and are stretched; the test expects shorter ones to be reached.
inline int join_and_leave(const std::string& job, int rank, int ranks, int limit_ms) {
    const std::int64_t limit_ns = std::int64_t{limit_ms} * 1'000'000;
    (void)collx::join_shm(job.c_str(), rank, ranks,
                          collx::deadline::in_ns(limit_ms < 10'000 ? limit_ns : patient(limit_ns)));
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
// The ends of connections and the listener, which all show the name. Of one job only: others may run here.
inline int unix_sockets_of(const std::string& job) {
    return lines_with("/proc/net/unix", collx::detail::name_of_job(job.c_str()).address.sun_path + 1);
}
// Waits until rank 0 listens and `guests` processes have connected.
inline bool wait_for_guests(const std::string& job, int guests) {
    for (const auto until = collx::deadline::in_ns(collx_test::patient(20'000'000'000));
         unix_sockets_of(job) < 1 + guests; ::usleep(1000))
        if (until.passed()) return false;
    return true;
}

// Gives connected guests time to be heard: nothing outside rank 0 shows that it has received their messages.
inline void give_time_for_words() { std::this_thread::sleep_for(heard_within(std::chrono::milliseconds(1000))); }

inline int entries_of(const char* folder) {
    DIR* d = ::opendir(folder);
    if (d == nullptr) return -1;
    int n = 0;
    while (::readdir(d) != nullptr) ++n;
    ::closedir(d);
    return n;
}

// The number of collx names in /dev/shm; other programs' names do not count.
inline int shm_names() {
    DIR* d = ::opendir("/dev/shm");
    if (d == nullptr) return -1;
    int n = 0;
    while (const dirent* e = ::readdir(d)) n += std::strstr(e->d_name, "collx") != nullptr;
    ::closedir(d);
    return n;
}

struct counts {
    int descriptors, shared_mappings, shm_names;
    bool operator==(const counts&) const = default;
};
// Counts mappings of memfds only: malloc makes others as it likes.
inline counts count_mine() {
    return {entries_of("/proc/self/fd"), lines_with("/proc/self/maps", "memfd:collx"), collx_test::shm_names()};
}

} // namespace collx_test
