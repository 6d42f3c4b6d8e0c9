// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// The bodies of checks.hpp.
#pragma once

#include <collx/call/checks.hpp>

COLLX_BEGIN_NAMESPACE
namespace detail {

COLLX_ONCE void refuse_elements(int me, buffer_facts b, const char* which) {
    if (b.bytes == SIZE_MAX)
        fail(errc::invalid_argument, me, -1, "is a count negative?", "the %s buffer claims %zu elements", which,
             b.elems);
    fail(errc::invalid_argument, me, -1, "pass memory, or a size of 0", "the %s buffer is null but has %zu elements",
         which, b.elems);
}

COLLX_ONCE void check_memory(const communicator_core& c, buffer_facts b, const char* which) {
    const int me = c.net.rank();
    if (b.is_of_device_call) return;
    if (!has_elements(b)) refuse_elements(me, b, which);
    if (b.is_on_device)
        fail(errc::invalid_argument, me, -1, "say collx::on_device(collx::as<T>(tensor))",
             "the %s tensor lies in a device's memory", which);
    if (b.has_address && c.device != nullptr && b.elems != 0) c.device->require_host_memory(b.data, which);
    if (b.is_window && b.elems != 0 && !c.net.memory().contains(b.data, b.bytes))
        fail(errc::invalid_argument, me, -1, "allocate it with this job's shared allocator",
             "the %s window does not lie in shared memory", which);
}

COLLX_ONCE void refuse_repeats(int me, const char* which) {
    fail(errc::invalid_argument, me, -1, "write into a buffer with a place for each element, for example a copy",
         "several elements of the %s buffer may lie at one address: a stride is 0, as in an expanded tensor, or not "
         "longer than what the smaller strides span",
         which);
}

COLLX_ONCE void refuse_overlap(int me) {
    fail(errc::invalid_argument, me, -1,
         "use two buffers that do not overlap, or the form of the call with one buffer, where it has one",
         "input and output overlap");
}

COLLX_ONCE void refuse_size(const communicator_core& c, const char* which, std::size_t have, std::size_t need) {
    fail(errc::invalid_argument, c.net.rank(), -1, "sizes count elements; docs/verbs.md has the shape of each call",
         "the %s buffer has %zu elements and needs %zu", which, have, need);
}

COLLX_ONCE void refuse_root(const communicator_core& c, int root) {
    fail(errc::invalid_argument, c.net.rank(), -1, "roots are ranks of this communicator", "root %d of %d ranks", root,
         c.net.size());
}

COLLX_ONCE void refuse_needless_root(const communicator_core& c, int root) {
    fail(errc::invalid_argument, c.net.rank(), -1, "leave it out, or call broadcast, reduce, gather or scatter",
         "root %d was given to a call that has no root", root);
}

COLLX_ONCE void refuse_post_of_scan(const communicator_core& c) {
    fail(errc::unsupported, c.net.rank(), -1, "apply the hook after the call",
         "a scan across hosts passes its results on as operands, so the operator may have no post hook");
}

COLLX_ONCE void refuse_division(const communicator_core& c, std::size_t whole) {
    fail(errc::invalid_argument, c.net.rank(), -1, "pad it, or use the v-variant with counts",
         "%zu elements do not divide among %d ranks", whole, c.net.size());
}

} // namespace detail
COLLX_END_NAMESPACE
