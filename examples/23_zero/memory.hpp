// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Memory counted by purpose: what a rank holds now, and the most that it has held. Ranks may be threads, so each
// thread has its own counter.
#pragma once

#include <collx/core/half.hpp>

#include <algorithm>
#include <array>
#include <cstddef>
#include <memory>
#include <vector>

namespace zero {

enum what { parameters, gradients, optimizer };

struct counter {
    std::array<std::size_t, 3> held{}, most{}; // most: of each purpose alone
    std::size_t all = 0, most_at_once = 0;
    void add(what w, std::size_t bytes) {
        most[w] = std::max(most[w], held[w] += bytes);
        most_at_once = std::max(most_at_once, all += bytes);
    }
    void remove(what w, std::size_t bytes) {
        held[w] -= bytes;
        all -= bytes;
    }
};
inline thread_local counter memory;

template <class T, what W>
struct counting {
    using value_type = T;
    template <class U>
    struct rebind {
        using other = counting<U, W>;
    };
    counting() = default;
    template <class U>
    counting(const counting<U, W>&) {}
    T* allocate(std::size_t n) {
        memory.add(W, n * sizeof(T));
        return std::allocator<T>().allocate(n);
    }
    void deallocate(T* p, std::size_t n) {
        memory.remove(W, n * sizeof(T));
        std::allocator<T>().deallocate(p, n);
    }
    friend bool operator==(const counting&, const counting&) { return true; }
};

// Mixed precision: weights and gradients have two bytes, Adam's states four.
using weights = std::vector<collx::bf16, counting<collx::bf16, parameters>>;
using slopes = std::vector<collx::bf16, counting<collx::bf16, gradients>>;
using states = std::vector<float, counting<float, optimizer>>;

} // namespace zero
