// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// collx-test: sanitize=no
// The bytes that the kernels load and store, counted on their host twin, compared with docs/design/device.md.
#include <collx/testing/twin.hpp>

#include <atomic>
#include <ostream>
#include <thread>
#include <vector>

#include <catch2/catch.hpp>

#include <collx/algo/direct.hpp>
#include <collx/algo/multicast.hpp>
#include <collx/algo/one_shot.hpp>
#include <collx/algo/ring.hpp>
#include <collx/algo/two_shot.hpp>
#include <collx/algo/zero_copy.hpp>

using namespace collx;

namespace {

std::atomic<std::size_t> loaded, loaded_at_once, stored;

// Counts the data that a kernel loads and stores; counters and signals do not count.
struct counting_env : device::twin_env {
    using device::twin_env::twin_env;
    using handle = counting_env*;
    handle hand_over() { return this; }
    static counting_env& take_over(handle h) { return *h; }
    template <class Unit>
    static Unit load(const Unit* p) {
        loaded += sizeof(Unit);
        loaded_at_once += sizeof(Unit) == 16 ? 16 : 0;
        return *p;
    }
    template <class Unit>
    static void store(Unit* p, Unit x) {
        stored += sizeof(Unit);
        *p = x;
    }
};

// One lane, with a thread for each rank.
class counting_machine : public device::twin_machine {
public:
    template <class Protocol, int Groups, class Algorithm, class Types>
    void launch(const device::fused_args<Algorithm, Types>& a, const device::fused_options&) {
        std::vector<std::thread> threads;
        for (int rank = 0; rank < a.shape.ranks; ++rank)
            threads.emplace_back([&a, rank] {
                device::twin_barrier alone(1);
                counting_env env(0, 1, 0, 1, alone, alone);
                device::block_state state{};
                device::executor<device::executor_kind<counting_env, Algorithm, Types, Protocol, Groups>>(env, a, state,
                                                                                                          rank, 0)
                    .run();
            });
        for (auto& t : threads) t.join();
    }
};

struct traffic {
    std::size_t in, out; // chunks loaded and stored by all ranks together
    bool operator==(const traffic&) const = default;
};
std::ostream& operator<<(std::ostream& s, const traffic& t) { return s << t.in << " loaded, " << t.out << " stored"; }

// The traffic of an algorithm with chunks of 1 KiB; in_place: every rank's input is its output.
template <class A>
traffic count(A a, int ranks, bool in_place = false, std::size_t first = 0) {
    constexpr std::size_t each = 256;
    using view = contiguous_view<float>;
    using types = device::call_types<view, view, std::conditional_t<reduces(A::op), plus, device::move_only>>;
    collx::sched::set_root(a, ranks - 1);
    const int chunks = a.chunks(ranks);
    const std::size_t size = each * static_cast<unsigned>(chunks);
    std::vector<std::vector<float>> in(static_cast<unsigned>(ranks), std::vector<float>(first + size, 1.0f)), out = in;
    device::exchange_shape shape;
    shape.ranks = ranks;
    counting_machine machine;
    device::team<counting_machine> team(machine, shape);
    const auto l = chunk_layout::blocks(each, chunks);
    loaded = loaded_at_once = stored = 0;
    team.template run<types, device::simple_protocol>(a, l, l, [&](int r) {
        auto& x = out[static_cast<unsigned>(r)];
        return device::rank_operands<types>{
            view{(in_place ? x.data() : in[static_cast<unsigned>(r)].data()) + first, size},
            view{x.data() + first, size},
            {}};
    });
    team.check();
    constexpr std::size_t chunk_bytes = each * sizeof(float);
    if (first == 0) CHECK(loaded % chunk_bytes == 0);
    if (first == 0) CHECK(stored % chunk_bytes == 0);
    return {loaded / chunk_bytes, stored / chunk_bytes};
}

} // namespace

TEST_CASE("peers' buffers: nothing is loaded twice that need not be, nothing is stored twice") {
    for (const std::size_t k : {2u, 4u, 8u}) {
        const int n = static_cast<int>(k);
        INFO("k = " << k);
        CHECK(count(algo::zero_copy_all_reduce{}, n) == traffic{k * k, k * k});
        CHECK(count(algo::zero_copy_reduce_scatter{}, n) == traffic{k * k, k});
        CHECK(count(algo::multicast_all_gather{}, n) == traffic{k, k * k});
        CHECK(count(algo::zero_copy_all_to_all{}, n) == traffic{k * k, k * k});
        CHECK(count(algo::multicast_broadcast{}, n) == traffic{k, k * k});
        CHECK(count(algo::zero_copy_reduce{}, n) == traffic{k, 1});
        CHECK(count(algo::zero_copy_gather{}, n) == traffic{k, k});
        CHECK(count(algo::zero_copy_scatter{}, n) == traffic{k, k});
        // In place: data that is already where it belongs is not stored again.
        CHECK(count(algo::zero_copy_all_reduce{}, n, true) == traffic{k * k, k * k});
        CHECK(count(algo::multicast_all_gather{}, n, true) == traffic{k, k * (k - 1)});
        CHECK(count(algo::multicast_broadcast{}, n, true) == traffic{k, k * (k - 1)});
        CHECK(count(algo::zero_copy_gather{}, n, true) == traffic{k - 1, k - 1});
        CHECK(count(algo::zero_copy_scatter{}, n, true) == traffic{k - 1, k - 1});
        // In these algorithms several ranks fetch the same data.
        CHECK(count(algo::zero_copy_all_gather{}, n) == traffic{k * k, k * k});
        CHECK(count(algo::zero_copy_broadcast{}, n) == traffic{k, k});
    }
}

TEST_CASE("slots and windows: what goes through them is stored and loaded once more") {
    for (const std::size_t k : {2u, 4u, 8u}) {
        const int n = static_cast<int>(k);
        INFO("k = " << k);
        CHECK(count(algo::ring_all_reduce{}, n) == traffic{k * (3 * k - 2), k * (3 * k - 2)});
        CHECK(count(algo::ring_reduce_scatter{}, n) == traffic{k * (2 * k - 1), k * k});
        CHECK(count(algo::ring_all_gather{}, n) == traffic{k * (k + 1), k * (2 * k - 1)});
        CHECK(count(algo::one_shot_all_reduce{}, n) == traffic{k * (k + 1), 2 * k});
        CHECK(count(algo::two_shot_all_reduce{}, n) == traffic{k * (3 * k - 2), k * 2 * k});
        CHECK(count(algo::one_shot_scan{}, n) == traffic{k - 1 + k * (k + 1) / 2, 2 * k - 1});
    }
}

TEST_CASE(
    "buffers that begin in the middle of 16 bytes, all at the same place, go 16 bytes at a time but for their ends") {
    for (const std::size_t first : {1u, 2u, 3u}) {
        INFO("element " << first);
        // 60 of the 63 packs in every chunk of 1 KiB go four at a time. Single packs are not counted.
        for (const bool in_place : {false, true}) {
            count(algo::zero_copy_all_reduce{}, 4, in_place, first);
            CHECK(loaded_at_once == 16 * 60 * 16);
            CHECK(loaded == loaded_at_once);
        }
        count(algo::zero_copy_all_to_all{}, 4, false, first);
        CHECK(loaded_at_once == 16 * 60 * 16);
    }
}
