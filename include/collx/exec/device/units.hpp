// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Elements in packs: a pack is what one thread moves at once, 16 bytes of wire elements where their size allows. Loads
// and stores use units, the largest power of two that divides a pack, so any trivially copyable element can travel. An
// environment supplies the loads and stores; knows no step.
#pragma once

#include <cstddef>
#include <cstdint>
#include <type_traits>

#include <collx/core/config.hpp>
#include <collx/version.hpp>

COLLX_BEGIN_NAMESPACE
namespace device {

// What a thread loads or stores at once.
struct alignas(16) unit16 {
    std::uint64_t low, high;
};
// The same for elements of less than 8 bytes, which would have to be shifted out of 64 bits.
struct alignas(16) words16 {
    std::uint32_t v[4];
};

namespace detail {

template <std::size_t Bytes, class T>
struct unit_of {
    using type = std::conditional_t<sizeof(T) < 8, words16, unit16>;
};
template <class T>
struct unit_of<8, T> {
    using type = std::uint64_t;
};
template <class T>
struct unit_of<4, T> {
    using type = std::uint32_t;
};
template <class T>
struct unit_of<2, T> {
    using type = std::uint16_t;
};
template <class T>
struct unit_of<1, T> {
    using type = std::uint8_t;
};

} // namespace detail

// The largest power of two that divides n, at most 16.
constexpr std::size_t unit_bytes(std::size_t n) {
    const std::size_t p = n & (~n + 1);
    return p < 16 ? p : 16;
}

// V elements that a thread holds in registers.
template <class T, int V>
struct pack {
    static constexpr std::size_t bytes = sizeof(T) * static_cast<std::size_t>(V);
    static constexpr std::size_t alignment = unit_bytes(bytes); // that load_pack and store_pack require of an address
    T v[V];
};

// A pack that waits in registers as it lay in memory: small elements would take a register each.
template <class T, int V>
struct waiting_pack {
    static constexpr bool is_in_words = sizeof(T) < 4 && pack<T, V>::bytes % 4 == 0;
    struct word_array {
        std::uint32_t v[pack<T, V>::bytes / 4 != 0 ? pack<T, V>::bytes / 4 : 1];
    };
    std::conditional_t<is_in_words, word_array, pack<T, V>> held;

    COLLX_HD void keep(const pack<T, V>& p) {
        __builtin_memcpy(static_cast<void*>(&held), static_cast<const void*>(&p), sizeof held);
    }
    COLLX_HD pack<T, V> get() const {
        pack<T, V> p;
        __builtin_memcpy(static_cast<void*>(&p), static_cast<const void*>(&held), sizeof held);
        return p;
    }
};

// Whether packs of T may be loaded from p on.
template <class T, int V>
COLLX_HD inline bool is_aligned(const T* p) {
    return reinterpret_cast<std::uintptr_t>(p) % pack<T, V>::alignment == 0;
}
// Elements from p on that lie before the first one from which packs may be loaded, where there is one.
template <class T, int V>
COLLX_HD inline unsigned elems_before_pack(const T* p) {
    constexpr std::size_t alignment = pack<T, V>::alignment;
    return static_cast<unsigned>((alignment - reinterpret_cast<std::uintptr_t>(p) % alignment) % alignment / sizeof(T));
}

// Loads a pack from aligned memory.
template <class Env, class T, int V>
COLLX_HD inline pack<T, V> load_pack(const void* from) {
    using unit = typename detail::unit_of<pack<T, V>::alignment, T>::type;
    constexpr int units = static_cast<int>(pack<T, V>::bytes / sizeof(unit));
    unit raw[units];
    COLLX_UNROLL
    for (int i = 0; i < units; ++i) raw[i] = Env::load(static_cast<const unit*>(from) + i);
    pack<T, V> p;
    __builtin_memcpy(static_cast<void*>(&p), raw, sizeof raw);
    return p;
}
// Stores a pack to aligned memory.
template <class Env, class T, int V>
COLLX_HD inline void store_pack(void* to, const pack<T, V>& p) {
    using unit = typename detail::unit_of<pack<T, V>::alignment, T>::type;
    constexpr int units = static_cast<int>(pack<T, V>::bytes / sizeof(unit));
    unit raw[units];
    __builtin_memcpy(raw, static_cast<const void*>(&p), sizeof raw);
    COLLX_UNROLL
    for (int i = 0; i < units; ++i) Env::store(static_cast<unit*>(to) + i, raw[i]);
}

// ---------------------------------------------------------------------------------------------- LL: words with flags
// A line of 16 bytes carries 8 bytes of a pack: two words, each with 4 bytes of data below the 4-byte flag. A word is
// written and read at once, so a reader that sees the flag has the data: no release, no acquire, no second message.
// Source: the LL protocol of NCCL.
template <class T, int V>
inline constexpr int packet_lines = static_cast<int>((pack<T, V>::bytes + 7) / 8);
template <class T, int V>
inline constexpr std::size_t packet_stride = packet_lines<T, V> * sizeof(unit16);

// Stores the words of a pack, each with the flag beside it.
template <class Env, class T, int V>
COLLX_HD inline void store_packet(void* to, const pack<T, V>& p, std::uint32_t flag) {
    constexpr int lines = packet_lines<T, V>;
    std::uint32_t words[2 * lines] = {};
    __builtin_memcpy(words, static_cast<const void*>(&p), pack<T, V>::bytes);
    const std::uint64_t mark = static_cast<std::uint64_t>(flag) << 32;
    COLLX_UNROLL
    for (int i = 0; i < lines; ++i)
        Env::store_line(static_cast<unit16*>(to) + i, {mark | words[2 * i], mark | words[2 * i + 1]});
}

// A pack's words as they were loaded.
template <class T, int V>
struct packet_words {
    unit16 lines[packet_lines<T, V>];

    template <class Env>
    COLLX_HD void load(const void* from) {
        COLLX_UNROLL
        for (int i = 0; i < packet_lines<T, V>; ++i) lines[i] = Env::load_line(static_cast<const unit16*>(from) + i);
    }
    COLLX_HD bool has(std::uint32_t flag) const {
        bool complete = true;
        COLLX_UNROLL
        for (int i = 0; i < packet_lines<T, V>; ++i)
            complete = complete && static_cast<std::uint32_t>(lines[i].low >> 32) == flag &&
                       static_cast<std::uint32_t>(lines[i].high >> 32) == flag;
        return complete;
    }
    // Copies the data into a pack or a waiting_pack.
    template <class Pack>
    COLLX_HD void put_into(Pack& p) const {
        std::uint32_t words[2 * packet_lines<T, V>];
        COLLX_UNROLL
        for (int i = 0; i < packet_lines<T, V>; ++i) {
            words[2 * i] = static_cast<std::uint32_t>(lines[i].low);
            words[2 * i + 1] = static_cast<std::uint32_t>(lines[i].high);
        }
        __builtin_memcpy(static_cast<void*>(&p), words, pack<T, V>::bytes);
    }
};

// Loads a pack. False: a flag is not there yet.
template <class Env, class T, int V>
COLLX_HD inline bool try_load_packet(const void* from, std::uint32_t flag, pack<T, V>& p) {
    packet_words<T, V> w;
    w.template load<Env>(from);
    w.put_into(p);
    return w.has(flag);
}

// ---------------------------------------------------------------------------------------------- lines with flags
// A line of 128 bytes carries 120 bytes of data and, last, a flag of 8. Where lines arrive whole, a reader that sees
// the flag has the data. Two lines carry 15 packs of 16 bytes: cells 0 to 6 of each line hold one pack each, and the
// two halves beside the flags hold the last. So no thread needs another's data. Source: the LL128 protocol of NCCL (Hu
// et al., "Demystifying NCCL", 2025).
inline constexpr unsigned line_cells = 8, pair_packs = 15;
inline constexpr std::size_t pair_bytes = 2 * line_cells * sizeof(unit16);

} // namespace device
COLLX_END_NAMESPACE
