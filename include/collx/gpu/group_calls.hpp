// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Launches a device_group: first its messages, the k-th of every pair of ranks together, then its collectives, as many
// as fit into each kernel (batch.hpp). A group that names its kinds has one kernel for all.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <type_traits>
#include <vector>

#include <collx/gpu/batch.hpp>
#include <collx/gpu/calls.hpp>

COLLX_BEGIN_NAMESPACE
namespace detail {

// A message to or from one peer.
struct device_message {
    int peer;
    bool outgoing;
    std::uintptr_t address;
    std::size_t bytes;
    std::uint32_t kind;         // see part_kind
    std::size_t piece_multiple; // see piece_multiple_v
};

// What a group holds until it is launched, or for as long as it is persistent.
template <class Comm>
struct device_group_list {
    using collective_call = std::function<void(Comm&, const device_call_options&, kernel_batch&)>;
    std::vector<collective_call> collectives;
    std::vector<device_message> messages;
    std::size_t size() const { return collectives.size() + messages.size(); }
};

// The buffers that go to all peers, or come from them: at most one for each peer.
struct message_side {
    std::vector<std::size_t> bytes;
    std::vector<std::uintptr_t> address;
    std::vector<std::uint32_t> kinds; // 0: no buffer, not even an empty one
    explicit message_side(std::size_t ranks) : bytes(ranks), address(ranks), kinds(ranks) {}
    void add(const device_message& m) {
        const auto k = static_cast<std::size_t>(m.peer);
        bytes[k] = m.bytes;
        address[k] = m.address;
        kinds[k] = m.kind;
    }
    std::uintptr_t lowest() const {
        std::uintptr_t least = UINTPTR_MAX;
        for (std::size_t k = 0; k < bytes.size(); ++k)
            if (bytes[k] != 0 && address[k] < least) least = address[k];
        return least;
    }
    template <class T>
    T* first() const {
        return lowest() == UINTPTR_MAX ? nullptr : reinterpret_cast<T*>(lowest());
    }
    std::vector<std::size_t> offsets() const {
        std::vector<std::size_t> at(bytes.size());
        for (std::size_t k = 0; k < bytes.size(); ++k)
            if (bytes[k] != 0) at[k] = address[k] - lowest();
        return at;
    }
};

// A kind of call as a type: a verb with its views and its operator; or messages, of words only or of bytes, too.
template <collective C, class In, class Out, class Op>
struct grouped_kind {
    template <class Policies>
    static constexpr auto kernels() {
        using op_type = std::conditional_t<std::is_same_v<Op, no_op>, device::move_only, Op>;
        return by_kernel::kinds<Policies, C, In, Out, op_type>();
    }
};
template <bool AreWords>
struct grouped_messages_kind {
    template <class Policies>
    static constexpr auto kernels() {
        return device_exchange::kinds<AreWords>();
    }
};
template <class Kind>
inline constexpr bool is_kind_of_messages = false;
template <bool AreWords>
inline constexpr bool is_kind_of_messages<grouped_messages_kind<AreWords>> = true;
// Whether a group's own kernel takes its messages, too.
template <class... Kinds>
inline constexpr bool mixes_messages = (is_kind_of_messages<Kinds> || ...);

template <class Policies, class... Kinds>
struct kernels_of {
    using type = device::call_kinds<>;
};
template <class Policies, class First, class... Rest>
struct kernels_of<Policies, First, Rest...> {
    using type = decltype(First::template kernels<Policies>().with(typename kernels_of<Policies, Rest...>::type()));
};

// A call of a group. Its kernel is not launched but added to the batch; Mixed: to the group's own kernel.
template <class Runtime, class Comm, bool Mixed>
struct device_in_group : device_started<Runtime, Comm> {
    using base = device_started<Runtime, Comm>;
    device_in_group(Comm& x, const device_call_options& opts, kernel_batch& b, bool is_collective = true)
        : base(x, opts, is_collective, b.is_first()), batch(b) {
        if (b.is_kept() || this->g.is_direct()) this->launches_nothing(); // the batch does
    }

    template <class Call, class In, class Out>
    void put(const Call& call, const device::fused_options& with, const In& in, const Out& out) const {
        auto all = uses;
        all.push_back(memory_of(in, false));
        all.push_back(memory_of(out, true));
        all.push_back(memory_of_operator(call));
        const auto done = [g = &this->g, stream = with.stream, facts = this->stream] {
            g->end(device_call_options{.stream = stream}, facts);
        };
        if constexpr (!Mixed) batch.add(this->g.team(), call, with, all, done);
        else if (!batch.add_mixed(this->g.team(), call, with, all, done))
            fail(errc::invalid_argument, this->g.rank(), -1, "pass buffers that are aligned for their elements",
                 "a message of the group is not of whole words, and its type says so");
    }
    void end() const {
        if (batch.is_kept()) return; // no call has been made
        this->made();
        if (!this->g.is_direct()) base::end();
    }
    kernel_batch& batch;
    std::vector<used_memory> uses; // memory that the views do not show
};

// A round of a persistent group's messages: the kernel is kept, by itself.
template <class Runtime, class Comm>
struct device_kept_round : device_started<Runtime, Comm> {
    device_kept_round(Comm& x, const device_call_options& opts, kernel_batch& b)
        : device_started<Runtime, Comm>(x, opts, false), batch(b) {
        this->launches_nothing();
    }
    template <class Call, class In, class Out>
    void put(const Call& call, const device::fused_options& with, const In&, const Out&) const {
        batch.keep(this->g.team(), call, with);
    }
    void end() const {}
    kernel_batch& batch;
};

template <class Runtime>
struct device_group_calls {
    template <collective C, bool Mixed, class Comm, class In, class Out, class Op>
    static void collective_of(Comm& comm, const In& in, const Out& out, const Op& op, const device_call_options& o,
                              bool is_in_place, kernel_batch& batch) {
        const device_in_group<Runtime, Comm, Mixed> call(comm, o, batch);
        if constexpr (std::is_same_v<Op, no_op>)
            device_calls<Runtime>::template call<C>(call, in, out, device::move_only{}, is_in_place);
        else device_calls<Runtime>::template call<C>(call, in, out, op, is_in_place);
    }

    // Puts all calls into the batch, and the batch's kernels into the stream unless it keeps them. Mode repeated: the
    // batch keeps them. Kinds: those that share one kernel. Errors name the call.
    template <class Mode, class... Kinds, class Comm>
    static void put(Comm& comm, const device_group_list<Comm>& all, const device_call_options& o, kernel_batch& batch) {
        unsigned number = 0;
        try {
            if constexpr (sizeof...(Kinds) != 0) {
                using policies = std::remove_cvref_t<decltype(policies_of(comm))>;
                using team = std::remove_reference_t<decltype(std::declval<gpu_group<Runtime>&>().team())>;
                batch.use_mix<team, typename kernels_of<policies, Kinds...>::type>();
            }
            messages<mixes_messages<Kinds...>, Mode>(comm, all.messages, o, batch);
            for (const auto& call : all.collectives) {
                batch.begin_call(++number);
                call(comm, o, batch);
            }
        } catch (const error& e) {
            batch.end(e);
        }
        batch.flush();
    }

private:
    // The k-th message to and from each peer, together. Each k is a separate kernel; Mixed: all are in the group's. The
    // messages of a kernel are cut into pieces of one length, so elements that need other pieces have their own
    // kernels, behind those of lower multiples on all ranks.
    template <bool Mixed, class Mode, class Comm>
    static void messages(Comm& comm, const std::vector<device_message>& all, const device_call_options& o,
                         kernel_batch& batch) {
        communicator& c = base_of(comm);
        if (all.empty()) return;
        for (const auto& m : all) require_peer(c.internals(), m.peer);
        require_apart(c.rank(), all);
        device_calls<Runtime>::require_set_up(c, all[0].peer);
        for (const std::size_t multiple : piece_multiples(all)) {
            std::vector<device_message> alike;
            for (const auto& m : all)
                if (m.piece_multiple == multiple) alike.push_back(m);
            rounds_of<Mixed, Mode>(comm, alike, o, batch);
        }
    }
    static std::vector<std::size_t> piece_multiples(const std::vector<device_message>& all) {
        std::vector<std::size_t> found;
        for (const auto& m : all) found.push_back(m.piece_multiple);
        std::sort(found.begin(), found.end());
        found.erase(std::unique(found.begin(), found.end()), found.end());
        return found;
    }
    template <bool Mixed, class Mode, class Comm>
    static void rounds_of(Comm& comm, const std::vector<device_message>& all, const device_call_options& o,
                          kernel_batch& batch) {
        for (std::size_t round = 0, rounds = 1; round < rounds; ++round) {
            if constexpr (Mixed) {
                device_in_group<Runtime, Comm, true> call(comm, o, batch, false);
                rounds = add_round(call, all, round, [&](const used_memory& u) { call.uses.push_back(u); });
            } else if constexpr (std::is_same_v<Mode, persistent_mode>) {
                const device_kept_round<Runtime, Comm> call(comm, o, batch);
                rounds = add_round(call, all, round, [](const used_memory&) {});
            } else {
                const device_started<Runtime, Comm> call(comm, o, false);
                rounds = add_round(call, all, round, [](const used_memory&) {});
            }
        }
    }

    // No order of the messages is defined, so none may write what another one reads or writes.
    static void require_apart(int rank, const std::vector<device_message>& all) {
        std::vector<const device_message*> sorted;
        for (const auto& m : all)
            if (m.bytes != 0) sorted.push_back(&m);
        std::sort(sorted.begin(), sorted.end(), [](auto* a, auto* b) { return a->address < b->address; });
        const device_message *reaches = nullptr, *writes = nullptr; // last to end so far, of all and of received ones
        const auto end_of = [](const device_message* m) { return m == nullptr ? 0 : m->address + m->bytes; };
        for (const auto* m : sorted) {
            const auto* other = m->outgoing ? writes : reaches;
            if (end_of(other) > m->address)
                fail(
                    errc::invalid_argument, rank, m->peer, "use buffers that do not overlap",
                    "in a group the message %s rank %d and the one %s rank %d share memory, and one of them is written",
                    other->outgoing ? "to" : "from", other->peer, m->outgoing ? "to" : "from", m->peer);
            if (end_of(m) > end_of(reaches)) reaches = m;
            if (!m->outgoing && end_of(m) > end_of(writes)) writes = m;
        }
    }
    // Adds one round. Returns the number of rounds.
    template <class Call, class Uses>
    static std::size_t add_round(const Call& call, const std::vector<device_message>& all, std::size_t round,
                                 Uses&& uses) {
        communicator& c = call.c;
        const auto n = static_cast<std::size_t>(c.size());
        message_side sides[2] = {message_side(n), message_side(n)};
        std::vector<std::size_t> seen[2] = {std::vector<std::size_t>(n), std::vector<std::size_t>(n)};
        std::size_t rounds = 0;
        for (const auto& m : all) {
            const std::size_t number = seen[m.outgoing ? 0 : 1][static_cast<std::size_t>(m.peer)]++;
            rounds = number < rounds ? rounds : number + 1;
            if (number != round) continue;
            call.g.require_memory(device_view<const char>(reinterpret_cast<const char*>(m.address), m.bytes),
                                  "group's");
            sides[m.outgoing ? 0 : 1].add(m);
            uses({m.address, m.address + m.bytes, !m.outgoing});
        }
        const std::size_t me = static_cast<std::size_t>(c.rank());
        if (sides[0].bytes[me] != sides[1].bytes[me])
            fail(errc::invalid_argument, c.rank(), c.rank(), "what a rank sends itself it also receives",
                 "a group sends %zu bytes to its own rank and receives %zu", sides[0].bytes[me], sides[1].bytes[me]);
        count_tables& t = c.internals().tables;
        t.first.assign(c.rank(), c.size(), sides[0].bytes, sides[0].offsets(), "group's");
        t.second.assign(c.rank(), c.size(), sides[1].bytes, sides[1].offsets(), "group's");
        // One view spans all buffers of a side, from the first to the end of the last.
        device_calls<Runtime>::template exchange<collective::send_recv>(
            call, device_view<const std::uint8_t>(sides[0].template first<const std::uint8_t>(), t.first.end()),
            device_view<std::uint8_t>(sides[1].template first<std::uint8_t>(), t.second.end()),
            {part_peers::listed(sides[0].kinds), part_peers::listed(sides[1].kinds), 0, all[0].piece_multiple}, n);
        return rounds;
    }
};

} // namespace detail
COLLX_END_NAMESPACE
