// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// What a call asks of its arguments on this rank alone, before anything is sent.
#pragma once

#include <cstddef>
#include <cstdint>
#include <type_traits>

#include <collx/comm/core.hpp>
#include <collx/core/error.hpp>
#include <collx/core/views.hpp>

COLLX_BEGIN_NAMESPACE

namespace detail {

template <class View>
using element_of = std::remove_cv_t<typename View::value_type>;

template <class View>
const void* address_of(const View& v) {
    if constexpr (View::is_contiguous) return v.data();
    else return nullptr;
}
// What can be seen of a buffer without a communicator.
template <class View>
void require_elements(int me, const View& v, const char* which) {
    if constexpr (View::is_contiguous)
        if (v.size() != 0 && v.data() == nullptr)
            fail(errc::invalid_argument, me, -1, "pass memory, or a size of 0",
                 "the %s buffer is null but has %zu elements", which, v.size());
    if (v.size() > SIZE_MAX / sizeof(element_of<View>) / 2)
        fail(errc::invalid_argument, me, -1, "is a count negative?", "the %s buffer claims %zu elements", which,
             v.size());
}
template <class View>
void require_memory(const communicator_core& c, const View& v, const char* which) {
    static_assert(
        memory_kind_v<View> == memory_kind::host,
        "collx: this buffer lies in device memory and another one of this call in the host's, or this form of "
        "the call does not take device memory: collx::device_group is group for it.");
    require_elements(c.net.rank(), v, which);
    if constexpr (requires { v.is_on_device(); })
        if (v.is_on_device())
            fail(errc::invalid_argument, c.net.rank(), -1, "say collx::on_device(collx::as<T>(tensor))",
                 "the %s tensor lies in a device's memory", which);
    if constexpr (View::is_contiguous)
        if (c.device != nullptr && v.size() != 0) [[unlikely]]
            c.device->require_host_memory(v.data(), which);
    if constexpr (View::is_window)
        if (v.size() != 0 && !c.net.memory().contains(v.data(), v.size() * sizeof(element_of<View>)))
            fail(errc::invalid_argument, c.net.rank(), -1, "allocate it with this job's shared allocator",
                 "the %s window does not lie in shared memory", which);
}
// In place means the same address; anything else may not overlap.
template <class In, class Out>
void require_apart(int me, const In& in, const Out& out, std::size_t in_place_offset_elems = 0) {
    if constexpr (In::is_contiguous && Out::is_contiguous) {
        const auto* a = reinterpret_cast<const std::byte*>(in.data());
        const auto* b = reinterpret_cast<const std::byte*>(out.data());
        const std::size_t an = in.size() * sizeof(element_of<In>), bn = out.size() * sizeof(element_of<Out>);
        if (an == 0 || bn == 0 || a + an <= b || b + bn <= a) return;
        const bool same = in_place_offset_elems == SIZE_MAX
                              ? false
                              : (bn >= an ? b + in_place_offset_elems * sizeof(element_of<Out>) == a
                                          : a + in_place_offset_elems * sizeof(element_of<In>) == b);
        if (!same || !std::is_same_v<element_of<In>, element_of<Out>>)
            fail(errc::invalid_argument, me, -1, "use one buffer, or two that do not overlap",
                 "input and output overlap");
    }
}
template <class In, class Out>
void require_apart(const communicator_core& c, const In& in, const Out& out, std::size_t in_place_offset_elems = 0) {
    require_apart(c.net.rank(), in, out, in_place_offset_elems);
}
inline void require_root(const communicator_core& c, int root) {
    if (root < 0 || root >= c.net.size())
        fail(errc::invalid_argument, c.net.rank(), root, "roots are ranks of this communicator", "root %d of %d ranks",
             root, c.net.size());
}

} // namespace detail

COLLX_END_NAMESPACE
