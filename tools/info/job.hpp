// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Queries collx: which job this process would join and why, what each COLLX_* variable means and holds, and which
// transports work, tested by adding two numbers over them.
#pragma once

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <optional>
#include <string>

#include <collx/bootstrap/environment.hpp>
#include <collx/comm/all_reduce.hpp>
#include <collx/comm/run_threads.hpp>
#include <collx/core/clock.hpp>
#include <collx/core/system_limits.hpp>
#include <collx/job/machine.hpp>
#include <collx/sim/machine_file.hpp>
#include <collx/transport/verbs_device.hpp>
#if COLLX_HAS_VERBS
#include <collx/interop/libibverbs.hpp>
#endif

#include "gpus.hpp"
#include "launchers.hpp"
#include "machine.hpp"
#include "protection.hpp"

namespace collx::tools::info {

inline section version_section() {
    section s{"collx", "collx"};
    s.add("version", "version", COLLX_VERSION_STRING);
#if defined(__clang__)
    s.add("compiler", "compiler", "clang " __clang_version__);
#else
    s.add("compiler", "compiler", "g++ " __VERSION__);
#endif
    s.add("checked_by_default", "calls are compared across ranks",
          collx::checked_by_default ? "yes (debug build)" : "on request (set_checked, COLLX_CHECKED)",
          collx::checked_by_default);
    return s;
}

// Splits a message of the library: its last parentheses contain the remedy.
inline problem problem_from(const std::string& what, bool is_fatal) {
    std::string text = what, remedy = "see the sentence above";
    std::size_t open = what.ends_with(')') ? what.size() - 1 : 0;
    for (int depth = open > 0; depth > 0 && open > 0;) depth += what[--open] == ')' ? 1 : what[open] == '(' ? -1 : 0;
    if (open > 1 && what[open - 1] == ' ') {
        text = what.substr(0, open - 1);
        remedy = what.substr(open + 1, what.size() - open - 2);
    }
    if (text.rfind("collx: ", 0) == 0) text.erase(0, 7);
    return {text, remedy, is_fatal};
}

// Whether COLLX_RECORD_DIR can be used, as a rank uses it. Leaves nothing behind.
inline void try_record_directory(findings& out, const job_description& d) {
    if (d.record == 0 || d.record_directory.empty()) return;
    const char* const directory = d.record_directory.c_str();
    const bool is_made = ::mkdir(directory, 0700) == 0;
    std::string file = std::string(directory) + "/collx_info-XXXXXX";
    const int fd = ::mkostemp(file.data(), O_CLOEXEC);
    const int reason = fd < 0 ? errno : 0;
    if (fd >= 0) {
        ::close(fd);
        ::unlink(file.c_str());
    }
    if (is_made) ::rmdir(directory);
    if (reason != 0)
        out.problems.push_back({std::string("calls cannot be recorded in COLLX_RECORD_DIR=") +
                                    collx::detail::printable(directory).text + ": " + std::strerror(reason),
                                "let COLLX_RECORD_DIR name a directory where this user may write, or unset it", true});
}

// Returns why the costs in a file cannot be used, or nothing.
inline std::optional<problem> try_machine_file(const std::string& file) {
    try {
        (void)collx::sim::read_machine_file(file);
        return {};
    } catch (const std::exception& e) {
        return problem_from(e.what(), false);
    }
}
// Without the costs of this machine only explain() lacks its times.
inline void try_machine_costs(findings& out, const environment& env) {
    const char* const file = env.get("COLLX_MACHINE");
    if (file == nullptr) return;
    if (auto p = try_machine_file(file)) {
        p->what = "COLLX_MACHINE cannot be used, so explain() has no times: " + p->what;
        out.problems.push_back(*p);
    }
}

inline section job_section(findings& out, const environment& env = environment()) {
    section s{"job", "Job"};
    try {
        const job_description d = describe_job(env);
        s.add("found_by", "found by", why_found(d, env), d.found_by);
        add_losers(s, d, env);
        s.add("rank", "rank", std::to_string(d.rank), d.rank);
        s.add("size", "ranks", std::to_string(d.size), d.size);
        s.add("local_size", "ranks on this host", std::to_string(d.local_size), d.local_size);
        s.add("meets", "ranks meet by",
              d.size == 1                   ? "nothing: there is one"
              : !d.job.empty()              ? "the name " + d.job
              : d.store.empty()             ? "nothing: " + collx::kept_text(d.remedy)
              : d.store.starts_with("pmi:") ? "the process manager at descriptor " + d.store.substr(4)
                                            : "the store " + d.store);
        s.add("timeout_ns", "timeout", duration_text(static_cast<double>(d.timeout_ns)), d.timeout_ns);
        const int cores = collx::usable_cores();
        const bool shares = d.local_size > cores;
        find_launcher_problems(out, d, env);
        try {
            add_protection(s, out, d, env);
            if (env.get("COLLX_TOPOLOGY") != nullptr) (void)collx::detail::read_own_machine(env, d.rank, 0, 1);
        } catch (const collx::error& e) {
            out.problems.push_back(problem_from(e.what(), true));
        }
        try_record_directory(out, d);
        try_machine_costs(out, env);
        s.add("oversubscribed", "more ranks than cores", shares ? "yes: ranks yield while they wait" : "no", shares);
        if (shares)
            out.problems.push_back({std::to_string(d.local_size) + " ranks share " + std::to_string(cores) +
                                        " cores: each wait costs a context switch",
                                    "start at most " + std::to_string(cores) +
                                        " ranks on this host, or allow more cores (taskset, container)"});
    } catch (const collx::error& e) {
        s.add("found_by", "found by", "nothing: the environment contradicts itself", nullptr);
        out.problems.push_back(problem_from(e.what(), true));
    }
    return s;
}

/// Lists COLLX_* variables with value, origin and meaning. Only those that are set, unless `all`.
inline section variables_section(bool all, const environment& env = environment()) {
    section s{"variables", "Variables"};
    for (const auto& v : variables) {
        const char* value = env.get(v.name);
        if (value == nullptr && !all) continue;
        const std::string shown = value == nullptr                   ? v.fallback
                                  : v.type == variable::kind::secret ? "(not shown)"
                                                                     : collx::detail::printable(value).text;
        const char* origin = value != nullptr ? "environment" : "default";
        s.add(v.name, v.name, (shown.empty() ? "-" : shown) + "  [" + origin + "]  " + v.meaning,
              {{"value", value != nullptr || !shown.empty() ? nlohmann::ordered_json(shown) : nullptr},
               {"origin", origin},
               {"meaning", v.meaning}});
    }
    if (s.facts.empty()) s.add("none_set", "none", "is set (--env shows all)", true);
    return s;
}

inline void add_as_threads(communicator& world) {
    world.set_timeout(std::chrono::seconds(5));
    int x = world.rank() + 1;
    collx::all_reduce(world, collx::value(x));
    if (x != 3) throw std::runtime_error("1 + 2 became " + std::to_string(x));
}
// Two ranks, on these hosts, add 1 and 2. Returns what went wrong, or an empty text.
inline std::string try_threads(const std::vector<int>& host_of) {
    try {
        collx::run_threads(host_of, add_as_threads);
        return {};
    } catch (const std::exception& e) {
        return e.what();
    }
}

// The same over RDMA. A missing device is no problem, so that case is reported separately.
struct verbs_tried {
    std::string device, why_not;
    bool is_broken = false;
};
inline verbs_tried try_verbs() {
    const collx::verbs_component* const library = collx::detail::verbs_library;
    if (library == nullptr) return {{}, "this program was built without libibverbs", false};
    verbs_tried t;
    try {
        if (const auto device = library->open({})) t.device = device->name();
        else return {{}, library->reason(), false};
        collx::run_threads(collx::per_peer{collx::verbs{}}, 2, add_as_threads);
    } catch (const std::exception& e) {
        t.why_not = e.what();
        t.is_broken = true;
    }
    return t;
}

inline std::string try_memory() { return try_threads({0, 0}); }
inline std::string try_sockets() { return try_threads({0, 1}); }

inline int add_as_rank(const char* job, int rank, int report) {
    try {
        for (const auto& v : variables) ::unsetenv(v.name);
        ::setenv("COLLX_RANK", rank == 0 ? "0" : "1", 1);
        ::setenv("COLLX_SIZE", "2", 1);
        ::setenv("COLLX_JOB", job, 1);
        ::setenv("COLLX_TIMEOUT", "5", 1);
        communicator world;
        int x = rank + 1;
        collx::all_reduce(world, collx::value(x));
        if (x == 3) return 0;
        throw std::runtime_error("1 + 2 became " + std::to_string(x));
    } catch (const std::exception& e) {
        const std::string line = std::string(e.what()) + "\n"; // one write: the two processes' lines do not mix
        (void)!::write(report, line.data(), line.size());
        return 1;
    }
}

inline std::string try_shm() {
    const std::string job = "info-" + std::to_string(::getpid()) + "-" + std::to_string(collx::now_ns());
    int report[2];
    if (::pipe(report) != 0) return std::strerror(errno);
    const pid_t parent = ::getpid(), other = ::fork();
    if (other == 0) {
        ::prctl(PR_SET_PDEATHSIG, SIGKILL);
        if (::getppid() != parent) ::_exit(1);
        ::alarm(10);
        ::_exit(add_as_rank(job.c_str(), 1, report[1]));
    }
    const int reason = errno;
    const int code = other < 0 ? -1 : in_child(10, [&] { return add_as_rank(job.c_str(), 0, report[1]); });
    int status = 1;
    if (other > 0) ::waitpid(other, &status, 0);
    ::close(report[1]);
    char text[2048];
    const auto n = ::read(report[0], text, sizeof text);
    ::close(report[0]);
    if (other < 0)
        return std::string("no second process: ") + std::strerror(reason) + " (" +
               collx::detail::remedy_for_process(reason) + ")";
    if (code == 0 && status == 0) return {};
    if (n <= 0) return "two processes could not exchange a number";
    const std::string both(text, static_cast<std::size_t>(n));
    return both.substr(0, both.find('\n')); // of the process that failed first
}

inline section transports_section(findings& out, const gpus_found& gpus) {
    section s{"transports", "Transports"};
    for (const auto& [name, what, probe] : {std::tuple{"memory", "threads of one process", &try_memory},
                                            std::tuple{"shm", "processes of one host", &try_shm},
                                            std::tuple{"sockets", "several hosts (tried on loopback)", &try_sockets}}) {
        const auto start = collx::now_ns();
        const std::string why = probe();
        const std::string took = duration_text(static_cast<double>(collx::now_ns() - start));
        s.add(name, name,
              why.empty() ? std::string("yes: ") + what + "; two of them joined and added in " + took : "no: " + why,
              {{"usable", why.empty()},
               {"why_not", why.empty() ? nlohmann::ordered_json(nullptr) : nlohmann::ordered_json(why)}});
        if (why.empty()) continue;
        auto p = problem_from(why, true);
        p.what = std::string(name) + " does not work: " + p.what;
        out.problems.push_back(p);
    }
    const verbs_tried rdma = try_verbs();
    s.add("verbs", "verbs",
          rdma.why_not.empty() ? "yes: several hosts by RDMA, " + rdma.device + "; two ranks joined and added over it"
                               : "no: " + rdma.why_not,
          {{"usable", rdma.why_not.empty()},
           {"device", rdma.device.empty() ? nlohmann::ordered_json(nullptr) : nlohmann::ordered_json(rdma.device)},
           {"why_not", rdma.why_not.empty() ? nlohmann::ordered_json(nullptr) : nlohmann::ordered_json(rdma.why_not)}});
    if (rdma.is_broken) {
        auto p = problem_from(rdma.why_not, false);
        p.what = "verbs do not work: " + p.what;
        out.problems.push_back(p);
    }
    add_gpu_transports(s, gpus);
    return s;
}

} // namespace collx::tools::info
