// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// How operators combine into a window's elements, by the instructions of one word or under a lock, and which operators
// a rank on another host can be asked for by name. Independent of how the request is sent.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <type_traits>

#include <collx/core/atomic.hpp>
#include <collx/core/op_hooks.hpp>
#include <collx/core/op_traits.hpp>
#include <collx/core/type_name.hpp>

COLLX_BEGIN_NAMESPACE
namespace detail {

// Elements that one instruction compares and exchanges. Others are combined under the lock of their part. The type
// alone decides this, so all ranks do the same.
template <std::size_t Bytes>
using word_of = std::conditional_t<
    Bytes == 1, std::uint8_t,
    std::conditional_t<Bytes == 2, std::uint16_t, std::conditional_t<Bytes == 4, std::uint32_t, std::uint64_t>>>;
template <class T>
inline constexpr bool is_word_v = (sizeof(T) == 1 || sizeof(T) == 2 || sizeof(T) == 4 || sizeof(T) == 8) &&
                                  alignof(T) == sizeof(T);

// Replaces each of n elements at `to` by what op makes of it and its operand. old: null, or receives the previous
// element.
using combine_fn = void (*)(const void* op, std::byte* to, const std::byte* from, std::size_t n, std::byte* old);

class window_operator;
// op: of type Op, which `run` knows. entry: null where ranks on other hosts cannot make that operator.
struct combination {
    const void* op;
    combine_fn run;
    const window_operator* entry;
    std::size_t elem_bytes;
    std::size_t operands; // elements of the operand for each element
    bool needs_lock;
};

// Operators without state that this program combines windows with. Each accumulate() in the program's source adds one
// before main(), so processes that run the same program have the same operators.
class window_operator {
public:
    // f: constructs its own operator. k: hash of the types of elements and operator. d: distance of its code from
    // mark_of_program(); 0 if the type's name identifies the operator. t: of the elements, see type_hash.
    window_operator(combine_fn f, std::uint64_t k, std::uint64_t d, std::uint64_t t, std::size_t bytes_each,
                    std::size_t count, bool locks)
        : run(f), kind(k), distance(d), type(t), elem_bytes(bytes_each), operands(count), needs_lock(locks),
          next_(first) {
        first = this;
    }
    window_operator(const window_operator&) = delete;
    static const window_operator* find(std::uint64_t kind, std::uint64_t distance) {
        const window_operator* o = first;
        while (o != nullptr && (o->kind != kind || o->distance != distance)) o = o->next_;
        return o;
    }

    const combine_fn run;
    const std::uint64_t kind, distance, type;
    const std::size_t elem_bytes, operands;
    const bool needs_lock;

private:
    const window_operator* const next_;
    static inline const window_operator* first = nullptr;
};

template <class T, class Op>
void combine_elements(const Op& op, std::byte* to, const std::byte* from, std::size_t n, std::byte* old) {
    for (std::size_t i = 0; i < n; ++i, to += sizeof(T), from += Op::operands * sizeof(T)) {
        if constexpr (is_word_v<T>) {
            using word = word_of<sizeof(T)>;
            auto& at = *reinterpret_cast<atomic<word>*>(to);
            word seen = at.load(memory_order::acquire), made = 0;
            do {
                const T next = op.template made<T>(reinterpret_cast<const std::byte*>(&seen), from);
                std::memcpy(&made, static_cast<const void*>(&next), sizeof made);
            } while (!at.compare_exchange_weak(seen, made, memory_order::acq_rel));
            if (old != nullptr) std::memcpy(old, &seen, sizeof seen);
        } else {
            if (old != nullptr) std::memcpy(old, to, sizeof(T));
            const T made = op.template made<T>(to, from);
            std::memcpy(static_cast<void*>(to), &made, sizeof made);
        }
    }
}
template <class T>
T element_at(const std::byte* p) {
    alignas(T) std::byte x[sizeof(T)]; // T may have no default constructor
    std::memcpy(x, p, sizeof x);
    return *reinterpret_cast<const T*>(x);
}
// An operator of the program. It may return a type that converts to T.
template <class Op>
struct applied {
    static constexpr std::size_t operands = 1;
    const Op& op;
    template <class T>
    T made(const std::byte* there, const std::byte* from) const {
        return static_cast<T>(op(element_at<T>(there), element_at<T>(from)));
    }
};
// Makes the second operand if the element has the bytes of the first; else keeps the element.
struct swapped {
    static constexpr std::size_t operands = 2;
    template <class T>
    T made(const std::byte* there, const std::byte* from) const {
        return element_at<T>(std::memcmp(there, from, sizeof(T)) == 0 ? from + sizeof(T) : there);
    }
};

template <class T, class Op>
void combine_with(const void* op, std::byte* to, const std::byte* from, std::size_t n, std::byte* old) {
    if constexpr (std::is_same_v<Op, swapped>) combine_elements<T>(swapped{}, to, from, n, old);
    else combine_elements<T>(applied<Op>{*static_cast<const Op*>(op)}, to, from, n, old);
}
template <class T, class Op>
void combine_with_own(const void*, std::byte* to, const std::byte* from, std::size_t n, std::byte* old) {
    const Op op{};
    combine_with<T, Op>(&op, to, from, n, old);
}
// A place in the program or library that contains the operator: distances to other libraries differ between processes.
[[gnu::visibility("hidden")]] inline void mark_of_program() {}
template <class Op>
inline constexpr std::size_t operands_of = std::is_same_v<Op, swapped> ? 2 : 1;

// Whether a name identifies its operator. Names of lambdas and local types may stand for several; their places do not.
template <class Op>
constexpr bool says_which() {
    for (const char c : type_name<Op>())
        if (c == '(' || c == '{' || c == '<') return false;
    return true;
}
template <class T, class Op>
struct registered_operator {
    static inline const window_operator entry{
        &combine_with_own<T, Op>,
        (type_hash<T>() ^ sizeof(T)) * 0x9e37'79b9'7f4a'7c15 +
            spelling_hash(type_name<Op>()), // with its namespace: there may be two max
        says_which<Op>() ? 0
                         : reinterpret_cast<std::uint64_t>(&combine_with_own<T, Op>) -
                               reinterpret_cast<std::uint64_t>(&mark_of_program),
        type_hash<T>(),
        sizeof(T),
        operands_of<Op>,
        !is_word_v<T>};
};

// Whether all operators of a type are the same. A wrapper keeps its operator as a member, and so is no empty class.
template <class Op>
inline constexpr bool has_no_state = std::is_empty_v<Op>;
template <class Op>
inline constexpr bool has_no_state<commutative_op<Op>> = has_no_state<Op>;

template <class T, class Op>
combination combination_of(const Op& op) {
    combination c{&op, &combine_with<T, Op>, nullptr, sizeof(T), operands_of<Op>, !is_word_v<T>};
    if constexpr (has_no_state<Op> && std::is_default_constructible_v<Op>) c.entry = &registered_operator<T, Op>::entry;
    return c;
}

} // namespace detail
COLLX_END_NAMESPACE
