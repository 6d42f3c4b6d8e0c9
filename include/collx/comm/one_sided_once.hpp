// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// The bodies of one_sided.hpp.
#pragma once

#include <cstring>
#include <new>

#include <collx/comm/one_sided.hpp>
#include <collx/comm/remote_window.hpp>
#include <collx/core/copy_bytes.hpp>

COLLX_BEGIN_NAMESPACE
namespace detail {

struct one_sided::said {
    enum : std::uint32_t { taken, shown, hidden }; // allocated by collx; reached by the ranks of its host; not reached
    std::uint64_t bytes, elem_bytes, type;
    std::uint64_t address, offset; // of the program's memory: for threads, for processes
    std::uint32_t whose;
    char type_name[64];
};

// ------------------------------------------------------------------ beginning and end
[[gnu::cold]] COLLX_ONCE one_sided::one_sided(communicator& base, const window_part& mine)
    : own_(base.internals().or_abandon([&] {
          base.internals().watch_end();
          return dup_for(communicator_core::of_window, base);
      })),
      core_(&own_.internals()), base_end_(base.internals().watch_end()), rank_(base.rank()),
      elem_bytes_(mine.elem_bytes), elem_type_(mine.type) {
    auto& c = core();
    c.failure_parent = &base.internals();
    const arena& shared = *c.home->memory;
    said s{mine.bytes, mine.elem_bytes, mine.type, reinterpret_cast<std::uint64_t>(mine.data), 0, said::taken, {}};
    for (std::size_t i = 0; i + 1 < sizeof s.type_name && i < mine.type_name.size(); ++i)
        s.type_name[i] = mine.type_name[i];
    if (mine.data != nullptr) {
        int here = 0;
        for (int r = 0; r < c.net.size(); ++r) here += c.net.is_here(r);
        const bool is_shared = shared.contains(mine.data, mine.bytes);
        if (is_shared) s.offset = shared.offset_of(mine.data);
        s.whose = is_shared || c.home->is_threads || here == 1 ? said::shown : said::hidden;
    }
    static_assert(sizeof s <= signal_line::inline_bytes);
    c.or_abandon([&] {
        growing_array<said> all(static_cast<std::size_t>(c.net.size()));
        c.exchange_each(s, [&](int r, const said& its) {
            said& it = all[r] = its;
            it.type_name[sizeof it.type_name - 1] = '\0';
        });
        for (int r = 0; r < c.net.size(); ++r) {
            const said &it = all[r], &first = all[0];
            if (it.type != first.type || it.elem_bytes != first.elem_bytes)
                fail(errc::mismatch, rank_, r, "make it with one element type on all ranks",
                     "the window of rank %d has elements of %zu bytes (%s), that of rank 0 of %zu (%s)", r,
                     static_cast<std::size_t>(it.elem_bytes), it.type_name, static_cast<std::size_t>(first.elem_bytes),
                     first.type_name);
            if (it.whose == said::hidden)
                fail(errc::unsupported, rank_, r,
                     "let the window take its memory, or make the buffer with make_shared_vector()",
                     "the buffer that rank %d makes a window of is memory of its process alone", r);
            if (it.whose == said::shown && !c.home->is_threads && r != rank_ && c.net.is_here(r) &&
                (it.offset > shared.bytes() || it.bytes > shared.bytes() - it.offset))
                c.give_up(failure(errc::protocol, r), r);
        }
        try {
            lay_out(all.data());
        } catch (...) { // the communicator must not advance what is gone
            end_remote();
            throw;
        }
    });
}

static_assert(sizeof(window_line) == sizeof(window_lock)); // both lie in one row

[[gnu::cold]] COLLX_ONCE void one_sided::lay_out(const said* all) {
    auto& c = core();
    const auto n = static_cast<std::size_t>(c.net.size());
    // In shared memory: for each rank of this host a lock and its lines to the other ranks, then the parts.
    std::size_t here = 0, own_place = 0, data_bytes = 0, own_at = 0, own_bytes = 0;
    for (std::size_t r = 0; r < n; ++r) {
        if (!c.net.is_here(static_cast<int>(r))) continue;
        const std::size_t bytes =
            all[r].whose == said::taken ? round_up(static_cast<std::size_t>(all[r].bytes), page_bytes) : 0;
        if (static_cast<int>(r) == rank_) {
            own_place = here;
            own_at = data_bytes;
            own_bytes = bytes;
        }
        ++here;
        data_bytes += bytes;
        if (data_bytes < bytes) data_bytes = SIZE_MAX / 2; // more than any arena has, and so refused
    }
    const std::size_t row_bytes = round_up((here + 1) * sizeof(window_line), page_bytes);
    std::byte* const rows = c.net.make_piece(here * row_bytes, own_place * row_bytes, row_bytes);
    std::byte* const data = data_bytes != 0 ? c.net.make_piece(data_bytes, own_at, own_bytes) : rows;
    const auto line = [&](std::size_t from, std::size_t to) {
        return reinterpret_cast<window_line*>(rows + from * row_bytes) + 1 + to;
    };
    if (here < n) remote_lines_ = new window_line[n]();
    std::size_t place = 0, at = 0;
    for (std::size_t r = 0; r < n; ++r) {
        window_peer p;
        p.bytes = all[r].bytes;
        if (!c.net.is_here(static_cast<int>(r))) {
            p.from = remote_lines_ + r;
            peers_.push_back(p);
            continue;
        }
        p.at = data + at;
        if (all[r].whose == said::taken) at += round_up(static_cast<std::size_t>(p.bytes), page_bytes);
        else if (c.home->is_threads || static_cast<int>(r) == rank_)
            p.at = reinterpret_cast<std::byte*>(all[r].address);
        else p.at = c.home->memory->at(all[r].offset);
        p.to = line(own_place, place);
        p.from = line(place, own_place);
        p.lock = reinterpret_cast<window_lock*>(rows + place * row_bytes);
        ++place;
        peers_.push_back(p);
    }
    if (here == n) return;
    remote_ = make_counted<remote_window>(*this, *c.failure_parent, base_end_);
    remote_->show_part();
    c.start(remote_, outstanding_calls::no_queue);
}

[[gnu::cold]] COLLX_ONCE one_sided::~one_sided() {
    auto& c = core();
    if (base_end_->has_come) c.failure_parent = nullptr;
    end_remote();
}
[[gnu::cold]] COLLX_ONCE void one_sided::end_remote() noexcept {
    if (remote_) remote_->leave();
    delete[] remote_lines_;
    remote_lines_ = nullptr;
}

// ------------------------------------------------------------------ checks of each call
COLLX_ONCE void one_sided::require_alive() {
    auto& c = core();
    c.require_alive();
    if (base_end_->has_come) [[unlikely]]
        c.failure_parent = nullptr;
    else if (const failure f = c.failure_parent->net.failed())
        c.give_up(failure(f.code(), c.rank_of(*c.failure_parent, f.rank())), -1);
}

COLLX_ONCE window_peer& one_sided::require_peer(int peer) {
    if (peer < 0 || peer >= ranks())
        fail(errc::invalid_argument, rank_, -1, "peers are ranks of the window's communicator",
             "window: peer %d of %d ranks", peer, ranks());
    return this->peer(peer);
}
COLLX_ONCE window_peer& one_sided::require_inside(const char* what, int peer, std::size_t at, std::size_t bytes) {
    window_peer& p = require_peer(peer);
    if (at > p.bytes || bytes > p.bytes - at) [[unlikely]]
        refuse_place(what, peer, at, bytes);
    return p;
}
[[gnu::cold]] COLLX_ONCE void one_sided::refuse_place(const char* what, int peer, std::size_t at,
                                                      std::size_t bytes) const {
    fail(errc::invalid_argument, rank_, peer, "size(peer) says how many elements a rank's part has",
         "window: %s of %zu bytes at byte %zu of rank %d, whose part has %zu", what, bytes, at, peer,
         static_cast<std::size_t>(this->peer(peer).bytes));
}

[[gnu::cold]] COLLX_ONCE std::byte* one_sided::shared_part(int peer) {
    window_peer& p = require_peer(peer);
    if (p.at == nullptr)
        fail(errc::unsupported, rank_, peer, "use put() and get(), or ask is_shared()",
             "window: the part of rank %d is on another host", peer);
    return p.at;
}

// ------------------------------------------------------------------ moving
COLLX_ONCE void one_sided::put(int peer, std::size_t at, const void* from, std::size_t bytes, bool signals) {
    const entry here(*this);
    window_peer& p = require_inside("put", peer, at, bytes);
    if (p.at == nullptr) return remote_->put(peer, at, from, bytes, signals);
    if (signals && bytes <= window_line::carried_bytes &&
        (p.carried == 0 || p.from->stored.load(memory_order::acquire) >= p.carried))
        return carry(p, at, from, bytes);
    if (bytes != 0) copy_bytes(p.at + at, from, bytes);
    if (signals) p.to->word.store(++p.given, memory_order::release);
}
COLLX_ONCE void one_sided::carry(window_peer& p, std::size_t at, const void* from, std::size_t bytes) {
    window_line& l = *p.to;
    if (bytes != 0) std::memcpy(l.payload, from, bytes);
    l.place = static_cast<std::uint64_t>(at) << 8 | bytes;
    p.carried = ++p.given;
    l.number.store(p.given, memory_order::relaxed); // the word publishes it
    l.word.store(p.given, memory_order::release);
    has_carried_ = true;
}
// seen: the value of the word. A put that came with a later signal may be incomplete.
COLLX_ONCE void one_sided::store_carried(window_peer& p, std::uint64_t seen) {
    const std::uint64_t number = p.from->number.load(memory_order::relaxed);
    if (number <= p.stored || number > seen) return;
    const std::uint64_t place = p.from->place;
    std::byte* const mine = peer(rank_).at;
    // The sender has checked the place; this rank does not rely on that for its memory.
    const std::uint64_t at = place >> 8, bytes = place & 255;
    if (bytes > window_line::carried_bytes || at > peer(rank_).bytes || bytes > peer(rank_).bytes - at) [[unlikely]]
        core().give_up(failure(errc::protocol, static_cast<int>(&p - peers_.data())), -1);
    if (bytes == sizeof(std::uint64_t)) std::memcpy(mine + at, p.from->payload, sizeof(std::uint64_t));
    else if (bytes != 0) std::memcpy(mine + at, p.from->payload, bytes);
    p.stored = number;
    p.to->stored.store(number, memory_order::release);
}

COLLX_ONCE void one_sided::get(int peer, std::size_t at, void* to, std::size_t bytes) {
    const entry here(*this);
    window_peer& p = require_inside("get", peer, at, bytes);
    if (p.at == nullptr) return remote_->get(peer, at, to, bytes);
    serve_others(); // the program may look again and again for what another host puts there
    if (bytes != 0) copy_bytes(to, p.at + at, bytes);
}

COLLX_ONCE bool one_sided::try_lock(window_peer& p) {
    std::uint32_t none = 0;
    return p.lock->holder.compare_exchange_strong(none, static_cast<std::uint32_t>(rank_) + 1, memory_order::acquire);
}
COLLX_ONCE void one_sided::lock(window_peer& p) {
    auto& c = core();
    std::int64_t until = 0;
    for (backoff wait(c.settings.waiting); !try_lock(p);) {
        const int holder = static_cast<int>(p.lock->holder.load(memory_order::relaxed)) - 1;
        if (!c.pending.empty()) c.progress_pending();
        if (wait.pause()) c.check(until, 0, awaited(holder));
    }
}
COLLX_ONCE void one_sided::combine(int peer, std::size_t at, const void* from, std::size_t elems,
                                   const combination& how, void* old) {
    const entry here(*this);
    window_peer& p = require_inside("accumulate", peer, at, elems * how.elem_bytes);
    if (p.at == nullptr) return remote_->combine(peer, at, from, elems, how, old);
    serve_others();
    if (how.needs_lock) lock(p);
    const held_window_lock until_end{how.needs_lock ? p.lock : nullptr};
    core().with_user_code(
        [&] { how.run(how.op, p.at + at, static_cast<const std::byte*>(from), elems, static_cast<std::byte*>(old)); });
}

// ------------------------------------------------------------------ signals
COLLX_ONCE void one_sided::signal(int peer) {
    const entry here(*this);
    window_peer& p = require_peer(peer);
    if (p.at == nullptr) return remote_->put(peer, 0, nullptr, 0, true);
    p.to->word.store(++p.given, memory_order::release);
}
COLLX_ONCE std::uint64_t one_sided::require_count(int peer, std::uint64_t count) const {
    if (count == 0 || count > std::uint64_t{1} << 40) [[unlikely]]
        fail(errc::invalid_argument, rank_, peer, "say how many signals to wait for, 1 or more",
             "window: a wait or test for %llu signals", static_cast<unsigned long long>(count));
    return count;
}
COLLX_ONCE void one_sided::wait(int peer, std::uint64_t count, std::int64_t timeout_ns) {
    const entry here(*this);
    window_peer& p = require_peer(peer);
    core().require_time_limit(timeout_ns);
    const std::uint64_t want = p.taken + require_count(peer, count);
    wait_for_signal(p, peer, want, timeout_ns);
    p.taken = want;
}
COLLX_ONCE void one_sided::wait_for_signal(window_peer& p, int peer, std::uint64_t want, std::int64_t timeout_ns) {
    auto& c = core();
    try {
        if (p.at != nullptr) {
            serve_others(); // a signal that is there makes no wait
            store_carried(p, short_wait(c, timeout_ns)(p.from->word, want, peer));
        } else {
            const auto has_come = [&] { return p.from->word.load(memory_order::acquire) >= want; };
            c.wait_until(has_come, timeout_ns, awaited(peer, awaited::why::message));
        }
    } catch (const error& e) {
        if (e.code() == errc::timeout) explain_late(e, peer, want);
        throw;
    }
}
[[gnu::cold]] COLLX_ONCE void one_sided::explain_late(const error& e, int peer, std::uint64_t want) const {
    const std::uint64_t have = this->peer(peer).from->word.load(memory_order::acquire);
    char other[60] = "";
    if (e.peer() >= 0 && e.peer() != peer)
        std::snprintf(other, sizeof other, "; it waits, in the end, for rank %d", e.peer());
    fail(errc::timeout, rank_, e.peer() >= 0 ? e.peer() : peer,
         "does it signal as often as this rank waits, and is it alive? A longer limit: wait(peer, count, timeout)",
         "window: timed out waiting for signal %llu of rank %d, which has given %llu%s",
         static_cast<unsigned long long>(want), peer, static_cast<unsigned long long>(have), other);
}
// A rank that only tests must notice dead ranks and deadlines, too.
COLLX_ONCE bool one_sided::test(int peer, std::uint64_t count) {
    const entry here(*this);
    window_peer& p = require_peer(peer);
    const std::uint64_t want = p.taken + require_count(peer, count);
    core().progress_or_move();
    const std::uint64_t seen = p.from->word.load(memory_order::acquire);
    if (seen < want) {
        // Each peer has its own wait, which ends when any call takes its signals.
        if (p.look_taken != p.taken) {
            p.look = {};
            p.look_taken = p.taken;
        }
        try {
            core().look(p.look, 0, awaited(peer, awaited::why::message));
        } catch (const error& e) {
            if (e.code() == errc::timeout) explain_late(e, peer, want);
            throw;
        }
        return false;
    }
    if (p.at != nullptr) store_carried(p, seen);
    p.taken = want;
    return true;
}

// ------------------------------------------------------------------ completion
COLLX_ONCE void one_sided::flush(int peer) {
    const entry here(*this);
    if (require_peer(peer).at == nullptr) remote_->flush(peer, 0);
}
COLLX_ONCE void one_sided::flush() {
    const entry here(*this);
    if (remote_) remote_->flush_all(call_end(0));
}
COLLX_ONCE void one_sided::fence(std::int64_t timeout_ns) {
    const entry here(*this);
    auto& c = core();
    c.require_time_limit(timeout_ns);
    const call_end end(timeout_ns);
    if (remote_) remote_->flush_all(end);
    bool any = false;
    const bool mine = has_carried_;
    c.exchange_each(
        mine, [&](int, bool theirs) { any |= theirs; }, end.left_ns());
    if (!any) return;
    for (window_peer& p : peers_)
        if (p.at != nullptr) store_carried(p, p.from->word.load(memory_order::acquire));
    has_carried_ = false;
    c.exchange_each(
        mine, [](int, bool) {}, end.left_ns());
}
COLLX_ONCE void one_sided::progress() {
    const entry here(*this);
    core().progress_or_move();
}

} // namespace detail
COLLX_END_NAMESPACE
