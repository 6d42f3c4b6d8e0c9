// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// collx-test: timeout=180
//
// The host's thread that serves kernels, without kernels: the test stages the pieces itself.
#include <collx/gpu/proxy.hpp>

#include <cstddef>
#include <stdexcept>
#include <vector>

#include <catch2/catch.hpp>

#include "comm/support.hpp"
#include "support/patience.hpp"

using namespace collx;
using namespace collx_test;
using collx::detail::gpu_proxy;
using collx::detail::make_order;

namespace {

constexpr std::size_t buffer_bytes = 64;

// One lane, and what a kernel in it does.
struct stage {
    device::staging_words words{};
    std::vector<std::byte> in = std::vector<std::byte>(device::staging_turns * buffer_bytes);
    std::vector<std::byte> out = in;
    atomic<int> stops{0};
    atomic<std::uint64_t> left{0};

    gpu_proxy::buffers buffers() { return {&words, 1, in.data(), out.data(), buffer_bytes}; }
    gpu_proxy::served_kernels kernels() {
        return {this, [](void* self) { static_cast<stage*>(self)->stops.fetch_add(1); },
                [](void* self, const collx::links& net) {
                    static_cast<stage*>(self)->left.store(
                        collx::detail::find_left(net, net.size(), [](int k) { return k; }));
                }};
    }
    void put(std::uint64_t piece, std::uint64_t order, int value) {
        in[piece % device::staging_turns * buffer_bytes] = std::byte(value);
        words.order[piece % device::staging_orders] = order;
        __atomic_store_n(&words.staged[0], piece + 1, __ATOMIC_RELEASE);
    }
    // The result of a piece; -1 if none came or the calls were ended.
    int take(const gpu_proxy& proxy, std::uint64_t piece) const {
        for (const deadline limit = deadline::in_ns(patient(20'000'000'000)); !limit.passed();
             collx::detail::nap_ns(100'000)) {
            if (__atomic_load_n(&words.done, __ATOMIC_ACQUIRE) > piece)
                return std::to_integer<int>(out[piece % device::staging_turns * buffer_bytes]);
            if (proxy.has_ended()) break;
        }
        return -1;
    }
};

auto adding(int n) {
    return make_order(
        [n](communicator&, const std::byte* in, std::byte* out) { *out = std::byte(std::to_integer<int>(*in) + n); });
}
// The error that ended the calls, once it is there.
error cause_of(communicator& w, const gpu_proxy& proxy) {
    for (const deadline limit = deadline::in_ns(patient(20'000'000'000)); !proxy.has_ended() && !limit.passed();)
        collx::detail::nap_ns(100'000);
    return thrown<error>(w, [&] { proxy.check(); });
}
// f(world, the communicator of the proxy, the staged pieces, the proxy)
template <class F>
void with_proxy(F&& f) {
    on_ranks(1, [&](communicator& w) {
        communicator side = w.split(0);
        stage s;
        gpu_proxy proxy(w.internals(), side, s.buffers(), s.kernels());
        f(w, s, proxy);
    });
}

} // namespace

TEST_CASE("orders are carried out once each, those in a graph as often as they are staged") {
    with_proxy([](communicator& w, stage& s, gpu_proxy& proxy) {
        const std::uint64_t first = proxy.add(adding(1), false), often = proxy.add(adding(10), true),
                            refused = proxy.add(adding(50), false), last = proxy.add(adding(3), false);
        proxy.drop(refused);
        proxy.drop(refused + 100); // there is none
        const std::uint64_t staged[] = {often, first, often, last, often};
        const int expected[] = {10, 2, 12, 6, 14};
        for (std::uint64_t piece = 0; piece < 5; ++piece) {
            s.put(piece, staged[piece], static_cast<int>(piece));
            proxy.ring();
            EXPECT_AT(piece, s.take(proxy, piece) == expected[piece]);
        }
        proxy.check();
        EXPECT(s.stops.load() == 0);
    });
}

TEST_CASE("a piece for an order that does not exist ends the calls, and stops the kernels once") {
    for (const bool was_carried_out : {false, true})
        with_proxy([&](communicator& w, stage& s, gpu_proxy& proxy) {
            std::uint64_t piece = 0, order = 77;
            if (was_carried_out) {
                s.put(piece, order = proxy.add(adding(1), false), 4);
                proxy.ring();
                EXPECT(s.take(proxy, piece++) == 5);
            }
            s.put(piece, order, 4);
            proxy.ring();
            const error e = cause_of(w, proxy);
            EXPECT(e.code() == errc::protocol && says(e, "which does not exist"));
            EXPECT(s.take(proxy, piece) == -1);
            proxy.end(error(errc::timeout, 0, -1, "later", ""));
            EXPECT(s.stops.load() == 1);
            EXPECT(thrown<error>(w, [&] { proxy.check(); }).code() == errc::protocol); // the first one stays
        });
}

TEST_CASE("kernels learn which ranks have left") {
    on_ranks(2, [&](communicator& w) {
        communicator side = w.split(0);
        stage s;
        const gpu_proxy proxy(w.internals(), side, s.buffers(), s.kernels());
        barrier(w);
        if (w.rank() == 1) side.internals().net.say_end();
        until([&] { return s.left.load() == 2; });
        EXPECT(!proxy.has_ended());
        barrier(w);
    });
}

TEST_CASE("what an order throws ends the calls") {
    with_proxy([](communicator& w, stage& s, gpu_proxy& proxy) {
        s.put(0,
              proxy.add(make_order([](communicator&, const std::byte*, std::byte*) {
                            throw std::runtime_error("no sum today");
                        }),
                        false),
              1);
        proxy.ring();
        const error e = cause_of(w, proxy);
        EXPECT(e.code() == errc::aborted && says(e, "no sum today") && says(e, "threw on the host"));
        EXPECT(s.stops.load() == 1);
    });
}
