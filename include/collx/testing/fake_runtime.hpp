// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// A GPU runtime without a GPU: device memory is host memory that other processes can map, a stream is a queue that a
// thread works off, blocks are threads, and a handle names a file of the process that made it. It refuses what CUDA
// refuses. So the calls, links and proxies above a GpuRuntime run, and fail, in tests and under sanitizers; and a
// program can try its stream-ordered calls where there is no GPU.
#pragma once

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <atomic>
#include <cstdio>
#include <functional>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

#include <collx/core/error.hpp>
#include <collx/exec/device/group.hpp>
#include <collx/testing/fake_stream.hpp>
#include <collx/testing/twin_env.hpp>
#include <collx/transport/gpu_runtime.hpp>
#include <collx/transport/peer_file.hpp>

COLLX_BEGIN_NAMESPACE
namespace device {

// The devices of one process.
class fake_gpus {
public:
    struct plan {
        int devices = 4;
        int processors = 4;     // of each device
        int first_uuid = 0;     // lets processes see different devices, or the same ones
        bool cooperates = true; // see gpu_facts
        unsigned handles = bit_of(handle_kind::ipc);
        int fabric = 0; // the fabric's number: handles of another cannot be opened
        bool multicasts = false;
        gpu_access (*access)(int from, int to) = [](int, int) { return gpu_access{true, true, 0}; };
    };
    fake_gpus() : fake_gpus(plan{}) {}
    explicit fake_gpus(const plan& p) : plan_(p) {
        for (int d = 0; d < p.devices; ++d) defaults_.push_back(std::make_unique<fake_stream>(d));
    }
    fake_gpus(const fake_gpus&) = delete;
    ~fake_gpus() {
        defaults_.clear();
        for (const piece& m : memory_) drop(m);
    }
    const plan& what() const { return plan_; }
    fake_stream& default_stream(int device) { return *defaults_[static_cast<std::size_t>(device)]; }

    // Allocates memory, also for the programs' own buffers.
    void* allocate(std::size_t bytes, int device, memory_place place = memory_place::device, bool is_foreign = false) {
        const std::size_t all = (bytes + 4095) / 4096 * 4096 + 4096;
        const int fd = ::memfd_create("collx-fake-gpu", MFD_CLOEXEC | MFD_ALLOW_SEALING);
        void* p = MAP_FAILED;
        if (fd >= 0 && ::ftruncate(fd, static_cast<off_t>(all)) == 0)
            p = ::mmap(nullptr, all, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
        if (p == MAP_FAILED) {
            if (fd >= 0) ::close(fd);
            fail(errc::resource, -1, -1, "free memory of the device", "allocating %zu bytes: out of memory", bytes);
        }
        const std::lock_guard lock(mutex_);
        memory_.push_back({static_cast<std::byte*>(p), all, fd, device, place, is_foreign});
        return p;
    }
    void free(void* p, bool is_shown_by_ipc = false) {
        const std::lock_guard lock(mutex_);
        for (auto m = memory_.begin(); m != memory_.end(); ++m)
            if (m->base == p) {
                ::munmap(m->base, m->bytes);
                // Sealing is refused while another mapping can write the file.
                if (is_shown_by_ipc && ::fcntl(m->fd, F_ADD_SEALS, F_SEAL_WRITE) != 0) freed_while_open.fetch_add(1);
                m->bytes = 0;
                drop(*m);
                memory_.erase(m);
                return;
            }
    }
    memory_facts find(const void* p) {
        const std::lock_guard lock(mutex_);
        const auto* at = static_cast<const std::byte*>(p);
        for (const piece& m : memory_)
            if (m.base <= at && at < m.base + m.bytes) return {m.place, m.device, m.is_foreign};
        return {};
    }
    // A handle, by its kind: "/proc/PID/fd/FILE BYTES FABRIC", or the numbers of a file that is handed over.
    memory_handle handle_of(gpu_mapping& shown) {
        const unsigned bit = bit_of(shown.kind);
        if ((refuses_handles.load() & bit) != 0 || (plan_.handles & bit) == 0)
            fail(errc::unsupported, -1, -1, "", "exporting memory: operation not supported");
        const std::lock_guard lock(mutex_);
        for (const piece& m : memory_) {
            if (m.base != shown.at) continue;
            if (shown.kind == handle_kind::file) {
                if (shown.file < 0) shown.file = ::fcntl(m.fd, F_DUPFD_CLOEXEC, 0);
                return handle_of_file(shown.file);
            }
            memory_handle h;
            std::snprintf(reinterpret_cast<char*>(h.bytes), sizeof h.bytes, "/proc/%d/fd/%d %zu %d",
                          static_cast<int>(::getpid()), m.fd, m.bytes, plan_.fabric);
            return h;
        }
        fail(errc::invalid_argument, -1, -1, "", "exporting memory: this is no allocation of a device");
    }
    std::byte* open(const memory_handle& h, handle_kind kind, std::size_t bytes) {
        if ((refuses_opening.load() & bit_of(kind)) != 0)
            fail(errc::unsupported, -1, -1, "", "mapping a peer's memory: operation not permitted");
        const descriptor fd = kind == handle_kind::file ? file_of(h) : file_named_by(h, kind);
        const int sharing = (loses_stores.load() & bit_of(kind)) != 0 ? MAP_PRIVATE : MAP_SHARED;
        void* p = ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, sharing, fd.get(), 0);
        if (p == MAP_FAILED) fail(errc::invalid_argument, -1, -1, "", "mapping a peer's memory: invalid handle");
        const std::lock_guard lock(mutex_);
        opened_.push_back({static_cast<std::byte*>(p), bytes, -1, -1, memory_place::device, false});
        return static_cast<std::byte*>(p);
    }
    void close(void* p) {
        if (const unsigned us = closing_takes_us.load(); us != 0) ::usleep(us);
        const std::lock_guard lock(mutex_);
        for (auto m = opened_.begin(); m != opened_.end(); ++m)
            if (m->base == p) {
                drop(*m);
                opened_.erase(m);
                return;
            }
    }
    // The number of allocations and mappings that were not released.
    std::size_t pieces() {
        const std::lock_guard lock(mutex_);
        return memory_.size() + opened_.size();
    }

    // For tests.
    std::atomic<unsigned> refuses_handles{0}; // bits of kinds that cannot be exported
    std::atomic<unsigned> refuses_opening{0};
    std::atomic<unsigned> loses_stores{0}; // kinds whose mappings are private: stores do not reach the peer
    std::atomic<int> granted{0};           // devices that were given access to memory of this process
    std::atomic<int> busy{0};              // multiprocessors that other kernels hold
    std::atomic<int> enabled{0};           // calls that enabled peer access
    std::atomic<unsigned> loaded{0};       // bits of devices that kernels were loaded on
    std::atomic<int> unloaded_launches{0}; // of kernels that had not been loaded on the device
    std::atomic<int> freed_while_open{0};  // memory that another process had open by CUDA IPC
    std::atomic<unsigned> closing_takes_us{0};
    std::atomic<bool> takes_turns{false}; // kernels of set-up run one after the other
    std::mutex turn;
    std::atomic<int> fused_launches{0}, recorded_events{0};
    enum class multicast_step : int { none, make, open, join, bind };
    std::atomic<multicast_step> refuses_multicast{multicast_step::none}; // the step that fails, on `refusing_device`
    std::atomic<int> refusing_device{0};
    std::atomic<int> joined{0}; // devices that were added to multicast objects

private:
    struct piece {
        std::byte* base;
        std::size_t bytes;
        int fd, device;
        memory_place place;
        bool is_foreign;
    };
    descriptor file_named_by(const memory_handle& h, handle_kind kind) const {
        char path[48] = "";
        std::size_t bytes = 0;
        int pid = 0, fabric = 0;
        const char* text = reinterpret_cast<const char*>(h.bytes);
        if (std::sscanf(text, "%47s %zu %d", path, &bytes, &fabric) != 3 || std::sscanf(text, "/proc/%d/", &pid) != 1)
            fail(errc::invalid_argument, -1, -1, "", "mapping a peer's memory: invalid handle");
        if (pid == ::getpid() && kind == handle_kind::ipc)
            fail(errc::invalid_argument, -1, -1, "", "mapping a peer's memory: the handle is of this process");
        if (fabric != plan_.fabric && kind == handle_kind::fabric)
            fail(errc::unsupported, -1, -1, "", "mapping a peer's memory: it is of another fabric");
        descriptor fd(::open(path, O_RDWR | O_CLOEXEC));
        if (!fd.is_open()) fail(errc::invalid_argument, -1, -1, "", "mapping a peer's memory: cannot open %s", path);
        return fd;
    }
    static void drop(const piece& m) {
        if (m.bytes != 0) ::munmap(m.base, m.bytes);
        if (m.fd >= 0) ::close(m.fd);
    }
    plan plan_;
    std::vector<std::unique_ptr<fake_stream>> defaults_;
    std::mutex mutex_;
    std::vector<piece> memory_, opened_;
};

class fake_runtime {
public:
    explicit fake_runtime(fake_gpus& g) : gpus_(&g) {}

    int count() const { return gpus_->what().devices; }
    int current() const {
        if (current_ >= count())
            fail(errc::unsupported, -1, -1, "run it on a machine with an NVIDIA GPU and its driver",
                 "looking for a CUDA device: no CUDA-capable device is detected");
        return current_;
    }
    void use(int device) const { current_ = device; }
    gpu_facts facts(int device) const {
        gpu_facts f;
        std::snprintf(f.bus_id, sizeof f.bus_id, "0000:%02x:00.0", static_cast<unsigned>(device) & 0xffu);
        f.uuid[0] = 0xfa'ce;
        f.uuid[1] = static_cast<std::uint64_t>(gpus_->what().first_uuid + device);
        f.processors = gpus_->what().processors;
        f.can_cooperate = gpus_->what().cooperates;
        f.handles = gpus_->what().handles;
        f.multicasts = gpus_->what().multicasts;
        return f;
    }
    gpu_access access(int from, int to) const { return gpus_->what().access(from, to); }
    void enable_access(int) const { gpus_->enabled.fetch_add(1); }
    void load_kernels() const { gpus_->loaded.fetch_or(1u << current_); }

    std::byte* allocate(std::size_t bytes) const {
        return static_cast<std::byte*>(gpus_->allocate(bytes, current_, memory_place::device));
    }
    void free(std::byte* p) const { gpus_->free(p); }
    std::byte* allocate_host(std::size_t bytes) const {
        return static_cast<std::byte*>(gpus_->allocate(bytes, -1, memory_place::pinned));
    }
    void free_host(std::byte* p) const { gpus_->free(p); }
    std::byte* mapped(std::byte* p) const { return p; }
    memory_facts memory(const void* p) const { return gpus_->find(p); }
    gpu_mapping allocate_shared(std::size_t bytes, handle_kind kind) const { return {allocate(bytes), bytes, kind}; }
    void free_shared(gpu_mapping& m) const {
        if (m.file >= 0) ::close(m.file);
        gpus_->free(m.at, m.kind == handle_kind::ipc);
        m = {};
    }
    memory_handle export_memory(gpu_mapping& m) const { return gpus_->handle_of(m); }
    gpu_mapping open_memory(const memory_handle& h, handle_kind kind, std::size_t bytes) const {
        return {gpus_->open(h, kind, bytes), bytes, kind};
    }
    void close_memory(gpu_mapping& m) const { gpus_->close(m.at); }
    void grant(std::byte*, std::size_t, int) const { gpus_->granted.fetch_add(1); }

    // A multicast object has no address for all memories here, because twin_env has the memories themselves. It is two
    // numbers: of the devices that it is made for, and of those that have joined.
    gpu_mapping make_multicast(std::size_t, int devices, handle_kind kind) const {
        refuse_if(fake_gpus::multicast_step::make);
        gpu_mapping m{static_cast<std::byte*>(gpus_->allocate(1, current_)), 4096, kind};
        twin_env::store_relaxed(reinterpret_cast<std::uint64_t*>(m.at), static_cast<std::uint64_t>(devices));
        return m;
    }
    gpu_mapping open_multicast(const memory_handle& h, handle_kind kind, std::size_t) const {
        refuse_if(fake_gpus::multicast_step::open);
        return {gpus_->open(h, kind, 4096), 4096, kind};
    }
    void join_multicast(gpu_mapping& m) const {
        refuse_if(fake_gpus::multicast_step::join);
        twin_env::add_atomically(reinterpret_cast<std::uint64_t*>(m.at) + 1, std::uint64_t{1});
        gpus_->joined.fetch_add(1);
    }
    void bind_multicast(gpu_mapping& m, const gpu_mapping&) const {
        refuse_if(fake_gpus::multicast_step::bind);
        const auto* numbers = reinterpret_cast<const std::uint64_t*>(m.at);
        if (twin_env::load_relaxed(numbers) != twin_env::load_relaxed(numbers + 1))
            fail(errc::invalid_argument, -1, -1, "", "multicast: not all devices have been added");
    }
    void close_multicast(gpu_mapping& m) const {
        if (m.file >= 0) ::close(m.file);
        // made or opened: the other call finds nothing
        gpus_->close(m.at);
        gpus_->free(m.at);
        m = {};
    }

    fake_stream& stream_of(void* s) const {
        return s == nullptr ? gpus_->default_stream(current()) : *static_cast<fake_stream*>(s);
    }
    stream_facts stream(void* s) const {
        fake_stream& x = stream_of(s);
        return {x.is_capturing() ? -1 : x.device(), x.is_capturing(), x.is_broken(), x.capture()};
    }
    void synchronize(void* s) const {
        if (stream_of(s).is_capturing())
            fail(errc::invalid_argument, -1, -1, "", "waiting for a stream: operation not permitted while capturing");
        stream_of(s).drain();
    }
    struct event {
        std::atomic<std::uint64_t> asked{0}, reached{0};
    };
    // An event may be freed before the work that waits for it in a stream has run.
    using kept_event = std::shared_ptr<event>;
    void* make_event() const { return new kept_event(std::make_shared<event>()); }
    void free_event(void* e) const { delete static_cast<kept_event*>(e); }
    // While a stream is captured, the graph keeps its order: record() and wait() add no node.
    void record(void* e, void* s) const {
        gpus_->recorded_events.fetch_add(1);
        if (stream_of(s).is_capturing()) return;
        const kept_event x = *static_cast<kept_event*>(e);
        const std::uint64_t number = x->asked.fetch_add(1) + 1;
        stream_of(s).put([x, number] { x->reached.store(number, std::memory_order_release); });
    }
    void wait(void* s, void* e) const {
        if (stream_of(s).is_capturing()) return;
        const kept_event x = *static_cast<kept_event*>(e);
        stream_of(s).put([x, number = x->asked.load()] {
            while (x->reached.load(std::memory_order_acquire) < number) sched_yield();
        });
    }
    bool has_happened(void* e) const {
        const kept_event& x = *static_cast<kept_event*>(e);
        return x->reached.load(std::memory_order_acquire) >= x->asked.load();
    }
    std::uint64_t load_host(const std::uint64_t* p) const { return twin_env::load_acquire(p); }
    void store_host(std::uint64_t* p, std::uint64_t x) const { twin_env::store_release(p, x); }

    template <class Protocol, int Groups, class Algorithm, class Types>
    void launch_fused(const fused_args<Algorithm, Types>& a, int ranks, void* s) const {
        static_assert(Groups == 1, "collx: the fake runtime runs one thread per block");
        launch_blocks(a.lanes, ranks, s, [a](twin_env& env, block_state& shared, int rank, int lane) {
            executor<executor_kind<twin_env, Algorithm, Types, Protocol>>(env, a, shared, a.first_rank + rank, lane)
                .run();
        });
    }
    template <class Calls>
    void launch_array(const Calls& calls, int ranks, void* s) const {
        launch_blocks(calls.lanes, ranks, s, [calls](twin_env& env, block_state& shared, int rank, int lane) {
            run_calls(env, calls, shared, calls.first_rank + rank, lane);
        });
    }
    // A function of (env, lane, lanes). The types of bodies end here: what follows is compiled once.
    using lane_body = std::function<void(twin_env&, int, int)>;
    void launch_lanes(const lane_body& body, int lanes, void* s) const {
        count_if_unloaded();
        stream_of(s).put([body, lanes] {
            blocks(lanes, [&](int lane) {
                twin_barrier mine(1), block(1);
                twin_env env(0, 1, 0, 1, mine, block);
                body(env, lane, lanes);
            });
        });
    }
    void run_lanes(const lane_body& body, int lanes) const {
        std::unique_lock turn(gpus_->turn, std::defer_lock);
        if (gpus_->takes_turns) turn.lock();
        fake_stream own(current_);
        launch_lanes(body, lanes, &own);
        own.drain();
    }

    // Captures, for tests of calls in graphs.
    static void begin_capture(fake_stream& s) { s.begin_capture(); }
    static fake_graph end_capture(fake_stream& s) { return s.end_capture(); }
    static void launch(const fake_graph& g, fake_stream& s) {
        for (const auto& f : g) s.put(f);
    }

private:
    void refuse_if(fake_gpus::multicast_step step) const {
        if (gpus_->refuses_multicast == step && gpus_->refusing_device == current_)
            fail(errc::unsupported, -1, -1, "", "multicast: operation not supported");
    }
    void count_if_unloaded() const {
        if ((gpus_->loaded.load() >> current_ & 1) == 0) gpus_->unloaded_launches.fetch_add(1);
    }
    // Runs body(env, shared, rank of the launch, lane) on each block.
    using block_body = std::function<void(twin_env&, block_state&, int, int)>;
    void launch_blocks(int lanes, int ranks, void* s, const block_body& body) const {
        if (lanes * ranks > gpus_->what().processors - gpus_->busy.load())
            fail(errc::resource, -1, -1, "use fewer lanes (device_settings), or leave room beside other kernels",
                 "launching a fused kernel: %d blocks cannot be resident together", lanes * ranks);
        gpus_->fused_launches.fetch_add(1);
        count_if_unloaded();
        stream_of(s).put([body, lanes, ranks] {
            blocks(ranks * lanes, [&](int b) {
                block_state shared{};
                twin_barrier mine(1), block(1);
                twin_env env(0, 1, 0, 1, mine, block);
                body(env, shared, b / lanes, b % lanes);
            });
        });
    }
    static void blocks(int count, const std::function<void(int)>& f) {
        std::vector<std::thread> threads;
        for (int b = 1; b < count; ++b) threads.emplace_back([&f, b] { f(b); });
        f(0);
        for (auto& t : threads) t.join();
    }
    fake_gpus* gpus_;
    static inline thread_local int current_ = 0;
};
static_assert(MulticastRuntime<fake_runtime>);

} // namespace device
COLLX_END_NAMESPACE
