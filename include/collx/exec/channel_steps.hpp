// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// The channel steps of a task: they receive, reduce or store, and send on, piece by piece. Large messages may bypass
// slots: within a host the receiver reads them where they lie (docs/design/single_copy.md), between hosts they are sent
// from and received into the user's memory (remote.hpp). Nothing blocks; errors are kept for the waiting call.
#pragma once

#include <cstddef>
#include <cstdint>

#include <collx/core/growing_array.hpp>
#include <collx/exec/call_state.hpp>
#include <collx/exec/remote.hpp>
#include <collx/exec/single_copy.hpp>

COLLX_BEGIN_NAMESPACE

class channel_steps {
public:
    explicit channel_steps(call_state& call) : call_(call) {}

    // Sends no messages without elements. Requires: the counts of both ends have been compared.
    void skip_empty() { skips_empty_ = true; }
    // A call with large messages is then done when the peers have taken them, by single copy or through slots: the
    // user's program must not depend on which was cheaper at the moment.
    void wait_for_readers() { must_return_ = call_.bytes_of(call_.cuts.in.largest()) >= least_single_copy_bytes; }
    bool must_return() const { return must_return_; }
    // Whether the peers have finished reading this rank's memory; until then the user must not write it.
    bool is_returned();
    // Called when the call is done.
    void end() {
        if (!covered_.empty()) [[unlikely]]
            keep_memory();
    }
    // False: blocked, or failed. A step that is done is not run again.
    bool run(const sched::step& s, strand_cursor& st);

private:
    friend struct remote_steps; // remote_once.hpp

    std::uint32_t tag_of(const sched::ref& r) const { return call_.cuts.transfer_tag(r) ^ folded(call_.agreed); }
    bool refused(const receiving_end& rx, int peer, std::size_t expected_elems, const sched::ref& shape) const;
    bool move_message(const sched::step& s, strand_cursor& st, const sched::ref& shape, channel_message& m,
                      bool measures);
    std::size_t touch(const sched::step& s, const strand_cursor& st, int i, const std::byte* in, std::byte* out);

    // A slot's header line is aligned for ordinary types only; short messages of other types go to the ring.
    std::size_t framed(std::size_t bytes) const {
        return call_.elements.is.align > 16 && bytes <= slot_header::inline_bytes ? slot_header::inline_bytes + 1
                                                                                  : bytes;
    }

    // -------------------------------------------------------------- between hosts: see remote.hpp
    char may(const sched::step& s, const strand_cursor& st) const {
        return call_.plan.remote[st.index][st.step_index(s)];
    }
    bool is_remote(std::size_t bytes, const receiving_end* rx, const sending_end* tx) const {
        return bytes >= least_remote_bytes &&
               ((rx != nullptr && rx->is_remote()) || (tx != nullptr && tx->is_remote()));
    }
    void push(const sched::step& s, const strand_cursor& st, const sending_end* tx);

    // -------------------------------------------------------------- single copy: see transport/channel.hpp
    bool may_send_single_copy(const sched::step& s) const;
    std::size_t single_copy_elems(const chunk_layout& l, int chunk, const strand_cursor& st) const {
        return call_.cuts.several(l, chunk, st.piece, most_single_copy_bytes / call_.elements.is.bytes);
    }
    bool send_single_copy(const sched::step& s, strand_cursor& st, sending_end& tx, std::uint32_t tag);
    bool receive_single_copy(const sched::step& s, strand_cursor& st, receiving_end& rx, std::uint32_t tag);
    bool read_from_peer(const sched::step& s, const strand_cursor& st, std::uint64_t address, int chunk, std::size_t n);
    void keep_memory();
    void cover(const sched::step& s, strand_cursor& st, std::size_t elems);
    // Messages to other hosts must be with the system entirely: this rank may not call again for a long time.
    bool is_back(sending_end& tx) const { return must_return_ || tx.is_remote() ? tx.is_drained() : tx.has_all_back(); }

    call_state& call_;
    bool must_return_ = false, skips_empty_ = false;
    detail::growing_array<std::size_t> covered_; // of all strands: see strand_cursor
};

COLLX_END_NAMESPACE
