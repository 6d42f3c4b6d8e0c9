// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// collx-test: needs=cereal
//
// Ranks exchange objects that cereal can serialise.
#include "comm/support.hpp"
#include "support/no_room.hpp"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <map>
#include <memory>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include <cereal/types/map.hpp>
#include <cereal/types/memory.hpp>
#include <cereal/types/string.hpp>
#include <cereal/types/vector.hpp>

#include <collx/interop/cereal.hpp>

using namespace collx_test;
namespace objects = collx::objects;

namespace {

struct settings {
    std::map<std::string, std::vector<double>> rates;
    std::shared_ptr<int> limit;
    bool is_bad = false, fails = false;
    template <class Archive>
    void serialize(Archive& archive) {
        if (fails) collx::fail(collx::errc::resource, -1, -1, "", "of another communicator, for example");
        if (is_bad) throw wrong("mine");
        archive(rates, limit);
    }
    bool operator==(const settings& o) const { return rates == o.rates && *limit == *o.limit; }
};
settings settings_of(int r) {
    settings s;
    for (int k = 0; k <= r; ++k)
        s.rates[std::string(static_cast<std::size_t>(k * 20), 'k') + std::to_string(r)] = {1.5 * k, 2.5 * r};
    s.limit = std::make_shared<int>(r * 100);
    return s;
}

} // namespace

TEST_CASE("objects of other sizes on each rank travel by all calls") {
    for (const int ranks_per_host : {0, 2})
        for (const int n : {1, 3})
            on_hosts(n, {ranks_per_host}, [n](collx::communicator& w) {
                const int me = w.rank();
                EXPECT(objects::broadcast(w, settings_of(me), {.root = n - 1}) == settings_of(n - 1));
                const auto all = objects::all_gather(w, settings_of(me));
                const auto at_root = objects::gather(w, settings_of(me), {.root = n - 1});
                EXPECT(all.size() == static_cast<std::size_t>(n));
                EXPECT(at_root.size() == (me == n - 1 ? static_cast<std::size_t>(n) : 0));
                std::vector<settings> outgoing;
                for (int r = 0; r < n; ++r) {
                    EXPECT(all[static_cast<std::size_t>(r)] == settings_of(r));
                    EXPECT(me != n - 1 || at_root[static_cast<std::size_t>(r)] == settings_of(r));
                    outgoing.push_back(settings_of(10 * me + r));
                }
                const auto arrived = objects::all_to_all(w, outgoing);
                for (int r = 0; r < n; ++r) EXPECT(arrived[static_cast<std::size_t>(r)] == settings_of(10 * r + me));
                EXPECT(objects::scatter(w, me == 0 ? outgoing : std::vector<settings>()) == settings_of(me));
                if (me == 0 && n > 1) objects::send(w, settings_of(5), 1);
                if (me == 1) EXPECT(objects::recv<settings>(w, 0) == settings_of(5));
                const int next = (me + 1) % n, before = (me + n - 1) % n;
                EXPECT(objects::sendrecv(w, settings_of(me), next, before) == settings_of(before));
                const auto e = thrown<collx::invalid_argument>(
                    w, [&] { (void)objects::scatter(w, std::vector<settings>(7, settings_of(0))); });
                EXPECT(says(e, "parts for"));
            });
}

TEST_CASE("an object that throws while it is written ends the communicator, on all ranks") {
    on_ranks(2, [](collx::communicator& w) {
        settings s = settings_of(w.rank());
        s.is_bad = w.rank() == 1;
        if (s.is_bad) (void)thrown<wrong>(w, [&] { (void)objects::all_gather(w, s); });
        else (void)thrown<collx::aborted>(w, [&] { (void)objects::all_gather(w, s); });
    });
    on_ranks(2, [](collx::communicator& w) {
        settings s = settings_of(w.rank());
        s.fails = w.rank() == 1;
        if (s.fails)
            EXPECT(thrown<collx::error>(w, [&] { (void)objects::all_gather(w, s); }).code() == collx::errc::resource);
        else (void)thrown<collx::aborted>(w, [&] { (void)objects::all_gather(w, s); });
    });
}

TEST_CASE(
    "what is read as another type than it was written names the rank that sent it, and the communicator goes on") {
    on_ranks(2, [](collx::communicator& w) {
        for (const bool is_longer : {true, false}) {
            if (w.rank() == 0 && is_longer) objects::send(w, std::vector<int>{1, 2}, 1);
            else if (w.rank() == 0) objects::send(w, 7, 1);
            else {
                const auto e = thrown<collx::mismatch>(w, [&] {
                    if (is_longer) (void)objects::recv<int>(w, 0);
                    else (void)objects::recv<std::vector<int>>(w, 0);
                });
                EXPECT(e.peer() == 0 && says(e, "from rank 0 is no object of this type"));
            }
            EXPECT(objects::broadcast(w, w.rank(), {.root = 1}) == 1);
        }
    });
}

TEST_CASE("an impossible length in the bytes of another type is a mismatch") {
    on_ranks(2, [](collx::communicator& w) {
        for (const bool is_text : {false, true}) {
            // Read as a length: of more than a string can have, or, where sanitizers let it be asked for, of more than
            // there is memory.
            const bool may_ask = is_text && !COLLX_TEST_ASAN && !COLLX_TEST_TSAN;
            if (w.rank() == 0) {
                objects::send(w, may_ask ? 1.5 : -1.5, 1);
            } else {
                const auto e = thrown<collx::mismatch>(w, [&] {
                    if (is_text) (void)objects::recv<std::string>(w, 0);
                    else (void)objects::recv<std::vector<double>>(w, 0);
                });
                EXPECT(e.peer() == 0 &&
                       says(e, may_ask ? "longer than there is memory for" : "a length in it cannot be"));
            }
            EXPECT(objects::broadcast(w, w.rank(), {.root = 1}) == 1);
        }
    });
}

TEST_CASE("a rank without room for an object ends the communicator, so that its peer does not wait") {
    collx_test::expect_end_without_room(false, [](collx::communicator& w) { (void)objects::recv<int>(w, 0); });
    collx_test::expect_end_without_room(true, [](collx::communicator& w) { (void)objects::sendrecv(w, 7, 0, 0); });
}

TEST_CASE("the time limit of a call for objects includes the exchange of their lengths") {
    const auto limit = collx_test::heard_within(std::chrono::milliseconds(600));
    auto least = std::chrono::nanoseconds::max();
    for (int tries = 0; tries < 4 && least >= limit * 17 / 10; ++tries) { // one may be late because it had no core
        std::atomic<bool> has_thrown{false};
        on_ranks(2, [&](collx::communicator& w) {
            const std::size_t length = 8;
            if (w.rank() == 1) { // late, and without the second half
                std::this_thread::sleep_for(limit * 9 / 10);
                try {
                    EXPECT(collx::by_value::all_gather(w, length) == std::vector<std::size_t>(2, 8));
                } catch (const collx::error& e) {
                    EXPECT(e.peer() == 0); // which has given up already
                }
                return collx_test::until([&] { return has_thrown.load(); });
            }
            const auto begun = std::chrono::steady_clock::now();
            (void)thrown<collx::timed_out>(w, [&] { (void)objects::all_gather(w, 1.5, {.timeout = limit}); });
            least = std::min<std::chrono::nanoseconds>(least, std::chrono::steady_clock::now() - begun);
            has_thrown = true;
        });
    }
    CHECK(least < limit * 17 / 10);
}
