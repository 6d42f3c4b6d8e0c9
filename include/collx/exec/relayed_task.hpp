// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// A call whose ranks pass on parts of others while each rank knows its own counts only: tasks one after the other on
// one port. First the counts of what this rank relays, then the data, then, where the plan says so, what is too long to
// be relayed: whether a part is, both its ends know, and who relays hears it with the counts. Where the counts come
// from is the business of the schedules' texts (aggregated_counts, leader_counts).
#pragma once

#include <cstddef>

#include <collx/core/maybe.hpp>
#include <collx/core/views.hpp>
#include <collx/exec/task.hpp>

COLLX_BEGIN_NAMESPACE

// The numbers of such a call. All of it outlives the task, which writes `room` only.
struct relayed_numbers {
    const std::size_t *sends, *send_offsets;       // this rank's, by destination
    const std::size_t *receives, *receive_offsets; // by source
    std::size_t* room;
    std::size_t direct_piece_elems; // of what is not relayed

    static constexpr std::size_t room_for(const bound_schedule& b) {
        const auto kept = static_cast<std::size_t>(b.tmp_chunks), n = static_cast<std::size_t>(b.chunks);
        return b.directly == nullptr ? kept : 2 * kept + 4 * n;
    }
};

template <class Links, class Mover>
class relayed_task final : public operation {
public:
    relayed_task(Links& links, bound_schedule& plan, const Mover& mover, chunk_layout in, chunk_layout out,
                 std::size_t piece_elems, const relayed_numbers& numbers)
        : links_(links), plan_(plan), mover_(mover), in_(in), out_(out), piece_elems_(piece_elems), numbers_(numbers) {
        at_port = plan.at_port;
    }
    relayed_task(const relayed_task&) = delete; // tasks refer to layouts in here

    task_state advance() override {
        for (;;) {
            const task_state s = phase_ == gathering ? follow(counts_)
                                 : phase_ == begins  ? task_state::done
                                                     : follow(data_);
            if (s != task_state::done || phase_ == last_) return s;
            if (!next()) return task_state::failed;
        }
    }

private:
    using counts_view = contiguous_view<std::size_t>;
    using counts_mover = mover<counts_view, counts_view, no_op, std::size_t>;
    enum phase { begins, gathering, relaying, sending_directly };

    template <class Task>
    task_state follow(detail::maybe<Task>& t) {
        const task_state s = t->advance();
        error = t->error;
        waiting_for = t->waiting_for;
        return s;
    }
    bool next() {
        if (phase_ == gathering) note_counts();
        if (phase_ == relaying) return send_directly(), true;
        bound_schedule* const all[] = {plan_.counts, plan_.expected_counts};
        if (gathered_ < 2 && all[gathered_] != nullptr) return gather(*all[gathered_], gathered_ == 0), true;
        if (!have_sense()) return false;
        relay();
        return true;
    }

    // ------------------------------------------------------------------ counts
    std::size_t kept() const { return static_cast<std::size_t>(plan_.tmp_chunks); }
    void gather(bound_schedule& b, bool sends) {
        phase_ = gathering;
        gathering_ = &b;
        ++gathered_;
        std::memset(b.scratch, 0, kept() * sizeof(std::size_t));
        const counts_view own{const_cast<std::size_t*>(sends ? numbers_.sends : numbers_.receives),
                              static_cast<std::size_t>(plan_.chunks)};
        const auto each = chunk_layout::blocks(1, plan_.chunks);
        counts_.emplace(links_, b, counts_mover(own, own, no_op{}, links_.size()), each, each, std::size_t{1});
    }
    // Each lies where the data itself will lie, the other cells are 0.
    void note_counts() {
        const auto* const from = reinterpret_cast<const std::size_t*>(gathering_->scratch);
        for (std::size_t i = 0; i < kept(); ++i) numbers_.room[i] = (gathered_ == 1 ? 0 : numbers_.room[i]) + from[i];
    }
    // They came in messages: sizes that no buffer has end the call here, smaller lies at the first message.
    bool have_sense() {
        for (std::size_t i = 0; i < kept(); ++i)
            if (numbers_.room[i] > SIZE_MAX / 2) return error = failure(errc::mismatch, waiting_for), false;
        return true;
    }

    // ------------------------------------------------------------------ data
    void relay() {
        phase_ = relaying;
        relayed_ = table(numbers_.room, numbers_.room, plan_.tmp_chunks); // offsets: nobody asks
        if (plan_.directly == nullptr) {
            last_ = relaying;
            data_.emplace(links_, plan_, mover_, in_, out_, piece_elems_, false, &relayed_);
            return;
        }
        whole_.emplace(in_, out_, plan_.chunks, piece_elems_, &relayed_);
        std::size_t* const at = numbers_.room + kept();
        short_relayed_ = chosen(numbers_.room, numbers_.room, at, plan_.tmp_chunks, false);
        data_.emplace(links_, plan_, mover_, own_part(true, false), own_part(false, false), piece_elems_, false,
                      &short_relayed_, &*whole_);
    }
    void send_directly() {
        phase_ = last_;
        data_.emplace(links_, *plan_.directly, mover_, own_part(true, true), own_part(false, true),
                      numbers_.direct_piece_elems);
        data_->skip_empty();
    }
    // This rank's parts that are too long to be relayed, or the others.
    chunk_layout own_part(bool sends, bool is_long) const {
        const auto n = static_cast<std::size_t>(plan_.chunks);
        return sends ? chosen(numbers_.sends, numbers_.send_offsets, numbers_.room + 2 * kept() + (is_long ? n : 0),
                              plan_.chunks, is_long)
                     : chosen(numbers_.receives, numbers_.receive_offsets,
                              numbers_.room + 2 * kept() + (is_long ? 3 : 2) * n, plan_.chunks, is_long);
    }
    chunk_layout chosen(const std::size_t* sizes, const std::size_t* offsets, std::size_t* to, int count,
                        bool is_long) const {
        const std::size_t most = plan_.most_relayed_bytes / sizeof(typename Mover::wire_type);
        for (int i = 0; i < count; ++i) to[i] = (sizes[i] > most) == is_long ? sizes[i] : 0;
        return table(to, offsets, count);
    }
    static chunk_layout table(const std::size_t* sizes, const std::size_t* offsets, int count) {
        return chunk_layout::table(sizes, offsets, count);
    }

    Links& links_;
    bound_schedule& plan_;
    Mover mover_;
    chunk_layout in_, out_, relayed_, short_relayed_;
    std::size_t piece_elems_;
    relayed_numbers numbers_;
    phase phase_ = begins, last_ = sending_directly;
    int gathered_ = 0;
    bound_schedule* gathering_ = nullptr;
    detail::maybe<pieces> whole_;
    detail::maybe<task<Links, counts_mover>> counts_;
    detail::maybe<task<Links, Mover>> data_;
};

COLLX_END_NAMESPACE
