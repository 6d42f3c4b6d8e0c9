// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// collx-test: sanitize=address
// The table of choices equals choices.golden, so that a changed row shows all its effects (first recorded from the
// functions that chose before there was a table). Choices at compile time and at run time are the same, and names are
// those of the algorithms.
#include <collx/plan/choose.hpp>

#include <catch2/catch.hpp>

#include <algorithm>
#include <fstream>
#include <sstream>
#include <string>
#include <type_traits>
#include <utility>

#include <collx/algo/aggregated.hpp>
#include <collx/algo/algorithms.hpp>
#include <collx/algo/leader.hpp>
#include <collx/algo/multicast.hpp>
#include <collx/plan/algorithm_of.hpp>
#include <collx/plan/choice_words.hpp>

#include "plan/choice_list.hpp"

namespace {

namespace choices = collx::choices;
using collx::collective;

template <collective C>
using what = std::integral_constant<collective, C>;
template <class F>
void for_each_collective(F&& f) {
    [&]<int... Cs>(std::integer_sequence<int, Cs...>) { (f(what<static_cast<collective>(Cs)>()), ...); }
    (std::make_integer_sequence<int, static_cast<int>(collective::barrier) + 1>());
}

std::string full_name(choices::name n) {
    return n == choices::none ? "-" : std::string(choices::name_of(n)) + choices::variant_of(n);
}

// As the selectors choose, for a venue that is known at compile time.
template <choices::venue P, collective C>
choices::name chosen_at(const choices::situation& s) {
    return choices::with_choice<P, C>(s, [](auto chosen) { return chosen.use; });
}
template <collective C>
choices::name chosen_at(choices::venue p, const choices::situation& s) {
    switch (p) {
        case choices::memory: return chosen_at<choices::memory, C>(s);
        case choices::channels: return chosen_at<choices::channels, C>(s);
        default: return chosen_at<choices::hosts, C>(s);
    }
}

} // namespace

TEST_CASE("the table chooses what is recorded") {
    std::string found;
    for_each_collective([&](auto c) {
        found += collx_test::list_choices(c.value, [&](choices::venue p, const choices::situation& s) {
            return full_name(chosen_at<c.value>(p, s));
        });
    });
    std::ifstream file(COLLX_SOURCE_DIR "/tests/plan/choices.golden");
    std::stringstream recorded;
    recorded << file.rdbuf();
    CHECK(found == recorded.str());
}

TEST_CASE("what is read when compiling and when running is the same") {
    int compared = 0;
    for_each_collective([&](auto c) {
        collx_test::for_each_situation(c.value, [&](choices::venue p, choices::situation s) {
            for (s.bytes = 1; s.bytes < (std::size_t{1} << 27); s.bytes = s.bytes * 5 / 4 + 1) {
                const choices::row* found = choices::find_choice(p, c.value, s);
                const choices::name use = found == nullptr ? choices::none : found->use;
                if (use != chosen_at<c.value>(p, s)) FAIL(choices::name_of(p) << ", " << s.bytes << " bytes");
                ++compared;
            }
        });
    });
    CHECK(compared > 50'000);
}

TEST_CASE("sums on devices: LL words, one signal, two signals, by size and ranks") {
    struct limit {
        int ranks;
        std::size_t words, one_shot, words_twice; // greatest sizes in bytes; words_twice: of two-shot by LL words
    };
    for (const limit l :
         {limit{2, choices::kib(512), choices::kib(8192), 0}, limit{4, choices::kib(256), choices::kib(2048), 0},
          limit{6, choices::kib(128), choices::kib(512), choices::kib(2048)},
          limit{8, choices::kib(64), choices::kib(512), choices::kib(3072)},
          limit{16, choices::kib(64), choices::kib(256), choices::kib(3072)}}) {
        const auto chosen = [&](std::size_t bytes) {
            return choices::find_choice(choices::device, collective::all_reduce, {.bytes = bytes, .ranks = l.ranks});
        };
        CAPTURE(l.ranks);
        CHECK(chosen(8)->by == choices::protocol::packets);
        CHECK(chosen(l.words)->by == choices::protocol::packets);
        CHECK(chosen(l.words + 1)->by == choices::protocol::simple);
        CHECK(chosen(l.words + 1)->use == choices::one_shot);
        CHECK(chosen(l.one_shot)->use == choices::one_shot);
        CHECK(chosen(l.one_shot + 1)->use == choices::two_shot);
        const auto by = [&](std::size_t bytes) { return chosen(bytes)->by; };
        const bool is_many = l.ranks > 4; // two-shot has many steps there
        CHECK(by(l.one_shot + 1) == (is_many ? choices::protocol::packets : choices::protocol::simple));
        if (is_many) CHECK(by(l.words_twice) == choices::protocol::packets);
        CHECK(by(std::max(l.words_twice, l.one_shot) + 1) == choices::protocol::simple);
        // Calls with counts per rank have no size.
        CHECK(chosen(choices::any_bytes)->use == choices::two_shot);
    }
}

TEST_CASE("sums that must be rounded once do not travel as partial sums") {
    choices::situation s{
        .bytes = choices::kib(3000), .ranks = 3, .oversubscribed = true, .ordered = true, .serial = true};
    CHECK(choices::find_choice(choices::memory, collective::reduce, s)->use == choices::chain);
    s.must_round_once = true;
    CHECK(choices::find_choice(choices::memory, collective::reduce, s)->use == choices::direct);
}

TEST_CASE("a switch is asked for long sums of five devices and more, and for nothing else") {
    const auto chosen = [](collective c, std::size_t bytes, int ranks) {
        return choices::find_choice(choices::switched, c, {.bytes = bytes, .ranks = ranks});
    };
    for (const int ranks : {5, 8, 16}) {
        const std::size_t bound = choices::kib(3072);
        CHECK(chosen(collective::all_reduce, bound, ranks) == nullptr);
        const choices::row* row = chosen(collective::all_reduce, bound + 1, ranks);
        REQUIRE(row != nullptr);
        CHECK(row->use == choices::multicast_two_shot);
        CHECK(row->by == choices::protocol::multicast);
        CHECK(chosen(collective::all_gather, bound + 1, ranks) == nullptr);
    }
    CHECK(chosen(collective::all_reduce, choices::kib(1 << 20), 4) == nullptr);
}

TEST_CASE("a name of the table is the name of its algorithm") {
    int named = 0;
    const auto check = [&]<choices::name N, collective C>() {
        if constexpr (requires { typename collx::detail::algorithm_of<N, C>; }) {
            using A = collx::detail::algorithm_of<N, C>;
            CHECK(A::op == C);
            CHECK(A::name == std::string(choices::name_of(N)));
            ++named;
        } else {
            // Algorithms made of two others, or of several rings.
            CHECK((N == choices::hierarchical_rings || N == choices::hierarchical_trees ||
                   N == choices::hierarchical_one_rail || N == choices::rings));
        }
    };
    for_each_collective([&](auto c) {
        [&]<int... I>(std::integer_sequence<int, I...>) {
            const auto row = [&]<int R>() {
                if constexpr ((choices::rows[R].what & choices::bit(c.value)) != 0)
                    check.template operator()<choices::rows[R].use, c.value>();
            };
            (row.template operator()<I>(), ...);
        }
        (std::make_integer_sequence<int, choices::row_count>());
    });
    CHECK(named >= choices::row_count);
}

TEST_CASE("each call has a row that takes what no other takes, where nothing else would choose") {
    for (int c = 0; c <= static_cast<int>(collective::barrier); ++c)
        for (const choices::venue p : {choices::memory, choices::channels, choices::device, choices::team}) {
            const auto what = static_cast<collective>(c);
            if (p == choices::device && (what == collective::gather || what == collective::scatter)) continue;
            CHECK(choices::applies_always(choices::last_choice(p, what)));
        }
    // A row behind a row that always applies would never be used.
    for (int c = 0; c < collx::collective_count; ++c)
        for (unsigned p = 1; p <= choices::switched; p *= 2) {
            int always = 0;
            for (int i = choices::next_row(p, static_cast<collective>(c)); i < choices::row_count;
                 i = choices::next_row(p, static_cast<collective>(c), i + 1)) {
                CHECK(always == 0);
                always += choices::applies_always(choices::rows[i]);
            }
        }
}

TEST_CASE("rows in words") {
    using collx::detail::conditions_in_words;
    const auto& first = choices::row_naming(choices::memory, collective::all_reduce, choices::one_shot);
    CHECK(conditions_in_words(first) == "up to 16 KiB; shared buffers; more ranks than cores");
    CHECK(conditions_in_words(choices::last_choice(choices::memory, collective::barrier)) == "all others");
    CHECK(collx::detail::bytes_in_words(1500) == "1500 B");
    CHECK(collx::detail::ranks_in_words({3, 4}) == "3 to 4 ranks");
    CHECK(collx::detail::collectives_in_words(choices::scans) == "scan, exclusive_scan");
}
