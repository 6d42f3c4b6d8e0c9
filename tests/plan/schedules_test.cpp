// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Schedules are recorded once per algorithm, parameters and port; windows once per algorithm, port and shape.
// collx-test: sanitize=nightly
#include <collx/plan/schedules.hpp>

#include <cstdint>
#include <cstring>
#include <set>

#include <catch2/catch.hpp>

#include <collx/algo/algorithms.hpp>
#include <collx/algo/multicast.hpp>
#include <collx/sched/facts.hpp>
#include <collx/transport/memory.hpp>

namespace {

namespace algo = collx::algo;

struct rank {
    rank(int r, int n)
        : memory(collx::make_memory_arena(n)),
          net(*memory, memory->take(collx::links_layout::for_ranks(n).bytes()), r, n), cache(net) {}
    collx::counted_ptr<collx::arena> memory;
    collx::links net;
    collx::schedule_cache cache;
};

// One byte of parameters, three of padding, one word of parameters.
struct padded_broadcast : algo::linear_broadcast {
    char kind = 'a';
    int turns = 7;
    padded_broadcast() = default;
#if !__has_builtin(__builtin_clear_padding) // clang 14: the algorithm must define its parameter bits itself
    std::uint64_t parameter_bits() const {
        return (static_cast<std::uint64_t>(turns) << 32 | static_cast<unsigned char>(kind)) ^
               static_cast<std::uint64_t>(root) * 0x9e37'79b9'7f4a'7c15;
    }
#endif
};

// Counts how often the algorithm is recorded.
struct counted_ring : algo::ring_all_reduce {
    static inline int texts_read = 0;
    template <class Ex>
    constexpr void operator()(Ex& ex, int r, int n) const {
        ++texts_read;
        algo::ring_all_reduce::operator()(ex, r, n);
    }
};

// Rank 0 puts into its window, the others have their inputs read.
struct both_ways {
    static constexpr collx::collective op = collx::collective::all_gather;
    static constexpr const char* name = "both_ways";
    static constexpr int signals = 2;
    static constexpr int chunks(int n) { return n; }
    template <class Ex>
    constexpr void operator()(Ex& ex, int r, int n) const {
        namespace s = collx::sched;
        ex.wait_all(1, 1);
        if (r == 0) ex.step(s::copy, s::in(0), s::window(0, 0));
        ex.signal(0);
        ex.step(s::copy, s::in(r), s::out(r));
        ex.wait_all(0);
        for (int k = 0; k < n; ++k)
            if (k != r) ex.step(s::get | s::copy, s::at(k, k == 0 ? s::window(0, 0) : s::in(k)), s::out(k));
        ex.signal(1);
        ex.wait_all(1);
    }
};

// Declares far more scratch than it uses, which is its chunk named - 1.
struct with_scratch {
    static constexpr collx::collective op = collx::collective::all_to_all;
    static constexpr const char* name = "with_scratch";
    static constexpr int chunks(int n) { return n; }
    static constexpr int tmp_chunks(int) { return 1 << 24; }
    int named = 1;
    template <class Ex>
    constexpr void operator()(Ex& ex, int r, int n) const {
        namespace s = collx::sched;
        s::chunk_set one(0);
        one.base = named - 1;
        one.size = 1;
        ex.step(s::copy, s::in(r), s::tmp(one));
        ex.step(s::copy, s::tmp(one), s::out(r));
        for (int k = 0; k < n; ++k)
            if (k != r) ex.step(s::send, s::to(k), s::in(k));
        for (int k = 0; k < n; ++k)
            if (k != r) ex.step(s::recv | s::copy, s::from(k), s::out(k));
    }
};

} // namespace

TEST_CASE("the same algorithm on the same port is bound once; others are others") {
    rank me(1, 4);
    auto& a = me.cache.bind(algo::binomial_broadcast{.root = 0}, 0);
    CHECK(&me.cache.bind(algo::binomial_broadcast{.root = 0}, 0) == &a);
    CHECK(&me.cache.bind(algo::binomial_broadcast{.root = 2}, 0) != &a);
    CHECK(&me.cache.bind(algo::binomial_broadcast{.root = 0}, 1) != &a);
    CHECK(&me.cache.bind(algo::linear_broadcast{.root = 0}, 0) != static_cast<void*>(&a));
    CHECK(&me.cache.bind(algo::binomial_broadcast{.root = 0}, 0) == &a);
}

TEST_CASE("the steps of all ranks are read once to bind them, and once more only for a proof that will be made") {
    for (const auto& [n, inspect] : {std::pair<int, collx::schedule_cache::inspection>{8, nullptr},
                                     {300, nullptr},
                                     {8, collx::schedule_cache::inspected},
                                     {300, collx::schedule_cache::inspected}}) {
        rank me(1, n);
        counted_ring::texts_read = 0;
        auto& bound = me.cache.bind(counted_ring{}, 0, inspect);
        CHECK(counted_ring::texts_read == n);
        CHECK(bound.proof_steps == std::int64_t{n} * (2 * n - 1));
        const bool is_small = bound.proof_steps <= collx::schedule_cache::most_proved_steps;
        CHECK(is_small == (n == 8));
        for (int again = 0; again < 2; ++again) me.cache.require_proof(bound, counted_ring{});
        CHECK(counted_ring::texts_read == (is_small ? 2 : 1) * n);
    }
}

TEST_CASE("what a proof costs is counted with the scratch that steps name, and with the calls of a barrier") {
    const auto cost = [](const auto& a, int n) {
        rank me(1, n);
        return me.cache.bind(a, 0, collx::schedule_cache::inspected).proof_steps;
    };
    CHECK(cost(with_scratch{.named = 1}, 2) == 2 * 4); // the steps
    CHECK(cost(with_scratch{.named = 1'000'000}, 2) == 2'000'000);
    CHECK(cost(algo::bruck_all_gather{}, 4) == 4 * (1 + 2 * (1 + 2))); // a message of two chunks counts twice
    CHECK(cost(algo::flag_barrier{}, 2) == 2 * 2 * std::int64_t{algo::flag_barrier{}.depth + 2});
    rank me(1, 2);
    for (const int named : {1, 1'000'000}) { // the second proof would take a gigabyte: it is left out
        const with_scratch a{.named = named};
        auto& bound = me.cache.bind(a, 0, collx::schedule_cache::inspected);
        CHECK((bound.proof_steps <= collx::schedule_cache::most_proved_steps) == (named == 1));
        me.cache.require_proof(bound, a);
    }
    CHECK(collx::sched::verify(with_scratch{.named = 1}, 129).ok()); // 129 ranks declare 2^31 chunks of scratch
}

TEST_CASE("algorithms for devices, and those that mix windows with the buffers of peers, are refused") {
    rank me(0, 3);
    const auto refused = [&](const auto& a, collx::schedule_cache::inspection inspect, const char* text) {
        try {
            (void)me.cache.bind(a, 0, inspect);
            FAIL_CHECK("no error");
        } catch (const collx::error& e) {
            CHECK(e.code() == collx::errc::invalid_argument);
            CHECK_THAT(e.what(), Catch::Contains(text));
        }
    };
    refused(algo::multicast_all_gather{}, nullptr, "multicast is for devices only, and these ranks are on hosts");
    refused(algo::multicast_broadcast{.root = 1}, collx::schedule_cache::inspected, "for devices only");
    refused(both_ways{}, collx::schedule_cache::inspected, "an algorithm does one of the two");
    CHECK(me.cache.bind(algo::zero_copy_all_gather{}, 0, collx::schedule_cache::inspected).zero_copy);
    CHECK(!me.cache.bind(algo::direct_all_gather{}, 0, collx::schedule_cache::inspected).zero_copy);
}

TEST_CASE("what lies between an algorithm's parameters is none of them") {
    const auto filled = [](int with, char kind, int turns) {
        alignas(padded_broadcast) unsigned char room[sizeof(padded_broadcast)];
        std::memset(room, with, sizeof room);
        auto& a = *reinterpret_cast<padded_broadcast*>(room);
        a.root = 0;
        a.kind = kind;
        a.turns = turns;
        return collx::detail::parameter_bits(a);
    };
    CHECK(filled(0, 'a', 7) == filled(0xff, 'a', 7));
    CHECK(filled(0, 'a', 7) != filled(0, 'b', 7));
    CHECK(filled(0, 'a', 7) != filled(0, 'a', 8));
}

TEST_CASE("windows that are not as deep as the proof asks, or deeper than a step can say, are refused") {
    rank me(0, 3);
    for (const int depth : {-1, 0, 1, 256, 1 << 30}) {
        INFO(depth);
        try {
            (void)me.cache.bind(algo::one_shot_all_reduce{.depth = depth}, 0);
            FAIL_CHECK("no error");
        } catch (const collx::error& e) {
            CHECK(e.code() == collx::errc::invalid_argument);
            CHECK_THAT(e.what(), Catch::Contains("it works with 2 to 255"));
        }
    }
    CHECK_THROWS_AS(me.cache.bind(algo::direct_broadcast{.depth = 0}, 0), collx::invalid_argument);
    CHECK(me.cache.bind(algo::direct_broadcast{.depth = 1}, 0).window != nullptr);
    CHECK(me.cache.bind(algo::one_shot_all_reduce{.depth = 2}, 0).window != nullptr);
}

TEST_CASE("what is bound is what the recorder says, single chunks looked up") {
    for (const int n : {1, 2, 5, 8})
        for (int r = 0; r < n; ++r) {
            rank me(r, n);
            algo::for_each_algorithm([&](auto a) {
                INFO(name_of(a.op) << ' ' << a.name << " n=" << n);
                const auto& b = me.cache.bind(a, 2);
                auto steps = collx::sched::record(a, r, n);
                for (auto& strand : steps.strands)
                    for (auto& s : strand)
                        for (auto* c : {&s.src.chunks, &s.dst.chunks}) *c = collx::pieces::settled(*c, b.chunks);
                CHECK(b.steps.strands == steps.strands);
                const auto f = collx::sched::facts_of(a, n);
                CHECK(b.chunks == a.chunks(n));
                CHECK(b.max_message_chunks >= f.max_message_chunks);
                CHECK(b.tmp_chunks >= f.tmp_chunks);
                CHECK((b.window != nullptr) == (f.signals != 0 || requires { decltype(a)::signals; }));
                CHECK(b.at_port == 2);
            });
        }
}

TEST_CASE("hundreds of bindings are all found again") {
    rank me(0, 3);
    std::set<const void*> seen;
    for (int pass = 0; pass < 2; ++pass)
        for (int root = 0; root < 3; ++root)
            for (int port = 0; port < 60; ++port) {
                seen.insert(&me.cache.bind(algo::linear_gather{.root = root}, port));
                seen.insert(&me.cache.bind(algo::linear_scatter{.root = root}, port));
            }
    CHECK(seen.size() == 360);
    seen.clear(); // so are algorithms that differ only in parameters, although many share probes of the table
    for (int pass = 0; pass < 2; ++pass)
        for (int turns = 0; turns < 300; ++turns) {
            padded_broadcast a;
            a.turns = turns;
            seen.insert(&me.cache.bind(a, 0));
        }
    CHECK(seen.size() == 300);
}

TEST_CASE("roots share a window, ports and algorithms do not") {
    rank me(0, 3);
    auto* w = me.cache.bind(algo::direct_broadcast{.root = 0}, 0).window;
    CHECK(w != nullptr);
    CHECK(me.cache.bind(algo::direct_broadcast{.root = 2}, 0).window == w);
    CHECK(me.cache.bind(algo::direct_broadcast{.root = 0}, 1).window != w);
    CHECK(me.cache.bind(algo::direct_reduce{.root = 0}, 0).window != w);
    CHECK(me.cache.bind(algo::binomial_broadcast{.root = 0}, 0).window == nullptr);
}

TEST_CASE("two depths of one algorithm have a window each, of that depth, and no byte in common") {
    rank me(0, 3);
    const auto bound = [&](int depth) { return me.cache.bind(algo::one_shot_all_reduce{.depth = depth}, 0).window; };
    auto *const three = bound(3), *const five = bound(5);
    REQUIRE((three != nullptr && five != nullptr && three != five));
    CHECK(three->memory.shape().depth == 3);
    CHECK(five->memory.shape().depth == 5);
    CHECK(bound(3) == three);
    const std::byte* const one = three->memory.at(0, 0, 0, 0);
    const std::byte* const other = five->memory.at(0, 0, 0, 0);
    const auto bytes = [](const auto& w) { return 3 * w->memory.shape().bytes_per_rank(); };
    CHECK((one + bytes(three) <= other || other + bytes(five) <= one));
}

TEST_CASE("scratch grows, is aligned, and stays where outstanding calls use it") {
    rank me(0, 5);
    auto& b = me.cache.bind(algo::binomial_all_reduce{}, 1);
    me.cache.provide_scratch(b, 100);
    std::byte* const first = b.scratch;
    CHECK((first != nullptr && reinterpret_cast<std::uintptr_t>(first) % 64 == 0 && b.scratch_bytes >= 100));
    first[99] = std::byte{42};
    me.cache.provide_scratch(b, 50);
    CHECK(b.scratch == first);
    const std::size_t large = std::size_t{8} << 20; // so large that it would be unmapped when freed
    me.cache.provide_scratch(b, large);
    std::byte* const second = b.scratch;
    CHECK((second != first && reinterpret_cast<std::uintptr_t>(second) % 64 == 0 && b.scratch_bytes >= large));
    CHECK(first[99] == std::byte{42}); // a fault under AddressSanitizer if it was freed
    second[large - 1] = std::byte{43};
    me.cache.provide_scratch(b, 100, 4096); // for elements that are aligned to more
    CHECK((b.scratch != second && reinterpret_cast<std::uintptr_t>(b.scratch) % 4096 == 0 && b.scratch_bytes >= large));
    me.cache.provide_scratch(b, 5 * large);
    CHECK(b.scratch != second);
    CHECK(second[large - 1] == std::byte{43});
}

TEST_CASE("whether other ranks see what lies in scratch is known") {
    rank me(2, 5);
    CHECK_FALSE(me.cache.bind(algo::linear_all_reduce{}, 1).scratch_travels); // operands are added to it, one by one
    CHECK_FALSE(me.cache.bind(algo::linear_reduce{.root = 2}, 1).scratch_travels);
    CHECK(me.cache.bind(algo::recursive_doubling_all_reduce{}, 1).scratch_travels); // partners exchange it
}

TEST_CASE("too many windows are an error that says what to do") {
    rank me(0, 2);
    try {
        for (int port = 0; port < 100'000; ++port) (void)me.cache.bind(algo::direct_broadcast{}, port);
        FAIL("no error");
    } catch (const collx::error& e) {
        CHECK(e.code() == collx::errc::resource);
        CHECK_THAT(e.what(), Catch::Contains("fewer different policies"));
    }
}

TEST_CASE("a stage holds a piece of every chunk, and large numbers of ranks do not make it boundless") {
    rank me(0, 2);
    for (const int chunks : {1, 2, 8, 64, 128, 1024}) {
        const std::size_t bytes = me.cache.stage_bytes(chunks, 4);
        CHECK(bytes % collx::page_bytes == 0);
        CHECK(bytes / static_cast<std::size_t>(chunks) >= 1024);
        CHECK(bytes <= (std::size_t{1} << 20));
    }
}

TEST_CASE("ranks that share a core share the room of its rings, and large numbers of them still have a stage") {
    // For all ranks of a core together; what a stage needs for its chunks is added.
    for (const int ranks_per_core : {1, 2, 3, 4, 8, 16, 32}) {
        rank me(0, 2);
        me.cache.share_cores(ranks_per_core);
        const std::size_t rings = static_cast<std::size_t>(ranks_per_core) * 4 * me.cache.stage_bytes(1, 4);
        INFO(ranks_per_core);
        CHECK(rings <=
              2 * collx::schedule_cache::ring_bytes + static_cast<std::size_t>(ranks_per_core) * 4 * collx::page_bytes);
        CHECK(me.cache.stage_bytes(1, 4) >= 16 * 1024);
        CHECK(me.cache.stage_bytes(64, 4) >= 64 * 4096);
        const auto& shape = me.cache.bind(algo::two_shot_all_reduce{}, 0).window->memory.shape();
        CHECK(shape.stage_bytes == me.cache.stage_bytes(2, algo::two_shot_all_reduce{}.depth));
    }
}

TEST_CASE("rings begin anew where ranks run in turn and one sends to many others") {
    const auto restarts = [](const auto& algorithm, int n, int ranks_per_core, int r = 1) {
        rank me(r, n);
        me.cache.share_cores(ranks_per_core);
        return me.cache.bind(algorithm, 0).least_restarted_bytes == 8 * 1024;
    };
    CHECK(restarts(algo::pairwise_all_to_all{}, 7, 3));
    CHECK_FALSE(restarts(algo::pairwise_all_to_all{}, 6, 3));
    CHECK_FALSE(restarts(algo::pairwise_all_to_all{}, 12, 2));
    CHECK_FALSE(restarts(algo::ring_all_gather{}, 12, 6)); // as many messages, but to one rank
    CHECK(restarts(algo::linear_scatter{.root = 1}, 7, 4));
    CHECK_FALSE(restarts(algo::linear_scatter{.root = 1}, 7, 4, 2)); // not the root
}

TEST_CASE("ports, roots and algorithms spread over the table") {
    constexpr int programs = 100; // each has its algorithms at other addresses
    for (const std::size_t places : {64u, 256u}) {
        std::size_t by_port = 0, by_root = 0, by_algorithm = 0;
        for (int p = 0; p < programs; ++p) {
            const std::uint64_t first = 0x5555'5555'6000 + 0x1'2340 * static_cast<std::uint64_t>(p);
            const auto at = [&](std::uint64_t a, std::uint64_t bits, int port) {
                return collx::detail::schedule_place(first + 8 * a, bits, port) & (places - 1);
            };
            std::set<std::size_t> ports, roots, algorithms;
            for (int i = 0; i < 16; ++i) {
                ports.insert(at(0, 0, i));
                roots.insert(at(0, collx::detail::parameter_bits(algo::linear_gather{.root = i}), 0));
                algorithms.insert(at(static_cast<std::uint64_t>(i), 0, 0));
            }
            by_port += ports.size();
            by_root += roots.size();
            by_algorithm += algorithms.size();
        }
        CHECK(by_port >= 11 * programs); // 16 random places of 64 are 14 different ones
        CHECK(by_root >= 13 * programs);
        CHECK(by_algorithm >= 13 * programs);
    }
}

namespace {

using collx::sched::copy, collx::sched::from, collx::sched::in, collx::sched::out, collx::sched::recv,
    collx::sched::reduce, collx::sched::reduce_after, collx::sched::send, collx::sched::to;

// Each rank sends to the next before it receives: the sum of two neighbours, an all_reduce for two ranks only.
struct neighbour_sum {
    static constexpr collx::collective op = collx::collective::all_reduce;
    static constexpr const char* name = "neighbour_sum";
    static constexpr int min_depth = 1;
    static constexpr bool needs_commutative = true;
    static constexpr int chunks(int) { return 1; }
    template <class Ex>
    constexpr void operator()(Ex& ex, int r, int n) const {
        ex.step(send, to((r + 1) % n), in(0));
        if (r == 0) ex.step(recv | reduce_after | copy, from(n - 1), in(0), out(0));
        else ex.step(recv | reduce | copy, from(r - 1), in(0), out(0));
    }
};
struct deep_sum : neighbour_sum {
    static constexpr int min_depth = 40;
};
// The root reads a chunk that does not exist, or sends once more than is received.
template <bool IsFar>
struct wrong_broadcast : algo::linear_broadcast {
    template <class Ex>
    constexpr void operator()(Ex& ex, int r, int n) const {
        algo::linear_broadcast::operator()(ex, r, n);
        if (r != 0) return;
        if (IsFar) ex.step(copy, in(5000), out(0));
        else ex.step(send, to(1), in(0));
    }
};
// The root sends to each rank in a strand of its own.
struct star_broadcast : algo::linear_broadcast {
    static constexpr const char* name = "star";
    template <class Ex>
    constexpr void operator()(Ex& ex, int r, int n) const {
        if (r != 0) return ex.step(recv | copy, from(0), out(0));
        for (int k = 1; k < n; ++k)
            if (ex.strand(k - 1)) ex.step(send, to(k), in(0));
        if (ex.strand(n - 1)) ex.step(copy, in(0), out(0));
    }
};

} // namespace

TEST_CASE("an algorithm is refused for depth, range, matching and proof, each with its own sentence") {
    rank me(0, 3);
    const auto refused = [](const char* text, auto&& bind) {
        try {
            bind();
            FAIL_CHECK("taken, and should say: " << text);
        } catch (const collx::invalid_argument& e) {
            CHECK_THAT(e.what(), Catch::Contains(text));
        }
    };
    constexpr auto inspected = &collx::schedule_cache::inspected;
    refused("needs channels that hold 40 messages (min_depth), and these hold 16",
            [&] { me.cache.bind(deep_sum{}, 0); });
    refused("this is no set of chunks", [&] { me.cache.bind(wrong_broadcast<true>{}, 0, inspected); });
    refused("cuts the buffer of 3 ranks into 0 chunks",
            [&] { me.cache.bind(collx::algo::chain_broadcast{.chunk_count = 0}, 0); });
    refused("a message that is never received", [&] { me.cache.bind(wrong_broadcast<false>{}, 0, inspected); });
    for (const auto inspect : {inspected, collx::schedule_cache::inspection(nullptr)})
        for (const int r : {0, 9}) { // also a rank that has few
            rank of_nine(r == 0 ? 0 : 8, 9);
            refused("algorithm star has 9 strands on a rank of 9, and a rank runs at most 8",
                    [&] { of_nine.cache.bind(star_broadcast{}, 0, inspect); });
        }
    rank of_eight(0, 8);
    CHECK(of_eight.cache.bind(star_broadcast{}, 0, inspected).steps.strands.size() == 8);
    auto& bound = me.cache.bind(neighbour_sum{}, 0, inspected);
    for (int again = 0; again < 2; ++again)
        refused("a partial reduction may not be stored", [&] { me.cache.require_proof(bound, neighbour_sum{}); });
    rank other(0, 2);
    CHECK_NOTHROW(other.cache.require_proof(other.cache.bind(neighbour_sum{}, 0, inspected), neighbour_sum{}));
}
