// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Another order of the same ranks: which rank is at which position. For algorithms in which it matters which ranks are
// next to each other. Code that knows the links makes the order. Independent of algorithms and machines.
#pragma once

#include <cstdint>
#include <initializer_list>

#include <collx/core/config.hpp>
#include <collx/core/growing_array.hpp>
#include <collx/version.hpp>

COLLX_BEGIN_NAMESPACE

// A small value with which algorithms refer to an order. A default view leaves ranks as they are.
class order_view {
public:
    constexpr order_view() = default;
    constexpr bool fits(int n) const { return table_ == nullptr || ranks_ == n; }
    COLLX_HD constexpr int rank_at(int position) const { return table_ == nullptr ? position : table_[position]; }
    COLLX_HD constexpr int position_of(int rank) const { return table_ == nullptr ? rank : table_[ranks_ + rank]; }
    COLLX_HD constexpr const int* ranks() const { return table_; } // by position; null: as they are
    constexpr std::uint64_t hash() const { return hash_; }

private:
    friend class rank_order;
    const int* table_ = nullptr;
    int ranks_ = 0; // -1: not a permutation, fits no communicator
    std::uint64_t hash_ = 0;
};

// An order of ranks. It must live as long as algorithm values that refer to it are bound or recorded.
class rank_order {
public:
    constexpr rank_order(std::initializer_list<int> rank_at) : table_(rank_at) { build(); }
    constexpr explicit rank_order(detail::growing_array<int> rank_at)
        : table_(static_cast<detail::growing_array<int>&&>(rank_at)) {
        build();
    }
    constexpr order_view view() const {
        order_view v = view_;
        v.table_ = table_.data();
        return v;
    }
    // The view refers to this order, so a temporary order cannot be converted.
    constexpr operator order_view() const& { return view(); }
    operator order_view() const&& = delete;

private:
    constexpr void build() {
        const auto n = static_cast<int>(table_.size());
        for (int p = 0; p < n; ++p) table_.push_back(-1);
        view_.ranks_ = n;
        view_.hash_ = 0x84222325cbf29ce4;
        for (int p = 0; p < n; ++p) {
            const int r = table_[static_cast<unsigned>(p)];
            if (r < 0 || r >= n || table_[static_cast<unsigned>(n + r)] >= 0) {
                view_.ranks_ = -1;
                return;
            }
            table_[static_cast<unsigned>(n + r)] = p;
            view_.hash_ = (view_.hash_ ^ static_cast<unsigned>(r)) * 0x0000'0100'0000'01b3;
        }
    }
    detail::growing_array<int> table_; // ranks by position, then positions by rank
    order_view view_;
};

COLLX_END_NAMESPACE
