// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Remedies where the system is out of a resource, chosen by its reason (errno) and by the limits of this process.
#pragma once

#include <pthread.h>
#include <sys/mman.h>
#include <sys/resource.h>

#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <cstring>

#include <collx/core/config.hpp>
#include <collx/version.hpp>

COLLX_BEGIN_NAMESPACE
namespace detail {

// The resource that a rank lacks. Other ranks receive it as a number with the rank's failure (transport/failure.hpp).
enum class shortage : std::uint8_t {
    unknown,
    open_files,
    system_files,
    address_space,
    file_size,
    locked,
    threads,
    memory,
    arena,
    ports
};
inline constexpr shortage last_shortage = shortage::ports;

// What a rank lacks, and the remedy, in the errors of the other ranks.
inline const char* lack_there(shortage s) {
    return s == shortage::arena ? "has no shared address space left" : "has no descriptor, port or memory left";
}
[[gnu::cold]] inline const char* remedy_there(shortage s) {
    switch (s) {
        case shortage::open_files: return "raise its limit of open files (ulimit -n)";
        case shortage::system_files:
            return "its system has no more open files: end programs there, or raise fs.file-max";
        case shortage::address_space: return "raise its address space limit (ulimit -v)";
        case shortage::file_size: return "raise its file size limit (ulimit -f)";
        case shortage::locked: return "raise its limit of locked memory (ulimit -l)";
        case shortage::threads: return "raise its limit of threads (ulimit -u, pids.max)";
        case shortage::memory: return "free memory there, or raise the memory limit of its job";
        case shortage::arena: return "destroy communicators or shared buffers there, or raise COLLX_ARENA_BYTES";
        case shortage::ports: return "its system has no free local port: widen net.ipv4.ip_local_port_range";
        default: return "raise its limits (ulimit -n for connections, ulimit -v, the job's memory); see its output";
    }
}
// Finds the shortage from the errno of a failed call that makes descriptors.
constexpr shortage shortage_of_descriptor(int reason) {
    switch (reason) {
        case EMFILE: return shortage::open_files;
        case ENFILE: return shortage::system_files;
        case ENOMEM:
        case ENOBUFS:
        case ENOSPC: return shortage::memory;
        case EADDRNOTAVAIL: return shortage::ports;
        default: return shortage::unknown;
    }
}
// Finds the shortage from the remedy in this rank's own error.
[[gnu::cold]] inline shortage shortage_in(const char* text) {
    constexpr const char* signs[] = {nullptr,
                                     "ulimit -n",
                                     "fs.file-max",
                                     "ulimit -v",
                                     "ulimit -f)",
                                     "ulimit -l",
                                     "ulimit -u",
                                     "memory limit of this job",
                                     "COLLX_ARENA_BYTES",
                                     "ip_local_port_range"};
    shortage found = shortage::unknown;
    for (int s = 1; s <= static_cast<int>(last_shortage); ++s)
        if (std::strstr(text, signs[s]) != nullptr) {
            if (found != shortage::unknown) return shortage::unknown; // a text that lists several limits names none
            found = static_cast<shortage>(s);
        }
    return found;
}

// A limit of this process; SIZE_MAX: none.
inline std::size_t limit_of(decltype(RLIMIT_AS) what) {
    rlimit l{};
    return ::getrlimit(what, &l) != 0 || l.rlim_cur == RLIM_INFINITY ? SIZE_MAX : static_cast<std::size_t>(l.rlim_cur);
}

// Whether a call that makes or connects descriptors failed for lack of one, of memory or of a local port: not a fault
// of the other end.
inline bool is_out_of_descriptors(int reason) { return shortage_of_descriptor(reason) != shortage::unknown; }
// The remedy for the errno of a failed call that makes descriptors: socket, connect, memfd_create, eventfd, open, dup.
[[gnu::cold]] inline const char* remedy_for_descriptor(int reason) {
    switch (reason) {
        case EMFILE: return "raise the limit of open files (ulimit -n)";
        case ENFILE: return "the whole system has no more open files: end programs, or raise fs.file-max";
        case ENOMEM:
        case ENOBUFS:
        case ENOSPC: return "free memory, or raise the memory limit of this job";
        case EADDRNOTAVAIL: return "free local ports, or widen net.ipv4.ip_local_port_range";
        case EPERM:
        case EACCES: return "let this process do so (seccomp, SELinux, rules of the container)";
        default: return "this system cannot do it: another kernel, or other rules of the container";
    }
}

// The same for mmap() of pages that need no memory yet.
[[gnu::cold]] inline const char* remedy_for_mapping(int reason) {
    switch (reason) {
        case EAGAIN: return "raise the limit of locked memory (ulimit -l), or do not lock all memory (mlockall)";
        case ENOMEM:
            return limit_of(RLIMIT_AS) != SIZE_MAX
                       ? "raise the address space limit (ulimit -v)"
                       : "free memory, allow overcommit (vm.overcommit_memory) or raise vm.max_map_count";
        default: return remedy_for_descriptor(reason);
    }
}

// The same for fork().
[[gnu::cold]] inline const char* remedy_for_process(int reason) {
    switch (reason) {
        case EAGAIN:
            return "raise the limit of processes and threads (ulimit -u, pids.max, kernel.threads-max), or start fewer";
        case ENOMEM: return "free memory, or raise the memory limit of this job";
        default: return remedy_for_descriptor(reason);
    }
}

// The same for pthread_create(), which returns EAGAIN both when no more threads are allowed and when there is no
// address space for a stack.
[[gnu::cold]] inline const char* remedy_for_thread() {
    pthread_attr_t usual;
    std::size_t stack_bytes = 0;
    if (::pthread_attr_init(&usual) == 0) {
        (void)::pthread_attr_getstacksize(&usual, &stack_bytes);
        ::pthread_attr_destroy(&usual);
    }
    void* const p = stack_bytes == 0 ? nullptr
                                     : ::mmap(nullptr, stack_bytes, PROT_NONE,
                                              MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_STACK, -1, 0);
    if (p == MAP_FAILED)
        return errno == EAGAIN ? remedy_for_mapping(EAGAIN)
                               : "raise the address space limit (ulimit -v), or make stacks smaller (ulimit -s)";
    if (p != nullptr) ::munmap(p, stack_bytes);
    return "raise the limit of threads (ulimit -u, pids.max, kernel.threads-max), or use fewer";
}

} // namespace detail
COLLX_END_NAMESPACE
