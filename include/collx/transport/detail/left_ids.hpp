// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// The last communicators that a rank has left, by their ids. What still comes for them is dropped. Communicators are
// left in destructors, so this needs no memory.
#pragma once

#include <cstddef>
#include <cstdint>

#include <collx/version.hpp>

COLLX_BEGIN_NAMESPACE

namespace detail {

class left_ids {
public:
    static constexpr std::size_t most = 1024;
    void add(std::uint64_t id) noexcept { at_[count_++ % most] = id; }
    bool has(std::uint64_t id) const noexcept {
        for (std::size_t i = 0; i < count_ && i < most; ++i)
            if (at_[i] == id) return true;
        return false;
    }

private:
    std::uint64_t at_[most] = {};
    std::size_t count_ = 0;
};

} // namespace detail

COLLX_END_NAMESPACE
