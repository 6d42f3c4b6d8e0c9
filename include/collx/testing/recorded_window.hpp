// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// A window that also records its uses, for tests that look for races: sentences() of window_sentences.hpp describes the
// races in the record. It is used like a window, except that calls load and store the rank's own part: accesses through
// a span could not be recorded.
//
//   collx::testing::window_uses uses(4);
//   collx::run_threads(4, [&](collx::communicator& w) {
//       collx::testing::recorded_window<double> halo(uses, w, 2 * width);
//       halo.put_signal(right, 0, edge);
//       halo.wait(left);
//       use(halo.load(0, width));
//   });
//   CHECK(collx::testing::sentences(uses) == "");
#pragma once

#include <cstddef>
#include <span>
#include <utility>
#include <vector>

#include <collx/comm/window.hpp>
#include <collx/core/type_name.hpp>
#include <collx/testing/window_uses.hpp>

COLLX_BEGIN_NAMESPACE
namespace testing {

// Used as a window<T>; the last argument of each call is the line of the program that errors name. A call that throws
// is not recorded, unless it is a fetch, an exchange or a get of one element.
template <class T>
class recorded_window {
public:
    // A line of the program.
    using line = code_line;

    // Makes a window. Arguments behind the record are those of window<T>. Collective.
    // Errors: invalid_argument, for a record of another number of ranks.
    template <class Part>
    recorded_window(window_uses& uses, communicator& c, Part&& part)
        : window_(checked(uses, c), std::forward<Part>(part)), uses_(&uses), id_(uses.next_window(c.rank())) {}

    // As in window<T>.
    int rank() const { return window_.rank(); }
    int ranks() const { return window_.ranks(); }
    std::size_t size(int peer) const { return window_.size(peer); }
    // The window itself; uses of it are not recorded.
    window<T>& unrecorded() { return window_; }

    // Reads n elements of this rank's own part.
    std::vector<T> load(std::size_t place, std::size_t n, line from = line::here()) {
        const auto part = window_.local().subspan(place, n);
        std::vector<T> x(part.begin(), part.end());
        access(kind::load, rank(), place, n, from);
        return x;
    }
    // Reads one element.
    T load(std::size_t place, line from = line::here()) { return load(place, 1, from)[0]; }
    // Writes into this rank's own part: a contiguous range or one element.
    template <class X>
    void store(std::size_t place, const X& x, line from = line::here()) {
        const std::span<const T> v = elements(x);
        for (std::size_t i = 0; i < v.size(); ++i) window_.local()[place + i] = v[i];
        access(kind::store, rank(), place, v.size(), from);
    }

    // As in window<T>.
    template <class X>
    void put(int peer, std::size_t place, const X& x, line from = line::here()) {
        window_.put(peer, place, x);
        access(kind::put, peer, place, elements(x).size(), from);
    }
    template <class X>
    void put_signal(int peer, std::size_t place, const X& x, line from = line::here()) {
        window_.put_signal(peer, place, x);
        const std::size_t n = elements(x).size();
        access(kind::put, peer, place, n, from, 0, n * sizeof(T) <= collx::detail::window_line::carried_bytes);
        add(kind::signal, peer, from);
    }
    template <class X>
    void get(int peer, std::size_t place, X&& x, line from = line::here()) {
        window_.get(peer, place, x);
        access(kind::get, peer, place, elements(x).size(), from);
    }
    T get(int peer, std::size_t place, line from = line::here()) {
        access(kind::get, peer, place, 1, from);
        return window_.get(peer, place);
    }
    template <class X, class Op = plus>
    void accumulate(int peer, std::size_t place, const X& x, const Op& op = {}, line from = line::here()) {
        window_.accumulate(peer, place, x, op);
        access(kind::accumulate, peer, place, elements(x).size(), from, name_of<Op>());
    }
    template <class Op = plus>
    T fetch(int peer, std::size_t place, const T& x, const Op& op = {}, line from = line::here()) {
        access(kind::fetch, peer, place, 1, from, name_of<Op>());
        return window_.fetch(peer, place, x, op);
    }
    T fetch_add(int peer, std::size_t place, const T& x, line from = line::here()) {
        return fetch(peer, place, x, plus{}, from);
    }
    T exchange(int peer, std::size_t place, const T& expected, const T& desired, line from = line::here()) {
        access(kind::fetch, peer, place, 1, from, name_of<collx::detail::swapped>());
        return window_.exchange(peer, place, expected, desired);
    }

    // As in window<T>.
    void signal(int peer, line from = line::here()) { window_.signal(peer), add(kind::signal, peer, from); }
    void wait(int peer, std::uint64_t count = 1, duration timeout = {}, line from = line::here()) {
        window_.wait(peer, count, timeout), add(kind::wait, peer, from, count);
    }
    bool test(int peer, std::uint64_t count = 1, line from = line::here()) {
        const bool has = window_.test(peer, count);
        if (has) add(kind::wait, peer, from, count);
        return has;
    }
    void flush(int peer, line from = line::here()) { window_.flush(peer), add(kind::flush, peer, from); }
    void flush(line from = line::here()) { window_.flush(), add(kind::flush_all, -1, from); }
    void fence(duration timeout = {}, line from = line::here()) { window_.fence(timeout), add(kind::fence, -1, from); }
    void progress() { window_.progress(); }
    void set_timeout(duration t) { window_.set_timeout(t); }

private:
    using kind = window_use::kind;
    static communicator& checked(const window_uses& uses, communicator& c) {
        if (uses.ranks() != c.size())
            fail(errc::invalid_argument, c.rank(), -1, "window_uses(c.size())",
                 "a record of %d ranks for a window of %d", uses.ranks(), c.size());
        return c;
    }
    template <class X>
    static std::span<const T> elements(const X& x) {
        if constexpr (std::is_same_v<X, T>) return {&x, 1};
        else return {x};
    }
    template <class Op>
    static std::uint64_t name_of() {
        return fnv1a(type_name<Op>());
    }
    void access(kind what, int peer, std::size_t place, std::size_t n, line from, std::uint64_t op = 0,
                bool travels = false) {
        if (n != 0) uses_->add(rank(), {what, travels, id_, peer, place * sizeof(T), n * sizeof(T), 0, op, from});
    }
    void add(kind what, int peer, line from, std::uint64_t count = 0) {
        uses_->add(rank(), {what, false, id_, peer, 0, 0, count, 0, from});
    }

    window<T> window_;
    window_uses* uses_;
    int id_;
};

} // namespace testing
COLLX_END_NAMESPACE
