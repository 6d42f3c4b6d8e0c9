// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// The errors of a rank that has waited in a store for others until its deadline.
#pragma once

#include <cstdint>

#include <collx/core/error.hpp>
#include <collx/core/joined.hpp>
#include <collx/core/kept_text.hpp>

COLLX_BEGIN_NAMESPACE
namespace detail {

// Each rank counts the starts that it begins in a store. Where the counts differ, a rank is missing, or an earlier job
// has begun a start there that not all of its ranks came to. Its words would be taken for those of this job.
inline constexpr const char* may_be_used = ", or the store is not new";
[[gnu::cold]] inline kept_text fewer_starts_text(int rank, std::int64_t its, std::int64_t most) {
    return joined({"rank ", rank, " has begun ", its, its == 1 ? " start" : " starts",
                   " in this store, and another rank ", most, ": it is missing", may_be_used});
}

// Throws the verdict of all ranks. That can be an earlier job's, if it names the rank that reads it.
[[noreturn, gnu::cold]] inline void fail_missing(const char* text, int rank, int guilty) {
    if (guilty == rank)
        fail(errc::timeout, rank, guilty,
             "start the ranks together, or with a longer COLLX_TIMEOUT; let no other job use the store",
             "the others did not wait for this rank%s: %s", may_be_used, text);
    if (kept_text(text).find(kept_text(may_be_used)) != kept_text::npos)
        fail(errc::timeout, rank, guilty, "start it, with a store that no job has used, such as another directory",
             "%s", text);
    fail(errc::timeout, rank, guilty, "start the missing ranks or see their output", "%s", text);
}

} // namespace detail
COLLX_END_NAMESPACE
