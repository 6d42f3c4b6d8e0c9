// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// When the other kernels of their rank are ended, those that stage pieces end, too, and tell the host.
#include <collx/exec/device/staging.hpp>

#include <catch2/catch.hpp>

#include <collx/testing/twin_env.hpp>

using namespace collx;
using device::staging_end;
using ints = device_view<int>;

namespace {

// One rank of a domain, and the memory of its host.
struct rank_memory {
    device::staging_words words{};
    device::staging_counts counts[2]{};
    std::uint64_t abort = 0;
    int user[4] = {1, 2, 3, 4}, host[8] = {10, 20, 30, 40, 50, 60, 70, 80};
    device::staging_peers peers;

    rank_memory() {
        peers.abort[0] = &abort;
        peers.count = 1;
    }
    template <class Kernel>
    static void run(const Kernel& kernel, int lane) {
        device::twin_barrier mine(1), block(1);
        device::twin_env env(0, 1, 0, 1, mine, block);
        kernel(env, lane, 2);
    }
    void out(int lane) {
        run(
            device::stage_out<ints>{
                ints(user, 4), {.count = 4}, &words, counts, reinterpret_cast<std::byte*>(host), sizeof user, 7, peers},
            lane);
    }
    void in(int lane) {
        constexpr std::uint64_t limit_ns = 20'000'000'000;
        run(device::stage_in<ints>{ints(user, 4),
                                   {.count = 4},
                                   &words,
                                   counts,
                                   reinterpret_cast<std::byte*>(host),
                                   sizeof user,
                                   limit_ns,
                                   peers},
            lane);
    }
    void end_kernels() { abort = device::stop_word::ended; }
};

} // namespace

TEST_CASE("lanes copy a piece out and its result in, each its own elements") {
    rank_memory m;
    for (int lane = 0; lane < 2; ++lane) m.out(lane);
    CHECK(m.words.staged[0] == 1);
    CHECK(m.words.staged[1] == 1);
    CHECK(m.words.order[0] == 7);
    for (int i = 0; i < 4; ++i) {
        CHECK(m.host[i] == i + 1);
        m.host[i] = -i;
    }
    m.words.done = 1;
    for (int lane = 0; lane < 2; ++lane) m.in(lane);
    for (int i = 0; i < 4; ++i) CHECK(m.user[i] == -i);
    CHECK(m.words.gave_up == 0);
}

TEST_CASE("a piece that only some lanes had staged when the kernels were ended is not waited for") {
    rank_memory m;
    m.out(0);
    m.end_kernels();
    m.out(1);
    CHECK(m.words.staged[0] == 1);
    CHECK(m.words.staged[1] == 0); // so the host never carries the piece out
    m.words.gave_up = 0;
    m.in(0);
    CHECK(m.counts[0].has_failed == 1);
    CHECK(m.words.gave_up == staging_end::peer_gave_up);
    CHECK(m.user[0] == 1); // nothing was copied
}

TEST_CASE("a lane that gave up ends the waits of the others, also where no peer's kernels are reached") {
    rank_memory m;
    m.peers.count = 0;
    m.words.gave_up = staging_end::peer_gave_up;
    m.in(0);
    CHECK(m.counts[0].has_failed == 1);
    CHECK(m.words.gave_up == staging_end::peer_gave_up); // not that it waited too long
    m.words = {};
    m.words.abort = 1;
    m.counts[1] = {};
    m.in(1);
    CHECK(m.counts[1].has_failed == 1);
    CHECK(m.words.gave_up == 0); // the host knows why
}

TEST_CASE("a piece that is not staged because kernels were ended is reported to the host") {
    rank_memory m;
    m.end_kernels();
    m.out(0);
    CHECK(m.words.staged[0] == 0);
    CHECK(m.words.gave_up == staging_end::peer_gave_up);
    // The first reason stays.
    m.words.gave_up = staging_end::waited_too_long;
    m.out(1);
    CHECK(m.words.gave_up == staging_end::waited_too_long);
}

TEST_CASE("a result that failed on one lane ends the kernels of the domain") {
    rank_memory m;
    m.words.abort = 1;
    m.in(0);
    CHECK(m.abort == device::stop_word::ended);
}
