// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// The verbs as members of fused_team and fused_calls. Two verbs of one form differ only in their row in the table of
// verbs.
#pragma once

#include <collx/call/verb_table.hpp>
#include <collx/comm/rank_buffers.hpp>
#include <collx/core/op.hpp>
#include <collx/exec/device/team.hpp>

COLLX_BEGIN_NAMESPACE
namespace detail {

// Team::on<verb>(options, in, out, root, operator) makes a call: fused_team launches it, fused_calls returns it. in[r]
// and out[r] are rank r's buffers.
template <class Team>
class team_verbs {
public:
    using options = device::fused_options;

    // Shape: the same number of elements on every rank. in and out may be the same buffers.
    // Cost: every input is read once and every output written once, which is the least there can be; a fused_team
    //     exchanges up to `short_bytes` as LL words, with one synchronisation.
    // Order: rank order; any associative operator; all ranks hold the same bits.
    template <RankBuffers In, RankBuffers Out, class Op = plus>
    auto all_reduce(In&& in, Out&& out, const Op& op = {}, const options& o = {}) {
        return team().template on<verb::all_reduce>(o, in, out, 0, op);
    }
    // Only the root's output is written; the other outputs may be empty.
    template <RankBuffers In, RankBuffers Out, class Op = plus>
    auto reduce(In&& in, Out&& out, int root, const Op& op = {}, const options& o = {}) {
        return team().template on<verb::reduce>(o, in, out, root, op);
    }
    // Rank r receives part r of the reduction; reduce_scatter_v: as many elements as out[r] has.
    template <RankBuffers In, RankBuffers Out, class Op = plus>
    auto reduce_scatter(In&& in, Out&& out, const Op& op = {}, const options& o = {}) {
        return team().template on<verb::reduce_scatter>(o, in, out, 0, op);
    }
    template <RankBuffers In, RankBuffers Out, class Op = plus>
    auto reduce_scatter_v(In&& in, Out&& out, const Op& op = {}, const options& o = {}) {
        return team().template on<verb::reduce_scatter_v>(o, in, out, 0, op);
    }
    // Rank r receives the reduction of the ranks up to itself; exclusive_scan: before it, and rank 0 receives nothing.
    template <RankBuffers In, RankBuffers Out, class Op = plus>
    auto scan(In&& in, Out&& out, const Op& op = {}, const options& o = {}) {
        return team().template on<verb::scan>(o, in, out, 0, op);
    }
    template <RankBuffers In, RankBuffers Out, class Op = plus>
    auto exclusive_scan(In&& in, Out&& out, const Op& op = {}, const options& o = {}) {
        return team().template on<verb::exclusive_scan>(o, in, out, 0, op);
    }
    template <RankBuffers In, RankBuffers Out>
    auto broadcast(In&& in, Out&& out, int root, const options& o = {}) {
        return team().template on<verb::broadcast>(o, in, out, root);
    }
    // out[r] holds all parts in rank order; all_gather_v: of any sizes.
    template <RankBuffers In, RankBuffers Out>
    auto all_gather(In&& in, Out&& out, const options& o = {}) {
        return team().template on<verb::all_gather>(o, in, out);
    }
    template <RankBuffers In, RankBuffers Out>
    auto all_gather_v(In&& in, Out&& out, const options& o = {}) {
        return team().template on<verb::all_gather_v>(o, in, out);
    }
    // out[root] holds all parts in rank order; the other outputs may be empty.
    template <RankBuffers In, RankBuffers Out>
    auto gather(In&& in, Out&& out, int root, const options& o = {}) {
        return team().template on<verb::gather>(o, in, out, root);
    }
    template <RankBuffers In, RankBuffers Out>
    auto gather_v(In&& in, Out&& out, int root, const options& o = {}) {
        return team().template on<verb::gather_v>(o, in, out, root);
    }
    // Rank r receives part r of in[root]; the other inputs may be empty. scatter_v: as many elements as out[r] has.
    template <RankBuffers In, RankBuffers Out>
    auto scatter(In&& in, Out&& out, int root, const options& o = {}) {
        return team().template on<verb::scatter>(o, in, out, root);
    }
    template <RankBuffers In, RankBuffers Out>
    auto scatter_v(In&& in, Out&& out, int root, const options& o = {}) {
        return team().template on<verb::scatter_v>(o, in, out, root);
    }
    // Part d of rank r's input becomes part r of rank d's output. Not in place.
    template <RankBuffers In, RankBuffers Out>
    auto all_to_all(In&& in, Out&& out, const options& o = {}) {
        return team().template on<verb::all_to_all>(o, in, out);
    }
    // Rank r sends counts[r][d] elements to rank d; inputs are in the order of receivers, outputs of senders.
    template <RankBuffers In, RankBuffers Out, class Counts>
    auto all_to_all_v(In&& in, Out&& out, const Counts& counts, const options& o = {}) {
        return team().template on<verb::all_to_all_v>(o, in, out, counts);
    }
    // Messages between ranks, all in one kernel: a range of fused_message.
    template <RankBuffers In, RankBuffers Out, class Messages>
    auto send_recv(In&& in, Out&& out, const Messages& messages, const options& o = {}) {
        return team().template on<verb::sendrecv>(o, in, out, messages);
    }
    // Work that follows in the stream begins when all ranks have come. (Any single launch ensures that, too.)
    auto barrier(const options& o = {}) { return team().template on<verb::barrier>(o); }

private:
    Team& team() { return static_cast<Team&>(*this); }
};

} // namespace detail
COLLX_END_NAMESPACE
