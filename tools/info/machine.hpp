// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Queries the machine: cores, memory, limits, page settings, and what the kernel permits, tested by trying it.
// Independent of jobs. Changes nothing that outlives the query.
#pragma once

#include <signal.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/statvfs.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <fstream>
#include <optional>
#include <sstream>
#include <string>

#include <collx/core/system_limits.hpp>
#include <collx/topo/discovery.hpp>
#include <collx/transport/shm.hpp>
#include <collx/transport/wait.hpp>

#include "support/format.hpp"

#include "facts.hpp"

namespace collx::tools::info {

inline std::string file_text(const char* path) {
    std::ifstream file(path);
    std::ostringstream text;
    text << file.rdbuf();
    std::string out = text.str();
    while (!out.empty() && (out.back() == '\n' || out.back() == ' ')) out.pop_back();
    return out;
}

/// Returns the number after `name:` in a file of such lines, in bytes where the line says kB.
inline std::optional<std::uint64_t> named_number(const std::string& text, const std::string& name) {
    std::istringstream lines(text);
    for (std::string line; std::getline(lines, line);) {
        if (line.rfind(name + ":", 0) != 0) continue;
        std::istringstream words(line.substr(name.size() + 1));
        std::uint64_t value = 0;
        std::string unit;
        if (!(words >> value)) return std::nullopt;
        words >> unit;
        return unit == "kB" ? value * 1024 : value;
    }
    return std::nullopt;
}

/// "always [madvise] never" gives madvise.
inline std::string chosen_word(const std::string& text) {
    const auto open = text.find('['), close = text.find(']');
    return open == std::string::npos || close == std::string::npos || close < open
               ? text
               : text.substr(open + 1, close - open - 1);
}

inline void add_bytes(section& s, const char* key, const char* label, std::optional<std::uint64_t> bytes) {
    if (bytes) s.add(key, label, size_text(static_cast<double>(*bytes)), *bytes);
    else s.add(key, label, "unknown", nullptr);
}

/// Runs f in a child process. Returns its exit code, or -1 if it was killed or took longer than `seconds`.
template <class F>
int in_child(unsigned seconds, F&& f) {
    const pid_t parent = ::getpid(), child = ::fork();
    if (child == 0) {
        ::prctl(PR_SET_PDEATHSIG, SIGKILL);
        if (::getppid() != parent) ::_exit(125);
        ::alarm(seconds);
        int code = 125;
        try {
            code = f();
        } catch (...) {
        }
        ::_exit(code);
    }
    int status = 0;
    if (child < 0 || ::waitpid(child, &status, 0) != child || !WIFEXITED(status)) return -1;
    return WEXITSTATUS(status);
}

// ---------------------------------------------------------------------------------------------- sections

inline section machine_section(findings& out) {
    section s{"machine", "Machine"};
    const int usable = collx::usable_cores(), online = static_cast<int>(::sysconf(_SC_NPROCESSORS_ONLN));
    s.add("cores", "cores usable",
          std::to_string(usable) + (usable < online ? " (this process may not use the others)" : ""), usable);
    s.add("cores_online", "cores online", std::to_string(online), online);
    const std::string memory = file_text("/proc/meminfo");
    const auto available = named_number(memory, "MemAvailable");
    add_bytes(s, "memory", "memory", named_number(memory, "MemTotal"));
    add_bytes(s, "memory_available", "memory available", available);
    struct statvfs room {};
    if (::statvfs("/dev/shm", &room) == 0) {
        const std::uint64_t bytes = std::uint64_t{room.f_blocks} * room.f_frsize,
                            free = std::uint64_t{room.f_bavail} * room.f_frsize;
        s.add("dev_shm", "/dev/shm",
              size_text(static_cast<double>(bytes)) + ", " + size_text(static_cast<double>(free)) +
                  " free (collx does not use it)",
              bytes);
    } else {
        s.add("dev_shm", "/dev/shm", "none (collx does not use it)", nullptr);
    }
    for (const auto& [key, label, path] :
         {std::tuple{"huge_pages", "huge pages, private memory", "/sys/kernel/mm/transparent_hugepage/enabled"},
          std::tuple{"huge_pages_shared", "huge pages, shared memory",
                     "/sys/kernel/mm/transparent_hugepage/shmem_enabled"}}) {
        const std::string word = chosen_word(file_text(path));
        s.add(key, label, word.empty() ? "unknown" : word);
    }
    if (available && *available < (std::uint64_t{256} << 20))
        out.problems.push_back({"only " + size_text(static_cast<double>(*available)) + " of memory are available",
                                "end other programs, or use a larger machine or container"});
    return s;
}

/// "0-3,8".
inline std::string list_text(const std::vector<int>& numbers) {
    std::string text;
    for (std::size_t i = 0; i < numbers.size(); ++i) {
        std::size_t last = i;
        while (last + 1 < numbers.size() && numbers[last + 1] == numbers[last] + 1) ++last;
        text += (text.empty() ? "" : ",") + std::to_string(numbers[i]);
        if (last > i) text += "-" + std::to_string(numbers[last]);
        i = last;
    }
    return text.empty() ? "none" : text;
}

/// Lists what /sys says of nodes, caches and cards, a line each. Caches of one kind and size share a line.
inline section topology_section(const collx::topo::discovered& d = collx::topo::discover()) {
    section s{"topology", "Topology (from /sys)"};
    for (const auto& n : d.nodes) {
        std::string distances;
        for (const int distance : n.distances) distances += " " + std::to_string(distance);
        s.add("node" + std::to_string(n.number), "NUMA node " + std::to_string(n.number),
              "cores " + list_text(n.cores) + ", " + size_text(static_cast<double>(n.memory_bytes)) +
                  (distances.empty() ? "" : ", distances" + distances),
              {{"cores", n.cores}, {"memory_bytes", n.memory_bytes}, {"distances", n.distances}});
    }
    for (std::size_t i = 0; i < d.caches.size(); ++i) {
        const auto& c = d.caches[i];
        const auto alike = [&](const collx::topo::cache& o) {
            return o.level == c.level && o.type == c.type && o.bytes == c.bytes && o.cores.size() == c.cores.size();
        };
        if (std::find_if(d.caches.begin(), d.caches.end(), alike) != d.caches.begin() + static_cast<std::ptrdiff_t>(i))
            continue;
        const auto count = std::count_if(d.caches.begin(), d.caches.end(), alike);
        const std::string level = "L" + std::to_string(c.level), cores = std::to_string(c.cores.size());
        s.add(level + "_" + c.type, level + " " + c.type,
              std::to_string(count) + " of " + size_text(static_cast<double>(c.bytes)) + ", each of " + cores +
                  (c.cores.size() == 1 ? " core" : " cores"),
              {{"count", count}, {"bytes", c.bytes}, {"cores_each", c.cores.size()}});
    }
    for (const auto& c : d.cards)
        s.add("card_" + c.name, "network card " + c.name,
              (c.is_up ? std::string("up") : std::string("down")) +
                  (c.speed_mbit > 0 ? ", " + std::to_string(c.speed_mbit) + " Mbit/s" : "") +
                  (c.node >= 0 ? ", at NUMA node " + std::to_string(c.node) : ""),
              {{"up", c.is_up}, {"speed_mbit", c.speed_mbit}, {"node", c.node}});
    if (s.facts.empty()) s.add("none", "nothing", "is shown here", true);
    return s;
}

inline section limits_section(findings& out) {
    section s{"limits", "Limits"};
    const auto add = [&](int which, const char* key, const char* label, bool is_bytes) {
        rlimit limit{};
        ::getrlimit(static_cast<__rlimit_resource_t>(which), &limit);
        if (limit.rlim_cur == RLIM_INFINITY) s.add(key, label, "unlimited", nullptr);
        else if (is_bytes) add_bytes(s, key, label, limit.rlim_cur);
        else s.add(key, label, std::to_string(limit.rlim_cur), limit.rlim_cur);
        return limit.rlim_cur;
    };
    const auto files = add(RLIMIT_NOFILE, "open_files", "open files", false);
    add(RLIMIT_MEMLOCK, "lockable_memory", "lockable memory", true);
    add_bytes(s, "locked_memory", "locked now", named_number(file_text("/proc/self/status"), "VmLck"));
    const auto space = add(RLIMIT_AS, "address_space", "address space", true);
    const auto file_size = add(RLIMIT_FSIZE, "file_size", "file size", true);
    add(RLIMIT_NPROC, "processes", "processes and threads", false);
    if (files < 64)
        out.problems.push_back(
            {"only " + std::to_string(files) + " files may be open: a rank needs one per peer", "ulimit -n 1024"});
    for (const auto& [limit, name, flag] :
         {std::tuple{space, "address space", "-v"}, std::tuple{file_size, "size of files", "-f"}})
        if (limit != RLIM_INFINITY && limit < (rlim_t{16} << 30))
            out.problems.push_back({std::string("the ") + name + " is limited to " +
                                        size_text(static_cast<double>(limit)) +
                                        ", so there is little room for shared memory",
                                    std::string("ulimit ") + flag + " unlimited"});
    return s;
}

/// Whether ranks may read each other's memory; `why_not_tried` and the remedy: this process could not find out.
struct attach_probe {
    bool may = false;
    std::string why_not_tried, remedy;
};

// Ranks are siblings, so siblings must try: a parent may read its child where two siblings may not read each other.
inline attach_probe try_to_attach() {
    const auto not_tried = [](const char* what, const char* (*remedy)(int)) {
        const int reason = errno;
        return attach_probe{false, std::string(what) + ": " + std::strerror(reason), remedy(reason)};
    };
    int ready[2], stay[2];
    if (::pipe(ready) != 0) return not_tried("no pipe", collx::detail::remedy_for_descriptor);
    if (::pipe(stay) != 0) {
        const attach_probe p = not_tried("no pipe", collx::detail::remedy_for_descriptor);
        for (const int fd : ready) ::close(fd);
        return p;
    }
    static std::uint64_t word; // at the same address in both children
    const pid_t holder = ::fork();
    if (holder == 0) {
        ::prctl(PR_SET_PDEATHSIG, SIGKILL);
        word = 0x636f'6c6c'78u;
        ::close(stay[1]);
        char c = 1;
        if (::write(ready[1], &c, 1) == 1) (void)!::read(stay[0], &c, 1); // until the parent closes its end
        ::_exit(0);
    }
    attach_probe p;
    if (holder < 0) p = not_tried("no process", collx::detail::remedy_for_process);
    char c = 0;
    const bool is_ready = holder > 0 && ::read(ready[0], &c, 1) == 1;
    p.may = is_ready && in_child(5, [&] { return collx::cma_probe(holder, &word, 0x636f'6c6c'78u) ? 0 : 1; }) == 0;
    for (int fd : {ready[0], ready[1], stay[0], stay[1]}) ::close(fd);
    if (holder > 0) ::waitpid(holder, nullptr, 0);
    return p;
}

inline void add_attach(section& s, findings& out) {
    const attach_probe attach = try_to_attach();
    const std::string scope = file_text("/proc/sys/kernel/yama/ptrace_scope");
    if (!attach.why_not_tried.empty()) {
        s.add("cross_memory_attach", "cross-memory attach", "not tried: " + attach.why_not_tried, nullptr);
        out.problems.push_back(
            {"cross-memory attach could not be tried: " + attach.why_not_tried, attach.remedy, false});
        return;
    }
    s.add("cross_memory_attach", "cross-memory attach",
          attach.may ? "yes" : "no" + (scope.empty() ? "" : " (ptrace_scope is " + scope + ")"), attach.may);
    if (!attach.may)
        out.problems.push_back(
            {"ranks may not read each other's memory, so the policy attach is unsupported (nothing else needs it)",
             "sysctl kernel.yama.ptrace_scope=0, or give the container CAP_SYS_PTRACE"});
}

/// The remedy for a call that makes a descriptor: where the limit of open files is why it failed, another kernel is
/// none.
inline std::string remedy_for(int reason, const char* otherwise) {
    return reason == EMFILE || reason == ENFILE ? collx::detail::remedy_for_descriptor(reason) : otherwise;
}

inline section kernel_section(findings& out) {
    section s{"kernel", "Kernel"};
    s.add("release", "release", file_text("/proc/sys/kernel/osrelease"));
    const int memory = ::memfd_create("collx_info", MFD_CLOEXEC | MFD_ALLOW_SEALING);
    const int memory_reason = memory < 0 ? errno : 0;
    const std::string why_no_memory = memory < 0 ? std::strerror(memory_reason) : "";
    const bool seals = memory >= 0 && ::fcntl(memory, F_ADD_SEALS, collx::detail::size_seals) == 0;
    if (memory >= 0) ::close(memory);
    s.add("memfd", "memfd with seals", seals ? "yes" : "no " + why_no_memory, seals);
    const long process = ::syscall(SYS_pidfd_open, ::getpid(), 0);
    const int process_reason = process < 0 ? errno : 0;
    const std::string why_no_process = process < 0 ? std::strerror(process_reason) : "";
    if (process >= 0) ::close(static_cast<int>(process));
    s.add("pidfd", "pidfd", process >= 0 ? "yes" : "no: " + why_no_process, process >= 0);
    if (!seals)
        out.problems.push_back(
            {"shared memory cannot be made: memfd_create with seals fails " + why_no_memory,
             remedy_for(memory_reason, "use Linux 3.17 or newer, or allow the call in the container's seccomp profile"),
             true});
    if (process < 0)
        out.problems.push_back(
            {"the death of a rank is found late: pidfd_open fails (" + why_no_process + ")",
             remedy_for(process_reason,
                        "use Linux 5.3 or newer, or allow the call in the container's seccomp profile")});
    add_attach(s, out);
    return s;
}

} // namespace collx::tools::info
