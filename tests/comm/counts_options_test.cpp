// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Options directly after the counts, in the place of the offsets or of the operator, in every mode. The forms that
// take `{}` there, or a list of offsets in braces, are the same calls as before.
#include "comm/support.hpp"

#include <algorithm>

using namespace collx_test;
using namespace std::chrono_literals;

namespace {

using list = std::vector<int>;
namespace per = collx::persistent;
namespace soon = collx::async;

constexpr int ranks = 3, root = 1;
const std::vector<std::size_t> counts{1, 0, 2};

// Whether this was written to `out`, which is then as before the call: a persistent call needs its memory again.
bool took(list& out, const list& expected) {
    const bool is_right = out == expected;
    std::fill(out.begin(), out.end(), -1);
    return is_right;
}

// What a rank has, what the call must give it, and where it goes.
struct parts {
    explicit parts(int rank)
        : mine(counts[static_cast<std::size_t>(rank)], rank + 5), all(3, -1), mine_back(mine.size(), -1) {
        const list of_ranks[] = {{3}, {}, {6, 9}};
        sums = of_ranks[rank];
    }
    const list mine, whole{1, 2, 3}, gathered{5, 7, 7};
    list sums, all, mine_back;

    bool has_gathered() { return took(all, gathered); }
    // The root alone writes to its buffer.
    bool has_gathered_at(int rank) { return took(all, rank == root ? gathered : list(3, -1)); }
    bool has_scattered() { return took(mine_back, mine); }
    bool has_sums() { return took(mine_back, sums); }
    // In place only the own part is a result.
    bool has_sums_in(const list& x, int rank) const {
        return std::equal(sums.begin(), sums.end(), x.begin() + (rank == 0 ? 0 : 1));
    }
};

// Each rank's source is the rank before it, and its destination the next one.
struct ring {
    explicit ring(int rank)
        : graph{{(rank + 2) % ranks}, {(rank + 1) % ranks}}, counts{rank == 0 ? 3 : rank},
          mine(static_cast<std::size_t>(rank + 1), rank),
          expected(static_cast<std::size_t>((rank + 2) % ranks + 1), (rank + 2) % ranks), theirs(expected.size(), -1) {}
    const collx::neighbors graph;
    const list counts, mine, expected;
    list theirs;

    bool has_received() { return took(theirs, expected); }
};

} // namespace

TEST_CASE("options after the counts") {
    on_ranks(ranks, [](collx::communicator& w) {
        parts p(w.rank());
        collx::gather_v(w, p.mine, p.all, counts, {.root = root});
        EXPECT(p.has_gathered_at(w.rank()));
        collx::scatter_v(w, p.gathered, p.mine_back, counts, {.root = root});
        EXPECT(p.has_scattered());
        collx::all_gather_v(w, p.mine, p.all, counts, {.timeout = 30s});
        EXPECT(p.has_gathered());
        collx::reduce_scatter_v(w, p.whole, p.mine_back, counts, {.timeout = 30s});
        EXPECT(p.has_sums());
        list here = p.whole;
        collx::reduce_scatter_v(w, here, counts, {.timeout = 30s});
        EXPECT(p.has_sums_in(here, w.rank()));
        ring r(w.rank());
        collx::neighbor_all_gather_v(w, r.graph, r.mine, r.theirs, r.counts, {.timeout = 30s});
        EXPECT(r.has_received());
    });
}

TEST_CASE("options after the counts of async and persistent calls, and of calls that return errors") {
    on_ranks(ranks, [](collx::communicator& w) {
        parts p(w.rank());
        soon::gather_v(w, p.mine, p.all, counts, {.root = root}).wait();
        EXPECT(p.has_gathered_at(w.rank()));
        soon::scatter_v(w, p.gathered, p.mine_back, counts, {.root = root}).wait();
        EXPECT(p.has_scattered());
        soon::all_gather_v(w, p.mine, list(3), counts, {.timeout = 30s}).wait(); // the handle owns the temporary
        const list kept =
            soon::reduce_scatter_v(w, list(p.whole), list(p.sums.size()), counts, {.timeout = 30s}).wait();
        EXPECT(kept == p.sums);
        collx::try_::gather_v(w, p.mine, p.all, counts, {.root = root}).value();
        EXPECT(p.has_gathered_at(w.rank()));
        ring r(w.rank());
        soon::neighbor_all_gather_v(w, r.graph, r.mine, r.theirs, r.counts, {.timeout = 30s}).wait();
        EXPECT(r.has_received());

        list here(3);
        auto gather = per::gather_v(w, p.mine, p.all, counts, {.root = root});
        auto scatter = per::scatter_v(w, p.gathered, p.mine_back, counts, {.root = root});
        auto gather_all = per::all_gather_v(w, p.mine, p.all, counts, {.timeout = 30s});
        auto sum = per::reduce_scatter_v(w, p.whole, p.mine_back, counts, {.timeout = 30s});
        auto sum_here = per::reduce_scatter_v(w, here, counts, {.timeout = 30s});
        auto receive = per::neighbor_all_gather_v(w, r.graph, r.mine, r.theirs, r.counts, {.timeout = 30s});
        for (int i = 0; i < 2; ++i) {
            gather();
            EXPECT_AT(i, p.has_gathered_at(w.rank()));
            scatter();
            EXPECT_AT(i, p.has_scattered());
            gather_all();
            EXPECT_AT(i, p.has_gathered());
            sum();
            EXPECT_AT(i, p.has_sums());
            std::copy(p.whole.begin(), p.whole.end(), here.begin());
            sum_here();
            EXPECT_AT(i, p.has_sums_in(here, w.rank()));
            receive();
            EXPECT_AT(i, r.has_received());
        }
    });
}

TEST_CASE("options after the counts are the call's: a root that is no rank, a time below zero") {
    on_ranks(2, [](collx::communicator& w) {
        list one(1, 3);
        const list ones{1, 1};
        list two(2);
        const auto code = collx::errc::invalid_argument;
        refused(
            w, [&] { collx::gather_v(w, one, two, ones, {.root = 2}); }, code, "root");
        refused(
            w, [&] { collx::scatter_v(w, two, two, ones, {.root = -1}); }, code, "root");
        refused(
            w, [&] { collx::all_gather_v(w, one, two, ones, {.timeout = -1s}); }, code, "timeout");
        refused(
            w, [&] { collx::reduce_scatter_v(w, two, one, ones, {.timeout = -1s}); }, code, "timeout");
    });
}

TEST_CASE("options in a variable, counts in braces, {} and offsets in braces after the counts") {
    on_ranks(ranks, [](collx::communicator& w) {
        parts p(w.rank());
        collx::call_options at_root{.root = root};
        const collx::call_options patient_call{.timeout = 30s};
        collx::gather_v(w, p.mine, p.all, counts, at_root);
        EXPECT(p.has_gathered_at(w.rank()));
        collx::all_gather_v(w, p.mine, p.all, counts, patient_call);
        EXPECT(p.has_gathered());
        collx::all_gather_v(w, p.mine, p.all, {1, 0, 2}, {.timeout = 30s});
        EXPECT(p.has_gathered());
        collx::reduce_scatter_v(w, p.whole, p.mine_back, {1, 0, 2}, patient_call);
        EXPECT(p.has_sums());
        collx::all_gather_v(w, p.mine, p.all, counts, {});
        EXPECT(p.has_gathered());
        collx::all_gather_v(w, p.mine, p.all, counts, {}, {.timeout = 30s});
        EXPECT(p.has_gathered());
        collx::all_gather_v(w, p.mine, p.all, counts, {0, 0, 1});
        EXPECT(p.has_gathered());
        collx::gather_v(w, p.mine, p.all, counts, {2, 0, 0}, {.root = root});
        EXPECT(took(p.all, w.rank() == root ? list{7, 7, 5} : list(3, -1)));
        collx::reduce_scatter_v(w, p.whole, p.mine_back, counts, {});
        EXPECT(p.has_sums());
        collx::reduce_scatter_v(w, p.whole, p.mine_back, counts, {}, {.timeout = 30s});
        EXPECT(p.has_sums());
        collx::reduce_scatter_v(w, p.whole, p.mine_back, counts, collx::max{}, {.timeout = 30s});
        EXPECT(took(p.mine_back, w.rank() == 0 ? list{1} : w.rank() == 1 ? list{} : list{2, 3}));
        list here = p.whole;
        collx::reduce_scatter_v(w, here, counts, {});
        EXPECT(p.has_sums_in(here, w.rank()));
        ring r(w.rank());
        collx::neighbor_all_gather_v(w, r.graph, r.mine, r.theirs, r.counts, {});
        EXPECT(r.has_received());
        collx::neighbor_all_gather_v(w, r.graph, r.mine, r.theirs, r.counts, {}, patient_call);
        EXPECT(r.has_received());
        collx::neighbor_all_gather_v(w, r.graph, r.mine, r.theirs, r.counts, {0}, patient_call);
        EXPECT(r.has_received());
    });
    on_ranks(1, [](collx::communicator& w) { // one number in braces is a list of offsets, not an option
        list out(3, -1);
        collx::all_gather_v(w, list{4}, out, {1}, {2});
        EXPECT(out == list{-1, -1, 4});
    });
}
