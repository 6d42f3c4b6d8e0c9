// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Windows: memory of each rank that all others write, read and combine into without a call of that rank, and signals
// that say when. For stencils, shared counters, and algorithms written by hand. docs/windows.md has the rules.
//
//   #include <collx/comm/window.hpp>
//   collx::window<float> halo(world, 2 * width);                  // all ranks, together
//   halo.put_signal(right, 0, edge);                              // written there, with a signal
//   halo.wait(left);                                              // what left has put is here
//   use(halo.local());
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <type_traits>

#include <collx/call/checks.hpp>
#include <collx/comm/bound_communicator.hpp>
#include <collx/comm/one_sided.hpp>
#include <collx/core/buffer.hpp>
#include <collx/core/element.hpp>
#include <collx/core/op.hpp>

COLLX_BEGIN_NAMESPACE

// A part of T on each rank, which all ranks may use. All ranks make the window together. Each ends its own, after a
// fence() or something else that says that no other rank touches its part any more; between hosts this waits until its
// puts have left. A window ends when its communicator fails, and by errors of its own, which leave the communicator as
// it is. One thread at a time calls it, the one that makes the communicator's calls.
//
// Places are counted in elements of the peer's part. Where memory is shared (threads, processes of one host) calls
// store and load directly, and the peer does nothing. To ranks of other hosts they send messages. The peer takes them
// while it waits in a call of this window, in progress(), or by its progress thread: with(progress::thread{}).
//
// Order: a peer sees what a rank has put before a signal once the peer's wait() has taken that signal. Puts of one
//     rank to one peer arrive in their order (but one that travels with its signal, when that is taken: see
//     put_signal()). Nothing else is ordered: uses of the same elements by several ranks need a signal or a fence()
//     between, except for accumulate(), fetch() and exchange(), which are atomic to each other in each element.
// Errors, of each call: invalid_argument (a peer or place that does not exist, naming rank, byte and size; a call from
//     an operator of a call) · peer_failed, timeout, aborted: the window has ended on all ranks.
template <class T>
class window {
public:
    // Makes a part of n elements, zero at first; n may differ from rank to rank. Collective.
    // Errors: mismatch naming the first rank with another element type · resource.
    window(communicator& c, std::size_t n) : window(c, nullptr, n) {}
    // Uses a buffer of the program as the part; it must stay until all ranks have ended their windows. If other ranks
    // are processes of the same host, it must be shared memory (make_shared_vector). Collective.
    // Errors: as above · unsupported naming the first rank whose buffer the other ranks of its host cannot reach.
    template <HostBuffer X>
    requires(!std::is_integral_v<std::remove_cvref_t<X>>) window(communicator& c, X&& x)
        : window(c, own_data(c, x), buffer(x).size()) {}
    window(const window&) = delete;

    // The number of this rank.
    int rank() const { return bytes_.rank(); }
    // The number of ranks; each has a part.
    int ranks() const { return bytes_.ranks(); }
    // The number of elements in a rank's part.
    std::size_t size(int peer) const {
        return peer >= 0 && peer < ranks() ? static_cast<std::size_t>(bytes_.peer(peer).bytes) / sizeof(T) : 0;
    }
    // This rank's part. Data that other ranks put there may be read once a signal or fence says so.
    std::span<T> local() { return {at(bytes_.peer(rank()).at), size(rank())}; }
    // Whether a rank's part can be loaded and stored here.
    bool is_shared(int peer) const { return peer >= 0 && peer < ranks() && bytes_.peer(peer).at != nullptr; }
    // A rank's part, to load and store. Errors: unsupported naming a rank of another host.
    std::span<T> shared(int peer) { return {at(bytes_.shared_part(peer)), size(peer)}; }

    // Writes x, a contiguous buffer of T or a single T, into the peer's part from `place` on. Returns when x may be
    // written again. Cost: one copy; between hosts as send().
    template <class X>
    void put(int peer, std::size_t place, const X& x) {
        const auto v = input(x);
        bytes_.put(peer, offset(place), v.data(), v.size_bytes(), false);
    }
    // The same, then signal(peer). Up to 32 bytes travel with the signal, in one line transfer: they are in the peer's
    // part when its wait() for the signal returns, or at the next fence(). Until then no rank touches that place.
    template <class X>
    void put_signal(int peer, std::size_t place, const X& x) {
        const auto v = input(x);
        bytes_.put(peer, offset(place), v.data(), v.size_bytes(), true);
    }
    // Reads from the peer's part into x, or returns one element. Between hosts: a message there and back.
    template <class X>
    void get(int peer, std::size_t place, X&& x) {
        static_assert(is_output<X>(), "collx: get() writes into a contiguous buffer of the window's element type.");
        if constexpr (is_output<X>()) {
            const auto v = buffer(x);
            detail::require_elements(rank(), v, "output");
            bytes_.get(peer, offset(place), v.data(), v.size() * sizeof(T));
        }
    }
    T get(int peer, std::size_t place) {
        alignas(T) std::byte x[sizeof(T)];
        bytes_.get(peer, offset(place), x, sizeof x);
        return detail::element_at<T>(x);
    }

    // Replaces each element from `place` on by op(element there, element of x). Elements of 1, 2, 4 or 8 bytes that
    // are aligned to their size are combined without a lock, others under a lock of the peer's part. Concurrent reads
    // need an order. The operator has no hooks. To ranks of other hosts it goes by its type, so it has no state there
    // (a lambda without captures), and all ranks run the same program. The call then returns before it is done:
    // flush(). Errors: unsupported naming a peer of another host, for an operator with state.
    template <class X, class Op = plus>
    void accumulate(int peer, std::size_t place, const X& x, const Op& op = {}) {
        require_op<Op>();
        const auto v = input(x);
        bytes_.combine(peer, offset(place), v.data(), v.size(), detail::combination_of<T>(op), nullptr);
    }
    // The same for one element; returns the previous element.
    template <class Op = plus>
    T fetch(int peer, std::size_t place, const T& x, const Op& op = {}) {
        require_op<Op>();
        return combine_one(peer, place, &x, detail::combination_of<T>(op));
    }
    // fetch() with plus: a shared counter.
    T fetch_add(int peer, std::size_t place, const T& x) { return fetch(peer, place, x, plus{}); }
    // Stores `desired` if the element has the bytes of `expected`. Returns the previous element.
    T exchange(int peer, std::size_t place, const T& expected, const T& desired) {
        alignas(T) std::byte both[2 * sizeof(T)];
        std::memcpy(both, static_cast<const void*>(&expected), sizeof(T));
        std::memcpy(both + sizeof(T), static_cast<const void*>(&desired), sizeof(T));
        return combine_one(peer, place, both, detail::combination_of<T>(detail::swapped{}));
    }

    // Gives a peer one more signal. Never waits where memory is shared.
    void signal(int peer) { bytes_.signal(peer); }
    // Waits until `count` more signals of a peer have come than were waited for so far.
    // Errors: timeout naming the peer that should have signalled, or the rank that it waits for.
    void wait(int peer, std::uint64_t count = 1, duration timeout = {}) { bytes_.wait(peer, count, timeout.count()); }
    // The same without waiting: takes them and returns true, or takes none. Errors: as wait(), once it has found too
    // few for as long as a wait may take.
    bool test(int peer, std::uint64_t count = 1) { return bytes_.test(peer, count); }

    // Waits until everything that this rank has put into a peer's part, or into all parts, is there. Does nothing
    // where memory is shared. (A put that travels with a signal: see put_signal().)
    void flush(int peer) { bytes_.flush(peer); }
    void flush() { bytes_.flush(); }
    // Completes everything that all ranks have done to the window; then all ranks see it. Collective.
    void fence(duration timeout = {}) { bytes_.fence(timeout.count()); }

    // Serves ranks of other hosts, without waiting.
    void progress() { bytes_.progress(); }
    // progress::thread{}: a thread serves them between this rank's calls of the window. progress::calls{}: no thread.
    template <class Policy>
    requires(detail::CommunicatorPolicy<Policy>) void with(const Policy& p) { p.apply_to(bytes_.core()); }
    // Sets how long a call may wait for other ranks; at first the communicator's limit.
    void set_timeout(duration t) { bytes_.own().set_timeout(t); }

private:
    window(communicator& c, T* data, std::size_t n) : bytes_(c, part_of(c, data, n)) {}

    static detail::window_part part_of(communicator& c, T* data, std::size_t n) {
        require_element<T>();
        if (n > SIZE_MAX / 4 / sizeof(T))
            fail(errc::invalid_argument, c.rank(), -1, "is a size negative?", "a window of %zu elements", n);
        return {data, n * sizeof(T), sizeof(T), type_hash<T>(), type_name<T>()};
    }
    template <class X>
    static constexpr bool is_output() {
        if constexpr (HostBuffer<X>) {
            using view = decltype(buffer(std::declval<X&>()));
            if constexpr (view::is_contiguous) return std::is_same_v<detail::element_of<view>, T>;
        }
        return false;
    }
    template <class X>
    static T* own_data(communicator& c, X& x) {
        static_assert(is_output<X>(), "collx: a window is made of a contiguous buffer that may be written to.");
        const auto v = buffer(x);
        detail::require_memory(c.internals(), v, "window");
        return v.data();
    }
    template <class X>
    std::span<const T> input(const X& x) const {
        if constexpr (std::is_same_v<X, T> || (std::is_convertible_v<const X&, T> && !HostBuffer<const X&>)) {
            constexpr bool is_element = std::is_same_v<X, T>;
            static_assert(is_element, "collx: a single element has the window's element type: T(x).");
            if constexpr (is_element) return {&x, 1};
        } else {
            const auto v = buffer(x);
            constexpr bool is_input =
                decltype(v)::is_contiguous && std::is_same_v<std::remove_const_t<detail::element_of<decltype(v)>>, T>;
            static_assert(is_input, "collx: a window takes contiguous buffers of its element type.");
            if constexpr (is_input) {
                detail::require_elements(rank(), v, "input");
                return {v.data(), v.size()};
            }
        }
        return {}; // after a refusal
    }
    template <class Op>
    static constexpr void require_op() {
        static_assert(std::is_invocable_r_v<T, const Op&, const T&, const T&>,
                      "collx: a window combines with operators that are called as op(const T&, const T&) on a const "
                      "object and return what converts to T.");
        static_assert(!has_pre_v<Op, T> && !has_post_v<Op, T>,
                      "collx: a window combines elements one by one, so its operators have no hooks (average, scaled "
                      "sums, with_pre, with_post). Apply them before and after.");
    }
    T combine_one(int peer, std::size_t place, const void* from, const detail::combination& how) {
        alignas(T) std::byte old[sizeof(T)];
        bytes_.combine(peer, offset(place), from, 1, how, old);
        return detail::element_at<T>(old);
    }
    static T* at(std::byte* p) { return reinterpret_cast<T*>(p); }
    // The offset in bytes; beyond any part if it would wrap.
    static std::size_t offset(std::size_t place) {
        return place <= SIZE_MAX / sizeof(T) ? place * sizeof(T) : SIZE_MAX;
    }

    detail::one_sided bytes_;
};

COLLX_END_NAMESPACE
