// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Copies memory as a network card would, not as a thread. To ThreadSanitizer the engine is a fiber of its own,
// whichever thread runs it. It is ordered with other threads only by the moments given to copy(). So a thread that
// reads too early is reported as a race, even if that thread itself executed the copy.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstring>

#include "support/sanitizers.hpp"

#if COLLX_TEST_TSAN
extern "C" {
void* __tsan_get_current_fiber();
void* __tsan_create_fiber(unsigned flags);
void __tsan_destroy_fiber(void* fiber);
void __tsan_switch_to_fiber(void* fiber, unsigned flags); // 1: orders nothing
}
#endif

namespace collx_test {

using moment = std::atomic<int>; // a release/acquire counter: who sees its value may rely on what happened before

// Used by one thread at a time.
class dma_engine {
public:
#if COLLX_TEST_TSAN
    dma_engine() : fiber_(__tsan_create_fiber(0)) {}
    ~dma_engine() { __tsan_destroy_fiber(fiber_); }
#else
    dma_engine() = default;
#endif
    dma_engine(const dma_engine&) = delete;

    // Copies after `one` and `two`, and before `then` and `also`; each may be null. Accesses nothing else of the
    // program in between: other fields and variables are ordered by locks that the fiber does not hold.
    [[gnu::noinline]] void copy(void* to, const void* from, std::size_t bytes, const moment* one, const moment* two,
                                moment* then, moment* also = nullptr) {
#if COLLX_TEST_TSAN
        void* const mine = fiber_;
        void* const thread = __tsan_get_current_fiber();
        __tsan_switch_to_fiber(mine, 1);
#endif
        if (one != nullptr) (void)one->load(std::memory_order_acquire);
        if (two != nullptr) (void)two->load(std::memory_order_acquire);
        if (bytes != 0) std::memcpy(to, from, bytes);
        if (then != nullptr) then->fetch_add(1, std::memory_order_release);
        if (also != nullptr) also->fetch_add(1, std::memory_order_release);
#if COLLX_TEST_TSAN
        __tsan_switch_to_fiber(thread, 1);
#endif
    }

private:
#if COLLX_TEST_TSAN
    void* fiber_;
#endif
};

} // namespace collx_test
