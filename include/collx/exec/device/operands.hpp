// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// The user's side of a fused kernel: views, operator and types of one call, and packs of elements read from and written
// to them. The rules are those of the host's mover (exec/mover.hpp): `pre` when a contribution is read, accumulators in
// between, `post` when a complete result is stored, and results are kept rounded as the others receive them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <type_traits>

#include <collx/core/element.hpp>
#include <collx/core/op.hpp>
#include <collx/core/views.hpp>
#include <collx/exec/device/cuts.hpp>
#include <collx/exec/device/units.hpp>

COLLX_BEGIN_NAMESPACE
namespace device {

// The operator of collectives that only move data.
struct move_only {};

namespace detail {

// Assignment does not matter: thrust's iterators define their own.
template <class X>
inline constexpr bool passes_by_bytes = std::is_trivially_copy_constructible_v<X>&& std::is_trivially_destructible_v<X>;

// Elements of a pack: 16 bytes on the wire, but at most 32 bytes of accumulators, because they live in registers.
constexpr int pack_elems(std::size_t wire_bytes, std::size_t acc_bytes) {
    const std::size_t v = wire_bytes >= 16 ? 1 : 16 / wire_bytes, most = acc_bytes >= 32 ? 1 : 32 / acc_bytes;
    std::size_t p = 1; // a power of two, so that packs in chunks of 16 elements begin aligned
    while (2 * p <= v && 2 * p <= most) p *= 2;
    return static_cast<int>(p);
}

COLLX_EXEC_CHECK_DISABLE
template <class View>
COLLX_HD auto element(const View& v, std::size_t i) {
    return static_cast<std::remove_cv_t<typename View::value_type>>(v[i]);
}

// N elements from `at` on, by their number counted from there, in order.
template <class View, int N>
struct elements_from {
    const View& view;
    std::size_t at;
    COLLX_HD elements_from(const View& v, std::size_t i) : view(v), at(i) {}
    COLLX_EXEC_CHECK_DISABLE
    COLLX_HD decltype(auto) operator()(unsigned k) const { return view[at + k]; }
};
template <class View, int N>
requires(N > 1) && requires(const View& v) { v.walk(0).next(); }
struct elements_from<View, N> {
    decltype(std::declval<const View&>().walk(0)) walker;
    COLLX_HD elements_from(const View& v, std::size_t i) : walker(v.walk(i)) {}
    COLLX_HD decltype(auto) operator()(unsigned) { return walker.next(); }
};

// Converts each element; narrow floats two at a time, because a device has instructions for pairs.
template <class To, class From, int V>
COLLX_HD inline pack<To, V> convert(const pack<From, V>& x) {
    if constexpr (std::is_same_v<To, From>) return x;
    pack<To, V> y;
    if constexpr (V % 2 == 0 && std::is_same_v<From, float> && (is_half_v<To> || is_fp8_v<To>)) {
        COLLX_UNROLL
        for (int k = 0; k < V; k += 2) {
            decltype(To::bits) bits[2];
            To::format::two_from_floats(bits, x.v[k], x.v[k + 1]);
            y.v[k].bits = bits[0];
            y.v[k + 1].bits = bits[1];
        }
    } else if constexpr (V % 2 == 0 && std::is_same_v<To, float> && std::is_same_v<From, bf16>) {
        std::uint32_t words[V / 2]; // not split yet: two elements are two instructions
        __builtin_memcpy(words, static_cast<const void*>(&x), sizeof words);
        COLLX_UNROLL
        for (int k = 0; k < V; k += 2) {
            float two[2];
            From::format::floats_from_word(two, words[k / 2]);
            y.v[k] = two[0];
            y.v[k + 1] = two[1];
        }
    } else if constexpr (V % 2 == 0 && std::is_same_v<To, float> && is_fp8_v<From>) {
        COLLX_UNROLL
        for (int k = 0; k < V; k += 2) {
            float two[2];
            From::format::floats_from_two(two, x.v[k].bits, x.v[k + 1].bits);
            y.v[k] = two[0];
            y.v[k + 1] = two[1];
        }
    } else {
        COLLX_UNROLL
        for (int k = 0; k < V; ++k) y.v[k] = static_cast<To>(x.v[k]);
    }
    return y;
}

} // namespace detail

// The types that a kernel is compiled for. In and Out are views (core/views.hpp), Wire is what travels, Cuts says where
// chunks lie (cuts.hpp). OwnOnly: a launch gets the buffers of its own rank only.
template <class In, class Out, class Op, class Wire = std::remove_cv_t<typename Out::value_type>,
          class Cuts = even_cuts, bool OwnOnly = false>
struct call_types {
    using in_view = In;
    using out_view = Out;
    using op_type = Op;
    using wire_type = Wire;
    using cuts_type = Cuts;
    using in_type = std::remove_cv_t<typename In::value_type>;
    using out_type = std::remove_cv_t<typename Out::value_type>;
    static constexpr bool own_only = OwnOnly;
    static constexpr bool reduces = !std::is_same_v<Op, move_only>;
    using acc_type = std::conditional_t<reduces, accumulator_t<in_type>, in_type>;
    static constexpr int elems = detail::pack_elems(sizeof(Wire), sizeof(acc_type)); // of a pack
    using acc_pack = pack<acc_type, elems>;
    using wire_pack = pack<Wire, elems>;

    static_assert(
        !reduces || !ArrayOp<Op, acc_type>,
        "collx: kernels combine elements in registers, so an operator on device memory takes two elements, not "
        "arrays.");
    static_assert(detail::passes_by_bytes<In> && detail::passes_by_bytes<Out>,
                  "collx: a view that a kernel uses must be trivially copyable; it is an argument of the kernel.");
    static_assert(detail::passes_by_bytes<Op>,
                  "collx: an operator that a kernel uses must be trivially copyable; it is an argument of the kernel.");
    static_assert(std::is_default_constructible_v<acc_type> && std::is_default_constructible_v<Wire>,
                  "collx: elements that a kernel reduces need a default constructor; they wait in registers.");
};

// How many elements one access takes: a pack of which all exist, a pack of which m exist (with flags even a short tail
// is a pack of the wire), or one element, which may lie anywhere, or none.
template <int N, bool Whole>
struct width {
    static constexpr int n = N;
    static constexpr bool is_whole = Whole;
    static constexpr bool is_aligned = Whole && N > 1;
};
// One element, or none where m is 0.
using narrow = width<1, false>;

// Elements of this size that a thread has under way where they go one by one: 64 bytes of loads, as with four packs,
// but at most 16 elements, and fewer where their accumulators would need more than 96 bytes of registers.
COLLX_HD constexpr int narrow_unroll(std::size_t bytes) {
    return bytes <= 4 ? 16 : bytes <= 8 ? 8 : bytes <= 24 ? 4 : bytes <= 48 ? 2 : 1;
}

// One rank's side of a call.
template <class Types>
struct rank_operands {
    typename Types::in_view in;
    typename Types::out_view out;
    typename Types::op_type op;
};

// Reads and writes elements of one rank's operands, as many as a width says. Whole packs are aligned where the view is
// contiguous.
template <class Env, class Types>
struct operand_access {
    using acc_type = typename Types::acc_type;
    using wire_type = typename Types::wire_type;
    using in_type = typename Types::in_type;
    using out_type = typename Types::out_type;
    using op_type = typename Types::op_type;
    static constexpr int V = Types::elems;
    template <class W>
    using acc_pack = pack<acc_type, W::n>;
    template <class W>
    using wire_pack = pack<wire_type, W::n>;

    // Where the width is not whole, m elements exist; the rest of the pack is unspecified but initialised.
    template <class W>
    COLLX_HD static acc_pack<W> read_in(const rank_operands<Types>& r, int ranks, std::size_t at, unsigned m) {
        pack<in_type, W::n> raw;
        if constexpr (W::is_aligned && Types::in_view::is_contiguous) {
            raw = load_pack<Env, in_type, W::n>(r.in.data() + at);
        } else {
            detail::elements_from<typename Types::in_view, W::n> from(r.in, at);
            COLLX_UNROLL
            for (int k = 0; k < W::n; ++k) {
                if (exists<W>(k, m)) raw.v[k] = static_cast<in_type>(from(static_cast<unsigned>(k)));
                else raw.v[k] = in_type{};
            }
        }
        if constexpr (Types::reduces && has_pre_v<op_type, in_type>) {
            COLLX_UNROLL
            for (int k = 0; k < W::n; ++k)
                if (exists<W>(k, m))
                    raw.v[k] = apply_pre(r.op, raw.v[k], hook_context{ranks, at + static_cast<unsigned>(k)});
        }
        return detail::convert<acc_type>(raw);
    }

    // Reads what this rank has stored already, for algorithms that send results on from `out`.
    template <class W>
    COLLX_HD static acc_pack<W> read_out(const rank_operands<Types>& r, std::size_t at, unsigned m) {
        if constexpr (W::is_aligned && Types::out_view::is_contiguous) {
            return detail::convert<acc_type>(load_pack<Env, out_type, W::n>(r.out.data() + at));
        } else {
            acc_pack<W> acc;
            detail::elements_from<typename Types::out_view, W::n> from(r.out, at);
            COLLX_UNROLL
            for (int k = 0; k < W::n; ++k) {
                if (exists<W>(k, m))
                    acc.v[k] = static_cast<acc_type>(static_cast<out_type>(from(static_cast<unsigned>(k))));
                else acc.v[k] = acc_type{};
            }
            return acc;
        }
    }

    template <class W>
    COLLX_HD static void write_out(const rank_operands<Types>& r, std::size_t at, unsigned m, const acc_pack<W>& acc) {
        if constexpr (W::is_aligned && Types::out_view::is_contiguous) {
            store_pack<Env>(r.out.data() + at, detail::convert<out_type>(acc));
        } else {
            detail::elements_from<typename Types::out_view, W::n> to(r.out, at);
            COLLX_UNROLL
            for (int k = 0; k < W::n; ++k)
                if (exists<W>(k, m)) to(static_cast<unsigned>(k)) = static_cast<out_type>(acc.v[k]);
        }
    }

    template <int N>
    COLLX_HD static pack<acc_type, N> from_wire(const pack<wire_type, N>& w) {
        return detail::convert<acc_type>(w);
    }
    template <int N>
    COLLX_HD static pack<wire_type, N> to_wire(const pack<acc_type, N>& acc) {
        return detail::convert<wire_type>(acc);
    }
    // A narrower wire rounds: the rank that computes a value keeps what the others receive.
    template <int N>
    COLLX_HD static pack<acc_type, N> through_wire(const pack<acc_type, N>& acc) {
        if constexpr (!rounds) return acc;
        else return from_wire(to_wire(acc));
    }

    // left op right, element by element.
    COLLX_EXEC_CHECK_DISABLE
    template <class W>
    COLLX_HD static acc_pack<W> combine(const op_type& op, const acc_pack<W>& left, const acc_pack<W>& right,
                                        unsigned m) {
        acc_pack<W> acc = left;
        if constexpr (Types::reduces) {
            COLLX_UNROLL
            for (int k = 0; k < W::n; ++k)
                if (exists<W>(k, m)) acc.v[k] = static_cast<acc_type>(op(left.v[k], right.v[k]));
        }
        return acc;
    }
    static constexpr bool has_post = [] {
        if constexpr (Types::reduces) return has_post_v<op_type, acc_type>;
        else return false;
    }();
    // A complete result is kept as the others receive it, because a later step may send it on.
    static constexpr bool rounds = !std::is_same_v<wire_type, acc_type>;
    template <class W>
    COLLX_HD static void finish(const op_type& op, int ranks, std::size_t at, unsigned m, acc_pack<W>& acc) {
        if constexpr (Types::reduces && has_post_v<op_type, acc_type>) {
            COLLX_UNROLL
            for (int k = 0; k < W::n; ++k)
                if (exists<W>(k, m))
                    acc.v[k] = static_cast<acc_type>(
                        apply_post(op, acc.v[k], hook_context{ranks, at + static_cast<unsigned>(k)}));
        }
    }

    // The elements of `in` are contiguous and travel unchanged: they can wait in registers as they were loaded.
    static constexpr bool is_wire_in = Types::in_view::is_contiguous && std::is_same_v<in_type, wire_type> &&
                                       !(Types::reduces && has_pre_v<op_type, in_type>);
    template <class W>
    COLLX_HD static wire_pack<W> read_raw(const wire_type* from, unsigned m) {
        return read_elements<W>(from, m);
    }
    template <class W>
    COLLX_HD static void write_raw(wire_type* to, unsigned m, const wire_pack<W>& w) {
        write_elements<W>(to, m, w);
    }

    // In and out have one type, and nothing changes an element on the way: one kind of access serves both.
    static constexpr bool is_plain = [] {
        if constexpr (Types::in_view::is_contiguous && Types::out_view::is_contiguous)
            return std::is_same_v<in_type, out_type> && !(Types::reduces && has_pre_v<op_type, in_type>);
        else return false;
    }();
    template <class W>
    COLLX_HD static acc_pack<W> read_plain(const in_type* from, unsigned m) {
        return detail::convert<acc_type>(read_elements<W>(from, m));
    }
    template <class W>
    COLLX_HD static void write_plain(out_type* to, unsigned m, const acc_pack<W>& acc) {
        write_elements<W>(to, m, detail::convert<out_type>(acc));
    }

    // Accumulators that wait in scratch.
    template <class W>
    COLLX_HD static acc_pack<W> read_held(const acc_type* from, unsigned m) {
        return read_elements<W>(from, m);
    }
    template <class W>
    COLLX_HD static void write_held(acc_type* to, unsigned m, const acc_pack<W>& acc) {
        write_elements<W>(to, m, acc);
    }

    // Whether copying in to out would change nothing.
    COLLX_HD static bool is_in_place(const rank_operands<Types>& from, const rank_operands<Types>& to,
                                     std::size_t in_at, std::size_t out_at) {
        if constexpr (Types::in_view::is_contiguous && Types::out_view::is_contiguous &&
                      std::is_same_v<in_type, out_type> && std::is_same_v<in_type, wire_type> &&
                      !(Types::reduces && (has_pre_v<op_type, in_type> || has_post_v<op_type, acc_type>)))
            return from.in.data() + in_at == to.out.data() + out_at;
        return false;
    }
    COLLX_HD static bool in_is_aligned(const rank_operands<Types>& r, std::size_t at) {
        if constexpr (Types::in_view::is_contiguous) return is_aligned<in_type, V>(r.in.data() + at);
        else return true;
    }
    COLLX_HD static bool out_is_aligned(const rank_operands<Types>& r, std::size_t at) {
        if constexpr (Types::out_view::is_contiguous) return is_aligned<out_type, V>(r.out.data() + at);
        else return true;
    }
    // Elements of the output from `at` on that lie before the first aligned pack.
    COLLX_HD static unsigned elems_before_pack(const rank_operands<Types>& r, std::size_t at) {
        if constexpr (Types::out_view::is_contiguous && V > 1)
            return device::elems_before_pack<out_type, V>(r.out.data() + at);
        else return 0;
    }

private:
    // Elements side by side, of any alignment where the width is not aligned.
    template <class W, class T>
    COLLX_HD static pack<T, W::n> read_elements(const T* from, unsigned m) {
        if constexpr (W::is_aligned) {
            return load_pack<Env, T, W::n>(from);
        } else {
            pack<T, W::n> raw;
            COLLX_UNROLL
            for (int k = 0; k < W::n; ++k) {
                if (exists<W>(k, m)) raw.v[k] = from[k];
                else raw.v[k] = T{};
            }
            return raw;
        }
    }
    template <class W, class T>
    COLLX_HD static void write_elements(T* to, unsigned m, const pack<T, W::n>& raw) {
        if constexpr (W::is_aligned) {
            store_pack<Env>(to, raw);
        } else {
            COLLX_UNROLL
            for (int k = 0; k < W::n; ++k)
                if (exists<W>(k, m)) to[k] = raw.v[k];
        }
    }
    template <class W>
    COLLX_HD static constexpr bool exists(int k, unsigned m) {
        return W::is_whole || static_cast<unsigned>(k) < m;
    }
};

} // namespace device
COLLX_END_NAMESPACE
