// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// The machine of a team (team.hpp) whose ranks each have their own device. It launches for this rank only; the peers'
// exchange memories are mapped already (transport/gpu_links.hpp). Algorithms that read the peers' own buffers need more
// than that and are refused.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include <collx/exec/device/team.hpp>
#include <collx/transport/gpu_runtime.hpp>

COLLX_BEGIN_NAMESPACE
namespace device {

// One rank of such a team, with its own runtime.
template <GpuRuntime Runtime>
class peer_machine {
public:
    static constexpr team_remedies remedies{
        "make a new communicator", "is every rank in the same call? make a new communicator",
        "set larger slot_bytes, packet_bytes and stage_bytes (device_settings), or pass smaller elements"};
    // exchange: the memories, by rank. of_all: all of them at one address, null where no switch joins them. lanes: what
    // every rank's device has room for.
    peer_machine(Runtime r, int rank, std::vector<std::byte*> exchange, std::byte* of_all, int lanes)
        : runtime_(std::move(r)), rank_(rank), lanes_(lanes), exchange_(std::move(exchange)), of_all_(of_all) {}

    std::byte* allocate(int rank, std::size_t) const { return exchange_[static_cast<std::size_t>(rank)]; }
    void free(int, std::byte*) const {} // the process that mapped it frees it
    std::byte* allocate_host(std::size_t bytes) { return runtime_.allocate_host(bytes); }
    void free_host(std::byte* p) { runtime_.free_host(p); }
    std::byte* on_device(std::byte* p) { return runtime_.mapped(p); }
    std::uint64_t load_host(const std::uint64_t* p) { return runtime_.load_host(p); }
    void store_host(std::uint64_t* p, std::uint64_t x) { runtime_.store_host(p, x); }
    int lanes(const exchange_shape& s) const { return lanes_ < s.lanes ? lanes_ : s.lanes; }
    int rank() const { return rank_; }
    bool is_one_launch() const { return false; }
    std::byte* exchange_of_all() const { return of_all_; }
    bool has_multicast(const fused_options&) const { return of_all_ != nullptr; }
    void synchronize(const fused_options& o) { runtime_.synchronize(o.stream); }

    template <class Protocol, int Groups, class Algorithm, class Types>
    void launch(fused_args<Algorithm, Types> a, const fused_options& o) {
        a.first_rank = rank_;
        runtime_.template launch_fused<Protocol, Groups>(a, 1, o.stream);
    }

    template <class Calls>
    void launch_array(Calls calls, const fused_options& o) {
        calls.first_rank = rank_;
        runtime_.launch_array(calls, 1, o.stream);
    }

private:
    Runtime runtime_;
    int rank_, lanes_;
    std::vector<std::byte*> exchange_;
    std::byte* of_all_;
};

} // namespace device
COLLX_END_NAMESPACE
