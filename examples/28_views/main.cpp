// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Data in pieces, in another order or without memory is not packed before a call: views of range-v3 and an mdspan are
// passed as they are. The inputs are three gradients as one, scores with their places, and a matrix that some ranks
// store by rows and some by columns. Each is compared with packing by hand: the same result, the same bytes sent, no
// extra memory, and a time that is shorter for some views and longer for others. Next: docs/lessons/28_views.md.
// collx-example: everywhere needs=ranges timeout=60
#include <collx/algo/ring.hpp>
#include <collx/collx.hpp>
#include <collx/net.hpp>

#include <range/v3/view/concat.hpp>
#include <range/v3/view/iota.hpp>
#include <range/v3/view/zip_with.hpp>

#include <algorithm>
#include <array>
#include <vector>

#include "../check.hpp"
#include "../draw.hpp"
#include "../timeline.hpp"
#include "grid.hpp"

namespace {

using namespace lesson;
using example::say;
using numbers = std::vector<float>;

float made_at(std::size_t i, int rank, int seed) {
    return static_cast<float>((i * 37 + static_cast<std::size_t>(rank * 11 + seed)) % 101);
}
numbers made(std::size_t n, int rank, int seed) {
    numbers x(n);
    for (std::size_t i = 0; i < n; ++i) x[i] = made_at(i, rank, seed);
    return x;
}

struct cost {
    double ms = 1e9;
    std::uint64_t sent = 0, allocated = 0;
};

// Returns the shortest time of some runs; allocations and bytes of the last run, when channels and schedules exist.
template <class F>
cost measure(collx::communicator& own, F&& f) {
    cost c;
    for (int k = 0; k < (example::is_short() ? 3 : 21); ++k) {
        collx::barrier(own);
        const std::uint64_t sent = own.sent().bytes, allocated = allocated_bytes;
        const example::stopwatch watch;
        f();
        c.ms = std::min(c.ms, watch.ms());
        c.sent = own.sent().bytes - sent;
        c.allocated = allocated_bytes - allocated;
    }
    return c;
}

struct comparison {
    collx::communicator& world;
    collx::communicator own = world.dup(); // counts only what is compared
    int me = world.rank();
    std::uint64_t n = static_cast<std::uint64_t>(world.size());
    std::size_t one = 12'000 * n, size = 3 * one; // number of elements, a multiple of n

    auto by_ring() { return own.with(collx::algo::ring_all_reduce{}); }

    // Both functions move the same elements. The caller compares the results.
    template <class Packed, class AsIs>
    void compare(const char* what, std::uint64_t formula, std::uint64_t bytes, Packed packed, AsIs as_is) {
        const cost a = measure(own, packed), b = measure(own, as_is);
        example::expect(a.sent == b.sent, "as many bytes sent either way");
        std::array<std::uint64_t, 2> all{a.sent, b.sent};
        collx::all_reduce(world, all);
        example::expect(all[1] == formula, "2 (n-1) N w by all ranks");
        example::expect(a.allocated >= bytes, "packing takes a copy");
        example::expect(b.allocated < bytes / 100, "a view takes none");
        say(world, "%-22s %10llu %10llu %10llu %9.3f %9.3f %8.2f\n", what, static_cast<unsigned long long>(b.sent),
            static_cast<unsigned long long>(a.allocated), static_cast<unsigned long long>(b.allocated), a.ms, b.ms,
            b.ms / a.ms);
    }

    void three_tensors() {
        // [doc:concat]
        const numbers w = made(one, me, 1), b = made(one, me, 2), v = made(one, me, 3); // gradients of three tensors
        numbers sums(size), sums_as_is(size);
        const auto all = ranges::views::concat(w, b, v); // no memory: a range over the three
        // [doc:end]
        compare(
            "three tensors as one", 2 * (n - 1) * size * sizeof(float), size * sizeof(float),
            [&] {
                numbers packed(w);
                packed.insert(packed.end(), b.begin(), b.end());
                packed.insert(packed.end(), v.begin(), v.end());
                collx::all_reduce(by_ring(), packed, sums);
            },
            [&] { collx::all_reduce(by_ring(), all, sums_as_is); });
        numbers expected(size);
        for (int r = 0; r < world.size(); ++r)
            for (const int k : {1, 2, 3}) {
                const numbers x = made(one, r, k);
                for (std::size_t i = 0; i < one; ++i) expected[static_cast<std::size_t>(k - 1) * one + i] += x[i];
            }
        example::expect(sums == expected && sums_as_is == expected, "the sums of the serial program");
    }
    void scores_with_places() {
        // [doc:zip]
        using place = collx::indexed<float>;
        const numbers scores = made(size, me, 4);
        const std::int64_t first = me * 1'000'000;
        const auto with_place = [first](float x, std::int64_t i) { return place{x, first + i}; };
        const auto places = ranges::views::zip_with(
            with_place, scores, ranges::views::iota(std::int64_t{0}, static_cast<std::int64_t>(size)));
        std::vector<place> best(size), best_as_is(size); // of each element, over the ranks, and whose it is
        // [doc:end]
        compare(
            "scores with places", 2 * (n - 1) * size * sizeof(place), size * sizeof(place),
            [&] {
                std::vector<place> packed;
                packed.reserve(size);
                for (std::size_t i = 0; i < size; ++i) packed.push_back({scores[i], me * 1'000'000 + std::int64_t(i)});
                collx::all_reduce(by_ring(), packed, best, collx::arg_max{});
            },
            [&] { collx::all_reduce(by_ring(), places, best_as_is, collx::arg_max{}); });
        bool is_right = true;
        for (std::size_t i = 0; i < size; ++i) {
            place most{made_at(i, 0, 4), std::int64_t(i)};
            for (int r = 1; r < world.size(); ++r)
                if (made_at(i, r, 4) > most.value) most = {made_at(i, r, 4), r * 1'000'000 + std::int64_t(i)};
            for (const place& p : {best[i], best_as_is[i]}) is_right &= p.value == most.value && p.index == most.index;
        }
        example::expect(is_right, "the best of each place, and whose it is");
    }
    void rows_and_columns() {
        // [doc:layouts]
        const auto rows = static_cast<std::ptrdiff_t>(one), cols = std::ptrdiff_t{3};
        numbers mine(size), result(size), packed_result(size);
        const bool by_rows = me % 2 == 0; // other ranks store by columns
        const auto seen = [&](numbers& x) {
            return by_rows ? grid{x.data(), {{{rows, cols}}, {cols, 1}}} : grid{x.data(), {{{rows, cols}}, {1, rows}}};
        };
        const grid in = seen(mine), out = seen(result);
        // [doc:end]
        const auto at = [](const grid& g, std::size_t i) -> float& {
            return g.data[g.layout(std::ptrdiff_t(i) / 3, std::ptrdiff_t(i) % 3)];
        };
        for (std::size_t i = 0; i < size; ++i) at(in, i) = made_at(i, me, 5);
        compare(
            "rows and columns", 2 * (n - 1) * size * sizeof(float), size * sizeof(float),
            [&] {
                numbers packed(size);
                for (std::size_t i = 0; i < size; ++i) packed[i] = at(in, i);
                collx::all_reduce(by_ring(), packed);
                for (std::size_t i = 0; i < size; ++i) at(seen(packed_result), i) = packed[i];
            },
            [&] { collx::all_reduce(by_ring(), in, out); });
        bool is_right = true;
        for (std::size_t i = 0; i < size; ++i) {
            float sum = 0;
            for (int r = 0; r < world.size(); ++r) sum += made_at(i, r, 5);
            is_right &= at(out, i) == sum && at(seen(packed_result), i) == sum;
        }
        example::expect(is_right, "element i of one rank meets element i of the others, whatever the layouts");
    }
};

void run(collx::communicator& world) {
    world.set_checked(false); // ranks would compare the arguments of each call, and that would be counted, too
    comparison c{world};
    say(world, "%d ranks, %zu elements\n%-22s %10s %21s %19s\n%-22s %10s %10s %10s %9s %9s %8s\n", world.size(), c.size,
        "", "sent by", "allocated, bytes", "ms", "", "rank 0", "packed", "as it is", "packed", "as it is", "ratio");
    c.three_tensors();
    c.scores_with_places();
    c.rows_and_columns();
}

} // namespace

int main() {
    collx::communicator world;
    if (world.size() > 1) run(world);
    else collx::run_threads(4, run); // alone: four threads
    return example::result();
}
