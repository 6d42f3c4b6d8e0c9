// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// The bodies of remote_window.hpp.
#pragma once

#include <cstring>

#include <collx/comm/one_sided.hpp>
#include <collx/comm/remote_transfers.hpp>
#include <collx/comm/remote_window.hpp>
#include <collx/core/copy_bytes.hpp>

COLLX_BEGIN_NAMESPACE
namespace detail {

[[gnu::cold]] COLLX_ONCE remote_window::remote_window(one_sided& w, communicator_core& base,
                                                      counted_ptr<communicator_end> end)
    : window_(w), core_(w.core()), base_(base), base_end_(std::move(end)),
      others_(static_cast<std::size_t>(w.ranks())) {
    const one_caller::alone here(base_.caller);
    base_.net.add_beside(this);
}

[[gnu::cold]] COLLX_ONCE remote_window::~remote_window() = default;

[[gnu::cold]] COLLX_ONCE void remote_window::show_part() {
    const window_peer& mine = window_.peer(window_.rank());
    transfers_ = remote_transfers::make(core_, mine.at, static_cast<std::size_t>(mine.bytes));
    const remote_transfers::shown own = transfers_ ? transfers_->own() : remote_transfers::shown();
    core_.exchange_each(own, [&](int r, const remote_transfers::shown& its) {
        if (transfers_ && window_.peer(r).at == nullptr && window_.peer(r).bytes != 0) transfers_->learn(r, its);
    });
}

// ------------------------------------------------------------------ the communicator that the window was made of
// Called in waits of the base's calls. The window's own calls, and its progress thread, need no help.
COLLX_ONCE bool remote_window::move_beside() {
    if (!base_.caller.is_in_call() || !core_.caller.is_at_rest() || core_.net.failed()) return false;
    const one_caller::call here(core_.caller, window_.rank());
    const std::uint64_t before = core_.pending.moves();
    try {
        (void)core_.progress_pending();
    } catch (...) { // an operator of the program threw: the window has ended, and its next call says so
    }
    return core_.carried || core_.pending.moves() != before;
}
// Called in waits of the window's calls.
COLLX_ONCE void remote_window::move_base() {
    if (!core_.caller.is_in_call() || base_end_->has_come || !base_.caller.is_at_rest() || base_.net.failed()) return;
    const one_caller::call here(base_.caller, window_.rank());
    base_.progress_or_move();
}

// ------------------------------------------------------------------ origin
COLLX_ONCE void remote_window::commit_open(int peer, bool signals) {
    other& o = others_[peer];
    if (o.open == nullptr) return;
    if (signals) reinterpret_cast<window_head*>(o.open)->signals = 1;
    o.open = nullptr;
    core_.net.tx(port::messages, peer).commit(o.open_bytes, head_tag);
}
COLLX_ONCE void remote_window::send_head(int peer, const window_head& h, const void* with, std::size_t bytes,
                                         std::int64_t timeout_ns) {
    commit_open(peer, false);
    other& o = others_[peer];
    sending_end& tx = core_.net.tx(port::messages, peer);
    std::byte* to = tx.try_acquire(sizeof h + bytes);
    if (to == nullptr)
        core_.wait_until([&] { return (to = tx.try_acquire(sizeof h + bytes)) != nullptr; }, timeout_ns,
                         awaited(peer, awaited::why::room));
    std::memcpy(to, &h, sizeof h);
    if (bytes != 0) std::memcpy(to + sizeof h, with, bytes);
    o.is_flushed = h.what == window_head::flush;
    o.has_data = o.has_data || ((h.what == window_head::put || h.what == window_head::combine) && h.bytes != 0);
    if (h.what == window_head::put && h.signals == 0 && bytes != 0) {
        o.open = to;
        o.open_bytes = sizeof h + bytes;
    } else {
        tx.commit(sizeof h + bytes, head_tag);
        core_.net.push(peer);
    }
}
COLLX_ONCE void remote_window::send_parts(int peer, const std::byte* from, std::size_t bytes) {
    sending_end& tx = core_.net.tx(port::messages, peer);
    const bool in_place = tx.may_send_in_place();
    const awaited room(peer, awaited::why::room);
    while (bytes != 0) {
        const std::size_t part = bytes < slot_bytes() ? bytes : slot_bytes();
        if (!tx.has_room(part)) core_.wait_until([&] { return tx.has_room(part); }, 0, room);
        if (in_place && part >= least_remote_bytes) {
            tx.commit_single_copy(from, part, part_tag);
        } else {
            copy_bytes(tx.try_acquire(part), from, part);
            tx.commit(part, part_tag);
        }
        core_.net.push(peer);
        from += part;
        bytes -= part;
    }
    if (!tx.has_all_back()) core_.wait_until([&] { return tx.has_all_back(); }, 0, room);
}
COLLX_ONCE bool remote_window::goes_directly(int peer, bool flushes) {
    if (!transfers_ || !transfers_->reaches(peer)) return false;
    const other& o = others_[peer];
    if (o.has_data && flushes) {
        send_head(peer, {window_head::flush, 0, 0, 0, 0, 0}, nullptr, 0);
        receive_answer(peer, nullptr, 0);
    }
    return !o.has_data;
}
COLLX_ONCE void remote_window::put(int peer, std::uint64_t at, const void* from, std::size_t bytes, bool signals) {
    if (bytes >= least_direct_bytes && goes_directly(peer, true)) {
        transfers_->put(peer, at, static_cast<const std::byte*>(from), bytes);
        bytes = 0; // a signal follows as a message
    }
    const window_head h{window_head::put, signals, at, bytes, 0, 0};
    if (bytes == 0) {
        if (!signals) return;
        if (others_[peer].open != nullptr) {
            commit_open(peer, true);
            return core_.net.push(peer);
        }
    }
    if (bytes < least_posted_bytes()) return send_head(peer, h, from, bytes);
    send_head(peer, h, nullptr, 0);
    send_parts(peer, static_cast<const std::byte*>(from), bytes);
}
COLLX_ONCE void remote_window::receive_answer(int peer, void* to, std::size_t bytes, std::int64_t timeout_ns) {
    receiving_end& rx = core_.net.rx(port::first_async, peer);
    auto* at = static_cast<std::byte*>(to);
    for (bool is_first = true; is_first || bytes != 0; is_first = false) {
        const std::size_t part = bytes < slot_bytes() ? bytes : slot_bytes();
        if (part >= least_remote_bytes && !rx.has_message()) (void)rx.want_at(at, part, answer_tag);
        core_.wait_until([&] { return rx.has_message(); }, timeout_ns, awaited(peer, awaited::why::message));
        if (!rx.is_expected(part, answer_tag)) core_.give_up(failure(errc::protocol, peer), peer);
        if (rx.is_posted()) {
            rx.release_posted();
        } else {
            if (part != 0) copy_bytes(at, rx.peek(part), part);
            rx.release(part);
        }
        at += part;
        bytes -= part;
    }
    others_[peer].has_data = false;                 // messages are answered in their order,
    if (transfers_) transfers_->note_flushed(peer); // and answers come behind writes
}
COLLX_ONCE void remote_window::get(int peer, std::uint64_t at, void* to, std::size_t bytes) {
    if (bytes == 0) return;
    if (goes_directly(peer, false)) return transfers_->get(peer, at, static_cast<std::byte*>(to), bytes);
    send_head(peer, {window_head::get, 0, at, bytes, 0, 0}, nullptr, 0);
    receive_answer(peer, to, bytes);
}
COLLX_ONCE void remote_window::combine(int peer, std::uint64_t at, const void* from, std::size_t elems,
                                       const combination& how, void* old) {
    const std::size_t each = how.operands * how.elem_bytes, most = (slot_bytes() - sizeof(window_head)) / each;
    if (how.entry == nullptr)
        fail(errc::unsupported, window_.rank(), peer,
             "give an operator without captures or members, of a type that can be made there",
             "window: rank %d is on another host and cannot be sent an operator that has state", peer);
    if (most == 0)
        fail(errc::unsupported, window_.rank(), peer, "use smaller elements",
             "window: one element of %zu bytes does not fit a message to rank %d", how.elem_bytes, peer);
    const auto* left = static_cast<const std::byte*>(from);
    while (elems != 0) {
        const std::size_t n = elems < most ? elems : most;
        const window_head h{window_head::combine, old != nullptr,  at,
                            n * how.elem_bytes,   how.entry->kind, how.entry->distance};
        send_head(peer, h, left, n * each);
        left += n * each;
        at += n * how.elem_bytes;
        elems -= n;
    }
    if (old != nullptr) receive_answer(peer, old, how.elem_bytes);
}
COLLX_ONCE void remote_window::flush(int peer, std::int64_t timeout_ns) {
    const other& o = others_[peer];
    if (!o.has_data && transfers_ && transfers_->is_written(peer)) {
        transfers_->begin_flush(peer, timeout_ns);
        return transfers_->end_flush(peer, timeout_ns);
    }
    if (o.is_flushed) return;
    send_head(peer, {window_head::flush, 0, 0, 0, 0, 0}, nullptr, 0, timeout_ns);
    receive_answer(peer, nullptr, 0, timeout_ns);
}
COLLX_ONCE void remote_window::flush_all(const call_end& end) {
    growing_array<int> asked;
    for (int r = 0; r < window_.ranks(); ++r) {
        if (!others_[r].is_flushed) {
            asked.push_back(r);
            send_head(r, {window_head::flush, 0, 0, 0, 0, 0}, nullptr, 0, end.left_ns());
        } else if (transfers_) {
            transfers_->begin_flush(r, end.left_ns());
        }
    }
    for (const int r : asked) receive_answer(r, nullptr, 0, end.left_ns()); // also for what devices have written
    for (int r = 0; transfers_ && r < window_.ranks(); ++r) transfers_->end_flush(r, end.left_ns());
}

[[gnu::cold]] COLLX_ONCE void remote_window::leave() noexcept {
    const one_caller::alone here(core_.caller);
    core_.pending.drop(this);
    if (!base_end_->has_come) {
        const one_caller::alone none_comes(base_.caller);
        base_.net.remove_beside(this);
    }
    if (core_.home->mark.is_child()) return void(transfers_.release()); // the device is its parent's
    try {
        std::int64_t until = 0;
        for (int r = 0; r < window_.ranks(); ++r) {
            if (window_.peer(r).at != nullptr) continue;
            commit_open(r, false);
            const auto wait_for = [&](auto&& is_done) {
                for (backoff wait(core_.settings.waiting); !core_.net.failed() && !is_done();)
                    if (!core_.net.move() && wait.pause()) core_.check(until, 0, awaited(r, awaited::why::room));
            };
            for (const int p : {port::messages, port::first_async})
                wait_for([&, &tx = core_.net.tx(p, r)] { return tx.is_drained(); });
            if (transfers_) wait_for([&] { return transfers_->is_drained(r); });
        }
    } catch (...) { // the communicator has ended, and its other ranks know
    }
    if (transfers_) transfers_->hide();
}

// ------------------------------------------------------------------ target
COLLX_ONCE task_state remote_window::advance() {
    bool moved = false;
    move_base();
    for (int r = 0; r < window_.ranks(); ++r) {
        if (window_.peer(r).at != nullptr) continue;
        commit_open(r, false);
        const task_state s = serve(r, others_[r]);
        if (s == task_state::failed) return s;
        moved |= s == task_state::moved;
    }
    return moved ? task_state::moved : task_state::blocked;
}
COLLX_ONCE task_state remote_window::serve(int peer, other& o) {
    receiving_end& rx = core_.net.rx(port::messages, peer);
    for (int taken = 0; taken < messages_in_a_row; ++taken) {
        const task_state so_far = taken != 0 ? task_state::moved : task_state::blocked;
        served s = served::yes;
        if (o.owes) {
            if (!answer(peer, o)) return so_far;
            continue;
        }
        if (o.left != 0) {
            s = take_part(peer, o, rx);
        } else {
            if (!rx.has_message()) return so_far;
            const std::size_t bytes = rx.message_bytes();
            if (bytes < sizeof(window_head) || bytes > slot_bytes() || !rx.is_expected(bytes, head_tag))
                s = served::refused;
            else s = take_head(peer, o, rx.peek(bytes), bytes);
            if (s == served::yes) rx.release(bytes);
        }
        if (s == served::not_yet) return so_far;
        if (s == served::refused) {
            error = failure(errc::protocol, peer);
            return task_state::failed;
        }
    }
    return task_state::moved;
}
COLLX_ONCE remote_window::served remote_window::combine_own(const window_head& h, other& o, const std::byte* with,
                                                            std::size_t rest) {
    const window_operator* const how = window_operator::find(h.kind, h.distance);
    if (how == nullptr || how->type != window_.elem_type() || how->elem_bytes != window_.elem_bytes() ||
        h.at % how->elem_bytes != 0 || h.bytes % how->elem_bytes != 0 || rest != how->operands * h.bytes ||
        (h.signals != 0 && h.bytes != how->elem_bytes))
        return served::refused;
    if (how->needs_lock && !window_.try_lock()) return served::not_yet;
    const held_window_lock until_end{how->needs_lock ? window_.peer(window_.rank()).lock : nullptr};
    if (h.signals != 0) o.old.resize(how->elem_bytes);
    std::byte* const at = window_.peer(window_.rank()).at + h.at;
    how->run(nullptr, at, with, h.bytes / how->elem_bytes, h.signals != 0 ? o.old.data() : nullptr);
    if (h.signals != 0) owe(o, o.old.data(), o.old.size());
    return served::yes;
}
// Sizes and places come from another process: they are checked before anything is written.
COLLX_ONCE remote_window::served remote_window::take_head(int peer, other& o, const std::byte* message,
                                                          std::size_t bytes) {
    window_head h;
    std::memcpy(&h, message, sizeof h);
    window_peer& mine = window_.peer(window_.rank());
    const std::byte* const with = message + sizeof h;
    const std::size_t rest = bytes - sizeof h;
    if (h.signals > 1 || h.at > mine.bytes || h.bytes > mine.bytes - h.at) return served::refused;
    switch (h.what) {
        case window_head::put:
            if (h.bytes < least_posted_bytes()) {
                if (rest != h.bytes) return served::refused;
                if (rest != 0) std::memcpy(mine.at + h.at, with, rest);
                if (h.signals != 0) give_signal(peer);
            } else if (rest != 0) {
                return served::refused;
            } else {
                o.to = mine.at + h.at;
                o.left = h.bytes;
                o.signals = h.signals != 0;
            }
            return served::yes;
        case window_head::get:
            if (rest != 0 || h.bytes == 0) return served::refused;
            owe(o, mine.at + h.at, h.bytes);
            return served::yes;
        case window_head::combine: return combine_own(h, o, with, rest);
        case window_head::flush:
            if (rest != 0) return served::refused;
            owe(o, nullptr, 0);
            return served::yes;
        default: return served::refused;
    }
}
COLLX_ONCE remote_window::served remote_window::take_part(int peer, other& o, receiving_end& rx) {
    const std::size_t part = o.left < slot_bytes() ? static_cast<std::size_t>(o.left) : slot_bytes();
    if (!rx.has_message()) {
        if (part >= least_remote_bytes) (void)rx.want_at(o.to, part, part_tag);
        return served::not_yet;
    }
    if (!rx.is_expected(part, part_tag)) return served::refused;
    if (rx.is_posted()) {
        rx.release_posted();
    } else {
        copy_bytes(o.to, rx.peek(part), part);
        rx.release(part);
    }
    o.to += part;
    o.left -= part;
    if (o.left == 0 && o.signals) give_signal(peer);
    return served::yes;
}
COLLX_ONCE void remote_window::give_signal(int peer) {
    auto& word = window_.peer(peer).from->word;
    word.store(word.load(memory_order::relaxed) + 1, memory_order::release);
}
COLLX_ONCE void remote_window::owe(other& o, const std::byte* from, std::uint64_t bytes) {
    o.from = from;
    o.owed = bytes;
    o.owes = true;
}
// Sends the next message of an answer. False: there is no room for it.
COLLX_ONCE bool remote_window::answer(int peer, other& o) {
    sending_end& tx = core_.net.tx(port::first_async, peer);
    const std::size_t part = o.owed < slot_bytes() ? static_cast<std::size_t>(o.owed) : slot_bytes();
    std::byte* const to = tx.try_acquire(part);
    if (to == nullptr) return false;
    if (part != 0) copy_bytes(to, o.from, part);
    tx.commit(part, answer_tag);
    core_.net.push(peer);
    o.from += part;
    o.owed -= part;
    o.owes = o.owed != 0;
    return true;
}

} // namespace detail
COLLX_END_NAMESPACE
