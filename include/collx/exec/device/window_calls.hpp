// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// What a kernel takes to use a window on devices, and the calls that the host makes in a stream, as bodies of a kernel.
#pragma once

#include <cstddef>
#include <cstdint>

#include <collx/exec/device/window.hpp>

COLLX_BEGIN_NAMESPACE
namespace device {

// One pointer, for a kernel's arguments. Valid as long as the window.
template <class T>
struct window_handle {
    const window_table* table;

    // By all threads of a block. line: of the window, of each block one.
    template <class Env>
    COLLX_HD window_block<Env, T> on_block(const Env& env, unsigned line) const {
        return {env, table, line};
    }
};

// signal() by a stream.
struct window_signal_call {
    const window_table* table;
    int peer;
    unsigned line;
    template <class Env>
    COLLX_HD void operator()(Env& env, int, int) const {
        window_worker<Env>(env, table, line).signal(peer);
    }
};
// wait() by a stream. Its answer is the host's check().
struct window_wait_call {
    const window_table* table;
    int peer;
    unsigned line;
    std::uint64_t count;
    template <class Env>
    COLLX_HD void operator()(Env& env, int, int) const {
        (void)window_worker<Env>(env, table, line).wait(peer, count);
    }
};
// A put or a get, by as many blocks as the launch has.
template <class T>
struct window_copy_call {
    const window_table* table;
    int peer;
    std::size_t place;
    T* mine;
    std::size_t n;
    bool is_get;
    template <class Env>
    COLLX_HD void operator()(Env& env, int lane, int lanes) const {
        // Whole packs for each block, so that all of them begin where the first one does modulo 16.
        const std::size_t pack = 16, each = ((n + lanes - 1) / lanes + pack - 1) / pack * pack;
        const std::size_t from = each * static_cast<std::size_t>(lane) < n ? each * static_cast<std::size_t>(lane) : n;
        const std::size_t count = n - from < each ? n - from : each;
        window_block<Env, T> w(env, table, 0); // neither signals nor waits
        if (is_get) w.get(peer, place + from, mine + from, count);
        else w.put(peer, place + from, mine + from, count);
    }
};

} // namespace device
COLLX_END_NAMESPACE
