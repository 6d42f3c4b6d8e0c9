// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// The ring through some processors of a machine whose narrowest link is widest. It may lead through processors that are
// no members, where that makes it wider or is the only way: the neighbour next to a card, say, when the members are
// not. (NCCL calls that PXN, and paths through a neighbour NVB.) Search, not measurement: widths are what the machine
// says.
#pragma once

#include <algorithm>
#include <vector>

#include <collx/topo/machine.hpp>

COLLX_BEGIN_NAMESPACE
namespace topo {

struct ring {
    std::vector<int> sites; // in order, each linked to the next and the last to the first; empty: none was found
    double width = 0;       // of its narrowest link
};

namespace detail {

// All rings of one length over links of at least one width, depth first.
class ring_search {
public:
    ring_search(const machine& m, const std::vector<int>& members)
        : m_(m), members_(members), is_member_(sized(m.size()), 0), is_used_(sized(m.size()), 0),
          link_used_(sized(m.size() * m.size()), 0) {
        for (const int p : members) is_member_[sized(p)] = 1;
    }
    // Whether there is a ring of `length` sites; it is in path().
    bool find(double width, int length) {
        width_ = width;
        length_ = length;
        path_.assign(1, members_.front());
        is_used_.assign(is_used_.size(), 0);
        link_used_.assign(link_used_.size(), 0);
        is_used_[sized(path_[0])] = 1;
        return extend(static_cast<int>(members_.size()) - 1);
    }
    const std::vector<int>& path() const { return path_; }
    bool has_given_up() const { return looks_ >= most_looks; }

private:
    static constexpr long most_looks = 2'000'000; // a second or less; a narrower ring is looked for then
    static unsigned sized(int i) { return static_cast<unsigned>(i); }

    // Processors are passed once, cards as often as there are links: in one way and out another.
    bool extend(int members_left) {
        const int here = path_.back(), done = static_cast<int>(path_.size());
        if (done == length_) return members_left == 0 && closes(here);
        if (members_left > length_ - done || ++looks_ >= most_looks) return false;
        for (const auto& [next, width] : m_.links(here)) {
            char& link = link_used_[sized(here * m_.size() + next)];
            if (width < width_ || link != 0 || is_used_[sized(next)] != 0) continue;
            link = 1;
            is_used_[sized(next)] = m_.is_processor(next);
            path_.push_back(next);
            if (extend(members_left - is_member_[sized(next)])) return true;
            path_.pop_back();
            is_used_[sized(next)] = 0;
            link = 0;
        }
        return false;
    }
    bool closes(int last) const {
        return m_.width(last, path_[0]) >= width_ && link_used_[sized(last * m_.size() + path_[0])] == 0;
    }

    const machine& m_;
    const std::vector<int>& members_;
    std::vector<char> is_member_, is_used_, link_used_;
    std::vector<int> path_;
    double width_ = 0;
    int length_ = 0;
    long looks_ = 0;
};

} // namespace detail

// members: two or more processors, each once.
// Ensures: no ring is wider, and none as wide passes fewer sites, unless the search gave up (machines of more than
// about 20 sites), which costs width, never correctness.
inline ring widest_ring(const machine& m, const std::vector<int>& members) {
    std::vector<double> widths;
    for (int p = 0; p < m.size(); ++p)
        for (const auto& link : m.links(p)) widths.push_back(link.second);
    std::sort(widths.rbegin(), widths.rend());
    widths.erase(std::unique(widths.begin(), widths.end()), widths.end());
    for (const double width : widths) {
        detail::ring_search search(m, members);
        for (int length = static_cast<int>(members.size()); length <= 2 * m.size() && !search.has_given_up(); ++length)
            if (search.find(width, length)) return {search.path(), width};
    }
    return {};
}

} // namespace topo
COLLX_END_NAMESPACE
