// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// The exchange memories of all ranks at one address, through a switch (NVLink SHARP): a load is the sum over all
// ranks, a store goes to all. All ranks make it together, once kernels reach every peer. If some rank cannot, no rank
// has it, and calls that do not need it continue as before. Knows no kernel but the one that tests the switch.
#pragma once

#include <cstdint>
#include <vector>

#include <collx/comm/communicator.hpp>
#include <collx/core/joined.hpp>
#include <collx/exec/device/switch_proof.hpp>
#include <collx/job/try_together.hpp>
#include <collx/transport/gpu_runtime.hpp>
#include <collx/transport/peer_file.hpp>

COLLX_BEGIN_NAMESPACE
namespace detail {

template <device::GpuRuntime Runtime>
class gpu_switch {
public:
    gpu_switch(const Runtime& r, communicator& side) : runtime_(r), side_(side) {}
    gpu_switch(const gpu_switch&) = delete;
    ~gpu_switch() { close(); }

    // Makes the common address. Collective. mine: this rank's exchange memory; memories: those of all ranks, as this
    // device sees them. False on all ranks if it cannot be made; obstacle() says why.
    bool open(const device::gpu_mapping& mine, const std::vector<std::byte*>& memories) {
        if constexpr (device::MulticastRuntime<Runtime>) {
            // All devices are added before any memory is bound.
            const bool is_made = share(mine) && join() && bind(mine) && proves(memories);
            close_file();
            if (is_made) return true;
            close();
            together_at_the_end();
        }
        return false;
    }
    // The common address; null if there is none.
    std::byte* of_all() const { return is_open_ ? object_.at : nullptr; }
    const kept_text& obstacle() const { return obstacle_; }

    // Requires: no kernel of this rank runs any more.
    void close() {
        is_open_ = false;
        close_file();
        if constexpr (device::MulticastRuntime<Runtime>)
            if (object_.at != nullptr || object_.driver != 0) runtime_.close_multicast(object_);
        object_ = {};
    }
    // Leaves the memory mapped, for a kernel that cannot be ended.
    void abandon() {
        close_file();
        object_ = {};
        is_open_ = false;
    }

private:
    communicator_core& core() { return side_.internals(); }

    // Rank 0 makes the multicast object, the other ranks open it.
    bool share(const device::gpu_mapping& mine) {
        const int me = side_.rank(), n = side_.size();
        std::vector<device::memory_handle> cards(static_cast<std::size_t>(n));
        device::file_exchange files;
        device::memory_handle& own = cards[static_cast<std::size_t>(me)];
        const bool by_file = mine.kind == device::handle_kind::file;
        const bool is_shown = all_could("make a multicast object", [&] {
            if (by_file) files.open();
            own = device::handle_of_file(-1); // the other ranks have none to show
            if (me == 0) {
                object_ = runtime_.make_multicast(mine.bytes, n, mine.kind);
                own = runtime_.export_memory(object_);
            }
            if (by_file) files.announce(own);
        });
        core().exchange_each(
            own, [&](int q, const device::memory_handle& its) { cards[static_cast<std::size_t>(q)] = its; });
        if (!is_shown) return false;
        if (by_file) {
            std::vector<device::memory_handle*> handles;
            for (device::memory_handle& h : cards)
                handles.push_back(me == 0 || &h == &cards[0] || &h == &own ? &h : nullptr);
            files.swap(me, handles, deadline::in_ns(5'000'000'000));
        }
        return all_could("open the multicast object", [&] {
            if (me != 0) object_ = runtime_.open_multicast(cards[0], mine.kind, mine.bytes);
        });
    }

    bool join() {
        return all_could("add its device to the multicast object", [&] { runtime_.join_multicast(object_); });
    }
    bool bind(const device::gpu_mapping& mine) {
        return all_could("bind its memory to the multicast object", [&] { runtime_.bind_multicast(object_, mine); });
    }
    // Whether the switch adds up what all ranks have written, and stores to all.
    bool proves(const std::vector<std::byte*>& memories) {
        using phase = device::switch_proof::phase;
        device::switch_proof p;
        p.me = side_.rank();
        p.ranks = side_.size();
        p.of_all = object_.at;
        for (std::size_t r = 0; r < memories.size(); ++r) p.memory[r] = memories[r];
        std::byte* word = nullptr;
        const auto run = [&](phase now) {
            return all_could("try the switch", [&] {
                if (word == nullptr) word = runtime_.allocate_host(sizeof(std::uint64_t));
                p.now = now;
                p.wrong = reinterpret_cast<std::uint64_t*>(runtime_.mapped(word));
                runtime_.run_lanes(p, 1);
                if (runtime_.load_host(reinterpret_cast<std::uint64_t*>(word)) != 0)
                    fail(errc::unsupported, side_.rank(), -1, "", "the switch's sums are wrong");
            });
        };
        is_open_ = run(phase::write) && run(phase::sum) && run(phase::read);
        is_open_ = run(phase::clear) && is_open_;
        if (word != nullptr) runtime_.free_host(word);
        return is_open_;
    }

    // Runs f. True if it succeeded on all ranks; else obstacle_ says which rank could not do what.
    template <class F>
    bool all_could(const char* what, F&& f) {
        kept_text why;
        const attempted a = try_together(core(), [&] {
            try {
                f();
            } catch (const std::exception& e) {
                why = joined({" (", e.what(), ")"});
                throw;
            }
        });
        if (a.first >= 0 && obstacle_.empty())
            obstacle_ = joined({"rank ", a.first, " could not ", what, a.first == side_.rank() ? why : kept_text()});
        return a.first < 0;
    }
    // Waits until all ranks have closed the object, before bound memory is freed anywhere.
    void together_at_the_end() {
        (void)all_could("close the multicast object", [] {});
    }
    void close_file() {
        if (object_.file >= 0) ::close(std::exchange(object_.file, -1));
    }

    Runtime runtime_;
    communicator& side_;
    device::gpu_mapping object_;
    bool is_open_ = false;
    kept_text obstacle_;
};

} // namespace detail
COLLX_END_NAMESPACE
