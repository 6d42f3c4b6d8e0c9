// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Binds algorithms to a communicator: the steps are recorded once, the window is made once, and both are kept for every
// later call with the same algorithm and parameters. A lookup is one probe of a small table.
#pragma once

#include <cstdint>
#include <cstring>
#include <type_traits>

#include <collx/core/growing_array.hpp>
#include <collx/core/pointers.hpp>
#include <collx/exec/short_call.hpp>
#include <collx/exec/task.hpp>
#include <collx/plan/recent_calls.hpp>
#include <collx/sched/bounds.hpp>
#include <collx/sched/schedule.hpp>
#include <collx/sched/verdict.hpp>
#include <collx/transport/links.hpp>

COLLX_BEGIN_NAMESPACE

namespace detail {

template <class Algorithm>
inline constexpr char algorithm_id = 0; // its address is the algorithm's identity in this process

// The parameters of an algorithm value (root, chunk count, depth) as bits; two values with equal bits record the same
// steps. An algorithm that refers to something outside (a node map) supplies its bits itself: addresses differ between
// processes and may be reused for other content. Padding is no parameter and has arbitrary content.
template <class Algorithm>
std::uint64_t parameter_bits(const Algorithm& a) {
    static_assert(std::is_trivially_copyable_v<Algorithm> && sizeof(Algorithm) <= 64,
                  "collx: an algorithm is a small value of plain parameters");
    if constexpr (std::is_empty_v<Algorithm>) {
        return 0;
    } else if constexpr (requires { a.parameter_bits(); }) {
        return a.parameter_bits();
    } else {
        Algorithm plain = a;
#if __has_builtin(__builtin_clear_padding)
        __builtin_clear_padding(&plain);
#else
        static_assert(__has_unique_object_representations(Algorithm),
                      "collx: this compiler cannot tell an algorithm's parameters from the padding between them. Give "
                      "the algorithm a member std::uint64_t parameter_bits() const.");
#endif
        unsigned char raw[sizeof(Algorithm)];
        std::memcpy(raw, &plain, sizeof raw);
        std::uint64_t h = 0xcbf2'9ce4'8422'2325;
        for (unsigned char c : raw) h = (h ^ c) * 0x0000'0100'0000'01b3;
        return h;
    }
}

inline constexpr int most_window_depth = 255; // a step cannot count back further

// Where the search for a schedule begins in a table of a power of two of places. The bits that masks keep depend on all
// three arguments.
constexpr std::size_t schedule_place(std::uint64_t id, std::uint64_t bits, int at_port) {
    const std::uint64_t mixed =
        (((id >> 3) + static_cast<std::uint64_t>(at_port) * 0xd6e8'feb8'6659'fd93) ^ bits) * 0x9e37'79b9'7f4a'7c15;
    return static_cast<std::size_t>((mixed ^ mixed >> 29) >> 32);
}

} // namespace detail

// The bound schedules of a communicator, each recorded at its first use.
class schedule_cache {
public:
    explicit schedule_cache(links& l) : links_(l), table_(slots) {}

    struct recipe;
    struct recording;
    using inspection = void (*)(const schedule_cache&, const recipe&, recording&);

    // Finds or makes the schedule of `algorithm` on this communicator and port. First use is collective: windows are
    // made in call order. A program's own algorithm is inspected. The algorithms that the library chooses are proved by
    // its tests, so programs without their own compile no verifier.
    // Errors: invalid_argument, on all ranks alike and before anything moves: channels are not as deep as it needs;
    //     with `inspected` also: some rank's steps name ranks, chunks, scratch or signals that do not exist, or its
    //     messages do not match · unsupported (windows, and ranks on several hosts) · resource.
    template <class Algorithm>
    bound_schedule& bind(const Algorithm& algorithm, int at_port, inspection inspect = nullptr) {
        const void* id = &detail::algorithm_id<Algorithm>;
        const std::uint64_t bits = detail::parameter_bits(algorithm);
        if (bound_schedule* bound = find(id, bits, at_port)) return *bound;
        return bind_new({&algorithm, &recipe_of<Algorithm>, inspect}, id, bits, at_port);
    }

    // Proves a bound algorithm, once: that it does what its collective promises, for this number of ranks and these
    // channels, and leaves nothing behind. `b` is what bind(algorithm, ...) returned.
    // Errors: invalid_argument with the sentence of sched::explain, on all ranks alike.
    // Cost: 0.1 us for each chunk of each step of all ranks together. An algorithm with more than most_proved_steps of
    //     these is only checked as bind() does.
    template <class Algorithm>
    void require_proof(bound_schedule& b, const Algorithm& algorithm) {
        if (!b.is_proved) prove(b, recipe_of<Algorithm>(*this, &algorithm));
    }
    static constexpr std::int64_t most_proved_steps = 1 << 17;
    // Records as without an inspection, and checks each rank's steps once they are recorded.
    static void inspected(const schedule_cache& c, const recipe& a, recording& all);

    // As bind(), for a call in which each rank knows only its own counts. Also binds the schedules that bring relaying
    // ranks the other counts, and the one for parts that are not relayed. All ranks must choose alike, without counts.
    template <class Algorithm>
    bound_schedule& bind_for_private_counts(const Algorithm& algorithm, int at_port, inspection inspect = nullptr) {
        bound_schedule& b = bind(algorithm, at_port, inspect);
        if constexpr (requires { algorithm.counts(); })
            if (b.counts == nullptr) b.counts = &bind(algorithm.counts(), at_port, inspect);
        if constexpr (requires { algorithm.expected_counts(); })
            if (b.expected_counts == nullptr) b.expected_counts = &bind(algorithm.expected_counts(), at_port, inspect);
        if constexpr (requires { algorithm.directly(); })
            if (b.directly == nullptr) {
                b.directly = &bind(algorithm.directly(), at_port, inspect);
                b.most_relayed_bytes = static_cast<std::size_t>(algorithm.most_bytes);
            }
        return b;
    }

    // Provides room for the partial results of one piece. Keeps outgrown memory, which outstanding calls may be using.
    void provide_scratch(bound_schedule& b, std::size_t bytes, std::size_t align = 64) {
        if (bytes > b.scratch_bytes || (reinterpret_cast<std::uintptr_t>(b.scratch) & (align - 1)) != 0)
            grow_scratch(b, bytes, align);
    }

    // Adds the bytes that this rank has moved through the windows.
    void add_moved(links::traffic& t) const {
        for (const auto& w : windows_) {
            t.window_bytes_written += w->state.bytes_written;
            t.window_bytes_read += w->state.bytes_read;
        }
    }

    // Shrinks the rings where more than two ranks share a core, because their rings share its caches. All ranks of a
    // communicator say the same, before the first window is made.
    void share_cores(int ranks_per_core) {
        runs_in_turn_ = links_layout::run_in_turn(ranks_per_core);
        if (runs_in_turn_) ring_bytes_ = 2 * ring_bytes / static_cast<std::size_t>(ranks_per_core);
    }
    // Rings of 2 MiB: twice the second-level cache of the machines measured, so that lines come back to their writer
    // after their readers lost them. (Ranks on 2 cores, all_reduce of 64 KiB, near, whole rings and those of
    // share_cores(): 8 ranks 46 and 36 us, 16 ranks 117 and 80, 32 ranks 619 and 350. Each rank must also touch each
    // page once.)
    static constexpr std::size_t ring_bytes = std::size_t{2} << 20;
    std::size_t stage_bytes(int chunks, int depth) const {
        const auto c = static_cast<std::size_t>(chunks);
        const std::size_t least = c <= 256 ? c * 4 * 1024 : c <= 1024 ? 1024 * 1024 : c * 1024;
        const std::size_t by_ring = ring_bytes_ / static_cast<std::size_t>(depth > 0 ? depth : 1);
        return round_up(least > by_ring ? least : by_ring, page_bytes);
    }

    detail::recent_calls recent; // for the code that prepares calls; they point to schedules of this cache

    // What binding needs of an algorithm, independent of its type: compiled once, not once per algorithm.
    struct recipe {
        const void* algorithm;
        const void* id;
        void (*text)(const void* algorithm, sched::recorder& ex, int rank, int n);
        sched::declaration bounds;
        sched::schedule declared;           // without programs; empty if the algorithm's map or order does not fit
        detail::growing_array<int> members; // members of the collective; empty: all ranks
    };

private:
    static constexpr std::size_t slots = 64;
    struct entry {
        const void* id = nullptr;
        std::uint64_t bits = 0;
        int at_port = 0;
        sole_ptr<bound_schedule> schedule;
    };

    struct window_entry {
        const void* id;
        int at_port;
        bound_window state;
    };

    template <class A>
    static void text(const void* algorithm, sched::recorder& ex, int rank, int n) {
        (*static_cast<const A*>(algorithm))(ex, rank, n);
    }
    template <class A>
    [[gnu::cold]] static recipe recipe_of(const schedule_cache& c, const void* algorithm) {
        const A& a = *static_cast<const A*>(algorithm);
        const int n = c.links_.size();
        recipe r{&a, &detail::algorithm_id<A>, &text<A>, sched::declaration_of(a, n), {}, {}};
        const bool fits = r.bounds.fits;
        if (fits) r.declared = sched::declared_schedule(a, n);
        if constexpr (requires { a.member(0); })
            for (int i = 0; fits && i < a.contributors(n); ++i) r.members.push_back(a.member(i));
        return r;
    }
    // An algorithm that is not bound yet, independent of its type.
    struct unbound {
        const void* algorithm;
        recipe (*recipe_of)(const schedule_cache&, const void* algorithm);
        inspection inspect;
    };
    bound_schedule* find(const void* id, std::uint64_t bits, int at_port) {
        for (std::size_t i = detail::schedule_place(reinterpret_cast<std::uintptr_t>(id), bits, at_port);; ++i) {
            entry& e = table_[i & (table_.size() - 1)];
            if ((e.id == id && e.bits == bits && e.at_port == at_port) || e.id == nullptr) return e.schedule.get();
        }
    }
    bound_schedule& bind_new(const unbound& a, const void* id, std::uint64_t bits, int at_port);
    sole_ptr<bound_schedule> make(const recipe& a, int at_port, inspection inspect);
    void prove(bound_schedule& b, const recipe& a);
    void require_bounds(const recipe& a) const;
    [[noreturn]] void refuse(const recipe& a, const sched::schedule& s, const sched::verdict& v) const;
    static sched::schedule record_all(const recipe& a);
    static sched::program record(const recipe& a, int rank);
    // One window per algorithm, port and shape, for all roots.
    bound_window& window_for(const void* id, int at_port, const window_shape& shape);
    entry& place_of(const void* id, std::uint64_t bits, int at_port);
    void grow();
    void grow_scratch(bound_schedule& b, std::size_t bytes, std::size_t align);

    links& links_;
    detail::growing_array<entry> table_;
    detail::growing_array<sole_ptr<window_entry>> windows_;
    std::size_t used_ = 0, ring_bytes_ = ring_bytes;
    bool runs_in_turn_ = false; // see links_layout::run_in_turn
};

COLLX_END_NAMESPACE

#if !defined(COLLX_ONLY_DECLARED)
#include <collx/plan/schedules_once.hpp>
#endif
