// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// The bodies of prepared_call.hpp, independent of element types: compiled once (docs/design/compile-once.md).
#pragma once

#include <collx/call/count_faults.hpp>
#include <collx/call/prepared_call.hpp>
#include <collx/call/short_calls.hpp>
#include <collx/call/signature.hpp>
#include <collx/job/call_end.hpp>

COLLX_BEGIN_NAMESPACE
namespace detail {

// Whether the call may read and write the buffers of peers where they lie.
inline bool may_use_zero_copy(const communicator_core& c, const call_request& r, bool attached) {
    if (attached && !c.net.is_one_host())
        fail(errc::unsupported, c.net.rank(), -1, "drop the attach policy",
             "attach reads the memory of peers, and the ranks are on several hosts");
    return (r.in_windows || attached) && !r.facts.private_counts && c.net.size() <= task::max_zero_copy_ranks &&
           c.net.is_one_host();
}

inline void compare_requests(communicator_core& c, const call_request& r, bool zero_copy) {
    const call_end end(r.facts.timeout_ns);
    compare_signatures(c,
                       {.count = r.facts.count,
                        .counts_hash = r.facts.counts_hash,
                        .type_hash = r.type_hash,
                        .op_hash = r.op_hash,
                        .root = r.facts.root,
                        .policy_hash = r.policy_hash,
                        .what = r.facts.what,
                        .zero_copy = zero_copy,
                        .kind = r.is_persistent               ? call_kind::persistent
                                : r.at_port == port::blocking ? call_kind::blocking
                                                              : call_kind::async},
                       end.left_ns());
    if (row_of(r.facts.what).counts == counts_known_by::root) compare_with_root(c, r.facts, end.left_ns());
}

// Inlined into its one caller: a separate function costs 24 instructions per call.
[[gnu::always_inline]] inline bound_schedule& choose_schedule(communicator_core& c, const call_request& r,
                                                              bool attached, bool zero_copy) {
    bound_schedule& plan = r.choose(c, r,
                                    {.bytes = r.facts.total_elems * r.elements.is.bytes,
                                     .ranks = c.net.size(),
                                     .root = r.facts.root,
                                     .at_port = r.at_port,
                                     .zero_copy = zero_copy && c.net.size() > 1,
                                     .oversubscribed = c.is_oversubscribed(),
                                     .windows = c.net.is_one_host(),
                                     .ordered = r.ordered,
                                     .serial = r.serial,
                                     .may_copy_once = c.net.may_single_copy(),
                                     .hosts = c.net.crowded_hosts(),
                                     .links = c.known_links()});
    if (plan.zero_copy && !zero_copy)
        fail(errc::invalid_argument, c.net.rank(), -1,
             "allocate the buffers with collx::shared_allocator on every rank",
             "a zero-copy algorithm needs all buffers in windows");
    if (attached && !plan.zero_copy && c.net.size() > 1 && !r.is_free_to_choose)
        fail(errc::invalid_argument, c.net.rank(), -1, "bind attach alone",
             "the bound algorithm does not read peers' buffers");
    return plan;
}

// The number of elements of a chunk that travel at once.
inline std::size_t piece_elems_of(const communicator_core& c, const call_request& r, const bound_schedule& plan,
                                  std::size_t chunk_bytes) {
    const std::size_t elem_bytes = r.elements.is.bytes, limit = plan.most_bytes;
    if (elem_bytes > limit)
        fail(errc::unsupported, c.net.rank(), -1, "use smaller elements or fewer ranks",
             "one element of %zu bytes does not fit a slot", elem_bytes);
    std::size_t bytes = piece_bytes(plan, row_of(r.facts.what).does, r.facts.private_counts ? SIZE_MAX : chunk_bytes,
                                    c.is_oversubscribed(), c.net.is_one_host());
    if (r.piece_bytes != 0 && !plan.zero_copy) bytes = r.piece_bytes < limit ? r.piece_bytes : limit;
    return bytes / elem_bytes != 0 ? bytes / elem_bytes : 1;
}

// A hash of what must be equal on all ranks. Of types it has only what all compilers name alike. The root is one of
// plan.parameters. The constants are odd numbers that spread the bits.
inline std::uint64_t fingerprint_of(const call_request& r, const bound_schedule& plan) {
    std::uint64_t fingerprint = r.elements.is.kind +
                                static_cast<std::uint64_t>(row_of(r.facts.what).does) * 0xd6e8'feb8'6659'fd93 +
                                plan.parameters * 0xc4ce'b9fe'1a85'ec53;
    if (!r.facts.private_counts)
        fingerprint += r.facts.count * 0x9fb2'1c65'1e98'df25 + r.facts.counts_hash * 0xa24b'aed4'963e'e407;
    return fingerprint;
}

// Whether the call takes its short form. Each rank decides alone, so both forms must understand each other's
// data. chunk_bytes: of the largest chunk.
inline bool has_short_form(const communicator_core& c, const call_request& r, const bound_schedule& plan,
                           std::size_t chunk_bytes) {
    if (!r.elements.is.plain || !plan.is_short_form || r.piece_bytes != 0 || chunk_bytes > plan.most_bytes)
        return false;
    if (plan.window != nullptr) return !r.facts.private_counts && chunk_bytes <= most_short_bytes;
    return r.elements.is.align <= 16 && is_short_message(c, chunk_bytes);
}

inline prepared_call prepare_call(communicator_core& c, const call_request& r) {
    const bool may_attach = r.attaches && !r.in_windows, zero_copy = may_use_zero_copy(c, r, may_attach);
    if (c.settings.checked != 0) compare_requests(c, r, zero_copy);
    bound_schedule& plan = choose_schedule(c, r, may_attach, zero_copy);
    const bool attached = may_attach && plan.zero_copy; // a short call may have got a staged schedule
    const auto [in, out] = r.facts.cuts(plan.chunks);
    const std::size_t elem_bytes = r.elements.is.bytes;
    const std::size_t chunk_bytes = (in.largest() > out.largest() ? in.largest() : out.largest()) * elem_bytes;
    const std::uint64_t fingerprint = fingerprint_of(r, plan);
    if (has_short_form(c, r, plan, chunk_bytes))
        return {&plan, in, out, chunk_bytes != 0 ? chunk_bytes / elem_bytes : 1, attached, true, fingerprint};
    const std::size_t piece = piece_elems_of(c, r, plan, chunk_bytes);
    if (plan.tmp_chunks != 0)
        c.schedules.provide_scratch(plan, static_cast<std::size_t>(plan.tmp_chunks) * piece * r.kept_bytes,
                                    r.kept_align);
    return {&plan, in, out, piece, attached, false, fingerprint};
}

inline call_words words_of(const call_request& r, call_kind kind) {
    return {.verb = name_of(r.facts.what), .bytes = r.facts.total_elems * r.elements.is.bytes, .kind = kind};
}
// Preparing is part of the recorded call: in checked mode it waits for the other ranks.
[[gnu::cold, gnu::noinline]] inline prepared_call prepare_recorded(communicator_core& c, const call_request& r) {
    const auto prepared = [&] {
        const prepared_call p = prepare_call(c, r);
        c.recorder->called(p.plan->name);
        return p;
    };
    if (r.at_port == port::blocking) return prepared();
    if (r.is_persistent) return recorded(c.recorder.get(), words_of(r, call_kind::made), prepared);
    return recorded<true>(c.recorder.get(), words_of(r, call_kind::async), prepared);
}

COLLX_ONCE prepared_call prepare(communicator_core& c, const call_request& r) {
    if (c.recorder) [[unlikely]]
        return prepare_recorded(c, r);
    return prepare_call(c, r);
}

inline void run_within(communicator_core& c, const call_request& r, const prepared_call& p, std::int64_t timeout_ns) {
    const std::uint64_t agreed = c.agree(p.fingerprint);
    if (p.is_short) return run_short(c, *p.plan, {r.elements, p.in, p.out, p.piece_elems, agreed}, timeout_ns);
    task t(c.net, *p.plan, r.elements, p.in, p.out, p.piece_elems, agreed, p.attached);
    c.run(t, timeout_ns);
}
COLLX_ONCE void run_prepared(communicator_core& c, const call_request& r, const prepared_call& p) {
    run_within(c, r, p, r.facts.timeout_ns);
}
// Prepares a call and runs it. In checked mode preparing waits for the other ranks, which takes from the time limit.
[[gnu::cold, gnu::noinline]] inline void prepare_and_run(communicator_core& c, const call_request& r) {
    const call_end end(r.facts.timeout_ns);
    const prepared_call p = prepare(c, r);
    run_within(c, r, p, end.left_ns());
}

// A recorded call is prepared each time.
[[gnu::cold, gnu::noinline]] inline void run_recorded(communicator_core& c, const call_request& r) {
    recorded(c.recorder.get(), words_of(r, call_kind::blocking), [&] { prepare_and_run(c, r); });
}

// Whether equal requests are prepared alike: there is no table of counts, and no policy with parameters.
inline bool may_be_reused(const call_request& r) {
    return r.is_free_to_choose && r.facts.tables == nullptr && r.piece_bytes == 0;
}
inline recent_calls::key key_of(const communicator_core& c, const call_request& r) {
    const call_cuts& cuts = r.facts.cuts;
    const auto bit = [](bool is, int at) { return static_cast<unsigned>(is) << at; };
    const unsigned how = static_cast<unsigned>(r.facts.what) | bit(cuts.in_packed, 8) | bit(cuts.out_packed, 9) |
                         bit(r.in_windows, 10) | bit(r.attaches, 11) | bit(r.ordered, 12) | bit(r.serial, 13) |
                         bit(r.elements.is.plain, 14) | bit(r.elements.is.align > 16, 15) |
                         bit(c.is_oversubscribed(), 16);
    return {reinterpret_cast<const void*>(r.choose),
            r.facts.count,
            r.elements.is.kind,
            r.elements.is.bytes,
            r.facts.root,
            how};
}

COLLX_ONCE void run_blocking(communicator_core& c, const call_request& r) {
    if (c.recorder) [[unlikely]]
        return run_recorded(c, r);
    if (c.settings.checked != 0) [[unlikely]]
        return prepare_and_run(c, r);
    const bool reusable = may_be_reused(r);
    const recent_calls::key key = key_of(c, r);
    if (reusable)
        if (const prepared_call* const known = c.schedules.recent.find(key)) return run_prepared(c, r, *known);
    const prepared_call p = prepare(c, r);
    // Not kept where the schedule needs scratch, which prepare() provides for each call.
    if (reusable && p.plan->tmp_chunks == 0) c.schedules.recent.keep(key, p);
    run_prepared(c, r, p);
}

COLLX_ONCE relayed_numbers numbers_of_relayed(communicator_core& c, const call_request& r, const prepared_call& p) {
    for (bound_schedule* b : {p.plan->counts, p.plan->expected_counts})
        if (b != nullptr) // one spare count, so that loops never get a null pointer
            c.schedules.provide_scratch(*b, (static_cast<std::size_t>(b->tmp_chunks) + 1) * sizeof(std::size_t));
    count_tables& t = *r.facts.tables;
    t.relayed.resize(relayed_numbers::room_for(*p.plan));
    const std::size_t bytes =
        p.plan->directly ? piece_bytes(*p.plan->directly, collective::all_to_all, SIZE_MAX, false, false) : 0;
    return {t.first.sizes(),    t.first.offsets(), t.second.sizes(),
            t.second.offsets(), t.relayed.data(),  bytes / r.elements.is.bytes};
}

COLLX_ONCE void run_relayed(communicator_core& c, const call_request& r, const prepared_call& p) {
    const relayed_numbers numbers = numbers_of_relayed(c, r, p);
    relayed_task t(c.net, *p.plan, r.elements, p.in, p.out, p.piece_elems, c.agree(p.fingerprint), numbers);
    c.run(t, r.facts.timeout_ns);
}

COLLX_ONCE void run_perhaps_relayed(communicator_core& c, const call_request& r) {
    recorded(c.recorder.get(), words_of(r, call_kind::blocking), [&] {
        const prepared_call p = prepare(c, r);
        if (is_relayed(r, p)) run_relayed(c, r, p);
        else run_prepared(c, r, p);
    });
}

} // namespace detail
COLLX_END_NAMESPACE
