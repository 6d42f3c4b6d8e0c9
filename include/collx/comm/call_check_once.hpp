// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// The bodies of call_check.hpp and checks.hpp.
#pragma once

#include <collx/comm/call_check.hpp>

COLLX_BEGIN_NAMESPACE
namespace detail {

COLLX_ONCE void refuse_elements(int me, seen_buffer b, const char* which) {
    if (b.bytes == SIZE_MAX)
        fail(errc::invalid_argument, me, -1, "is a count negative?", "the %s buffer claims %zu elements", which,
             b.elems);
    fail(errc::invalid_argument, me, -1, "pass memory, or a size of 0", "the %s buffer is null but has %zu elements",
         which, b.elems);
}

COLLX_ONCE void look_at_memory(const communicator_core& c, seen_buffer b, const char* which) {
    const int me = c.net.rank();
    if (!has_elements(b)) refuse_elements(me, b, which);
    if (b.is_on_device)
        fail(errc::invalid_argument, me, -1, "say collx::on_device(collx::as<T>(tensor))",
             "the %s tensor lies in a device's memory", which);
    if (b.has_address && c.device != nullptr && b.elems != 0) c.device->require_host_memory(b.data, which);
    if (b.is_window && b.elems != 0 && !c.net.memory().contains(b.data, b.bytes))
        fail(errc::invalid_argument, me, -1, "allocate it with this job's shared allocator",
             "the %s window does not lie in shared memory", which);
}

COLLX_ONCE void refuse_overlap(int me) {
    fail(errc::invalid_argument, me, -1, "use one buffer, or two that do not overlap", "input and output overlap");
}

COLLX_ONCE void refuse_size(const communicator_core& c, const char* which, std::size_t have, std::size_t need) {
    fail(errc::invalid_argument, c.net.rank(), -1, "sizes count elements, see the Shape line of this call",
         "the %s buffer has %zu elements and needs %zu", which, have, need);
}

COLLX_ONCE void refuse_root(const communicator_core& c, int root) {
    fail(errc::invalid_argument, c.net.rank(), root, "roots are ranks of this communicator", "root %d of %d ranks",
         root, c.net.size());
}

COLLX_ONCE void refuse_division(const communicator_core& c, std::size_t whole) {
    fail(errc::invalid_argument, c.net.rank(), -1, "pad it, or use the v-variant with counts",
         "%zu elements do not divide among %d ranks", whole, c.net.size());
}

COLLX_ONCE std::size_t check_tables(const communicator_core& c, const verb_row& row, const call_arguments& a,
                                    call_facts& f) {
    const count_table& t = a.tables->first;
    const count_table& received = row.counts == part_counts_of::own ? a.tables->second : t;
    const int me = c.net.rank();
    const auto check = [&](const seen_buffer& b, const char* which, extent e, const count_table& counts) {
        if (e == extent::part) require_size(c, which, b.elems, t.sizes()[me]);
        else require_at_least(c, which, b.elems, counts.end());
    };
    if (row.out == extent::parts && has_output(row, me, a.root))
        received.require_disjoint(me, row.counts == part_counts_of::own && !a.is_in_place ? "receive" : row.name);
    if (a.is_in_place) {
        check(a.out, "only", extent::parts, t);
    } else {
        if (has_input(row, me, a.root)) check(a.in, "input", row.in, t);
        if (has_output(row, me, a.root)) check(a.out, "output", row.out, received);
    }
    if (t.sizes()[me] != received.sizes()[me])
        fail(errc::invalid_argument, me, me, "what a rank sends itself it also receives",
             "the counts of a rank for itself differ: %zu and %zu", t.sizes()[me], received.sizes()[me]);
    f.cuts.in_table = &t, f.cuts.out_table = &received;
    f.private_counts = row.counts != part_counts_of::alike;
    if (!f.private_counts) f.total_elems = t.total(), f.counts_hash = t.hash();
    return row.place == in_place::copied ? SIZE_MAX : t.offsets()[me];
}

} // namespace detail
COLLX_END_NAMESPACE
