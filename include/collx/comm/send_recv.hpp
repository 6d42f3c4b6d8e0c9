// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// send, recv, sendrecv: messages between two ranks, in order per pair. No tags and no wildcards: a receive names its
// sender and its size.
#pragma once

#include <collx/algo/message.hpp>
#include <collx/call/short_calls.hpp>
#include <collx/call/typed_ready_call.hpp>
#include <collx/comm/device_call.hpp>
#include <collx/comm/refusals.hpp>
#include <collx/comm/verb_fronts.hpp>
#include <collx/job/call_end.hpp>

COLLX_BEGIN_NAMESPACE

namespace detail {

inline void require_peer(const communicator_core& c, int peer) {
    if (peer < 0 || peer >= c.net.size())
        fail(errc::invalid_argument, c.net.rank(), -1, "peers are ranks of this communicator", "peer %d of %d ranks",
             peer, c.net.size());
}
inline void require_slot(const communicator_core& c, std::size_t elem_bytes) {
    if (elem_bytes > c.net.slot_bytes())
        fail(errc::unsupported, c.net.rank(), -1, "use smaller elements",
             "one element of %zu bytes does not fit a slot", elem_bytes);
}
template <class View>
void require_message(const communicator_core& c, const View& v, int peer, bool outgoing) {
    require_peer(c, peer);
    require_memory(c, v, outgoing ? "send" : "receive");
    if (!outgoing) require_distinct(c.net.rank(), facts_of(v), "receive");
    require_slot(c, sizeof(element_of<View>));
}
// The queue of messages of one direction to or from one peer, which keep their order.
inline int message_queue(int peer, bool outgoing) { return port::count + 2 * peer + (outgoing ? 1 : 0); }

// Whether a message of this view is contiguous and short.
template <class View>
bool is_short_message(const communicator_core& c, const View& v) {
    if constexpr (View::is_contiguous && alignof(element_of<View>) <= 16)
        return is_short_message(c, v.size() * sizeof(element_of<View>));
    return false;
}
template <class View>
call_words words_of_message(const View& v, int peer, bool outgoing, call_kind kind) {
    return {.verb = name_of(outgoing ? verb::send : verb::recv),
            .bytes = v.size() * sizeof(element_of<View>),
            .kind = kind,
            .is_message = true,
            .peer = peer};
}
template <bool Outgoing, class View>
void run_short_message(communicator_core& c, const View& v, int peer, std::int64_t timeout_ns) {
    if constexpr (View::is_contiguous) {
        const std::size_t bytes = v.size() * sizeof(element_of<View>);
        const auto tag = static_cast<std::uint32_t>(v.size()) ^ folded(kind_hash<element_of<View>, no_op>());
        if constexpr (Outgoing) send_short(c, v.data(), bytes, tag, peer, timeout_ns);
        else receive_short(c, const_cast<element_of<View>*>(v.data()), bytes, tag, peer, timeout_ns);
    }
}

template <class View>
using message_mover = mover<View, View, no_op, element_of<View>>;
template <class View>
message_mover<View> mover_of(communicator_core& c, const View& v) {
    return {v, v, no_op{}, c.net.size()};
}
// Returns make(plan, layout, piece_elems) for a message of `elems` elements of `elem_bytes` each.
template <class Algorithm, class Make>
decltype(auto) make_message(communicator_core& c, const Algorithm& a, std::size_t elems, std::size_t elem_bytes,
                            Make&& make) {
    auto& plan = c.schedules.bind(a, port::messages);
    const std::size_t bytes =
        piece_bytes(plan, collective::send_recv, elems * elem_bytes, c.is_oversubscribed(), c.net.is_one_host());
    return make(plan, chunk_layout::even(elems, 1), bytes / elem_bytes);
}

// Queues a message behind those of its peer and direction.
template <bool Outgoing, bool UntilTaken = Outgoing, class View, class Algorithm>
counted_ptr<operation> start_message(communicator_core& c, const View& v, const Algorithm& a) {
    return make_message(c, a, v.size(), sizeof(element_of<View>),
                        [&](auto& plan, const chunk_layout& l, std::size_t piece_elems) {
                            auto t = make_counted<typed_operation<task, message_mover<View>>>(
                                c.net, plan, mover_of(c, v), l, l, piece_elems, message_mover<View>::kind);
                            if (UntilTaken) t->wait_for_readers();
                            c.start(t, message_queue(a.peer, Outgoing));
                            return counted_ptr<operation>(std::move(t));
                        });
}

// Several messages as one operation. Each advances separately, in the queue of its peer.
class message_set final : public operation {
public:
    explicit message_set(communicator_core& c) : core_(c) {}
    ~message_set() override {
        if (state != task_state::blocked || is_dropped || is_orphaned) return;
        const one_caller::alone here(core_.caller); // never started, because one of the messages could not be
        message_set::be_dropped();
    }
    void be_dropped() override {
        is_dropped = true;
        for (const auto& m : messages_) m->be_dropped();
    }
    void add(counted_ptr<operation> m) { messages_.push_back(std::move(m)); }
    bool has_part(const operation* of) const override {
        for (const auto& m : messages_)
            if (m.get() == of) return true;
        return false;
    }
    task_state advance() override {
        for (; done_ < messages_.size(); ++done_) {
            const operation& m = *messages_[done_];
            if (m.state == task_state::done) continue;
            waiting_for = m.waiting_for;
            at_port = m.at_port;
            if (m.state == task_state::failed) error = m.error;
            return m.state == task_state::failed ? task_state::failed : task_state::blocked;
        }
        return task_state::done;
    }

private:
    communicator_core& core_;
    growing_array<counted_ptr<operation>> messages_;
    std::size_t done_ = 0;
};

// A message to be sent or received any number of times.
template <bool Outgoing, class View, class Kept>
class ready_message final : public ready_operation {
public:
    template <class Algorithm>
    ready_message(communicator_core& c, const View& v, const Algorithm& a, std::int64_t timeout_ns, const Kept& kept,
                  bool until_taken)
        : ready_operation(c, message_queue(a.peer, Outgoing), timeout_ns), view_(v), elements_(mover_of(c, v)),
          buffers_(kept), peer_(a.peer), is_short_(is_short_message(c, v)) {
        make_message(c, a, v.size(), elements_.is.bytes,
                     [&](auto& plan, const chunk_layout& l, std::size_t piece_elems) {
                         bind(elements_, {&plan, l, l, piece_elems, false, false},
                              words_of_message(v, a.peer, Outgoing, call_kind::persistent));
                     });
        if (until_taken) wait_for_readers();
    }
    void require_unmoved() const override {
        buffers_.look([&](const char*, std::size_t then, std::size_t now) {
            refuse_moved(core_, Outgoing ? "send" : "receive", then, now);
        });
    }

private:
    void begin() override {
        core_.require_alive();
        ++core_.messages;
    }
    std::uint64_t agreed() override { return elements_.is.kind; }
    void run_now() override {
        if (is_short_) run_short_message<Outgoing>(core_, view_, peer_, timeout_ns_);
        else ready_operation::run_now();
    }

    const View view_;
    typed_elements<message_mover<View>> elements_;
    const watched_buffers<Kept> buffers_;
    const int peer_;
    const bool is_short_;
};

template <class Mode, bool Outgoing, bool UntilTaken = Outgoing>
struct message_fn : takes<call_form::message> {
    using takes<call_form::message>::operator();

    template <Communicates Comm, DeviceBuffer X>
    auto operator()(Comm&& comm, X&& x, int peer, const device_call_options& o = {}) const {
        if constexpr (!Outgoing) require_output<X>();
        const auto v = buffer(x);
        const device_view<element_of<buffer_t<X>>> none;
        if constexpr (Outgoing) return message_on_device<Mode>(comm, v, peer, none, no_peer, o);
        else return message_on_device<Mode>(comm, none, no_peer, v, peer, o);
    }
    template <Communicates Comm, HostBuffer X>
    auto operator()(Comm&& comm, X&& x, int peer, const call_options& o = {}) const {
        if constexpr (!Outgoing) require_output<X>();
        return in_mode<Mode>(comm, [&] {
            nothing none;
            const auto kept = [&] {
                if constexpr (Outgoing) return keep<Mode, X, nothing&>(x, none);
                else return keep<Mode, X>(x);
            }();
            const auto v = [&] {
                if constexpr (Outgoing) return buffer(*kept.in);
                else return buffer(*kept.out);
            }();
            auto& c = base_of(comm).internals();
            c.require_alive();
            c.require_time_limit(o.timeout.count());
            require_no_root(c, o);
            require_message(c, v, peer, Outgoing);
            using algorithm = std::conditional_t<Outgoing, algo::send_message, algo::recv_message>;
            if constexpr (std::is_same_v<Mode, persistent_mode>)
                return persistent_call(
                    c, make_sole<ready_message<Outgoing, buffer_t<X>, std::remove_cv_t<decltype(kept)>>>(
                           c, v, algorithm{.peer = peer}, o.timeout.count(), kept, UntilTaken));
            else return run(c, v, algorithm{.peer = peer}, kept, o);
        });
    }

private:
    template <class View, class Algorithm, class Kept>
    static auto run(communicator_core& c, const View& v, const Algorithm& a, const Kept& kept, const call_options& o) {
        ++c.messages;
        const int peer = a.peer, queue = message_queue(peer, Outgoing);
        const bool is_started = std::is_same_v<Mode, async_mode> || c.pending.is_queued(queue);
        const call_words words =
            words_of_message(v, peer, Outgoing, is_started ? call_kind::async : call_kind::blocking);
        if (c.recorder && is_started) [[unlikely]]
            (void)c.recorder->begin_async(words);
        if constexpr (std::is_same_v<Mode, async_mode>) {
            return work<decltype(result_of(kept.held))>(c, start_message<Outgoing, UntilTaken>(c, v, a), kept.held,
                                                        o.timeout.count());
        } else if (is_started) { // the handle ends the call with its wait, however that ends
            work<void>(c, start_message<Outgoing, UntilTaken>(c, v, a), nullptr, o.timeout.count()).wait();
        } else if (is_short_message(c, v)) {
            recorded(c.recorder.get(), words, [&] { run_short_message<Outgoing>(c, v, peer, o.timeout.count()); });
        } else {
            typed_elements<message_mover<View>> elements(mover_of(c, v));
            make_message(c, a, v.size(), elements.is.bytes,
                         [&](auto& plan, const chunk_layout& l, std::size_t piece_elems) {
                             task t(c.net, plan, elements, l, l, piece_elems, elements.is.kind);
                             if (UntilTaken) t.wait_for_readers();
                             recorded(c.recorder.get(), words, [&] { c.run(t, o.timeout.count()); });
                         });
        }
    }
};

// Whether the receive of a sendrecv goes first: between hosts a large message arrives in the user's buffer if its
// receive is posted in time.
template <class View>
bool is_wanted_first(communicator_core& c, const View& v, int from_rank) {
    return v.size() * sizeof(element_of<View>) >= least_remote_bytes && c.net.rx(port::messages, from_rank).is_remote();
}

template <class Mode>
struct sendrecv_fn : takes<call_form::exchange> {
    using takes<call_form::exchange>::operator();

    template <Communicates Comm, DeviceBuffer Out, DeviceBuffer In>
    auto operator()(Comm&& comm, Out&& outgoing, int to_rank, In&& incoming, int from_rank,
                    const device_call_options& o = {}) const {
        require_output<In>();
        return message_on_device<Mode>(comm, buffer(outgoing), to_rank, buffer(incoming), from_rank, o);
    }
    template <Communicates Comm, HostBuffer Out, HostBuffer In>
    auto operator()(Comm&& comm, Out&& outgoing, int to_rank, In&& incoming, int from_rank,
                    const call_options& o = {}) const {
        require_output<In>();
        if constexpr (std::is_same_v<Mode, persistent_mode>) {
            return in_mode<Mode>(comm, [&] {
                auto& c = base_of(comm).internals();
                check(c, buffer(outgoing), to_rank, buffer(incoming), from_rank, o);
                // Both are under way at once, the receive first: see is_wanted_first().
                message_fn<persistent_mode, false> receive;
                message_fn<persistent_mode, true, false> send;
                auto both = make_sole<ready_sequence>(o.timeout.count());
                both->add(receive(comm, std::forward<In>(incoming), from_rank, o).release());
                both->add(send(comm, std::forward<Out>(outgoing), to_rank, o).release());
                return persistent_call(c, std::move(both));
            });
        } else if constexpr (std::is_same_v<Mode, async_mode>) {
            return in_mode<Mode>(comm, [&] {
                const auto kept = keep<Mode, Out, In>(outgoing, incoming);
                const auto sent = buffer(*kept.in);
                const auto received = buffer(*kept.out);
                auto& c = base_of(comm).internals();
                check(c, sent, to_rank, received, from_rank, o);
                c.messages += 2;
                auto both = make_counted<message_set>(c);
                both->add(start_message<false>(c, received, algo::recv_message{.peer = from_rank}));
                both->add(start_message<true>(c, sent, algo::send_message{.peer = to_rank}));
                if (c.recorder) [[unlikely]]
                    (void)c.recorder->begin_async({"sendrecv", sent.size() * sizeof(element_of<decltype(sent)>), "",
                                                   call_kind::async, true, from_rank});
                c.start(both, outstanding_calls::no_queue);
                return work<decltype(result_of(kept.held))>(c, both, kept.held, o.timeout.count());
            });
        } else {
            const auto sent = buffer(outgoing);
            const auto received = buffer(incoming);
            return in_mode<Mode>(comm, [&] { run(comm, sent, to_rank, received, from_rank, o); });
        }
    }

private:
    static void check(communicator_core& c, const auto& sent, int to_rank, const auto& received, int from_rank,
                      const call_options& o) {
        c.require_alive();
        c.require_time_limit(o.timeout.count());
        require_no_root(c, o);
        require_message(c, sent, to_rank, true); // both, before anything is sent
        require_message(c, received, from_rank, false);
        require_no_overlap(c, sent, received, SIZE_MAX);
    }
    template <class Comm, class Out, class In>
    static void run(Comm& comm, const Out& sent, int to_rank, const In& received, int from_rank,
                    const call_options& o) {
        auto& c = base_of(comm).internals();
        check(c, sent, to_rank, received, from_rank, o);
        message_fn<blocking_mode, true> send;
        message_fn<blocking_mode, false> receive;
        const call_end end(o.timeout);
        // A short message that finds room is sent at once.
        if (is_short_message(c, sent) && !c.pending.is_queued(message_queue(to_rank, true)) &&
            c.net.tx(port::messages, to_rank).has_room(sent.size() * sizeof(element_of<Out>))) {
            send(comm, sent, to_rank, o);
            return receive(comm, received, from_rank, end.left_of(o));
        }
        if (is_wanted_first(c, received, from_rank)) {
            message_fn<async_mode, false> start_receiving;
            message_fn<blocking_mode, true, false> send_all;
            auto receiving = start_receiving(comm, received, from_rank, o);
            send_all(comm, sent, to_rank, o);
            return handle_access::of(receiving).wait_at_most(end.left_ns());
        }
        message_fn<async_mode, true, false> start; // does not wait until it is taken: all ranks receive
        auto sending = start(comm, sent, to_rank, o);
        receive(comm, received, from_rank, o);
        handle_access::of(sending).wait_at_most(end.left_ns());
    }
};

template <class Mode>
using send_fn = message_fn<Mode, true>;
template <class Mode>
using recv_fn = message_fn<Mode, false>;

} // namespace detail

// Sends x to rank `peer`, which must receive as many elements. Returns when x may be written again: small messages are
// on their way then, messages of 32 KiB and more have been taken. A long message to the own rank: sendrecv, or
// async::send.
// Cost: on one host one message per piece of at most 128 KiB, through shared memory or, where that is cheaper at the
//     moment, read by the receiver through the kernel (docs/design/single_copy.md).
// Errors: as all_reduce; mismatch if the receiver expects another size.
// Example: if (world.rank() == 0) collx::send(world, x, 1);
//     else if (world.rank() == 1) collx::recv(world, x, 0);
COLLX_VERB(send)

// Receives into x from rank `peer`, which must send as many elements. Returns when they have arrived.
// Cost, Errors: as send.
// Example: collx::recv(world, x, 0);
COLLX_VERB(recv)

// Sends to one rank while receiving from another (or the same). Safe in rings, where all ranks would wait for ever if
// all sent first. The two buffers may not overlap. Async: one handle for both messages; wait() returns the received
// buffer if it was moved in.
// Cost: as send and recv, both under way at once.
// Errors: as send; invalid_argument where the buffers overlap.
// Example: collx::sendrecv(world, last_row, below, halo, above);
COLLX_VERB(sendrecv)

COLLX_END_NAMESPACE
