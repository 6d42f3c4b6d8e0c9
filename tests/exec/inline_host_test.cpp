// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// collx-test: sanitize=address
// The plain reading against a sum that is known, for every channel algorithm whose strands may run one after the other.
#include <collx/exec/inline_host.hpp>

#include <vector>

#include <catch2/catch.hpp>

#include <collx/algo/bruck.hpp>
#include <collx/algo/halving_doubling.hpp>
#include <collx/algo/leader.hpp>
#include <collx/algo/pairwise.hpp>
#include <collx/algo/recursive_doubling.hpp>
#include <collx/algo/ring.hpp>
#include <collx/collx.hpp>

using namespace collx;

namespace {

// Elements of one rank's input: small integers, exact in any order of summation.
float element(int rank, std::size_t i) { return static_cast<float>(rank + 1 + static_cast<int>(i % 7)); }

template <class Algorithm>
std::vector<float> run_all_reduce(communicator& w, std::size_t n, const Algorithm& a, bool in_place) {
    std::vector<float> in(n), out(n, -1.0f);
    for (std::size_t i = 0; i < n; ++i) in[i] = element(w.rank(), i);
    float* to = in_place ? in.data() : out.data();
    auto& core = w.internals();
    inline_host ex(core.net, in.data(), to, plus{}, chunk_layout::even(n, a.chunks(w.size())), core.settings.waiting);
    a(ex, w.rank(), w.size());
    return in_place ? in : out;
}

template <class Algorithm>
void check_all_reduce(const Algorithm& a) {
    for (const int n : {1, 2, 3, 4, 5, 8})
        for (const std::size_t size : {std::size_t{1}, std::size_t{7}, std::size_t{1000}}) {
            int wrong = 0;
            run_threads(n, [&](communicator& w) {
                for (const bool in_place : {false, true}) {
                    const auto out = run_all_reduce(w, size, a, in_place);
                    int mine = 0;
                    for (std::size_t i = 0; i < size; ++i)
                        mine += out[i] != static_cast<float>(n * (n + 1) / 2 + n * static_cast<int>(i % 7));
                    all_reduce(w, value(mine));
                    if (w.rank() == 0) wrong += mine;
                }
            });
            INFO(Algorithm::name << " n=" << n << " size=" << size);
            CHECK(wrong == 0);
        }
}

} // namespace

TEST_CASE("ring all_reduce, step by step") { check_all_reduce(algo::ring_all_reduce{}); }
TEST_CASE("recursive doubling, step by step") { check_all_reduce(algo::recursive_doubling_all_reduce{}); }
TEST_CASE("halving-doubling, step by step") { check_all_reduce(algo::halving_doubling_all_reduce{}); }

TEST_CASE("all_to_all, messages of many chunks and strands in text order") {
    for (const int n : {1, 2, 3, 5, 8}) {
        int wrong = 0;
        run_threads(n, [&](communicator& w) {
            std::vector<int> in, pairwise(static_cast<std::size_t>(n)), bruck(static_cast<std::size_t>(n));
            for (int d = 0; d < n; ++d) in.push_back(w.rank() * 100 + d);
            auto& core = w.internals();
            const auto layout = chunk_layout::blocks(1, n);
            inline_host one(core.net, in.data(), pairwise.data(), plus{}, layout, core.settings.waiting);
            algo::pairwise_all_to_all{}(one, w.rank(), n);
            inline_host two(core.net, in.data(), bruck.data(), plus{}, layout, core.settings.waiting);
            algo::bruck_all_to_all{}(two, w.rank(), n);
            int mine = 0;
            for (int k = 0; k < n; ++k)
                mine += pairwise[static_cast<std::size_t>(k)] != k * 100 + w.rank() ||
                        bruck[static_cast<std::size_t>(k)] != k * 100 + w.rank();
            all_reduce(w, value(mine));
            if (w.rank() == 0) wrong += mine;
        });
        INFO("n=" << n);
        CHECK(wrong == 0);
    }
}

TEST_CASE("a rank that does not come is named") {
    run_threads(2, [](communicator& w) {
        if (w.rank() == 0) {
            float x = 1;
            inline_host ex(w.internals().net, &x, &x, plus{}, chunk_layout::even(1, 2), w.internals().settings.waiting,
                           50'000'000);
            try {
                algo::ring_all_reduce{}(ex, 0, 2);
                FAIL("returned without its peer");
            } catch (const timed_out& e) {
                CHECK(e.peer() == 1);
            }
        }
    });
}

TEST_CASE("scratch with more chunks than the buffers is refused, not written past") {
    const node_map nodes({0, 0, 1, 1});
    run_threads(4, [&](communicator& w) {
        if (w.rank() != 0) return; // a leader; the others would wait for it
        std::vector<int> in(4), out(4);
        inline_host ex(w.internals().net, in.data(), out.data(), plus{}, chunk_layout::even(4, 4),
                       w.internals().settings.waiting, 50'000'000);
        try {
            algo::leader_all_to_all{.nodes = nodes}(ex, 0, 4);
            FAIL("there is no room for its scratch");
        } catch (const error& e) {
            CHECK(e.code() == errc::unsupported);
        }
    });
}
