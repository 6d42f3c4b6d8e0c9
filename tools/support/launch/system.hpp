// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// What the parts of the launcher share of the operating system: a pipe, a name, cores in the order in which ranks
// are bound to them. Independent of ranks.
#pragma once

#include <fcntl.h>
#include <sched.h>
#include <sys/random.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <fstream>
#include <stdexcept>
#include <string>
#include <system_error>
#include <vector>

#include <collx/core/descriptor.hpp>
#include <collx/core/system_limits.hpp>

namespace collx::tools::launch {

/// The system refuses something; the command line is not at fault.
struct refused : std::runtime_error {
    using std::runtime_error::runtime_error;
};
[[noreturn]] inline void fail_with_errno(const std::string& what,
                                         const char* (*remedy)(int) = collx::detail::remedy_for_descriptor) {
    const int reason = errno;
    throw refused(what + ": " + std::generic_category().message(reason) + " (" + remedy(reason) + ")");
}

struct pipe_ends {
    descriptor read, write;
};

inline pipe_ends make_pipe() {
    int fd[2];
    if (::pipe2(fd, O_CLOEXEC) != 0) fail_with_errno("cannot make a pipe");
    return {descriptor(fd[0]), descriptor(fd[1])};
}

inline void make_non_blocking(const descriptor& d) {
    ::fcntl(d.get(), F_SETFL, ::fcntl(d.get(), F_GETFL) | O_NONBLOCK);
}

/// Returns 32 hexadecimal digits that no other launch has.
inline std::string random_job_name() {
    unsigned char bytes[16];
    if (::getrandom(bytes, sizeof bytes, 0) != sizeof bytes)
        fail_with_errno("cannot get random bytes for the job's name");
    std::string out;
    for (const unsigned char b : bytes)
        for (const int digit : {b >> 4, b & 15}) out += "0123456789abcdef"[digit];
    return out;
}

/// Returns the processors that this process may use: one of each core first, then the cores' second hardware threads.
inline std::vector<int> processors_cores_first() {
    cpu_set_t allowed;
    CPU_ZERO(&allowed);
    if (::sched_getaffinity(0, sizeof allowed, &allowed) != 0)
        fail_with_errno("cannot ask which processors are allowed");
    struct place {
        int turn, cpu; // turn: how many earlier processors share the core
        std::string core;
    };
    std::vector<place> places;
    for (int cpu = 0; cpu < CPU_SETSIZE; ++cpu) {
        if (!CPU_ISSET(cpu, &allowed)) continue;
        std::string core; // the list of siblings names the core; without it every processor is a core
        std::ifstream("/sys/devices/system/cpu/cpu" + std::to_string(cpu) + "/topology/thread_siblings_list") >> core;
        const auto shares = [&](const place& p) { return !core.empty() && p.core == core; };
        places.push_back({static_cast<int>(std::count_if(places.begin(), places.end(), shares)), cpu, core});
    }
    std::stable_sort(places.begin(), places.end(), [](const place& a, const place& b) { return a.turn < b.turn; });
    std::vector<int> out;
    for (const auto& p : places) out.push_back(p.cpu);
    return out;
}

} // namespace collx::tools::launch
