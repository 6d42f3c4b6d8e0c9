// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// The bodies of count_faults.hpp.
#pragma once

#include <cstdio>
#include <cstring>

#include <collx/call/count_faults.hpp>
#include <collx/job/call_end.hpp>

COLLX_BEGIN_NAMESPACE
namespace detail {

[[gnu::cold]] COLLX_ONCE void refuse_first_fault(communicator_core& c, const count_fault& mine,
                                                 std::int64_t timeout_ns) {
    count_fault first;
    c.exchange_each(
        mine,
        [&](int, const count_fault& its) {
            if (first.from < 0) first = its;
        },
        timeout_ns);
    if (first.from < 0) return;
    const int me = c.net.rank();
    char text[160];
    std::snprintf(text, sizeof text, "call %llu: rank %d sends %zu elements to rank %d, where the counts say %zu",
                  static_cast<unsigned long long>(c.sequence), first.from, first.sent, first.to, first.expected);
    mismatch e(errc::mismatch, me, me == first.from ? first.to : first.from, text,
               "what a rank sends its peer must expect");
    e.set_sequence(c.calls());
    throw e;
}

[[gnu::cold]] COLLX_ONCE void compare_with_root(communicator_core& c, const call_facts& f, std::int64_t timeout_ns) {
    const int me = c.net.rank();
    const std::size_t* const counts = f.tables->first.sizes(); // other ranks know their own only
    const bool is_gather = row_of(f.what).root_only == at_root::output;
    count_fault mine;
    const call_end end(timeout_ns);
    c.exchange_each(
        counts[me],
        [&](int r, std::size_t its) {
            if (me != f.root || its == counts[r] || mine.from >= 0) return;
            if (is_gather) mine = {r, me, its, counts[r]};
            else mine = {me, r, counts[r], its};
        },
        end.left_ns());
    refuse_first_fault(c, mine, end.left_ns());
}

} // namespace detail
COLLX_END_NAMESPACE
