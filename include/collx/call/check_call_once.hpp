// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// The bodies of check_call.hpp.
#pragma once

#include <collx/call/check_call.hpp>

COLLX_BEGIN_NAMESPACE
namespace detail {

COLLX_ONCE std::size_t check_tables(const communicator_core& c, const verb_row& row, const call_arguments& a,
                                    call_facts& f) {
    const count_table& t = a.tables->first;
    const count_table& received = row.counts == counts_known_by::own ? a.tables->second : t;
    const int me = c.net.rank();
    const auto check = [&](const buffer_facts& b, const char* which, extent e, const count_table& counts) {
        if (e == extent::part) require_size(c, {which, row.name}, b.elems, t.sizes()[me]);
        else require_at_least(c, {which, row.name}, b.elems, counts.end());
    };
    if (row.out == extent::parts && has_output(row, me, a.root))
        received.require_disjoint(me, row.counts == counts_known_by::own && !a.is_in_place ? "receive" : row.name);
    if (a.is_in_place) {
        check(a.out, "only", extent::parts, t);
    } else {
        if (has_input(row, me, a.root)) check(a.in, "input", row.in, t);
        if (has_output(row, me, a.root)) check(a.out, "output", row.out, received);
    }
    if (t.sizes()[me] != received.sizes()[me])
        fail(errc::invalid_argument, me, me, "what a rank sends itself it also receives",
             "%s: the counts of a rank for itself differ: %zu and %zu", row.name, t.sizes()[me], received.sizes()[me]);
    f.cuts.in_table = &t;
    f.cuts.out_table = &received;
    f.private_counts = row.counts != counts_known_by::alike;
    if (!f.private_counts) {
        f.total_elems = t.total();
        f.counts_hash = t.hash();
    }
    return row.place == in_place::copied ? SIZE_MAX : t.offsets()[me];
}

} // namespace detail
COLLX_END_NAMESPACE
