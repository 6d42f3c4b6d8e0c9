// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Sends the same message through a real device, if libibverbs finds one: from one of its queue pairs to another.
// Soft-RoCE, a device in the kernel, runs in the guest of scripts/try_verbs.
#include <cstdio>

#include "real.hpp"

#if defined(COLLX_HAS_VERBS)
#include <collx/core/clock.hpp>
#include <collx/interop/libibverbs.hpp>

#include <algorithm>
#include <cstdlib>
#include <vector>

#include "../check.hpp"

namespace {

// Waits for one completion, 10 s at most, and returns it.
collx::verbs_completion wait_for(collx::queue_pair& q) {
    collx::verbs_completion c{collx::verbs_completion::kind::failed, 0, 0, "nothing came for 10 s"};
    for (const std::int64_t end = collx::now_ns() + 10'000'000'000; collx::now_ns() < end;)
        if (q.poll(&c, 1) == 1) break;
    return c;
}

void tell(collx::verbs_device& device, std::size_t bytes) {
    using kind = collx::verbs_completion::kind;
    std::vector<std::byte> from(bytes, std::byte{7}), to(bytes), place(16);
    // [doc:real]
    const auto source = device.register_memory(from.data(), bytes), target = device.register_memory(to.data(), bytes);
    const auto heads = device.register_memory(place.data(), place.size());
    const auto a = device.make_queue_pair({.sends = 4, .writes = 4, .receives = 4, .head_bytes = 16});
    const auto b = device.make_queue_pair({.sends = 4, .writes = 4, .receives = 4, .head_bytes = 16});
    a->connect(b->address());
    b->connect(a->address());
    b->post_receive(place.data(), 16, heads->local_key, 5);
    const collx::verbs_write write{from.data(), static_cast<std::uint32_t>(bytes), source->local_key,
                                   reinterpret_cast<std::uint64_t>(to.data()), target->remote_key};
    const std::int64_t begin = collx::now_ns();
    const bool is_posted = a->post(&write, 1, "all is there   ", 16, 6); // two requests, one doorbell
    const std::int64_t posted = collx::now_ns();
    const collx::verbs_completion received = wait_for(*b), sent = wait_for(*a);
    // [doc:end]
    const std::int64_t end = collx::now_ns();
    example::expect(is_posted && received.what == kind::received && received.id == 5, "a real head is received");
    example::expect(sent.what == kind::sent && sent.id == 6, "a real post is completed");
    example::expect(from == to, "the bytes of a real write are there");
    std::printf("by %s: %zu bytes and a head posted in %.1f us, received and completed %.1f us later\n", device.name(),
                bytes, static_cast<double>(posted - begin) / 1e3, static_cast<double>(end - posted) / 1e3);
}

} // namespace

void lesson::tell_of_real_device(std::size_t bytes) {
    const auto device = collx::detail::verbs_library->open({});
    if (device) return tell(*device, bytes);
    example::expect(std::getenv("TRY_VERBS_NODES") == nullptr, "the guest's device is found");
    std::printf("no real device: %s; `scripts/try_verbs` has one in the kernel of a guest\n",
                collx::detail::verbs_library->reason());
}
#else
void lesson::tell_of_real_device(std::size_t) {
    std::printf("no real device: built without libibverbs (Debian: libibverbs-dev)\n");
}
#endif
