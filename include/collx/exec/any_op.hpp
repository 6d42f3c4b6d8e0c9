// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// An operator that is chosen at run time: an array operator over a table of loops, one for each pair of type and
// operator, which is compiled once. Elements are cells of as many bytes; only the loops interpret them.
#pragma once

#include <cstddef>
#include <cstdint>

#include <collx/core/any_type.hpp>
#include <collx/core/copy_bytes.hpp>
#include <collx/core/half.hpp>

COLLX_BEGIN_NAMESPACE
namespace detail {

template <std::size_t Bytes>
struct alignas(Bytes > 8 ? 8 : Bytes) cell {
    std::byte bytes[Bytes];
    struct chosen_at_run_time {};
};

// One entry of the table.
struct any_loop {
    // out[i] = a[i] op b[i]; out may be a or b. Null: the operator does not combine this type.
    void (*combine)(const void* a, const void* b, void* out, std::size_t n) = nullptr;
    // The same numbers as in a call whose type is known at compile time: ranks may mix both.
    std::uint64_t kind = 0;
    std::uint32_t type_hash = 0, op_hash = 0;
};
const any_loop& any_loop_of(any_type t, any_op op);

// Combines float16 or bfloat16 as float, and rounds once where several are combined at a time.
template <class Half>
void combine_as_float(const any_loop& loop, Half* out, const Half* const* s, int sources, std::size_t n) {
    constexpr std::size_t block = 1024;
    alignas(64) float sum[block], next[block];
    for (std::size_t at = 0; at < n; at += block) {
        const std::size_t m = n - at < block ? n - at : block;
        for (int k = 0; k < sources; ++k) {
            float* const to = k == 0 ? sum : next;
            for (std::size_t i = 0; i < m; ++i) to[i] = static_cast<float>(s[k][at + i]);
            if (k != 0) loop.combine(sum, next, sum, m);
        }
        for (std::size_t i = 0; i < m; ++i) out[at + i] = Half(sum[i]);
    }
}

template <std::size_t Bytes>
class any_operator {
public:
    using element = cell<Bytes>;
    any_operator(any_type t, any_op op) : type_(t), chosen_(&any_loop_of(t, op)), loop_(chosen_) {
        if (is_half()) loop_ = &any_loop_of(any_type::float32, op);
    }
    static constexpr bool is_commutative = true; // all of them
    const any_loop& chosen() const { return *chosen_; }

    void operator()(const element* in, element* inout, std::size_t n) const {
        const element* both[2] = {in, inout};
        fold(inout, both, 2, n);
    }
    // See fold_arrays().
    void fold(element* out, const element* const* s, int sources, std::size_t n) const {
        if (is_half()) {
            if constexpr (Bytes == sizeof(f16)) fold_halves(out, s, sources, n);
            return;
        }
        constexpr std::size_t block = 8192 / Bytes;
        alignas(64) element room[block];
        for (std::size_t at = 0; at < n; at += block) {
            const std::size_t m = n - at < block ? n - at : block;
            if (sources == 1) {
                copy_bytes(out + at, s[0] + at, m * Bytes);
            } else { // the destination may be a source that is still to be read
                for (int k = 1; k < sources; ++k)
                    loop_->combine(k == 1 ? s[0] + at : room, s[k] + at, k + 1 == sources ? out + at : room, m);
            }
        }
    }

private:
    bool is_half() const { return type_ == any_type::float16 || type_ == any_type::bfloat16; }
    template <class Half>
    void fold_as(element* out, const element* const* s, int sources, std::size_t n) const {
        combine_as_float(*loop_, reinterpret_cast<Half*>(out), reinterpret_cast<const Half* const*>(s), sources, n);
    }
    void fold_halves(element* out, const element* const* s, int sources, std::size_t n) const {
        if (type_ == any_type::float16) fold_as<f16>(out, s, sources, n);
        else fold_as<bf16>(out, s, sources, n);
    }
    any_type type_;
    const any_loop *chosen_, *loop_;
};

} // namespace detail

COLLX_END_NAMESPACE
