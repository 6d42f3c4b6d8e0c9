// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Events in order of time; those of one time leave in the order in which they came. In a collective thousands of ranks
// do the same at the same time, so events of one time share a bucket, and the heap holds only times.
#pragma once

#include <functional>
#include <queue>
#include <unordered_map>
#include <utility>
#include <vector>

#include <collx/sim/flows.hpp>

COLLX_BEGIN_NAMESPACE
namespace sim::detail {

template <class Event>
class event_queue {
public:
    bool empty() const { return next_ == current_.size() && times_.empty(); }
    // Requires: not empty().
    picoseconds time() const { return next_ < current_.size() ? now_ : times_.top(); }
    // Requires: `at` is not before the time of the last event taken.
    void push(picoseconds at, const Event& e) {
        if (at == now_) return current_.push_back(e);
        const auto [it, is_new] = bucket_of_.try_emplace(at, 0);
        if (is_new) {
            times_.push(at);
            if (free_.empty()) {
                free_.push_back(static_cast<int>(buckets_.size()));
                buckets_.emplace_back();
            }
            it->second = free_.back();
            free_.pop_back();
        }
        buckets_[static_cast<std::size_t>(it->second)].push_back(e);
    }
    // Requires: not empty().
    Event take() {
        if (next_ == current_.size()) {
            now_ = times_.top();
            times_.pop();
            const auto it = bucket_of_.find(now_);
            current_.clear();
            next_ = 0;
            std::swap(current_, buckets_[static_cast<std::size_t>(it->second)]);
            free_.push_back(it->second);
            bucket_of_.erase(it);
        }
        return current_[next_++];
    }

private:
    picoseconds now_ = 0;
    std::size_t next_ = 0;
    std::vector<Event> current_; // at now_
    std::vector<std::vector<Event>> buckets_;
    std::vector<int> free_;
    std::unordered_map<picoseconds, int> bucket_of_;
    std::priority_queue<picoseconds, std::vector<picoseconds>, std::greater<picoseconds>> times_;
};

} // namespace sim::detail
COLLX_END_NAMESPACE
