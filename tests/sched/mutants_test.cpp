// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Tests that the verifier rejects mistakes. Each case plants one typical mistake in a correct schedule and expects
// the right kind of refusal at the right place. The last cases plant every mistake of a kind at every step.
#include <collx/algo/chain.hpp>
#include <collx/algo/direct.hpp>
#include <collx/algo/dissemination.hpp>
#include <collx/algo/linear.hpp>
#include <collx/algo/one_shot.hpp>
#include <collx/algo/pairwise.hpp>
#include <collx/algo/ring.hpp>
#include <collx/algo/two_shot.hpp>
#include <collx/algo/zero_copy.hpp>
#include <collx/sched/races.hpp>
#include <collx/sched/verify.hpp>

#include <catch2/catch.hpp>

using namespace collx;
using namespace collx::sched;
using namespace collx::algo;

namespace {

constexpr int n = 5;

auto& steps(schedule& s, int rank, int strand = 0) {
    return s.programs[static_cast<unsigned>(rank)].strands[static_cast<unsigned>(strand)];
}

verdict judge(schedule& s) {
    survey(s);
    const verdict v = verify(s);
    return v.ok() ? races(s) : v;
}

template <class Algorithm, class Change>
verdict mutant(const Algorithm& a, Change&& change) {
    schedule s = record_all(a, n);
    REQUIRE(judge(s).ok());
    change(s);
    return judge(s);
}

// The common members of most algorithms here.
template <collective Op>
struct text {
    static constexpr collective op = Op;
    static constexpr const char* name = "mutant";
    static constexpr int min_depth = 1;
    static constexpr bool needs_commutative = true;
    static constexpr int chunks(int) { return 1; }
    static constexpr int tmp_chunks(int) { return 1; }
};

} // namespace

// ---------------------------------------------------------------------------------------------- chunks
TEST_CASE("a step that names another chunk is found where it stands") {
    const verdict v = mutant(ring_all_reduce{}, [](schedule& s) { ++steps(s, 2)[2].src.chunks.first; });
    CHECK(v.what == problem::wrong_chunk);
    CHECK(v.rank == 2);
    CHECK(v.step == 2);
}

TEST_CASE("a message of another chunk is found by its receiver") {
    const verdict v = mutant(ring_all_reduce{}, [](schedule& s) { steps(s, 1)[0].src.chunks.first = 3; });
    CHECK(v.what == problem::wrong_chunk);
    CHECK(v.rank == 2);
    CHECK(v.peer == 1);
}

namespace {
// All contributions are right, but everything is stored one chunk off. A check of contributions alone would accept it.
struct off_by_one_ring : text<collective::all_gather> {
    static constexpr int chunks(int k) { return k; }
    static constexpr int min_depth = 2;
    template <class Ex>
    constexpr void operator()(Ex& ex, int r, int k) const {
        const int next = (r + 1) % k, prev = (r + k - 1) % k;
        ex.step(copy, in(r), out(r));
        ex.step(send, to(next), in(r));
        for (int i = 1; i < k - 1; ++i)
            ex.step(recv | copy | send, from(prev), to(next), out((r + k - i + (i == 2)) % k));
        ex.step(recv | copy, from(prev), out(next));
    }
};
} // namespace
TEST_CASE("right contributions in the wrong chunk are refused") {
    CHECK(verify(off_by_one_ring{}, n).what == problem::wrong_chunk);
}

TEST_CASE("a chunk below zero and a set that names a chunk twice are no sets of chunks") {
    CHECK(mutant(ring_all_gather{}, [](schedule& s) { steps(s, 0)[1].src.chunks = -1; }).what == problem::bad_chunk);
    CHECK(mutant(ring_all_gather{}, [](schedule& s) {
              steps(s, 0)[1].src.chunks = {0, n + 1};
          }).what == problem::bad_chunk);
    CHECK(mutant(ring_all_gather{}, [](schedule& s) {
              steps(s, 0)[1].src.chunks = {0, 3, 1, n};
          }).what == problem::bad_chunk);
}

TEST_CASE("both ends must agree on the length of a message") {
    const verdict v = mutant(linear_scatter{}, [](schedule& s) { steps(s, 0)[0].src.chunks = {1, 2}; });
    CHECK(v.what == problem::wrong_length);
    CHECK(v.rank == 1);
}

// ---------------------------------------------------------------------------------------------- contributions
TEST_CASE("a lost contribution makes the result incomplete") {
    const verdict v = mutant(ring_all_reduce{}, [](schedule& s) {
        step& st = steps(s, 2)[2];
        st.what = recv | send;
        st.src = {};
    });
    CHECK(v.what == problem::incomplete_out);
}

TEST_CASE("a contribution that is reduced twice overlaps") {
    const verdict v = mutant(ring_all_reduce{}, [](schedule& s) {
        step& st = steps(s, 3)[n];
        st.what = recv | reduce | copy | send;
        st.src = in(st.dst.chunks);
    });
    CHECK(v.what == problem::overlap);
    CHECK(v.rank == 3);
}

namespace {
// Rank 0 takes rank 1 twice and rank 2 never, in an order in which no consecutive ranks are adjacent: only the
// multiset of contributions shows it.
struct one_twice_one_never : text<collective::reduce> {
    template <class Ex>
    constexpr void operator()(Ex& ex, int r, int) const {
        if (r != 0) {
            if (r != 2) ex.step(send, to(0), in(0));
            if (r == 1) ex.step(send, to(0), in(0));
            return;
        }
        ex.step(recv | reduce | copy, from(3), in(0), tmp(0));
        ex.step(recv | reduce | copy, from(1), tmp(0), tmp(0));
        ex.step(recv | reduce | copy, from(4), tmp(0), tmp(0));
        ex.step(recv | reduce | copy, from(1), tmp(0), out(0));
    }
};
} // namespace
TEST_CASE("one contribution twice and another never is noticed without any interval") {
    CHECK(verify(one_twice_one_never{}, n).what == problem::wrong_contribution);
}

TEST_CASE("a message from another rank than it is filed under") {
    const verdict v = mutant(pairwise_all_to_all{}, [](schedule& s) {
        auto& p = steps(s, 1, 1);
        std::swap(p[1].dst, p[2].dst);
    });
    CHECK(v.what == problem::wrong_contribution);
    CHECK(v.rank == 1);
}

TEST_CASE("a partial reduction may not be stored to out") {
    const verdict v = mutant(linear_reduce{}, [](schedule& s) { steps(s, 0)[1].dst.where = place::out; });
    CHECK(v.what == problem::incomplete_out);
    CHECK(v.step == 1);
}

TEST_CASE("the root's data comes from the root") {
    const verdict v = mutant(linear_broadcast{.root = 2}, [](schedule& s) { s.root = 3; });
    CHECK(v.what == problem::unset_read); // rank 2 has no input to send
    CHECK(v.rank == 2);
}

// ---------------------------------------------------------------------------------------------- order
TEST_CASE("reduce and reduce_after are not the same") {
    const verdict v = mutant(linear_reduce{}, [](schedule& s) { steps(s, 0)[2].what = recv | reduce | copy; });
    CHECK(v.what == problem::wrong_order);
}

namespace {
// Each rank sends to all ranks and starts with itself: right for exact arithmetic, but different bits on every rank.
struct everybody_first : text<collective::all_reduce> {
    template <class Ex>
    constexpr void operator()(Ex& ex, int r, int k) const {
        for (int i = 1; i < k; ++i) ex.step(send, to((r + i) % k), in(0));
        for (int i = 1; i < k; ++i)
            ex.step(recv | reduce_after | copy, from((r + i) % k), i == 1 ? in(0) : tmp(0),
                    i == k - 1 ? out(0) : tmp(0));
    }
};
} // namespace
TEST_CASE("an order of operands that depends on the rank gives different bits") {
    CHECK(verify(everybody_first{}, n).what == problem::different_bits);
}

// ---------------------------------------------------------------------------------------------- messages
TEST_CASE("swapped peers") {
    const verdict v =
        mutant(ring_all_reduce{}, [](schedule& s) { std::swap(steps(s, 2)[n].peer_from, steps(s, 2)[n].peer_to); });
    CHECK(v.what == problem::missing_message);
    CHECK(v.rank == 2);
    CHECK(v.peer == 3);
}

TEST_CASE("a peer that is no rank") {
    const verdict v = mutant(linear_gather{}, [](schedule& s) { steps(s, 4)[0].peer_to = n; });
    CHECK(v.what == problem::bad_peer);
    CHECK(v.rank == 4);
}

TEST_CASE("a missing send leaves the receiver waiting for a rank that has ended") {
    const verdict v = mutant(ring_all_reduce{}, [](schedule& s) {
        step& st = steps(s, 1)[2 * n - 3];
        st.what = recv | copy;
        st.peer_to = -1;
    });
    CHECK(v.what == problem::missing_message);
    CHECK(v.rank == 2);
    CHECK(v.peer == 1);
}

TEST_CASE("an extra send and a missing receive leave a message behind") {
    const verdict extra = mutant(ring_all_reduce{}, [](schedule& s) { steps(s, 0).push_back(steps(s, 0)[0]); });
    CHECK(extra.what == problem::leftover);
    const verdict missing = mutant(linear_gather{}, [](schedule& s) { steps(s, 0).pop_back(); });
    CHECK(missing.what == problem::leftover);
    CHECK(missing.peer == 0);
}

TEST_CASE("messages that no rank takes fill the channel") {
    const verdict v = mutant(linear_gather{}, [](schedule& s) {
        for (int i = 0; i < 3; ++i) steps(s, 4).push_back(steps(s, 4)[0]);
    });
    CHECK(v.what == problem::leftover);
    CHECK(v.rank == 4);
}

TEST_CASE("a channel that is too shallow deadlocks, and the circle is named") {
    const verdict v = mutant(ring_all_reduce{}, [](schedule& s) { s.depth = 1; });
    CHECK(v.what == problem::deadlock);
    REQUIRE(v.waiting_count == n);
    for (int i = 0; i < n; ++i) CHECK(v.waits[i].peer == v.waits[(i + 1) % n].rank);
}

namespace {
struct both_wait_first : text<collective::all_gather> {
    static constexpr int chunks(int k) { return k; }
    template <class Ex>
    constexpr void operator()(Ex& ex, int r, int) const {
        ex.step(copy, in(r), out(r));
        ex.step(recv | copy, from(1 - r), out(1 - r));
        ex.step(send, to(1 - r), in(r));
    }
};
} // namespace
TEST_CASE("two ranks that both receive first wait for each other") {
    const verdict v = verify(both_wait_first{}, 2);
    CHECK(v.what == problem::deadlock);
    REQUIRE(v.waiting_count == 2);
    CHECK(v.waits[0].step == 1);
    CHECK(v.waits[0].peer == v.waits[1].rank);
    CHECK(v.waits[1].peer == v.waits[0].rank);
}

TEST_CASE("two strands of a rank may not share an end of a channel") {
    const verdict sends = mutant(pairwise_all_to_all{}, [](schedule& s) {
        auto& p = s.programs[0].strands;
        p.push_back({p[0].back()});
        p[0].pop_back();
        p[2].push_back(p[0].back());
    });
    CHECK(sends.what == problem::shared_channel);
    const verdict receives = mutant(pairwise_all_to_all{}, [](schedule& s) {
        s.programs[0].strands.push_back({steps(s, 0, 1).back()});
        steps(s, 4, 0).push_back(steps(s, 4, 0).front());
    });
    CHECK(!receives.ok());
}

namespace {
// Counts the slots of all channels.
struct slot_counter {
    int slots = 0;
    void channel_added(int depth) { slots += depth; }
    void enter(int, int, int, int) {}
    fault leave(int, int, int, int) { return {}; }
    fault act(const running&, const step&, int, int) { return {}; }
    static bool follows_signals() { return false; }
    void signalled(const running&, int) {}
    void waited(const running&, int, int, int) {}
};
} // namespace
TEST_CASE("channels have no more slots than messages") {
    const auto slots = [](const schedule& s, int depth) {
        slot_counter all;
        CHECK(network<slot_counter>(s, all, {.depth = depth}).run().ok());
        return all.slots;
    };
    CHECK(slots(record_all(pairwise_all_to_all{}, n), 16) == n * (n - 1)); // one message each
    CHECK(slots(record_all(ring_all_reduce{}, n), 16) == n * 2 * (n - 1));
    CHECK(slots(record_all(ring_all_reduce{}, n), 3) == n * 3);
}

// ---------------------------------------------------------------------------------------------- outputs
TEST_CASE("outputs are written once, all of them, and nothing else is") {
    CHECK(mutant(ring_all_gather{}, [](schedule& s) { steps(s, 3).push_back(steps(s, 3)[0]); }).what ==
          problem::out_twice);
    const verdict missing = mutant(ring_all_gather{}, [](schedule& s) { steps(s, 3).erase(steps(s, 3).begin()); });
    CHECK(missing.what == problem::missing_out);
    CHECK(missing.rank == 3);
    CHECK(missing.chunk == 3);
    CHECK(mutant(linear_reduce{}, [](schedule& s) {
              steps(s, 1).push_back({.what = copy, .src = in(0), .dst = out(0)});
          }).what == problem::not_an_output);
    CHECK(mutant(linear_reduce{}, [](schedule& s) {
              steps(s, 1).push_back({.what = copy, .src = in(0), .dst = in(0)});
          }).what == problem::writes_input);
}

TEST_CASE("what the algorithm does not declare, and what is no set of chunks, is found before it is run") {
    CHECK(mutant(dissemination_barrier{}, [](schedule& s) { s.scratch = 0; }).what == problem::undeclared_tmp);
    CHECK(mutant(two_shot_all_reduce{}, [](schedule& s) { --s.declared_signals; }).what == problem::undeclared_signal);
    CHECK(mutant(one_shot_all_reduce{}, [](schedule& s) { s.declared_signals = 0; }).what ==
          problem::undeclared_signal);
    const verdict v = mutant(ring_all_gather{}, [](schedule& s) { steps(s, 3)[2].dst.chunks = n; });
    CHECK((v.what == problem::bad_chunk && v.rank == 3 && v.step == 2 && v.chunk == n));
    CHECK(mutant(ring_all_gather{}, [](schedule& s) { steps(s, 3)[1].peer_to = n; }).what == problem::bad_peer);
    CHECK(mutant(ring_all_gather{}, [](schedule& s) { steps(s, 3)[2].dst.where = place::in; }).what ==
          problem::writes_input);
}

TEST_CASE("messages that are sent and not received, or of another length, do not balance") {
    const auto balance = [](auto&& change) {
        schedule s = record_all(pairwise_all_to_all{}, n);
        change(s);
        message_balance b(n, s.op);
        for (int r = 0; r < n; ++r) b.add(s.programs[static_cast<unsigned>(r)], r);
        return b.is_even();
    };
    const auto first = [](schedule& s, action what) -> step& {
        for (step& st : steps(s, 2))
            if ((st.what & what) != 0) return st;
        return steps(s, 2)[0];
    };
    CHECK(balance([](schedule&) {}));
    CHECK(!balance([&](schedule& s) { steps(s, 2).push_back(first(s, send)); }));
    CHECK(!balance([&](schedule& s) { steps(s, 2).push_back(first(s, recv)); }));
    CHECK(!balance([&](schedule& s) { first(s, send).peer_to = (first(s, send).peer_to + 1) % n; }));
    CHECK(!balance([&](schedule& s) { first(s, send).src.chunks.count = 2; }));
}

TEST_CASE("what was never written cannot be read") {
    CHECK(mutant(linear_reduce{}, [](schedule& s) { steps(s, 0)[2].src = out(0); }).what == problem::unset_read);
}

namespace {
// Right with separate buffers. In place, rank 1 has overwritten its contribution before it forwards it.
struct sends_after_writing : text<collective::scan> {
    template <class Ex>
    constexpr void operator()(Ex& ex, int r, int) const {
        if (r == 0) {
            ex.step(send, to(1), in(0));
            ex.step(send, to(2), in(0));
            ex.step(copy, in(0), out(0));
        } else if (r == 1) {
            ex.step(recv | reduce | copy, from(0), in(0), out(0));
            ex.step(send, to(2), in(0));
        } else {
            ex.step(recv | reduce | copy, from(1), in(0), tmp(0));
            ex.step(recv | reduce | copy, from(0), tmp(0), out(0));
        }
    }
};
} // namespace
TEST_CASE("a mistake that only shows in place") {
    schedule s = record_all(sends_after_writing{}, 3);
    CHECK(verify_once(s, false).ok());
    const verdict v = verify(s);
    CHECK(v.what == problem::overlap);
    CHECK(v.in_place);
}

// ---------------------------------------------------------------------------------------------- windows and signals
TEST_CASE("a window that is reused too early") {
    SECTION("as too few stages") {
        schedule s = record_all(one_shot_all_reduce{.depth = 1}, n);
        CHECK(races(s).what == problem::race);
    }
    SECTION("as a missing wait") {
        const verdict v =
            mutant(two_shot_all_reduce{.depth = 1}, [](schedule& s) { steps(s, 1, 0).erase(steps(s, 1, 0).begin()); });
        CHECK(v.what == problem::wrong_iteration);
        schedule s = record_all(two_shot_all_reduce{.depth = 1}, n);
        steps(s, 1, 0).erase(steps(s, 1, 0).begin());
        CHECK(races(s).what == problem::race);
    }
    SECTION("as a lag one too large") {
        schedule s = record_all(two_shot_all_reduce{.depth = 2}, n);
        for (int r = 0; r < n; ++r) ++steps(s, r, 0)[0].lag;
        survey(s);
        CHECK(races(s).what == problem::race);
    }
}

TEST_CASE("a signal that is missing, early or given twice") {
    const auto is_signal = [](const step& st) { return st.what == collx::sched::signal; };
    SECTION("missing") {
        const verdict v =
            mutant(one_shot_all_reduce{}, [&](schedule& s) { collx::detail::erase_if(steps(s, 3), is_signal); });
        CHECK(v.what == problem::missing_signal);
        CHECK(v.peer == 3);
    }
    SECTION("early") {
        schedule s = record_all(one_shot_all_reduce{}, n);
        std::swap(steps(s, 3)[0], steps(s, 3)[1]);
        REQUIRE(is_signal(steps(s, 3)[0]));
        CHECK(races(s).what == problem::race);
    }
    SECTION("twice") {
        const verdict v = mutant(one_shot_all_reduce{}, [&](schedule& s) { steps(s, 3).push_back(steps(s, 3)[1]); });
        CHECK(v.what == problem::signal_twice);
        CHECK(v.rank == 3);
    }
}

TEST_CASE("zero copy: a rank that returns while others still read or write its buffers") {
    schedule s = record_all(zero_copy_all_reduce{}, n);
    steps(s, 2).pop_back();
    const verdict v = races(s);
    CHECK(v.what == problem::race);
}

TEST_CASE("zero copy: peers that are read before they have entered") {
    schedule s = record_all(zero_copy_all_reduce{}, n);
    for (int r = 0; r < n; ++r) {
        step& st = steps(s, r)[1];
        REQUIRE(st.what == collx::sched::wait);
        st.peer_from = r;
    }
    CHECK(races(s).what == problem::race);
}

TEST_CASE("ranges of ranks that make no sense") {
    CHECK(mutant(one_shot_all_reduce{}, [](schedule& s) { steps(s, 0)[3].peer_to = 0; }).what == problem::bad_fold);
    CHECK(mutant(one_shot_all_reduce{}, [](schedule& s) { steps(s, 0)[3].peer_to = n + 1; }).what == problem::bad_fold);
    CHECK(mutant(one_shot_all_reduce{}, [](schedule& s) { steps(s, 0)[3].peer_from = 1; }).what ==
          problem::incomplete_out);
}

namespace {
// Two strands use a scratch chunk each, one for the message up, the other for the message down. OfDown 0: the same one.
template <int OfDown>
struct up_and_down : text<collective::all_to_all> {
    static constexpr int chunks(int k) { return k; }
    static constexpr int tmp_chunks(int) { return 1 + OfDown; }
    template <class Ex>
    constexpr void operator()(Ex& ex, int r, int k) const {
        const int next = (r + 1) % k, prev = (r + k - 1) % k;
        if (ex.strand(0)) {
            ex.step(copy, in(next), tmp(0));
            ex.step(send, to(next), tmp(0));
            ex.step(recv | copy, from(prev), out(prev));
        }
        if (ex.strand(1)) {
            ex.step(copy, in(prev), tmp(OfDown));
            ex.step(send, to(prev), tmp(OfDown));
            ex.step(recv | copy, from(next), out(next));
            ex.step(copy, in(r), out(r));
        }
    }
};
using shared_scratch = up_and_down<0>;
} // namespace
TEST_CASE("strands that share scratch without waiting for each other") {
    CHECK(!verify(shared_scratch{}, 3).ok());
    schedule s = record_all(shared_scratch{}, 3);
    s.shares_scratch = false;
    CHECK(verify(s).ok()); // in one iteration this interleaving happens to be right
    CHECK(races(s).what == problem::race);
}

namespace {
// A broadcast from rank 0 among three. At rank 1 one strand keeps the message in scratch and tells the other, which
// takes chunk 1 from there after a message of rank 2. A piece later the first strand may have stored the next one.
// With AsksBack it waits for the other strand before it stores.
template <bool AsksBack>
struct handed_on : text<collective::broadcast> {
    static constexpr int chunks(int) { return 3; }
    static constexpr int tmp_chunks(int) { return 3; }
    int root = 0;
    template <class Ex>
    constexpr void operator()(Ex& ex, int r, int) const {
        if (r == 0) {
            ex.step(send, to(1), in({0, 2}));
            ex.step(send, to(2), in({0, 3}));
            ex.step(copy, in({0, 3}), out({0, 3}));
        } else if (r == 2) {
            ex.step(recv | copy, from(0), out({0, 3}));
            ex.step(send, to(1), out(2));
            if (AsksBack) ex.step(recv | send, from(1), to(1), passing(1));
        } else {
            if (ex.strand(0)) {
                ex.step(recv | copy, from(0), tmp({0, 2}));
                ex.step(send, to(1), tmp(0)); // to the other strand
                if (AsksBack) ex.step(recv | send, from(1), to(1), passing(0));
            }
            if (ex.strand(1)) {
                ex.step(recv | copy, from(1), out(0));
                ex.step(recv | copy, from(2), out(2));
                ex.step(copy, tmp(1), out(1));
            }
        }
    }
};
} // namespace
TEST_CASE("scratch that another strand still reads when the next piece comes") {
    schedule s = record_all(handed_on<false>{}, 3);
    CHECK(s.shares_scratch);
    CHECK(s.iterations() == 3);
    CHECK(races(s).what == problem::race);
    s.depth = 4; // as between hosts
    CHECK(verify(s).what == problem::wrong_iteration);
    s.shares_scratch = false; // in one iteration alone nothing is wrong
    CHECK((verify(s).ok() && races(s).ok()));
}

TEST_CASE("only scratch that two strands share takes more iterations") {
    const schedule own = record_all(up_and_down<1>{}, 3);
    CHECK(!own.shares_scratch);
    CHECK(own.iterations() == 1);
    CHECK((verify(own).ok() && races(own).ok()));
    CHECK(record_all(shared_scratch{}, 3).shares_scratch);
    const auto shared = [](chunk_set a, chunk_set b) {
        program p;
        for (const chunk_set& c : {a, b}) {
            p.strands.emplace_back();
            p.strands.back().push_back({.what = copy, .src = in(c), .dst = tmp(c)});
        }
        return shares_scratch(p, 8);
    };
    CHECK(shared(3, 3));
    CHECK(shared({0, 4}, 3));
    CHECK(!shared({0, 4}, {4, 4}));
    CHECK(shared({6, 4}, 1));       // goes round
    CHECK(shared({0, 2, 1, 2}, 7)); // no simple range: perhaps
}

// ---------------------------------------------------------------------------------------------- chunks
TEST_CASE("an algorithm without chunks proves nothing, except of a barrier") {
    CHECK(verify(chain_broadcast{.chunk_count = 0}, n).what == problem::no_chunks);
    CHECK(verify(chain_broadcast{.chunk_count = 1}, n).ok());
    CHECK(verify(flag_barrier{}, n).ok());
    CHECK(flag_barrier::chunks(n) == 0);
}

// ---------------------------------------------------------------------------------------------- barriers
TEST_CASE("a barrier that forgets a round leaks") {
    schedule s = record_all(dissemination_barrier{}, n);
    for (int r = 0; r < n; ++r) steps(s, r).resize(steps(s, r).size() - 2);
    CHECK(verify(s).what == problem::leaky_barrier);
    CHECK(races(s).what == problem::leaky_barrier);
    schedule f = record_all(flag_barrier{}, n);
    steps(f, 1)[1].peer_from = 1;
    CHECK(verify(f).what == problem::leaky_barrier);
    CHECK(races(f).what == problem::leaky_barrier);
}

namespace {
// Waits for the signals of the call before. In many iterations of one call it would seem to know all.
struct late_barrier : text<collective::barrier> {
    static constexpr int signals = 1;
    static constexpr int chunks(int) { return 0; }
    int lag = 1;
    template <class Ex>
    constexpr void operator()(Ex& ex, int, int) const {
        ex.signal(0);
        ex.wait_all(0, lag);
    }
};
} // namespace
TEST_CASE("a barrier keeps its promise in each call") {
    for (const int ranks : {2, 5, 70}) {
        CHECK(verify(late_barrier{}, ranks).what == problem::leaky_barrier);
        CHECK(verify(late_barrier{.lag = 3}, ranks).what == problem::leaky_barrier);
        CHECK(verify(late_barrier{.lag = 0}, ranks).ok());
        if (ranks > 5) continue;
        CHECK(races(late_barrier{}, ranks).what == problem::leaky_barrier);
        CHECK(races(late_barrier{.lag = 0}, ranks).ok());
    }
    const schedule s = record_all(late_barrier{.lag = 3}, 2);
    CHECK((s.iterations() == 1 && s.calls() == 5));
}

// ----------------------------------------------------------------------------------------- every mistake of a kind
namespace {

struct tally {
    int mutants = 0;
    int survivors = 0;
};

// Applies `change` to every step for which `concerns` is true, one at a time.
template <class Concerns, class Change>
void everywhere(tally& t, const char* what, const schedule& good, Concerns&& concerns, Change&& change) {
    for (int r = 0; r < good.ranks; ++r)
        for (unsigned k = 0; k < good.programs[static_cast<unsigned>(r)].strands.size(); ++k)
            for (unsigned i = 0; i < good.programs[static_cast<unsigned>(r)].strands[k].size(); ++i) {
                schedule s = good;
                auto& program = steps(s, r, static_cast<int>(k));
                if (!concerns(program[i])) continue;
                change(program, i);
                ++t.mutants;
                if (!judge(s).ok()) continue;
                ++t.survivors;
                CAPTURE(name_of(good.op), what, r, k, i);
                CHECK(false);
            }
}

template <class Algorithm>
tally every_mistake(const Algorithm& a, int ranks) {
    tally t;
    schedule good = record_all(a, ranks);
    REQUIRE(judge(good).ok());
    const auto any = [](const step&) { return true; };
    const auto peered = [](const step& st) { return (st.what & (recv | send | get)) != 0; };
    const auto chunked = [&](const step& st) {
        return good.chunks > 1 && (st.what & (sched::signal | sched::wait)) == 0;
    };
    everywhere(t, "left out", good, any, [](auto& p, unsigned i) { p.erase(p.begin() + i); });
    everywhere(t, "another chunk", good, chunked,
               [](auto& p, unsigned i) { ++(p[i].src.where != place::none ? p[i].src : p[i].dst).chunks.first; });
    everywhere(t, "another peer", good, peered,
               [&](auto& p, unsigned i) { (p[i].peer_from >= 0 ? p[i].peer_from : p[i].peer_to) += 1; });
    return t;
}

} // namespace

TEST_CASE("no step can be left out, moved to another chunk or sent elsewhere") {
    const tally all[] = {every_mistake(ring_all_reduce{}, 5),        every_mistake(ring_reduce_scatter{}, 5),
                         every_mistake(ring_all_gather{}, 5),        every_mistake(linear_reduce{.root = 2}, 5),
                         every_mistake(linear_gather{.root = 1}, 5), every_mistake(linear_scatter{.root = 3}, 5),
                         every_mistake(pairwise_all_gather{}, 4),    every_mistake(pairwise_reduce_scatter{}, 4),
                         every_mistake(pairwise_all_to_all{}, 4),    every_mistake(two_shot_all_reduce{.depth = 1}, 4),
                         every_mistake(zero_copy_all_reduce{}, 4)};
    int mutants = 0;
    for (const tally& t : all) {
        CHECK(t.survivors == 0);
        mutants += t.mutants;
    }
    CHECK(mutants > 700);
}
