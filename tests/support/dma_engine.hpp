// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// A copier of memory that is no thread, as a network card is. Whatever thread carries out what it does: to
// ThreadSanitizer it is one of its own (a fiber), ordered after and before others only as it says itself. So a thread
// that reads too early is seen to race with it even if it was that very thread that did the copying.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstring>

#if defined(__SANITIZE_THREAD__)
#define COLLX_TEST_FIBERS 1
#elif defined(__has_feature)
#if __has_feature(thread_sanitizer)
#define COLLX_TEST_FIBERS 1
#endif
#endif
#ifdef COLLX_TEST_FIBERS
extern "C" {
void* __tsan_get_current_fiber();
void* __tsan_create_fiber(unsigned flags);
void __tsan_destroy_fiber(void* fiber);
void __tsan_switch_to_fiber(void* fiber, unsigned flags); // 1: orders nothing
}
#endif

namespace collx_test {

using moment = std::atomic<int>; // what happened before it, others that look at it may rely on

// Used by one thread at a time.
class dma_engine {
public:
#ifdef COLLX_TEST_FIBERS
    dma_engine() : fiber_(__tsan_create_fiber(0)) {}
    ~dma_engine() { __tsan_destroy_fiber(fiber_); }
#else
    dma_engine() = default;
#endif
    dma_engine(const dma_engine&) = delete;

    // Copies, after `one` and `two` and before `then` and `also`; each may be null. Touches nothing else of this
    // program in between, for its fields and variables are ordered by locks that the engine knows nothing of.
    [[gnu::noinline]] void copy(void* to, const void* from, std::size_t bytes, const moment* one, const moment* two,
                                moment* then, moment* also = nullptr) {
#ifdef COLLX_TEST_FIBERS
        void* const mine = fiber_;
        void* const thread = __tsan_get_current_fiber();
        __tsan_switch_to_fiber(mine, 1);
#endif
        if (one != nullptr) (void)one->load(std::memory_order_acquire);
        if (two != nullptr) (void)two->load(std::memory_order_acquire);
        if (bytes != 0) std::memcpy(to, from, bytes);
        if (then != nullptr) then->fetch_add(1, std::memory_order_release);
        if (also != nullptr) also->fetch_add(1, std::memory_order_release);
#ifdef COLLX_TEST_FIBERS
        __tsan_switch_to_fiber(thread, 1);
#endif
    }

private:
#ifdef COLLX_TEST_FIBERS
    void* fiber_;
#endif
};

} // namespace collx_test
