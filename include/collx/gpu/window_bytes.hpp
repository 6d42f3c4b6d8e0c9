// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// A window of bytes on devices, as the host sees it. All ranks make it together, every rank's kernels map its memory,
// and the error that ended it is thrown here. device_window.hpp is the typed front. Knows no kernel of a program.
#pragma once

#include <cstdint>
#include <cstring>
#include <exception>
#include <utility>

#include <collx/comm/barrier.hpp>
#include <collx/comm/split.hpp>
#include <collx/core/element.hpp>
#include <collx/core/locked_mutex.hpp>
#include <collx/core/pointers.hpp>
#include <collx/exec/device/window.hpp>
#include <collx/gpu/known_memory.hpp>
#include <collx/gpu/proxy.hpp>
#include <collx/gpu/route.hpp>

COLLX_BEGIN_NAMESPACE
namespace detail {

// A rank's part of a window on devices.
struct device_window_part {
    std::uint64_t bytes = 0, elem_bytes = 1, type = 0; // type: see type_hash
    std::uint32_t lines = 64;
};

template <device::GpuRuntime Runtime>
class window_bytes {
    using table_type = device::window_table;

public:
    // Collective. Errors: mismatch naming the first rank whose element type, lines or settings differ from those of
    // rank 0 · unsupported, on all ranks, naming the first pair whose kernels do not reach each other's memory ·
    // resource.
    window_bytes(communicator& c, const Runtime& r, const device_window_part& mine, const device_settings& s)
        : base_(c.internals()), base_end_(base_.or_abandon([this] { return base_.watch_end(); })),
          side_(dup_for(communicator_core::of_device_window, c)),
          watched_(dup_for(communicator_core::of_device_window, c)), runtime_(r), route_(r, side_), settings_(s) {
        settings_.multicast = false; // for sums, of which a window makes none
        try {
            agree(mine);
            together(core(), "use its device", [&] {
                device_ = runtime_.current();
                runtime_.load_kernels();
            });
            map(mine);
            together(core(), "make a window on its device", [&] { lay_out(mine); });
        } catch (...) {
            proxy_ = sole_ptr<gpu_proxy>(); // it stores into the host's memory when a rank fails
            // No kernel of a program ran here. Where a failure of a rank ended the last step, another rank may have
            // come through it, and its kernels may use this rank's memory.
            free_all(!core().net.failed());
            throw;
        }
    }
    window_bytes(const window_bytes&) = delete;
    // Requires: this rank's kernels have ended. Kernels of peers may use this rank's memory a little longer, so it is
    //     freed after a barrier; if a rank does not come to it, the memory stays.
    ~window_bytes() {
        // The kernels of peers would wait for signals of a rank that leaves by an exception.
        if (std::uncaught_exceptions() > 0) core().net.report(failure(errc::aborted, rank()));
        proxy_ = sole_ptr<gpu_proxy>();
        say_left();
        bool may_free = false;
        try {
            route_.unmap(); // what this rank's kernels have used
            may_free =
                all_leave(watched_, while_leaving(core().settings.timeout_ns)); // side_ may be in fence() on a peer
        } catch (const error&) {
        }
        free_all(may_free);
    }

    int rank() const { return side_.rank(); }
    int ranks() const { return side_.size(); }
    std::uint64_t bytes(int peer) const { return table_.bytes[peer]; }
    std::byte* part() const { return table_.part(rank()); }
    unsigned lines() const { return table_.lines; }
    // The table that kernels read, in device memory.
    const table_type* table() const {
        return reinterpret_cast<const table_type*>(table_.memory[rank()] + table_type::at);
    }
    // How kernels reach the peers, in words.
    kept_text route() const { return route_.text(); }

    // Checks a call by the host before it is launched.
    void require_place(const char* what, int peer, std::uint64_t at, std::uint64_t bytes) const {
        require_peer(peer);
        if (at > table_.bytes[peer] || bytes > table_.bytes[peer] - at) refuse_place(what, peer, at, bytes);
    }
    // The user's side of a call by the host: `which` buffer, of `bytes` bytes.
    void require_memory(const void* p, std::uint64_t bytes, const char* which) {
        if (bytes != 0) memory_.require_device(runtime_, device_, p, which, rank());
    }
    void require_peer(int peer) const {
        if (peer < 0 || peer >= ranks())
            fail(errc::invalid_argument, rank(), -1, "peers are ranks of the window's communicator",
                 "device window: peer %d of %d ranks", peer, ranks());
    }
    // Launches body(env, lane, lanes) in a stream of this rank's device.
    template <class Body>
    void launch(const Body& body, int lanes, void* stream) {
        check();
        require_current();
        runtime_.launch_lanes(body, lanes, stream);
    }
    int most_lanes() const { return lanes_; }

    void synchronize(void* stream) {
        require_current(); // a null stream is the current device's
        runtime_.synchronize(stream);
        check();
    }
    // Waits until all ranks have completed what they did before; all ranks then see it. Collective.
    void fence(void* stream) {
        synchronize(stream);
        barrier(side_);
        check();
    }
    // Throws the error that ended the window: of kernels of this rank or of another, or a rank that failed.
    void check() {
        if (runtime_.load_host(&host()->gave_up) != 0) explain_reports();
        proxy_->check();
    }
    // Sets how long a wait() may take in kernels that begin from now on, and one for a rank in fence() or at the end.
    // Give all ranks the same limit.
    void set_timeout(duration t) {
        require_current();
        core().settings.timeout_ns = require_some_time(rank(), t.count());
        table_.timeout_ns = static_cast<std::uint64_t>(t.count());
        runtime_.run_lanes(device::window_setup{table_}, 1);
    }

private:
    void require_current() const { require_current_device(runtime_, device_, rank(), "window"); }
    communicator_core& core() { return side_.internals(); }
    device::window_host* host() const { return reinterpret_cast<device::window_host*>(host_); }
    device::window_report* report(unsigned k) const { return reinterpret_cast<device::window_report*>(host() + 1) + k; }

    void agree(const device_window_part& mine) {
        const std::uint64_t own[] = {mine.elem_bytes, mine.type, mine.lines, settings_.staged, mine.bytes};
        std::uint64_t first[5] = {};
        int odd = -1;
        core().exchange_each(own, [&](int r, const std::uint64_t(&its)[5]) {
            if (r == 0) std::memcpy(first, its, sizeof first);
            if (r < device::max_ranks) table_.bytes[r] = its[4];
            if (odd < 0 && std::memcmp(its, first, 4 * sizeof *its) != 0) odd = r;
        });
        if (odd >= 0)
            fail(errc::mismatch, rank(), odd,
                 "make it with one element type, as many lines and the same settings on all ranks",
                 "the device window of rank %d has other elements, lines or settings than that of rank 0", odd);
        if (mine.lines < 1 || mine.lines > 4096)
            fail(errc::invalid_argument, rank(), -1, "one line for each block that signals, 1 to 4096",
                 "a device window of %u lines", mine.lines);
    }
    void map(const device_window_part& mine) {
        if (settings_.staged)
            fail(errc::unsupported, rank(), -1, "use a collx::window of host memory",
                 "device_settings::staged: a window on devices is reached by kernels only");
        table_.part_at = (table_type::part_of(mine.lines) + 255) / 256 * 256;
        lanes_ = route_.choose(settings_, table_.part_at + static_cast<std::size_t>(mine.bytes));
        if (!route_.is_direct())
            fail(errc::unsupported, rank(), route_.obstacle_peer(),
                 "make it among ranks whose kernels reach each other (split), or use a collx::window of host memory",
                 "device window: %s", route_.obstacle().c_str());
    }
    void lay_out(const device_window_part& mine) {
        table_.rank = rank();
        table_.ranks = ranks();
        table_.lines = mine.lines;
        table_.timeout_ns = static_cast<std::uint64_t>(core().settings.timeout_ns);
        for (int r = 0; r < ranks(); ++r) {
            const auto& p = route_.peers()[static_cast<std::size_t>(r)];
            table_.memory[r] = p.memory;
            if (r == rank() || p.way == device::gpu_way::shared || p.access.native_atomics)
                table_.has_atomics |= 1u << r;
        }
        host_ = runtime_.allocate_host(sizeof(device::window_host) + (mine.lines + 1) * sizeof(device::window_report));
        table_.host = reinterpret_cast<device::window_host*>(runtime_.mapped(host_));
        runtime_.run_lanes(device::window_setup{table_}, 1);
        proxy_ = make_sole<gpu_proxy>(
            core(), watched_, gpu_proxy::buffers{},
            gpu_proxy::served_kernels{
                this, [](void* window) { static_cast<window_bytes*>(window)->stop_kernels(); },
                [](void* window, const links& net) { static_cast<window_bytes*>(window)->note_left(net); },
                [](void* window) { return static_cast<window_bytes*>(window)->find_failure(); }});
    }
    // Kernels that wait for this rank from here on wait in vain, and so do ranks in fence().
    void say_left() {
        for (communicator* c : {&watched_, &side_}) c->internals().net.say_end();
        if (core().net.remote() != nullptr) core().net.remote()->say_bye();
    }
    // A failure of the communicator that the window was made of ends the window, too. By the proxy's thread.
    failure find_failure() {
        const locked_mutex here(base_end_->mutex);
        if (base_end_->has_come) return {};
        (void)base_.net.move_remote();
        const failure f = base_.net.failed();
        if (f) core().net.report(f); // for fence()
        return f;
    }
    void note_left(const links& net) { // by the proxy's thread
        if (const std::uint64_t left = find_left(net, ranks(), [](int k) { return k; }); left != 0)
            runtime_.store_host(&host()->left, left);
    }
    void stop_kernels() { runtime_.store_host(&host()->abort, 1); }

    // Throws the error of this rank's kernels, if one is their own. What others ended is the failure of a rank, if
    // one has failed.
    [[gnu::cold]] void explain_reports() {
        std::uint64_t by = 0; // the ended_word of another rank
        bool was_ended_by_others = false;
        for (unsigned k = 0; k <= table_.lines; ++k) {
            const device::window_report* r = report(k);
            const auto why = static_cast<device::window_end>(runtime_.load_host(&r->why));
            if (why == device::window_end::by_peer) by = r->have;
            if (why == device::window_end::by_peer || why == device::window_end::aborted) was_ended_by_others = true;
            else if (why != device::window_end::none) explain(why, *r);
        }
        if (!was_ended_by_others) return;
        const auto why = by != 0 ? device::ended_word::why(by) : device::window_end::aborted;
        // Another rank's proxy has noticed a failure first, and reported it before it ended the waits. A dead rank is
        // a better reason than a deadline.
        const failure f = watched_.internals().net.failed();
        if (f && (why == device::window_end::aborted ||
                  (why == device::window_end::timed_out && f.code() == errc::peer_failed)))
            core().give_up(f, -1);
        explain_end_by(device::ended_word::rank(by), why, device::ended_word::peer(by));
    }
    // other: the rank whose kernel has ended the window, -1: unknown.
    [[noreturn, gnu::cold]] void explain_end_by(int other, device::window_end why, int peer) const {
        if (why == device::window_end::peer_left)
            fail(errc::peer_failed, rank(), peer, remedy_for_signals,
                 "device window: a kernel of rank %d waited for a signal of rank %d, which has ended its window", other,
                 peer);
        const char* const see = "see what the rank says that ended it: check() or synchronize() there";
        if (why == device::window_end::timed_out)
            fail(errc::aborted, rank(), other, see,
                 "device window: rank %d has ended it, since a kernel there waited too long for rank %d", other, peer);
        if (other >= 0) fail(errc::aborted, rank(), other, see, "device window: rank %d has ended it", other);
        fail(errc::aborted, rank(), -1, see, "device window: another rank has ended it");
    }
    [[noreturn, gnu::cold]] void refuse_place(const char* what, int peer, std::uint64_t at, std::uint64_t bytes) const {
        fail(errc::invalid_argument, rank(), peer, "size(peer) says how many elements a rank's part has",
             "device window: %s of %llu bytes at byte %llu of rank %d, whose part has %llu", what,
             static_cast<unsigned long long>(bytes), static_cast<unsigned long long>(at), peer,
             static_cast<unsigned long long>(table_.bytes[peer]));
    }
    // why: a reason of this rank's kernels. Ranks without a kernel that waits, as in fence(), hear of it, too.
    [[noreturn, gnu::cold]] void explain(device::window_end why, const device::window_report& r) {
        const int peer = static_cast<int>(static_cast<std::int64_t>(r.peer));
        if (!std::exchange(has_explained_, true)) {
            if (why == device::window_end::timed_out) core().require_alive(); // a dead rank is the better reason
            for (communicator* c : {&watched_, &side_})
                c->internals().net.report(why == device::window_end::peer_left ? failure(errc::peer_failed, peer)
                                                                               : failure(errc::aborted, rank()));
        }
        const auto line = static_cast<unsigned>(r.line);
        switch (why) {
            case device::window_end::timed_out:
                fail(errc::timeout, rank(), peer,
                     "does it signal on this line as often as this rank waits? A longer limit: set_timeout()",
                     "device window: a kernel waited too long for signal %llu of rank %d on line %u, which has given "
                     "%llu",
                     static_cast<unsigned long long>(r.want), peer, line, static_cast<unsigned long long>(r.have));
            case device::window_end::peer_left:
                fail(errc::peer_failed, rank(), peer, remedy_for_signals,
                     "device window: a kernel waited for signal %llu of rank %d on line %u, which has given "
                     "%llu and ended its window",
                     static_cast<unsigned long long>(r.want), peer, line, static_cast<unsigned long long>(r.have));
            case device::window_end::outside: refuse_place("an access", peer, r.at, r.bytes);
            case device::window_end::no_peer:
                fail(errc::invalid_argument, rank(), -1, "peers are ranks of the window's communicator",
                     "device window: a kernel named peer %d of %d ranks", peer, ranks());
            case device::window_end::no_line:
                fail(errc::invalid_argument, rank(), -1,
                     "make it with as many lines as the kernel has blocks (device_window_options), or name lines",
                     "device window: a block of a kernel has line %llu of %u", static_cast<unsigned long long>(r.at),
                     table_.lines);
            default: // no_atomics
                fail(errc::unsupported, rank(), peer,
                     "put() and signal(), and let that rank add; over NVLink make its device visible here, too "
                     "(CUDA_VISIBLE_DEVICES)",
                     "device window: additions into the memory of rank %d are not atomic over PCI Express, or it is "
                     "unknown whether they are",
                     peer);
        }
    }
    static constexpr const char* remedy_for_signals =
        "let each rank signal as often as its peers wait, then end the window";
    void free_all(bool may_free) {
        route_.close(may_free);
        if (host_ != nullptr && may_free) runtime_.free_host(host_);
        host_ = nullptr;
    }

    communicator_core& base_; // what the window was made of; not looked at after its end
    counted_ptr<communicator_end> base_end_;
    communicator side_, watched_; // watched_: for the proxy's thread, and then for the end
    Runtime runtime_;
    gpu_route<Runtime> route_;
    device_settings settings_;
    device::window_table table_{};
    std::byte* host_ = nullptr;
    known_memory memory_;
    int device_ = -1, lanes_ = 1;
    bool has_explained_ = false; // an error of this rank's kernels
    sole_ptr<gpu_proxy> proxy_;  // ends waits of this rank's kernels when a rank has failed
};

} // namespace detail
COLLX_END_NAMESPACE
