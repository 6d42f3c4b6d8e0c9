// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Shared by the tests of faults: ranks as processes with a communicator over shared memory, a page where they report
// what they saw and when, and calls of every collective that check their own results.
#pragma once

#include <atomic>
#include <climits>
#include <cstdint>
#include <string>
#include <vector>

#include <collx/collx.hpp>
#include <collx/job/join.hpp>

#include <catch2/catch.hpp>

#include "support/patience.hpp"
#include "support/processes.hpp"

namespace collx_test {

inline constexpr std::int64_t ms = 1'000'000;

// What the ranks of one cell report to each other and to the test. Zeroed.
struct report {
    struct of_rank {
        std::int64_t ended_ns; // when the first error was thrown
        int code, peer;        // of the first error; code -1: none
        int second_code, second_peer;
        long calls; // calls that succeeded before it
    };
    std::atomic<int> ready;
    std::atomic<std::int64_t> struck_ns; // when the fault happened
    of_rank ranks[processes::most];
};

// Returns when all n ranks have left the calls before it, so that none is still in one when another rank strikes.
// (After a barrier alone, the first to leave may strike while others leave.)
inline void leave_together(report& page, int n) {
    page.ready.fetch_add(1);
    if (!wait_until(page.ready, n)) throw std::runtime_error("not all ranks left the call");
}

inline std::string new_job() {
    static int count = 0;
    return "faults-" + std::to_string(::getpid()) + "-" + std::to_string(count++);
}

// One rank's job, as under collx_run, except that several jobs may follow each other in one process.
inline collx::counted_ptr<collx::job> join(const std::string& name, int rank, int n,
                                           std::int64_t timeout_ns = collx_test::patient(30'000 * ms)) {
    auto s = collx::detail::settings_for(n);
    s.timeout_ns = timeout_ns;
    s.checked = false;
    return collx::make_counted<collx::job>(collx::join_shm(name.c_str(), rank, n, collx::deadline::in_ns(timeout_ns)),
                                           rank, n, s, false);
}

struct wrong_data : collx::error {
    wrong_data(int rank, const char* call)
        : error(collx::errc::protocol, rank, -1, call, "wrong data although the call succeeded") {}
};

// ---------------------------------------------------------------------------------------------- calls
enum class verb {
    all_reduce,
    broadcast,
    reduce,
    all_gather,
    reduce_scatter,
    all_to_all,
    all_to_all_v,
    barrier,
    scan,
    sendrecv,
    send_recv,
    count
};
inline constexpr const char* verb_names[] = {"all_reduce",     "broadcast",  "reduce",       "all_gather",
                                             "reduce_scatter", "all_to_all", "all_to_all_v", "barrier",
                                             "scan",           "sendrecv",   "send, recv"};

// Makes calls and checks each result. `m` is the number of elements per part. `salt` makes every call's data
// different, so that data of an earlier call is detected.
class caller {
public:
    caller(collx::communicator& w, std::size_t m) : w_(w), m_(m), in_(m * count()), out_(m * count()) {}

    void call(verb v, int salt) {
        const int me = w_.rank(), n = w_.size(), root = salt % n;
        const int sum = n * salt + n * (n - 1) / 2; // the sum of salt + rank
        fill(salt + me);
        switch (v) {
            case verb::all_reduce:
                collx::all_reduce(w_, in_);
                holds(sum, 0, in_.size());
                break;
            case verb::broadcast:
                collx::broadcast(w_, in_, {.root = root});
                holds(salt + root, 0, in_.size());
                break;
            case verb::reduce:
                collx::reduce(w_, in_, out_, collx::plus{}, {.root = root});
                if (me == root) {
                    in_.swap(out_);
                    holds(sum, 0, in_.size());
                }
                break;
            case verb::all_gather:
                mine_.assign(m_, salt + me);
                collx::all_gather(w_, mine_, in_);
                for (int r = 0; r < n; ++r) holds(salt + r, r * m_, m_);
                break;
            case verb::reduce_scatter:
                mine_.resize(m_);
                collx::reduce_scatter(w_, in_, mine_);
                mine_.swap(in_);
                holds(sum, 0, m_);
                mine_.swap(in_);
                break;
            case verb::all_to_all:
                collx::all_to_all(w_, in_, out_);
                from_each(salt);
                break;
            case verb::all_to_all_v:
                counts_.assign(count(), m_);
                collx::all_to_all_v(w_, in_, counts_, out_, counts_);
                from_each(salt);
                break;
            case verb::barrier: collx::barrier(w_); break;
            case verb::scan:
                collx::scan(w_, in_);
                holds(salt * (me + 1) + me * (me + 1) / 2, 0, in_.size());
                break;
            case verb::sendrecv:
                collx::sendrecv(w_, in_, (me + 1) % n, out_, (me + n - 1) % n);
                in_.swap(out_);
                holds(salt + (me + n - 1) % n, 0, in_.size());
                break;
            case verb::send_recv: // around the ring, one after the other
                if (me != 0) {
                    collx::recv(w_, in_, me - 1);
                    holds(salt, 0, in_.size());
                }
                collx::send(w_, in_, (me + 1) % n);
                if (me == 0) {
                    collx::recv(w_, in_, n - 1);
                    holds(salt, 0, in_.size());
                }
                break;
            case verb::count: break;
        }
        name_ = verb_names[static_cast<int>(v)];
    }

private:
    std::size_t count() const { return static_cast<std::size_t>(w_.size()); }
    void fill(int value) {
        in_.assign(m_ * count(), value);
        out_.assign(m_ * count(), -1);
    }
    void from_each(int salt) {
        in_.swap(out_);
        for (int r = 0; r < w_.size(); ++r) holds(salt + r, static_cast<std::size_t>(r) * m_, m_);
    }
    void holds(int value, std::size_t first, std::size_t n) {
        for (std::size_t i = first; i < first + n; ++i)
            if (in_[i] != value) throw wrong_data(w_.rank(), name_);
    }

    collx::communicator& w_;
    std::size_t m_;
    std::vector<int> in_, out_, mine_;
    std::vector<std::size_t> counts_;
    const char* name_ = "";
};

// Calls until an error comes (at most `limit_ms`), records it, and calls once more: a failed communicator stays failed.
template <class F>
void until_error(report& to, int rank, F&& call, int limit_ms = 30'000) {
    auto& mine = to.ranks[rank];
    mine.code = mine.second_code = -1;
    const std::int64_t until = collx::now_ns() + patient(limit_ms * ms);
    try {
        for (int salt = 1; collx::now_ns() < until; ++salt, ++mine.calls) call(salt);
    } catch (const wrong_data&) {
        throw;
    } catch (const collx::error& e) {
        mine.ended_ns = collx::now_ns();
        mine.code = static_cast<int>(e.code());
        mine.peer = e.peer();
    }
    try {
        call(1);
    } catch (const collx::error& e) {
        mine.second_code = static_cast<int>(e.code());
        mine.second_peer = e.peer();
    }
}

// Collects times; prints the slowest and their number at the end, so that a log has the figures and not only that a
// limit held.
struct stopwatch {
    const char* what;
    std::int64_t worst_ns = 0, sum_ns = 0;
    long times = 0;
    std::vector<std::int64_t> each;
    long late(std::int64_t ns) const {
        long n = 0;
        for (const std::int64_t one : each) n += one > ns;
        return n;
    }
    void add(std::int64_t ns) {
        each.push_back(ns);
        worst_ns = ns > worst_ns ? ns : worst_ns;
        sum_ns += ns;
        ++times;
    }
    ~stopwatch() {
        if (times != 0)
            std::printf("%s: %ld times, mean %.1f ms, worst %.1f ms\n", what, times,
                        static_cast<double>(sum_ns) / 1e6 / static_cast<double>(times),
                        static_cast<double>(worst_ns) / 1e6);
        std::fflush(stdout);
    }
};

// Checks what every survivor saw: `code` naming `guilty`, twice, the first time long before the usual time-out (30
// s). The stopwatch prints the times; on a busy machine they mean nothing.
inline void check_survivors(const processes& all, const report& seen, int n, int guilty, collx::errc code,
                            stopwatch& watch) {
    for (int r = 0; r < n; ++r) {
        if (r == guilty) continue;
        const auto& s = seen.ranks[r];
        INFO("rank " << r << " after " << s.calls << " calls, error " << s.code << " about rank " << s.peer
                     << "; ended with " << all[r].exit_code << "; " << all[r].what);
        CHECK(all[r].is_ok());
        CHECK(s.code == static_cast<int>(code));
        CHECK(s.peer == guilty);
        CHECK(s.second_code == static_cast<int>(code));
        CHECK(s.second_peer == guilty);
        const std::int64_t took = s.ended_ns - seen.struck_ns.load();
        CHECK(took < collx_test::patient(15'000 * ms));
        watch.add(took > 0 ? took : 0);
    }
}

} // namespace collx_test
