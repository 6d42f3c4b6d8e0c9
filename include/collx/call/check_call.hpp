// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Checks the arguments of a call by the row of its verb (verb_table.hpp): sizes, roots, memory, overlaps. The result
// says how the buffers are cut and what must be the same on all ranks. Elements are bytes here.
#pragma once

#include <cstddef>
#include <cstdint>
#include <utility>

#include <collx/call/checks.hpp>
#include <collx/call/verb_table.hpp>
#include <collx/exec/count_table.hpp>
#include <collx/exec/layout.hpp>
#include <collx/job/communicator_core.hpp>

COLLX_BEGIN_NAMESPACE
namespace detail {

// How the buffers are cut, once the algorithm and so the number of chunks is known.
struct call_cuts {
    std::size_t elems = 0; // of the whole buffer, or of each part
    bool has_parts = false;
    bool in_packed = false, out_packed = false; // the buffer holds only one part
    const count_table *in_table = nullptr, *out_table = nullptr;

    [[gnu::always_inline]] std::pair<chunk_layout, chunk_layout> operator()(int chunks) const {
        if (in_table != nullptr) return both(in_table->layout(), out_table->layout());
        const auto l = has_parts ? chunk_layout::blocks(elems, chunks) : chunk_layout::even(elems, chunks, 16);
        return both(l, l);
    }

private:
    std::pair<chunk_layout, chunk_layout> both(const chunk_layout& in, const chunk_layout& out) const {
        return {in_packed ? in.packed() : in, out_packed ? out.packed() : out};
    }
};

// Everything about one call that is not its data.
struct call_facts {
    verb what = verb::barrier;
    int root = 0;
    std::size_t total_elems = 0; // of the whole buffer: the selector uses it
    std::uint64_t count = 0;     // what ranks must agree on
    std::uint64_t counts_hash = 0;
    std::int64_t timeout_ns = 0;
    bool private_counts = false;    // each rank knows only its own counts: nothing common may be derived from them
    count_tables* tables = nullptr; // of a v-variant
    call_cuts cuts{};
};

struct call_arguments {
    buffer_facts in = {}, out = {};
    bool is_in_place = false;  // `out` is the only buffer
    bool is_same_type = false; // both buffers have elements of one type
    int root = 0;
    std::int64_t timeout_ns = 0;
    count_tables* tables = nullptr; // of a v-variant: `first`; all_to_all_v has its receive counts in `second`
};

// The offset in elements at which one buffer may lie inside the other, as this rank's part. SIZE_MAX: none.
constexpr std::size_t own_place(const verb_row& row, std::size_t part, int rank) {
    return row.place == in_place::copied     ? SIZE_MAX
           : row.place == in_place::own_part ? part * static_cast<std::size_t>(rank)
                                             : 0;
}
// Whether this rank has the input or the output of a call; only the root may have it.
constexpr bool has_input(const verb_row& row, int rank, int root) {
    return row.root_only != at_root::input || rank == root;
}
constexpr bool has_output(const verb_row& row, int rank, int root) {
    return row.root_only != at_root::output || rank == root;
}

// Checks the sizes of buffers with equal parts. Returns the call's count.
[[gnu::always_inline]] inline std::size_t check_sizes(const communicator_core& c, const verb_row& row,
                                                      std::size_t in_elems, std::size_t out_elems, bool is_in_place,
                                                      int root) {
    if (is_in_place) return row.has_parts() ? part_of(c, out_elems, row.name) : out_elems;
    // The count comes from the buffer that all ranks have.
    const bool from_output = row.root_only == at_root::input;
    const extent known = from_output ? row.out : row.in, other = from_output ? row.in : row.out;
    const std::size_t elems = from_output ? out_elems : in_elems;
    const std::size_t count = known == extent::parts ? part_of(c, elems, row.name) : elems;
    std::size_t needed = count;
    if (other == extent::parts && __builtin_mul_overflow(count, static_cast<std::size_t>(c.net.size()), &needed))
        [[unlikely]]
        needed = SIZE_MAX; // no buffer is that long
    if (from_output && has_input(row, c.net.rank(), root)) require_size(c, {"input", row.name}, in_elems, needed);
    if (!from_output && has_output(row, c.net.rank(), root)) require_size(c, {"output", row.name}, out_elems, needed);
    return count;
}
// Checks the sizes of buffers whose parts have lengths in tables. Returns what own_place() returns for equal parts.
std::size_t check_tables(const communicator_core& c, const verb_row& row, const call_arguments& a, call_facts& f);

// Throws if an argument is wrong. Inlined where the row is a constant, so that a verb pays only for its own checks.
[[gnu::always_inline]] inline call_facts check_call(const communicator_core& c, const verb_row& row,
                                                    const call_arguments& a) {
    const int me = c.net.rank();
    bool reads = !a.is_in_place, writes = reads; // separate buffers
    if (row.is_rooted()) {
        require_root(c, a.root, row.name);
        reads = reads && has_input(row, me, a.root);
        writes = writes && has_output(row, me, a.root);
    } else if (a.root != 0) [[unlikely]] {
        refuse_needless_root(c, a.root, row.name);
    }
    if (a.is_in_place) require_writable(c, a.out, {"only", row.name});
    if (reads) require_memory(c, a.in, {"input", row.name});
    if (writes) require_writable(c, a.out, {"output", row.name});

    call_facts f{.what = row.what,
                 .root = row.is_rooted() ? a.root : 0,
                 .timeout_ns = a.timeout_ns,
                 .tables = a.tables,
                 .cuts = {.has_parts = row.has_parts(),
                          .in_packed = row.in == extent::part && !a.is_in_place,
                          .out_packed = row.out == extent::part && !a.is_in_place}};
    std::size_t place;
    if (row.counts == counts_known_by::none) {
        f.count = f.cuts.elems = check_sizes(c, row, a.in.elems, a.out.elems, a.is_in_place, a.root);
        f.total_elems = row.has_parts() ? f.cuts.elems * static_cast<std::size_t>(c.net.size()) : f.cuts.elems;
        place = own_place(row, f.cuts.elems, me);
    } else {
        place = check_tables(c, row, a, f);
    }
    if (reads && writes) require_no_overlap(me, a.in, a.out, place, a.is_same_type, row.name);
    return f;
}

} // namespace detail
COLLX_END_NAMESPACE

#if !defined(COLLX_ONLY_DECLARED)
#include <collx/call/check_call_once.hpp>
#endif
