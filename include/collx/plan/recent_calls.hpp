// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Keeps the last prepared calls of a communicator. Programs repeat the same few calls, and choosing an algorithm and
// cutting the buffers is a sixth of a short call's instructions. (Instructions without and with it, 8 bytes, one rank,
// g++ 12 -O2: all_reduce 877 and 741, barrier 571 and 415.)
#pragma once

#include <cstddef>
#include <cstdint>

#include <collx/exec/layout.hpp>
#include <collx/version.hpp>

COLLX_BEGIN_NAMESPACE

struct bound_schedule;

namespace detail {

// The result of preparing a call.
struct prepared_call {
    bound_schedule* plan = nullptr;
    chunk_layout in, out;
    std::size_t piece_elems = 0;
    bool attached = false;         // a zero-copy schedule on private buffers
    bool is_short = false;         // see run_short
    std::uint64_t fingerprint = 0; // a number that must be the same on all ranks: for communicator_core::agree
};

class recent_calls {
public:
    // Everything that the preparation depends on, for calls whose algorithm the library chooses and whose parts are
    // equal. A linker may merge equal functions, so `choose` alone does not stand for the types.
    struct key {
        const void* choose = nullptr; // a function for each collective, types, operator and kind of policies
        std::uint64_t count = 0, kind = 0;
        std::size_t elem_bytes = 0;
        int root = 0;
        unsigned how = 0; // the verb, and properties of buffers and operator
        bool operator==(const key&) const = default;
    };
    // Null: not kept. The result is valid until the next keep().
    const prepared_call* find(const key& k) const {
        const entry& e = entries_[place(k)];
        return e.of == k ? &e.call : nullptr;
    }
    // Replaces another call.
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
