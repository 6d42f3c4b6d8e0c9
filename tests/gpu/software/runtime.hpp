// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// The state behind the functions of the CUDA runtime that runtime_*.cpp define, in place of libcudart: devices, memory,
// streams, captures. It is never destroyed, because other static objects may call the functions until the very end.
#pragma once

#include <cuda.h>
#include <cuda_runtime_api.h>

#include <condition_variable>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <shared_mutex>
#include <string>
#include <thread>
#include <vector>

#include "machine.hpp"

namespace software_gpu {

// ---------------------------------------------------------------------------------------------------- errors
// The result of a call; kept for cudaGetLastError. After a kernel's fault every call returns that error.
cudaError_t returned(cudaError_t);
cudaError_t sticky_error();
void set_sticky(cudaError_t);
// Whether calls are allowed: not in a child of a process that has used CUDA, and not without a device.
cudaError_t ready();
bool is_in_forked_child();

// ---------------------------------------------------------------------------------------------------- devices
int device_count(); // SOFTWARE_GPUS; 1 if not set
int processors();   // SOFTWARE_GPU_SMS of each device; 8 if not set
int& current_device();
bool may_access(int from, int to); // in this process, as cudaDeviceEnablePeerAccess has set
void let_access(int from, int to);
// The blocks that are resident together on a device; a kernel waits until there is room for its blocks.
class residents {
public:
    void enter(unsigned blocks, const std::atomic<bool>& stop);
    void leave(unsigned blocks);

private:
    std::mutex mutex_;
    std::condition_variable left_;
    unsigned free_ = static_cast<unsigned>(processors());
    std::uint64_t next_ = 0, served_ = 0; // first come, first served
};
residents& residents_of(int device);
extern std::atomic<bool> stopped;   // the process ends
extern std::atomic<bool> cancelled; // the process ends or a kernel failed: the other kernels end, too
inline constexpr std::size_t device_bytes = std::size_t{1} << 33;

// ---------------------------------------------------------------------------------------------------- memory
struct allocation {
    enum class origin { device, pinned, opened, mapped, bound } from = origin::device;
    address begin = 0;
    std::size_t bytes = 0;
    int device = 0;
    std::set<int> allowed; // mapped: devices named in cuMemSetAccess
    int file = -1;         // closed with it
    unsigned users = 1;    // opened: how many times
    std::string handle;    // opened: from which handle
    bool covers(address at, std::size_t n) const {
        return at >= begin && at - begin <= bytes && n <= bytes - (at - begin);
    }
};
struct multicast_range {
    std::size_t bytes = 0;
    std::shared_ptr<std::vector<std::pair<std::size_t, std::pair<address, std::size_t>>>> bound; // at, (memory, bytes)
    std::set<int> allowed;
};
class allocations {
public:
    void add(const allocation&);
    bool take(address begin, allocation& taken); // false if none begins there
    bool find(address at, std::size_t bytes, allocation& found) const;
    std::size_t total(allocation::origin, int device) const;
    bool change(address begin, const std::function<void(allocation&)>&);
    void add(address begin, const multicast_range&);
    void bind(multicast_range&, const std::pair<std::size_t, std::pair<address, std::size_t>>&);
    bool allow_multicast(address begin, int device);
    bool remove_multicast(address begin);
    bool holds(int device, address at, std::size_t bytes) const;
    std::vector<address> copies(int device, address at, std::size_t bytes) const;

private:
    const allocation* locate(address at, std::size_t bytes) const;
    mutable std::shared_mutex mutex_;
    std::map<address, allocation> all_;
    std::map<address, multicast_range> multicasts_;
};
allocations& memories();
// New memory of a device, as a file that other processes can open; -1 if there is no memory.
int new_file(std::size_t bytes, int device);
void* map_file(int file, std::size_t bytes, void* at = nullptr);
void fill(void* at, int value, std::size_t bytes);

// ---------------------------------------------------------------------------------------------------- streams
class finished { // a future completion
public:
    void set();
    void wait() const; // returns early if the process ends
    bool is_set() const;
    std::int64_t at_ns() const; // the time of completion

private:
    mutable std::mutex mutex_;
    mutable std::condition_variable changed_;
    bool done_ = false;
    std::int64_t at_ns_ = 0;
};
using finished_ptr = std::shared_ptr<finished>;
using work = std::function<void()>;

// The steps of streams during a capture, in the order of each stream.
struct captured_step {
    work run;           // if empty, one of the next two applies
    int marks = -1;     // the event that it records
    int waits_for = -1; // the event of this capture that it waits for
};
struct graph {
    std::vector<std::vector<captured_step>> streams; // the first is the captured stream
    int marks = 0;
};
struct capture {
    graph made;
    std::vector<struct stream*> streams;
    cudaStreamCaptureMode mode = cudaStreamCaptureModeGlobal;
    std::thread::id thread;
    std::uint64_t number = 0;
    bool broken = false;
};

struct stream {
    int device = 0;
    bool is_blocking = true; // with respect to the legacy stream
    bool is_legacy = false;
    std::shared_ptr<capture> capturing; // guarded by streams_mutex()
    std::size_t place = 0;              // index in the capture's streams

    std::mutex mutex;
    std::condition_variable added;
    std::deque<std::pair<std::vector<finished_ptr>, std::pair<work, finished_ptr>>> queue;
    finished_ptr last = [] {
        auto f = std::make_shared<finished>();
        f->set();
        return f;
    }();
    bool ends = false;
    void serve();
};
struct event {
    int device = 0;
    bool has_time = true;
    finished_ptr recorded;
    std::weak_ptr<capture> in;
    int mark = -1;
    std::size_t steps = 0;
};
std::recursive_mutex& streams_mutex();
std::set<stream*>& streams();               // all streams that were not destroyed
stream* stream_of(cudaStream_t);            // null: no such stream
stream* usable(cudaStream_t, cudaError_t&); // also null, with the reason, where calls are not allowed
// Appends to a stream's queue, or to its capture.
cudaError_t enqueue(cudaStream_t, work);
finished_ptr enqueue_now(stream&, work, std::vector<finished_ptr> first = {});
// Checks a call that must not be made during a capture; breaks the captures if there are any.
cudaError_t refuse_while_capturing();
// The same for calls that wait for a device, or for the legacy stream, and so for captured blocking streams.
cudaError_t refuse_of_captured_device(int device);
cudaError_t refuse_of_captured_blocking(int device);
cudaError_t wait_for_device(int device);

} // namespace software_gpu
