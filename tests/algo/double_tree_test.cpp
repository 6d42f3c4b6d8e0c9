// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include <collx/algo/double_tree.hpp>

#include "checks.hpp"

using namespace checks;

namespace {

int depth(const in_order_tree& t, int v) {
    const tree_links l = t.links(v);
    const int left = l.left < 0 ? 0 : 1 + depth(t, l.left), right = l.right < 0 ? 0 : 1 + depth(t, l.right);
    return left > right ? left : right;
}

// Lists the ranks of the subtree of v from left to right; -1 for a child that does not have v as its parent.
void walk(const in_order_tree& t, int v, lines& order) {
    const tree_links l = t.links(v);
    for (int child : {l.left, l.right})
        if (child >= 0 && t.links(child).parent != v) order.push_back("unanswered");
    if (l.left >= 0) walk(t, l.left, order);
    order.push_back(std::to_string(v));
    if (l.right >= 0) walk(t, l.right, order);
}

} // namespace

TEST_CASE("both trees hold all ranks in order, each rank inner in one of them at most") {
    for (int n = 2; n <= 200; ++n) {
        INFO(n << " ranks");
        lines all;
        for (int v = 0; v < n; ++v) all.push_back(std::to_string(v));
        for (int t : {0, 1}) {
            lines order;
            walk(in_order_tree(n, t), 0, order);
            CHECK(order == all);
            CHECK(depth(in_order_tree(n, t), 0) <= log2_ceiling(n) + 1);
        }
        for (int v = 1; v < n; ++v) {
            const tree_links a = in_order_tree(n, 0).links(v), b = in_order_tree(n, 1).links(v);
            const bool leaf_in_0 = a.left < 0 && a.right < 0, leaf_in_1 = b.left < 0 && b.right < 0;
            CHECK((leaf_in_0 || leaf_in_1));
        }
    }
}

TEST_CASE("with other leaves on the way down no two strands share a channel") {
    for (int n = 9; n <= 200; ++n) {
        INFO(n << " ranks");
        std::vector<char> used(static_cast<unsigned>(n * n), 0);
        int twice = 0, edges = 0;
        for (int t : {0, 1}) {
            const in_order_tree tree(n, t);
            for (int v = 1; v < n; ++v) {
                char& up = used[static_cast<unsigned>(v * n + tree.links(v).parent)];
                char& down = used[static_cast<unsigned>(tree.links_with_moved_leaves(v).parent * n + v)];
                twice += up + down;
                up = down = 1;
                const tree_links l = tree.links_with_moved_leaves(v);
                for (int child : {l.left, l.right})
                    if (child >= 0) edges += tree.links_with_moved_leaves(child).parent == v;
            }
        }
        CHECK(twice == 0);
        CHECK(edges == 2 * (n - 2)); // every edge except the roots' has both ends
    }
}

TEST_CASE("double trees of four ranks") {
    CHECK(steps(double_tree_broadcast{}, 0, 4, 0) == lines{"in[0] -> 2", "in[0] -> out[0]"});
    CHECK(steps(double_tree_broadcast{}, 2, 4, 0) == lines{"0 -> out[0] -> 1", "out[0] -> 3"});
    CHECK(steps(double_tree_broadcast{}, 2, 4, 1) == lines{"1 -> out[1]"});
    CHECK(steps(double_tree_broadcast{}, 1, 4, 1) == lines{"3 -> out[1] -> 2"});
    CHECK(steps(double_tree_reduce{}, 2, 4, 0) == lines{"1 + in[0] -> tmp[0]", "tmp[0] + 3 -> 0"});
    CHECK(steps(double_tree_reduce{}, 0, 4, 1) == lines{"in[1] + 3 -> out[1]"});
    CHECK(steps(double_tree_all_reduce{}, 0, 4, 0) == lines{"in[0+2] + 2 -> out[0+2] -> 2"});
    CHECK(steps(double_tree_all_reduce{}, 2, 4, 1) == lines{"0 -> out[0+2] -> 1", "out[0+2] -> 3"});
}

TEMPLATE_TEST_CASE("double trees are right for all rank counts and roots", "", double_tree_broadcast,
                   double_tree_reduce, double_tree_all_reduce) {
    check_all<TestType>();
}

TEST_CASE("only a rotated double tree needs a commutative operator") {
    CHECK(verify(double_tree_reduce{}, 11).order == reduction_order::rank_order);
    CHECK(verify(double_tree_reduce{.root = 3}, 11).order == reduction_order::rotated);
    CHECK_FALSE(double_tree_reduce{}.needs_commutative_for(11));
    CHECK(double_tree_reduce{.root = 3}.needs_commutative_for(11));
}

TEST_CASE("double trees use all links alike") {
    for (int n = 9; n <= 64; ++n) {
        INFO(n << " ranks");
        CHECK(facts_of(double_tree_broadcast{}, n).chunks_sent == 2);
        CHECK(facts_of(double_tree_reduce{}, n).chunks_sent == 2);
        CHECK(facts_of(double_tree_all_reduce{}, n).chunks_sent == 4);
        CHECK(facts_of(double_tree_all_reduce{}, n).total_messages == 4 * (n - 1));
        CHECK(facts_of(double_tree_all_reduce{}, n).rounds <= 4 * (log2_ceiling(n) + 1));
    }
}
