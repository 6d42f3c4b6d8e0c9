// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// collx-test: alone timeout=300 sanitize=nightly
//
// Parts and messages on device memory of which the two ends disagree: in length (also none), element type, verb, root
// or the number of the call. Staged, in two levels and by kernels. Such a part must never be taken for another one.
#include "levels_support.hpp"
#include "support/patience.hpp"

#include <atomic>
#include <cstring>
#include <mutex>

#include <collx/gpu/device_group.hpp>

namespace {

using counts = std::vector<std::size_t>;
using floats = device_memory<float>;

struct way {
    const char* name;
    hosts at;
    bool staged;
    int odd; // the rank that disagrees with rank 0
};
const way by_kernels{"by kernels", {0, 0}, false, 1}, staged{"staged", {0, 0}, true, 1},
    over_sockets{"between hosts", {0, 1}, false, 1}, across{"to another domain", {0, 0, 1, 1}, false, 3},
    inside{"inside a domain", {0, 0, 1, 1}, false, 1};
const std::vector<way> all_ways{by_kernels, staged, over_sockets, across, inside};
const std::vector<way> staged_ways{staged, over_sockets, across};

struct buffers {
    memory in, out, in2, out2;
    floats real, real_out;
    buffers(fake_gpus& g, int me)
        : in(g, me, 20'000, 1000 + me), out(g, me, 20'000, -1), in2(g, me, 20'000, 2000 + me), out2(g, me, 20'000, -1),
          real(g, me, 20'000, 0.5f), real_out(g, me, 20'000) {}
};
device_view<int> cut(const memory& m, std::size_t n) { return {m.data(), n}; }

// Runs calls(rank, communicator, buffers) on all ranks, in which the odd rank and rank 0 disagree, and two barriers.
// Every rank must get a mismatch, and one of them says `text` (or `other`).
template <class F>
void all_find_out(const way& by, bool checked, const char* what, F&& calls, const char* text,
                  const char* other = nullptr) {
    fake_gpus g({.devices = 8});
    std::atomic<int> ready{0}, found{0};
    std::atomic<bool> is_said{false};
    std::mutex mutex;
    std::string all;
    const int ranks = static_cast<int>(by.at.size());
    on_device_hosts(by.at, g, [&](communicator& w, fake_runtime r, device_settings s) {
        w.set_checked(checked);
        const auto c = w.with(gpus{r});
        s.staged = by.staged;
        use_device(c, s);
        const int me = w.rank();
        at("%s, %s, checked %d", what, by.name, checked);
        const buffers b(g, me);
        struct drained { // waits before memory is freed that kernels use
            fake_runtime& runtime;
            ~drained() { runtime.synchronize(nullptr); }
        } const last{r};
        all_reduce(c, cut(b.in2, 10), collx::max{}); // correct
        synchronize(c);
        for (std::size_t i = 0; i < 10; ++i) b.in2[i] = 2000 + me;
        ++ready; // no error may come while a rank is still in the call before
        until([&] { return ready.load() == ranks; });
        const auto e = thrown<error>(w, [&] {
            calls(me, c, b);
            synchronize(c);
            for (int k = 0; k < 2; ++k) {
                barrier(c, device_call_options{});
                synchronize(c);
            }
        });
        at("%s, %s, checked %d: %s", what, by.name, checked, e.what());
        ++found;
        EXPECT(e.code() == errc::mismatch);
        until([&] { return found.load() == ranks; }); // a rank that ends early has failed to others
        if (says(e, text) || (other != nullptr && says(e, other))) is_said = true;
        const std::lock_guard here(mutex);
        all += std::string(e.what()) + '\n';
    });
    INFO(what << ", " << by.name << ", checked " << checked << ":\n" << all);
    CHECK(is_said.load());
}

counts equal(const way& by) { return counts(by.at.size(), 100); }
counts but(counts c, int rank, std::size_t n) {
    c[static_cast<std::size_t>(rank)] = n;
    return c;
}

} // namespace

TEST_CASE("a part that one end does not expect is no part of the next call") {
    for (const way& by : all_ways) {
        const counts even = equal(by), none;
        const int odd = by.odd;
        const char* received_none = "sends 400 bytes, and this rank receives 0";
        all_find_out(
            by, false, "all_to_all_v",
            [&](int me, auto& c, const buffers& b) {
                all_to_all_v(c, b.in, even, b.out, me == odd ? but(even, 0, 0) : even);
                synchronize(c);
                all_to_all_v(c, b.in2, even, b.out2, even);
            },
            received_none, "in another call");
        all_find_out(
            by, false, "gather_v",
            [&](int me, auto& c, const buffers& b) {
                gather_v(c, cut(b.in, 100), b.out, me == 0 ? but(even, odd, 0) : none);
                synchronize(c);
                gather_v(c, cut(b.in2, 100), b.out2, me == 0 ? even : none);
            },
            received_none, "in another call");
        all_find_out(
            by, false, "scatter_v",
            [&](int me, auto& c, const buffers& b) {
                scatter_v(c, b.in, cut(b.out, me == odd ? 0 : 100), me == 0 ? even : none);
                synchronize(c);
                scatter_v(c, b.in2, cut(b.out2, 100), me == 0 ? even : none);
            },
            received_none, "in another call");
        all_find_out(
            by, false, "gather of nothing",
            [&](int me, auto& c, const buffers& b) {
                gather(c, cut(b.in, me == odd ? 0 : 100), cut(b.out, 100 * even.size()));
            },
            "sends 0 bytes, and this rank receives 400", "the count is 0 on rank");
        all_find_out(
            by, false, "neighbours",
            [&](int me, auto& c, const buffers& b) {
                neighbors graph;
                if (me == 0) graph = {{odd}, {odd}};
                if (me == odd) graph = {{0}, {0}};
                const counts one(graph.sources.size(), 100);
                neighbor_all_to_all_v(c, graph, b.in, one, b.out, counts(one.size(), me == odd ? 0 : 100));
                synchronize(c);
                neighbor_all_to_all_v(c, graph, b.in2, one, b.out2, one);
            },
            received_none, "in another call");
        all_find_out(
            by, false, "all_gather_v",
            [&](int me, auto& c, const buffers& b) {
                all_gather_v(c, cut(b.in, 100), b.out, me == odd ? but(even, 0, 0) : even);
            },
            received_none, "table of counts");
    }
}

TEST_CASE("parts of another verb, type, root or call are not taken") {
    for (const way& by : all_ways) {
        const counts even = equal(by);
        const int odd = by.odd;
        all_find_out(
            by, false, "another order",
            [&](int me, auto& c, const buffers& b) {
                for (const bool first : {true, false})
                    if ((me == odd) != first) {
                        all_to_all_v(c, b.in, even, b.out, even);
                        synchronize(c);
                    } else {
                        all_gather_v(c, cut(b.in2, 100), b.out2, even);
                        synchronize(c);
                    }
            },
            "is in all_gather and this rank in all_to_all", "is in all_to_all and this rank in all_gather");
        all_find_out(
            by, false, "another type",
            [&](int me, auto& c, const buffers& b) {
                if (me == odd) all_to_all_v(c, b.real, even, b.real_out, even);
                else all_to_all_v(c, b.in, even, b.out, even);
            },
            "another element type");
        all_find_out(
            by, false, "another type, equal parts",
            [&](int me, auto& c, const buffers& b) {
                const std::size_t n = 100 * even.size();
                if (me == odd)
                    all_to_all(c, device_view<float>(b.real.data(), n), device_view<float>(b.real_out.data(), n));
                else all_to_all(c, cut(b.in, n), cut(b.out, n));
            },
            "another element type", "of another call");
        all_find_out(
            by, false, "another root first",
            [&](int me, auto& c, const buffers& b) {
                for (const bool first : {true, false}) {
                    const int root = (me == odd) != first ? 0 : 1;
                    scatter(c, cut(root == 0 ? b.in : b.in2, 100 * even.size()), cut(root == 0 ? b.out : b.out2, 100),
                            {.root = root});
                    synchronize(c);
                }
            },
            "in its collective", "the root is");
        all_find_out(
            by, false, "another verb between neighbours",
            [&](int me, auto& c, const buffers& b) {
                neighbors graph;
                if (me == 0) graph = {{odd}, {odd}};
                if (me == odd) graph = {{0}, {0}};
                if (me == odd) neighbor_all_gather(c, graph, cut(b.in, 100), cut(b.out, 100));
                else
                    neighbor_all_to_all(c, graph, cut(b.in, 100 * graph.sources.size()),
                                        cut(b.out, 100 * graph.sources.size()));
            },
            "verb between neighbours", "another element type");
    }
}

namespace {

// Sends `sent` elements from rank 0 to the odd rank, which expects `received`.
template <class Comm>
void pass(Comm& c, int odd, bool in_group, int me, const buffers& b, bool is_second, std::size_t sent,
          std::size_t received) {
    if (me != 0 && me != odd) return;
    const memory &x = is_second ? b.in2 : b.in, &y = is_second ? b.out2 : b.out;
    if (in_group) {
        device_group group(c);
        if (me == 0) group.send(cut(x, sent), odd);
        else group.recv(cut(y, received), 0);
        group.launch();
    } else if (me == 0) {
        collx::send(c, cut(x, sent), odd);
    } else {
        collx::recv(c, cut(y, received), 0);
    }
    synchronize(c);
}

} // namespace

TEST_CASE("messages without elements are messages") {
    const char* by_number = "an earlier one had elements at one of its ends only"; // what kernels find
    for (const bool checked : {false, true})
        for (const bool in_group : {false, true})
            for (const way& by : all_ways) {
                const int odd = by.odd;
                // Few and many elements: on one lane of a kernel, on two, in more pieces than there are slots.
                for (const std::size_t n : {100u, 500u, 6000u}) {
                    const std::string sends = "sends " + std::to_string(4 * n) + " bytes, and this rank receives 0",
                                      receives = "sends 0 bytes, and this rank receives " + std::to_string(4 * n);
                    all_find_out(
                        by, checked, in_group ? "none sent, groups" : "none sent",
                        [&](int me, auto& c, const buffers& b) {
                            for (std::size_t k = 0; k < 6; ++k) pass(c, odd, in_group, me, b, false, k % 2, k % 2);
                            pass(c, odd, in_group, me, b, false, 0, n);
                            pass(c, odd, in_group, me, b, true, n, n);
                        },
                        receives.c_str(), by_number);
                    all_find_out(
                        by, checked, in_group ? "none expected, groups" : "none expected",
                        [&](int me, auto& c, const buffers& b) {
                            pass(c, odd, in_group, me, b, false, n, 0);
                            pass(c, odd, in_group, me, b, true, n, n);
                        },
                        sends.c_str(), by_number);
                }
            }
}

TEST_CASE("a message of another element type is not taken, and none in the place of a collective's part") {
    for (const way& by : all_ways)
        for (const bool checked : {false, true}) {
            const int odd = by.odd;
            all_find_out(
                by, checked, "int and float",
                [&](int me, auto& c, const buffers& b) {
                    if (me == 0) collx::send(c, cut(b.in, 100), odd);
                    if (me == odd) collx::recv(c, device_view<float>(b.real.data(), 100), 0);
                },
                "another element type");
            all_find_out(
                by, checked, "int and float, in groups",
                [&](int me, auto& c, const buffers& b) {
                    device_group group(c);
                    if (me == 0) {
                        group.send(cut(b.in2, 50), odd);
                        group.send(cut(b.in, 100), odd);
                    }
                    if (me == odd) {
                        group.recv(cut(b.out, 50), 0);
                        group.recv(device_view<float>(b.real.data(), 100), 0);
                    }
                    group.launch();
                },
                "another element type");
            if (checked) continue; // a collective waits for the odd rank to compare
            all_find_out(
                by, false, "a part for a message",
                [&](int me, auto& c, const buffers& b) {
                    if (me == odd) {
                        collx::recv(c, cut(b.out, 100), 0);
                        synchronize(c);
                    }
                    gather(c, cut(b.in, 100), cut(b.out, 100 * by.at.size()), {.root = odd});
                },
                "is in gather and this rank in a message", "in another call");
        }
    for (const way& by : staged_ways)
        all_find_out(
            by, false, "one end in a group",
            [&](int me, auto& c, const buffers& b) {
                if (me == 0) collx::send(c, cut(b.in, 6000), by.odd);
                if (me != by.odd) return;
                device_group group(c);
                group.recv(cut(b.out, 6000), 0);
                group.launch();
            },
            "put both ends of a long message into a device_group, or neither");
}

TEST_CASE("kernels distinguish the element types of messages") {
    constexpr auto of = [](auto x) { return device::part_word::of_type(detail::part_kind(type_hash<decltype(x)>())); };
    const std::vector<std::uint16_t> all{of(bool()), of(std::int8_t()),  of(std::uint8_t()),  of(0.0f),
                                         of(0.0),    of(std::int16_t()), of(std::uint16_t()), of(0),
                                         of(0u),     of(std::int64_t()), of(std::uint64_t()), of(f16()),
                                         of(bf16()), of(std::byte())};
    for (std::size_t i = 0; i < all.size(); ++i)
        for (std::size_t k = 0; k < i; ++k)
            if (all[i] == all[k]) FAIL("types " << i << " and " << k);
}

TEST_CASE("what both ends agree on is taken: parts and messages without elements, long ones in pieces, refused calls") {
    for (const way& by : all_ways) {
        fake_gpus g({.devices = 8});
        on_device_hosts(by.at, g, [&](communicator& w, fake_runtime r, device_settings s) {
            const auto c = w.with(gpus{r});
            s.staged = by.staged;
            use_device(c, s);
            const int me = w.rank(), ranks = w.size(), odd = by.odd;
            const auto n = static_cast<std::size_t>(ranks);
            at("%s", by.name);
            const buffers b(g, me);
            const counts zeros(n), none;
            for (const bool checked : {false, true}) {
                w.set_checked(checked);
                for (std::size_t i = 0; i < 10'000; ++i) {
                    b.in[i] = part(me, 0, i);
                    b.out[i] = -1;
                }
                // No elements at all, or only between ranks 0 and odd, in many pieces.
                all_to_all_v(c, b.in, zeros, b.out, zeros);
                gather_v(c, cut(b.in, 0), b.out, me == 0 ? zeros : none);
                neighbor_all_to_all_v(c, neighbors{}, b.in, none, b.out, none);
                all_gather(c, cut(b.in, 0), cut(b.out, 0));
                gather(c, cut(b.in, 0), cut(b.out, 0), {.root = odd});
                // Refused on one rank alone: not a call for the others.
                if (me == odd)
                    EXPECT(thrown<invalid_argument>(w, [&] {
                               all_to_all_v(c, b.in, counts(n + 1), b.out, zeros);
                           }).code() == errc::invalid_argument);
                all_to_all_v(c, b.in, me == 0 ? but(zeros, odd, 9001) : zeros, b.out,
                             me == odd ? but(zeros, 0, 9001) : zeros);
                // More messages without elements than there are slots, at one end ahead of the other.
                for (std::size_t k = 0; k < 50; ++k) {
                    const std::size_t length = k % 10 == 0 ? 100 * k : 0;
                    if (me == 0) collx::send(c, cut(b.in, length), odd);
                    if (me == odd) collx::recv(c, cut(b.out2, length), 0);
                }
                if (me == 0) collx::send(c, cut(b.in, 5000), odd);
                if (me == odd) collx::recv(c, cut(b.out2, 5000), 0);
                barrier(c, device_call_options{});
                synchronize(c);
                for (std::size_t i = 0; i < 9001; ++i) EXPECT_AT(i, b.out[i] == (me == odd ? part(0, 0, i) : -1));
                for (std::size_t i = 0; i < 5000; ++i) EXPECT_AT(i, me != odd || b.out2[i] == part(0, 0, i));
            }
        });
        CHECK(g.pieces() == 0);
    }
}

TEST_CASE("a call that is captured on one rank and made on the other is one call") {
    for (const way& by : all_ways) {
        fake_gpus g({.devices = 8});
        on_device_hosts(by.at, g, [&](communicator& w, fake_runtime r, device_settings s) {
            const auto c = w.with(gpus{r});
            s.staged = by.staged;
            use_device(c, s);
            const int me = w.rank(), root = by.odd;
            const std::size_t ranks = by.at.size();
            at("%s", by.name);
            device::fake_stream stream(me);
            const buffers b(g, me);
            const auto call = [&] {
                scatter(c, cut(b.in, 100 * ranks), cut(b.out, 100), {.stream = &stream, .root = root});
            };
            call();
            if (me == 0) {
                fake_runtime::begin_capture(stream);
                call();
                const auto graph = fake_runtime::end_capture(stream);
                for (int k = 0; k < 3; ++k) fake_runtime::launch(graph, stream);
                synchronize(c, {.stream = &stream});
            } else {
                for (int k = 0; k < 3; ++k) call();
            }
            call();
            synchronize(c, {.stream = &stream});
            for (std::size_t i = 0; i < 100; ++i) EXPECT_AT(i, b.out[i] == 1000 + root);
        });
        CHECK(g.pieces() == 0);
    }
}

TEST_CASE("a staged part is announced in one message, also an empty one of a collective") {
    fake_gpus g;
    on_device_hosts(over_sockets.at, g, [&](communicator& w, fake_runtime r, const device_settings& s) {
        const auto c = w.with(gpus{r});
        use_device(c, s);
        const int me = w.rank(), peer = 1 - me;
        const buffers b(g, me);
        auto& group = detail::gpu_group<fake_runtime>::of(w, r, nullptr);
        const auto expect = [&](const char* what, std::uint64_t messages, std::uint64_t bytes, auto&& call) {
            synchronize(c);
            barrier(w); // no proxy is working any more
            const auto before = group.sent_to(peer);
            barrier(w);
            call();
            synchronize(c);
            barrier(w);
            const auto after = group.sent_to(peer);
            at("%s: %llu messages, %llu bytes", what, static_cast<unsigned long long>(after.messages - before.messages),
               static_cast<unsigned long long>(after.bytes - before.bytes));
            EXPECT(after.messages - before.messages == messages && after.bytes - before.bytes == bytes);
        };
        constexpr std::uint64_t words = sizeof(detail::part_words);
        const counts even(2, 100), self = but(counts(2), me, 100);
        expect("full", 2, words + 400, [&] { all_to_all_v(c, b.in, even, b.out, even); });
        expect("empty", 1, words, [&] { all_to_all_v(c, b.in, self, b.out, self); });
        expect("gather", me == 1 ? 2 : 0, me == 1 ? words + 400 : 0,
               [&] { gather(c, cut(b.in, 100), cut(b.out, 200)); });
        expect("message", me == 0 ? 2 : 0, me == 0 ? words + 400 : 0, [&] {
            if (me == 0) collx::send(c, cut(b.in, 100), 1);
            else collx::recv(c, cut(b.out, 100), 0);
        });
        expect("no neighbours", 0, 0, [&] { neighbor_all_to_all_v(c, neighbors{}, b.in, counts{}, b.out, counts{}); });
    });
}
