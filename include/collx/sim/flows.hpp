// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Messages under way, and their rates. Flows share links max-min fairly, by progressive filling (Bertsekas, Gallager,
// "Data Networks", 1992, 6.5.2): all rates grow equally until a link is full, whose flows then keep their rates. A
// rate changes only when a flow begins or ends, and only among flows that share links, directly or through others.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <vector>

#include <collx/sim/fabric.hpp>

COLLX_BEGIN_NAMESPACE
namespace sim {

// Times are whole numbers, so that events at one time compare equal, on every machine.
using picoseconds = std::int64_t;
// The end of simulated time: 53 days. The sum of two times does not overflow.
inline constexpr picoseconds last_picosecond = picoseconds{1} << 62;
// Errors: invalid_argument for a time behind that end.
inline void require_in_time(double ps) {
    if (!(ps < static_cast<double>(last_picosecond)))
        fail(errc::invalid_argument, -1, -1, "rates are GB/s, times ns, sizes bytes",
             "simulated times end after 53 days, and a step of this run takes or begins %.3g days later", ps / 8.64e16);
}
// The nearest whole number of picoseconds. Errors: as require_in_time().
inline picoseconds to_picoseconds(double ns) {
    require_in_time(ns * 1e3);
    return static_cast<picoseconds>(std::llround(ns * 1e3));
}

// The messages under way, and the rate of each; links are shared fairly.
class flow_set {
public:
    explicit flow_set(const std::vector<link>& links) : on_(links.size()), link_mark_(links.size(), 0) {
        for (const link& l : links) rate_of_.push_back(l.bytes_per_s / 1e12);
        room_.resize(links.size());
        count_.resize(links.size());
    }

    // Adds a flow. `most`: its highest rate in bytes/s, 0: none. The route must outlive it.
    int start(const route& r, double bytes, double most, picoseconds now) {
        int id = static_cast<int>(flows_.size());
        if (!free_.empty()) {
            id = free_.back();
            free_.pop_back();
        } else flows_.emplace_back();
        flow& f = at(id);
        const double cap = most > 0 ? most / 1e12 : std::numeric_limits<double>::infinity();
        f = {&r, bytes, 0, cap, now, f.version + 1, f.mark};
        for (const int l : r.links) {
            on_[sized(l)].push_back(id);
            touched_.push_back(l);
        }
        return id;
    }
    void end(int id) {
        flow& f = at(id);
        ++f.version;
        for (const int l : f.path->links) {
            auto& there = on_[sized(l)];
            there.erase(std::find(there.begin(), there.end(), id));
            if (!there.empty()) touched_.push_back(l);
        }
        free_.push_back(id);
    }
    unsigned version(int id) const { return flows_[sized(id)].version; }
    bool is_current(int id, unsigned version) const { return flows_[sized(id)].version == version; }

    // Computes rates after all flows that began or ended now; calls set(flow, version, time of its end) for changes.
    template <class Set>
    void share(picoseconds now, Set&& set) {
        if (touched_.empty()) return;
        ++epoch_;
        for (const int seed : touched_) {
            if (link_mark_[sized(seed)] == epoch_) continue;
            collect(seed);
            fill();
            for (const int id : found_) {
                flow& f = at(id);
                if (f.next_rate == f.rate) continue;
                f.left -= f.rate * static_cast<double>(now - f.since);
                f.rate = f.next_rate;
                f.since = now;
                const double rest = std::ceil(std::max(f.left, 0.0) / f.rate - 1e-3);
                require_in_time(rest);
                set(id, ++f.version, now + std::max<picoseconds>(0, static_cast<picoseconds>(rest)));
            }
        }
        touched_.clear();
    }

private:
    struct flow {
        const route* path = nullptr;
        double left = 0, rate = 0, most = 0; // bytes, bytes/ps
        picoseconds since = 0;
        unsigned version = 0, mark = 0;
        double next_rate = 0;
    };
    static std::size_t sized(int i) { return static_cast<std::size_t>(i); }
    flow& at(int id) { return flows_[sized(id)]; }

    // Finds the flows and links that are connected to this link.
    void collect(int seed) {
        found_.clear();
        links_.assign(1, seed);
        link_mark_[sized(seed)] = epoch_;
        for (std::size_t next = 0; next < links_.size(); ++next)
            for (const int id : on_[sized(links_[next])]) {
                if (at(id).mark == epoch_) continue;
                at(id).mark = epoch_;
                found_.push_back(id);
                for (const int l : at(id).path->links)
                    if (link_mark_[sized(l)] != epoch_) {
                        link_mark_[sized(l)] = epoch_;
                        links_.push_back(l);
                    }
            }
    }
    void fill() {
        for (const int l : links_) {
            room_[sized(l)] = rate_of_[sized(l)];
            count_[sized(l)] = static_cast<int>(on_[sized(l)].size());
        }
        open_ = found_;
        while (!open_.empty()) {
            double level = std::numeric_limits<double>::infinity();
            for (const int l : links_)
                if (count_[sized(l)] > 0) level = std::min(level, room_[sized(l)] / count_[sized(l)]);
            for (const int id : open_) level = std::min(level, at(id).most);
            const double full = level * (1 + 1e-12);
            decided_.clear();
            for (const int id : open_) {
                const auto& path = at(id).path->links;
                if (at(id).most <= full || std::any_of(path.begin(), path.end(), [&](int l) {
                        return room_[sized(l)] / count_[sized(l)] <= full;
                    })) {
                    decided_.push_back(id);
                    at(id).next_rate = level;
                } else at(id).next_rate = -1;
            }
            for (const int id : decided_)
                for (const int l : at(id).path->links) {
                    room_[sized(l)] -= level;
                    --count_[sized(l)];
                }
            open_.erase(std::remove_if(open_.begin(), open_.end(), [&](int id) { return at(id).next_rate >= 0; }),
                        open_.end());
        }
    }

    std::vector<flow> flows_;
    std::vector<int> free_, touched_, found_, links_, open_, decided_, count_;
    std::vector<std::vector<int>> on_; // flows of each link
    std::vector<double> rate_of_, room_;
    std::vector<unsigned> link_mark_;
    unsigned epoch_ = 0;
};

} // namespace sim
COLLX_END_NAMESPACE
