// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Limits for connections that have not proved yet that they belong to this job: how many a listener keeps open, and
// for how long. The same for the store and for the listener of each rank.
#pragma once

#include <sys/resource.h>

#include <cstddef>
#include <cstdint>

#include <collx/core/config.hpp>
#include <collx/version.hpp>

COLLX_BEGIN_NAMESPACE
namespace detail {

// The number of connections that one listener (of a store or a rank) keeps open to processes that have not proved that
// they have the key: a quarter of the files that this process may open, at least 8 and at most 1024. One rank of a job
// has two listeners, so half of the files are left for the job.
inline std::size_t most_strangers() {
    rlimit files{};
    const bool is_known = ::getrlimit(RLIMIT_NOFILE, &files) == 0 && files.rlim_cur != RLIM_INFINITY;
    const std::size_t quarter = is_known ? static_cast<std::size_t>(files.rlim_cur) / 4 : 1024;
    return quarter < 8 ? 8 : quarter > 1024 ? 1024 : quarter;
}

// How long one of so many may be silent. Few have time: on a busy machine a rank may not run for seconds, and to the
// other ranks a closed connection looks like its death.
inline constexpr std::size_t few_strangers = 16;
inline constexpr std::int64_t crowded_limit_ns = 2'000'000'000, slow_limit_ns = 30'000'000'000;
constexpr std::int64_t stranger_limit_ns(std::size_t strangers) {
    return strangers > few_strangers ? crowded_limit_ns : slow_limit_ns;
}

} // namespace detail
COLLX_END_NAMESPACE
