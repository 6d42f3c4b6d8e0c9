// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Windows in device memory, as the host sees them. All ranks make a window together; kernels of the program use it,
// and the host uses it in a stream. device_window.cuh is the same for CUDA; docs/windows.md has the rules.
#pragma once

#include <cstddef>
#include <cstdint>

#include <collx/core/element.hpp>
#include <collx/exec/device/window_calls.hpp>
#include <collx/gpu/window_bytes.hpp>

COLLX_BEGIN_NAMESPACE

// Options of a device window: the same on all ranks.
struct device_window_options {
    unsigned lines = 64;      // blocks of a kernel that signal and wait, each on its own line
    device_settings settings; // how the peers' memory is mapped: see use_device()
};

// A part of T on each rank's device, which the kernels of all ranks write and read. Every rank's kernels must reach
// every other rank's memory (one device each on NVLink or PCI Express, or shares_device). Each rank destroys the
// window when its kernels have ended; the memory is freed when all ranks have done so.
//
// The host makes calls with a stream; they are done in that stream's order, on line 0 if none is named. A call must
// not use a line while a kernel's block uses it.
// Errors, of each call: invalid_argument (no such peer or place, naming rank, byte and size; a buffer that is null or
//     not in this device's memory; another current device), and those of check().
template <class T, device::GpuRuntime Runtime>
class basic_device_window {
public:
    // Makes a part of n zeroed elements on the current device; n may differ from rank to rank. Collective.
    // Errors: mismatch naming the first rank with another element type, other lines or settings · unsupported on all
    // ranks,
    //     naming the first pair whose kernels do not reach each other's memory and why · resource.
    basic_device_window(communicator& c, std::size_t n, const Runtime& r, const device_window_options& o = {})
        : bytes_(c, r, part_of(c, n, o), o.settings) {}

    // This rank.
    int rank() const { return bytes_.rank(); }
    // The number of ranks, each of which has a part.
    int ranks() const { return bytes_.ranks(); }
    // The number of elements of a rank's part.
    std::size_t size(int peer) const {
        return peer >= 0 && peer < ranks() ? static_cast<std::size_t>(bytes_.bytes(peer)) / sizeof(T) : 0;
    }
    // This rank's part, in memory of its device.
    T* local() const { return reinterpret_cast<T*>(bytes_.part()); }
    // How kernels reach the peers, in words.
    kept_text route() const { return bytes_.route(); }
    // The argument by which kernels use the window: see window_handle.
    device::window_handle<T> handle() const { return {bytes_.table()}; }

    // Writes n elements of this device's memory into the peer's part from `place` on. Cost: one copy by a kernel.
    void put(int peer, std::size_t place, const T* from, std::size_t n, void* stream) {
        launch_copy("put", peer, place, const_cast<T*>(from), n, false, stream);
    }
    // Reads n elements of the peer's part into this device's memory.
    void get(int peer, std::size_t place, T* to, std::size_t n, void* stream) {
        launch_copy("get", peer, place, to, n, true, stream);
    }
    // Sends one more signal to a peer. A rank that has waited for it sees what this stream has put there before.
    void signal(int peer, void* stream, unsigned line = 0) {
        bytes_.require_peer(peer);
        require_line(line);
        bytes_.launch(device::window_signal_call{bytes_.table(), peer, line}, 1, stream);
    }
    // put(), then signal().
    void put_signal(int peer, std::size_t place, const T* from, std::size_t n, void* stream, unsigned line = 0) {
        put(peer, place, from, n, stream);
        signal(peer, stream, line);
    }
    // Makes the stream wait until `count` more signals of a peer have come on the line, or the window has ended.
    // Occupies a block of the device while it waits.
    void wait(int peer, void* stream, std::uint64_t count = 1, unsigned line = 0) {
        bytes_.require_peer(peer);
        require_line(line);
        bytes_.launch(device::window_wait_call{bytes_.table(), peer, line, count}, 1, stream);
    }

    // Waits for the stream, then check().
    void synchronize(void* stream) { bytes_.synchronize(stream); }
    // Waits until all ranks have completed what they did in their streams; all ranks then see it. Collective.
    void fence(void* stream) { bytes_.fence(stream); }
    // Throws the error that has ended the window, if one has. A window that has ended stays so.
    // Errors: timeout naming the rank whose signal did not come, its number and the line · invalid_argument for a
    //     place, peer or line that is not there · unsupported for an addition over PCI Express · peer_failed ·
    //     aborted: another rank has ended it.
    void check() { bytes_.check(); }
    // Sets how long a wait() may take in kernels that begin from now on, and a wait for a rank in fence(); initially
    // the communicator's timeout. No kernel of this rank may use the window meanwhile.
    void set_timeout(duration t) { bytes_.set_timeout(t); }

private:
    static detail::device_window_part part_of(communicator& c, std::size_t n, const device_window_options& o) {
        require_element<T>();
        if (n > SIZE_MAX / 4 / sizeof(T))
            fail(errc::invalid_argument, c.rank(), -1, "is a size negative?", "a device window of %zu elements", n);
        return {n * sizeof(T), sizeof(T), type_hash<T>(), o.lines};
    }
    void require_line(unsigned line) const {
        if (line >= bytes_.lines())
            fail(errc::invalid_argument, rank(), -1, "lines of device_window_options say how many there are",
                 "device window: line %u of %u", line, bytes_.lines());
    }
    void launch_copy(const char* what, int peer, std::size_t place, T* mine, std::size_t n, bool is_get, void* stream) {
        bytes_.require_place(what, peer, place <= SIZE_MAX / sizeof(T) ? place * sizeof(T) : SIZE_MAX,
                             n <= SIZE_MAX / sizeof(T) ? n * sizeof(T) : SIZE_MAX);
        bytes_.require_memory(mine, n * sizeof(T), is_get ? "output" : "input");
        constexpr std::size_t lane_bytes = 64 << 10; // copying this much takes longer than starting a block
        const std::size_t wanted = n * sizeof(T) / lane_bytes + 1;
        const auto most = static_cast<std::size_t>(bytes_.most_lanes());
        bytes_.launch(device::window_copy_call<T>{bytes_.table(), peer, place, mine, n, is_get},
                      static_cast<int>(wanted < most ? wanted : most), stream);
    }

    detail::window_bytes<Runtime> bytes_;
};

COLLX_END_NAMESPACE
