// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// An ability of some stores: to notice that a rank has ended. tcp_store and file_store have it; a program's own store
// may derive from this class, too. A *bell* is a key that is set once, when a start ends or is in doubt.
#pragma once

#include <cstdint>

#include <collx/core/clock.hpp>
#include <collx/core/error.hpp>
#include <collx/core/joined.hpp>
#include <collx/core/kept_text.hpp>

COLLX_BEGIN_NAMESPACE

class store_alarm {
public:
    // This rank takes part in a meeting of `ranks` from here on, until the deadline at the latest. If it ends without
    // leave(), the store rings the bell.
    virtual void appear(int rank, int ranks, const deadline& until) = 0;
    // Meeting `number` has begun, and this is its bell.
    virtual void watch(std::int64_t number, name_view bell) = 0;
    virtual void leave() = 0;
    // Sets the key if it is not set. Returns the value that it then has. is_mine: this call has set it.
    virtual kept_text claim(name_view key, name_view value, bool& is_mine) = 0;
    // Waits for a key or for the bell. True: the key's value; false: the bell's. Errors: timeout.
    virtual bool get_or_bell(name_view key, name_view bell, const deadline& until, kept_text& value) = 0;
    // This rank has joined. Waits for `bell` or for the second bell, which is rung with start_done when all have
    // joined. Value and errors as get_or_bell().
    virtual bool arrive(name_view first_bell, name_view bell, const deadline& until, kept_text& value) = 0;
    // Whether the bell has been rung. Does not wait.
    virtual bool is_rung(name_view bell, kept_text& value) = 0;
    // Whether the rank that runs the store has ended it with its work done: the store sends nothing more.
    virtual bool has_ended() const = 0;

protected:
    ~store_alarm() = default;
};

namespace detail {

// A meeting has two bells. The value of the first is a roll call ("r") or the verdict; that of the second is always the
// verdict. A rank that ends a start claims the second, so that there is one verdict, and sets the first to it.
inline kept_text second_bell(name_view first) { return joined({first, "/2"}); }

// A verdict is this word, or "f", the code, the guilty rank, and what happened.
inline constexpr name_view start_done = "done";
inline kept_text verdict_of_death(std::int64_t rank) {
    return joined({"f", static_cast<int>(errc::peer_failed), " ", rank, " rank ", rank,
                   " ended, or lost its connection to the store, while the ranks came together"});
}

} // namespace detail

COLLX_END_NAMESPACE
