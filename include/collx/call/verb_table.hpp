// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// The table of verbs: what each call takes and gives, one row per verb. Read by the checks of arguments
// (check_call.hpp), the comparison between ranks, the fronts (verb_fronts.hpp), device calls, groups, the tests'
// matrix of verbs and docs/verbs.md. Independent of element types and algorithms. sched/collective.hpp says what a
// collective promises, chunk by chunk.
#pragma once

#include <cstdint>

#include <collx/sched/collective.hpp>

COLLX_BEGIN_NAMESPACE
namespace detail {

enum class verb : std::uint8_t {
    all_reduce,
    reduce,
    reduce_scatter,
    reduce_scatter_v,
    scan,
    exclusive_scan,
    broadcast,
    all_gather,
    all_gather_v,
    gather,
    gather_v,
    scatter,
    scatter_v,
    all_to_all,
    all_to_all_v,
    barrier,
    send,
    recv,
    sendrecv,
    neighbor_all_gather,
    neighbor_all_gather_v,
    neighbor_all_to_all,
    neighbor_all_to_all_v
};
inline constexpr int verb_count = 23;

// How many elements a buffer has, where m is the call's count.
enum class extent : std::uint8_t {
    none,
    whole,       // m
    part,        // m: one part
    parts,       // n m: one part for each of n ranks
    sources,     // one part for each rank that this one receives from
    destinations // one part for each rank that this one sends to
};
// Where a call in place, or a buffer that lies in the other one, reads its input and writes its output.
enum class in_place : std::uint8_t {
    never,
    same,     // at the same place
    own_part, // the part lies at this rank's place among the parts
    copied    // the input is copied first; two buffers may not overlap
};
// Which ranks know the lengths of a v-variant's parts.
enum class counts_known_by : std::uint8_t {
    none,  // parts of one length
    alike, // one table, the same on all ranks
    root,  // the root's table
    own    // each rank has a table of what it sends and one of what it receives
};
// Which buffer only the root has; other ranks may leave it empty.
enum class at_root : std::uint8_t { no_root, neither, input, output };

struct verb_row {
    verb what;
    const char* name;
    collective does; // send_recv for messages
    extent in, out;
    in_place place;
    counts_known_by counts;
    at_root root_only;         // for the buffers
    bool takes_one, takes_two; // the forms with one buffer, with two

    constexpr bool is_rooted() const { return root_only != at_root::no_root; }
    constexpr bool reduces() const { return collx::reduces(does); }
    constexpr bool has_parts() const { return in == extent::parts || out == extent::parts; }
    constexpr bool is_message() const { return does == collective::send_recv && !has_edges(); }
    constexpr bool has_edges() const { return out == extent::sources; }
};

// clang-format off
inline constexpr verb_row verb_rows[] = {
    {verb::all_reduce, "all_reduce", collective::all_reduce,
     extent::whole, extent::whole, in_place::same, counts_known_by::none, at_root::no_root, true, true},
    {verb::reduce, "reduce", collective::reduce,
     extent::whole, extent::whole, in_place::same, counts_known_by::none, at_root::output, true, true},
    {verb::reduce_scatter, "reduce_scatter", collective::reduce_scatter,
     extent::parts, extent::part, in_place::own_part, counts_known_by::none, at_root::no_root, true, true},
    {verb::reduce_scatter_v, "reduce_scatter_v", collective::reduce_scatter,
     extent::parts, extent::part, in_place::own_part, counts_known_by::alike, at_root::no_root, true, true},
    {verb::scan, "scan", collective::scan,
     extent::whole, extent::whole, in_place::same, counts_known_by::none, at_root::no_root, true, true},
    {verb::exclusive_scan, "exclusive_scan", collective::exclusive_scan,
     extent::whole, extent::whole, in_place::same, counts_known_by::none, at_root::no_root, true, true},
    {verb::broadcast, "broadcast", collective::broadcast,
     extent::whole, extent::whole, in_place::same, counts_known_by::none, at_root::neither, true, false},
    {verb::all_gather, "all_gather", collective::all_gather,
     extent::part, extent::parts, in_place::own_part, counts_known_by::none, at_root::no_root, true, true},
    {verb::all_gather_v, "all_gather_v", collective::all_gather,
     extent::part, extent::parts, in_place::own_part, counts_known_by::alike, at_root::no_root, false, true},
    {verb::gather, "gather", collective::gather,
     extent::part, extent::parts, in_place::own_part, counts_known_by::none, at_root::output, false, true},
    {verb::gather_v, "gather_v", collective::gather,
     extent::part, extent::parts, in_place::own_part, counts_known_by::root, at_root::output, false, true},
    {verb::scatter, "scatter", collective::scatter,
     extent::parts, extent::part, in_place::own_part, counts_known_by::none, at_root::input, false, true},
    {verb::scatter_v, "scatter_v", collective::scatter,
     extent::parts, extent::part, in_place::own_part, counts_known_by::root, at_root::input, false, true},
    {verb::all_to_all, "all_to_all", collective::all_to_all,
     extent::parts, extent::parts, in_place::copied, counts_known_by::none, at_root::no_root, true, true},
    {verb::all_to_all_v, "all_to_all_v", collective::all_to_all,
     extent::parts, extent::parts, in_place::copied, counts_known_by::own, at_root::no_root, true, true},
    {verb::barrier, "barrier", collective::barrier,
     extent::none, extent::none, in_place::never, counts_known_by::none, at_root::no_root, false, false},
    {verb::send, "send", collective::send_recv,
     extent::whole, extent::none, in_place::never, counts_known_by::none, at_root::no_root, true, false},
    {verb::recv, "recv", collective::send_recv,
     extent::none, extent::whole, in_place::never, counts_known_by::none, at_root::no_root, true, false},
    {verb::sendrecv, "sendrecv", collective::send_recv,
     extent::whole, extent::whole, in_place::never, counts_known_by::none, at_root::no_root, false, true},
    {verb::neighbor_all_gather, "neighbor_all_gather", collective::send_recv,
     extent::part, extent::sources, in_place::never, counts_known_by::none, at_root::no_root, false, true},
    {verb::neighbor_all_gather_v, "neighbor_all_gather_v", collective::send_recv,
     extent::part, extent::sources, in_place::never, counts_known_by::own, at_root::no_root, false, true},
    {verb::neighbor_all_to_all, "neighbor_all_to_all", collective::send_recv,
     extent::destinations, extent::sources, in_place::never, counts_known_by::none, at_root::no_root, false, true},
    {verb::neighbor_all_to_all_v, "neighbor_all_to_all_v", collective::send_recv,
     extent::destinations, extent::sources, in_place::never, counts_known_by::own, at_root::no_root, false, true},
};
// clang-format on

constexpr bool is_in_order(const verb_row (&rows)[verb_count]) {
    for (int i = 0; i < verb_count; ++i)
        if (static_cast<int>(rows[i].what) != i || rows[i].is_rooted() != is_rooted(rows[i].does) ||
            rows[i].has_parts() != chunks_are_ranks(rows[i].does))
            return false;
    return true;
}
static_assert(is_in_order(verb_rows),
              "the rows stand in the order of the enumeration, and agree with sched/collective.hpp");

constexpr const verb_row& row_of(verb v) { return verb_rows[static_cast<int>(v)]; }
constexpr const char* name_of(verb v) { return row_of(v).name; }
// The verb of a collective with parts of one length.
constexpr verb verb_of(collective c) {
    for (const verb_row& r : verb_rows)
        if (r.does == c) return r.what;
    return verb::barrier;
}
// The verb of a collective with parts of any lengths; its row follows that of parts of one length.
constexpr verb counted_verb_of(collective c) { return static_cast<verb>(static_cast<int>(verb_of(c)) + 1); }
static_assert(counted_verb_of(collective::scatter) == verb::scatter_v);

} // namespace detail
COLLX_END_NAMESPACE
