// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// What ranks did to windows, each rank in its order. recorded_window.hpp fills the record, window_races.hpp reads it.
// It must not know what an order means.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include <collx/core/error.hpp>

COLLX_BEGIN_NAMESPACE
namespace testing {

// A place in the program.
struct code_line {
    const char* file = "";
    int line = 0;
    // The place of the call in which this is a default argument.
    static constexpr code_line here(const char* file = __builtin_FILE(), int line = __builtin_LINE()) {
        return {file, line};
    }
};

// One use of a window by a rank.
struct window_use {
    // load, store: of the rank's own part. fetch: also exchange(). meet: a collective call of all ranks beside the
    // window, for example a barrier.
    enum class kind : std::uint8_t {
        load,
        store,
        put,
        get,
        accumulate,
        fetch,
        signal,
        wait,
        flush,
        flush_all,
        fence,
        meet
    };
    kind what = kind::load;
    bool travels = false;      // put: carried in the line of its signal
    int window = 0, peer = -1; // peer: -1 for fence, meet and flush_all
    std::size_t at = 0, bytes = 0;
    std::uint64_t count = 0; // wait: number of signals
    std::uint64_t by = 0;    // accumulate, fetch: a number that stands for the operator
    code_line from{};
};
// Whether it touches a part; is atomic for each element; only reads.
constexpr bool is_access(window_use::kind k) { return k <= window_use::kind::fetch; }
constexpr bool is_atomic(window_use::kind k) {
    return k == window_use::kind::accumulate || k == window_use::kind::fetch;
}
constexpr bool is_read(window_use::kind k) { return k == window_use::kind::load || k == window_use::kind::get; }

// The record of all ranks, which are threads of this process. Each rank writes its own. Read it when all have ended.
class window_uses {
public:
    // Errors: invalid_argument, for less than one rank.
    explicit window_uses(int ranks) : of_(checked(ranks)), windows_(of_.size()) {}

    // The number of ranks.
    int ranks() const { return static_cast<int>(of_.size()); }
    // The number of windows that they have made.
    int windows() const {
        int most = 0;
        for (const int n : windows_) most = n > most ? n : most;
        return most;
    }
    // The uses of a rank, in its order.
    const std::vector<window_use>& of(int rank) const { return of_[static_cast<std::size_t>(rank)]; }
    // Adds a use behind those of a rank.
    void add(int rank, const window_use& u) { of_[static_cast<std::size_t>(rank)].push_back(u); }
    // Records that a rank is in a collective call that no rank leaves before all have entered. It orders what the ranks
    // did themselves, but completes no put.
    void met(int rank, code_line from = code_line::here()) {
        window_use u;
        u.what = window_use::kind::meet;
        u.from = from;
        add(rank, u);
    }
    // The number of a rank's next window: all ranks make them in the same order.
    int next_window(int rank) { return windows_[static_cast<std::size_t>(rank)]++; }

private:
    static std::size_t checked(int ranks) {
        if (ranks < 1)
            fail(errc::invalid_argument, -1, -1, "as many as the communicator has", "window_uses of %d ranks", ranks);
        return static_cast<std::size_t>(ranks);
    }
    std::vector<std::vector<window_use>> of_;
    std::vector<int> windows_;
};

} // namespace testing
COLLX_END_NAMESPACE
