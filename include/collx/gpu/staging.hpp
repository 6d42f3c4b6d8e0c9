// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Stages a call piece by piece. For each piece it puts two kernels into the stream, which copy the piece out and copy
// its result in, and gives the proxy an order to carry out in between. Knows no collective.
#pragma once

#include <cstddef>
#include <cstdint>
#include <type_traits>
#include <utility>

#include <collx/gpu/group.hpp>

COLLX_BEGIN_NAMESPACE
namespace detail {

// A time limit with some time added. No limit stays no limit.
constexpr std::int64_t longer(std::int64_t ns, std::int64_t more_ns) {
    return ns < INT64_MAX - more_ns ? ns + more_ns : INT64_MAX;
}

// One buffer is filled while the other is under way: after put() for a piece comes take() for the one before. The
// stream orders the rest: the kernel that fills a buffer comes after the one that took the result of its last use.
template <class Runtime>
class staged_pieces {
public:
    staged_pieces(gpu_group<Runtime>& g, void* stream, bool is_in_graph, std::int64_t timeout_ns)
        : group_(g), stream_(stream), is_in_graph_(is_in_graph),
          timeout_ns_(static_cast<std::uint64_t>(longer(longer(timeout_ns, timeout_ns), 1'000'000'000))) {}

    // How many elements of `bytes` bytes fit a buffer.
    std::size_t room(std::size_t bytes) const {
        const std::size_t most = group_.staging().bytes / bytes;
        if (most == 0)
            fail(errc::unsupported, group_.rank(), -1, "raise device_settings::staging_bytes",
                 "one element of %zu bytes for each rank does not fit a staging buffer", bytes);
        return most;
    }
    template <class Wire, class In, class Range, class F>
    requires std::is_invocable_v<F&, communicator&, const std::byte*, std::byte*>
    void put(const In& in, const Range& from, F f) { put<Wire>(in, from, make_order(std::move(f))); }
    template <class Wire, class In, class Range>
    void put(const In& in, const Range& from, gpu_proxy::order f) {
        const std::uint64_t id = group_.proxy().add(std::move(f), is_in_graph_);
        try {
            const device::stage_out<In, Wire, Range> body{in,
                                                          from,
                                                          group_.staging_words_on_device(),
                                                          group_.staging_counts(),
                                                          there(group_.staging().in),
                                                          group_.staging().bytes,
                                                          id,
                                                          group_.staging_peers()};
            group_.runtime().launch_lanes(body, group_.settings().staging_lanes, stream_);
        } catch (const error&) {
            group_.proxy().drop(id);
            throw;
        }
        group_.proxy().ring();
        group_.count_staged(from.size() * sizeof(Wire), 0);
    }
    template <class Out, class Range>
    void take(const Out& out, const Range& to) {
        const device::stage_in<Out, Range> body{out,
                                                to,
                                                group_.staging_words_on_device(),
                                                group_.staging_counts(),
                                                there(group_.staging().out),
                                                group_.staging().bytes,
                                                timeout_ns_,
                                                group_.staging_peers()};
        group_.runtime().launch_lanes(body, group_.settings().staging_lanes, stream_);
        group_.count_staged(0, to.size() * sizeof(typename device::stage_in<Out, Range>::value_type));
    }
    // For calls whose data also came through kernels of other ranks: checks that none of these was ended.
    void check_peers() {
        const device::staging_verdict body{group_.staging_words_on_device(), group_.staging_peers()};
        group_.runtime().launch_lanes(body, 1, stream_);
    }

private:
    // A host address as the device sees it.
    std::byte* there(std::byte* p) const {
        return reinterpret_cast<std::byte*>(group_.staging_words_on_device()) +
               (p - reinterpret_cast<std::byte*>(group_.staging().words));
    }
    gpu_group<Runtime>& group_;
    void* stream_;
    bool is_in_graph_;
    std::uint64_t timeout_ns_;
};

} // namespace detail
COLLX_END_NAMESPACE
