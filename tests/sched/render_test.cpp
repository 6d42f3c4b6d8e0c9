// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Pictures and tables show every step once and every message once, and mark the guilty step.
#include <collx/algo/ring.hpp>
#include <collx/algo/two_shot.hpp>
#include <collx/sched/render.hpp>
#include <collx/sched/verify.hpp>

#include <catch2/catch.hpp>

using namespace collx;
using namespace collx::sched;
using namespace collx::algo;

namespace {
int count(const std::string& text, const std::string& what) {
    int n = 0;
    for (std::size_t at = text.find(what); at != std::string::npos; at = text.find(what, at + what.size())) ++n;
    return n;
}
} // namespace

TEST_CASE("steps read as one line") {
    CHECK(describe(step{.what = recv | reduce | copy | send, .peer_from = 1, .peer_to = 3, .src = in(2), .dst = out(2)},
                   4) == "1> +in2 =out2 >3");
    CHECK(describe(step{.what = recv | reduce_after | copy, .peer_from = 1, .src = tmp(0), .dst = tmp(0)}, 4) ==
          "1> tmp0+ =tmp0");
    CHECK(describe(step{.what = send, .peer_to = 0, .src = out({2, 3})}, 8) == "out2-4 >0");
    CHECK(describe(step{.what = send, .peer_to = 0, .src = out({3, 2})}, 4) == "out3,0 >0");
    CHECK(describe(step{.what = get | copy, .peer_from = 2, .src = window(1, 2), .dst = out(2)}, 4) ==
          "2:win1.2 =out2");
    CHECK(describe(step{.what = sched::wait, .index = 1, .lag = 4, .peer_from = all_ranks}, 4) == "wait 1 of all -4");
    CHECK(describe(step{.what = sched::signal, .index = 1}, 4) == "signal 1");
}

TEST_CASE("a ring of three as a table") {
    CHECK(to_table(record_all(ring_all_reduce{}, 3)) == "time  rank 0            rank 1            rank 2\n"
                                                        "   1  in0 >1            in1 >2            in2 >0\n"
                                                        "   2  2> +in2 >1        0> +in0 >2        1> +in1 >0\n"
                                                        "   3  2> +in1 =out1 >1  0> +in2 =out2 >2  1> +in0 =out0 >0\n"
                                                        "   4  2> =out0 >1       0> =out1 >2       1> =out2 >0\n"
                                                        "   5  2> =out2          0> =out0          1> =out1\n");
}

TEST_CASE("a picture has a box for each step and an arrow for each message") {
    const schedule s = record_all(ring_all_reduce{}, 4);
    const std::string svg = to_svg(s, "ring <4>");
    CHECK(count(svg, "<rect class=\"box") == 4 * 7);
    CHECK(count(svg, "<path ") == 4 * 6);
    CHECK(count(svg, "<text class=\"rank\"") == 4);
    CHECK(count(svg, "prefers-color-scheme:dark") == 1);
    CHECK(count(svg, "ring &lt;4&gt;") == 2); // in the title and in the text, escaped
    CHECK(svg.find("guilty\" x=") == std::string::npos);
    CHECK(svg.substr(svg.size() - 7) == "</svg>\n");
}

TEST_CASE("signals are drawn from the strand that gives them to all that wait") {
    const std::string svg = to_svg(record_all(two_shot_all_reduce{}, 3), "two-shot");
    // signal 0 reaches 3 x 3 waits, for signal 1 two peers of each rank wait
    CHECK(count(svg, "class=\"notice dim\"") == 9 + 6);
    CHECK(count(svg, "strand 2</text>") == 3);
}

TEST_CASE("what is refused is marked") {
    schedule s = record_all(ring_all_reduce{}, 4);
    ++s.programs[2].strands[0][2].src.chunks.first;
    const verdict v = verify(s);
    REQUIRE(v.what == problem::wrong_chunk);
    CHECK(count(to_svg(s, "wrong", v), "<rect class=\"box guilty\"") == 1);
    CHECK(to_table(s, v).find("! 1> +in1 >3") != std::string::npos);
    CHECK(explain(s, v) ==
          "rank 2, strand 0, step 2 [1> +in1 >3]: the place is right, but the data is another chunk's, chunk 1, "
          "rank 1 on the other side");
}

TEST_CASE("a deadlock is drawn as far as it gets, with all who wait") {
    schedule s = record_all(ring_all_reduce{}, 4);
    s.depth = 1;
    const verdict v = verify(s);
    const std::string svg = to_svg(s, "one slot", v);
    CHECK(count(svg, "<rect class=\"box guilty\"") == 4);
    CHECK(count(svg, "<rect class=\"box c") == 4); // the first sends
    CHECK(count(explain(s, v), "waits for rank") == 4);
}

TEST_CASE("every problem has a sentence") {
    for (int p = 0; p <= static_cast<int>(problem::no_chunks); ++p)
        CHECK(std::string(name_of(static_cast<problem>(p))).size() > 10);
    CHECK(explain(schedule{}, verdict{}) == "nothing is wrong");
}
