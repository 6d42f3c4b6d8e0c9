// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// collx-test: sanitize=address
//
// The program's own algorithms. A proved algorithm runs, or is refused with the number that is missing. A wrong one
// is refused on all ranks alike before any data has moved.
#include "support.hpp"

#include <collx/algo/multicast.hpp>
#include <collx/sched/explain.hpp>
#include <collx/sched/verify.hpp>

using namespace collx_test;
using collx::collective;
using collx::invalid_argument;

namespace mine {

using collx::sched::copy, collx::sched::recv, collx::sched::reduce, collx::sched::reduce_after, collx::sched::send;
using collx::sched::from, collx::sched::to, collx::sched::in, collx::sched::out, collx::sched::tmp,
    collx::sched::window;

// Correct for two ranks: each sends Depth messages of one chunk to the next rank before it receives any.
template <int Depth, bool IsDeclared = true>
struct eager_all_reduce {
    static constexpr collective op = collective::all_reduce;
    static constexpr const char* name = "eager";
    static constexpr int min_depth = IsDeclared ? Depth : 1;
    static constexpr bool needs_commutative = true;
    static constexpr int chunks(int) { return Depth; }
    template <class Ex>
    constexpr void operator()(Ex& ex, int r, int n) const {
        if (n == 1) return ex.step(copy, in({0, Depth}), out({0, Depth}));
        const int next = (r + 1) % n, prev = (r + n - 1) % n;
        for (int c = 0; c < Depth; ++c) ex.step(send, to(next), in(c));
        for (int c = 0; c < Depth; ++c)
            if (r == 0) ex.step(recv | reduce_after | copy, from(prev), in(c), out(c));
            else ex.step(recv | reduce | copy, from(prev), in(c), out(c));
    }
};

enum class mistake {
    none,
    absent_peer,
    negative_peer,
    absent_chunk,
    negative_chunk,
    tmp,
    window,
    leftover,
    short_message
};

// Rank 0 sends to each rank; one rank's step is wrong.
template <mistake Mistake>
struct broken_broadcast {
    static constexpr collective op = collective::broadcast;
    static constexpr const char* name = "broken";
    static constexpr int chunks(int) { return 2; }
    int root = 0;
    template <class Ex>
    constexpr void operator()(Ex& ex, int r, int n) const {
        if (r != root) {
            if (Mistake == mistake::tmp && r == n - 1) {
                ex.step(recv | copy, from(root), tmp({0, 2}));
                return ex.step(copy, tmp({0, 2}), out({0, 2}));
            }
            return ex.step(recv | copy, from(root), out({0, Mistake == mistake::short_message && r == n - 1 ? 1 : 2}));
        }
        for (int k = 0; k < n; ++k)
            if (k != root) ex.step(send, to(k), in({0, 2}));
        ex.step(copy, in({0, 2}), out({0, 2}));
        if (Mistake == mistake::absent_peer) ex.step(send, to(n), in(0));
        if (Mistake == mistake::negative_peer) ex.step(send, to(-7), in(0));
        if (Mistake == mistake::absent_chunk) ex.step(copy, in(5000), out(0));
        if (Mistake == mistake::negative_chunk) ex.step(copy, in(-1), out(0));
        if (Mistake == mistake::window) ex.step(copy, in(0), window(0, 0));
        if (Mistake == mistake::leftover) ex.step(send, to((root + 1) % n), in({0, 2}));
    }
};

// Receives into its window: the engine would store to the caller's input.
struct into_window {
    static constexpr collective op = collective::all_gather;
    static constexpr const char* name = "into_window";
    static constexpr int signals = 1;
    static constexpr int min_depth = 1;
    static constexpr int chunks(int n) { return n; }
    template <class Ex>
    constexpr void operator()(Ex& ex, int r, int n) const {
        const int next = (r + 1) % n, prev = (r + n - 1) % n;
        ex.step(send, to(next), in(r));
        ex.step(recv | copy, from(prev), window(0, prev));
        ex.signal(0);
        ex.wait_all(0);
    }
};

// Stores the sum of some ranks to the windows of all: the engine stores to outputs, of all ranks.
struct some_to_all {
    static constexpr collective op = collective::all_reduce;
    static constexpr const char* name = "some_to_all";
    static constexpr int signals = 1;
    static constexpr int chunks(int) { return 1; }
    template <class Ex>
    constexpr void operator()(Ex& ex, int r, int n) const {
        ex.signal(0);
        ex.wait_all(0);
        if (r == 0) ex.step(collx::sched::fold | collx::sched::to_all, collx::sched::at_ranks(0, n - 1, in(0)), out(0));
    }
};

// Puts half into its window, and has the other half read where it lies.
struct both_ways {
    static constexpr collective op = collective::all_gather;
    static constexpr const char* name = "both_ways";
    static constexpr int signals = 2;
    static constexpr int chunks(int n) { return n; }
    template <class Ex>
    constexpr void operator()(Ex& ex, int r, int n) const {
        ex.wait_all(1, 1);
        ex.step(copy, in(r), out(r));
        if (r == 0) ex.step(copy, in(0), window(0, 0));
        ex.signal(0);
        ex.wait_all(0);
        for (int k = 0; k < n; ++k)
            if (k != r) ex.step(collx::sched::get | copy, collx::sched::at(k, k == 0 ? window(0, 0) : in(k)), out(k));
        ex.signal(1);
        ex.wait_all(1);
    }
};

// Reads the inputs of the others into scratch first.
struct by_scratch {
    static constexpr collective op = collective::all_gather;
    static constexpr const char* name = "by_scratch";
    static constexpr int signals = 2;
    static constexpr int chunks(int n) { return n; }
    static constexpr int tmp_chunks(int n) { return n; }
    template <class Ex>
    constexpr void operator()(Ex& ex, int r, int n) const {
        ex.signal(0);
        ex.step(copy, in(r), out(r));
        ex.wait_all(0);
        for (int k = 0; k < n; ++k)
            if (k != r) ex.step(collx::sched::get | copy, collx::sched::at(k, in(k)), tmp(k));
        ex.signal(1);
        ex.wait_all(1);
        for (int k = 0; k < n; ++k)
            if (k != r) ex.step(copy, tmp(k), out(k));
    }
};

// A barrier that waits for the signals of the call before.
struct late_barrier {
    static constexpr collective op = collective::barrier;
    static constexpr const char* name = "late_barrier";
    static constexpr int signals = 1;
    static constexpr int chunks(int) { return 0; }
    template <class Ex>
    constexpr void operator()(Ex& ex, int, int) const {
        ex.signal(0);
        ex.wait_all(0, 1);
    }
};

// Rank 1 hands a message from one strand to the other in scratch, which the next piece may overwrite.
struct handed_on {
    static constexpr collective op = collective::broadcast;
    static constexpr const char* name = "handed_on";
    static constexpr int chunks(int) { return 3; }
    static constexpr int tmp_chunks(int) { return 3; }
    int root = 0;
    template <class Ex>
    constexpr void operator()(Ex& ex, int r, int) const { // 3 ranks, root 0
        if (r == 0) {
            ex.step(send, to(1), in({0, 2}));
            ex.step(send, to(2), in({0, 3}));
            ex.step(copy, in({0, 3}), out({0, 3}));
        } else if (r == 2) {
            ex.step(recv | copy, from(0), out({0, 3}));
            ex.step(send, to(1), out(2));
        } else {
            if (ex.strand(0)) {
                ex.step(recv | copy, from(0), tmp({0, 2}));
                ex.step(send, to(1), tmp(0));
            }
            if (ex.strand(1)) {
                ex.step(recv | copy, from(1), out(0));
                ex.step(recv | copy, from(2), out(2));
                ex.step(copy, tmp(1), out(1));
            }
        }
    }
};

// Among three ranks this sums only a rank's own chunk and its left neighbour's: in range and matched, but not an
// all-reduce.
using wrong_for_three = eager_all_reduce<1>;

} // namespace mine

namespace {

using namespace mine;

template <class Call>
void check_refused(collx::communicator& w, const char* text, Call&& call) {
    const auto e = thrown<invalid_argument>(w, call);
    collx_test::expect(says(e, text), __FILE__, __LINE__, e.what(), w.rank());
    int one = 1; // no data has moved
    collx::all_reduce(w, collx::value(one));
    EXPECT(one == w.size());
}

template <mistake Mistake>
void check_broken(const char* text) {
    for (const bool is_checked : {false, true})
        on_ranks(3, [&](collx::communicator& w) {
            at("mistake %d checked %d", static_cast<int>(Mistake), is_checked);
            w.set_checked(is_checked);
            for (int i = 0; i < 2; ++i) {
                std::vector<int> x(10, w.rank() + 1);
                check_refused(w, text, [&] { collx::broadcast(w.with(broken_broadcast<Mistake>{}), x); });
            }
        });
}

} // namespace

TEST_CASE("an algorithm that needs deeper channels than there are is refused with both numbers") {
    static_assert(!collx::sched::verify(eager_all_reduce<12>{}, 3).ok() &&
                  collx::sched::verify(eager_all_reduce<12>{}, 2).ok());
    for (const auto& s : {spread{}, spread{.ranks_per_host = 1}})
        on_hosts(2, s, [&](collx::communicator& w) {
            at("%d", s.ranks_per_host);
            std::vector<int> x(1000, w.rank() + 1);
            if (s.is_one_host(2)) {
                collx::all_reduce(w.with(eager_all_reduce<12>{}), x);
                EXPECT(x[999] == 3);
                check_refused(w, "needs channels that hold 40 messages (min_depth), and these hold 16",
                              [&] { collx::all_reduce(w.with(eager_all_reduce<40>{}), x); });
            } else {
                collx::all_reduce(w.with(eager_all_reduce<4>{}), x);
                EXPECT(x[999] == 3);
                check_refused(w, "needs channels that hold 12 messages (min_depth), and these hold 4",
                              [&] { collx::all_reduce(w.with(eager_all_reduce<12>{}), x); });
            }
        });
}

TEST_CASE(
    "ranks that share cores have room for few long messages, and for as many short ones as an algorithm declares") {
    // This holds on few cores; elsewhere the channels are as deep for long messages.
    on_ranks(8, [](collx::communicator& all) {
        collx::communicator w = all.split(all.rank() / 2);
        w.set_timeout(std::chrono::nanoseconds(collx_test::patient(20'000'000'000)));
        const collx::channel_shape& c = w.internals().net.channels();
        EXPECT((all.internals().settings.ranks_per_core <= 2 ? c.ring_slots == c.depth : c.ring_slots == 4));
        std::vector<int> x(12 * 50'000, w.rank() + 1);
        collx::all_reduce(w.with(eager_all_reduce<12>{}), x);
        EXPECT((x.front() == 3 && x.back() == 3));
        w.set_checked(true);
        if (c.ring_slots == 4)
            check_refused(w, "strands wait for each other",
                          [&] { collx::all_reduce(w.with(eager_all_reduce<5, false>{}), x); });
    });
}

TEST_CASE("checked: an algorithm that does not declare how deep its channels must be is refused where it would hang") {
    on_ranks(2, [](collx::communicator& w) {
        w.set_checked(true);
        std::vector<int> x(1000, w.rank() + 1);
        check_refused(w, "strands wait for each other",
                      [&] { collx::all_reduce(w.with(eager_all_reduce<17, false>{}), x); });
        collx::all_reduce(w.with(eager_all_reduce<16, false>{}), x);
        EXPECT(x[999] == 3);
    });
}

TEST_CASE("steps that name what is not there, and messages that do not match, are refused in every mode") {
    check_broken<mistake::absent_peer>("rank 0, strand 0, step 3 [in0 >3]: the peer is no rank");
    check_broken<mistake::negative_peer>("the peer is no rank");
    check_broken<mistake::absent_chunk>("this is no set of chunks");
    check_broken<mistake::negative_chunk>("this is no set of chunks");
    check_broken<mistake::tmp>("the algorithm declares no such chunk of scratch");
    check_broken<mistake::window>("the algorithm declares no such signal, or no window");
    check_broken<mistake::leftover>("a message that is never received");
    check_broken<mistake::short_message>("the message holds another number of chunks");
}

TEST_CASE("steps that the engine would execute as others are refused in every mode, with a sentence") {
    for (const bool is_checked : {false, true})
        on_ranks(3, [&](collx::communicator& w) {
            w.set_checked(is_checked);
            auto x = collx::make_shared_vector<int>(w, 4, w.rank() + 1), y = collx::make_shared_vector<int>(w, 12, 0);
            const auto before = std::vector<int>(x.begin(), x.end());
            check_refused(w, "only copy stores to a window", [&] { collx::all_gather(w.with(into_window{}), x, y); });
            check_refused(w, "to_all stores the sum of all ranks to the output of all",
                          [&] { collx::all_reduce(w.with(some_to_all{}), x); });
            check_refused(w, "an algorithm does one of the two", [&] { collx::all_gather(w.with(both_ways{}), x, y); });
            EXPECT(std::equal(before.begin(), before.end(), x.begin()));
        });
}

TEST_CASE("algorithms for devices are refused on hosts, and are proved for devices") {
    using collx::algo::multicast_all_gather, collx::algo::multicast_broadcast;
    static_assert(collx::sched::verify(multicast_all_gather{}, 3).ok() &&
                  collx::sched::verify(multicast_broadcast{}, 3).ok());
    for (const bool is_checked : {false, true})
        on_ranks(3, [&](collx::communicator& w) {
            w.set_checked(is_checked);
            auto x = collx::make_shared_vector<int>(w, 4, w.rank() + 1), y = collx::make_shared_vector<int>(w, 12, 0);
            check_refused(w, "algorithm multicast is for devices only, and these ranks are on hosts",
                          [&] { collx::all_gather(w.with(multicast_all_gather{}), x, y); });
            check_refused(w, "algorithm multicast is for devices only",
                          [&] { collx::async::all_gather(w.with(multicast_all_gather{}), x, y).wait(); });
            check_refused(w, "algorithm multicast is for devices only",
                          [&] { collx::broadcast(w.with(multicast_broadcast{}), x, {.root = 1}); });
        });
}

TEST_CASE(
    "checked: a barrier that waits for the call before, and scratch that the next piece overwrites, are refused") {
    on_ranks(3, [](collx::communicator& w) {
        w.set_checked(true);
        check_refused(w, "it returns although some rank has not entered",
                      [&] { collx::barrier(w.with(late_barrier{})); });
        std::vector<int> x(3000, w.rank());
        check_refused(w, "the data is of another iteration", [&] { collx::broadcast(w.with(handed_on{}), x); });
    });
}

TEST_CASE("attach reads private memory of peers into scratch, too") {
    static_assert(collx::sched::verify(by_scratch{}, 3).ok());
    on_ranks(3, [](collx::communicator& w) {
        for (const std::size_t size : {1u, 1000u, 20'000u}) {
            const std::vector<int> part(size, w.rank() + 1);
            std::vector<int> all(3 * size, -1);
            try {
                collx::all_gather(w.with(by_scratch{}, collx::attach{}), part, all);
            } catch (const collx::error& e) { // a container may forbid it
                return EXPECT(e.code() == collx::errc::unsupported);
            }
            for (std::size_t i = 0; i < all.size(); ++i) EXPECT_AT(i, all[i] == static_cast<int>(i / size) + 1);
        }
    });
}

// As when a number of pieces comes from a division.
TEST_CASE("an algorithm that cuts the buffer into no chunks would move nothing: it is refused, and is not proved") {
    for (const bool is_checked : {false, true})
        on_ranks(3, [&](collx::communicator& w) {
            w.set_checked(is_checked);
            std::vector<float> x(100, static_cast<float>(w.rank() + 1)), y(100);
            check_refused(w, "cuts the buffer of 3 ranks into 0 chunks",
                          [&] { collx::broadcast(w.with(collx::algo::chain_broadcast{.chunk_count = 0}), x); });
            check_refused(w, "cuts the buffer of 3 ranks into 0 chunks",
                          [&] { collx::reduce(w.with(collx::algo::chain_reduce{.chunk_count = 0}), x, y); });
        });
    CHECK(collx::sched::verify(collx::algo::chain_broadcast{.chunk_count = 0}, 3).what ==
          collx::sched::problem::no_chunks);
    CHECK(collx::sched::explain(collx::sched::record_all(collx::algo::chain_broadcast{.chunk_count = 0}, 3),
                                {.what = collx::sched::problem::no_chunks, .rank = 0}) ==
          "rank 0: the algorithm cuts the buffer into no chunks: see chunks(n)");
}

TEST_CASE("the same mistakes do not pass for proved") {
    CHECK(collx::sched::verify(broken_broadcast<mistake::none>{}, 3).ok());
    CHECK(collx::sched::verify(broken_broadcast<mistake::tmp>{}, 3).what == collx::sched::problem::undeclared_tmp);
    CHECK(collx::sched::verify(broken_broadcast<mistake::window>{}, 3).what ==
          collx::sched::problem::undeclared_signal);
}

TEST_CASE("checked: an algorithm that is wrong for this number of ranks is refused, also when it was bound unchecked") {
    on_ranks(3, [](collx::communicator& w) {
        std::vector<int> x(10, w.rank() + 1);
        w.set_checked(false);
        collx::all_reduce(w.with(wrong_for_three{}), x); // wrong numbers, but no hang
        w.set_checked(true);
        for (int i = 0; i < 2; ++i)
            check_refused(w, "a partial reduction may not be stored to the output",
                          [&] { collx::all_reduce(w.with(wrong_for_three{}), x); });
    });
}

TEST_CASE("checked: every algorithm of the library passes, whatever the number of ranks") {
    for (const int n : {1, 2, 3, 5, 8})
        on_ranks(n, [](collx::communicator& w) {
            w.set_checked(true);
            std::vector<int> x(100, 1);
            collx::algo::algorithms<collective::all_reduce>::for_each([&](auto a) {
                if (std::string(a.name).find("zero_copy") != std::string::npos) return;
                at("%s", a.name);
                for (int& e : x) e = 1;
                collx::all_reduce(w.with(a), x);
                EXPECT(x[99] == w.size());
            });
        });
}
