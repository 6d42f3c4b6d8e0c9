// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// collx-test: timeout=300 sanitize=nightly
//
// Devices joined by a switch that reduces and multicasts, over the fake runtime: which sums use it, the report of
// each rank if one cannot join it, and the proof that it works. The fake switch adds in another order, so that a sum
// shows which way it took.
#include "fake_devices.hpp"

#include <collx/exec/device/switch_proof.hpp>

#include <cmath>

namespace {

using device::bit_of, device::handle_kind;
using step = fake_gpus::multicast_step;
constexpr unsigned files = bit_of(handle_kind::ipc) | bit_of(handle_kind::file);

// Rank r's element: the sum of all ranks is 1 in rank order, but 0 in the fake switch's order (the last rank first).
float cancels(int rank, int ranks) {
    return rank == 0 ? 1e8f : rank == 1 ? 1.0f : rank == 2 ? -1e8f : rank + 1 == ranks ? 1.0f : 0.0f;
}

// The mean element of one all_reduce. (A few elements of each piece are summed individually, in rank order.)
template <class Comm, class T = float>
double mean_of(Comm c, const communicator& w, fake_gpus& g, std::size_t n) {
    const int here = fake_runtime(g).current();
    device::fake_stream s(here);
    device_memory<T> x(g, here, n);
    for (std::size_t i = 0; i < n; ++i) x[i] = static_cast<T>(cancels(w.rank(), w.size()));
    all_reduce(c, x, plus{}, {.stream = &s});
    synchronize(c, {.stream = &s});
    double all = 0;
    for (std::size_t i = 0; i < n; ++i) {
        EXPECT_AT(i, x[i] == T{0} || x[i] == T{1} || x[i] == T{2});
        all += static_cast<double>(x[i]);
    }
    return all / static_cast<double>(n);
}

// The length in floats of the longest sum among so many devices that does not use a switch.
std::size_t most_without_switch(int ranks) {
    const choices::situation long_one{.bytes = choices::any_bytes, .ranks = ranks};
    return choices::find_choice(choices::switched, collective::all_reduce, long_one)->above / sizeof(float);
}

device_settings with_stages() {
    device_settings s = small();
    s.stage_bytes = 65536;
    return s;
}

} // namespace

TEST_CASE("long sums go by a switch that joins the devices, short ones and those in rank order do not") {
    for (const int ranks : {5, 7}) {
        fake_gpus g({.devices = ranks, .handles = files, .multicasts = true});
        on_gpus(ranks, g, [&](communicator& w, fake_runtime r) {
            const auto c = w.with(gpus{r});
            use_device(c, with_stages());
            at("ranks=%d: %s", ranks, device_route(c).c_str());
            EXPECT(device_route(c).find(", long sums by the switch") != std::string::npos);
            const std::size_t bound = most_without_switch(ranks);
            EXPECT(mean_of(c, w, g, bound + 64) < 0.01);
            EXPECT(mean_of(c, w, g, bound) == 1);
            EXPECT(mean_of(w.with(gpus{r}, deterministic{}), w, g, bound + 64) == 1);
            // The switch does not sum doubles.
            EXPECT((mean_of<decltype(c), double>(c, w, g, bound + 64)) == 2);
        });
        CHECK(g.joined == ranks);
        CHECK(g.pieces() == 0);
    }
}

TEST_CASE("too few devices, a shared one, and a program that wants no switch") {
    const auto joined = [](int ranks, fake_gpus::plan p, device_settings s) {
        p.handles = files;
        fake_gpus g(p);
        on_gpus(ranks, g, [&](communicator& w, fake_runtime r) {
            r.use(w.rank() % g.what().devices);
            const auto c = w.with(gpus{r});
            use_device(c, s);
            EXPECT(device_route(c).find("kernels over") == 0 && device_route(c).find("switch") == std::string::npos);
            EXPECT(mean_of(c, w, g, 1000) == 1);
        });
        CHECK(g.pieces() == 0);
        return g.joined.load();
    };
    CHECK(joined(4, {.devices = 4, .multicasts = true}, with_stages()) == 0);
    CHECK(joined(5, {.devices = 5, .multicasts = false}, with_stages()) == 0);
    device_settings shared = with_stages(); // ranks 0 and 4 share device 0
    shared.shares_device = true;
    CHECK(joined(5, {.devices = 4, .processors = 8, .multicasts = true}, shared) == 0);
    device_settings none = with_stages();
    none.multicast = false;
    CHECK(joined(5, {.devices = 5, .multicasts = true}, none) == 0);
}

TEST_CASE("where a rank cannot join the switch none does, all say which rank, and sums are as before") {
    for (const auto& [fails, place, could_not] : {std::tuple{step::make, 0, "make a multicast object"},
                                                  {step::open, 2, "open the multicast object"},
                                                  {step::join, 3, "add its device to the multicast object"},
                                                  {step::bind, 1, "bind its memory to the multicast object"}}) {
        fake_gpus g({.devices = 5, .handles = files, .multicasts = true});
        const int device = place; // clang 14: lambdas cannot capture structured bindings
        g.refuses_multicast = fails;
        g.refusing_device = device;
        const std::string said = "; not by the switch: rank " + std::to_string(device) + " could not " + could_not;
        on_gpus(5, g, [&](communicator& w, fake_runtime r) {
            const auto c = w.with(gpus{r});
            use_device(c, with_stages());
            at("%s: %s", said.c_str(), device_route(c).c_str());
            EXPECT(device_route(c).find(said) != std::string::npos);
            EXPECT((device_route(c).find("operation not supported") != std::string::npos) == (w.rank() == device));
            EXPECT(mean_of(c, w, g, most_without_switch(5) + 64) == 1);
        });
        CHECK(g.pieces() == 0);
    }
}

TEST_CASE("the proof of a switch finds a memory that it does not read, and one that it does not write") {
    constexpr int ranks = 3;
    using device::switch_proof;
    using phase = switch_proof::phase;
    // spoil(the phase that has just run, memories)
    const auto finds = [&](auto&& spoil) {
        std::vector<std::vector<device::unit16>> memory(ranks,
                                                        std::vector<device::unit16>(switch_proof::memory_bytes / 16));
        std::uint64_t wrong[ranks] = {};
        for (const phase now : {phase::write, phase::sum, phase::read, phase::clear}) {
            for (int r = 0; r < ranks; ++r) {
                switch_proof p;
                p.me = r;
                p.ranks = ranks;
                p.now = now;
                p.wrong = &wrong[r];
                for (int k = 0; k < ranks; ++k)
                    p.memory[k] = reinterpret_cast<std::byte*>(memory[static_cast<unsigned>(k)].data());
                device::twin_barrier mine(1), block(1);
                device::twin_env env(0, 1, 0, 1, mine, block);
                p(env, 0, 1);
            }
            spoil(now, memory);
        }
        for (const auto& m : memory)
            for (const auto& u : m) CHECK((u.low | u.high) == 0); // restored
        return std::vector<std::uint64_t>(wrong, wrong + ranks);
    };
    using found = std::vector<std::uint64_t>;
    CHECK(finds([](phase, auto&) {}) == found{0, 0, 0});
    CHECK(finds([](phase p, auto& m) {
              if (p == phase::write) m[1][3] = {};
          }) == found{1, 1, 1});
    CHECK(finds([](phase p, auto& m) {
              if (p == phase::sum) m[2][8] = {};
          }) == found{0, 0, 1});
}
