// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Chooses the way of calls on device memory; all ranks agree on it. Either kernels reach the exchange memory on every
// rank's device, shown by the kind of handle that reaches furthest and mapped by every peer; or calls are staged, if
// some pair has no such way. Knows no kernel and no proxy.
#pragma once

#include <unistd.h>

#include <cstdint>
#include <cstring>
#include <utility>
#include <vector>

#include <collx/comm/communicator.hpp>
#include <collx/core/joined.hpp>
#include <collx/core/kept_text.hpp>
#include <collx/exec/device/control.hpp>
#include <collx/exec/device/mapping_proof.hpp>
#include <collx/gpu/limits.hpp>
#include <collx/gpu/switch_memory.hpp>
#include <collx/job/try_together.hpp>
#include <collx/plan/choose.hpp>
#include <collx/transport/gpu_links.hpp>

COLLX_BEGIN_NAMESPACE

// Settings for calls on device memory: the same on all ranks.
struct device_settings {
    bool staged = false; // stage through pinned memory even where kernels can reach every peer
    // Where kernels reach some peers only: kernels inside domains, and staging between them. false: stage everything
    // there.
    bool two_levels = true;
    int lanes = 32; // blocks of a kernel; fewer where a device has fewer multiprocessors for each of its ranks
    std::uint32_t slot_bytes = 32768, packet_bytes = 16384; // see device::exchange_shape
    std::uint32_t stage_bytes = 0;                          // 0: 64 KiB for each rank whose kernels reach each other
    std::size_t staging_bytes = std::size_t{4} << 20;       // of one staged piece
    int staging_lanes = 8;                                  // blocks that copy a staged piece
    // Kernels of two launches on one device may wait for each other for ever, so ranks that share a device are staged.
    // true: their kernels are tried, and used if they ran at the same time. Beside kernels of the program, later ones
    // may not run at the same time; then the deadline of a wait ends the call. For tests on a machine with one device.
    bool shares_device = false;
    // Long sums use a switch that reduces and multicasts (NVLink SHARP) where there is one, unless `deterministic`.
    bool multicast = true;

    bool operator==(const device_settings&) const = default;
};

namespace detail {

// CUDA launches on the current device, and a null stream is that device's. what: "communicator" or "window".
template <class Runtime>
void require_current_device(const Runtime& r, int device, int rank, const char* what) {
    if (const int now = r.current(); now != device)
        fail(errc::invalid_argument, rank, -1, "choose it with cudaSetDevice before the call",
             "device %d is current, and this %s's memory is on device %d", now, what, device);
}

template <device::GpuRuntime Runtime>
class gpu_route {
public:
    gpu_route(const Runtime& r, communicator& side) : runtime_(r), side_(side), links_(r), switch_(r, side) {}
    gpu_route(const gpu_route&) = delete;

    // Chooses the way. Collective. bytes: of the exchange memory. Returns the lanes that all devices have room for.
    int choose(const device_settings& s, std::size_t bytes) {
        settings_ = s;
        bytes_ = bytes;
        device::gpu_card mine;
        together(core(), "look at its device", [&] { mine = links_.card(); });
        const std::vector<device::gpu_card> cards = show(mine);
        int lanes = agree_on_settings(cards);
        if (settings_.staged) return lanes;
        for (int k = device::handle_kinds - 1; k >= 0 && !is_direct_; --k) {
            const auto kind = static_cast<device::handle_kind>(k);
            if (is_possible(kind, cards)) is_direct_ = attempt(kind);
        }
        if (is_direct_ && may_multicast(cards) && memory_.kind != device::handle_kind::ipc) {
            std::vector<std::byte*> memories;
            for (const auto& p : links_.peers()) memories.push_back(p.memory);
            (void)switch_.open(memory_, memories);
        }
        return lanes;
    }
    bool is_direct() const { return is_direct_; }
    // All ranks' exchange memories at one address; null where no switch joins them.
    std::byte* exchange_of_all() const { return switch_.of_all(); }
    // The lowest rank whose memory this rank has ever mapped, -1: none, not even its own.
    int first_reached() const { return first_reached_; }
    const std::vector<typename device::gpu_links<Runtime>::peer>& peers() const { return links_.peers(); }

    // Says which way calls take, and why not a shorter one.
    kept_text text() const {
        if (!is_direct_)
            return joined(
                {"staged through the host: ", settings_.staged ? kept_text("device_settings::staged") : obstacle()});
        if (side_.size() == 1) return "a kernel on this device";
        kept_text text = "kernels over";
        bool maps = false;
        for (const auto w :
             {device::gpu_way::shared, device::gpu_way::nvlink, device::gpu_way::pcie, device::gpu_way::unseen}) {
            bool has = false;
            for (const auto& p : links_.peers()) {
                has = has || p.way == w;
                maps = maps || p.opened.at != nullptr;
            }
            if (has) text += joined({" ", device::name_of(w)});
        }
        if (maps) text += joined({", memory by ", device::name_of(memory_.kind), found_out()});
        if (switch_.of_all() != nullptr) text += ", long sums by the switch";
        else if (!switch_.obstacle().empty()) text += joined({"; not by the switch: ", switch_.obstacle()});
        return text;
    }

    // The first pair whose kernels do not reach each other: the rank that is not reached, and the reason in words.
    int obstacle_peer() const { return obstacle_peer_; }
    kept_text obstacle() const {
        return joined({"rank ", obstacle_rank_, " cannot reach rank ", obstacle_peer_, ": ", device::name_of(obstacle_),
                       found_out()});
    }

    // Unmaps the peers' memory. Requires: no kernel of this rank runs any more.
    void unmap() {
        switch_.close();
        links_.close();
    }
    // Unmaps the peers' memory, and frees this rank's if no peer may use it any more.
    void close(bool may_free) {
        switch_.close();
        links_.close();
        close_file();
        if (memory_.at != nullptr && may_free) runtime_.free_shared(memory_);
        memory_ = {};
    }
    void abandon() {
        switch_.abandon();
        links_.abandon();
        close_file();
        memory_ = {};
    }

private:
    communicator_core& core() { return side_.internals(); }
    std::vector<device::gpu_card> show(const device::gpu_card& mine) {
        std::vector<device::gpu_card> cards(static_cast<std::size_t>(side_.size()));
        core().exchange_each(mine,
                             [&](int q, const device::gpu_card& its) { cards[static_cast<std::size_t>(q)] = its; });
        return cards;
    }

    int agree_on_settings(const std::vector<device::gpu_card>& cards) {
        const std::uint64_t mine = hash_of(settings_);
        int lanes = settings_.lanes, odd = -1;
        core().exchange_each(mine, [&](int r, std::uint64_t its) {
            if (its != mine && odd < 0) odd = r;
        });
        if (odd >= 0)
            fail(errc::mismatch, side_.rank(), odd, "give all ranks the same device_settings",
                 "rank %d has other device settings", odd);
        for (const auto& c : cards) { // blocks of one launch for each rank must be resident together
            int sharing = 0;
            for (const auto& other : cards) sharing += is_one_device(c, other) ? 1 : 0;
            const int room = c.processors / sharing;
            lanes = room < lanes ? room : lanes;
        }
        return lanes < 1 ? 1 : lanes;
    }
    static std::uint64_t hash_of(const device_settings& s) {
        const std::uint64_t words[] = {s.staged,        s.two_levels,    static_cast<std::uint64_t>(s.lanes),
                                       s.slot_bytes,    s.stage_bytes,   s.packet_bytes,
                                       s.staging_bytes, s.shares_device, static_cast<std::uint64_t>(s.staging_lanes),
                                       s.multicast};
        return hash_bytes(reinterpret_cast<const char*>(words), sizeof words, 13);
    }

    // Depends only on facts that all ranks know, so all try the same kinds. CUDA IPC, or no handle at all, is last.
    bool is_possible(device::handle_kind kind, const std::vector<device::gpu_card>& cards) {
        if (kind == device::handle_kind::ipc) return true;
        const bool is_one_host = core().net.is_one_host();
        bool is_one_process = is_one_host;
        int without = -1;
        for (std::size_t r = 0; r < cards.size(); ++r) {
            is_one_process = is_one_process && cards[r].process == cards[0].process;
            if ((cards[r].offers & bit_of(kind)) == 0 && without < 0) without = static_cast<int>(r);
        }
        if (kind == device::handle_kind::file && !is_one_host) return false;
        // Ranks of one process need no handle, except for memory that a switch multicasts to.
        if (is_one_process && (kind == device::handle_kind::fabric || !may_multicast(cards))) return false;
        if (without >= 0) note(kind, joined({"the driver of rank ", without, " offers none"}));
        return without < 0;
    }

    struct finding {
        std::int32_t peer;
        device::gpu_obstacle why;
    };
    // Makes memory of this kind and maps that of the peers. True if every rank's kernels reach every peer.
    bool attempt(device::handle_kind kind) {
        const bool is_last = kind == device::handle_kind::ipc;
        const auto make = [&] { memory_ = runtime_.allocate_shared(bytes_, kind); };
        if (is_last) {
            together(core(), "allocate exchange memory", make);
        } else {
            try {
                make();
            } catch (const error&) { // then the card has no handle
            }
        }
        const std::vector<device::gpu_card> cards = show(links_.card(memory_));
        std::vector<bool> is_here;
        for (int r = 0; r < side_.size(); ++r)
            is_here.push_back(core().home->place(core().members[static_cast<std::size_t>(r)]) >= 0);
        links_.open(side_.rank(), cards, is_here, device::max_ranks, settings_.shares_device);
        for (int r = side_.size(); --r >= 0;)
            if (links_.peers()[static_cast<std::size_t>(r)].memory != nullptr &&
                (first_reached_ < 0 || r < first_reached_))
                first_reached_ = r;
        const bool all = all_reach_all();
        close_file(); // all have opened it
        if (all && (side_.size() == 1 || proves(cards, kind))) return true;
        if (!is_last)
            note(kind, joined({"rank ", obstacle_rank_,
                               obstacle_ == device::gpu_obstacle::corrupted     ? " finds wrong data of rank "
                               : obstacle_ == device::gpu_obstacle::not_at_once ? " runs no kernel beside rank "
                                                                                : " could not map memory of rank ",
                               obstacle_peer_}));
        links_.close();
        together(core(), "unmap its peers' memory", [] {}); // before it is freed
        if (memory_.at != nullptr) runtime_.free_shared(memory_);
        memory_ = {};
        return false;
    }
    bool all_reach_all() {
        finding mine{links_.first_unreachable(), device::gpu_obstacle::none};
        if (mine.peer >= 0) mine.why = links_.peers()[static_cast<std::size_t>(mine.peer)].why;
        bool all = true;
        core().exchange_each(mine, [&](int r, const finding& f) {
            if (f.peer < 0 || !all) return;
            all = false;
            obstacle_ = f.why;
            obstacle_rank_ = r;
            obstacle_peer_ = f.peer;
        });
        return all;
    }
    // Whether every mapping transfers correctly what kernels write and read, and kernels of ranks on one device run at
    // the same time. Afterwards the memory is as before, once all ranks have synchronized.
    bool proves(const std::vector<device::gpu_card>& cards, device::handle_kind kind) {
        using phase = device::mapping_proof::phase;
        device::mapping_proof p;
        p.me = side_.rank();
        p.ranks = side_.size();
        p.salt = cards[0].process + static_cast<std::uint64_t>(kind);
        p.limit_ns = 5'000'000'000;
        for (int r = 0; r < p.ranks; ++r) p.memory[r] = links_.peers()[static_cast<std::size_t>(r)].memory;
        std::byte* words = nullptr;
        const auto run = [&](phase now, device::gpu_obstacle why) {
            together(core(), "try its peers' memory", [&] {
                if (words == nullptr) words = runtime_.allocate_host(sizeof(std::uint64_t) * device::max_ranks);
                p.now = now;
                p.wrong = reinterpret_cast<std::uint64_t*>(runtime_.mapped(words));
                runtime_.run_lanes(p, 1);
            });
            for (int r = 0; r < p.ranks; ++r)
                if (runtime_.load_host(reinterpret_cast<std::uint64_t*>(words) + r) != 0) links_.refuse(r, why);
            return all_reach_all();
        };
        bool is_good = false;
        try {
            (void)run(phase::write, {});
            is_good = run(phase::read, device::gpu_obstacle::corrupted) &&
                      (!share_devices(cards) || run(phase::meet, device::gpu_obstacle::not_at_once));
            (void)run(phase::clear, {});
        } catch (...) {
            if (words != nullptr) runtime_.free_host(words);
            throw;
        }
        runtime_.free_host(words);
        return is_good;
    }
    // Whether some call would use the switch. A device can join it only once.
    bool may_multicast(const std::vector<device::gpu_card>& cards) const {
        const choices::situation longest{.bytes = choices::any_bytes, .ranks = static_cast<int>(cards.size())};
        if (choices::find_choice(choices::switched, collective::all_reduce, longest) == nullptr) return false;
        if (!settings_.multicast || share_devices(cards)) return false;
        for (const auto& c : cards)
            if (!c.multicasts) return false;
        return device::MulticastRuntime<Runtime>;
    }
    static bool share_devices(const std::vector<device::gpu_card>& cards) {
        for (std::size_t a = 0; a < cards.size(); ++a)
            for (std::size_t b = 0; b < a; ++b)
                if (is_one_device(cards[a], cards[b])) return true;
        return false;
    }
    static bool is_one_device(const device::gpu_card& a, const device::gpu_card& b) {
        return std::memcmp(a.uuid, b.uuid, sizeof a.uuid) == 0;
    }
    void close_file() {
        if (memory_.file >= 0) ::close(std::exchange(memory_.file, -1));
    }
    void note(device::handle_kind kind, const kept_text& why) {
        notes_ += joined({notes_.empty() ? "" : "; ", device::name_of(kind), ": ", why});
    }
    kept_text found_out() const { return notes_.empty() ? kept_text() : joined({" (", notes_, ")"}); }

    Runtime runtime_;
    communicator& side_;
    device::gpu_links<Runtime> links_;
    gpu_switch<Runtime> switch_;
    device_settings settings_;
    std::size_t bytes_ = 0;
    device::gpu_mapping memory_; // of this rank, on its device
    bool is_direct_ = false;
    device::gpu_obstacle obstacle_{};
    int obstacle_rank_ = -1, obstacle_peer_ = -1, first_reached_ = -1;
    kept_text notes_; // kinds of handles that were not taken, and why
};

} // namespace detail
COLLX_END_NAMESPACE
