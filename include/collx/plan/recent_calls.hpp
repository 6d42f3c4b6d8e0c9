// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// What the last calls of a communicator were prepared to: programs make the same few calls again and again, and
// choosing an algorithm and cutting the buffers is a sixth of a short call's instructions. (8 bytes, one rank, g++ 12
// -O2: all_reduce 877 without and 741 with, barrier 571 and 415.)
#pragma once

#include <cstddef>
#include <cstdint>

#include <collx/exec/layout.hpp>
#include <collx/version.hpp>

COLLX_BEGIN_NAMESPACE

struct bound_schedule;

namespace detail {

// What a call becomes.
struct prepared_call {
    bound_schedule* plan = nullptr;
    chunk_layout in, out;
    std::size_t piece_elems = 0;
    bool attached = false;  // a zero-copy schedule on private buffers
    bool is_short = false;  // see run_short
    std::uint64_t says = 0; // what ranks must have alike, as a number: for communicator_core::agree
};

class recent_calls {
public:
    // All that the preparation depends on, of calls whose algorithm the library chooses and whose parts are equal. A
    // linker may join functions that are alike, so `choose` alone does not stand for the types.
    struct key {
        const void* choose = nullptr; // a function for each collective, types, operator and kind of policies
        std::uint64_t count = 0, kind = 0;
        std::size_t elem_bytes = 0;
        int root = 0;
        unsigned how = 0; // the verb, and what is true of buffers and operator
        bool operator==(const key&) const = default;
    };
    // Null: none of them. Until the next call of keep().
    const prepared_call* find(const key& k) const {
        const entry& e = entries_[place(k)];
        return e.of == k ? &e.call : nullptr;
    }
    // In the place of another one.
    void keep(const key& k, const prepared_call& call) { entries_[place(k)] = {k, call}; }

private:
    static constexpr int places = 4; // a power of two
    struct entry {
        key of;
        prepared_call call;
    };
    // Functions begin at multiples of 16.
    static std::size_t place(const key& k) {
        return (reinterpret_cast<std::uintptr_t>(k.choose) / 16 + k.count + static_cast<unsigned>(k.root)) % places;
    }
    entry entries_[places];
};

} // namespace detail
COLLX_END_NAMESPACE
