// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// The checks that a call makes of its arguments on this rank alone, before anything is sent.
#pragma once

#include <cstddef>
#include <cstdint>
#include <type_traits>

#include <collx/core/error.hpp>
#include <collx/core/views.hpp>
#include <collx/job/communicator_core.hpp>

COLLX_BEGIN_NAMESPACE

namespace detail {

template <class View>
const void* address_of(const View& v) {
    if constexpr (View::is_contiguous) return v.data();
    else return nullptr;
}

// A buffer as the checks see it, independent of its element type.
struct buffer_facts {
    const void* data = nullptr;
    std::size_t elems = 0;
    std::size_t bytes = 0; // SIZE_MAX: overflow, more than memory can hold
    std::uint32_t elem_bytes = 1;
    bool has_address = false; // else elements are computed or not contiguous
    bool is_window = false, is_on_device = false;
    bool is_of_device_call = false; // a device call checks the memory itself
    bool is_null = false;           // elements lie in memory, and there is none
    bool repeats = false;           // several elements lie at one address
};
template <class View>
buffer_facts facts_of(const View& v) {
    constexpr std::size_t elem_bytes = sizeof(element_of<View>);
    const std::size_t n = v.size();
    // Half of the address space at most: the sum of two such sizes does not overflow.
    buffer_facts b{
        .elems = n, .bytes = n <= SIZE_MAX / elem_bytes / 2 ? n * elem_bytes : SIZE_MAX, .elem_bytes = elem_bytes};
    if constexpr (View::is_contiguous) {
        b.data = v.data();
        b.has_address = true;
        b.is_null = n != 0 && !b.data;
    } else if constexpr (RunView<View>) b.is_null = n != 0 && v.pointer(0) == nullptr;
    if constexpr (requires { v.repeats(); }) b.repeats = v.repeats();
    if constexpr (requires { View::is_window; }) b.is_window = View::is_window;
    if constexpr (requires { v.is_on_device(); }) b.is_on_device = v.is_on_device();
    return b;
}
// The same for a call on device memory.
template <class View>
buffer_facts facts_on_device(const View& v) {
    buffer_facts b = facts_of(v);
    b.is_window = b.is_on_device = false;
    b.is_of_device_call = true;
    return b;
}
// The same for a buffer that must be in host memory.
template <class View>
buffer_facts facts_on_host(const View& v) {
    static_assert(
        memory_kind_v<View> == memory_kind::host,
        "collx: this buffer lies in device memory and another one of this call in the host's, or this form of "
        "the call does not take device memory: collx::device_group is group for it.");
    return facts_of(v);
}

constexpr const char* colon_after(const char* call) { return call[0] != '\0' ? ": " : ""; }
// What an error calls a buffer: the output of all_reduce. A message has one buffer, called after it: the send buffer.
struct buffer_name {
    const char *which, *call;
    // NOLINTNEXTLINE(google-explicit-constructor)
    constexpr buffer_name(const char* w, const char* c = "") : which(w), call(c) {}
    constexpr const char* colon() const { return colon_after(call); }
};

// The errors of the checks below. Buffers go by value, so that calls without an error need no copy of them in memory.
[[gnu::cold]] void refuse_elements(int me, buffer_facts b, buffer_name which);
[[gnu::cold]] void check_memory(const communicator_core& c, buffer_facts b, buffer_name which);
[[noreturn, gnu::cold]] void refuse_repeats(int me, buffer_name which);
[[noreturn, gnu::cold]] void refuse_overlap(int me, const char* call);
[[noreturn, gnu::cold]] void refuse_size(const communicator_core& c, buffer_name which, std::size_t have,
                                         std::size_t need);
[[noreturn, gnu::cold]] void refuse_root(const communicator_core& c, int root, const char* call);
[[noreturn, gnu::cold]] void refuse_needless_root(const communicator_core& c, int root, const char* call);
[[noreturn, gnu::cold]] void refuse_post_of_scan(const communicator_core& c);
[[noreturn, gnu::cold]] void refuse_division(const communicator_core& c, std::size_t whole, const char* call);

template <class Options>
void require_no_root(const communicator_core& c, const Options& o, const char* call = "") {
    if (o.root != 0) [[unlikely]]
        refuse_needless_root(c, o.root, call);
}

// The checks of a buffer that need no communicator.
inline bool has_elements(const buffer_facts& b) { return b.bytes != SIZE_MAX && !b.is_null; }
inline void require_memory(const communicator_core& c, const buffer_facts& b, buffer_name which) {
    if (!has_elements(b) || c.device != nullptr || b.is_window || b.is_on_device) check_memory(c, b, which);
}
// Refuses a buffer that is to be written, but has no place for each element.
inline void require_distinct(int me, const buffer_facts& b, buffer_name which) {
    if (b.repeats) [[unlikely]]
        refuse_repeats(me, which);
}
// The same for a buffer that is written.
inline void require_writable(const communicator_core& c, const buffer_facts& b, buffer_name which) {
    require_memory(c, b, which);
    require_distinct(c.net.rank(), b, which);
}
// Refuses two buffers that overlap, unless the smaller one lies `own_place_elems` from the start of the other.
// SIZE_MAX: any overlap is refused.
inline void require_no_overlap(int me, const buffer_facts& in, const buffer_facts& out, std::size_t own_place_elems,
                               bool is_same_type, const char* call = "") {
    if (!in.has_address || !out.has_address || in.bytes == 0 || out.bytes == 0) return;
    const auto *a = static_cast<const std::byte*>(in.data), *b = static_cast<const std::byte*>(out.data);
    if (a + in.bytes <= b || b + out.bytes <= a) return;
    if (own_place_elems == SIZE_MAX || !is_same_type) refuse_overlap(me, call);
    const bool is_own_place =
        out.bytes >= in.bytes ? b + own_place_elems * out.elem_bytes == a : a + own_place_elems * in.elem_bytes == b;
    if (!is_own_place) refuse_overlap(me, call);
}
// The number of elements in each of n equal parts.
inline std::size_t part_of(const communicator_core& c, std::size_t whole, const char* call) {
    const auto n = static_cast<std::size_t>(c.net.size());
    if (whole % n != 0) refuse_division(c, whole, call);
    return whole / n;
}

template <class View>
void require_elements(int me, const View& v, buffer_name which) {
    if (const buffer_facts b = facts_of(v); !has_elements(b)) refuse_elements(me, b, which);
}
template <class View>
void require_memory(const communicator_core& c, const View& v, buffer_name which) {
    require_memory(c, facts_on_host(v), which);
}
template <class In, class Out>
void require_no_overlap(int me, const In& in, const Out& out, std::size_t own_place_elems = 0) {
    require_no_overlap(me, facts_of(in), facts_of(out), own_place_elems,
                       std::is_same_v<element_of<In>, element_of<Out>>);
}
template <class In, class Out>
void require_no_overlap(const communicator_core& c, const In& in, const Out& out, std::size_t own_place_elems = 0) {
    require_no_overlap(c.net.rank(), in, out, own_place_elems);
}
inline void require_size(const communicator_core& c, buffer_name which, std::size_t have, std::size_t need) {
    if (have != need) refuse_size(c, which, have, need);
}
inline void require_at_least(const communicator_core& c, buffer_name which, std::size_t have, std::size_t need) {
    if (have < need)
        fail(errc::invalid_argument, c.net.rank(), -1, "do the counts sum up to the size of the buffer?",
             "%s%sthe %s buffer has %zu elements, its counts need %zu", which.call, which.colon(), which.which, have,
             need);
}
inline void require_root(const communicator_core& c, int root, const char* call) {
    if (root < 0 || root >= c.net.size()) refuse_root(c, root, call);
}

} // namespace detail

COLLX_END_NAMESPACE

#if !defined(COLLX_ONLY_DECLARED)
#include <collx/call/checks_once.hpp>
#endif
