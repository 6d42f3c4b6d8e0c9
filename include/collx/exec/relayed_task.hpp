// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// A call whose ranks relay parts of others while each rank knows only its own counts: tasks one after the other on one
// port. The first bring the counts of what this rank relays, the next moves the data, and where the plan says so the
// last moves the parts that are too long to be relayed. Both ends of a part compute whether it is too long; the
// relaying rank sees it from the counts. The algorithms say where counts come from (aggregated_counts, leader_counts).
#pragma once

#include <cstddef>

#include <collx/core/maybe.hpp>
#include <collx/core/views.hpp>
#include <collx/exec/mover.hpp>
#include <collx/exec/task.hpp>

COLLX_BEGIN_NAMESPACE

// Numbers that outlive the task. It writes only `room`: counts of relayed parts, and sizes of short and long parts.
struct relayed_numbers {
    const std::size_t *sends, *send_offsets;       // this rank's, by destination
    const std::size_t *receives, *receive_offsets; // by source
    std::size_t* room;
    std::size_t direct_piece_elems; // of parts that are not relayed

    static constexpr std::size_t room_for(const bound_schedule& b) {
        const auto kept = static_cast<std::size_t>(b.tmp_chunks), n = static_cast<std::size_t>(b.chunks);
        return b.directly == nullptr ? kept : 2 * kept + 4 * n;
    }
};

class relayed_task : public operation {
public:
    // Refers to the elements, as task does.
    relayed_task(links& net, bound_schedule& plan, element_ops& elements, chunk_layout in, chunk_layout out,
                 std::size_t piece_elems, std::uint64_t agreed, const relayed_numbers& numbers)
        : links_(net), plan_(plan), elements_(elements), in_(in), out_(out), piece_elems_(piece_elems), agreed_(agreed),
          numbers_(numbers) {
        at_port = plan.at_port;
    }
    relayed_task(const relayed_task&) = delete; // its tasks refer to its layouts

    COLLX_ONCE task_state advance() override; // see ready_operation

private:
    using counts_view = contiguous_view<std::size_t>;
    using counts_mover = mover<counts_view, counts_view, no_op, std::size_t>;
    enum phase { begins, gathering, relaying, sending_directly };

    using counts_task = typed_operation<task, counts_mover>;

    task_state follow(operation& t) {
        const task_state s = t.advance();
        error = t.error;
        waiting_for = t.waiting_for;
        return s;
    }
    bool next();

    // ------------------------------------------------------------------ counts
    std::size_t kept() const { return static_cast<std::size_t>(plan_.tmp_chunks); }
    void gather(bound_schedule& b, bool sends);
    void note_counts();
    bool have_sense();

    // ------------------------------------------------------------------ data
    void relay();
    void send_directly();
    chunk_layout own_part(bool sends, bool is_long) const;
    chunk_layout chosen(const std::size_t* sizes, const std::size_t* offsets, std::size_t* to, int count,
                        bool is_long) const;

    links& links_;
    bound_schedule& plan_;
    element_ops& elements_;
    chunk_layout in_, out_, relayed_, short_relayed_;
    std::size_t piece_elems_;
    std::uint64_t agreed_;
    relayed_numbers numbers_;
    phase phase_ = begins, last_ = sending_directly;
    int gathered_ = 0;
    bound_schedule* gathering_ = nullptr;
    detail::maybe<pieces> whole_;
    detail::maybe<counts_task> counts_;
    detail::maybe<task> data_;
};

COLLX_END_NAMESPACE

#if !defined(COLLX_ONLY_DECLARED)
#include <collx/exec/relayed_task_once.hpp>
#endif
