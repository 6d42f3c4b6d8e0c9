// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// The bodies of schedules.hpp, independent of types of algorithms. Compiled in every program, or once in collx::collx.
#pragma once

#include <climits>
#include <cstddef>
#include <cstdint>
#include <utility>

#include <collx/core/config.hpp>
#include <collx/core/growing_array.hpp>
#include <collx/core/kept_text.hpp>
#include <collx/core/pointers.hpp>
#include <collx/exec/remote.hpp>
#include <collx/plan/schedules.hpp>
#include <collx/sched/explain.hpp>
#include <collx/sched/ranges.hpp>
#include <collx/sched/verify_members.hpp>

COLLX_BEGIN_NAMESPACE

namespace detail {

// With this many receivers or more, a rank's messages of at least so many bytes begin at the beginning of their rings,
// where ranks run in turn. (Time relative to messages one behind the other: all_to_all by pairwise, ranks on 2 cores,
// near, 100 KiB, 300 KiB, 700 KiB, 1.4 MiB, 4 MiB: 5 ranks 1.35, 1.05, 1.11, 0.98, 1.12; 6 ranks 1.20, 1.11, 0.87,
// 0.85, 1.03; 7 ranks 1.00, 0.82, 0.79, 0.92, 1.04; 8 ranks 0.81, 0.62, 0.68, 0.76, 0.85; 12 ranks 0.56, 0.55, 0.72,
// 0.59, 0.84. Messages to one neighbour, 8 ranks: 1.28 at 20 KiB, 1.07 at 100 KiB.)
inline constexpr int many_receivers = 6;
inline constexpr std::size_t long_for_many = 8 * 1024;

// What all ranks must agree on before the first byte: the largest message, which segments and buffers are touched.
struct footprint {
    int max_message_chunks = 1, segments = 0, strands = 0;
    std::int64_t scratch = 0;       // chunks that steps name, of all ranks
    bool allows_single_copy = true; // receivers take single chunks into their output and send nothing on
    [[gnu::cold]] void add(const sched::program& p, int chunks) {
        scratch += sched::scratch_named(p, chunks);
        if (static_cast<int>(p.strands.size()) > strands) strands = static_cast<int>(p.strands.size());
        for (const auto& strand : p.strands)
            for (const auto& s : strand) {
                if ((s.what & (sched::recv | sched::send)) != 0) {
                    const int m = (s.what & sched::recv) != 0 ? s.dst.chunks.count : s.src.chunks.count;
                    if ((s.what & sched::recv) != 0)
                        allows_single_copy &= (s.what & sched::send) == 0 && m == 1 && s.dst.where == sched::place::out;
                    max_message_chunks = m > max_message_chunks ? m : max_message_chunks;
                }
                for (sched::place w : {s.src.where, s.dst.where, s.also})
                    if (sched::is_window(w) && sched::segment_of(w) >= segments) segments = sched::segment_of(w) + 1;
            }
    }
};

// The number of ranks, of n, to which the steps of a rank send.
[[gnu::cold]] inline int receivers_of(const sched::program& p, int n) {
    growing_array<bool> has(static_cast<std::size_t>(n));
    int count = 0;
    for (const auto& strand : p.strands)
        for (const auto& s : strand)
            if ((s.what & sched::send) != 0 && !has[s.peer_to]) {
                has[s.peer_to] = true;
                ++count;
            }
    return count;
}

// Copies the tables in which chunk sets look up positions, so that steps outlive the map or order they were recorded
// from. Resolves single chunks.
[[gnu::cold]] inline void own_orders(bound_schedule& b) {
    detail::growing_array<const int*> seen;
    const auto own = [&](sched::chunk_set& c) {
        c = pieces::settled(c, b.chunks);
        if (c.order == nullptr) return;
        std::size_t i = 0;
        while (i < seen.size() && seen[i] != c.order) ++i;
        if (i == seen.size()) {
            seen.push_back(c.order);
            b.orders.emplace_back(c.order, c.order + b.chunks);
        }
        c.order = b.orders[i].data();
    };
    for (auto& strand : b.steps.strands)
        for (auto& s : strand) {
            own(s.src.chunks);
            own(s.dst.chunks);
        }
}

// Whether a step does more with a tmp chunk than combine it with what it receives.
inline bool has_scratch_that_travels(const sched::program& steps) {
    for (const auto& strand : steps.strands)
        for (const sched::step& s : strand)
            if ((s.src.where == sched::place::tmp && (s.what & (sched::reduce | sched::reduce_after)) == 0) ||
                s.own == sched::place::tmp)
                return true;
    return false;
}

// The most bytes of one chunk that a slot or a window stage takes at once.
inline std::size_t most_bytes(const bound_schedule& b, std::size_t slot_bytes) {
    if (b.zero_copy) return SIZE_MAX;
    if (b.window == nullptr) return slot_bytes / static_cast<std::size_t>(b.max_message_chunks);
    const window_shape& shape = b.window->memory.shape();
    if (shape.stage_bytes == 0) return SIZE_MAX; // signals only
    return shape.piece_bytes() / cache_line_bytes * cache_line_bytes;
}

} // namespace detail

[[gnu::cold]] COLLX_ONCE void schedule_cache::grow_scratch(bound_schedule& b, std::size_t bytes, std::size_t align) {
    if (align < 64) align = 64;
    if (bytes < 2 * b.scratch_bytes) bytes = 2 * b.scratch_bytes;
    if (b.scratch_bytes != 0) b.outgrown.push_back(std::move(b.scratch_memory));
    b.scratch_memory.clear();
    b.scratch_memory.resize(bytes + align);
    b.scratch = b.scratch_memory.data() + (align - reinterpret_cast<std::uintptr_t>(b.scratch_memory.data()) % align);
    b.scratch_bytes = bytes;
}

// Checks what is declared, before anything is recorded.
[[gnu::cold]] COLLX_ONCE void schedule_cache::require_bounds(const recipe& a) const {
    if (a.declared.on_devices)
        fail(errc::invalid_argument, links_.rank(), -1, "bind another algorithm, or let the library choose",
             "algorithm %s is for devices only, and these ranks are on hosts", a.bounds.name);
    sched::bounds here{.signals = INT_MAX, .window_depth = detail::most_window_depth, .depth = links_.channels().depth};
    if (!links_.is_one_host()) here.remedy = "let ranks receive before they have sent so many, or keep to one host";
    sched::require_bounds(a.bounds, here, links_.rank());
}

[[gnu::cold]] COLLX_ONCE void schedule_cache::refuse(const recipe& a, const sched::schedule& s,
                                                     const sched::verdict& v) const {
    kept_text why = sched::explain(s, v);
    for (char& c : why)
        if (c == '\n') c = ';'; // an error is one line
    fail(errc::invalid_argument, links_.rank(), v.rank >= 0 && v.rank < s.ranks ? v.rank : -1,
         "sched::verify(algorithm, n) says so, too", "algorithm %s among %d ranks: %s", a.bounds.name, s.ranks,
         why.c_str());
}

[[gnu::cold]] COLLX_ONCE sched::program schedule_cache::record(const recipe& a, int rank) {
    sched::recorder ex;
    a.text(a.algorithm, ex, rank, a.declared.ranks);
    return ex.take();
}

[[gnu::cold]] COLLX_ONCE sched::schedule schedule_cache::record_all(const recipe& a) {
    sched::schedule s = a.declared;
    for (int r = 0; r < s.ranks; ++r) s.programs.push_back(record(a, r));
    sched::survey(s);
    return s;
}

// What binding keeps of all ranks' programs. They are recorded one at a time, once: together they can be many
// megabytes, and in large jobs recording is most of the cost of binding.
struct schedule_cache::recording {
    int own_rank;
    sched::schedule surveyed;
    detail::footprint footprint;
    std::int64_t steps = 0; // each as often as it has chunks
    sched::program own;

    [[gnu::cold]] void add(sched::program&& p, int rank) {
        footprint.add(p, surveyed.chunks);
        sched::survey(surveyed, p);
        for (const auto& strand : p.strands)
            for (const sched::step& s : strand) {
                const int from = s.src.chunks.count, to = s.dst.chunks.count, chunks = from > to ? from : to;
                steps += chunks > 1 ? chunks : 1;
            }
        if (rank == own_rank) own = static_cast<sched::program&&>(p);
    }
};

[[gnu::cold]] COLLX_ONCE void schedule_cache::inspected(const schedule_cache& c, const recipe& a, recording& all) {
    sched::message_balance messages(a.declared.ranks, a.declared.op);
    for (int r = 0; r < a.declared.ranks; ++r) {
        sched::program p = record(a, r);
        if (const sched::verdict v = sched::out_of_range(p, r, a.declared); !v.ok()) c.refuse(a, record_all(a), v);
        messages.add(p, r);
        all.add(static_cast<sched::program&&>(p), r);
    }
    if (sched::mixes_memory(all.surveyed)) {
        const sched::schedule s = record_all(a);
        c.refuse(a, s, sched::out_of_range(s));
    }
    if (messages.is_even() || a.declared.op == collective::send_recv) return;
    sched::schedule s = record_all(a);
    s.depth = c.links_.channels().room_for(s.depth);
    const sched::verdict v = sched::verify_for(s, a.members);
    c.refuse(a, s, v.ok() ? sched::verdict{.what = sched::problem::leftover} : v);
}

[[gnu::cold]] COLLX_ONCE void schedule_cache::prove(bound_schedule& b, const recipe& a) {
    if (b.proof_steps <= most_proved_steps) {
        sched::schedule s = record_all(a);
        s.depth = links_.channels().room_for(s.depth);
        const sched::verdict v = sched::verify_for(s, a.members);
        if (!v.ok()) refuse(a, s, v);
    }
    b.is_proved = true;
}

[[gnu::cold]] COLLX_ONCE sole_ptr<bound_schedule> schedule_cache::make(const recipe& a, int at_port,
                                                                       inspection inspect) {
    require_bounds(a);
    const int n = links_.size();
    recording all{.own_rank = links_.rank(), .surveyed = a.declared, .footprint = {}, .own = {}};
    if (inspect != nullptr) inspect(*this, a, all);
    else
        for (int r = 0; r < n; ++r) all.add(record(a, r), r);
    const detail::footprint& f = all.footprint;
    if (f.strands > most_strands)
        fail(errc::invalid_argument, links_.rank(), -1, "put the steps of several strands into one",
             "algorithm %s has %d strands on a rank of %d, and a rank runs at most %d", a.bounds.name, f.strands, n,
             most_strands);
    auto b = make_sole<bound_schedule>();
    b->steps = static_cast<sched::program&&>(all.own);
    std::int64_t cells = std::int64_t{n} * a.declared.chunks;
    if (f.scratch > cells) cells = f.scratch;
    b->proof_steps = (all.steps > cells ? all.steps : cells) * all.surveyed.iterations() * all.surveyed.calls();
    b->zero_copy = all.surveyed.reaches_buffers;
    b->chunks = a.declared.chunks;
    detail::own_orders(*b);
    b->is_short_form =
        !b->zero_copy && (a.declared.declared_signals != 0 ? is_short_form(b->steps) : is_short_exchange(b->steps));
    b->max_message_chunks = f.max_message_chunks;
    b->tmp_chunks = a.declared.scratch;
    b->scratch_travels = detail::has_scratch_that_travels(b->steps);
    b->at_port = at_port;
    b->algorithm = a.id;
    b->name = a.bounds.name;
    b->sources.resize(static_cast<std::size_t>(n));
    if (!links_.is_one_host()) detail::by_channels->mark(*b);
    b->allows_single_copy = f.allows_single_copy;
    if (runs_in_turn_ && detail::receivers_of(b->steps, n) >= detail::many_receivers)
        b->least_restarted_bytes = detail::long_for_many;
    if (a.declared.declared_signals != 0)
        b->window = &window_for(a.id, at_port,
                                {.signals = a.declared.declared_signals,
                                 .segments = f.segments,
                                 .depth = a.bounds.window_depth,
                                 .stage_bytes = f.segments > 0 ? stage_bytes(b->chunks, a.bounds.window_depth) : 0,
                                 .chunks = b->chunks > 0 ? b->chunks : 1});
    b->most_bytes = detail::most_bytes(*b, links_.channels().most_bytes(a.declared.depth));
    return b;
}

[[gnu::cold]] COLLX_ONCE bound_window& schedule_cache::window_for(const void* id, int at_port,
                                                                  const window_shape& shape) {
    for (auto& w : windows_)
        if (w->id == id && w->at_port == at_port && w->state.memory.shape() == shape) return w->state;
    windows_.push_back(make_sole<window_entry>(window_entry{id, at_port, {links_.make_window(shape), 0, 0}}));
    return windows_.back()->state;
}

[[gnu::cold]] COLLX_ONCE bound_schedule& schedule_cache::bind_new(const unbound& a, const void* id, std::uint64_t bits,
                                                                  int at_port) {
    auto made = make(a.recipe_of(*this, a.algorithm), at_port, a.inspect);
    made->parameters = bits;
    if (++used_ * 2 > table_.size()) grow();
    entry& e = place_of(id, bits, at_port);
    e = {id, bits, at_port, std::move(made)};
    return *e.schedule;
}

// The place for a schedule that is not in the table yet.
[[gnu::cold]] COLLX_ONCE schedule_cache::entry& schedule_cache::place_of(const void* id, std::uint64_t bits,
                                                                         int at_port) {
    std::size_t i = detail::schedule_place(reinterpret_cast<std::uintptr_t>(id), bits, at_port);
    while (table_[i & (table_.size() - 1)].id != nullptr) ++i;
    return table_[i & (table_.size() - 1)];
}

[[gnu::cold]] COLLX_ONCE void schedule_cache::grow() {
    detail::growing_array<entry> old(table_.size() * 2);
    old.swap(table_);
    for (auto& e : old)
        if (e.id != nullptr) place_of(e.id, e.bits, e.at_port) = std::move(e);
}

COLLX_END_NAMESPACE
