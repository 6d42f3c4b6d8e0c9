// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// A ring among some of the ranks that leads through others: which ranks are members, which only pass messages on, and
// in which order. Code that knows the links makes the route. Independent of algorithms and machines.
#pragma once

#include <cstdint>
#include <vector>

#include <collx/core/config.hpp>
#include <collx/version.hpp>

COLLX_BEGIN_NAMESPACE

// A small value with which algorithms refer to a route. Stops are numbered along it, members also among themselves.
class route_view {
public:
    constexpr route_view() = default;
    constexpr bool fits(int n) const { return table_ != nullptr && ranks_ == n; }
    COLLX_HD constexpr int members() const { return members_; }
    COLLX_HD constexpr int stop_of(int rank) const { return table_[rank]; } // -1: not on the route
    // The rank `further` stops after `stop`.
    COLLX_HD constexpr int rank_after(int stop, int further) const {
        return table_[ranks_ + (stop + further + stops_) % stops_];
    }
    COLLX_HD constexpr bool is_member(int stop) const { return table_[ranks_ + stops_ + stop] >= 0; }
    // The position of this stop, or of the last member before it.
    COLLX_HD constexpr int position(int stop) const {
        while (!is_member(stop)) stop = (stop + stops_ - 1) % stops_;
        return table_[ranks_ + stops_ + stop];
    }
    COLLX_HD constexpr int member(int position) const { return table_[ranks_ + 2 * stops_ + position]; }
    constexpr std::uint64_t hash() const { return hash_; }

private:
    friend class relay_route;
    const int* table_ = nullptr; // stops by rank; by stop: ranks, positions (-1: passes on); ranks by position
    int ranks_ = 0, stops_ = 0, members_ = 0;
    std::uint64_t hash_ = 0;
};

// A route. It must live as long as algorithm values that refer to it are bound or recorded.
class relay_route {
public:
    // stops: ranks of a communicator of n in the order of the ring, each at most once. members: those of the stops that
    // are members. Other lists, and an empty list of members, fit no communicator.
    relay_route(int n, const std::vector<int>& stops, const std::vector<int>& members) {
        const auto length = static_cast<int>(stops.size());
        table_.assign(sized(n), -1);
        for (const int r : stops) table_.push_back(r);
        table_.resize(table_.size() + stops.size(), -1);
        bool is_list = true;
        view_.hash_ = 0x5bd1'e995'7b93'b1b7;
        for (int s = 0; s < length; ++s) {
            const int r = stops[sized(s)];
            if (r < 0 || r >= n || table_[sized(r)] >= 0) {
                is_list = false;
                continue;
            }
            table_[sized(r)] = s;
            bool is_member = false;
            for (const int m : members) is_member = is_member || m == r;
            view_.hash_ = (view_.hash_ ^ sized(2 * r + (is_member ? 1 : 0))) * 0x0000'0100'0000'01b3;
            if (!is_member) continue;
            table_[sized(n + length + s)] = view_.members_++;
            table_.push_back(r);
        }
        view_.stops_ = length;
        view_.ranks_ = is_list && view_.members_ == static_cast<int>(members.size()) && view_.members_ > 0 ? n : -1;
    }
    route_view view() const {
        route_view v = view_;
        v.table_ = table_.data();
        return v;
    }
    // The view refers to this route, so a temporary route cannot be converted.
    operator route_view() const& { return view(); }
    operator route_view() const&& = delete;

private:
    static constexpr unsigned sized(int i) { return static_cast<unsigned>(i); }
    std::vector<int> table_;
    route_view view_;
};

COLLX_END_NAMESPACE
