// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Packs as many rings of one rate through the same stops as fit side by side. Searches depth first over the paths of
// topo/routes.hpp and subtracts the rate from every link that a ring crosses. Complete unless the budget of steps is
// spent; deterministic. A stop is a rank or the card by which a ring enters and leaves a host.
#pragma once

#include <vector>

#include <collx/topo/routes.hpp>

COLLX_BEGIN_NAMESPACE
namespace topo::detail {

// ways[i] is the path from stops[i] to stops[i + 1]; the last one leads to the first stop.
struct stop_ring {
    std::vector<int> stops;
    std::vector<const path*> ways;
};

class ring_packing {
public:
    // pivots: ring k begins at pivots[k % size], a member or a card.
    // once: no GPU occurs twice in a ring, as a member or between two.
    ring_packing(const graph& g, const std::vector<int>& members, const std::vector<int>& pivots, routes& r, bool once)
        : g_(g), members_(members), pivots_(pivots), routes_(r), once_(once) {}

    // Up to `most` rings of `rate` bytes/s. in_pairs: each ring together with its reverse.
    std::vector<stop_ring> find(double rate, int most, long budget, bool in_pairs) {
        rate_ = rate;
        most_ = most;
        steps_left_ = budget;
        in_pairs_ = in_pairs;
        left_.resize(static_cast<std::size_t>(g_.arcs()));
        // A little more than the rate, so that k shares of a k-th fit.
        for (int i = 0; i < g_.arcs(); ++i) left_[static_cast<std::size_t>(i)] = g_.arc_at(i).bytes_per_s * (1 + 1e-9);
        found_.clear();
        best_.clear();
        choices_.clear();
        begin_ring();
        return best_;
    }
    bool has_given_up() const { return steps_left_ <= 0; }

private:
    struct choice {
        int to;
        const path* way;
    };

    // Returns true if `most` rings are found, or the budget is spent.
    bool begin_ring() {
        if (found_.size() > best_.size()) best_ = found_;
        if (static_cast<int>(best_.size()) >= most_ || steps_left_ <= 0) return true;
        const int pivot = pivots_[found_.size() / (in_pairs_ ? 2 : 1) % pivots_.size()];
        stop_ring ring;
        ring.stops = {pivot};
        choices_.emplace_back();
        const bool is_done = extend(ring, choices_.size() > 1 && pivots_.size() == 1);
        choices_.pop_back();
        return is_done;
    }
    // A set of rings has no order, so rings from one pivot are searched in the order of their choices: while all
    // choices are those of the ring before, no lower one is tried.
    bool extend(stop_ring& ring, bool is_as_before) {
        const int here = ring.stops.back();
        const std::vector<choice> open = choices_from(ring, here);
        const auto depth = choices_.back().size();
        const std::size_t first = is_as_before ? choices_[choices_.size() - 2][depth] : 0;
        for (std::size_t k = first; k < open.size(); ++k) {
            if (--steps_left_ <= 0) return true;
            const auto& [to, way] = open[k];
            if ((once_ && passes_again(ring, *way)) || !take(*way)) continue;
            ring.ways.push_back(way);
            choices_.back().push_back(k);
            const bool closes = to == ring.stops[0];
            if (!closes) ring.stops.push_back(to);
            const bool is_done = closes ? end_ring(ring) : extend(ring, is_as_before && k == first);
            if (!closes) ring.stops.pop_back();
            choices_.back().pop_back();
            ring.ways.pop_back();
            give(*way);
            if (is_done) return true;
        }
        return false;
    }
    bool end_ring(const stop_ring& ring) {
        found_.push_back(ring);
        if (in_pairs_) found_.push_back(reversed(ring));
        const bool is_done = begin_ring();
        found_.resize(found_.size() - (in_pairs_ ? 2 : 1));
        return is_done;
    }
    // Better classes first, then shorter paths, then the next in order: the ring in rank order is tried first.
    std::vector<choice> choices_from(const stop_ring& ring, int here) {
        std::vector<choice> open;
        const auto add = [&](int to) {
            for (const path& p : routes_.between(here, to))
                if (p.bytes_per_s * (1 + 1e-9) >= rate_) open.push_back({to, &p});
        };
        const auto is_open = [&](int m) {
            return std::find(ring.stops.begin(), ring.stops.end(), m) == ring.stops.end();
        };
        const auto at = std::find(members_.begin(), members_.end(), here);
        const std::size_t n = members_.size(),
                          start = at == members_.end() ? 0 : static_cast<std::size_t>(at - members_.begin()) + 1;
        for (std::size_t k = 0; k < n; ++k)
            if (const int m = members_[(start + k) % n]; is_open(m)) add(m);
        if (open.empty() && std::none_of(members_.begin(), members_.end(), is_open)) add(ring.stops[0]);
        std::stable_sort(open.begin(), open.end(), [](const choice& a, const choice& b) {
            return a.way->type != b.way->type ? a.way->type < b.way->type : a.way->arcs.size() < b.way->arcs.size();
        });
        return open;
    }
    bool passes_again(const stop_ring& ring, const path& way) const {
        const auto is_new = [&](int s) {
            if (g_.at(s).type != site_type::gpu) return true;
            if (std::find(members_.begin(), members_.end(), s) != members_.end()) return false;
            for (const path* other : ring.ways)
                for (const int i : other->arcs)
                    if (g_.arc_at(i).to == s) return false;
            return true;
        };
        for (std::size_t k = 0; k + 1 < way.arcs.size(); ++k)
            if (!is_new(g_.arc_at(way.arcs[k]).to)) return true;
        return false;
    }
    bool take(const path& way) {
        for (std::size_t k = 0; k < way.arcs.size(); ++k)
            if (!take_from(way.arcs[k])) {
                while (k-- > 0) give_to(way.arcs[k]);
                return false;
            }
        return true;
    }
    void give(const path& way) {
        for (const int i : way.arcs) give_to(i);
    }
    bool take_from(int i) {
        const int back = g_.arc_at(i).back;
        if (left(i) < rate_ || (in_pairs_ && left(back) < rate_)) return false;
        left(i) -= rate_;
        if (in_pairs_) left(back) -= rate_;
        return true;
    }
    void give_to(int i) {
        left(i) += rate_;
        if (in_pairs_) left(g_.arc_at(i).back) += rate_;
    }
    double& left(int i) { return left_[static_cast<std::size_t>(i)]; }
    // The same ring backwards; its paths are stored in kept_.
    stop_ring reversed(const stop_ring& ring) {
        stop_ring r;
        r.stops.assign(1, ring.stops[0]);
        r.stops.insert(r.stops.end(), ring.stops.rbegin(), ring.stops.rend() - 1);
        for (auto way = ring.ways.rbegin(); way != ring.ways.rend(); ++way) {
            path back = **way;
            std::reverse(back.arcs.begin(), back.arcs.end());
            for (int& i : back.arcs) i = g_.arc_at(i).back;
            r.ways.push_back(&kept_.try_emplace(back.arcs, back).first->second);
        }
        return r;
    }

    const graph& g_;
    const std::vector<int>& members_;
    const std::vector<int>& pivots_;
    routes& routes_;
    const bool once_;
    std::vector<double> left_;
    std::vector<stop_ring> found_, best_;
    std::vector<std::vector<std::size_t>> choices_; // of each ring, as indices
    std::map<std::vector<int>, path> kept_;
    double rate_ = 0;
    long steps_left_ = 0;
    int most_ = 0;
    bool in_pairs_ = false;
};

} // namespace topo::detail
COLLX_END_NAMESPACE
