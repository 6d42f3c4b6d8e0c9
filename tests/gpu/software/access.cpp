// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Loads, stores, atomics, and the operations of a switch on many memories [ld, st, atom, red, multimem]. All threads
// see them at once and in program order, which PTX does not promise, so fences do nothing.
#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include <cmath>

#include "decode.hpp"

namespace software_gpu {
namespace {

std::uint64_t load(const std::byte* p, std::size_t bytes) {
    switch (bytes) {
        case 1: return __atomic_load_n(reinterpret_cast<const std::uint8_t*>(p), __ATOMIC_ACQUIRE);
        case 2: return __atomic_load_n(reinterpret_cast<const std::uint16_t*>(p), __ATOMIC_ACQUIRE);
        case 4: return __atomic_load_n(reinterpret_cast<const std::uint32_t*>(p), __ATOMIC_ACQUIRE);
        default: return __atomic_load_n(reinterpret_cast<const std::uint64_t*>(p), __ATOMIC_ACQUIRE);
    }
}
void store(std::byte* p, std::size_t bytes, std::uint64_t x) {
    switch (bytes) {
        case 1:
            return __atomic_store_n(reinterpret_cast<std::uint8_t*>(p), static_cast<std::uint8_t>(x), __ATOMIC_RELEASE);
        case 2:
            return __atomic_store_n(reinterpret_cast<std::uint16_t*>(p), static_cast<std::uint16_t>(x),
                                    __ATOMIC_RELEASE);
        case 4:
            return __atomic_store_n(reinterpret_cast<std::uint32_t*>(p), static_cast<std::uint32_t>(x),
                                    __ATOMIC_RELEASE);
        default: return __atomic_store_n(reinterpret_cast<std::uint64_t*>(p), x, __ATOMIC_RELEASE);
    }
}
std::uint64_t extended(std::uint64_t x, type t) {
    if (t == type::s8) return static_cast<std::uint64_t>(static_cast<std::int64_t>(static_cast<std::int8_t>(x)));
    if (t == type::s16) return static_cast<std::uint64_t>(static_cast<std::int64_t>(static_cast<std::int16_t>(x)));
    return x;
}
// Shared: addresses are offsets into the block's shared memory.
template <bool Shared>
std::byte* reached(warp& w, const instruction& i, unsigned l, std::size_t bytes, bool writes) {
    std::uint64_t a = w.address_of(l, i.at);
    if constexpr (Shared) {
        a += static_cast<std::uint64_t>(reinterpret_cast<std::uintptr_t>(w.of().shared()));
        if (!w.of().is_shared(a, bytes)) w.fail(fault::kind::illegal_address, l, "behind the end of shared memory");
    }
    return w.reach(l, a, bytes, bytes, writes);
}

template <bool Shared>
void load_all(warp& w, const instruction& i, lanes m) {
    const std::size_t bytes = bytes_of(i.kind);
    each(m, [&](unsigned l) {
        const std::byte* p = reached<Shared>(w, i, l, bytes * i.count, false);
        for (unsigned k = 0; k < i.count; ++k)
            if (i.to[k] >= 0) w.row(i.to[k])[l] = extended(load(p + k * bytes, bytes), i.kind);
    });
}
template <bool Shared>
void store_all(warp& w, const instruction& i, lanes m) {
    const std::size_t bytes = bytes_of(i.kind);
    ++w.of().of().wrote;
    each(m, [&](unsigned l) {
        std::byte* p = reached<Shared>(w, i, l, bytes * i.count, true);
        for (unsigned k = 0; k < i.count; ++k) store(p + k * bytes, bytes, row_view(w, i.from[k])[l]);
    });
}

template <auto F, class T, bool Shared>
void change(warp& w, const instruction& i, lanes m) {
    ++w.of().of().wrote;
    const row_view b(w, i.from[0]), c(w, i.from[i.froms - 1u]);
    using U = std::conditional_t<sizeof(T) == 4, std::uint32_t, std::uint64_t>;
    each(m, [&](unsigned l) {
        auto* p = reinterpret_cast<U*>(reached<Shared>(w, i, l, sizeof(T), true));
        U old = __atomic_load_n(p, __ATOMIC_ACQUIRE);
        for (;;) {
            const U next =
                static_cast<U>(raw_of(static_cast<T>(F(value_of<T>(old), value_of<T>(b[l]), value_of<T>(c[l])))));
            if (__atomic_compare_exchange_n(p, &old, next, false, __ATOMIC_ACQ_REL, __ATOMIC_ACQUIRE)) break;
        }
        if (i.tos != 0 && i.to[0] >= 0) w.row(i.to[0])[l] = old;
    });
}
template <auto F>
handler change_of(type t, bool shared) {
    const auto of = [&]<class T>(T) { return shared ? handler(change<F, T, true>) : handler(change<F, T, false>); };
    switch (t) {
        case type::b32:
        case type::u32: return of(std::uint32_t{});
        case type::s32: return of(std::int32_t{});
        case type::b64:
        case type::u64: return of(std::uint64_t{});
        case type::s64: return of(std::int64_t{});
        default: return nullptr;
    }
}
handler atomic_of(const opcode& op, const instruction& i, bool shared) {
    const type t = op.last_type();
    if (i.count != 1) return nullptr;
    if (op.has("add") && t == type::f32)
        return shared ? handler(change<[](float old, float b, float) { return old + b; }, float, true>)
                      : handler(change<[](float old, float b, float) { return old + b; }, float, false>);
    if (op.has("add") && t == type::f64)
        return shared ? handler(change<[](double old, double b, double) { return old + b; }, double, true>)
                      : handler(change<[](double old, double b, double) { return old + b; }, double, false>);
    if (op.has("add"))
        return change_of<[](auto old, auto b, auto) {
            return static_cast<std::uint64_t>(old) + static_cast<std::uint64_t>(b);
        }>(t, shared);
    if (op.has("exch")) return change_of<[](auto, auto b, auto) { return b; }>(t, shared);
    if (op.has("cas")) return change_of<[](auto old, auto b, auto c) { return old == b ? c : old; }>(t, shared);
    if (op.has("min")) return change_of<[](auto old, auto b, auto) { return b < old ? b : old; }>(t, shared);
    if (op.has("max")) return change_of<[](auto old, auto b, auto) { return old < b ? b : old; }>(t, shared);
    if (op.has("and")) return change_of<[](auto old, auto b, auto) { return old & b; }>(t, shared);
    if (op.has("or")) return change_of<[](auto old, auto b, auto) { return old | b; }>(t, shared);
    if (op.has("xor")) return change_of<[](auto old, auto b, auto) { return old ^ b; }>(t, shared);
    if (op.has("inc"))
        return change_of<[](auto old, auto b, auto) { return old >= b ? decltype(old){0} : old + 1; }>(t, shared);
    return nullptr;
}

// ------------------------------------------------------------------------------------------ many memories at once
std::vector<address> copies(warp& w, const instruction& i, unsigned l, std::size_t bytes) {
    const std::uint64_t a = w.address_of(l, i.at);
    if (a % bytes != 0)
        w.fail(fault::kind::misaligned_address, l, "a multicast address that is not a multiple of its size");
    std::vector<address> all = w.of().of().global.copies_of(a, bytes);
    if (all.empty()) w.fail(fault::kind::illegal_address, l, "no multicast object is at this address");
    return all;
}
float half_at(std::uint64_t x, unsigned k, bool bfloat) {
    const auto h = static_cast<std::uint16_t>(x >> (16 * k));
    return bfloat ? __bfloat162float(__ushort_as_bfloat16(h)) : __half2float(__ushort_as_half(h));
}
std::uint64_t half_from(float x, unsigned k, bool bfloat) {
    const std::uint16_t h =
        bfloat ? __bfloat16_as_ushort(__float2bfloat16_rn(x)) : __half_as_ushort(__float2half_rn(x));
    return static_cast<std::uint64_t>(h) << (16 * k);
}
enum class reduces { sum, min, max };
template <reduces How>
float reduced(float a, float b) {
    return How == reduces::sum ? a + b : How == reduces::min ? std::fmin(a, b) : std::fmax(a, b);
}
// Reduces one word of every memory into one; halves two at a time, kept as float until the end.
template <reduces How>
void reduce_copies(warp& w, const instruction& i, lanes m) {
    const bool bfloat = i.kind == type::bf16x2;
    each(m, [&](unsigned l) {
        const std::vector<address> all = copies(w, i, l, std::size_t{4} * i.count);
        for (unsigned k = 0; k < i.count; ++k) {
            float low = 0, high = 0;
            bool first = true;
            for (const address a : all) {
                const std::uint64_t x = load(w.reach(l, a + 4 * k, 4, 4, false), 4);
                const float x0 = i.kind == type::f32 ? value_of<float>(x) : half_at(x, 0, bfloat),
                            x1 = i.kind == type::f32 ? 0 : half_at(x, 1, bfloat);
                low = first ? x0 : reduced<How>(low, x0);
                high = first ? x1 : reduced<How>(high, x1);
                first = false;
            }
            w.row(i.to[k])[l] =
                i.kind == type::f32 ? raw_of(low) : half_from(low, 0, bfloat) | half_from(high, 1, bfloat);
        }
    });
}
void store_copies(warp& w, const instruction& i, lanes m) {
    ++w.of().of().wrote;
    const std::size_t bytes = bytes_of(i.kind);
    each(m, [&](unsigned l) {
        for (const address a : copies(w, i, l, bytes * i.count))
            for (unsigned k = 0; k < i.count; ++k)
                store(w.reach(l, a + k * bytes, bytes, bytes, true), bytes, row_view(w, i.from[k])[l]);
    });
}

} // namespace

handler access_of(const opcode& op, instruction& i) {
    const std::string_view name = op.name();
    const bool shared = op.has("shared");
    if (op.has("b128") || op.has("v8")) return nullptr;
    if (name == "ld") return shared ? handler(load_all<true>) : handler(load_all<false>);
    if (name == "st") return shared ? handler(store_all<true>) : handler(store_all<false>);
    if (name == "atom" || name == "red") return op.has("async") ? nullptr : atomic_of(op, i, shared);
    if (name == "fence" || name == "membar" || name == "prefetch") return [](warp&, const instruction&, lanes) {};
    if (name == "multimem" && op.has("st")) return store_copies;
    if (name == "multimem" && op.has("ld_reduce")) {
        const type t = i.kind;
        if (t != type::f32 && t != type::f16x2 && t != type::bf16x2) return nullptr;
        if (op.has("add")) return t == type::f32 || op.has("acc::f32") ? handler(reduce_copies<reduces::sum>) : nullptr;
        if (op.has("min") && t != type::f32) return reduce_copies<reduces::min>;
        if (op.has("max") && t != type::f32) return reduce_copies<reduces::max>;
    }
    return nullptr;
}

} // namespace software_gpu
