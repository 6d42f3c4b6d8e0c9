// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// The bodies of relayed_task.hpp, independent of element types: compiled once (docs/design/compile-once.md).
#pragma once

#include <cstring>

#include <collx/exec/relayed_task.hpp>

COLLX_BEGIN_NAMESPACE

COLLX_ONCE task_state relayed_task::advance() {
    for (;;) {
        const task_state s = phase_ == gathering ? follow(*counts_)
                             : phase_ == begins  ? task_state::done
                                                 : follow(*data_);
        if (s != task_state::done || phase_ == last_) return s;
        if (!next()) return task_state::failed;
    }
}

COLLX_ONCE bool relayed_task::next() {
    if (phase_ == gathering) note_counts();
    if (phase_ == relaying) {
        send_directly();
        return true;
    }
    bound_schedule* const all[] = {plan_.counts, plan_.expected_counts};
    if (gathered_ < 2 && all[gathered_] != nullptr) {
        gather(*all[gathered_], gathered_ == 0);
        return true;
    }
    if (!have_sense()) return false;
    relay();
    return true;
}

// ------------------------------------------------------------------ counts
COLLX_ONCE void relayed_task::gather(bound_schedule& b, bool sends) {
    phase_ = gathering;
    gathering_ = &b;
    ++gathered_;
    std::memset(b.scratch, 0, kept() * sizeof(std::size_t));
    const counts_view own{const_cast<std::size_t*>(sends ? numbers_.sends : numbers_.receives),
                          static_cast<std::size_t>(plan_.chunks)};
    const auto each = chunk_layout::blocks(1, plan_.chunks);
    counts_.emplace(links_, b, counts_mover(own, own, no_op{}, links_.size()), each, each, std::size_t{1}, agreed_);
}

// Each count lies where the data itself will lie; the other cells are 0.
COLLX_ONCE void relayed_task::note_counts() {
    const auto* const from = reinterpret_cast<const std::size_t*>(gathering_->scratch);
    for (std::size_t i = 0; i < kept(); ++i) numbers_.room[i] = (gathered_ == 1 ? 0 : numbers_.room[i]) + from[i];
}

// The counts came in messages. A size that no buffer has ends the call here; the first message reveals smaller errors.
COLLX_ONCE bool relayed_task::have_sense() {
    for (std::size_t i = 0; i < kept(); ++i)
        if (numbers_.room[i] > SIZE_MAX / 2) {
            error = failure(errc::mismatch, waiting_for);
            return false;
        }
    return true;
}

// ------------------------------------------------------------------ data
COLLX_ONCE void relayed_task::relay() {
    phase_ = relaying;
    // The offsets of relayed parts are not used.
    relayed_ = chunk_layout::table(numbers_.room, numbers_.room, plan_.tmp_chunks);
    if (plan_.directly == nullptr) {
        last_ = relaying;
        data_.emplace(links_, plan_, elements_, in_, out_, piece_elems_, agreed_, false, &relayed_);
        return;
    }
    whole_.emplace(in_, out_, plan_.chunks, piece_elems_, &relayed_);
    std::size_t* const at = numbers_.room + kept();
    short_relayed_ = chosen(numbers_.room, numbers_.room, at, plan_.tmp_chunks, false);
    data_.emplace(links_, plan_, elements_, own_part(true, false), own_part(false, false), piece_elems_, agreed_, false,
                  &short_relayed_, &*whole_);
}

COLLX_ONCE void relayed_task::send_directly() {
    phase_ = last_;
    data_.emplace(links_, *plan_.directly, elements_, own_part(true, true), own_part(false, true),
                  numbers_.direct_piece_elems, agreed_);
    data_->skip_empty();
}

// This rank's parts that are too long to be relayed (is_long), or its other parts.
COLLX_ONCE chunk_layout relayed_task::own_part(bool sends, bool is_long) const {
    const auto n = static_cast<std::size_t>(plan_.chunks);
    return sends ? chosen(numbers_.sends, numbers_.send_offsets, numbers_.room + 2 * kept() + (is_long ? n : 0),
                          plan_.chunks, is_long)
                 : chosen(numbers_.receives, numbers_.receive_offsets,
                          numbers_.room + 2 * kept() + (is_long ? 3 : 2) * n, plan_.chunks, is_long);
}

COLLX_ONCE chunk_layout relayed_task::chosen(const std::size_t* sizes, const std::size_t* offsets, std::size_t* to,
                                             int count, bool is_long) const {
    const std::size_t most = plan_.most_relayed_bytes / elements_.is.bytes;
    for (int i = 0; i < count; ++i) to[i] = (sizes[i] > most) == is_long ? sizes[i] : 0;
    return chunk_layout::table(to, offsets, count);
}

COLLX_END_NAMESPACE
