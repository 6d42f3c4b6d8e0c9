// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// collx-test: sanitize=address
// The choice when nothing is bound: always correct for the call, from facts that all ranks share.
#include <collx/plan/selector.hpp>

#include <catch2/catch.hpp>

#include <collx/plan/by_links.hpp>
#include <collx/plan/channel_selector.hpp>
#include <collx/plan/row_of_call.hpp>
#include <collx/transport/memory.hpp>

namespace {

using collx::collective;
namespace algo = collx::algo;

struct rank {
    rank(int r, int n)
        : memory(collx::make_memory_arena(n)),
          net(*memory, memory->take(collx::links_layout::for_ranks(n).bytes()), r, n), cache(net) {}
    collx::counted_ptr<collx::arena> memory;
    collx::links net;
    collx::schedule_cache cache;
};

} // namespace

TEST_CASE("small sums take one synchronisation, large ones split the work, shared memory is not copied") {
    for (const int n : {2, 3, 4, 8})
        for (const bool oversubscribed : {false, true}) {
            rank me(0, n);
            const auto choose = [&](std::size_t bytes, bool zero_copy) {
                return &collx::select<collective::all_reduce>(
                    me.cache, {.bytes = bytes, .ranks = n, .zero_copy = zero_copy, .oversubscribed = oversubscribed});
            };
            CHECK(choose(8, false) == &me.cache.bind(algo::one_shot_all_reduce{}, 0));
            CHECK(choose(8, true) == &me.cache.bind(algo::one_shot_all_reduce{}, 0));
            CHECK(choose(10'000'000, false) == &me.cache.bind(algo::two_shot_all_reduce{}, 0));
            CHECK(choose(10'000'000, true) == &me.cache.bind(algo::zero_copy_all_reduce{}, 0));
            // One crossover only.
            bool is_large = false;
            for (std::size_t bytes = 1; bytes < 1'000'000; bytes = bytes * 5 / 4 + 1) {
                const bool now = choose(bytes, false) != &me.cache.bind(algo::one_shot_all_reduce{}, 0);
                CHECK((now || !is_large));
                is_large = now;
            }
        }
}

TEST_CASE("inside a host the choice is the one that docs/algorithms.md lists") {
    for (const int n : {2, 3, 4, 5, 8}) {
        CAPTURE(n);
        rank me(0, n);
        const auto bind = [&](const auto& a) { return &me.cache.bind(a, 0); };
        collx::problem p{.bytes = 16 * 1024, .ranks = n, .oversubscribed = true};
        const auto sum = [&] { return &collx::select<collective::all_reduce>(me.cache, p); };
        const auto gather = [&] { return &collx::select<collective::all_gather>(me.cache, p); };
        const auto reduce = [&] { return &collx::select<collective::reduce>(me.cache, p); };
        CHECK(sum() == bind(algo::one_shot_all_reduce{}));
        CHECK(gather() == bind(algo::one_shot_all_gather{}));
        CHECK(reduce() == bind(algo::one_shot_reduce{}));
        p.oversubscribed = false; // each rank has its own core
        CHECK((sum() == bind(algo::one_shot_all_reduce{})) == (n == 2));
        p.bytes = 8 * 1024;
        CHECK((sum() == bind(algo::one_shot_all_reduce{})) == (n <= 4));
        p.bytes = 4 * 1024;
        CHECK(sum() == bind(algo::one_shot_all_reduce{}));
        p.zero_copy = true;
        CHECK(sum() == bind(algo::zero_copy_all_reduce{}));
        CHECK(gather() == bind(algo::one_shot_all_gather{}));
        p.bytes = 2 * 1024;
        CHECK(sum() == bind(algo::one_shot_all_reduce{}));
        p.bytes = 16 * 1024 + 1;
        CHECK(gather() == bind(algo::zero_copy_all_gather{}));
        p.zero_copy = false;
        CHECK((reduce() == bind(algo::chain_reduce{})) == (n == 2));
        p.bytes = 32 * 1024;
        CHECK((reduce() == bind(algo::chain_reduce{})) == (n == 2));
        p.bytes = 48 * 1024 + 1;
        if (n == 2) CHECK(sum() == bind(algo::recursive_doubling_all_reduce{}));
        else CHECK(sum() == bind(algo::two_shot_all_reduce{}));
        p.bytes = 4096 * 1024 + 4;
        CHECK(sum() == bind(algo::two_shot_all_reduce{}));
        p.bytes = 48 * 1024 + 1;
        if (n == 2) CHECK(gather() == bind(algo::pairwise_all_gather{}));
        else CHECK(gather() == bind(algo::direct_all_gather{}));
        if (n == 2) CHECK(reduce() == bind(algo::linear_reduce{}));
        else CHECK(reduce() == bind(algo::direct_reduce{}));
        for (const bool is_shared : {false, true}) { // scans depend on cores and sizes, not on the memory
            p.zero_copy = is_shared;
            const auto scan = [&] { return &collx::select<collective::scan>(me.cache, p); };
            const auto exclusive = [&] { return &collx::select<collective::exclusive_scan>(me.cache, p); };
            p.bytes = 64 * 1024;
            CHECK((scan() == bind(algo::one_shot_scan{})) == (n > 2));
            CHECK((exclusive() == bind(algo::one_shot_exclusive_scan{})) == (n > 2));
            p.oversubscribed = true;
            CHECK((scan() == bind(algo::chain_scan{}) && exclusive() == bind(algo::chain_exclusive_scan{})));
            p.oversubscribed = false;
            p.bytes = 64 * 1024 + 1;
            CHECK((scan() == bind(algo::chain_scan{}) && exclusive() == bind(algo::chain_exclusive_scan{})));
        }
        CHECK(&collx::select<collective::gather>(me.cache, p) == bind(algo::linear_gather{}));
        CHECK(&collx::select<collective::barrier>(me.cache, p) == bind(algo::flag_barrier{}));
    }
}

TEST_CASE("the root and the port of the call are those of the schedule") {
    rank me(1, 4);
    collx::problem p{.bytes = 100, .ranks = 4, .root = 3, .at_port = 2};
    CHECK(&collx::select<collective::broadcast>(me.cache, p) == &me.cache.bind(algo::one_shot_broadcast{.root = 3}, 2));
    CHECK(&collx::select<collective::reduce>(me.cache, p) == &me.cache.bind(algo::one_shot_reduce{.root = 3}, 2));
    CHECK(&collx::select<collective::all_to_all>(me.cache, p) == &me.cache.bind(algo::one_shot_all_to_all{}, 2));
    CHECK(collx::select<collective::gather>(me.cache, p).at_port == 2);
    CHECK(collx::select<collective::scatter>(me.cache, p).at_port == 2);
    p.bytes = 1 << 20;
    CHECK(&collx::select<collective::all_to_all>(me.cache, p) == &me.cache.bind(algo::direct_all_to_all{}, 2));
    CHECK(collx::select<collective::barrier>(me.cache, p).at_port == 2);
}

TEST_CASE("long calls follow the rings of a machine where these load its links less") {
    rank me(0, 4);
    const collx::rank_order order{0, 1, 3, 2};
    const collx::order_view rings[] = {order, order};
    collx::links_choice l{collx::detail::select_by_links, rings, 1, true, false, nullptr};
    collx::problem p{.bytes = 1 << 20, .ranks = 4, .links = &l};
    auto* const by_ring = &me.cache.bind(algo::on_rings<algo::ring_all_reduce>{rings, 1}, 0);
    const auto chosen = [&] { return &collx::select<collective::all_reduce>(me.cache, p); };
    auto* const by_windows = &me.cache.bind(algo::two_shot_all_reduce{}, 0);
    CHECK(chosen() == by_ring);
    CHECK(&collx::select<collective::all_gather>(me.cache, p) ==
          &me.cache.bind(algo::in_order<algo::ring_all_gather>{order}, 0));
    p.root = 2;
    CHECK(&collx::select<collective::reduce>(me.cache, p) ==
          &me.cache.bind(algo::rooted_in_order<algo::chain_reduce>{order, 2}, 0));
    p.ordered = true;
    CHECK(chosen() == by_windows);
    p.ordered = false;
    p.bytes = 512 * 1024;
    CHECK(chosen() == by_windows);
    p.bytes = 1 << 20;
    l.beats_windows = false;
    CHECK(chosen() == by_windows);
    p.windows = false;
    CHECK(chosen() == by_ring);
    l.ring_count = 0;
    CHECK(chosen() != by_ring);
}

TEST_CASE("pieces fit where they travel") {
    for (const int n : {1, 2, 3, 8, 64}) {
        rank me(0, n);
        const std::size_t slot = me.net.slot_bytes();
        const auto check = [&](const collx::bound_schedule& b) {
            for (const bool oversubscribed : {false, true})
                for (std::size_t chunk : {1u, 100u, 4096u, 65'536u, 1u << 20, 1u << 30})
                    for (const auto what : {collective::broadcast, collective::all_gather}) {
                        const std::size_t piece = collx::piece_bytes(b, what, chunk, oversubscribed);
                        const std::size_t limit = b.most_bytes;
                        CHECK((piece > 0 && piece <= limit));
                        if (b.window == nullptr) CHECK(piece * static_cast<std::size_t>(b.max_message_chunks) <= slot);
                        else if (!b.zero_copy && b.window->memory.shape().stage_bytes != 0)
                            CHECK(piece * static_cast<std::size_t>(b.chunks) <= b.window->memory.shape().stage_bytes);
                    }
        };
        check(me.cache.bind(algo::one_shot_all_reduce{}, 0));
        check(me.cache.bind(algo::two_shot_all_reduce{}, 0));
        check(me.cache.bind(algo::direct_all_gather{}, 0));
        check(me.cache.bind(algo::pairwise_all_to_all{}, 0));
        check(me.cache.bind(algo::linear_gather{}, 0));
        check(me.cache.bind(algo::zero_copy_all_reduce{}, 0));
    }
}

TEST_CASE("ranks that share hosts go host by host, each alone on its host do not") {
    rank me(1, 8);
    const collx::node_map two = collx::node_map::blocks(8, 4), dealt = collx::node_map::cyclic(8, 2);
    for (const collx::node_map* hosts : {&two, &dealt}) {
        const auto problem = [&](std::size_t bytes, bool ordered = false) {
            return collx::problem{
                .bytes = bytes, .ranks = 8, .root = 3, .windows = false, .ordered = ordered, .hosts = hosts};
        };
        const auto is = [&](const collx::bound_schedule& chosen, const auto& algorithm) {
            return &chosen == &me.cache.bind(algorithm, 0);
        };
        for (const bool is_long : {false, true}) {
            const auto p = problem(is_long ? 10'000'000 : 8);
            const auto crossings = [&](const collx::bound_schedule& b) { // this rank's messages to the other host
                int count = 0;
                for (const auto& strand : b.steps.strands)
                    for (const auto& s : strand)
                        count += (s.what & collx::sched::send) != 0 &&
                                 hosts->view().node_of(s.peer_to) != hosts->view().node_of(1);
                return count;
            };
            CHECK(crossings(collx::select<collective::all_reduce>(me.cache, p)) <= 2);
            CHECK(crossings(collx::select<collective::all_gather>(me.cache, p)) <= 1);
            CHECK(crossings(collx::select<collective::reduce_scatter>(me.cache, p)) <= 1);
            CHECK(crossings(collx::select<collective::broadcast>(me.cache, p)) <= 1);
            CHECK(crossings(collx::select<collective::reduce>(me.cache, p)) <= 1);
            CHECK(crossings(collx::select<collective::barrier>(me.cache, p)) <= 1);
            if (!is_long)
                CHECK(crossings(collx::select<collective::all_to_all>(me.cache, p)) == (hosts == &dealt)); // leaders'
        }
        CHECK(is(collx::select<collective::all_to_all>(me.cache, problem(8 * 8192)),
                 algo::leader_all_to_all{.nodes = *hosts}));
        CHECK(is(collx::select<collective::all_to_all>(me.cache, problem(8 * 8200)),
                 algo::aggregated_all_to_all{.nodes = *hosts}));
        CHECK(is(collx::select<collective::all_to_all>(me.cache, problem(100'000'000)), algo::pairwise_all_to_all{}));
        CHECK(is(collx::select<collective::barrier>(me.cache, problem(0)), algo::leader_barrier{{.nodes = *hosts}}));
        CHECK(is(collx::select<collective::all_gather>(me.cache, problem(512)),
                 algo::leader_all_gather{{.nodes = *hosts}}));
        // Algorithms in rank order do not depend on the hosts.
        CHECK(is(collx::select<collective::all_reduce>(me.cache, problem(8, true)),
                 algo::recursive_doubling_all_reduce{}));
        CHECK(
            is(collx::select<collective::reduce_scatter>(me.cache, problem(8, true)), algo::pairwise_reduce_scatter{}));
    }
    const collx::problem alone{.bytes = 8, .ranks = 8, .windows = false};
    CHECK(&collx::select<collective::all_reduce>(me.cache, alone) ==
          &me.cache.bind(algo::recursive_doubling_all_reduce{}, 0));
}

TEST_CASE("the row that is explained is the one that is bound, with hosts and known links too") {
    rank me(1, 8);
    const collx::node_map hosts = collx::node_map::blocks(8, 4);
    const collx::rank_order order{0, 1, 3, 2, 4, 5, 7, 6};
    const collx::order_view rings[] = {order, order};
    const auto exchange_of = [](collx::choices::name use) -> const void* {
        return use == collx::choices::leader       ? &collx::detail::algorithm_id<algo::leader_all_to_all>
               : use == collx::choices::aggregated ? &collx::detail::algorithm_id<algo::aggregated_all_to_all>
               : use == collx::choices::bruck      ? &collx::detail::algorithm_id<algo::bruck_all_to_all>
                                                   : &collx::detail::algorithm_id<algo::pairwise_all_to_all>;
    };
    const auto sum_of = [](collx::choices::name use) -> const void* {
        return use == collx::choices::rings      ? &collx::detail::algorithm_id<algo::on_rings<algo::ring_all_reduce>>
               : use == collx::choices::two_shot ? &collx::detail::algorithm_id<algo::two_shot_all_reduce>
               : use == collx::choices::one_shot ? &collx::detail::algorithm_id<algo::one_shot_all_reduce>
               : use == collx::choices::hierarchical_rings
                   ? &collx::detail::algorithm_id<algo::hierarchical_all_reduce<algo::rings>>
               : use == collx::choices::ring ? &collx::detail::algorithm_id<algo::ring_all_reduce>
                                             : &collx::detail::algorithm_id<algo::hierarchical_all_reduce<algo::trees>>;
    };
    for (const bool has_rails : {false, true})
        for (const bool windows : {false, true})
            for (const collx::node_map* at : {static_cast<const collx::node_map*>(nullptr), &hosts})
                for (const std::size_t bytes : {8u, 40'000u, 100'000u, 300'000u, 4'000'000u}) {
                    if (windows && at != nullptr) continue;
                    collx::links_choice l{collx::detail::select_by_links, rings, 2, true, has_rails, nullptr};
                    collx::problem p{.bytes = bytes, .ranks = 8, .windows = windows, .hosts = at, .links = &l};
                    const auto exchange = collx::detail::row_of_call(collective::all_to_all, p);
                    if (!windows)
                        CHECK(collx::select<collective::all_to_all>(me.cache, p).algorithm ==
                              exchange_of(exchange.row->use));
                    if (at == nullptr && !windows && bytes < 600'000) continue; // tested above: doubling, halving
                    CHECK(collx::select<collective::all_reduce>(me.cache, p).algorithm ==
                          sum_of(collx::detail::row_of_call(collective::all_reduce, p).row->use));
                }
}

TEST_CASE("two ranks on two hosts exchange everything up to half a MiB, more of them halve and double") {
    rank two(1, 2), four(1, 4), seven(1, 7);
    const auto chosen = [](rank& me, std::size_t bytes) {
        return &collx::select<collective::all_reduce>(me.cache,
                                                      {.bytes = bytes, .ranks = me.net.size(), .windows = false});
    };
    CHECK(chosen(two, 512 * 1024) == &two.cache.bind(algo::recursive_doubling_all_reduce{}, 0));
    CHECK(chosen(two, 512 * 1024 + 4) == &two.cache.bind(algo::ring_all_reduce{}, 0));
    CHECK(chosen(four, 64 * 1024) == &four.cache.bind(algo::recursive_doubling_all_reduce{}, 0));
    CHECK(chosen(four, 64 * 1024 + 4) == &four.cache.bind(algo::halving_doubling_all_reduce{}, 0));
    CHECK(chosen(four, 512 * 1024) == &four.cache.bind(algo::halving_doubling_all_reduce{}, 0));
    // For rank counts that are not powers of two, the pairs that reduce it to one cost more.
    CHECK(chosen(seven, 64 * 1024) == &seven.cache.bind(algo::recursive_doubling_all_reduce{}, 0));
    CHECK(chosen(seven, 256 * 1024) == &seven.cache.bind(algo::halving_doubling_all_reduce{}, 0));
    CHECK(chosen(seven, 256 * 1024 + 4) == &seven.cache.bind(algo::ring_all_reduce{}, 0));
}

TEST_CASE("few steps between hosts: halving among 2^k ranks up to half a MiB, short rooted calls of few by the root") {
    rank three(1, 3), four(1, 4), five(1, 5), eight(1, 8), nine(1, 9);
    const auto scatters = [](rank& me, std::size_t bytes) {
        return &collx::select<collective::reduce_scatter>(me.cache,
                                                          {.bytes = bytes, .ranks = me.net.size(), .windows = false});
    };
    CHECK(scatters(four, 512 * 1024) == &four.cache.bind(algo::halving_reduce_scatter{}, 0));
    CHECK(scatters(four, 512 * 1024 + 16) == &four.cache.bind(algo::ring_reduce_scatter{}, 0));
    CHECK(scatters(three, 12) == &three.cache.bind(algo::pairwise_reduce_scatter{}, 0));
    CHECK(scatters(three, 768 * 1024) == &three.cache.bind(algo::pairwise_reduce_scatter{}, 0));
    CHECK(scatters(three, 768 * 1024 + 12) == &three.cache.bind(algo::ring_reduce_scatter{}, 0));
    CHECK(scatters(five, 64 * 1024) == &five.cache.bind(algo::halving_reduce_scatter{}, 0));
    CHECK(scatters(five, 64 * 1024 + 20) == &five.cache.bind(algo::pairwise_reduce_scatter{}, 0));
    CHECK(scatters(five, 768 * 1024 + 20) == &five.cache.bind(algo::ring_reduce_scatter{}, 0));
    CHECK(scatters(nine, 128 * 1024) == &nine.cache.bind(algo::ring_reduce_scatter{}, 0));
    const auto casts = [](rank& me, std::size_t bytes) {
        return &collx::select<collective::broadcast>(
            me.cache, {.bytes = bytes, .ranks = me.net.size(), .root = 2, .windows = false});
    };
    CHECK(casts(four, 16 * 1024) == &four.cache.bind(algo::linear_broadcast{.root = 2}, 0));
    CHECK(casts(four, 64 * 1024) == &four.cache.bind(algo::binomial_broadcast{.root = 2}, 0));
    CHECK(casts(five, 16 * 1024) == &five.cache.bind(algo::linear_broadcast{.root = 2}, 0));
    CHECK(casts(five, 16 * 1024 + 4) == &five.cache.bind(algo::binomial_broadcast{.root = 2}, 0));
    CHECK(casts(nine, 8) == &nine.cache.bind(algo::binomial_broadcast{.root = 2}, 0));
    CHECK(casts(four, 512 * 1024) == &four.cache.bind(algo::binomial_broadcast{.root = 2}, 0));
    CHECK(casts(four, 512 * 1024 + 1) == &four.cache.bind(algo::double_tree_broadcast{.root = 2}, 0));
    const auto reduces = [](rank& me, std::size_t bytes) {
        return &collx::select<collective::reduce>(
            me.cache, {.bytes = bytes, .ranks = me.net.size(), .root = 2, .windows = false});
    };
    CHECK(reduces(three, 8) == &three.cache.bind(algo::binomial_reduce{.root = 2}, 0));
    CHECK(reduces(four, 32 * 1024) == &four.cache.bind(algo::linear_reduce{.root = 2}, 0));
    CHECK(reduces(eight, 16 * 1024) == &eight.cache.bind(algo::linear_reduce{.root = 2}, 0));
    CHECK(reduces(eight, 16 * 1024 + 4) == &eight.cache.bind(algo::binomial_reduce{.root = 2}, 0));
    CHECK(reduces(nine, 8) == &nine.cache.bind(algo::binomial_reduce{.root = 2}, 0));
    CHECK(reduces(nine, 512 * 1024) == &nine.cache.bind(algo::binomial_reduce{.root = 2}, 0));
    CHECK(reduces(four, 512 * 1024 + 4) == &four.cache.bind(algo::chain_reduce{.root = 2}, 0));
}

TEST_CASE("scans between hosts: a chain where it has no round more than doubling, or for long ones") {
    rank three(1, 3), four(1, 4);
    const auto scans = [](rank& me, std::size_t bytes) {
        return &collx::select<collective::scan>(me.cache, {.bytes = bytes, .ranks = me.net.size(), .windows = false});
    };
    CHECK(scans(three, 8) == &three.cache.bind(algo::chain_scan{}, 0));
    CHECK(scans(four, 32 * 1024) == &four.cache.bind(algo::doubling_scan{}, 0));
    CHECK(scans(four, 32 * 1024 + 4) == &four.cache.bind(algo::chain_scan{}, 0));
}

TEST_CASE("gathers between hosts: pairs up to 2 MiB, Bruck where ranks are no power of two, up to eight straight from "
          "each other") {
    rank two(1, 2), three(1, 3), four(1, 4), five(1, 5), nine(1, 9);
    const auto gathers = [](rank& me, std::size_t bytes) {
        return &collx::select<collective::all_gather>(me.cache,
                                                      {.bytes = bytes, .ranks = me.net.size(), .windows = false});
    };
    CHECK(gathers(four, 16) == &four.cache.bind(algo::recursive_doubling_all_gather{}, 0));
    CHECK(gathers(four, 2048 * 1024) == &four.cache.bind(algo::recursive_doubling_all_gather{}, 0));
    CHECK(gathers(four, 2048 * 1024 + 16) == &four.cache.bind(algo::ring_all_gather{}, 0));
    CHECK(gathers(two, 256 * 1024) == &two.cache.bind(algo::recursive_doubling_all_gather{}, 0));
    CHECK(gathers(three, 128 * 1024) == &three.cache.bind(algo::bruck_all_gather{}, 0));
    CHECK(gathers(three, 128 * 1024 + 12) == &three.cache.bind(algo::pairwise_all_gather{}, 0));
    CHECK(gathers(three, 1024 * 1024 + 12) == &three.cache.bind(algo::ring_all_gather{}, 0));
    CHECK(gathers(five, 128 * 1024) == &five.cache.bind(algo::bruck_all_gather{}, 0));
    CHECK(gathers(five, 256 * 1024) == &five.cache.bind(algo::pairwise_all_gather{}, 0));
    CHECK(gathers(five, 1024 * 1024 + 20) == &five.cache.bind(algo::ring_all_gather{}, 0));
    CHECK(gathers(nine, 256 * 1024) == &nine.cache.bind(algo::ring_all_gather{}, 0));
}

TEST_CASE("short exchanges between six hosts and more go in few rounds") {
    rank five(1, 5), six(1, 6);
    const auto exchanges = [](rank& me, std::size_t bytes) {
        return &collx::select<collective::all_to_all>(me.cache,
                                                      {.bytes = bytes, .ranks = me.net.size(), .windows = false});
    };
    CHECK(exchanges(five, 20) == &five.cache.bind(algo::pairwise_all_to_all{}, 0));
    CHECK(exchanges(six, 24) == &six.cache.bind(algo::bruck_all_to_all{}, 0));
    CHECK(exchanges(six, 32 * 1024) == &six.cache.bind(algo::bruck_all_to_all{}, 0));
    CHECK(exchanges(six, 32 * 1024 + 24) == &six.cache.bind(algo::pairwise_all_to_all{}, 0));
}
