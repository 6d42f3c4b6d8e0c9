// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// A stream of the fake runtime (fake_runtime.hpp): a queue that a thread works off, or a capture. Knows no memory and
// no kernel.
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <functional>
#include <mutex>
#include <thread>
#include <vector>

#include <collx/version.hpp>

COLLX_BEGIN_NAMESPACE
namespace device {

// A queue of work that its own thread works off in order. While the stream is captured, work is only recorded.
class fake_stream {
public:
    explicit fake_stream(int device) : device_(device), worker_([this] { work_off(); }) {}
    fake_stream(const fake_stream&) = delete;
    ~fake_stream() {
        {
            const std::lock_guard lock(mutex_);
            ends_ = true;
        }
        changed_.notify_all();
        worker_.join();
    }
    int device() const { return device_; }
    void put(std::function<void()> f) {
        {
            const std::lock_guard lock(mutex_);
            if (is_capturing_) return captured_.push_back(std::move(f));
            queue_.push_back(std::move(f));
        }
        changed_.notify_all();
    }
    void drain() {
        std::unique_lock lock(mutex_);
        changed_.wait(lock, [&] { return queue_.empty() && !is_busy_; });
    }
    bool is_capturing() {
        const std::lock_guard lock(mutex_);
        return is_capturing_;
    }
    std::uint64_t capture() {
        const std::lock_guard lock(mutex_);
        return capture_;
    }
    // As if an operation that cannot be captured had been put into the stream.
    void break_capture() {
        const std::lock_guard lock(mutex_);
        is_broken_ = is_capturing_;
    }
    bool is_broken() {
        const std::lock_guard lock(mutex_);
        return is_broken_;
    }
    void begin_capture() {
        static std::atomic<std::uint64_t> captures{0};
        const std::lock_guard lock(mutex_);
        is_capturing_ = true;
        capture_ = ++captures;
        captured_.clear();
    }
    std::vector<std::function<void()>> end_capture() {
        const std::lock_guard lock(mutex_);
        is_capturing_ = is_broken_ = false;
        return std::move(captured_);
    }

private:
    void work_off() {
        for (std::unique_lock lock(mutex_);;) {
            changed_.wait(lock, [&] { return ends_ || !queue_.empty(); });
            if (queue_.empty()) return;
            auto f = std::move(queue_.front());
            queue_.pop_front();
            is_busy_ = true;
            lock.unlock();
            f();
            f = nullptr;
            lock.lock();
            is_busy_ = false;
            changed_.notify_all();
        }
    }
    int device_;
    std::mutex mutex_;
    std::condition_variable changed_;
    std::deque<std::function<void()>> queue_;
    std::vector<std::function<void()>> captured_;
    std::uint64_t capture_ = 0; // number of the last one
    bool is_capturing_ = false, is_broken_ = false, is_busy_ = false, ends_ = false;
    std::thread worker_; // last member: it uses the others
};

// A captured stream. Its work may run any number of times.
using fake_graph = std::vector<std::function<void()>>;

} // namespace device
COLLX_END_NAMESPACE
