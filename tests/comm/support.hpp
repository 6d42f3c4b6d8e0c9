// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Shared by the tests of the verbs: ranks as threads, checks that may fail on any thread (Catch2's checks may only be
// used on the main thread), and values that tell which rank made them.
#pragma once

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdarg>
#include <cstddef>
#include <cstdio>
#include <stdexcept>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include <collx/algo/algorithms.hpp>
#include <collx/collx.hpp>
#include <collx/net.hpp>
#include <collx/transport/socket_connector.hpp>

#include <catch2/catch.hpp>

#include "support/faulty_sockets.hpp"
#include "support/first_error.hpp"
#include "support/patience.hpp"
#include "support/sanitizers.hpp"
#include "support/toy_macs.hpp"

namespace collx_test {

struct wrong : std::runtime_error {
    using std::runtime_error::runtime_error;
};

[[noreturn]] inline void fail_check(const std::string& text) {
    failure_of_a_rank.keep(text.c_str());
    throw wrong(text);
}

// Sleeps until holds() is true. Throws when a rank has failed elsewhere or a minute has passed, on a busy machine two:
// a test that only sleeps is ended by its own limit however busy the machine is, and then nothing says why.
template <class F>
void until(F&& holds) {
    const auto begun = std::chrono::steady_clock::now();
    const auto patience =
        std::min<std::chrono::nanoseconds>(patient(std::chrono::seconds(60)), std::chrono::minutes(2));
    while (!holds()) {
        if (const auto text = failure_of_a_rank.text())
            fail_check("not waited for any longer: elsewhere \"" + *text + '"');
        if (std::chrono::steady_clock::now() - begun > patience) fail_check("what is waited for does not come");
        std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
}

// Where this rank is in the test, for the message of a check that fails.
inline thread_local char place_text[200] = "";
[[gnu::format(printf, 1, 2)]] inline void at(const char* format, ...) {
    va_list args;
    va_start(args, format);
    std::vsnprintf(place_text, sizeof place_text, format, args);
    va_end(args);
}

inline std::atomic<long> checks{0};
inline thread_local long own_checks = 0; // of this rank
inline void count_check() {
    checks.fetch_add(1, std::memory_order_relaxed);
    ++own_checks;
}
inline void expect(bool holds, const char* file, int line, const char* text, int rank, long long detail = -1) {
    count_check();
    if (holds) return;
    char message[600];
    std::snprintf(message, sizeof message, "%s:%d: rank %d: %s (%s; %lld)", file, line, rank, text, place_text, detail);
    fail_check(message);
}
// Used in a rank's body, where `w` is its communicator.
#define EXPECT(...) ::collx_test::expect(static_cast<bool>(__VA_ARGS__), __FILE__, __LINE__, #__VA_ARGS__, w.rank())
// EXPECT for element i.
#define EXPECT_AT(i, ...)                                                                            \
    ::collx_test::expect(static_cast<bool>(__VA_ARGS__), __FILE__, __LINE__, #__VA_ARGS__, w.rank(), \
                         static_cast<long long>(i))

using collx::detail::thread_body;
// Runs a rank's body, which must make a check on this rank: checks of other ranks do not count.
inline void run_checked(collx::communicator& w, thread_body f) {
    w.set_timeout(
        collx_test::patient(std::chrono::seconds(50))); // a rank that is not scheduled for a while is not a failure
    const long before = own_checks;
    const int rank = w.rank();
    try {
        f(w);
    } catch (const std::exception& e) {
        failure_of_a_rank.keep(e.what());
        throw;
    }
    if (own_checks == before) fail_check("rank " + std::to_string(rank) + " has checked nothing");
}

// Runs f(world) on n threads. If a rank throws or makes no check, the test case fails.
inline void on_ranks(int n, thread_body f) {
    collx::run_threads(n, [&](collx::communicator& w) { run_checked(w, f); });
}

// How ranks are spread over hosts: ranks_per_host share memory and reach the others over sockets; 0 means one host.
struct spread {
    int ranks_per_host = 0;
    bool bad_day = false; // system calls transfer less, are interrupted, or return EAGAIN
    bool has_key = false; // connections begin with proofs of the key
    bool is_unix = false; // over unix sockets instead of TCP
    int lanes = 1;        // connections of a pair, for large messages
    collx::single_copy_mode single_copy = collx::single_copy_mode::automatic;
    bool is_shared = false; // one of two communicators that share one connection to each rank
    bool is_one_host(int n) const { return ranks_per_host == 0 || n <= ranks_per_host; }
    std::vector<int> host_of(int n) const {
        std::vector<int> hosts;
        for (int r = 0; r < n; ++r) hosts.push_back(ranks_per_host == 0 ? 0 : r / ranks_per_host);
        return hosts;
    }
};
// Runs f(world) on n threads that are spread as `s` says.
inline void run_spread(int n, const spread& s, thread_body f) {
    if (s.is_one_host(n)) return collx::run_threads(n, f);
    const bool is_plain = !s.bad_day && !s.has_key && !s.is_unix && s.lanes == 1 && !s.is_shared;
    if (is_plain && s.single_copy == collx::single_copy_mode::automatic) return collx::run_threads(s.host_of(n), f);
    static const with_toy_macs toy;
    const std::vector keys(static_cast<std::size_t>(n), s.has_key ? toy_protection('k') : collx::job_protection());
    const auto& calls = s.bad_day ? bad_day_calls : collx::system_socket_calls;
    const char* at = s.is_unix ? "unix" : "127.0.0.1";
    auto jobs = collx::detail::thread_jobs(s.host_of(n), calls, keys.data(), at, s.lanes);
    for (auto& job : jobs) {
        job->settings.single_copy = s.single_copy;
        if (s.is_shared) job->connector->of_sockets()->hub()->set_most_own(1);
    }
    collx::detail::run_thread_jobs(std::move(jobs), [&](collx::communicator& w) {
        if (!s.is_shared) return f(w);
        auto other = w.split(0), mine = w.split(0);
        f(mine);
    });
}
// on_ranks() for ranks that are spread over hosts.
inline void on_hosts(int n, const spread& s, thread_body f) {
    run_spread(n, s, [&](collx::communicator& w) { run_checked(w, f); });
}

// Rank counts: neighbours of powers of two, odd, even. Sizes: around the lanes of a vector, a cache line, an inlined
// message and a window's line; also several pieces with an odd remainder. ThreadSanitizer gets fewer: races do not
// depend on the neighbouring numbers.
#if COLLX_TEST_TSAN
inline constexpr int rank_counts[] = {1, 2, 3, 5, 8};
inline constexpr std::size_t sizes[] = {0, 1, 3, 16, 65, 1000, 100003};
#else
inline constexpr int rank_counts[] = {1, 2, 3, 4, 5, 7, 8};
inline constexpr std::size_t sizes[] = {0, 1, 2, 3, 15, 16, 17, 63, 64, 65, 1000, 4097, 100003};
#endif
inline constexpr std::size_t few_sizes[] = {0, 1, 3, 17, 1000, 20011};

// Element i of rank r's contribution. Small, so that sums and products stay exact in every type.
template <class T = int>
constexpr T sample(int rank, std::size_t i) {
    return static_cast<T>(static_cast<int>((static_cast<std::size_t>(rank) * 5 + i * 3 + i / 7) % 11));
}
template <class T = int>
std::vector<T> samples(int rank, std::size_t n) {
    std::vector<T> v(n);
    for (std::size_t i = 0; i < n; ++i) v[i] = sample<T>(rank, i);
    return v;
}
// Element i of the left fold over ranks first … last - 1.
template <class T = int, class Op = collx::plus>
T folded(std::size_t i, int first, int last, Op op = {}) {
    T a = sample<T>(first, i);
    for (int r = first + 1; r < last; ++r) a = static_cast<T>(op(a, sample<T>(r, i)));
    return a;
}

constexpr bool is_zero_copy(std::string_view algorithm) { return algorithm == "zero_copy"; }

// Calls f with each algorithm of a collective that does not need the user's buffers in windows.
template <collx::collective C, class F>
void for_each_copying_algorithm(F&& f) {
    collx::algo::algorithms<C>::for_each([&](auto a) {
        if constexpr (!is_zero_copy(decltype(a)::name)) f(a);
    });
}

// Returns the error that f must throw; checks its type.
template <class E, class F>
E thrown(const collx::communicator& w, F&& f) {
    try {
        f();
    } catch (const E& e) {
        count_check();
        return e;
    } catch (const std::exception& e) {
        fail_check(std::string("another error than expected: ") + e.what() + " (" + place_text + ")");
    }
    fail_check("rank " + std::to_string(w.rank()) + ": no error where one was expected (" + place_text + ")");
}
inline bool says(const std::exception& e, const char* text) {
    return std::string(e.what()).find(text) != std::string::npos;
}
// Whether a mismatch that a message or signal has shown names the rank whose part is another than expected; that rank
// itself may hear of it from others.
inline bool names_odd_part(const collx::mismatch& e) {
    if (e.peer() == e.rank()) return says(e, "other ranks report that the part of this rank has another size");
    return e.peer() >= 0 && says(e, ("the part of rank " + std::to_string(e.peer()) + " has ").c_str());
}
// Returns the error that f must throw on this rank, with this code and this text in it.
template <class F>
collx::error refused(const collx::communicator& w, F&& f, collx::errc code, const char* text) {
    const auto e = thrown<collx::error>(w, f);
    at("%.190s", e.what());
    EXPECT(e.code() == code && e.rank() == w.rank());
    EXPECT(says(e, text));
    return e;
}

} // namespace collx_test

using collx_test::at;
using collx_test::on_ranks;
