// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// A call whose ranks pass on parts of others while each rank knows its own counts only: two tasks one after the other
// on one port, first the counts of what this rank relays, then the data. Where the counts come from is the business of
// the schedule's text (aggregated_counts).
#pragma once

#include <cstddef>
#include <optional>

#include <collx/core/views.hpp>
#include <collx/exec/task.hpp>

COLLX_BEGIN_NAMESPACE

template <class Links, class Mover>
class relayed_task final : public operation {
public:
    // own: this rank's counts by destination; relayed: one number per chunk, written here. Both outlive the task.
    relayed_task(Links& links, bound_schedule& plan, const Mover& mover, chunk_layout in, chunk_layout out,
                 std::size_t piece_elems, std::size_t* own, std::size_t* relayed)
        : links_(links), plan_(plan), mover_(mover), in_(in), out_(out), piece_elems_(piece_elems),
          relayed_(relayed, static_cast<std::size_t>(plan.chunks)),
          counts_(links, *plan.counts, counts_mover({own, relayed_.size()}, relayed_, no_op{}, links.size()),
                  one_each(), one_each(), 1) {
        at_port = plan.at_port;
    }
    relayed_task(const relayed_task&) = delete; // data_ refers to sizes_

    task_state advance() override {
        if (!data_) {
            const task_state s = follow(counts_);
            if (s != task_state::done) return s;
            if (!have_sense()) return task_state::failed;
            sizes_ = chunk_layout::table(relayed_.data(), relayed_.data(), plan_.chunks); // offsets: nobody asks
            data_.emplace(links_, plan_, mover_, in_, out_, piece_elems_, false, &sizes_);
        }
        return follow(*data_);
    }

private:
    using counts_view = contiguous_view<std::size_t>;
    using counts_mover = mover<counts_view, counts_view, no_op, std::size_t>;

    template <class Task>
    task_state follow(Task& t) {
        const task_state s = t.advance();
        error = t.error;
        waiting_for = t.waiting_for;
        return s;
    }
    chunk_layout one_each() const { return chunk_layout::blocks(1, plan_.chunks); }
    // They came in messages: sizes that no buffer has end the call here, smaller lies at the first message.
    bool have_sense() {
        for (std::size_t i = 0; i < relayed_.size(); ++i)
            if (relayed_[i] > SIZE_MAX / 2) return error = failure(errc::mismatch, waiting_for), false;
        return true;
    }

    Links& links_;
    bound_schedule& plan_;
    Mover mover_;
    chunk_layout in_, out_, sizes_;
    std::size_t piece_elems_;
    counts_view relayed_;
    task<Links, counts_mover> counts_;
    std::optional<task<Links, Mover>> data_;
};

COLLX_END_NAMESPACE
