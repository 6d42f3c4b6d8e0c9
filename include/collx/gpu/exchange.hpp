// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Exchanges of parts of any size on device memory: gather, scatter, the v-variants that move, messages. Each part goes
// straight from one rank to another, and a rank needs to know only its own parts. Where kernels reach every peer, all
// of these use pairwise_all_to_all, in which most parts may be empty. Staged parts travel in pieces, as messages.
// Where kernels reach the peers of a domain, parts inside it go by kernel and the others are staged.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <type_traits>
#include <utility>
#include <vector>

#include <collx/algo/pairwise.hpp>
#include <collx/gpu/announced_parts.hpp>
#include <collx/gpu/by_kernel.hpp>
#include <collx/gpu/staging.hpp>

COLLX_BEGIN_NAMESPACE
namespace detail {

// Which parts there are, also without elements, and what both ends of them know.
struct exchange_ends {
    part_peers to, from;
    std::uint64_t hash = 0;         // of a collective: what its ranks share beside verb, root and lengths
    std::size_t piece_multiple = 0; // see piece_multiple_v; 0: as the elements say
};
// The parts sent to rank k and received from it: sizes and places, in elements. Refers to the caller's tables.
struct exchange_parts : exchange_ends {
    const count_table& sent;
    const count_table& received;
    // How many parts may share a buffer. All ranks know it, so both ends of a part cut it into the same pieces.
    std::size_t parts;
    call_sign sign;

    // Ranks need not know the counts of others, but the two ranks of a pair must agree.
    static exchange_parts of(collective c, const count_tables& t, const exchange_ends& ends, std::size_t parts) {
        call_sign sign = call_sign::of_parts();
        if (c != collective::send_recv) sign = {c, 0, ends.hash, true};
        return {ends, t.first, t.second, parts, sign};
    }
    bool is_collective() const { return sign.what != collective::send_recv; }

    // Adds what this rank says of its parts to peers that `takes` names, and what it expects of theirs. room: the
    // elements of a piece; 0: there are none.
    template <class Call, class Takes>
    void announce(std::vector<announced_part>& said, std::vector<announced_part>& expected, const Call& call,
                  std::size_t elem_bytes, std::size_t room, Takes&& takes) const {
        const int root = is_rooted(sign.what) ? call.o.root : 0;
        const std::uint64_t number = is_collective() ? call.g.number_of_call() : 0;
        const auto add = [&](std::vector<announced_part>& list, const part_peers& peers, const count_table& t, int k) {
            const std::uint32_t kind = peers.kind(k);
            if (kind == 0 || k == call.g.rank() || !takes(k)) return;
            list.push_back({k,
                            {.bytes = t.sizes()[k] * elem_bytes,
                             .what = part_words::what_of(sign.what, root, kind),
                             .number = number,
                             .piece_bytes = room * elem_bytes}});
        };
        for (int k = 0; k < call.g.size(); ++k) {
            add(said, to, sent, k);
            add(expected, from, received, k);
        }
    }
};

// One staged piece: where its parts lie in the staging buffers.
struct staged_exchange {
    struct part {
        int peer;
        std::size_t at, bytes;
    };
    std::vector<part> sent, received;
    std::vector<announced_part> said, expected; // of the whole call, in its first piece
    duration timeout{};
};

inline void carry_out(communicator& c, const staged_exchange& x, const std::byte* in, std::byte* out) {
    announce_parts(c, x.said, x.expected, x.timeout);
    std::vector<work<void>> under_way;
    const call_options o{.timeout = x.timeout};
    for (const auto& p : x.received)
        if (p.peer != c.rank())
            under_way.push_back(async::recv(c, contiguous_view<std::byte>(out + p.at, p.bytes), p.peer, o));
    for (const auto& p : x.sent) {
        if (p.peer != c.rank()) {
            under_way.push_back(async::send(c, contiguous_view<const std::byte>(in + p.at, p.bytes), p.peer, o));
            continue;
        }
        for (const auto& mine : x.received)
            if (mine.peer == p.peer) std::memcpy(out + mine.at, in + p.at, p.bytes < mine.bytes ? p.bytes : mine.bytes);
    }
    for (auto& w : under_way) w.wait();
}

// Pieces have a multiple of so many bytes: one end of a part may move whole elements, because its view is strided or
// computed, the other units of which it loads 16 bytes at once, and both must cut the part at the same places.
template <class T>
inline constexpr std::size_t piece_multiple_v = 16 / device::unit_bytes(sizeof(T)) * sizeof(T);

template <class T>
inline constexpr std::size_t unit_bytes_v = sizeof(T) % 8 == 0 && alignof(T) % 8 == 0   ? 8
                                            : sizeof(T) % 4 == 0 && alignof(T) % 4 == 0 ? 4
                                            : sizeof(T) % 2 == 0 && alignof(T) % 2 == 0 ? 2
                                                                                        : 1;
template <std::size_t Bytes>
using unit_of = std::conditional_t<
    Bytes == 8, std::uint64_t,
    std::conditional_t<Bytes == 4, std::uint32_t, std::conditional_t<Bytes == 2, std::uint16_t, std::uint8_t>>>;

// A call, as kernels inside this rank's domain see it.
template <class Call>
struct inside_call {
    using runtime = typename Call::runtime;
    struct members {
        gpu_group<runtime>& all;
        int size() const { return all.domains()->size(); }
        int rank() const { return all.domains()->rank(); }
        auto& team() const { return all.team(); }
        std::byte* exchange_of_all() const { return all.exchange_of_all(); }
        const device_settings& settings() const { return all.settings(); }
    };
    // after_rails: the time limit is longer, because peers may have waited for other domains.
    explicit inside_call(const Call& x, bool after_rails = false)
        : comm(x.comm), o(x.o), g{x.g},
          limit_ns(after_rails ? limit_behind(longer(x.timeout_ns(), rail_patience_ns)) : x.timeout_ns()) {}
    std::int64_t timeout_ns() const { return limit_ns; }
    // Launches at once, also in a group, because staging kernels precede and follow it.
    template <class Kernel, class In, class Out>
    void put(const Kernel& kernel, const device::fused_options& with, const In&, const Out&) const {
        g.all.team().run(kernel, with);
    }

    decltype(Call::comm) comm;
    const device_call_options& o;
    members g;
    std::int64_t limit_ns;
};

struct device_exchange {
    // The view of a rank that sends or receives nothing is not used.
    template <class Call, class In, class Out>
    static void run(const Call& call, const In& in, const Out& out, const exchange_parts& x) {
        const typename Call::alone& alone = call; // see device_calls::call
        if (call.g.is_direct())
            over_links(call, in, out, cuts_of(x, call.g.size(), [](int k) { return k; }), x.sign, x.piece_multiple);
        else if (call.g.domains() != nullptr) in_domains(alone, in, out, x);
        else
            over_host(
                alone, in, out, x, [](int) { return true; }, [] {});
    }
    // Contiguous elements that keep their type travel as integers of up to 8 bytes, so that a program has few kernels.
    // Bytes travel in fours if all parts begin and end at multiples of four.
    // multiple: of the pieces, where these are bytes of other elements.
    // Errors: unsupported for elements that are not contiguous, if a slot has no room for a piece of them.
    template <class Call, class In, class Out>
    static void over_links(const Call& call, const In& in, const Out& out, const device::own_cuts& cuts,
                           const call_sign& sign, std::size_t multiple = 0) {
        using T = element_of<Out>;
        if (multiple == 0) multiple = piece_multiple_v<T>;
        if constexpr (In::is_contiguous && Out::is_contiguous && std::is_same_v<element_of<In>, T>) {
            const auto* from = reinterpret_cast<const std::byte*>(in.data());
            auto* to = reinterpret_cast<std::byte*>(const_cast<T*>(static_cast<const T*>(out.data())));
            constexpr std::size_t unit = unit_bytes_v<T>;
            if constexpr (unit == 1)
                if (const auto bytes = scaled(cuts, sizeof(T), 1); is_words(from, to, bytes))
                    return launch_units<4>(call, from, to, scaled(bytes, 1, 4), sign, multiple);
            launch_units<unit>(call, from, to, scaled(cuts, sizeof(T) / unit, 1), sign, multiple);
        } else {
            const std::size_t slot = call.g.settings().slot_bytes;
            if (multiple > slot)
                fail(errc::unsupported, call.g.rank(), -1, "raise device_settings::slot_bytes, or pass them contiguous",
                     "elements of %zu bytes that are not contiguous travel in pieces of %zu, and a slot has %zu",
                     sizeof(T), multiple, slot);
            launch(call, in, out, cuts, sign, multiple);
        }
    }

    // The kinds of calls that over_links() may launch for messages: of words, and of bytes unless AreWords.
    template <bool AreWords>
    static constexpr auto kinds() {
        if constexpr (AreWords) return device::call_kinds<call_of<device_view<const std::uint32_t>>>();
        else
            return device::call_kinds<call_of<device_view<const std::uint32_t>>,
                                      call_of<device_view<const std::uint8_t>>>();
    }

private:
    // Parts with private counts use the algorithm of messages, as an exchange in which some parts are empty.
    using by_parts =
        algorithm_of<choices::last_choice(choices::device, collective::send_recv).use, collective::all_to_all>;
    template <class View, class T = element_of<View>>
    using call_of =
        device::fused_call<device::simple_protocol, 1, by_parts,
                           device::call_types<View, device_view<T>, device::move_only, T, device::own_cuts, true>>;
    template <class RankOf>
    static device::own_cuts cuts_of(const exchange_parts& x, int n, RankOf&& rank_of) {
        device::own_cuts cuts;
        for (int k = 0; k < n; ++k) {
            const int r = rank_of(k);
            cuts.sizes[0][k] = x.sent.sizes()[r];
            cuts.at[0][k] = x.sent.offsets()[r];
            cuts.sizes[1][k] = x.received.sizes()[r];
            cuts.at[1][k] = x.received.offsets()[r];
            if (x.is_collective()) continue;
            if (const std::uint32_t kind = x.to.kind(r)) cuts.kinds[0][k] = device::part_word::of_type(kind);
            if (const std::uint32_t kind = x.from.kind(r)) cuts.kinds[1][k] = device::part_word::of_type(kind);
        }
        return cuts;
    }
    // A kernel moves the parts inside the domain, while the first staged piece of the other parts is under way. Kernels
    // compare collectives; each rank of a domain launches one, because all count them.
    template <class Call, class In, class Out>
    static void in_domains(const Call& call, const In& in, const Out& out, const exchange_parts& x) {
        const auto& d = *call.g.domains();
        const device::own_cuts cuts = cuts_of(x, d.size(), [&](int k) { return d.rank_of(k); });
        const node_view map = d.map();
        const bool is_here = !is_rooted(x.sign.what) || map.node_of(call.o.root) == d.node();
        const bool is_common = x.is_collective() && is_here && d.size() > 1;
        over_host(
            call, in, out, x, [&](int peer) { return map.node_of(peer) != d.node(); },
            [&] {
                if (is_common || cuts.largest(0, d.size()) != 0 || cuts.has_messages())
                    over_links(inside_call<Call>(call), in, out, cuts, x.sign, x.piece_multiple);
            });
    }

    static bool is_words(const std::byte* from, const std::byte* to, const device::own_cuts& cuts) {
        std::size_t bits = reinterpret_cast<std::uintptr_t>(from) | reinterpret_cast<std::uintptr_t>(to);
        for (int side = 0; side < 2; ++side)
            for (int k = 0; k < device::max_ranks; ++k) bits |= cuts.sizes[side][k] | cuts.at[side][k];
        return bits % 4 == 0;
    }
    static device::own_cuts scaled(device::own_cuts cuts, std::size_t times, std::size_t by) {
        for (int side = 0; side < 2; ++side)
            for (int k = 0; k < device::max_ranks; ++k) {
                cuts.sizes[side][k] = cuts.sizes[side][k] * times / by;
                cuts.at[side][k] = cuts.at[side][k] * times / by;
            }
        return cuts;
    }
    template <std::size_t Bytes, class Call>
    static void launch_units(const Call& call, const std::byte* from, std::byte* to, const device::own_cuts& cuts,
                             const call_sign& sign, std::size_t multiple) {
        using unit = unit_of<Bytes>;
        launch(call, device_view<const unit>(reinterpret_cast<const unit*>(from), 0),
               device_view<unit>(reinterpret_cast<unit*>(to), 0), cuts, sign, multiple);
    }
    template <class Call, class In, class Out>
    static void launch(const Call& call, const In& in, const Out& out, const device::own_cuts& cuts,
                       const call_sign& sign, std::size_t multiple) {
        using types = device::call_types<In, Out, device::move_only, element_of<Out>, device::own_cuts, true>;
        by_kernel::launch<types>(
            device::simple_protocol{}, by_parts{}, call, in, out, device::move_only{}, [&](int) { return cuts; }, sign,
            piece_bytes(call.g.settings().slot_bytes, policies_of(call.comm).piece_bytes, multiple));
    }
    // The length of a piece does not depend on the counts, nor on how an end moves it. wanted: 0: as long as may be.
    static std::size_t piece_bytes(std::size_t slot, std::size_t wanted, std::size_t multiple) {
        constexpr std::size_t longest = 256 * 1024; // that team::prepare() makes
        std::size_t most = slot < longest ? slot : longest;
        if (multiple > most) return most;
        if (wanted != 0 && wanted < most) most = wanted < multiple ? multiple : wanted;
        return most / multiple * multiple;
    }

    // ------------------------------------------------------------------------------------------ by way of the host
    // Peers in groups that fit a kernel's arguments, by distance, so that both ends have a pair in the same group.
    // takes(peer): whether its parts are staged. meanwhile(): puts independent work into the stream, once.
    template <class Call, class In, class Out, class Takes, class Meanwhile>
    static void over_host(const Call& call, const In& in, const Out& out, const exchange_parts& x, Takes&& takes,
                          Meanwhile&& meanwhile) {
        using wire = element_of<Out>;
        const int n = call.g.size(), me = call.g.rank();
        constexpr int most = static_cast<int>(device::staging_runs::most);
        staged_pieces<typename Call::runtime> pieces(call.g, call.o.stream, call.stream.is_capturing,
                                                     call.timeout_ns());
        const std::size_t parts = x.parts < device::staging_runs::most ? x.parts : device::staging_runs::most;
        const std::size_t room = pieces.room(parts * sizeof(wire));
        staged_exchange step{.timeout = call.o.timeout};
        x.announce(step.said, step.expected, call, sizeof(wire), room, takes);
        device::staging_runs last;
        bool is_open = false;
        const auto put = [&](const device::staging_runs& from, const device::staging_runs& to) {
            pieces.template put<wire>(in, from,
                                      [step = std::exchange(step, {.timeout = call.o.timeout})](
                                          communicator& side, const std::byte* sent, std::byte* received) {
                                          carry_out(side, step, sent, received);
                                      });
            if (is_open) pieces.take(out, last);
            else meanwhile();
            last = to;
            is_open = true;
        };
        for (int first = 0; first < n; first += most) {
            const int end = first + most < n ? first + most : n;
            for (std::size_t k = 0;; ++k) {
                device::staging_runs from, to;
                for (int i = first; i < end; ++i) {
                    const int ahead = (me + i) % n, behind = (me + n - i) % n;
                    if (takes(ahead)) add(from, step.sent, x.sent, ahead, k, room, sizeof(wire));
                    if (takes(behind)) add(to, step.received, x.received, behind, k, room, sizeof(wire));
                }
                if (step.sent.empty() && step.received.empty()) break;
                put(from, to);
            }
        }
        if (!step.said.empty() || !step.expected.empty()) put({}, {}); // none of this rank's parts has elements
        if (is_open) pieces.take(out, last);
        else meanwhile();
    }
    static void add(device::staging_runs& runs, std::vector<staged_exchange::part>& parts, const count_table& t,
                    int peer, std::size_t k, std::size_t room, std::size_t elem_bytes) {
        const std::size_t all = t.sizes()[peer], done = k * room;
        if (done >= all) return;
        const std::size_t count = all - done < room ? all - done : room;
        parts.push_back({peer, runs.size() * elem_bytes, count * elem_bytes});
        runs.add(t.offsets()[peer] + done, count);
    }
};

} // namespace detail
COLLX_END_NAMESPACE
