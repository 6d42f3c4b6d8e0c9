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

template <class... P>
bound_communicator<P...> on_side(const bound_communicator<P...>& c, communicator& side) {
    return c.rebound(side);
}
inline bound_communicator<> on_side(communicator&, communicator& side) { return bound_communicator<>(side); }

// An order that calls f(a communicator with the call's policies, views of the staging buffers, options).
// choose(side, then) calls then(the proxy's communicator, or one of its own that the proxy has).
template <class InType, class OutType, class Call, class Choose, class F>
gpu_proxy::order order_on_views(const Call& call, const call_options& with, std::int64_t limit_ns, std::size_t in_count,
                                std::size_t out_count, Choose choose, F f) {
    using bound = std::remove_cvref_t<decltype(on_side(call.comm, call.c))>;
    return make_order([bound_to = bound(on_side(call.comm, call.c)), with, limit_ns, in_count, out_count, choose,
                       f](communicator& side, const std::byte* in, std::byte* out) {
        choose(side, [&](communicator& chosen) {
            chosen.internals().settings.timeout_ns = limit_ns;
            auto c = bound_to.rebound(chosen);
            f(c, contiguous_view<const InType>(reinterpret_cast<const InType*>(in), in_count),
              contiguous_view<OutType>(reinterpret_cast<OutType*>(out), out_count), with);
        });
    });
}

// One buffer is filled while the other is under way: after put() for a piece comes take() for the one before. The
// stream orders the rest: the kernel that fills a buffer comes after the one that took the result of its last use.
template <class Runtime>
class staged_pieces {
public:
    staged_pieces(gpu_group<Runtime>& g, void* stream, bool is_in_graph, std::int64_t timeout_ns)
        : group_(g), stream_(stream), is_in_graph_(is_in_graph),
          timeout_ns_(static_cast<std::uint64_t>(limit_behind(timeout_ns))) {}

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
