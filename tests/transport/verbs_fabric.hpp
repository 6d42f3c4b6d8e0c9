// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// A fabric of devices within one program, for ranks that are threads. It implements transport/verbs_device.hpp as
// strictly as any device may. It checks the caller's obligations and counts each violation as a misuse. What a device
// may do late, early, in parts or in another order, it does, as the seed determines. Faults occur where the test asks
// for them. Time passes with polls, of either side.
//
//     collx_test::fabric net({.seed = 3});
//     const collx_test::fabric_installed here(net);   // before ranks start
//     ...
//     CHECK(net.misuses() == 0);
//     CHECK(net.counters().sends > 0);
#pragma once

#include <collx/core/error.hpp>

#include <cstdlib>
#include <map>
#include <mutex>

#include "transport/detail/fabric_end.hpp"

namespace collx_test {

class fabric {
public:
    explicit fabric(fabric_options options = {}) : net_{options} {}
    fabric(const fabric&) = delete;
    // Aborts if there were misuses that the test has not read, or a device is still open.
    ~fabric() {
        if (net_.misuses > asked_for_ || open_ != 0) {
            std::fprintf(stderr, "fabric: %ld misuses that no test asked for, %d devices open\n", net_.misuses, open_);
            std::abort();
        }
    }

    // Devices are named fabric0, fabric1, …; without a name this opens the next one that has not been opened.
    collx::sole_ptr<collx::verbs_device> open(const collx::verbs_choice& which);

    long misuses() {
        const std::lock_guard hold(lock_);
        return asked_for_ = net_.misuses;
    }
    std::string first_misuse() {
        const std::lock_guard hold(lock_);
        return net_.first_misuse;
    }
    // The counters of one device, or of all.
    fabric_counters counters(int device = -1) {
        const std::lock_guard hold(lock_);
        fabric_counters sum;
        for (const auto& [number, d] : devices_)
            if (device < 0 || number == device) add(sum, d.counts);
        return sum;
    }
    // Replaces one of the options' faults; its count starts anew.
    void inject(fabric_fault fabric_options::*which, fabric_fault fault) {
        const std::lock_guard hold(lock_);
        net_.options.*which = fault;
    }
    // From now on nothing reaches the device or leaves it.
    void lose(int device) {
        const std::lock_guard hold(lock_);
        devices_[device].is_lost = true;
    }
    // All queue pairs that a device has now fail, although nothing was posted.
    void break_all(int device) {
        const std::lock_guard hold(lock_);
        for (fabric_detail::end* e : net_.ends)
            if (&e->device == &devices_[device]) e->fail("the test wanted it");
    }
    void set_patience_ns(std::int64_t ns) {
        const std::lock_guard hold(lock_);
        net_.options.patience_ns = ns;
    }

private:
    class open_device;
    class memory;
    class pair;

    static void add(fabric_counters& to, const fabric_counters& c) {
        to.posts += c.posts;
        to.writes += c.writes;
        to.bytes_written += c.bytes_written;
        to.sends += c.sends;
        to.transfers += c.transfers;
        to.bytes_read += c.bytes_read;
        to.receives += c.receives;
        to.polls += c.polls;
        to.not_ready += c.not_ready;
        to.devices += c.devices;
        to.memories += c.memories;
        to.queue_pairs += c.queue_pairs;
        to.failures += c.failures;
    }

    std::mutex lock_;
    fabric_detail::shared net_;
    fabric_detail::dice roll_{net_.options.seed};
    std::map<int, fabric_detail::device_end> devices_{}; // by number; never removed
    int open_ = 0, next_device_ = 0;
    long asked_for_ = 0;
};

class fabric::memory final : public collx::verbs_memory {
public:
    memory(fabric& f, fabric_detail::device_end& d, int& owned, std::byte* at, std::size_t bytes, bool is_readable)
        : fabric_(f), device_(d), owned_(owned) {
        // No key is given twice, and local and remote keys differ.
        local_key = static_cast<std::uint32_t>(f.roll_(1u << 20) << 12 | (device_.counts.memories * 2 % 4096));
        remote_key = static_cast<std::uint32_t>(f.roll_(1u << 20) << 12 | (device_.counts.memories * 2 + 1) % 4096);
        device_.regions.push_back({at, bytes, local_key, remote_key, is_readable});
        ++device_.counts.memories;
        ++owned_;
    }
    ~memory() override {
        const std::lock_guard hold(fabric_.lock_);
        auto& all = device_.regions;
        std::size_t i = 0;
        while (all[i].local_key != local_key) ++i;
        for (const fabric_detail::end* e : fabric_.net_.ends) {
            if (&e->device == &device_ && e->uses(all[i]))
                fabric_.net_.misuse(device_, "memory is forgotten while posts use it");
            const fabric_detail::end* const to = e->peer();
            if (to != nullptr && &to->device == &device_ && e->reaches(to) && e->why == nullptr && e->writes_to(all[i]))
                fabric_.net_.misuse(device_, "memory is forgotten while the peer writes to it");
        }
        all.erase(all.begin() + static_cast<std::ptrdiff_t>(i));
        --owned_;
    }

private:
    fabric& fabric_;
    fabric_detail::device_end& device_;
    int& owned_;
};

class fabric::pair final : public collx::queue_pair {
public:
    pair(fabric& f, fabric_detail::device_end& d, int& owned, const collx::verbs_limits& limits)
        : fabric_(f),
          owned_(owned), end_{.net = f.net_,
                              .device = d,
                              .limits = limits,
                              .roll = {f.net_.options.seed * 1'000'003 + static_cast<std::uint64_t>(d.number) * 1009 +
                                       d.counts.queue_pairs}} {
        std::memcpy(end_.address.gid, d.gid, sizeof d.gid);
        do end_.address.number = static_cast<std::uint32_t>(f.roll_(1u << 24));
        while (f.net_.find(end_.address.number) != nullptr);
        end_.address.first_packet = static_cast<std::uint32_t>(f.roll_(1u << 24));
        end_.address.mtu_bytes = 4096;
        f.net_.ends.push_back(&end_);
        ++d.counts.queue_pairs;
        ++owned_;
    }
    ~pair() override {
        const std::lock_guard hold(fabric_.lock_);
        end_.why = "gone";
        end_.come_to_rest();
        end_.seen_at_rest();
        for (const auto& s : end_.stragglers) (void)s->ready.load(std::memory_order_acquire);
        if (fabric_detail::end* const to = end_.peer()) { // it has accessed the peer's memory, too
            to->quiet_peer.fetch_add(1, std::memory_order_release);
            end_.writer.copy(nullptr, nullptr, 0, &to->quiet_peer, nullptr, &to->quiet_peer);
        }
        std::erase(fabric_.net_.ends, &end_);
        --owned_;
    }
    collx::queue_pair_address address() const override { return end_.address; }

    void connect(const collx::queue_pair_address& peer) override {
        const std::lock_guard hold(fabric_.lock_);
        if (end_.is_connected) misuse("a queue pair is connected twice");
        bool is_known = false;
        for (const auto& [number, d] : fabric_.devices_) is_known |= std::memcmp(d.gid, peer.gid, 16) == 0;
        const bool is_size =
            peer.mtu_bytes >= 256 && peer.mtu_bytes <= 4096 && (peer.mtu_bytes & (peer.mtu_bytes - 1)) == 0;
        if (fabric_.net_.options.refuse_connect.hits(end_.device.number) || !is_known || !is_size ||
            peer.number >> 24 != 0 || peer.first_packet >> 24 != 0)
            collx::fail(collx::errc::environment, -1, -1, "", "fabric%d port 1: no way to the peer",
                        end_.device.number);
        end_.peer_address = peer;
        end_.is_connected = true;
    }

    void post_receive(std::byte* at, std::uint32_t bytes, std::uint32_t local_key, std::uint64_t id) override {
        const std::lock_guard hold(fabric_.lock_);
        ++end_.device.counts.receives;
        const fabric_detail::region* const r = end_.device.by_local_key(local_key);
        if (r == nullptr || !r->holds(reinterpret_cast<std::uint64_t>(at), bytes))
            misuse("a receive into memory that is not registered");
        if (static_cast<int>(end_.receives.size() + end_.received.size()) >= end_.limits.receives)
            misuse("more receives posted than the limit");
        auto p = std::make_unique<fabric_detail::posted_receive>();
        p->at = at;
        p->bytes = bytes;
        p->local_key = local_key;
        p->id = id;
        p->posted.store(1, std::memory_order_release);
        end_.receives.push_back(std::move(p));
    }

    bool post(const collx::verbs_write* writes, int count, const void* head, std::uint32_t head_bytes,
              std::uint64_t id) override {
        const std::lock_guard hold(fabric_.lock_);
        auto& counts = end_.device.counts;
        if (end_.is_told ||
            (end_.why != nullptr && !(end_.sends.empty() && end_.receives.empty()) && end_.roll(2) == 0))
            return false;
        (void)is_wrong(writes, count, head_bytes); // a wrong post fails as if the device had noticed it
        counts.writes += static_cast<std::uint64_t>(count);
        counts.sends += head_bytes != 0;
        for (int i = 0; i < count; ++i) counts.bytes_written += writes[i].bytes;
        auto s = std::make_unique<fabric_detail::posted_send>();
        s->writes.assign(writes, writes + count);
        const auto* const h = static_cast<const unsigned char*>(head);
        s->head.assign(h, h + head_bytes);
        return start(std::move(s), id);
    }

    bool post_alone(const collx::verbs_transfer& t, std::uint64_t id) override {
        const std::lock_guard hold(fabric_.lock_);
        auto& counts = end_.device.counts;
        if (end_.is_told || (end_.why != nullptr && !end_.sends.empty() && end_.roll(2) == 0)) return false;
        const collx::verbs_write w{t.here, t.bytes, t.local_key, t.there, t.remote_key};
        if (t.bytes == 0) misuse("a transfer of nothing");
        else if (end_.transfers_under_way() >= end_.limits.transfers) misuse("more transfers posted than the limit");
        else (void)is_wrong(&w, 1, 0, true);
        ++counts.transfers;
        counts.bytes_written += t.is_read ? 0 : t.bytes;
        auto s = std::make_unique<fabric_detail::posted_send>();
        s->writes.assign(1, w);
        s->is_alone = true;
        s->is_read = t.is_read;
        return start(std::move(s), id);
    }

    int poll(collx::verbs_completion* to, int most) override {
        const std::lock_guard hold(fabric_.lock_);
        ++end_.device.counts.polls;
        ++end_.polls;
        if (fabric_detail::end* const p = end_.peer()) p->step();
        end_.step();
        int n = 0;
        bool is_receive = end_.roll(2) == 0;
        for (int dry = 0; n < most && dry < 2; is_receive = !is_receive) {
            const bool got = is_receive ? take_receive(to[n]) : take_send(to[n]);
            n += got;
            dry = got ? 0 : dry + 1;
        }
        return n;
    }

private:
    using completion = collx::verbs_completion;

    bool misuse(const char* what) {
        fabric_.net_.misuse(end_.device, what);
        end_.fail(what);
        return true;
    }
    bool start(std::unique_ptr<fabric_detail::posted_send> s, std::uint64_t id) {
        ++end_.device.counts.posts;
        s->id = id;
        s->ready_at = end_.steps + end_.delay();
        s->breaks = fabric_.net_.options.break_pair.hits(end_.device.number);
        end_.is_cut |= fabric_.net_.options.cut_pair.hits(end_.device.number);
        s->posted.store(1, std::memory_order_release);
        end_.sends.push_back(std::move(s));
        return true;
    }
    bool is_wrong(const collx::verbs_write* writes, int count, std::uint32_t head_bytes, bool is_alone = false) {
        const fabric_options& o = fabric_.net_.options;
        if (!end_.is_connected) return misuse("a post before connect()");
        if (head_bytes > end_.limits.head_bytes || head_bytes > o.most_head_bytes)
            return misuse("a head longer than the limit");
        if (head_bytes != 0 && end_.sends_under_way() >= end_.limits.sends)
            return misuse("more sends posted than the limit");
        if (!is_alone && (count < 0 || end_.writes_under_way() + count > end_.limits.writes))
            return misuse("more writes posted than the limit");
        for (int i = 0; i < count; ++i) {
            const collx::verbs_write& w = writes[i];
            if (w.bytes > o.most_write_bytes) return misuse("a write longer than the device's limit");
            const fabric_detail::region* const r = end_.device.by_local_key(w.local_key);
            if (w.bytes != 0 && (r == nullptr || !r->holds(reinterpret_cast<std::uint64_t>(w.from), w.bytes)))
                return misuse("a write from memory that is not registered");
        }
        return false;
    }
    // Sends complete in order, failed ones after successful ones.
    bool take_send(completion& c) {
        auto& sends = end_.sends;
        std::size_t i = 0; // posts without a head complete with the next post that has one
        while (i < end_.carried && sends[i]->head.empty() && !sends[i]->is_alone) ++i;
        if (i < end_.carried) {
            fabric_detail::posted_send& s = *sends[i];
            if (s.ready_at > end_.polls) return false;
            for (std::size_t k = 0; k <= i; ++k) (void)sends[k]->done.load(std::memory_order_acquire);
            end_.forget_placed(s.placed_before);
            c = {.what = completion::kind::sent, .id = s.id};
            sends.erase(sends.begin(), sends.begin() + static_cast<std::ptrdiff_t>(i + 1));
            end_.carried -= i + 1;
            return true;
        }
        if (end_.why == nullptr) return false;
        end_.seen_at_rest();
        sends.erase(sends.begin(), sends.begin() + static_cast<std::ptrdiff_t>(end_.carried));
        end_.carried = 0;
        if (sends.empty()) return false;
        c = failed(sends.front()->id);
        sends.pop_front();
        return true;
    }
    bool take_receive(completion& c) {
        if (!end_.received.empty()) {
            fabric_detail::posted_receive& r = *end_.received.front();
            if (r.ready_at > end_.polls) return false;
            (void)r.done.load(std::memory_order_acquire);
            c = {.what = completion::kind::received, .id = r.id, .bytes = r.bytes};
            end_.received.pop_front();
            return true;
        }
        if (end_.why == nullptr || end_.receives.empty()) return false;
        end_.seen_at_rest();
        c = failed(end_.receives.front()->id);
        end_.receives.pop_front();
        return true;
    }
    completion failed(std::uint64_t id) {
        const char* const why = end_.is_told ? "flushed behind a failure" : end_.why;
        end_.is_told = true;
        return {.what = completion::kind::failed, .id = id, .bytes = 0, .why = why};
    }

    fabric& fabric_;
    int& owned_;
    fabric_detail::end end_;
};

class fabric::open_device final : public collx::verbs_device {
public:
    open_device(fabric& f, fabric_detail::device_end& d) : fabric_(f), device_(d) {
        std::snprintf(name_, sizeof name_, "fabric%d port 1", d.number);
        ++f.open_;
        ++d.counts.devices;
    }
    ~open_device() override {
        const std::lock_guard hold(fabric_.lock_);
        if (owned_ != 0) {
            fabric_.net_.misuse(device_, "a device is closed before its queue pairs and memory");
            std::abort(); // they would later access the destroyed device
        }
        --fabric_.open_;
    }
    const char* name() const override { return name_; }
    std::uint32_t most_write_bytes() const override { return fabric_.net_.options.most_write_bytes; }
    std::uint32_t most_head_bytes() const override { return fabric_.net_.options.most_head_bytes; }
    collx::sole_ptr<collx::verbs_memory> register_memory(std::byte* at, std::size_t bytes,
                                                         collx::peers_may access) override {
        const std::lock_guard hold(fabric_.lock_);
        if (at == nullptr || bytes == 0) fabric_.net_.misuse(device_, "nothing is registered as memory");
        if (fabric_.net_.options.refuse_memory.hits(device_.number))
            collx::fail(collx::errc::resource, -1, -1, "ulimit -l", "%s: %zu bytes cannot be registered", name_, bytes);
        return collx::sole_ptr<collx::verbs_memory>(
            new memory(fabric_, device_, owned_, at, bytes, access == collx::peers_may::write_and_read));
    }
    collx::sole_ptr<collx::queue_pair> make_queue_pair(const collx::verbs_limits& limits) override {
        const std::lock_guard hold(fabric_.lock_);
        const fabric_options& o = fabric_.net_.options;
        if (limits.head_bytes > o.most_head_bytes || limits.sends < 0 || limits.writes < 0 || limits.receives < 0 ||
            limits.transfers < 0)
            fabric_.net_.misuse(device_, "a queue pair with limits that no device has");
        if (fabric_.net_.options.refuse_queue_pair.hits(device_.number) ||
            limits.sends + limits.writes + limits.transfers > o.most_posts || limits.receives > o.most_posts)
            collx::fail(collx::errc::resource, -1, -1, "", "%s: no queue pair is to be had", name_);
        return collx::sole_ptr<collx::queue_pair>(new pair(fabric_, device_, owned_, limits));
    }

private:
    fabric& fabric_;
    fabric_detail::device_end& device_;
    int owned_ = 0;
    char name_[32];
};

inline collx::sole_ptr<collx::verbs_device> fabric::open(const collx::verbs_choice& which) {
    const std::lock_guard hold(lock_);
    if (net_.options.devices == 0 && which.device == nullptr) return nullptr;
    int number = next_device_;
    if (which.device == nullptr) ++next_device_;
    else if (std::sscanf(which.device, "fabric%d", &number) != 1) number = -1;
    if (number < 0 || number >= net_.options.devices || which.port < 0 || which.port > 1 || which.gid_index > 3)
        collx::fail(collx::errc::environment, -1, -1, "fabric0, fabric1, ...", "no device %s port %d with address %d",
                    which.device != nullptr ? which.device : "of any name", which.port, which.gid_index);
    fabric_detail::device_end& d = devices_[number];
    d.number = number;
    const unsigned char made[16] = {0xfe, 0x80, 0, 0, 0, 0, 0, 0,
                                    0,    0,    0, 0, 0, 0, 0, static_cast<unsigned char>(number)};
    std::memcpy(d.gid, which.has_address ? which.address : made, sizeof d.gid);
    return collx::sole_ptr<collx::verbs_device>(new open_device(*this, d));
}

// While it lives, this fabric is the program's library of verbs.
class fabric_installed {
public:
    explicit fabric_installed(fabric& f) : former_(collx::detail::verbs_library), former_fabric_(current_) {
        current_ = &f;
        collx::detail::verbs_library = &library_;
    }
    fabric_installed(const fabric_installed&) = delete;
    ~fabric_installed() {
        collx::detail::verbs_library = former_;
        current_ = former_fabric_;
    }

private:
    static inline fabric* current_ = nullptr;
    static constexpr collx::verbs_component library_{
        "fabric", [](const collx::verbs_choice& which) { return current_->open(which); },
        [] { return static_cast<const char*>("the fabric of this test has no devices"); }};
    const collx::verbs_component* const former_;
    fabric* const former_fabric_;
};

} // namespace collx_test
