// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// The resources of a communicator for calls on device memory. All its ranks make them together, at the first such call
// or in use_device(): exchange memory on each rank's device, mapped by the peers whose kernels can reach it; a proxy;
// and pinned staging memory where some pair of ranks cannot reach each other. Knows no collective.
#pragma once

#include <cstdint>
#include <utility>
#include <vector>

#include <collx/comm/split.hpp>
#include <collx/exec/device/peers.hpp>
#include <collx/gpu/call_order.hpp>
#include <collx/gpu/domains.hpp>
#include <collx/gpu/known_memory.hpp>
#include <collx/gpu/limits.hpp>
#include <collx/gpu/proxy.hpp>
#include <collx/gpu/route.hpp>
#include <collx/gpu/staging_memory.hpp>

COLLX_BEGIN_NAMESPACE

namespace detail {

struct device_kept : device_part {
    explicit device_kept(const void* k) : kind(k) {}
    const void* kind;
};

template <device::GpuRuntime Runtime>
class gpu_group final : public device_kept {
    using team_type = device::team<device::peer_machine<Runtime>>;

public:
    // The group of a communicator, made if it has none. Collective the first time.
    static gpu_group& of(communicator& c, const Runtime& r, void* stream, const device_settings* s = nullptr) {
        auto& core = c.internals();
        if (core.device != nullptr) {
            auto* k = static_cast<device_kept*>(core.device.get());
            if (k->kind != &kind_of)
                fail(errc::invalid_argument, c.rank(), -1, "use one runtime per communicator",
                     "another GPU runtime is in use on this communicator");
            auto& known = *static_cast<gpu_group*>(k);
            if (s != nullptr && *s != device_settings() && *s != known.settings_)
                fail(errc::invalid_argument, c.rank(), -1,
                     "call use_device() before the first call on device memory, and before device_route()",
                     "this communicator's device is in use, with other settings");
            return known;
        }
        Runtime runtime = r;
        if (is_capturing(runtime, stream))
            fail(errc::invalid_argument, c.rank(), -1, "call collx::use_device(comm) before the capture begins",
                 "the first call on device memory sets up memory and links, which cannot be captured");
        core.device =
            sole_ptr<device_part>(new gpu_group(c, std::move(runtime), s != nullptr ? *s : device_settings()));
        return *static_cast<gpu_group*>(static_cast<device_kept*>(core.device.get()));
    }

    ~gpu_group() override {
        // Calls in streams end first: by themselves, or by the abort that follows.
        const bool is_over = proxy_ == nullptr || proxy_->has_ended();
        if (!order_.has_ended(is_over ? 1'000'000'000 : longest_ns_)) {
            stop_kernels();
            core().net.report(failure(errc::aborted, rank())); // the proxy may wait for a peer
        }
        proxy_ = sole_ptr<gpu_proxy>();
        if (!order_.has_ended(1'000'000'000)) { // a kernel uses the memory, so it is not freed
            forget();
            return;
        }
        if (!order_.has_captured()) say_left(); // CUDA does not report the end of a graph
        // Kernels of peers may read this rank's memory a little longer than its own do, and memory that a peer still
        // has open by CUDA IPC must not be freed either.
        bool may_free = team_ == nullptr;
        if (!may_free) {
            communicator& mapped = domains_ != nullptr ? domains_->inside() : side_;
            try {
                const call_options limit = while_leaving(longest_ns_, has_failed());
                if (all_leave(mapped, limit)) {
                    if (domains_ != nullptr) domains_->unmap();
                    else route_.unmap();
                    may_free = all_leave(mapped, limit);
                }
                if (!may_free) side_.abort(); // proxies of all domains listen there
            } catch (const error& e) {
                // The only peer is a process that has ended, and its kernels with it. (If this rank is the one that
                // failed, or a rank of another domain, the peer's kernels may still run.)
                may_free = e.code() == errc::peer_failed && mapped.size() == 2 && e.peer() == 1 - mapped.rank() &&
                           !core().home->is_threads;
            }
        }
        free_all(may_free);
    }

    int size() const { return side_.size(); }
    int rank() const { return side_.rank(); }
    bool is_direct() const { return route_.is_direct(); } // kernels reach every peer
    // If not null, kernels reach every peer of this rank's domain, and proxies reach the others.
    const gpu_domains<Runtime>* domains() const { return domains_.get(); }
    gpu_domains<Runtime>* domains() { return domains_.get(); }
    // The team of all ranks, or of those of this rank's domain.
    team_type& team() { return *team_; }
    // If not null, a switch reduces and multicasts the exchange memories of these ranks, at this address.
    std::byte* exchange_of_all() const {
        return domains_ != nullptr ? domains_->route().exchange_of_all() : route_.exchange_of_all();
    }
    gpu_proxy& proxy() { return *proxy_; }
    Runtime& runtime() { return runtime_; }
    const device_settings& settings() const { return settings_; }
    const auto& peers() const { return domains_ != nullptr ? domains_->route().peers() : route_.peers(); }
    const gpu_proxy::buffers& staging() const { return staging_.buffers(); }
    device::staging_words* staging_words_on_device() const { return staging_.words_on_device(); }
    device::staging_counts* staging_counts() const { return staging_.counts(); }
    const device::staging_peers& staging_peers() const { return staging_peers_; }

    // Says which way calls take, and why not a shorter one.
    kept_text route() const {
        if (domains_ == nullptr) return route_.text();
        return joined({domains_->text(), route_.obstacle(), "; here ", domains_->route().text(),
                       domains_->map().in_rank_order()
                           ? ""
                           : "; scans and operators that do not commute staged, for domains are no "
                             "intervals of ranks"});
    }

    // Bytes that calls, captured ones included, have copied out to the host and in again. Counted when a call is put
    // into the stream.
    struct staged {
        std::uint64_t out_bytes = 0, in_bytes = 0;
    };
    const staged& staged_so_far() const { return staged_; }
    void count_staged(std::uint64_t out_bytes, std::uint64_t in_bytes) {
        staged_.out_bytes += out_bytes;
        staged_.in_bytes += in_bytes;
    }

    // The number of the call that is being made among this communicator's collectives on device memory. 0 once one of
    // them was captured: replays of a graph are not seen here.
    std::uint64_t number_of_call() const { return has_captured_ ? 0 : made_ + 1; }
    void count_made() { ++made_; }

    // What this rank's proxy has sent to another rank, among all or along its rail. Requires: no call under way.
    links::traffic sent_to(int peer) const {
        links::traffic t = side_.sent_to(peer);
        if (domains_ == nullptr) return t;
        const links::traffic r = domains_->sent_to(peer);
        t.messages += r.messages;
        t.bytes += r.bytes;
        return t;
    }

    // Called before each call. Throws the error that ended the group, or one about the stream or the device.
    // waits: the call waits in its stream for the last call; false if that one is in the same stream.
    device::stream_facts begin(communicator& c, const device_call_options& o, bool is_collective, bool waits) {
        check_agreement(c);
        proxy_->check();
        c.internals().require_alive();
        c.internals().require_time_limit(o.timeout.count());
        const std::int64_t wait_ns = longest_wait(timeout_of(c, o), is_direct());
        longest_ns_ = wait_ns > longest_ns_ ? wait_ns : longest_ns_;
        check_kernels(c);
        require_current();
        const device::stream_facts f = runtime_.stream(o.stream);
        if (f.device >= 0 && f.device != device_)
            fail(errc::invalid_argument, rank(), -1, "make the stream while the communicator's device is current",
                 "the stream is of device %d, and this communicator's memory is on device %d", f.device, device_);
        if (f.is_broken)
            fail(errc::invalid_argument, rank(), -1, "end the capture and begin it anew",
                 "the stream's capture was made invalid by an earlier call");
        order_.before(o.stream, f, waits);
        if (is_collective) {
            ++c.internals().sequence;
            has_captured_ = has_captured_ || f.is_capturing;
        }
        return f;
    }
    // Called after the kernels of a call.
    void end(const device_call_options& o, const device::stream_facts& f) { order_.after(o.stream, f); }
    // Waits for the stream, and throws the error that ended its calls.
    void synchronize(communicator& c, void* stream) {
        require_current(); // a null stream is the current device's
        if (runtime_.stream(stream).is_capturing)
            fail(errc::invalid_argument, rank(), -1, "end the capture first, then launch the graph",
                 "a stream that is captured cannot be waited for");
        runtime_.synchronize(stream);
        check_kernels(c);
    }

    // Called by the host's verbs once calls on device memory have been made.
    void require_host_memory(const void* p, const char* which) override {
        memory_.require_host(runtime_, p, which, rank());
    }

    // Errors: invalid_argument if v is not in memory that this rank's kernels may use.
    template <class View>
    void require_memory(const View& v, const char* which) {
        if constexpr (requires { v.pointer(0); })
            if (v.size() != 0) memory_.require_device(runtime_, device_, v.pointer(0), which, rank());
    }

private:
    static constexpr char kind_of = 0;

    gpu_group(communicator& c, Runtime r, const device_settings& s)
        : device_kept(&kind_of), runtime_(r), settings_(s), side_(c.split(0)), route_(r, side_), order_(r) {
        try {
            together(core(), "use its device", [&] { begin(); });
            int lanes = route_.choose(settings_, shape_.bytes());
            if (!route_.is_direct() && settings_.two_levels && !settings_.staged)
                domains_ = gpu_domains<Runtime>::find(runtime_, side_, route_, settings_, shape_);
            if (domains_ != nullptr) {
                lanes = domains_->lanes();
                shape_.set_ranks(domains_->size(), settings_.stage_bytes);
            }
            together(core(), "make what calls on device memory need", [&] { make_parts(c.internals(), lanes); });
        } catch (...) {
            proxy_ = sole_ptr<gpu_proxy>();
            // No kernel ran here. Where a failure of a rank ended the last step, another rank may have come through it,
            // and its kernels may use this rank's memory.
            free_all(!core().net.failed());
            throw;
        }
    }

    void require_current() const { require_current_device(runtime_, device_, rank(), "communicator"); }
    communicator_core& core() { return side_.internals(); }
    // If there is no device, the setup that follows reports so on all ranks; an error here would be on this one alone.
    static bool is_capturing(Runtime& r, void* stream) {
        try {
            return r.stream(stream).is_capturing;
        } catch (const error&) {
            return false;
        }
    }

    void begin() {
        device_ = runtime_.current();
        shape_.set_ranks(size() <= device::max_ranks ? size() : 1, settings_.stage_bytes);
        shape_.lanes = settings_.lanes;
        shape_.slot_bytes = settings_.slot_bytes;
        shape_.packet_bytes = settings_.packet_bytes;
        if (settings_.lanes < 1 || settings_.staging_lanes < 1 || settings_.staging_lanes > device::max_staging_lanes ||
            settings_.staging_bytes < 4096)
            fail(errc::invalid_argument, rank(), -1, "see collx::device_settings",
                 "lanes are at least 1, staging lanes 1 to 16, staging buffers at least 4096 bytes");
        order_.make();
        runtime_.load_kernels();
    }

    void make_parts(communicator_core& parent, int lanes) {
        if (route_.is_direct() || domains_ != nullptr) {
            std::vector<std::byte*> memory;
            for (const auto& p : peers()) memory.push_back(p.memory);
            const int me = domains_ != nullptr ? domains_->rank() : rank();
            machine_ =
                make_sole<device::peer_machine<Runtime>>(runtime_, me, std::move(memory), exchange_of_all(), lanes);
            team_ = make_sole<team_type>(*machine_, shape_);
        }
        if (!route_.is_direct()) staging_.make(runtime_, settings_);
        if (domains_ != nullptr) {
            domains_->make_room(staging().bytes);
            domains_->heed(&core());
            for (const auto& p : peers())
                staging_peers_.abort[staging_peers_.count++] =
                    &reinterpret_cast<device::rank_control*>(p.memory)->abort;
            staging_peers_.me = domains_->rank();
        }
        proxy_ = make_sole<gpu_proxy>(
            parent, side_, staging(),
            gpu_proxy::served_kernels{
                this, [](void* group) { static_cast<gpu_group*>(group)->stop_kernels(); },
                [](void* group, const links& net) { static_cast<gpu_group*>(group)->note_left(net); }});
    }
    void stop_kernels() {
        if (team_ != nullptr) team_->abort();
        if (staging().words != nullptr) runtime_.store_host(&staging().words->abort, 1);
    }
    // By the proxy's thread. Proxies see the end of ranks on other hosts when they exchange with them.
    void note_left(const links& net) {
        if (team_ == nullptr) return;
        const std::uint64_t left = find_left(net, team_->shape().ranks,
                                             [this](int k) { return domains_ != nullptr ? domains_->rank_of(k) : k; });
        if (left != 0) team_->note_left(left);
    }
    // Kernels and proxies that wait for this rank from here on wait in vain.
    void say_left() {
        core().net.say_end();
        if (domains_ != nullptr) domains_->leave_rail(core());
    }
    // Checked first: a mismatch that this rank's kernels found says more than the reports of other ranks.
    void check_agreement(communicator& c) {
        try {
            if (team_ != nullptr) in_my_numbers([&] { team_->check_agreement(); });
        } catch (const error& e) {
            end(c, e);
        }
    }
    // Whether a call has failed here, also if the program has not asked yet.
    bool has_failed() {
        try {
            if (team_ != nullptr) team_->check();
        } catch (const error&) {
            has_failed_ = true;
        }
        return has_failed_ || static_cast<bool>(core().net.failed());
    }
    [[noreturn]] void end(communicator& c, const error& e) {
        has_failed_ = true;
        c.internals().net.report(failure(e.code(), e.peer()));
        proxy_->end(e);
        raise(e);
    }
    // Kernels inside a domain number only its ranks: translates the ranks of an error.
    template <class F>
    void in_my_numbers(F&& f) {
        try {
            f();
        } catch (const error& e) {
            if (domains_ == nullptr) throw;
            if (e.code() != errc::mismatch && !knows_reason())
                listen(); // a kernel of another rank of the domain gave up
            const int peer = domains_->rank_of(e.peer());
            fail(e.code(), rank(), peer, "is every rank in the same call?",
                 "a kernel gave up on rank %d (in the numbers of its domain: %s)", peer, e.what());
        }
    }
    bool knows_reason() const {
        for (int l = 0; l < team_->shape().lanes; ++l)
            for (int k = 0; k < device::max_groups; ++k)
                if (const auto s = team_->report(domains_->rank(), l, k).state;
                    s == device::wait_state::timed_out || s == device::wait_state::peer_left)
                    return true;
        return false;
    }
    // Waits for the reason that the rank that gave up reports, and throws it.
    void listen() const {
        for (const deadline until = deadline::in_ns(3'000'000'000); !until.passed(); nap_ns(200'000)) proxy_->check();
    }
    void check_staging() {
        const std::uint64_t why = runtime_.load_host(&staging().words->gave_up);
        if (why == device::staging_end::waited_too_long)
            fail(errc::timeout, rank(), -1, "is every rank in the same call?",
                 "a kernel waited too long for a result by way of the host");
        if (why == 0) return;
        listen();
        fail(errc::aborted, rank(), -1, "see what that rank says",
             "a kernel of another rank gave up, and what it had for this rank is missing");
    }
    // Throws the error for which kernels gave up, after it has reported it to the other ranks.
    void check_kernels(communicator& c) {
        check_agreement(c);
        proxy_->check();
        try {
            if (team_ != nullptr) in_my_numbers([&] { team_->check(); });
            if (staging().words != nullptr) check_staging();
        } catch (const error& e) {
            if (e.code() != errc::mismatch) proxy_->check(); // its cause may be more precise
            end(c, e);
        }
    }

    void free_all(bool may_free_exchange) {
        team_ = sole_ptr<team_type>();
        machine_ = sole_ptr<device::peer_machine<Runtime>>();
        if (domains_ != nullptr) domains_->close(may_free_exchange);
        route_.close(may_free_exchange);
        staging_.free(runtime_);
        order_.free();
        forget();
    }
    void forget() {
        if (team_ != nullptr) team_->abandon();
        if (domains_ != nullptr) domains_->abandon();
        route_.abandon();
        order_.abandon();
        staging_.abandon();
    }

    Runtime runtime_;
    device_settings settings_;
    communicator side_; // the proxy's
    gpu_route<Runtime> route_;
    sole_ptr<gpu_domains<Runtime>> domains_;
    device::exchange_shape shape_;
    int device_ = -1;
    sole_ptr<device::peer_machine<Runtime>> machine_;
    sole_ptr<team_type> team_; // null: all calls are staged
    staging_memory<Runtime> staging_;
    device::staging_peers staging_peers_;
    staged staged_;
    call_order<Runtime> order_;
    std::uint64_t made_ = 0; // collectives
    bool has_captured_ = false, has_failed_ = false;
    std::int64_t longest_ns_ = 0; // of the waits of any call so far
    sole_ptr<gpu_proxy> proxy_;
    known_memory memory_;
};

} // namespace detail
COLLX_END_NAMESPACE
