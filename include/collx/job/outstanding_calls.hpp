// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// The operations of a communicator that continue after their call has returned. They advance in any call of the
// communicator that waits, or in its progress thread.
#pragma once

#include <cstddef>
#include <cstdint>

#include <collx/core/growing_array.hpp>
#include <collx/core/pointers.hpp>
#include <collx/exec/operation.hpp>

COLLX_BEGIN_NAMESPACE

struct communicator_core;

namespace detail {

class outstanding_calls {
public:
    // Of operations that keep no order, neither among themselves nor with others.
    static constexpr int no_queue = -1;
    struct entry {
        counted_ptr<operation> op;
        int queue; // operations of one queue run one after the other
    };

    explicit outstanding_calls(communicator_core& c) : core_(c) {}
    outstanding_calls(const outstanding_calls&) = delete;

    bool empty() const { return list_.empty(); }
    std::size_t size() const { return list_.size(); }
    const entry* begin() const { return list_.begin(); }
    const entry* end() const { return list_.end(); }
    bool is_queued(int queue) const {
        for (const auto& e : list_)
            if (e.queue == queue) return true;
        return false;
    }
    // How often an operation advanced so far.
    std::uint64_t moves() const { return moves_; }

    // The rank that an operation waits for; of one that has not begun, the rank that the first of its queue waits for.
    awaited awaited_by(const operation& op) const {
        return op.waiting_for.rank >= 0 ? op.waiting_for : awaited_in_queue(op);
    }

    void add(const counted_ptr<operation>& op, int queue) { list_.push_back({op, queue}); }
    // Moves all operations on that can move; operations of one queue keep their order. What the program's code throws
    // in an operation ends the communicator.
    void advance();
    // Nothing moves the operation on afterwards. If an operator drops a handle, advance() removes the operation.
    void drop(operation* op);
    // All have failed, because their communicator has.
    void fail_all(const failure& f);
    // The communicator ends; handles of the program may live on. `aborted`: the error of operations under way.
    void leave_all(const failure& aborted);

private:
    awaited awaited_in_queue(const operation& op) const;
    void set_aside(std::size_t i) noexcept;

    communicator_core& core_;
    growing_array<entry> list_;
    counted_ptr<operation> failed_; // a list, kept for the handles, which may live longer
    std::uint64_t moves_ = 0;
};

} // namespace detail
COLLX_END_NAMESPACE
