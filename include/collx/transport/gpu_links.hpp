// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// How each peer's device is reached, and the peers' memory mapped here. Kernels load and store it over NVLink or PCI
// Express where they may; where they may not, data goes by way of the host, and the reason is kept. Ranks show each
// other a card; the caller carries the cards.
#pragma once

#include <unistd.h>

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <vector>

#include <collx/core/clock.hpp>
#include <collx/core/error.hpp>
#include <collx/transport/nvlink.hpp>
#include <collx/transport/pcie.hpp>
#include <collx/transport/peer_file.hpp>

COLLX_BEGIN_NAMESPACE
namespace device {

// The way from one rank's device to another's.
enum class gpu_way : unsigned char {
    self,   // the device itself
    shared, // another rank's memory on the same device
    nvlink, // loads and stores over NVLink
    pcie,   // over PCIe
    unseen, // one of these two: this process does not see the peer's device and cannot ask which
    host,   // staged through pinned memory, and whatever transport joins the two hosts
};

// Why a peer is not reached directly, in the order of the checks.
enum class gpu_obstacle : unsigned char {
    none,
    other_host,
    same_device,  // kernels of two launches that wait for each other may never run at once on one device
    not_visible,  // this process does not see the peer's device, and its memory could not be mapped
    no_access,    // the driver says that the two devices cannot reach each other
    no_cooperate, // a device cannot hold a kernel's blocks resident together
    not_mapped,   // the handle could not be made or opened (containers, other users)
    corrupted,    // what one device writes, or reads, is not what the other has
    not_at_once,  // ranks share a device, and their kernels did not run at the same time
    too_many,     // more ranks than a fused call has
};

// Names for messages.
inline const char* name_of(gpu_way w) {
    constexpr const char* names[] = {"this rank", "the memory of one device",      nvlink::name,
                                     pcie::name,  "peer access to hidden devices", "host"};
    return names[static_cast<int>(w)];
}
inline const char* name_of(gpu_obstacle o) {
    constexpr const char* names[] = {
        "",
        "it is on another host",
        ("both ranks use one device, where kernels that wait for each other may never run "
         "at once: one process with a collx::gpu_team does that in one launch"),
        ("its device is not visible here and its memory could not be mapped: list it in "
         "CUDA_VISIBLE_DEVICES of both ranks"),
        "the driver offers no peer access between the two devices",
        "a device cannot launch cooperatively",
        ("its memory could not be mapped: give the containers one IPC namespace, one network namespace, one user, "
         "and hosts of one NVLink fabric nvidia-imex"),
        ("what is written to its memory, or read there, arrives wrong: switch off the IOMMU or the access control "
         "(ACS) of the PCI Express switches between the two devices"),
        ("both ranks use one device, where their kernels did not run at the same time: start nvidia-cuda-mps-control, "
         "or "
         "use one process with a collx::gpu_team"),
        "a kernel joins 16 ranks at most"};
    return names[static_cast<int>(o)];
}

// What a rank shows to its peers. At most 120 bytes: one line of an exchange.
struct gpu_card {
    std::uint64_t process = 0; // a number that no other process has
    std::uint64_t address = 0; // of the exchange memory, in that process
    std::uint64_t uuid[2] = {};
    memory_handle handle;
    std::uint64_t bytes = 0;
    std::int16_t device = -1, processors = 0;
    bool has_handle = false, can_cooperate = false;
    handle_kind kind = handle_kind::ipc; // of the memory
    unsigned char offers = 0;            // bits of kinds
    bool multicasts = false;
};
static_assert(sizeof(gpu_card) <= 120);

// The process number is asked for each time: a child of fork() is another process.
inline std::uint64_t this_process() {
    static const std::uint64_t began = static_cast<std::uint64_t>(now_ns()) << 22;
    return began ^ static_cast<std::uint64_t>(::getpid());
}

template <GpuRuntime Runtime>
class gpu_links {
public:
    struct peer {
        gpu_way way = gpu_way::host;
        gpu_obstacle why = gpu_obstacle::none;
        gpu_access access;
        std::byte* memory = nullptr; // as this device sees it
        gpu_mapping opened;          // opened by a handle, so it is to be closed
    };

    explicit gpu_links(Runtime r) : runtime_(std::move(r)) {}
    gpu_links(const gpu_links&) = delete;
    ~gpu_links() { close(); }

    // This rank's own card, before it has memory to show. Asks the driver.
    gpu_card card() {
        gpu_card& c = own_ = gpu_card();
        c.process = this_process();
        const int here = runtime_.current();
        const gpu_facts f = runtime_.facts(here);
        std::memcpy(c.uuid, f.uuid, sizeof c.uuid);
        c.device = static_cast<std::int16_t>(here);
        c.processors = static_cast<std::int16_t>(f.processors);
        c.can_cooperate = f.can_cooperate;
        c.offers = static_cast<unsigned char>(f.handles);
        c.multicasts = f.multicasts;
        return c;
    }
    // The same card with memory. memory: what peers shall reach; empty where it could not be made.
    gpu_card card(gpu_mapping& memory) {
        gpu_card c = own_;
        c.address = reinterpret_cast<std::uintptr_t>(memory.at);
        c.bytes = memory.bytes;
        c.kind = memory.kind;
        if (memory.at == nullptr) return c;
        try {
            c.handle = runtime_.export_memory(memory);
            c.has_handle = true;
            if (c.kind == handle_kind::file) {
                files_.open();
                files_.announce(c.handle);
            }
        } catch (const error&) { // peers in other processes will report it
        }
        return c;
    }

    // Chooses the way to each peer and maps its memory; where memory is shown by files, all ranks do it at once. A
    // kernel joins the ranks only if every pair is directly reachable, so the caller compares what all ranks found.
    void open(int me, std::vector<gpu_card> cards, const std::vector<bool>& is_here, int most_ranks,
              bool allows_shared_device = false) {
        swap_files(me, cards, is_here);
        peers_.assign(cards.size(), peer{});
        for (std::size_t r = 0; r < cards.size(); ++r) {
            peer& p = peers_[r];
            if (static_cast<int>(r) == me) {
                p.way = gpu_way::self;
                p.memory = reinterpret_cast<std::byte*>(static_cast<std::uintptr_t>(cards[r].address));
                p.why = cards[r].can_cooperate ? gpu_obstacle::none : gpu_obstacle::no_cooperate;
            } else {
                p.why = reach(p, cards[static_cast<std::size_t>(me)], cards[r], is_here[r], allows_shared_device);
            }
            if (static_cast<int>(cards.size()) > most_ranks) p.why = gpu_obstacle::too_many;
        }
        files_.close();
    }
    // Records an obstacle that was found after a peer was mapped.
    void refuse(int rank, gpu_obstacle why) { peers_[static_cast<std::size_t>(rank)].why = why; }
    // Unmaps everything. Kernels of peers may go on: they use their own mappings.
    void close() {
        for (peer& p : peers_) {
            if (p.opened.at != nullptr) runtime_.close_memory(p.opened);
            p.opened = gpu_mapping();
            p.memory = nullptr;
        }
    }

    // Leaves everything mapped, for a kernel of this rank that cannot be ended.
    void abandon() { peers_.clear(); }

    const std::vector<peer>& peers() const { return peers_; }
    // The first peer that a kernel here cannot reach, -1: all can be.
    int first_unreachable() const {
        for (std::size_t r = 0; r < peers_.size(); ++r)
            if (peers_[r].why != gpu_obstacle::none) return static_cast<int>(r);
        return -1;
    }

private:
    void swap_files(int me, std::vector<gpu_card>& cards, const std::vector<bool>& is_here) {
        const auto shows_file = [&](std::size_t r) {
            return cards[r].has_handle && cards[r].kind == handle_kind::file && is_here[r];
        };
        if (!shows_file(static_cast<std::size_t>(me))) return;
        std::vector<memory_handle*> handles;
        for (std::size_t r = 0; r < cards.size(); ++r) handles.push_back(shows_file(r) ? &cards[r].handle : nullptr);
        files_.swap(me, handles, deadline::in_ns(5'000'000'000));
    }
    gpu_obstacle reach(peer& p, const gpu_card& mine, const gpu_card& its, bool is_here, bool allows_shared_device) {
        const bool by_fabric = its.has_handle && its.kind == handle_kind::fabric;
        if (!is_here && !by_fabric) return gpu_obstacle::other_host;
        const bool same_device = std::memcmp(mine.uuid, its.uuid, sizeof mine.uuid) == 0;
        if (same_device && !allows_shared_device) return gpu_obstacle::same_device;
        const bool is_same_process = is_here && its.process == mine.process;
        int number = mine.device;
        bool is_unseen = false;
        try { // the other ranks wait for what this one finds, so that an error would be on this one alone
            if (!same_device) number = number_of(its.uuid);
            is_unseen = number < 0 && !by_fabric;
            // For a device that is not visible here (one GPU per process by CUDA_VISIBLE_DEVICES) the driver only tells
            // whether its memory can be mapped. The fabric is NVLink.
            p.access =
                same_device || number < 0 ? gpu_access{true, !is_unseen, 0} : runtime_.access(mine.device, number);
        } catch (const error&) {
            return gpu_obstacle::no_access;
        }
        if (is_unseen && is_same_process) return gpu_obstacle::not_visible;
        if (!p.access.can_access) return gpu_obstacle::no_access;
        if (!its.can_cooperate) return gpu_obstacle::no_cooperate;
        try {
            if (!same_device && number >= 0 && its.kind == handle_kind::ipc) runtime_.enable_access(number);
            if (is_same_process) {
                p.memory = reinterpret_cast<std::byte*>(static_cast<std::uintptr_t>(its.address));
                if (p.memory == nullptr) return gpu_obstacle::not_mapped;
                if (its.kind != handle_kind::ipc) runtime_.grant(p.memory, its.bytes, mine.device);
            } else {
                if (!its.has_handle) return gpu_obstacle::not_mapped;
                p.opened = runtime_.open_memory(its.handle, its.kind, its.bytes);
                p.memory = p.opened.at;
            }
        } catch (const error&) {
            return is_unseen ? gpu_obstacle::not_visible : gpu_obstacle::not_mapped;
        }
        p.way = same_device                 ? gpu_way::shared
                : is_unseen                 ? gpu_way::unseen
                : nvlink::carries(p.access) ? gpu_way::nvlink
                                            : gpu_way::pcie;
        return gpu_obstacle::none;
    }
    // Numbers of devices differ from process to process (CUDA_VISIBLE_DEVICES).
    int number_of(const std::uint64_t (&uuid)[2]) {
        for (int d = 0; d < runtime_.count(); ++d)
            if (const gpu_facts f = runtime_.facts(d); std::memcmp(f.uuid, uuid, sizeof f.uuid) == 0) return d;
        return -1;
    }

    Runtime runtime_;
    gpu_card own_;
    std::vector<peer> peers_;
    file_exchange files_;
};

} // namespace device
COLLX_END_NAMESPACE
