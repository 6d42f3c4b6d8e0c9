// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Random sequences of calls on random numbers of ranks. RapidCheck generates them, prints its seed, and shrinks a
// sequence that fails. Many calls share one set of threads: thousands of calls take seconds, and each call finds the
// windows and channels as the previous ones left them.
#pragma once

#include <cstdlib>
#include <ostream>

#include <rapidcheck.h>

#include "support.hpp"
#include "support/night.hpp"
#include "support/sanitizers.hpp"
#include "transport/verbs_fabric.hpp"

namespace collx_test {

struct random_call {
    int verb = 0;
    int algorithm = 0; // index in the list of the collective, modulo its length + 1; 0 is the library's choice
    unsigned count = 0;
    unsigned root = 0; // modulo the number of ranks
    unsigned piece = 0;
    unsigned seed = 0;
    bool in_place = false;
    bool under_way = false; // start now, wait after the next call
};

inline std::ostream& operator<<(std::ostream& o, const random_call& c) {
    return o << "{verb " << c.verb << ", algorithm " << c.algorithm << ", count " << c.count << ", root " << c.root
             << ", piece " << c.piece << ", seed " << c.seed << (c.in_place ? ", in place" : "")
             << (c.under_way ? ", under way" : "") << "}";
}

// Random calls of `verbs` verbs.
inline rc::Gen<random_call> any_call(int verbs) {
    using namespace rc;
    const auto call = gen::build<random_call>(
        gen::set(&random_call::verb, gen::inRange(0, verbs)), gen::set(&random_call::algorithm, gen::inRange(0, 9)),
        gen::set(&random_call::count,
                 gen::weightedOneOf<unsigned>(
                     {{6, gen::inRange(0u, 70u)}, {3, gen::inRange(70u, 1500u)}, {1, gen::inRange(1500u, 12'000u)}})),
        gen::set(&random_call::root, gen::inRange(0u, 8u)),
        gen::set(&random_call::piece, gen::element(0u, 1u, 24u, 64u, 100u, 1000u, 5000u)),
        gen::set(&random_call::seed, gen::inRange(0u, 10'000u)), gen::set(&random_call::in_place),
        gen::set(&random_call::under_way));
    return gen::map(call, [](random_call c) {
        if (c.piece != 0 && c.piece < 64) c.count %= 300; // limits the number of messages, which is that of pieces
        return c;
    });
}

inline std::atomic<long> calls_made{0};
inline long sequences_here = 0, sequences_over_sockets = 0, messages_by_verbs = 0;

// Checks `make_call(w, call)` for random sequences of calls. RC_PARAMS in the environment takes precedence, so that a
// printed seed can be run again. Every rank calls finish(w) at the end.
template <class F, class G>
void check_random_calls(const char* what, int verbs, F&& make_call, G&& finish) {
#if COLLX_TEST_ASAN || COLLX_TEST_TSAN
    const char* const params = "max_success=50 max_size=200"; // the sanitizers make it ten times slower
    constexpr long at_least = 1000;
#else
    const char* const params = is_night() ? "max_success=1000 max_size=400" : "max_success=100 max_size=400";
    const long at_least = is_night() ? 40'000 : 4'000;
#endif
    ::setenv("RC_PARAMS", params, 0);
    calls_made = 0;
    const bool holds = rc::check(what, [&] {
        const int n = *rc::gen::element(1, 2, 3, 4, 5, 6, 7, 8);
        const bool checked = *rc::gen::arbitrary<bool>();
        // Most sequences run on one host; the others have one, two or three ranks per host.
        spread hosts{*rc::gen::element(0, 0, 0, 0, 0, 0, 0, 1, 2, 3), *rc::gen::element(false, false, true),
                     *rc::gen::element(false, false, true), *rc::gen::element(false, false, true)};
        hosts.is_shared = *rc::gen::arbitrary<bool>();
        const bool have_devices = *rc::gen::arbitrary<bool>(); // for RDMA, from the test's fabric
        const auto calls = *rc::gen::container<std::vector<random_call>>(any_call(verbs));
        // Calls over sockets are slow, above all on a busy machine.
        const std::size_t count = hosts.is_one_host(n) || calls.size() < 50 ? calls.size() : 50;
        (hosts.is_one_host(n) ? sequences_here : sequences_over_sockets) += 1;
        fabric net({.seed = calls.size(), .devices = have_devices ? n : 0, .most_delay_polls = n});
        const fabric_installed here(net);
        run_spread(n, hosts, [&](collx::communicator& w) {
            w.set_timeout(collx_test::patient(std::chrono::seconds(50)));
            w.set_checked(checked);
            for (std::size_t k = 0; k < count; ++k) {
                at("n=%d per host %d%s%s%s%s checked=%d call %zu: verb %d algorithm %d count %u", n,
                   hosts.ranks_per_host, hosts.bad_day ? " bad day" : "", hosts.is_unix ? " unix" : "",
                   hosts.is_shared ? " shared" : "", have_devices ? " by verbs" : "", checked, k, calls[k].verb,
                   calls[k].algorithm, calls[k].count);
                make_call(w, calls[k]);
            }
            finish(w);
        });
        calls_made += static_cast<long>(count);
        messages_by_verbs += static_cast<long>(net.counters().sends);
        RC_ASSERT(net.misuses() == 0 && net.counters().not_ready == 0);
    });
    CHECK(holds);
    WARN(calls_made << " calls in " << sequences_here << " sequences on one host and " << sequences_over_sockets
                    << " over sockets, " << messages_by_verbs << " messages by verbs");
    if (holds && std::getenv("RC_PARAMS") == std::string(params)) CHECK(sequences_over_sockets >= 3);
    if (holds && std::getenv("RC_PARAMS") == std::string(params)) CHECK(calls_made >= at_least);
}

// Calls run(comm) with the algorithm that the call asks for, or with the library's choice. accept(algorithm) returns
// false for algorithms to skip.
template <collx::collective C, class Accept, class Run, class... Policies>
void run_with(collx::communicator& w, const random_call& c, Accept&& accept, Run&& run, Policies... more) {
    int index = 0;
    bool has_run = false;
    for_each_copying_algorithm<C>([&](auto a) {
        if (++index != c.algorithm || !accept(a)) return;
        if constexpr (requires { a.signals; })
            if (!w.internals().net.is_one_host()) return; // the algorithm needs a window
        has_run = true;
        run(w.with(a, collx::piece{c.piece}, more...));
    });
    if (!has_run) run(w.with(collx::piece{c.piece}, more...));
}

} // namespace collx_test
