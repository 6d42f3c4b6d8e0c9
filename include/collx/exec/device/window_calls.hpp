// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// A kernel's handle of a window on devices, and the calls that the host makes in a stream, as kernel bodies.
#pragma once

#include <cstddef>
#include <cstdint>

#include <collx/exec/device/window.hpp>

COLLX_BEGIN_NAMESPACE
namespace device {

// A window as an argument of a kernel: one pointer, valid as long as the window.
template <class T>
struct window_handle {
    const window_table* table;

    // All threads of a block call it. line: of the window, a different one for each block.
    template <class Env>
    COLLX_HD window_block<Env, T> on_block(const Env& env, unsigned line) const {
        return {env, table, line};
    }
};

// signal() in a stream.
struct window_signal_call {
    const window_table* table;
    int peer;
    unsigned line;
    template <class Env>
    COLLX_HD void operator()(Env& env, int, int) const {
        window_worker<Env>(env, table, line).signal(peer);
    }
};
// wait() in a stream. The host's check() says how it ended.
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
        // Each block takes whole packs, so that all blocks begin where the first one does modulo 16.
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
