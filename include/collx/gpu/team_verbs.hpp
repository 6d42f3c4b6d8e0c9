// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// The verbs as members of fused_team and fused_calls. Two verbs of one form differ only in their row in the table of
// verbs. Arguments that no form of a member takes are refused with one error message: too few, a misspelt option in
// braces, a buffer in place of a list. The compiler takes that overload last; without it, it would list all forms.
// comm/group_refusals.hpp does the same for groups, with the communicator that a team does not know.
#pragma once

#include <type_traits>

#include <collx/call/verb_table.hpp>
#include <collx/comm/rank_buffers.hpp>
#include <collx/core/op.hpp>
#include <collx/exec/device/team.hpp>

COLLX_BEGIN_NAMESPACE
namespace detail {

template <class Team>
struct refused_team_call {
    template <class First>
    refused_team_call(First&&) noexcept(refuse<First>()) {}

private:
    template <class First>
    static constexpr bool refuse() {
        static_assert(
            sizeof(std::remove_reference_t<First>*) == 0,
            "collx: no form of this call of a fused team takes these arguments. It takes a list with an input "
            "for each rank, one with the outputs, then what belongs to the verb: counts, the root, an "
            "operator; and options by name. Is an argument missing, an option misspelt?");
        return true;
    }
};

// Team::on<verb>(options, in, out, root, operator) makes a call: fused_team launches it, fused_calls returns it. in[r]
// and out[r] are rank r's buffers.
template <class Team>
class team_verbs {
    using refused = refused_team_call<Team>;
    struct none {};

public:
    using options = device::fused_options;

#define COLLX_REFUSED(VERB) \
    void VERB(refused = none{}, ...) {}
#define COLLX_REDUCTION(VERB)                                                 \
    template <RankBuffers In, RankBuffers Out, class Op = plus>               \
    auto VERB(In&& in, Out&& out, const Op& op = {}, const options& o = {}) { \
        return team().template on<verb::VERB>(o, in, out, 0, op);             \
    }                                                                         \
    COLLX_REFUSED(VERB)
#define COLLX_MOVEMENT(VERB)                               \
    template <RankBuffers In, RankBuffers Out>             \
    auto VERB(In&& in, Out&& out, const options& o = {}) { \
        return team().template on<verb::VERB>(o, in, out); \
    }                                                      \
    COLLX_REFUSED(VERB)
#define COLLX_ROOTED_MOVEMENT(VERB)                                  \
    template <RankBuffers In, RankBuffers Out>                       \
    auto VERB(In&& in, Out&& out, int root, const options& o = {}) { \
        return team().template on<verb::VERB>(o, in, out, root);     \
    }                                                                \
    COLLX_REFUSED(VERB)

    // Shape: the same number of elements on every rank. in and out may be the same buffers.
    // Cost: every input is read once and every output written once, which is the least there can be; a fused_team
    //     exchanges up to `short_bytes` as LL words, with one synchronisation.
    // Order: rank order; any associative operator; all ranks hold the same bits.
    COLLX_REDUCTION(all_reduce)
    // Only the root's output is written; the other outputs may be empty.
    template <RankBuffers In, RankBuffers Out, class Op = plus>
    auto reduce(In&& in, Out&& out, int root, const Op& op = {}, const options& o = {}) {
        return team().template on<verb::reduce>(o, in, out, root, op);
    }
    COLLX_REFUSED(reduce)
    // Rank r receives part r of the reduction; reduce_scatter_v: as many elements as out[r] has.
    COLLX_REDUCTION(reduce_scatter)
    COLLX_REDUCTION(reduce_scatter_v)
    // Rank r receives the reduction of the ranks up to itself; exclusive_scan: before it, and rank 0 receives nothing.
    COLLX_REDUCTION(scan)
    COLLX_REDUCTION(exclusive_scan)
    COLLX_ROOTED_MOVEMENT(broadcast)
    // out[r] holds all parts in rank order; all_gather_v: of any sizes.
    COLLX_MOVEMENT(all_gather)
    COLLX_MOVEMENT(all_gather_v)
    // out[root] holds all parts in rank order; the other outputs may be empty.
    COLLX_ROOTED_MOVEMENT(gather)
    COLLX_ROOTED_MOVEMENT(gather_v)
    // Rank r receives part r of in[root]; the other inputs may be empty. scatter_v: as many elements as out[r] has.
    COLLX_ROOTED_MOVEMENT(scatter)
    COLLX_ROOTED_MOVEMENT(scatter_v)
    // Part d of rank r's input becomes part r of rank d's output. Not in place.
    COLLX_MOVEMENT(all_to_all)
    // Rank r sends counts[r][d] elements to rank d; inputs are in the order of receivers, outputs of senders.
    template <RankBuffers In, RankBuffers Out, class Counts>
    auto all_to_all_v(In&& in, Out&& out, const Counts& counts, const options& o = {}) {
        return team().template on<verb::all_to_all_v>(o, in, out, counts);
    }
    COLLX_REFUSED(all_to_all_v)
    // Messages between ranks, all in one kernel: a range of fused_message.
    template <RankBuffers In, RankBuffers Out, class Messages>
    auto send_recv(In&& in, Out&& out, const Messages& messages, const options& o = {}) {
        return team().template on<verb::sendrecv>(o, in, out, messages);
    }
    COLLX_REFUSED(send_recv)
#undef COLLX_ROOTED_MOVEMENT
#undef COLLX_MOVEMENT
#undef COLLX_REDUCTION
#undef COLLX_REFUSED
    // Work that follows in the stream begins when all ranks have come. (Any single launch ensures that, too.)
    auto barrier(const options& o = {}) { return team().template on<verb::barrier>(o); }

private:
    Team& team() { return static_cast<Team&>(*this); }
};

} // namespace detail
COLLX_END_NAMESPACE
