// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Who is in the job, as the launcher says: the only place of collx that reads the environment. A list of probes is
// asked in order, one per launcher; the first that recognises its variables decides. Knows no transport and joins
// nothing.
#pragma once

#include <string>
#include <type_traits>

#include <collx/bootstrap/variables.hpp>

COLLX_BEGIN_NAMESPACE

enum class wait_choice { automatic, spin, yield };
enum class lend_choice { automatic, never, always };
enum class debug_level { warn, info, trace };

// What the environment says about this process.
struct job_description {
    int rank = 0, size = 1;
    int local_rank = 0, local_size = 1;
    std::string job;                // the launch's name; empty: alone, or still to be agreed on through `store`
    std::string store;              // file:DIR or tcp:HOST:PORT, or empty
    const char* found_by = "alone"; // the probe that decided

    std::int64_t timeout_ns = 60'000'000'000;
    int checked = -1;            // 0 or 1 as the user says, -1: nothing said
    std::size_t arena_bytes = 0; // 0: nothing said
    wait_choice waiting = wait_choice::automatic;
    lend_choice lending = lend_choice::automatic;
    debug_level debug = debug_level::warn;
};

namespace detail {

constexpr const variable& variable_named(const char* name) {
    for (const variable& v : variables) {
        const char *a = v.name, *b = name;
        while (*a != '\0' && *a == *b) ++a, ++b;
        if (*a == *b) return v;
    }
    throw "no row of this name in the table"; // only ever at compile time
}

// Value of a number, or -1 when it is not set. Values have been checked.
inline int number_in(const environment& env, const variable& v) {
    const char* value = env.get(v.name);
    return value != nullptr ? static_cast<int>(read_number(v, value)) : -1;
}

inline void fail_half(const char* present, const char* absent) {
    fail(errc::environment, -1, -1, "set both or neither; collx_run sets them for you", "%s is set but %s is not",
         present, absent);
}

// COLLX_RANK and COLLX_SIZE: set by collx_run, usable by any script.
inline bool find_in_variables(const environment& env, job_description& d) {
    const int rank = number_in(env, variable_named("COLLX_RANK")), size = number_in(env, variable_named("COLLX_SIZE"));
    const int local_rank = number_in(env, variable_named("COLLX_LOCAL_RANK"));
    const int local_size = number_in(env, variable_named("COLLX_LOCAL_SIZE"));
    if (rank >= 0 && size < 0) fail_half("COLLX_RANK", "COLLX_SIZE");
    if (rank < 0 && size >= 0) fail_half("COLLX_SIZE", "COLLX_RANK");
    if (local_rank >= 0 && local_size < 0) fail_half("COLLX_LOCAL_RANK", "COLLX_LOCAL_SIZE");
    if (local_rank < 0 && local_size >= 0) fail_half("COLLX_LOCAL_SIZE", "COLLX_LOCAL_RANK");
    if (rank < 0 && local_rank >= 0) fail_half("COLLX_LOCAL_RANK", "COLLX_RANK");
    if (rank < 0) return false;
    if (rank >= size)
        fail(errc::environment, -1, -1, "ranks count from 0 to COLLX_SIZE - 1",
             "COLLX_RANK=%d is not below COLLX_SIZE=%d", rank, size);
    if (local_rank >= local_size && local_rank >= 0)
        fail(errc::environment, rank, -1, "ranks count from 0", "COLLX_LOCAL_RANK=%d is not below COLLX_LOCAL_SIZE=%d",
             local_rank, local_size);
    if (local_size > size)
        fail(errc::environment, rank, -1, "a host has at most all ranks", "COLLX_LOCAL_SIZE=%d is above COLLX_SIZE=%d",
             local_size, size);
    d.rank = rank;
    d.size = size;
    d.local_rank = local_rank >= 0 ? local_rank : rank;
    d.local_size = local_size >= 0 ? local_size : size;
    const char *job = env.get("COLLX_JOB"), *store = env.get("COLLX_STORE");
    if (job != nullptr && store != nullptr)
        fail(errc::environment, rank, -1, "unset one", "COLLX_JOB and COLLX_STORE both say how ranks find each other");
    if (size > 1 && job == nullptr && store == nullptr)
        fail(errc::environment, rank, -1,
             "start the ranks with collx_run, or set COLLX_JOB to one new name for all of them",
             "COLLX_SIZE=%d, but neither COLLX_JOB nor COLLX_STORE says how ranks find each other", size);
    if (job != nullptr) d.job = job;
    if (store != nullptr) d.store = store;
    return true;
}

inline bool find_alone(const environment&, job_description&) { return true; }

} // namespace detail

// One launcher. `find` says whether its variables are there, and fills in rank, size, local_rank, local_size, job or
// store; what contradicts itself it refuses with errc::environment.
struct bootstrap_probe {
    const char* name;     // word for COLLX_BOOTSTRAP
    const char* found_by; // what job_description says afterwards
    bool (*find)(const environment&, job_description&);
};

// Asked in this order. The next launchers (torch, pmi, pmix, slurm) plug in here, between the two, together with their
// words in COLLX_BOOTSTRAP's row: what inherits its variables from an outer launcher (slurm) after what may run inside
// it.
inline constexpr bootstrap_probe bootstrap_probes[] = {
    {"env", "environment", detail::find_in_variables},
    {"single", "alone", detail::find_alone},
};

// Errors: environment, with what is wrong and a remedy.
inline job_description describe_job(const environment& env = environment()) {
    check_variables(env);
    job_description d;
    const auto read = [&](const char* name, auto&& reader, auto& to) {
        const variable& v = detail::variable_named(name);
        if (const char* value = env.get(name))
            to = static_cast<std::remove_reference_t<decltype(to)>>(reader(v, value));
    };
    read("COLLX_TIMEOUT", detail::read_seconds, d.timeout_ns);
    read(
        "COLLX_CHECKED", [](const variable&, const char* value) { return value[0] - '0'; }, d.checked);
    read("COLLX_ARENA_BYTES", detail::read_bytes, d.arena_bytes);
    read("COLLX_WAIT", detail::read_choice, d.waiting);
    read("COLLX_LENDING", detail::read_choice, d.lending);
    read("COLLX_DEBUG", detail::read_choice, d.debug);

    const char* forced = env.get("COLLX_BOOTSTRAP");
    for (const bootstrap_probe& p : bootstrap_probes) {
        if (forced != nullptr && std::strcmp(forced, p.name) != 0) continue;
        if (p.find(env, d)) {
            d.found_by = p.found_by;
            return d;
        }
    }
    fail(errc::environment, -1, -1, "unset COLLX_BOOTSTRAP or start the program with that launcher",
         "COLLX_BOOTSTRAP=%s, but nothing of it is set here", forced);
}

COLLX_END_NAMESPACE
