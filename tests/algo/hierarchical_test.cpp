// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// collx-test: needs=rapidcheck timeout=300
//
// Hierarchical and aggregated algorithms over many node maps: even, uneven, interleaved, single ranks, one node.
#include <collx/algo/aggregated.hpp>
#include <collx/algo/hierarchical.hpp>
#include <collx/algo/leader.hpp>
#include <collx/algo/linear.hpp>

#include <algorithm>
#include <functional>

#include "checks.hpp"

#include <rapidcheck.h>

using namespace checks;
using collx::node_map;
using collx::node_view;

namespace {

std::string text(const node_map& m) {
    std::string s;
    for (int r = 0; r < m.view().ranks(); ++r) s += std::to_string(m.view().node_of(r)) + " ";
    return s;
}

template <class Algorithm>
crossings between(const Algorithm& a, const node_map& m) {
    return messages_between(record_all(a, m.view().ranks()), [&](int r) { return m.view().node_of(r); });
}

// The declarations of a combinator.
struct declared {
    int depth, tmp_chunks, messages_between;
    bool needs_commutative;
};
template <class Algorithm>
declared declared_by(const Algorithm& a, int n) {
    int tmp = 0;
    if constexpr (requires { a.tmp_chunks(n); }) tmp = a.tmp_chunks(n);
    return {collx::sched::min_depth_v<Algorithm>, tmp, a.messages_between(n), needs_commutative_of(a, n)};
}

// The first defect of a schedule, as text; empty if there is none. (Not a template: the tools are compiled once.)
std::string wrong(const schedule& s, const declared& d, const node_map& m) {
    const verdict v = verify(s);
    if (!v.ok())
        return "problem " + std::to_string(static_cast<int>(v.what)) + " at rank " + std::to_string(v.rank) +
               ", step " + std::to_string(v.step);
    if (!v.same_bits) return "other bits";
    const auto crossing = messages_between(s, [&](int r) { return m.view().node_of(r); });
    if (crossing.total_messages != d.messages_between)
        return std::to_string(crossing.total_messages) + " messages between nodes, not " +
               std::to_string(d.messages_between);
    if (s.ranks > races_up_to) return "";
    const facts f = facts_of(s); // declarations must suffice; they are not minimal on every map
    if (f.min_depth > d.depth) return "min_depth";
    if (f.tmp_chunks > d.tmp_chunks) return "tmp_chunks";
    if (reduces(s.op) && f.order != reduction_order::rank_order && !d.needs_commutative) return "needs_commutative";
    return s.ranks <= 7 && !races(s).ok() ? "a race" : "";
}

template <class Algorithm>
std::string wrong(Algorithm a, const node_map& m, int root = 0) {
    const int n = m.view().ranks();
    a.nodes = m;
    collx::sched::set_root(a, root);
    const std::string what = wrong(record_all(a, n), declared_by(a, n), m);
    if (what.empty()) return "";
    return std::string(name_of(a.op)) + " " + a.name + " on " + text(m) + "root " + std::to_string(root) + ": " + what;
}

// The first defect of any collective of two suites.
template <class Inner, class Outer>
std::string wrong_suites(const node_map& m, int root) {
    for (const std::string& w :
         {wrong(hierarchical_all_reduce<Inner, Outer>{}, m), wrong(hierarchical_reduce_scatter<Inner, Outer>{}, m),
          wrong(hierarchical_all_gather<Inner, Outer>{}, m), wrong(hierarchical_broadcast<Inner, Outer>{}, m, root),
          wrong(hierarchical_reduce<Inner, Outer>{}, m, root), wrong(hierarchical_barrier<Inner, Outer>{}, m)})
        if (!w.empty()) return w;
    return "";
}
std::string wrong_anywhere(const node_map& m, int root) {
    for (const std::string& w : {wrong_suites<rings, rings>(m, root), wrong_suites<trees, trees>(m, root),
                                 wrong_suites<rank_ordered, rank_ordered>(m, root), wrong_suites<trees, rings>(m, root),
                                 wrong(aggregated_all_to_all{}, m), wrong(leader_all_to_all{}, m),
                                 wrong(leader_all_gather{}, m), wrong(leader_barrier{}, m)})
        if (!w.empty()) return w;
    return "";
}

const node_map two_by_two{0, 0, 1, 1};

} // namespace

// ---------------------------------------------------------------------------------------------- maps
TEST_CASE("a node map knows where ranks are, whatever the nodes are called") {
    const node_map m({7, 3, 7, 9, 3, 7});
    const node_view v = m;
    CHECK(v.ranks() == 6);
    CHECK(v.nodes() == 3);
    CHECK(v.smallest() == 1);
    CHECK(v.largest() == 3);
    CHECK(!v.is_even());
    CHECK(!v.in_rank_order());
    CHECK(v.node_of(3) == 2);
    CHECK(v.local_of(5) == 2);
    CHECK(v.rank_of(1, 1) == 4);
    CHECK(std::vector<int>(v.by_node(), v.by_node() + 6) == std::vector<int>{0, 2, 5, 1, 4, 3});
    CHECK(v.members(0).rank(1) == 2);
    CHECK(v.column(1).rank(0) == 2);
    CHECK(v.column(1).rank(2) == 3); // wraps around in a smaller node
    CHECK(v.fits(6));
    CHECK(!v.fits(5));

    const node_map even = node_map::cyclic(6, 2);
    CHECK(even.view().is_even());
    CHECK(std::vector<int>(even.view().by_rail(), even.view().by_rail() + 6) == std::vector<int>{0, 1, 2, 3, 4, 5});
    const node_map blocks = node_map::blocks(6, 3);
    CHECK(blocks.view().in_rank_order());
    CHECK(std::vector<int>(blocks.view().by_rail(), blocks.view().by_rail() + 6) == std::vector<int>{0, 3, 1, 4, 2, 5});

    const node_view none = node_view{}.over(4);
    CHECK(none.nodes() == 1);
    CHECK(none.size(0) == 4);
    CHECK(none.rank_of(0, 3) == 3);
    CHECK(none.fits(17));
}

TEST_CASE("maps with different content are different") {
    CHECK(node_map({0, 0, 1}).view().hash() == node_map({5, 5, 2}).view().hash());
    CHECK(node_map({0, 0, 1}).view().hash() != node_map({0, 1, 1}).view().hash());
    CHECK(node_map({0, 0, 0}).view().hash() != node_map({0, 0, 0, 0}).view().hash());
    const node_map a{0, 0, 1, 1}, b{0, 1, 0, 1};
    CHECK(hierarchical_broadcast<>{{a, 1}}.parameter_bits() != hierarchical_broadcast<>{{a, 2}}.parameter_bits());
    CHECK(hierarchical_broadcast<>{{a, 1}}.parameter_bits() != hierarchical_broadcast<>{{b, 1}}.parameter_bits());
    CHECK(aggregated_all_to_all{a}.parameter_bits() != aggregated_all_to_all{b}.parameter_bits());
}

// ---------------------------------------------------------------------------------------------- texts
TEST_CASE("all-reduce of two nodes of two") {
    CHECK(steps(hierarchical_all_reduce<>{two_by_two}, 1, 4) ==
          lines{"in[0+2] -> 0", "0 + in[2+2] -> tmp[2+2]",                 // reduce_scatter inside: rail 1 is mine
                "tmp[0] -> 3", "3 + tmp[1] -> out[1] -> 3", "3 -> out[0]", // all_reduce along the rail, chunks 2 and 3
                "out[2+2] -> 0", "0 -> out[0+2]"});                        // all_gather inside
    // Steps count chunks from the rail's first chunk: 2 of 4 from chunk 2 on.
    const step st = record(hierarchical_all_reduce<>{two_by_two}, 1, 4).strands[0][2];
    CHECK(st.src.chunks.at(0, 4) == 2);
}

TEST_CASE("gathering counts chunks rail after rail") {
    const node_map cards = node_map::cyclic(4, 2); // nodes {0, 2} and {1, 3}
    CHECK(steps(hierarchical_all_gather<>{cards}, 1, 4) ==
          lines{"in[1] -> out[1]", "in[1] -> 0", "0 -> out[0]", "out[0+2] -> 3", "3 -> out[2+2]"});
    const program p = record(hierarchical_all_gather<>{two_by_two}, 1, 4);
    CHECK(p.strands.size() == 1);
    const step& last = p.strands[0].back(); // from rank 0, chunks 0 and 2
    CHECK(last.dst.chunks.at(0, 4) == 0);
    CHECK(last.dst.chunks.at(1, 4) == 2);
}

TEST_CASE("the root itself stands for its node") {
    const node_map m({0, 0, 0, 1, 1, 1});
    CHECK(steps(hierarchical_broadcast<trees>{{m, 4}}, 4, 6) ==
          lines{"in[0] -> 1", "in[0] -> out[0]", "out[0] -> 3", "out[0] -> 5"});
    CHECK(steps(hierarchical_broadcast<trees, rings>{{m, 4}}, 4, 6).size() == 4 + 1 + 2); // a chain makes 4 chunks
    CHECK(steps(hierarchical_reduce<trees>{{m, 4}}, 1, 6) ==
          lines{"0 + in[0] -> tmp[0]", "tmp[0] + 2 -> tmp[0]", "tmp[0] -> 4"});
}

TEST_CASE("aggregated exchange of three nodes of two") {
    const node_map m = node_map::blocks(6, 2);
    const aggregated_all_to_all b{m};
    CHECK(steps(b, 0, 6, 0) == lines{"in[1] -> 1", "in[3+2 by 1/2] -> 1"});
    CHECK(steps(b, 0, 6, 1) == lines{"in[0] -> out[0]", "in[2+2 by 1/2] -> tmp[0+2 by 1/2]", "1 -> out[1]",
                                     "1 -> tmp[1+2 by 1/2]", "tmp[0+2] -> 2", "tmp[2+2] -> 4"});
    CHECK(steps(b, 0, 6, 2) == lines{"4 -> out[4+2]", "2 -> out[2+2]"});
}

TEST_CASE("exchange of two nodes of three through their leaders") {
    const node_map m = node_map::blocks(6, 3);
    const leader_all_to_all a{m};
    CHECK(steps(a, 1, 6, 0) == lines{"in[3+3] -> 0", "in[2] -> 2", "in[0] -> 0"});
    CHECK(steps(a, 1, 6, 1) == lines{"in[1] -> out[1]", "0 -> out[0]", "2 -> out[2]", "0 -> out[3+3]"});
    CHECK(steps(a, 0, 6, 1) == lines{"in[3+3] -> tmp[0+3 by 1/3]", "1 -> tmp[1+3 by 1/3]", "2 -> tmp[2+3 by 1/3]",
                                     "tmp[0+9] -> 3", "in[0] -> out[0]", "2 -> out[2]", "1 -> out[1]"});
    CHECK(steps(a, 0, 6, 0) == lines{"in[1] -> 1", "in[2] -> 2", "3 -> tmp[0+9 by 3/3]", "tmp[3+3] -> 1",
                                     "tmp[6+3] -> 2", "tmp[0+3] -> out[3+3]"});
}

// ---------------------------------------------------------------------------------------------- every map
TEST_CASE("hierarchical algorithms are right on every map of up to five ranks") {
    int maps = 0;
    for (int n = 1; n <= 5; ++n) {
        std::vector<int> node(static_cast<unsigned>(n), 0);
        const std::function<void(int, int)> extend = [&](int r, int used) {
            if (r == n) {
                ++maps;
                for (int root = 0; root < n; ++root) CHECK(wrong_anywhere(node_map(node), root) == "");
                return;
            }
            for (int k = 0; k <= used; ++k) {
                node[static_cast<unsigned>(r)] = k;
                extend(r + 1, k == used ? used + 1 : used);
            }
        };
        extend(0, 0);
    }
    CHECK(maps == 1 + 2 + 5 + 15 + 52); // Bell's numbers: all ways to partition the ranks
}

TEMPLATE_TEST_CASE("a reduction on one node is right for every root and order of its ranks", "", rings, trees,
                   rank_ordered) {
    std::vector<int> p{0, 1, 2, 3};
    do {
        const node_map one({0, 0, 0, 0}, p);
        for (int root = 0; root < 4; ++root) {
            const hierarchical_reduce<TestType> a{{one, root}};
            const auto f = facts_of(record_all(a, 4));
            INFO("root " << root);
            CHECK((f.ok && f.tmp_chunks <= a.tmp_chunks(4)));
        }
    } while (std::next_permutation(p.begin(), p.end()));
}

TEST_CASE("hierarchical algorithms are right on random maps") {
    int even = 0, uneven = 0;
    CHECK(rc::check("random maps of up to 24 ranks", [&] {
        const int n = *rc::gen::inRange(1, 25), most = *rc::gen::inRange(1, n + 1);
        const auto node = *rc::gen::container<std::vector<int>>(static_cast<std::size_t>(n), rc::gen::inRange(0, most));
        const node_map m(node);
        ++(m.view().is_even() ? even : uneven);
        const std::string w = wrong_anywhere(m, *rc::gen::inRange(0, n));
        if (!w.empty()) RC_FAIL(w);
    }));
    CHECK(rc::check("random even maps of up to 24 ranks", [&] {
        const int nodes = *rc::gen::inRange(2, 9), each = *rc::gen::inRange(2, 24 / nodes + 1);
        std::vector<int> node;
        for (int r = 0; r < nodes * each; ++r) node.push_back(r % nodes);
        for (std::size_t i = node.size(); i > 1; --i)
            std::swap(node[i - 1], node[static_cast<std::size_t>(*rc::gen::inRange(0, static_cast<int>(i)))]);
        ++even;
        const std::string w = wrong_anywhere(node_map(node), *rc::gen::inRange(0, nodes * each));
        if (!w.empty()) RC_FAIL(w);
    }));
    CHECK(even + uneven >= 200);
}

TEST_CASE("hierarchical algorithms are right on larger machines") {
    CHECK(wrong_anywhere(node_map::blocks(64, 8), 37) == "");
    CHECK(wrong_anywhere(node_map::cyclic(48, 6), 47) == "");
    CHECK(wrong_anywhere(node_map::blocks(50, 8), 49) == ""); // the last node has two ranks
    std::vector<int> mixed;
    for (int k = 0; const int size : {1, 13, 4, 9, 8, 1}) mixed.insert(mixed.end(), static_cast<unsigned>(size), k++);
    CHECK(wrong_anywhere(node_map(mixed), 20) == "");
}

// ---------------------------------------------------------------------------------------------- costs
TEST_CASE("even nodes: all rails at once, and between nodes as few bytes as there can be") {
    for (const int nodes : {2, 3, 4})
        for (const int each : {2, 4}) {
            INFO(nodes << " nodes of " << each);
            const int n = nodes * each;
            const node_map m = node_map::blocks(n, each);
            const auto reduce = between(hierarchical_all_reduce<>{m}, m);
            CHECK(reduce.messages == 2 * (nodes - 1)); // each with 1/n of the buffer, from every rank
            CHECK(reduce.total_messages == 2 * n * (nodes - 1));
            CHECK(reduce.total_chunks == 2 * n * (nodes - 1));
            CHECK(facts_of(hierarchical_all_reduce<>{m}, n).chunks_sent == 2 * nodes * (each - 1) + 2 * (nodes - 1));
            CHECK(between(hierarchical_all_gather<>{m}, m).total_chunks == n * (nodes - 1));
            CHECK(between(hierarchical_reduce_scatter<>{m}, m).total_chunks == n * (nodes - 1));
            CHECK(between(hierarchical_broadcast<trees>{{m, 1}}, m).total_messages == nodes - 1);
            CHECK(between(hierarchical_reduce<trees>{{m, 1}}, m).total_messages == nodes - 1);
            CHECK(between(hierarchical_barrier<>{m}, m).total_messages == nodes * log2_ceiling(nodes));
        }
    // A flat ring over ranks that are assigned round-robin crosses nodes at every step.
    const node_map cards = node_map::cyclic(8, 2);
    CHECK(between(ring_all_reduce{}, cards).total_messages == 8 * 14);
    CHECK(between(hierarchical_all_reduce<>{cards}, cards).total_messages == 8 * 2);
}

TEST_CASE("fewer rails than ranks: one message of one rank of each node crosses, whatever the nodes' sizes") {
    for (const node_map& m :
         {node_map::blocks(8, 4), node_map::cyclic(8, 2), node_map::blocks(7, 3), node_map({1, 0, 0, 1, 1, 0}),
          node_map::blocks(12, 4), node_map({0, 0, 1}), node_map({0, 0, 0}), node_map({0, 1, 2})})
        for (const int rails : {1, 2}) {
            INFO("nodes " << text(m) << ", " << rails << " rails");
            const hierarchical_all_reduce<trees> a{{m}, rails};
            const int n = m.view().ranks(), nodes = m.view().nodes();
            CHECK(wrong(record_all(a, n), declared_by(a, n), m) == "");
            const int used = rails < m.view().smallest() ? rails : m.view().smallest();
            const int each = between(recursive_doubling_all_reduce{}, node_map::blocks(nodes, 1)).total_messages;
            CHECK(between(a, m).total_messages == (nodes == 1 ? 0 : used * each));
            CHECK(a.parameter_bits() != hierarchical_all_reduce<trees>{m}.parameter_bits());
        }
}

TEST_CASE("uneven nodes: as many rails as the smallest node has ranks") {
    const node_map m({0, 0, 0, 0, 0, 1, 1, 1});
    const auto c = between(hierarchical_all_reduce<>{m}, m);
    const hierarchical_all_reduce<> a{m};
    CHECK(c.total_messages == 3 * 2 * 2);     // 3 rails of 2 ranks, 2 messages each
    CHECK(c.total_chunks == 2 * a.chunks(8)); // 2 (N - 1)/N S for each of 2 nodes
    CHECK(between(hierarchical_reduce_scatter<>{m}, m).total_chunks == 8);
    CHECK(between(hierarchical_all_gather<>{m}, m).total_chunks == 8);
    CHECK(between(hierarchical_all_gather<trees>{m}, m).total_messages == 8);
}

TEST_CASE("aggregation: N - 1 messages of G chunks instead of (N - 1) G of one") {
    for (const int nodes : {2, 3, 5})
        for (const int each : {1, 2, 4}) {
            INFO(nodes << " nodes of " << each);
            const int n = nodes * each;
            for (const node_map& m : {node_map::blocks(n, each), node_map::cyclic(n, nodes)}) {
                const auto c = between(aggregated_all_to_all{m}, m), direct = between(pairwise_all_to_all{}, m);
                CHECK(c.messages == nodes - 1);
                CHECK(c.chunks_sent == (nodes - 1) * each);
                CHECK(c.total_messages == n * (nodes - 1));
                CHECK(direct.messages == (nodes - 1) * each);
                CHECK(c.total_chunks == direct.total_chunks);
                const facts f = facts_of(aggregated_all_to_all{m}, n);
                CHECK(f.messages == nodes - 1 + (each > 1 ? 2 * (each - 1) : 0));
                CHECK(f.min_depth == 1);
            }
        }
}

TEST_CASE("through leaders one message goes from each node to each other one, whatever their sizes") {
    for (const auto& node : {std::vector<int>{0, 0, 0, 0, 1, 1, 1, 1},
                             {0, 1, 0, 1, 0, 1},
                             {0, 0, 0, 0, 0, 1, 1, 2},
                             {0, 1, 2, 2, 1, 0, 3}}) {
        const node_map m(node);
        const int n = m.view().ranks(), nodes = m.view().nodes();
        const schedule s = record_all(leader_all_to_all{m}, n);
        std::vector<int> messages(static_cast<unsigned>(nodes * nodes), 0);
        for (int r = 0; r < n; ++r)
            for (const auto& strand : s.programs[static_cast<unsigned>(r)].strands)
                for (const step& st : strand) {
                    if ((st.what & collx::sched::send) == 0) continue;
                    const int to = m.view().node_of(st.peer_to), from = m.view().node_of(r);
                    if (to == from) continue;
                    CHECK((m.view().local_of(r) == 0 && m.view().local_of(st.peer_to) == 0));
                    ++messages[static_cast<unsigned>(from * nodes + to)];
                }
        for (int a = 0; a < nodes; ++a)
            for (int b = 0; b < nodes; ++b) CHECK(messages[static_cast<unsigned>(a * nodes + b)] == (a == b ? 0 : 1));
        CHECK(between(leader_all_to_all{m}, m).total_chunks == between(pairwise_all_to_all{}, m).total_chunks);
    }
}

// The contract of aggregated_counts: the count of a chunk is stored in the scratch cell where the chunk itself will be.
std::string wrong_counts(const node_map& m) {
    const int n = m.view().ranks();
    const schedule data = record_all(aggregated_all_to_all{m}, n), counts = record_all(aggregated_counts{m}, n);
    if (!verify(counts).ok()) return "the counts do not come to an end on " + text(m);
    if (between(aggregated_counts{m}, m).total_messages != 0) return "counts between nodes on " + text(m);
    for (unsigned r = 0; r < static_cast<unsigned>(n); ++r) {
        std::vector<std::vector<step>> kept(2); // the data's steps that fill scratch, and the sends to carriers
        for (const step& st : data.programs[r].strands[1])
            if (st.dst.where == place::tmp) kept[1].push_back(st);
        for (const step& st : data.programs[r].strands[0])
            if (!(st.src.chunks == chunk_set(st.peer_to))) kept[0].push_back(st);
        auto strands = counts.programs[r].strands;
        strands.resize(2);
        if (strands != kept) return "rank " + std::to_string(r) + " on " + text(m);
    }
    return "";
}

TEST_CASE("carriers learn counts where they keep elements") {
    CHECK(wrong_counts(node_map::blocks(12, 4)) == "");
    CHECK(wrong_counts(node_map({0, 1, 0, 2, 2, 1, 0})) == "");
    CHECK(rc::check("random maps", [&] {
        const int n = *rc::gen::inRange(1, 25), most = *rc::gen::inRange(1, n + 1);
        const std::string w = wrong_counts(
            node_map(*rc::gen::container<std::vector<int>>(static_cast<std::size_t>(n), rc::gen::inRange(0, most))));
        if (!w.empty()) RC_FAIL(w);
    }));
}

// The same contract for leader_counts: for data that leaves the node, and for data that arrives.
std::string wrong_leader_counts(const node_map& m) {
    const int n = m.view().ranks();
    const leader_all_to_all a{m};
    const schedule data = record_all(a, n), sent = record_all(a.counts(), n),
                   expected = record_all(a.expected_counts(), n);
    if (!verify(sent).ok() || !verify(expected).ok()) return "the counts do not come to an end on " + text(m);
    if (between(a.counts(), m).total_messages != 0) return "counts between nodes on " + text(m);
    for (int r = 0; r < n; ++r) {
        std::vector<step> up, all, down, told; // the collected and the distributed data, and the counts of both
        const auto u = static_cast<unsigned>(r);
        for (const step& st : data.programs[u].strands[1]) // `expected` takes the ranks' own order, as `sent` does
            if (st.dst.where == place::tmp) up.push_back(st);
        for (const step& st : data.programs[u].strands[0])
            if (st.src.where == place::tmp) down.push_back(st);
        for (const step& st : sent.programs[u].strands[0])
            if (st.dst.where == place::tmp) all.push_back(st);
        for (const step& st : expected.programs[u].strands[0])
            if (st.dst.where == place::tmp) told.push_back(st);
        if (up != all || down.size() != told.size()) return "rank " + std::to_string(r) + " on " + text(m);
        for (std::size_t i = 0; i < told.size(); ++i) { // its own counts come first, its own data last
            const step& st = down[(i + down.size() - 1) % down.size()];
            if (st.src != told[i].dst || st.peer_to != told[i].peer_from)
                return "rank " + std::to_string(r) + " expects elsewhere on " + text(m);
        }
        if (m.view().nodes() == 1 || m.view().local_of(r) == 0) continue;
        for (const schedule* s : {&sent, &expected}) {
            const auto& strand = s->programs[u].strands[0];
            if (strand.size() != 1 || strand[0].src.chunks != data.programs[u].strands[0][0].src.chunks)
                return "rank " + std::to_string(r) + " hands up something else on " + text(m);
        }
    }
    return "";
}

TEST_CASE("leaders learn counts where they keep elements") {
    CHECK(wrong_leader_counts(node_map::blocks(12, 4)) == "");
    CHECK(wrong_leader_counts(node_map({0, 1, 0, 2, 2, 1, 0})) == "");
    CHECK(wrong_leader_counts(node_map({0, 1, 2})) == "");
    CHECK(rc::check("random maps", [&] {
        const int n = *rc::gen::inRange(1, 25), most = *rc::gen::inRange(1, n + 1);
        const std::string w = wrong_leader_counts(
            node_map(*rc::gen::container<std::vector<int>>(static_cast<std::size_t>(n), rc::gen::inRange(0, most))));
        if (!w.empty()) RC_FAIL(w);
    }));
}

TEST_CASE("aggregation stays on its rail where nodes are even, and shares the work where they are not") {
    const node_map m = node_map::cyclic(12, 3);
    const auto rail = [&](int r) { return m.view().local_of(r); };
    const schedule s = record_all(aggregated_all_to_all{m}, 12);
    for (int r = 0; r < 12; ++r)
        for (const auto& strand : s.programs[static_cast<unsigned>(r)].strands)
            for (const step& st : strand)
                if ((st.what & collx::sched::send) != 0 && m.view().node_of(st.peer_to) != m.view().node_of(r))
                    CHECK(rail(st.peer_to) == rail(r));
    const node_map uneven({0, 0, 0, 1, 2, 3, 4, 5, 6});
    CHECK(between(aggregated_all_to_all{uneven}, uneven).messages == 8); // single ranks: one for every other rank
    const node_map two({0, 0, 0, 0, 0, 0, 1, 1});
    CHECK(between(aggregated_all_to_all{two}, two).messages == 3); // 6 ranks there, 2 carriers here
}

TEST_CASE("what is declared is least where it can be") {
    const node_map m = node_map::blocks(8, 4);
    CHECK(misdeclared(aggregated_all_to_all{m}, 8) == nullptr);
    CHECK(misdeclared(leader_all_to_all{m}, 8) == nullptr);
    CHECK(misdeclared(leader_all_gather{{m}}, 8) == nullptr);
    CHECK(misdeclared(leader_barrier{{m}}, 8) == nullptr);
    CHECK(misdeclared(hierarchical_all_reduce<>{m}, 8) == nullptr);
    CHECK(misdeclared(hierarchical_all_reduce<rank_ordered>{m}, 8) == nullptr);
    CHECK(misdeclared(hierarchical_reduce_scatter<>{m}, 8) == nullptr);
    CHECK(misdeclared(hierarchical_all_gather<>{m}, 8) == nullptr);
    CHECK(misdeclared(hierarchical_reduce<trees>{{m, 3}}, 8) == nullptr);
    CHECK(misdeclared(hierarchical_broadcast<trees>{{m, 3}}, 8) == nullptr);
    CHECK(misdeclared(hierarchical_barrier<>{m}, 8) == nullptr);
}

TEST_CASE("operands stay in rank order while nodes are intervals of ranks") {
    const node_map intervals({0, 0, 1, 1, 1, 2}), cards = node_map::cyclic(6, 3), even = node_map::blocks(6, 3);
    using ordered = hierarchical_all_reduce<rank_ordered>;
    CHECK(!ordered{intervals}.needs_commutative_for(6));
    CHECK(!ordered{even}.needs_commutative_for(6));
    CHECK(ordered{cards}.needs_commutative_for(6));
    CHECK(hierarchical_all_reduce<>{even}.needs_commutative_for(6));
    CHECK(verify(ordered{intervals}, 6).order == reduction_order::rank_order);
    CHECK(verify(hierarchical_reduce_scatter<rank_ordered>{even}, 6).order == reduction_order::rank_order);
    CHECK(verify(hierarchical_reduce<trees>{{intervals, 4}}, 6).order == reduction_order::rank_order);
    CHECK(verify(ordered{cards}, 6).order == reduction_order::unordered);
}

// A complete reduction is stored to the output by the step that completes it: only that step applies post hooks.
TEST_CASE("no complete reduction is copied from scratch") {
    const auto copies = [](auto a, const node_map& m) {
        a.nodes = m;
        int count = 0;
        for (const program& p : record_all(a, m.view().ranks()).programs)
            for (const step& st : p.strands[0])
                count += (st.what & (collx::sched::reduce | collx::sched::reduce_after)) == 0 &&
                         st.src.where == place::tmp && st.dst.where == place::out;
        return count;
    };
    for (const node_map& m :
         {node_map({0, 0, 1, 1}), node_map({0, 0, 0, 1}), node_map({0, 0, 0}), node_map({0, 1, 2})}) {
        CHECK(copies(hierarchical_all_reduce<>{}, m) == 0);
        CHECK(copies(hierarchical_reduce_scatter<>{}, m) == 0);
        CHECK(copies(hierarchical_reduce<>{}, m) == 0);
        CHECK(copies(hierarchical_reduce<trees>{}, m) == 0);
    }
}

// ---------------------------------------------------------------------------------------------- mutants
namespace {

// Suites with one mistake each.
struct lost_operand : ring_all_reduce {
    template <class Ex>
    constexpr void operator()(Ex& ex, int r, int n) const {
        if (n != 2) return ring_all_reduce::operator()(ex, r, n);
        ex.step(collx::sched::send, to(1 - r), in({0, 2}));
        ex.step(collx::sched::recv | copy, from(1 - r), out({0, 2}));
    }
};
struct shifted_gather : ring_all_gather {
    template <class Ex>
    constexpr void operator()(Ex& ex, int r, int n) const {
        ex.step(copy, in(r), out(r));
        for (int k = 1; k < n; ++k) ex.step(collx::sched::send, to((r + k) % n), in((r + 1) % n));
        for (int k = 1; k < n; ++k) ex.step(collx::sched::recv | copy, from((r + n - k) % n), out((r + n - k) % n));
    }
};
// Reads its input again after it has written scratch memory of the same chunk.
struct forgetful_reduce : linear_reduce {
    template <class Ex>
    constexpr void operator()(Ex& ex, int r, int n) const {
        if (n == 1) return ex.step(copy, in(0), out(0));
        if (r != root) return ex.step(collx::sched::send, to(root), in(0));
        const int first = root == 0 ? 1 : 0;
        ex.step(collx::sched::recv | copy, from(first), tmp(0));
        for (int k = first + 1; k < n; ++k)
            if (k != root) ex.step(collx::sched::recv | collx::sched::reduce | copy, from(k), tmp(0), tmp(0));
        ex.step(copy, tmp(0), tmp(0));
        ex.step(collx::sched::send, to(root), in(0));
        ex.step(collx::sched::recv | collx::sched::reduce | copy, from(root), tmp(0), out(0));
    }
    static constexpr bool needs_commutative = true;
};
struct wrong_part : ring_reduce_scatter {
    template <class Ex>
    constexpr void operator()(Ex& ex, int r, int n) const {
        ring_reduce_scatter::operator()(ex, (r + 1) % n, n); // another rank's part
    }
};
struct with_lost_operand : rings {
    using all_reduce = lost_operand;
};
struct with_shifted_gather : rings {
    using all_gather = shifted_gather;
};
struct with_forgetful_reduce : rings {
    using reduce = forgetful_reduce;
};
struct with_wrong_part : rings {
    using reduce_scatter = wrong_part;
};

} // namespace

TEST_CASE("mistakes of a part are mistakes of the whole") {
    const node_map even = node_map::blocks(6, 3);
    CHECK(verify(hierarchical_all_reduce<rings, with_lost_operand>{even}, 6).what == problem::incomplete_out);
    CHECK(verify(hierarchical_all_gather<with_shifted_gather, rings>{even}, 6).what != problem::none);
    CHECK(verify(hierarchical_all_reduce<with_shifted_gather, rings>{even}, 6).what != problem::none);
    CHECK(verify(hierarchical_all_reduce<with_wrong_part, rings>{even}, 6).what != problem::none);
    // Correct alone and as the inner part; as the outer part its input is scratch memory.
    CHECK(verify(forgetful_reduce{}, 3).ok());
    const node_map three_nodes = node_map::blocks(6, 2);
    CHECK(verify(hierarchical_reduce<with_forgetful_reduce, rings>{{three_nodes, 0}}, 6).ok());
    CHECK(verify(hierarchical_reduce<rings, with_forgetful_reduce>{{three_nodes, 0}}, 6).what != problem::none);
}

TEST_CASE("no step of a hierarchical schedule can be left out, moved or sent elsewhere") {
    int mutants = 0, survivors = 0;
    const auto try_all = [&](const schedule& good, const char* name) {
        REQUIRE(verify(good).ok());
        const auto judge = [&](schedule s, const char* what, int r, std::size_t i) {
            survey(s);
            ++mutants;
            if (!verify(s).ok() || !races(s).ok()) return;
            ++survivors;
            CAPTURE(name, what, r, i);
            CHECK(false);
        };
        for (int r = 0; r < good.ranks; ++r)
            for (std::size_t k = 0; k < good.programs[static_cast<unsigned>(r)].strands.size(); ++k)
                for (std::size_t i = 0; i < good.programs[static_cast<unsigned>(r)].strands[k].size(); ++i) {
                    const auto change = [&](const char* what, auto&& f) {
                        schedule s = good;
                        auto& strand = s.programs[static_cast<unsigned>(r)].strands[k];
                        f(strand);
                        judge(std::move(s), what, r, i);
                    };
                    change("left out", [&](auto& p) { p.erase(p.begin() + static_cast<std::ptrdiff_t>(i)); });
                    const step& st = good.programs[static_cast<unsigned>(r)].strands[k][i];
                    const chunk_set& c = st.src.where != place::none ? st.src.chunks : st.dst.chunks;
                    if (good.chunks > 1 && (c.size == 0 ? good.chunks : c.size) > 1)
                        change("another chunk",
                               [&](auto& p) { ++(p[i].src.where != place::none ? p[i].src : p[i].dst).chunks.first; });
                    if ((st.what & (collx::sched::recv | collx::sched::send)) != 0)
                        change("another peer",
                               [&](auto& p) { (p[i].peer_from >= 0 ? p[i].peer_from : p[i].peer_to) += 1; });
                    if (c.order != nullptr)
                        change("no order", [&](auto& p) {
                            auto& set = (p[i].src.where != place::none ? p[i].src : p[i].dst).chunks;
                            std::vector<int> a, b;
                            for (int x = 0; x < set.count; ++x) a.push_back(set.at(x, good.chunks));
                            set.order = nullptr;
                            for (int x = 0; x < set.count; ++x) b.push_back(set.at(x, good.chunks));
                            if (a == b) p.clear(); // not a mutant: choose another step
                        });
                }
    };
    const node_map even({0, 1, 0, 1}), uneven({0, 0, 0, 1, 1}), mixed({0, 1, 0, 2, 1});
    for (const node_map* m : {&even, &uneven, &mixed}) {
        const int n = m->view().ranks();
        try_all(record_all(hierarchical_all_reduce<>{*m}, n), "all_reduce");
        try_all(record_all(hierarchical_reduce_scatter<>{*m}, n), "reduce_scatter");
        try_all(record_all(hierarchical_all_gather<>{*m}, n), "all_gather");
        try_all(record_all(hierarchical_all_gather<trees>{*m}, n), "all_gather of trees");
        try_all(record_all(hierarchical_broadcast<>{{*m, 1}}, n), "broadcast");
        try_all(record_all(hierarchical_reduce<>{{*m, 2}}, n), "reduce");
        try_all(record_all(aggregated_all_to_all{*m}, n), "all_to_all");
        try_all(record_all(leader_all_to_all{*m}, n), "all_to_all through leaders");
        try_all(record_all(leader_all_gather{{*m}}, n), "all_gather through leaders");
    }
    CHECK(survivors == 0);
    CHECK(mutants > 1500);
    WARN(mutants << " mutants");
}

TEST_CASE("a barrier that skips a phase leaks") {
    const node_map m({0, 0, 1, 1, 1});
    schedule s = record_all(hierarchical_barrier<>{m}, 5);
    REQUIRE(verify(s).ok());
    for (int r : {0, 2}) { // the outer barrier: one send and one receive at each first rank
        auto& p = s.programs[static_cast<unsigned>(r)].strands[0];
        collx::detail::erase_if(p, [&](const step& st) {
            const int peer = st.peer_from >= 0 ? st.peer_from : st.peer_to;
            return m.view().node_of(peer) != m.view().node_of(r);
        });
    }
    CHECK(verify(s).what == problem::leaky_barrier);
}

TEST_CASE("sets of chunks outside their part are refused") {
    const node_map m = node_map::blocks(4, 2);
    const auto mutant = [&](auto&& change) {
        schedule s = record_all(hierarchical_all_reduce<>{m}, 4);
        change(s.programs[1].strands[0][2].src.chunks);
        return verify(s).what;
    };
    CHECK(mutant([](chunk_set&) {}) == problem::none);
    CHECK(mutant([](chunk_set& c) { c.base = 3; }) == problem::bad_chunk);
    CHECK(mutant([](chunk_set& c) { c.size = -1; }) == problem::bad_chunk);
    CHECK(mutant([](chunk_set& c) { c.count = 3; }) == problem::bad_chunk);
    CHECK(mutant([](chunk_set& c) { c.base = 0; }) == problem::unset_read);
    // Scratch memory may have more chunks than the buffers, but not more than declared; the buffers may not.
    const auto passed_down = [&](auto&& change) {
        schedule s = record_all(leader_all_to_all{m}, 4);
        change(s, s.programs[0].strands[0][1]);
        return verify(s).what;
    };
    CHECK(passed_down([](schedule& s, step& st) {
              CHECK((st.dst.where == place::tmp && st.dst.chunks.base + st.dst.chunks.size == 8 && s.chunks == 4));
          }) == problem::none);
    CHECK(passed_down([](schedule&, step& st) { ++st.dst.chunks.base; }) == problem::bad_chunk);
    CHECK(passed_down([](schedule& s, step&) { --s.scratch; }) == problem::bad_chunk);
    CHECK(passed_down([](schedule&, step& st) { st.dst.where = place::out; }) == problem::bad_chunk);
}
