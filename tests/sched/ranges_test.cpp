// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// What is refused before anything runs: places that the engine would take for others, numbers that a step cannot hold,
// sets that are none. Whatever the engine has must pass.
#include <collx/algo/algorithms.hpp>
#include <collx/algo/multicast.hpp>
#include <collx/sched/explain.hpp>
#include <collx/sched/verify.hpp>

#include <catch2/catch.hpp>

#include <algorithm>
#include <string>

using namespace collx;
using namespace collx::sched;

namespace {

constexpr int n = 3;

schedule of(collective op, bool on_devices = false) {
    schedule s{.op = op, .ranks = n, .chunks = n};
    s.scratch = n;
    s.declared_signals = 2;
    s.on_devices = on_devices;
    return s;
}

// The first step that the text records.
template <class Text>
step first_of(Text&& text) {
    recorder ex;
    text(ex);
    return ex.take().strands[0][0];
}
template <class Text>
problem judged(collective op, Text&& text, bool on_devices = false) {
    return out_of_range(first_of(text), of(op, on_devices)).what;
}
template <class Text>
problem judged(Text&& text) {
    return judged(collective::all_reduce, text);
}

bool is_set(const chunk_set& c, int chunks) {
    schedule s{.op = collective::all_reduce, .ranks = n, .chunks = chunks};
    return is_set_of_chunks(in(c), s);
}

// The common members of the algorithms here.
template <collective Op>
struct text {
    static constexpr collective op = Op;
    static constexpr const char* name = "text";
    static constexpr int signals = 3;
    static constexpr int min_depth = 1;
    static constexpr bool needs_commutative = false;
    static constexpr int chunks(int) { return 1; }
    static constexpr int tmp_chunks(int) { return 1; }
};

// Folds the scratch of all ranks.
struct from_scratch : text<collective::all_reduce> {
    template <class Ex>
    constexpr void operator()(Ex& ex, int, int k) const {
        ex.wait_all(1, 1);
        ex.step(copy, in(0), tmp(0));
        ex.signal(0);
        ex.wait_all(0);
        ex.step(fold | copy, tmp(0), at_ranks(0, k, tmp(0)), out(0));
        ex.signal(1);
    }
};

// Receives into its window.
struct into_window : text<collective::all_gather> {
    static constexpr int chunks(int k) { return k; }
    template <class Ex>
    constexpr void operator()(Ex& ex, int r, int) const { // 2 ranks
        ex.step(send, to(1 - r), in(r));
        ex.step(recv | copy, from(1 - r), window(0, 1 - r));
        ex.step(get | copy, at(r, window(0, 1 - r)), out(1 - r));
        ex.step(copy, in(r), out(r));
        ex.signal(0);
        ex.wait_all(0);
    }
};

// Right, but one half goes through windows and the other straight to the buffers of peers.
struct both_ways : text<collective::all_gather> {
    static constexpr int chunks(int k) { return k; }
    template <class Ex>
    constexpr void operator()(Ex& ex, int r, int) const { // 2 ranks
        ex.wait_all(1, 1);
        if (r == 0) ex.step(copy, in(0), window(0, 0));
        ex.step(copy, in(r), out(r));
        ex.signal(0);
        ex.wait_all(0);
        if (r == 0) ex.step(get | copy, at(1, in(1)), out(1));
        else ex.step(get | copy, at(0, window(0, 0)), out(0));
        ex.signal(1);
        ex.wait_all(1);
    }
};

// Reads the buffers of the others when they have given `signal`.
template <int Given>
struct reads_others : text<collective::all_gather> {
    static constexpr int chunks(int k) { return k; }
    template <class Ex>
    constexpr void operator()(Ex& ex, int r, int k) const {
        ex.signal(Given);
        ex.step(copy, in(r), out(r));
        ex.wait_all(Given);
        for (int i = 0; i < k; ++i)
            if (i != r) ex.step(get | copy, at(i, in(i)), out(i));
        ex.signal(2);
        ex.wait_all(2);
    }
};

} // namespace

TEST_CASE("messages and copies work on a rank's own buffers") {
    for (const ref own : {in(0), out(0), tmp(0)}) {
        CHECK(judged([&](auto& ex) { ex.step(send, to(1), own); }) == problem::none);
        CHECK(judged([&](auto& ex) { ex.step(copy, own, window(1, 0)); }) == problem::none);
        CHECK(judged([&](auto& ex) { ex.step(recv | reduce | send, from(1), to(2), own); }) == problem::none);
        CHECK(judged([&](auto& ex) { ex.step(recv | reduce_after | copy, from(1), own, tmp(0)); }) == problem::none);
    }
    CHECK(judged([](auto& ex) { ex.step(recv | send, from(1), to(2), passing(0)); }) == problem::none);
    CHECK(judged([](auto& ex) { ex.step(recv | copy | send, from(1), to(2), out(0)); }) == problem::none);

    const ref w = window(0, 0);
    CHECK(judged([&](auto& ex) { ex.step(send, to(1), w); }) == problem::bad_place);
    CHECK(judged([&](auto& ex) { ex.step(copy, w, out(0)); }) == problem::bad_place);
    CHECK(judged([&](auto& ex) { ex.step(recv | copy, from(1), w); }) == problem::bad_place);
    CHECK(judged([&](auto& ex) { ex.step(recv | copy | send, from(1), to(2), w); }) == problem::bad_place);
    CHECK(judged([&](auto& ex) { ex.step(recv | reduce | send, from(1), to(2), w); }) == problem::bad_place);
    CHECK(judged([&](auto& ex) { ex.step(recv | reduce | copy, from(1), in(0), w); }) == problem::bad_place);
    CHECK(judged([&](auto& ex) { ex.step(recv | reduce | copy, from(1), w, tmp(0)); }) == problem::bad_place);
    CHECK(judged([](auto& ex) { ex.step(recv | copy, from(1), passing(0)); }) == problem::bad_place);
}

TEST_CASE("a barrier's messages have no elements, and so no place") {
    const auto token = [](auto& ex) { ex.step(send, to(1), passing(0)); };
    CHECK(judged(token) == problem::bad_place);
    CHECK(judged(collective::barrier, token) == problem::none);
    CHECK(judged(collective::barrier, [](auto& ex) { ex.step(recv | copy, from(1), passing(0)); }) == problem::none);
    CHECK(judged(collective::barrier, [](auto& ex) { ex.step(get | copy, at(1, tmp(0)), out(0)); }) ==
          problem::bad_place);
}

TEST_CASE("get and fold read windows, inputs and outputs of ranks, and store to a buffer of this one") {
    for (const ref there : {in(0), out(0), window(0, 0), window(1, 0)}) {
        CHECK(judged([&](auto& ex) { ex.step(get | copy, at(1, there), out(0)); }) == problem::none);
        CHECK(judged([&](auto& ex) { ex.step(fold | copy, tmp(0), at_ranks(0, 2, there), tmp(0)); }) == problem::none);
        CHECK(judged([&](auto& ex) { ex.step(fold | copy, ref{}, at_ranks(0, 2, there), out(0)); }) == problem::none);
        CHECK(judged([&](auto& ex) { ex.step(fold | copy, there, at_ranks(0, 2, there), out(0)); }) == problem::none);
        CHECK(judged([&](auto& ex) { ex.step(fold | to_all, at_ranks(0, n, there), out(0)); }) == problem::none);
    }
    CHECK(judged([](auto& ex) { ex.step(fold | copy, in(0), at_ranks(0, 2, window(0, 0)), out(0), place::window1); }) ==
          problem::none);

    for (const ref there : {tmp(0), passing(0)}) {
        CHECK(judged([&](auto& ex) { ex.step(get | copy, at(1, there), out(0)); }) == problem::bad_place);
        CHECK(judged([&](auto& ex) { ex.step(fold | copy, in(0), at_ranks(0, 2, there), out(0)); }) ==
              problem::bad_place);
    }
    CHECK(judged([](auto& ex) { ex.step(get | copy, at(1, window(0, 0)), window(1, 0)); }) == problem::bad_place);
    CHECK(judged([](auto& ex) { ex.step(fold | copy, in(0), at_ranks(0, 2, window(0, 0)), window(1, 0)); }) ==
          problem::bad_place);
    CHECK(judged([](auto& ex) { ex.step(fold | copy, window(1, 0), at_ranks(0, 2, window(0, 0)), out(0)); }) ==
          problem::bad_place);
    CHECK(judged([](auto& ex) { ex.step(fold | copy, in(0), at_ranks(0, 2, window(0, 0)), out(0), place::tmp); }) ==
          problem::bad_place);
}

TEST_CASE("to_all is of all ranks, to all outputs; a fold is of a collective with an operator") {
    const auto all = [](auto& ex) { ex.step(fold | to_all, at_ranks(0, n, in(0)), out(0)); };
    const auto some = [](auto& ex) { ex.step(fold | to_all, at_ranks(0, 2, in(0)), out(0)); };
    const auto later = [](auto& ex) { ex.step(fold | to_all, at_ranks(1, n, in(0)), out(0)); };
    const auto to_scratch = [](auto& ex) { ex.step(fold | to_all, at_ranks(0, n, in(0)), tmp(0)); };
    const auto to_windows = [](auto& ex) { ex.step(fold | to_all, at_ranks(0, n, in(0)), window(0, 0)); };
    CHECK(judged(all) == problem::none);
    CHECK(judged(collective::reduce_scatter, all) == problem::none);
    CHECK(judged(some) == problem::bad_to_all);
    CHECK(judged(later) == problem::bad_to_all);
    CHECK(judged(to_scratch) == problem::bad_to_all);
    CHECK(judged(to_windows) == problem::bad_place);
    for (const collective op : {collective::all_gather, collective::broadcast, collective::all_to_all}) {
        CHECK(judged(op, all) == problem::no_operator);
        CHECK(judged(op, [](auto& ex) { ex.step(fold | copy, in(0), at_ranks(1, 2, in(0)), out(0)); }) ==
              problem::no_operator);
        CHECK(judged(op, some, true) == problem::none); // devices have it
    }
    CHECK(verify(algo::multicast_all_gather{}, n).ok());
    schedule on_hosts = record_all(algo::multicast_all_gather{}, n);
    on_hosts.on_devices = false;
    CHECK(verify(on_hosts).what == problem::no_operator);
}

TEST_CASE("what the engine would execute as something else is not proved") {
    CHECK(verify(from_scratch{}, n).what == problem::bad_place);
    CHECK(verify(into_window{}, 2).what == problem::bad_place);
    const schedule s = record_all(both_ways{}, 2);
    CHECK(verify(s).what == problem::mixed_memory);
    CHECK(explain(s, verify(s)) == "rank 0: some steps go through windows, others straight to the buffers of peers: an "
                                   "algorithm does one of the two");
    const schedule w = record_all(into_window{}, 2);
    CHECK(std::string(explain(w, verify(w)).c_str()).find("only copy stores to a window") != std::string::npos);
}

TEST_CASE("peers say with signal 0 where their buffers lie") {
    CHECK(verify(reads_others<0>{}, n).ok());
    CHECK(verify(reads_others<1>{}, n).what == problem::unknown_buffer);
    schedule silent = of(collective::all_gather);
    silent.declared_signals = 0;
    CHECK(out_of_range(first_of([](auto& ex) { ex.step(get | copy, at(1, in(0)), out(0)); }), silent).what ==
          problem::undeclared_signal);
}

TEST_CASE("there are segments 0 and 1 of a window, and signals 0 to 254") {
    for (const int segment : {-3, -1, 2, 7})
        CHECK(judged([=](auto& ex) { ex.step(copy, in(0), window(segment, 0)); }) == problem::bad_place);
    for (const int index : {-256, -1, 2, 255, 256, 257, 512}) {
        CHECK(judged([=](auto& ex) { ex.signal(index); }) == problem::undeclared_signal);
        CHECK(judged([=](auto& ex) { ex.wait(index, 1); }) == problem::undeclared_signal);
        CHECK(judged([=](auto& ex) { ex.wait_all(index); }) == problem::undeclared_signal);
    }
    for (const int lag : {-1, 256, 512})
        CHECK(judged([=](auto& ex) { ex.wait(0, 1, lag); }) == problem::undeclared_signal);
    CHECK(judged([](auto& ex) { ex.signal(1); }) == problem::none);
    CHECK(judged([](auto& ex) { ex.wait_all(1, 255); }) == problem::none);
    CHECK(first_of([](auto& ex) { ex.wait(1, 2, 255); }) ==
          step{.what = collx::sched::wait, .index = 1, .lag = 255, .peer_from = 2});
}

TEST_CASE("a set may go round as often as it likes, and names no chunk twice") {
    CHECK(is_set({3, 4, 1, 3}, 4)); // 3, 2, 1, 0
    CHECK(is_set({0, 3, 1, 3}, 5)); // 0, 3, 1
    CHECK(is_set({0, 4, 2, 5}, 8)); // 0, 1, 5, 6
    CHECK(is_set({6, 3, 2, 7}, 8)); // 6, 7, 5
    CHECK(is_set({0, 8}, 8));
    CHECK(!is_set({6, 4, 2, 7}, 8)); // 6, 7, 5, 6
    CHECK(!is_set({6, 4, 2, 8}, 8)); // 6, 7, 6, 7
    CHECK(!is_set({0, 3, 1, 5}, 5)); // 0, 0, 0
    CHECK(!is_set({0, 4, 1, 4}, 6)); // 0, 4, 2, 0
    CHECK(!is_set({0, 6}, 5));
    CHECK(!is_set({0, 4, 1, 1 << 30}, 8)); // beyond what positions count
}

TEST_CASE("the scratch that steps name, however much is declared") {
    schedule s = of(collective::all_reduce);
    s.programs.push_back({});
    s.programs[0].strands.emplace_back();
    CHECK(scratch_named(s) == 0);
    s.programs[0].strands[0].push_back({.what = copy, .src = in(0), .dst = tmp(1)});
    CHECK(scratch_named(s) == 2);
    s.programs[0].strands[0].push_back({.what = copy, .src = tmp({1, 2}), .dst = out({1, 2})});
    CHECK(scratch_named(s) == 3);
    s.programs[0].strands[0].push_back({.what = copy, .src = tmp({2, 2}), .dst = out({1, 2})}); // 2 and 0
    CHECK(scratch_named(s) == 3);
    CHECK(last_chunk({1, 2}, 8) == 2);
    CHECK(last_chunk({6, 3}, 8) == 7);
    CHECK(last_chunk({6, 2}, 8) == 7);
    CHECK(last_chunk({1, 3, 1, 2}, 8) == 5);
    CHECK(last_chunk({3, 0}, 8) == -1);
    constexpr int order[] = {3, 1, 0, 2};
    CHECK(last_chunk(chunk_set(1, 2).in_order(order), 4) == 1);
    chunk_set part(2, 3); // of the chunks 10 to 13: 12, 13, 10
    part.base = 10;
    part.size = 4;
    CHECK(last_chunk(part, 8) == 13);
    part.first = 0;
    CHECK(last_chunk(part, 8) == 12);
    for (int first = 0; first < 8; ++first) // as by looking at each
        for (int count = 1; count <= 4; ++count)
            for (int run = 1; run <= 3; ++run)
                for (int period = run; period <= 7; ++period) {
                    const chunk_set c(first, count, run, period);
                    int most = -1;
                    for (int i = 0; i < count; ++i) most = std::max(most, c.at(i, 8));
                    CHECK(last_chunk(c, 8) == most);
                }
}
