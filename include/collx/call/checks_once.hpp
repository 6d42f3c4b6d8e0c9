// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// The bodies of checks.hpp.
#pragma once

#include <collx/call/checks.hpp>

COLLX_BEGIN_NAMESPACE
namespace detail {

COLLX_ONCE void refuse_elements(int me, buffer_facts b, buffer_name which) {
    if (b.bytes == SIZE_MAX)
        fail(errc::invalid_argument, me, -1, "is a count negative?", "%s%sthe %s buffer claims %zu elements",
             which.call, which.colon(), which.which, b.elems);
    fail(errc::invalid_argument, me, -1, "pass memory, or a size of 0",
         "%s%sthe %s buffer is null but has %zu elements", which.call, which.colon(), which.which, b.elems);
}

COLLX_ONCE void check_memory(const communicator_core& c, buffer_facts b, buffer_name which) {
    const int me = c.net.rank();
    if (b.is_of_device_call) return;
    if (!has_elements(b)) refuse_elements(me, b, which);
    if (b.is_on_device)
        fail(errc::invalid_argument, me, -1, "say collx::on_device(collx::as<T>(tensor))",
             "%s%sthe %s tensor lies in a device's memory", which.call, which.colon(), which.which);
    if (b.has_address && c.device != nullptr && b.elems != 0) c.device->require_host_memory(b.data, which.which);
    if (b.is_window && b.elems != 0 && !c.net.memory().contains(b.data, b.bytes))
        fail(errc::invalid_argument, me, -1, "allocate it with this job's shared allocator",
             "%s%sthe %s window does not lie in shared memory", which.call, which.colon(), which.which);
}

COLLX_ONCE void refuse_repeats(int me, buffer_name which) {
    fail(
        errc::invalid_argument, me, -1, "write into a buffer with a place for each element, for example a copy",
        "%s%sseveral elements of the %s buffer may lie at one address: a stride is 0, as in an expanded tensor, or not "
        "longer than what the smaller strides span",
        which.call, which.colon(), which.which);
}

COLLX_ONCE void refuse_overlap(int me, const char* call) {
    fail(errc::invalid_argument, me, -1,
         "use two buffers that do not overlap, or the form of the call with one buffer, where it has one",
         "%s%sinput and output overlap", call, colon_after(call));
}

COLLX_ONCE void refuse_size(const communicator_core& c, buffer_name which, std::size_t have, std::size_t need) {
    fail(errc::invalid_argument, c.net.rank(), -1, "sizes count elements; docs/verbs.md has the shape of each call",
         "%s%sthe %s buffer has %zu elements and needs %zu", which.call, which.colon(), which.which, have, need);
}

COLLX_ONCE void refuse_root(const communicator_core& c, int root, const char* call) {
    fail(errc::invalid_argument, c.net.rank(), -1, "roots are ranks of this communicator", "%s: root %d of %d ranks",
         call, root, c.net.size());
}

COLLX_ONCE void refuse_needless_root(const communicator_core& c, int root, const char* call) {
    fail(errc::invalid_argument, c.net.rank(), -1, "leave it out, or call broadcast, reduce, gather or scatter",
         "%s%sroot %d was given to a call that has no root", call, colon_after(call), root);
}

COLLX_ONCE void refuse_post_of_scan(const communicator_core& c) {
    fail(errc::unsupported, c.net.rank(), -1, "apply the hook after the call",
         "a scan across hosts passes its results on as operands, so the operator may have no post hook");
}

COLLX_ONCE void refuse_division(const communicator_core& c, std::size_t whole, const char* call) {
    fail(errc::invalid_argument, c.net.rank(), -1, "pad it, or use the v-variant with counts",
         "%s: %zu elements do not divide among %d ranks", call, whole, c.net.size());
}

} // namespace detail
COLLX_END_NAMESPACE
