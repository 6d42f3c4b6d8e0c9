// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Large messages between processes, copied through shared memory or read in place. The results are the same either
// way, buffers are free when a call returns, and a failure ends with an error.
//
// collx-test: optimised timeout=240 sanitize=address
#include <collx/algo/pairwise.hpp>
#include <collx/collx.hpp>

#include <catch2/catch.hpp>

#include <sys/uio.h>

#include <span>

#include "faults/support.hpp"
#include "support/skip.hpp"

using namespace collx_test;
using collx::single_copy_mode;

namespace {

// Whether the kernel lets a process read another process that is not its child.
bool is_reading_allowed() {
    int there = 4711, here = 0;
    const pid_t child = ::fork();
    if (child == 0) {
        const iovec local{&here, sizeof here}, remote{&there, sizeof there};
        ::_exit(::process_vm_readv(::getppid(), &local, 1, &remote, 1, 0) == sizeof here && here == there ? 0 : 1);
    }
    int status = 1;
    return ::waitpid(child, &status, 0) == child && status == 0;
}

void stay_on_one_core() {
    cpu_set_t mine = collx::core_set(), one;
    CPU_ZERO(&one);
    for (int c = 0; c < CPU_SETSIZE && CPU_COUNT(&one) == 0; ++c)
        if (CPU_ISSET(c, &mine)) CPU_SET(c, &one);
    if (sched_setaffinity(0, sizeof one, &one) != 0) ::_exit(99);
}

// Runs f(world) in n processes with this single-copy setting. The exit code is f's result.
template <class F>
void on_processes(int n, single_copy_mode single_copy, F&& f, bool on_one_core = false) {
    const std::string name = new_job();
    processes p;
    for (int r = 0; r < n; ++r)
        p.start(r, [&, r] {
            if (on_one_core) stay_on_one_core();
            auto s = collx::detail::settings_for(n);
            s.timeout_ns = collx_test::patient(40'000 * ms);
            s.single_copy = single_copy;
            collx::communicator w(collx::make_counted<collx::job>(
                collx::join_shm(name.c_str(), r, n, collx::deadline::in_ns(s.timeout_ns)), r, n, s, false));
            return f(w);
        });
    p.wait();
    for (int r = 0; r < n; ++r) {
        INFO("rank " << r << " of " << n << ", single copy " << static_cast<int>(single_copy) << ": " << p[r].what);
        CHECK(p[r].exit_code == 0);
    }
}

std::uint64_t single_copies_by(collx::communicator& w) {
    std::uint64_t sum = 0;
    for (int at_port = 0; at_port < collx::port::count; ++at_port)
        for (int r = 0; r < w.size(); ++r)
            if (r != w.rank()) sum += w.internals().net.tx(at_port, r).single_copy_messages;
    return sum;
}

// Runs all verbs with single copies, with sizes around the limits, several times with different data. Returns 0 or
// the number of the check that failed.
int exchange_everything(collx::communicator& w) {
    const int n = w.size(), me = w.rank();
    const auto u = static_cast<std::size_t>(n);
    for (const std::size_t m : {8'191u, 8'192u, 81'921u, 100'003u, 500'000u}) // the third size: a page and one element
        for (int round = 0; round < 6; ++round) {
            const auto value = [&](int from, int to, std::size_t i) {
                return from * 1000 + to * 100 + round + static_cast<int>(i % 7919);
            };
            std::vector<int> in(m * u), out(m * u, -1);
            for (int k = 0; k < n; ++k)
                for (std::size_t i = 0; i < m; ++i) in[static_cast<std::size_t>(k) * m + i] = value(me, k, i);
            const auto is_from_all = [&](const std::vector<int>& got) {
                for (int k = 0; k < n; ++k)
                    for (std::size_t i = 0; i < m; ++i)
                        if (got[static_cast<std::size_t>(k) * m + i] != value(k, me, i)) return false;
                return true;
            };
            collx::all_to_all(w, in, out);
            if (!is_from_all(out)) return 1;
            std::fill(in.begin(), in.end(), -2); // immediately: no peer may still be reading

            // Receives into the buffer that is being sent: the old contents must be sent before they are overwritten.
            std::vector<int> ring(m);
            for (std::size_t i = 0; i < m; ++i) ring[i] = value(me, 0, i);
            collx::sendrecv(w, ring, (me + 1) % n, std::span(out).first(m), (me + n - 1) % n);
            for (std::size_t i = 0; i < m; ++i)
                if (out[i] != value((me + n - 1) % n, 0, i)) return 2;

            // The receiver's tensor is strided although the sender's is contiguous.
            std::vector<int> wide(2 * m * u, -1);
            for (int k = 0; k < n; ++k)
                for (std::size_t i = 0; i < m; ++i) in[static_cast<std::size_t>(k) * m + i] = value(me, k, i);
            if (me % 2 == 0) collx::all_to_all(w, in, out);
            else {
                collx::all_to_all(w, in, collx::strided(wide.data(), m * u, 2));
                for (std::size_t i = 0; i < m * u; ++i) out[i] = wide[2 * i];
            }
            if (!is_from_all(out)) return 3;

            std::vector<int> all(me == 0 ? m * u : 0), mine(m, me + round);
            collx::gather(w, mine, all);
            if (me == 0)
                for (std::size_t i = 0; i < m * u; ++i)
                    if (all[i] != static_cast<int>(i / m) + round) return 4;
            collx::scatter(w, all, mine);
            for (const int x : mine)
                if (x != me + round) return 5;
        }
    return 0;
}

// Exchanges of two ranks over channels, in place and not: operands are read in place, and data to be overwritten is
// kept until read. Returns 0 or the number of the check that failed. With `must_single_copy` the sending rank must
// have sent a single copy.
int exchange_pairwise(collx::communicator& w, bool must_single_copy) {
    const auto later = [](unsigned a, unsigned b) { return a * 31 + b; }; // its result depends on the order of operands
    const int me = w.rank();
    const auto mine = static_cast<unsigned>(me);
    for (const std::size_t m : {20'000u, 81'921u, 100'003u, 400'000u})
        for (int round = 0; round < 6; ++round) {
            const auto salt = static_cast<unsigned>(round);
            const int root = round % 2;
            std::vector<unsigned> x(m), y(m), both(2 * m);
            const auto value = [&](unsigned r, std::size_t i) {
                return r * 1000 + salt + static_cast<unsigned>(i % 7919);
            };
            const auto refill = [&] {
                for (std::size_t i = 0; i < m; ++i) {
                    x[i] = value(mine, i);
                    both[mine * m + i] = value(mine, i);
                }
            };
            const auto single_copies_before = [&] { return single_copies_by(w); };
            refill();
            auto before = single_copies_before();
            collx::broadcast(w, x, {.root = root});
            for (std::size_t i = 0; i < m; ++i)
                if (x[i] != value(static_cast<unsigned>(root), i)) return 1;
            if (must_single_copy && round > 1 && me == root && single_copies_by(w) == before) return 11;

            refill();
            before = single_copies_before();
            collx::reduce(w, x, y, later, {.root = root});
            if (me == root)
                for (std::size_t i = 0; i < m; ++i)
                    if (y[i] != value(0, i) * 31 + value(1, i)) return 2;
            if (must_single_copy && round > 1 && me != root && single_copies_by(w) == before) return 12;

            refill();
            before = single_copies_before();
            collx::all_gather(w, std::span(both).subspan(mine * m, m), both); // in place
            for (std::size_t i = 0; i < 2 * m; ++i)
                if (both[i] != value(static_cast<unsigned>(i / m), i % m)) return 3;
            if (must_single_copy && round > 1 && single_copies_by(w) == before) return 13;
        }
    return 0;
}

} // namespace

TEST_CASE("two ranks make single copies of operands, and from buffers that are used in place") {
    on_processes(2, single_copy_mode::never, [](collx::communicator& w) { return exchange_pairwise(w, false); });
    on_processes(2, single_copy_mode::automatic, [](collx::communicator& w) { return exchange_pairwise(w, false); });
    if (!is_reading_allowed()) return skip("process_vm_readv is not allowed here");
    on_processes(2, single_copy_mode::always, [](collx::communicator& w) { return exchange_pairwise(w, true); });
}

TEST_CASE("a chunk that this rank's own steps overwrite is sent through slots") {
    std::vector<int> x(100);
    const auto layout = collx::chunk_layout::even(100, 2);
    const collx::pieces cuts(layout, layout, 2, 100);
    const auto program = collx::sched::record(collx::algo::pairwise_all_to_all{}, 0, 2);
    const auto stays = [&](std::vector<int>& out, int chunk) {
        using view = collx::contiguous_view<int>;
        const collx::mover<view, view, collx::no_op, int> m({x.data(), x.size()}, {out.data(), out.size()}, {}, 2);
        return collx::stays_as_it_is(program, cuts, collx::typed_elements(m), chunk);
    };
    // In place, rank 0 sends chunk 1 and then receives into it; chunk 0 is only copied to itself.
    CHECK_FALSE(stays(x, 1));
    CHECK(stays(x, 0));
    std::vector<int> elsewhere(100);
    CHECK(stays(elsewhere, 1));
}

TEST_CASE("by single copy or through slots, the same arrives") {
    const bool is_allowed = is_reading_allowed();
    for (const int n : {2, 3}) {
        on_processes(n, single_copy_mode::automatic, exchange_everything);
        on_processes(n, single_copy_mode::never, [](collx::communicator& w) {
            const int wrong = exchange_everything(w);
            return wrong != 0 ? wrong : single_copies_by(w) == 0 ? 0 : 100;
        });
        if (!is_allowed) return skip("process_vm_readv is not allowed here");
        on_processes(n, single_copy_mode::always, [](collx::communicator& w) {
            const int wrong = exchange_everything(w);
            return wrong != 0 ? wrong : single_copies_by(w) != 0 ? 0 : 100;
        });
    }
}

TEST_CASE("an all_to_all with long parts makes single copies where ranks share cores") {
    if (!is_reading_allowed()) return skip("process_vm_readv is not allowed here");
    // Returns 0, or the number of the check that failed.
    const auto exchange = [](collx::communicator& w, std::size_t elems, bool by_single_copy) {
        const std::size_t n = static_cast<std::size_t>(w.size());
        std::vector<int> in(n * elems), out(n * elems);
        for (std::size_t i = 0; i < in.size(); ++i) in[i] = w.rank() * 1000 + static_cast<int>(i / elems);
        for (int round = 0; round < 3; ++round) { // in the first one ranks learn that they can read
            const auto before = single_copies_by(w);
            out.assign(out.size(), -1);
            collx::all_to_all(w, in, out);
            for (std::size_t i = 0; i < out.size(); ++i)
                if (out[i] != static_cast<int>(i / elems) * 1000 + w.rank()) return 1;
            if (round > 0 && (single_copies_by(w) != before) != by_single_copy) return 2;
        }
        return 0;
    };
    for (const auto mode : {single_copy_mode::always, single_copy_mode::never})
        on_processes(
            3, mode,
            [&](collx::communicator& w) {
                const int wrong = exchange(w, 20'000, false); // 240 KB: through windows
                return wrong != 0 ? wrong : exchange(w, 100'000, mode == single_copy_mode::always);
            },
            true);
}

TEST_CASE("a large send returns when it was taken, whichever way it went") {
    for (const single_copy_mode single_copy : {single_copy_mode::never, single_copy_mode::always}) {
        shared_page<report> page;
        on_processes(2, single_copy, [&](collx::communicator& w) {
            std::vector<int> x(100'000, 1);
            for (int i = 0; i < 5; ++i) {
                collx::barrier(w);
                if (w.rank() == 0) {
                    collx::send(w, x, 1);
                    if (page->ready.load() != i + 1) return 1;
                } else {
                    ::usleep(20'000);
                    page->ready.store(i + 1);
                    collx::recv(w, x, 0);
                }
            }
            return 0;
        });
    }
}

TEST_CASE("ranks that disagree on a count find out, also of a single copy") {
    for (const single_copy_mode single_copy : {single_copy_mode::never, single_copy_mode::always})
        on_processes(2, single_copy, [](collx::communicator& w) {
            std::vector<int> x(100'000, 1);
            for (int i = 0; i < 3; ++i) // the first calls tell the sender that its memory can be read
                if (w.rank() == 0) collx::send(w, x, 1);
                else collx::recv(w, x, 0);
            try {
                if (w.rank() == 0) collx::send(w, x, 1);
                else collx::recv(w, std::span(x).first(99'000), 0);
            } catch (const collx::mismatch&) {
                return 0;
            }
            return 1;
        });
}

TEST_CASE("a sender that dies while its message waits is named") {
    for (const single_copy_mode single_copy : {single_copy_mode::never, single_copy_mode::always}) {
        const std::string name = new_job();
        processes p;
        for (int r = 0; r < 2; ++r)
            p.start(r, [&, r] {
                auto s = collx::detail::settings_for(2);
                s.timeout_ns = collx_test::patient(40'000 * ms);
                s.single_copy = single_copy;
                collx::communicator w(collx::make_counted<collx::job>(
                    collx::join_shm(name.c_str(), r, 2, collx::deadline::in_ns(s.timeout_ns)), r, 2, s, false));
                std::vector<int> x(4'000'000, 1);
                for (int i = 0; i < 3; ++i)
                    if (r == 0) collx::send(w, x, 1);
                    else collx::recv(w, x, 0);
                if (r == 0) {
                    auto sending = collx::async::send(w, x, 1);
                    (void)sending.test();
                    ::raise(SIGKILL);
                }
                ::usleep(50'000);
                try {
                    collx::recv(w, x, 0);
                } catch (const collx::peer_failed& e) {
                    return e.peer() == 0 ? 0 : 2;
                }
                return 1;
            });
        p.wait();
        INFO("single copy " << static_cast<int>(single_copy) << ": " << p[1].what);
        CHECK(p[1].exit_code == 0);
    }
}
