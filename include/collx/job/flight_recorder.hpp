// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Records the last calls of a communicator in a ring. Each call enters a record when it begins and completes it when
// it ends. With a directory the ring is a mapped file: records outlive a killed process, and a failure needs no
// writing. One thread at a time writes: the one that is in a call, or the progress thread in its turn. A communicator
// without a recorder pays one test per call. Compiled once (docs/design/compile-once.md).
#pragma once

#include <cstdint>
#include <type_traits>

#include <collx/core/growing_array.hpp>
#include <collx/core/kept_text.hpp>
#include <collx/exec/operation.hpp>
#include <collx/job/call_record.hpp>

COLLX_BEGIN_NAMESPACE

struct communicator_core;

namespace detail {

// What a call tells the recorder when it begins.
struct call_words {
    const char* verb;
    std::uint64_t bytes = 0;
    const char* algorithm = ""; // may become known later, see called()
    call_kind kind = call_kind::blocking;
    bool is_message = false;
    int peer = -1;
};

class flight_recorder {
public:
    static constexpr int most_records = 1 << 20;

    // directory: holds the records in a file of this rank and communicator; empty: they are in memory.
    // Errors: resource where there is no memory or the file cannot be made.
    flight_recorder(communicator_core& c, int last, const char* directory, const call_observer& observer);
    flight_recorder(const flight_recorder&) = delete;
    ~flight_recorder();

    // Begins a blocking call. Returns its ordinal, or 0 inside another one, of which it is a part: that has a record.
    // Throws what the observer throws.
    std::uint64_t begin(const call_words& w);
    void called(const char* algorithm);
    void end(std::uint64_t ordinal);
    // The call ended with an exception. give_up() may have recorded that already.
    void fail(std::uint64_t ordinal, errc code) noexcept;
    // Everything under way has failed. waiting_for: the rank that the call that noticed the failure waited for.
    void fail_all(const failure& f, int waiting_for) noexcept;

    // Begins a call that continues after it has returned. The record belongs to the next operation that is started.
    std::uint64_t begin_async(const call_words& w) { return unstarted_ = named_ = enter(w); }
    // The same for one whose preparation was begun like a blocking call, because it waits for other ranks.
    void go_on(std::uint64_t ordinal) {
        if (ordinal == 0) return;
        run_ = nullptr;
        blocking_ = 0;
        unstarted_ = ordinal;
    }
    void started(operation& op) {
        op.recorded = unstarted_;
        unstarted_ = 0;
    }
    void ended(operation& op, task_state s);

    // Sets the operation that the blocking call runs, null: none.
    void watch(const operation* op) { run_ = op; }
    // Brings the records of calls under way up to date.
    void look(int waiting_for) noexcept;

    growing_array<call_record> recent() const;
    void set_observer(const call_observer& h) { observer_ = h; }
    const call_observer& observer() const { return observer_; }

private:
    std::uint64_t enter(const call_words& w);
    call_record* at(std::uint64_t ordinal) const { // null: overwritten since
        const std::uint64_t begun = head_->begun;
        return ordinal == 0 || ordinal > begun || begun - ordinal >= capacity_ ? nullptr
                                                                               : &ring_[(ordinal - 1) % capacity_];
    }
    void note_place(call_record& r, const operation& op) const;
    void note_end(call_record& r, call_outcome o, errc code) const;
    void show(std::uint64_t ordinal);
    void show_failed(const call_record& r) const noexcept;

    communicator_core& core_;
    std::uint64_t capacity_, bytes_;
    record_file* head_;
    call_record* ring_;
    kept_text directory_;
    call_observer observer_;
    const operation* run_ = nullptr;
    std::uint64_t blocking_ = 0, unstarted_ = 0, named_ = 0; // ordinals; 0: none. named_: see called()
    bool is_said_ = false;                                   // the path of the records was printed after a failure
};

// Runs and records f, a blocking call or a part of one that may be recorded separately. to: null, if nothing is
// recorded. GoesOn: f prepares a call, whose record belongs to the next operation that is started.
template <bool GoesOn = false, class F>
decltype(auto) recorded(flight_recorder* to, const call_words& w, F&& f) {
    struct open_record {
        flight_recorder* to;
        std::uint64_t ordinal;
        errc code = errc::aborted;
        ~open_record() {
            if (to != nullptr) to->fail(ordinal, code);
        }
    };
    if (to == nullptr) [[likely]]
        return f();
    open_record call{to, to->begin(w)};
    const auto end = [&] {
        call.to = nullptr;
        if constexpr (GoesOn) to->go_on(call.ordinal);
        else to->end(call.ordinal);
    };
    try {
        if constexpr (std::is_void_v<decltype(f())>) {
            f();
            end();
        } else {
            decltype(auto) made = f();
            end();
            return made;
        }
    } catch (const error& e) {
        call.code = e.code();
        throw;
    }
}

} // namespace detail
COLLX_END_NAMESPACE
