// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// A block: warps, their shared memory and barriers. A grid: the blocks of one launch.
#pragma once

#include <deque>
#include <unordered_set>

#include "warp.hpp"

namespace software_gpu {

struct grid {
    const launch& what;
    const memory& global;
    const module& code;
    std::size_t shared_bytes = 0; // static and dynamic
    std::size_t wrote = 0;        // stores and atomics so far: a grid that makes none only waits
    // Units of 256 bytes that kernels may access; cleared now and then, because memory may be freed meanwhile.
    std::unordered_set<std::uint64_t> known;

    bool holds(address at, std::size_t bytes);
};

class block {
public:
    block(grid&, extent index, unsigned number);
    block(const block&) = delete;
    block& operator=(const block&) = delete;

    grid& of() { return grid_; }
    extent index() const { return index_; }
    unsigned number() const { return number_; }
    std::byte* shared() { return shared_begin_; }
    bool is_shared(std::uint64_t a, std::size_t bytes) const {
        const auto begin = reinterpret_cast<std::uintptr_t>(shared_begin_);
        return a - begin <= grid_.shared_bytes && bytes <= grid_.shared_bytes - (a - begin);
    }
    std::byte* frames_begin() {
        const auto at = reinterpret_cast<std::uintptr_t>(frames_.data());
        return frames_.data() + (16 - at % 16) % 16;
    }
    std::deque<warp>& warps() { return warps_; }
    bool all_ended() const;

    // [bar, barrier]: lane of w has arrived at barrier `id`, which waits for `expected` threads (0: all that live).
    void come(warp& w, unsigned lane, unsigned id, unsigned expected, bool vote);
    void look_again(); // a thread has ended, so others need not wait for it

private:
    struct barrier {
        unsigned expected = 0; // 0: all
        bool any = false, all = true;
        std::vector<std::pair<warp*, unsigned>> here;
    };
    void open_if_complete(barrier&);
    unsigned living() const;

    grid& grid_;
    extent index_;
    unsigned number_;
    std::unique_ptr<std::byte[]> shared_;
    std::byte* shared_begin_;
    std::vector<std::byte> frames_; // of all threads, with all variables
    std::deque<warp> warps_;
    std::array<barrier, 16> barriers_;
    friend class warp;
};

} // namespace software_gpu
