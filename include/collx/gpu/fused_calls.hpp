// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// The calls of a fused team, checked and cut but not launched: fused_team launches one at a time, or several in one
// kernel (group). Counts that differ between ranks are the sizes of the buffers; only all_to_all_v and send_recv take
// them as arguments. Knows no CUDA.
#pragma once

#include <cstddef>
#include <cstdint>
#include <type_traits>
#include <utility>

#include <collx/algo/direct.hpp>
#include <collx/algo/dissemination.hpp>
#include <collx/algo/multicast.hpp>
#include <collx/algo/one_shot.hpp>
#include <collx/algo/zero_copy.hpp>
#include <collx/core/scalar.hpp>
#include <collx/gpu/memory_spans.hpp>
#include <collx/gpu/team_verbs.hpp>
#include <collx/plan/algorithm_of.hpp>
#include <collx/plan/choose.hpp>
#include <collx/sched/traits.hpp>

COLLX_BEGIN_NAMESPACE

// One message of fused_team::send_recv; at most one for each pair of ranks.
struct fused_message {
    int from, to;                      // ranks of the team
    std::size_t count;                 // elements
    std::size_t in_at = 0, out_at = 0; // where it begins in the sender's input and the receiver's output
};

namespace detail {

// The algorithm that the table's rows `team` name for any length.
template <collective C>
using team_algorithm = algorithm_of<choices::last_choice(choices::team, C).use, C>;

} // namespace detail

template <class Machine>
class fused_calls : public detail::team_verbs<fused_calls<Machine>> {
public:
    // The options of its calls.
    using options = device::fused_options;
    // How buffers are cut into chunks.
    using cuts = device::even_cuts;

    fused_calls(Machine& machine, device::team<Machine>& team) : machine_(machine), team_(team) {}

    // The number of ranks.
    int size() const { return team_.size(); }

    // Whether each pair of ranks has its own count.
    template <detail::verb V>
    static constexpr bool is_of_pairs = detail::row_of(V).counts == detail::counts_known_by::own
                                        || detail::row_of(V).is_message();

    // Prepares a call whose parts have one length, or the lengths of the buffers.
    template <detail::verb V, class In, class Out, class Op = device::move_only>
    requires(!is_of_pairs<V>) auto on(const options& o, In& in, Out& out, int root = 0, const Op& op = {}) const {
        constexpr detail::verb_row row = detail::row_of(V);
        if constexpr (algo::window_moves<row.does>::is_scan)
            static_assert(
                !has_post_v<Op, accumulator_t<element<In>>>,
                "collx: a result of a scan is an operand of the next rank, so that no post hook applies to it");
        detail::team_algorithm<row.does> a;
        if constexpr (row.is_rooted()) {
            require_root(root);
            a.root = root;
        }
        if constexpr (row.counts != detail::counts_known_by::none) {
            return call(a, in, out, op, o, check<V>(in, out, root));
        } else {
            const std::size_t n = check<V>(in, out, root);
            if constexpr (!may_be_in_place(row.does)) require_apart(in, out);
            const int chunks = a.chunks(size());
            const auto l = row.has_parts() ? chunk_layout::blocks(n, chunks) : chunk_layout::even(n, chunks, 16);
            return call(a, in, out, op, o,
                        cuts(row.in == detail::extent::part ? l.packed() : l,
                             row.out == detail::extent::part ? l.packed() : l));
        }
    }
    // Checks the sizes of that call's buffers. Returns its count, or where its parts lie.
    template <detail::verb V, class In, class Out>
    auto check(In& in, Out& out, int root) const {
        using detail::at_root, detail::extent;
        constexpr detail::verb_row row = detail::row_of(V);
        // The count is taken from the buffer that all ranks have.
        constexpr bool by_output = row.out == extent::part, has_part = by_output || row.in == extent::part;
        const auto other_has = [&](std::size_t n) {
            const auto require = [&](auto& x, const char* which, bool is_root_s) {
                if (is_root_s) require_size_at(x, root, n, which);
                else require_size(x, n, which);
            };
            if constexpr (by_output) require(in, "input", row.root_only == at_root::input);
            else require(out, "output", row.root_only == at_root::output);
        };
        if constexpr (row.counts != detail::counts_known_by::none) {
            std::size_t all = 0;
            const auto t = by_output ? parts_of(out, "output", true, all) : parts_of(in, "input", false, all);
            other_has(all);
            return t;
        } else {
            const std::size_t n = by_output ? same_size(out, "output") : same_size(in, "input");
            other_has(has_part ? n * ranks() : n);
            if (has_part || !row.has_parts()) return n;
            if (n % ranks() != 0)
                fail(errc::invalid_argument, -1, -1, "pass one block of the same size for each rank",
                     "%zu elements are not %d equal blocks", n, size());
            return n / ranks();
        }
    }
    template <detail::verb V, class In, class Out, class Counts>
    requires(V == detail::verb::all_to_all_v) auto on(const options& o, In& in, Out& out, const Counts& counts) const {
        device::pair_cuts t;
        std::size_t received[device::max_ranks] = {};
        if (counts.size() != ranks()) count_mismatch(static_cast<std::size_t>(counts.size()));
        for (std::size_t r = 0; r < ranks(); ++r) {
            std::size_t sent = 0;
            if (counts[r].size() != ranks()) count_mismatch(static_cast<std::size_t>(counts[r].size()));
            for (std::size_t d = 0; d < ranks(); ++d) {
                t.sizes[r][d] = static_cast<std::size_t>(counts[r][d]);
                if (t.sizes[r][d] > SIZE_MAX / 2 / ranks())
                    fail(errc::invalid_argument, static_cast<int>(r), static_cast<int>(d), "counts are 0 or more",
                         "rank %zu sends %lld elements to rank %zu", r, static_cast<long long>(t.sizes[r][d]), d);
                t.in_at[r][d] = sent;
                t.out_at[d][r] = received[d];
                sent += t.sizes[r][d];
                received[d] += t.sizes[r][d];
            }
            require_size_at(in, static_cast<int>(r), sent, "input");
        }
        for (std::size_t d = 0; d < ranks(); ++d) require_size_at(out, static_cast<int>(d), received[d], "output");
        require_apart(in, out);
        return call(detail::team_algorithm<collective::all_to_all>{}, in, out, device::move_only{}, o, t);
    }
    template <detail::verb V, class In, class Out, class Messages>
    requires(V == detail::verb::sendrecv) auto on(const options& o, In& in, Out& out, const Messages& messages) const {
        device::pair_cuts t;
        bool has[device::max_ranks][device::max_ranks] = {};
        detail::memory_spans used;
        require_count(in, "input");
        require_count(out, "output");
        for (const fused_message& m : messages) {
            for (const int r : {m.from, m.to})
                if (r < 0 || r >= size())
                    fail(errc::invalid_argument, -1, r, "messages go between ranks of this team",
                         "a message from rank %d to rank %d of %d ranks", m.from, m.to, size());
            if (std::exchange(has[m.from][m.to], true))
                fail(errc::invalid_argument, m.from, m.to, "make two calls", "two messages from rank %d to rank %d",
                     m.from, m.to);
            require_room(in, m.from, m.in_at, m.count, "input");
            require_room(out, m.to, m.out_at, m.count, "output");
            look(used, in, m.from, m.in_at, m.count, false);
            look(used, out, m.to, m.out_at, m.count, true);
            t.sizes[m.from][m.to] = m.count;
            t.in_at[m.from][m.to] = m.in_at;
            t.out_at[m.to][m.from] = m.out_at;
        }
        used.require_apart();
        return call(detail::team_algorithm<collective::all_to_all>{}, in, out, device::move_only{}, o, t);
    }
    template <detail::verb V>
    auto on(const options& o) const {
        using nothing = contiguous_view<char>;
        using types = device::call_types<nothing, nothing, device::move_only>;
        return prepare<types, device::simple_protocol, 1>(
            detail::team_algorithm<collective::barrier>{}, cuts(),
            [](int) {
                return device::rank_operands<types>{{}, {}, {}};
            },
            o);
    }

    // Prepares a call with any algorithm, protocol and wire type.
    template <class Protocol, int Groups, class Wire, class Algorithm, class In, class Out, class Op, class Cuts>
    auto make(const Algorithm& a, In& in, Out& out, const Op& op, const options& o, const Cuts& t) const {
        require_count(in, "input");
        require_count(out, "output");
        using in_view = buffer_t<decltype(in[0])>;
        using out_view = buffer_t<decltype(out[0])>;
        require_output<decltype(out[0]), decltype(in[0])>();
        constexpr bool reduces = !std::is_same_v<Op, device::move_only>;
        constexpr bool loses_fractions = detail::loses_fractions_v<decltype(in[0]), decltype(out[0])>;
        if constexpr (reduces) {
            require_reduce_op<Op, element<In>>();
            if constexpr (sched::reorders_v<Algorithm>) require_commutative<Op, element<In>>();
        }
        // A refused call becomes one that compiles, so that the assertion is the only error.
        if constexpr (out_view::is_output && !loses_fractions && (!reduces || ReduceOp<Op, element<In>>)) {
            using wire = std::conditional_t<std::is_void_v<Wire>, element<Out>, Wire>;
            using types = device::call_types<in_view, out_view, Op, wire, Cuts>;
            return prepare<types, Protocol, Groups>(
                a, t,
                [&](int r) {
                    const auto k = static_cast<std::size_t>(r);
                    const device::rank_operands<types> x{buffer(in[k]), buffer(out[k]), op};
                    require_memory(r, x.in, "input");
                    require_memory(r, x.out, "output");
                    return x;
                },
                o);
        } else {
            return on<detail::verb::barrier>(o);
        }
    }

    // ------------------------------------------------------------------------------------------ checks
    // The element type of a list of buffers, one for each rank.
    template <class X>
    using element = std::remove_cv_t<typename buffer_t<decltype(std::declval<X&>()[0])>::value_type>;

    // The number of elements of each rank's buffer.
    // Errors: mismatch naming the first rank whose buffer has another number.
    template <class X>
    std::size_t same_size(X& x, const char* which) const {
        require_count(x, which);
        const std::size_t n = buffer(x[0]).size();
        require_size(x, n, which);
        return n;
    }
    // Errors: mismatch naming the first rank whose buffer is shorter than its cuts. Only the root of an algorithm needs
    //     buffers on both sides.
    template <class X, class Algorithm>
    void require_room(X& x, const Algorithm& a, const cuts& t, bool is_out) const {
        const char* which = is_out ? "output" : "input";
        require_count(x, which);
        for (int r = 0; r < size(); ++r) {
            const bool may_lack = sched::has_root<Algorithm> && r != sched::root_of(a);
            if (may_lack && buffer(x[static_cast<std::size_t>(r)]).size() == 0) continue;
            require_room(x, r, 0, t.extent(is_out, r), which);
        }
    }
    // Errors: mismatch naming the first rank whose buffer does not have n elements.
    template <class X>
    void require_size(X& x, std::size_t n, const char* which) const {
        require_count(x, which);
        for (int r = 0; r < size(); ++r) require_size_at(x, r, n, which);
    }

private:
    template <class Types, class Protocol, int Groups, class Algorithm, class Cuts, class Operands>
    auto prepare(const Algorithm& a, const Cuts& t, const Operands& operands, const options& o) const {
        return device::fused_call<Protocol, Groups, Algorithm, Types>{
            team_.template prepare<Types, Protocol, Groups>(a, t, operands, o)};
    }
    template <class Algorithm, class In, class Out, class Op, class Cuts>
    auto call(const Algorithm& a, In& in, Out& out, const Op& op, const options& o, const Cuts& t) const {
        return make<device::simple_protocol, 1, void>(a, in, out, op, o, t);
    }

    std::size_t ranks() const { return static_cast<std::size_t>(size()); }
    // Parts with the sizes of x's buffers, one after the other in the buffer of the other side.
    template <class X>
    device::table_cuts parts_of(X& x, const char* which, bool is_out, std::size_t& all) const {
        require_count(x, which);
        device::table_cuts t;
        for (std::size_t r = 0; r < ranks(); ++r) {
            t.sizes[r] = buffer(x[r]).size();
            (is_out ? t.in_at : t.out_at)[r] = all;
            all += t.sizes[r];
        }
        return t;
    }
    template <class X>
    void require_count(X& x, const char* which) const {
        if (static_cast<std::size_t>(x.size()) != ranks())
            fail(errc::invalid_argument, -1, -1, "pass one buffer for each rank of the team",
                 "%zu %s buffers for %d ranks", static_cast<std::size_t>(x.size()), which, size());
    }
    template <class X>
    void require_size_at(X& x, int r, std::size_t n, const char* which) const {
        require_count(x, which);
        if (const std::size_t m = buffer(x[static_cast<std::size_t>(r)]).size(); m != n)
            fail(errc::mismatch, r, -1, "pass buffers of the same size on every rank, or of the counts' sums",
                 "the %s buffer has %zu elements, expected %zu", which, m, n);
    }
    template <class X>
    void require_room(X& x, int r, std::size_t at, std::size_t n, const char* which) const {
        if (const std::size_t m = buffer(x[static_cast<std::size_t>(r)]).size(); at > m || n > m - at)
            fail(errc::mismatch, r, -1, "pass offsets and counts inside the buffers",
                 "the %s buffer has %zu elements, and the call uses %zu from %zu on", which, m, n, at);
    }
    template <class X>
    static void look(detail::memory_spans& used, X& x, int r, std::size_t at, std::size_t n, bool is_written) {
        const auto v = buffer(x[static_cast<std::size_t>(r)]);
        if constexpr (decltype(v)::is_contiguous) used.add(v.data() + at, n * sizeof(element<X>), is_written, r);
    }
    template <class In, class Out>
    void require_apart(In& in, Out& out) const {
        detail::memory_spans used;
        for (int r = 0; r < size(); ++r) {
            look(used, in, r, 0, buffer(in[static_cast<std::size_t>(r)]).size(), false);
            look(used, out, r, 0, buffer(out[static_cast<std::size_t>(r)]).size(), true);
        }
        used.require_apart();
    }
    [[noreturn]] void count_mismatch(std::size_t found) const {
        fail(errc::invalid_argument, -1, -1, "pass one list of counts per rank, each with one count per rank",
             "%zu counts for %d ranks", found, size());
    }
    void require_root(int root) const {
        if (root < 0 || root >= size())
            fail(errc::invalid_argument, -1, root, "roots are ranks of this team", "root %d of %d ranks", root, size());
    }
    template <class View>
    void require_memory(int rank, const View& v, const char* which) const {
        if constexpr (requires { v.pointer(0); })
            if (v.size() != 0) machine_.require_memory(rank, v.pointer(0), which);
    }

    Machine& machine_;
    device::team<Machine>& team_;
};

COLLX_END_NAMESPACE
