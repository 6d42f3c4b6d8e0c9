// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// collx-test: timeout=300 sanitize=address,nightly
//
// Collectives that return their result and determine sizes themselves.
#include "support.hpp"
#include "support/computed.hpp"
#include "support/no_room.hpp"
#include "support/one_limit.hpp"

#include <array>
#include <chrono>
#include <complex>
#include <numeric>
#include <stdexcept>
#include <string>
#include <utility>

#include <collx/comm/by_value.hpp>

using namespace collx_test;
using namespace std::chrono_literals;
namespace by_value = collx::by_value;

namespace {

std::string name_of_rank(int r) { return std::string(static_cast<std::size_t>(r * 7), 'x') + std::to_string(r); }

} // namespace

TEST_CASE("reductions return a value for a value and a list for a tensor, and leave their argument alone") {
    for (const int ranks_per_host : {0, 2})
        for (const int n : {1, 2, 5})
            on_hosts(n, {ranks_per_host}, [n](collx::communicator& w) {
                const int me = w.rank();
                EXPECT(by_value::all_reduce(w, 0.5) == 0.5 * n);
                EXPECT(by_value::all_reduce(w, me, collx::max{}) == n - 1);
                EXPECT(by_value::scan(w, me) == me * (me + 1) / 2);
                EXPECT(by_value::exclusive_scan(w, 2L) == 2L * me); // 0 on rank 0
                for (const std::size_t size : {0u, 1u, 3000u}) {
                    auto x = samples(me, size); // not const, yet nothing may be written there
                    const auto sum = by_value::all_reduce(w, x);
                    const auto most = by_value::reduce(w, x, collx::max{}, {.root = n - 1});
                    const auto so_far = by_value::scan(w, x);
                    EXPECT(x == samples(me, size) && sum.size() == size && most.size() == size);
                    for (std::size_t i = 0; i < size; ++i) {
                        EXPECT_AT(i, sum[i] == folded(i, 0, n) && so_far[i] == folded(i, 0, me + 1));
                        EXPECT_AT(i, me != n - 1 || most[i] == folded(i, 0, n, collx::max{}));
                    }
                }
                const std::vector<int> whole(static_cast<std::size_t>(n) * 3, me + 1);
                EXPECT(by_value::reduce_scatter(w, whole) == std::vector<int>(3, n * (n + 1) / 2));
                if (n == 1) return; // one divides every count
                const auto e = thrown<collx::invalid_argument>(
                    w, [&] { (void)by_value::reduce_scatter(w, std::vector<int>(static_cast<std::size_t>(n) + 1)); });
                EXPECT(says(e, "do not divide"));
            });
}

TEST_CASE("gathers take other sizes on each rank, strings too, and need no counts") {
    for (const int ranks_per_host : {0, 2})
        for (const int n : {1, 3})
            on_hosts(n, {ranks_per_host}, [n](collx::communicator& w) {
                const int me = w.rank();
                std::string text;
                std::vector<int> list, ranks;
                for (int r = 0; r < n; ++r) {
                    text += name_of_rank(r);
                    ranks.push_back(r);
                    list.insert(list.end(), static_cast<std::size_t>(r * 1000), r);
                }
                const std::vector<int> mine(static_cast<std::size_t>(me * 1000), me);
                EXPECT(by_value::all_gather(w, mine) == list); // rank 0 contributes nothing
                EXPECT(by_value::all_gather(w, me) == ranks);
                EXPECT(by_value::all_gather(w, name_of_rank(me)) == text);
                const auto at_root = by_value::gather(w, mine, {.root = n - 1});
                EXPECT(me == n - 1 ? at_root == list : at_root.empty());
                EXPECT(by_value::gather(w, me, {.root = 0}).size() == (me == 0 ? static_cast<std::size_t>(n) : 0));
                const std::string sent = by_value::broadcast(w, name_of_rank(me), {.root = n - 1});
                EXPECT(sent == name_of_rank(n - 1));
                EXPECT(by_value::broadcast(w, mine, {.root = n - 1}).size() ==
                       static_cast<std::size_t>((n - 1) * 1000));
                EXPECT(by_value::broadcast(w, me * 1.5, {.root = n - 1}) == (n - 1) * 1.5);
                struct point {
                    int x, y;
                };
                EXPECT(by_value::broadcast(w, point{me, 1}, {.root = n - 1}).x == n - 1);
            });
}

TEST_CASE("all_to_all and scatter take one part of any size for each rank") {
    for (const int ranks_per_host : {0, 2})
        for (const int n : {1, 3})
            on_hosts(n, {ranks_per_host}, [n](collx::communicator& w) {
                const int me = w.rank();
                std::vector<std::string> names;
                std::vector<std::vector<int>> lists;
                for (int to = 0; to < n; ++to) {
                    names.push_back(name_of_rank(me) + ">" + name_of_rank(to));
                    lists.emplace_back(static_cast<std::size_t>(me * 500 + to), 10 * me + to);
                }
                const auto heard = by_value::all_to_all(w, names);
                const auto arrived = by_value::all_to_all(w, lists);
                EXPECT(heard.size() == static_cast<std::size_t>(n));
                for (int from = 0; from < n; ++from) {
                    const auto k = static_cast<std::size_t>(from);
                    EXPECT(heard[k] == name_of_rank(from) + ">" + name_of_rank(me));
                    EXPECT(arrived[k] == std::vector<int>(static_cast<std::size_t>(from * 500 + me), 10 * from + me));
                }
                const std::string part =
                    by_value::scatter(w, me == n - 1 ? names : std::vector<std::string>(), {.root = n - 1});
                EXPECT(part == name_of_rank(n - 1) + ">" + name_of_rank(me));
                // Errors: all ranks get them, and the communicator can still be used.
                names.push_back("one too many");
                const auto e =
                    thrown<collx::invalid_argument>(w, [&] { (void)by_value::scatter(w, names, {.root = 0}); });
                EXPECT(e.peer() == 0 && says(e, "parts for"));
                EXPECT(says(thrown<collx::invalid_argument>(w, [&] { (void)by_value::all_to_all(w, names); }),
                            ("all_to_all: " + std::to_string(n + 1) + " parts for " + std::to_string(n)).c_str()));
                (void)thrown<collx::invalid_argument>(w, [&] { (void)by_value::broadcast(w, 1, {.root = n}); });
                (void)thrown<collx::invalid_argument>(w, [&] { (void)by_value::gather(w, lists[0], {.root = -1}); });
                EXPECT(by_value::all_reduce(w, 1) == n);
            });
}

TEST_CASE("messages whose receivers do not know the size") {
    for (const int ranks_per_host : {0, 1})
        for (const int n : {1, 2, 3})
            on_hosts(n, {ranks_per_host}, [n](collx::communicator& w) {
                const int me = w.rank(), next = (me + 1) % n, before = (me + n - 1) % n;
                const std::vector<int> mine(static_cast<std::size_t>(me * 9000), me); // rank 0 sends none
                const auto came = by_value::sendrecv(w, mine, next, before);
                EXPECT(came == std::vector<int>(static_cast<std::size_t>(before * 9000), before));
                EXPECT(by_value::sendrecv(w, name_of_rank(me), before, next) == name_of_rank(next));
                EXPECT(by_value::sendrecv(w, me * 0.5, next, before) == before * 0.5);
                if (n == 1) return;
                if (me == 0) {
                    by_value::send(w, name_of_rank(7), 1);
                    by_value::send(w, collx::strided(std::vector<int>{1, 2, 3, 4}.data(), 2, 3), 1);
                    by_value::send(w, 2.5, 1);
                    (void)thrown<collx::invalid_argument>(w, [&] { by_value::send(w, mine, n); });
                }
                if (me == 1) {
                    EXPECT(by_value::recv<std::string>(w, 0) == name_of_rank(7));
                    EXPECT(by_value::recv<std::vector<int>>(w, 0) == std::vector<int>{1, 4});
                    EXPECT(by_value::recv<double>(w, 0) == 2.5);
                }
                EXPECT(by_value::all_reduce(w, 1) == n);
            });
}

TEST_CASE("a message by value whose receiver expects other elements is a mismatch") {
    on_ranks(2, [](collx::communicator& w) {
        const std::vector<double> three(3);
        EXPECT(w.size() == 2);
        if (w.rank() == 0) by_value::send(w, three, 1);
        else (void)thrown<collx::mismatch>(w, [&] { (void)by_value::recv<std::vector<char>>(w, 0); });
    });
}

namespace {
struct reading {
    double mean;
    int count;
    bool operator==(const reading&) const = default;
};
struct level { // no default constructor
    explicit level(int of) : height(of) {}
    int height;
    bool operator==(const level&) const = default;
};
} // namespace

TEST_CASE("elements of class types come back by value, too") {
    on_ranks(3, [](collx::communicator& w) {
        const int me = w.rank();
        const auto add = [](const reading& a, const reading& b) { return reading{a.mean + b.mean, a.count + b.count}; };
        const std::vector<reading> mine(3, {me + 0.5, me});
        EXPECT(by_value::all_reduce(w, mine, add) == std::vector<reading>(3, {4.5, 3}));
        EXPECT(by_value::reduce_scatter(w, mine, add) == std::vector<reading>(1, {4.5, 3}));
        EXPECT(by_value::broadcast(w, mine, {.root = 1}) == std::vector<reading>(3, {1.5, 1}));
        const auto all = by_value::all_gather(w, mine), at_root = by_value::gather(w, mine);
        EXPECT(all.size() == 9 && all[8] == (reading{2.5, 2}) && at_root == (me == 0 ? all : std::vector<reading>()));
        EXPECT(by_value::scatter(w, std::vector<std::vector<reading>>(me == 0 ? 3 : 0, mine)) ==
               std::vector<reading>(3, {0.5, 0}));
        const std::vector<std::complex<float>> z(2, {1.f, static_cast<float>(me)});
        EXPECT(by_value::all_reduce(w, z)[1] == std::complex<float>(3.f, 3.f));
        const std::vector<std::pair<int, float>> p(1, {me, 0.5f});
        EXPECT(by_value::all_gather(w, p)[2].first == 2);
    });
}

TEST_CASE("elements without a default constructor come back by value, too") {
    on_hosts(3, {1}, [](collx::communicator& w) {
        const int me = w.rank();
        const auto higher = [](const level& a, const level& b) { return a.height < b.height ? b : a; };
        const std::vector<level> mine(3, level(me));
        EXPECT(by_value::all_reduce(w, mine, higher) == std::vector<level>(3, level(2)));
        EXPECT(by_value::scan(w, level(me), higher) == level(me));
        EXPECT(by_value::reduce_scatter(w, mine, higher) == std::vector<level>(1, level(2)));
        EXPECT(by_value::broadcast(w, mine, {.root = 1}) == std::vector<level>(3, level(1)));
        EXPECT(by_value::all_gather(w, mine)[8] == level(2) && by_value::all_gather(w, level(me))[1] == level(1));
        const auto at_root = by_value::gather(w, level(me));
        EXPECT(me != 0 ? at_root.empty() : at_root[2] == level(2));
        const auto arrived = by_value::all_to_all(w, std::vector<std::vector<level>>(3, mine));
        EXPECT(arrived[2] == std::vector<level>(3, level(2)));
        EXPECT(by_value::scatter(w, std::vector<std::vector<level>>(me == 0 ? 3 : 0, mine))[0] == level(0));
    });
}

TEST_CASE("options may take the operator's place") {
    on_ranks(2, [](collx::communicator& w) {
        const std::vector<int> x(4, w.rank() + 1);
        EXPECT(by_value::all_reduce(w, x, {.timeout = 5s}) == std::vector<int>(4, 3));
        EXPECT(by_value::all_reduce(w, w.rank() + 1, {.timeout = 5s}) == 3);
        EXPECT(by_value::reduce_scatter(w, x, {.timeout = 5s}) == std::vector<int>(2, 3));
        const auto at_root = by_value::reduce(w, x, {.root = 1});
        EXPECT(w.rank() != 1 || at_root == std::vector<int>(4, 3));
    });
}

TEST_CASE("what a range throws in a call by value ends the communicator at once, also if it is an error of collx") {
    const auto run = [](auto&& call) {
        for (const bool is_of_collx : {false, true})
            on_ranks(2, [&](collx::communicator& w) {
                const auto thrower = collx_test::computed(5, [&](int i) {
                    if (w.rank() == 1) return i;
                    if (is_of_collx) collx::fail(collx::errc::unsupported, 0, -1, "none", "of the range");
                    throw std::runtime_error("of the range");
                });
                const auto f = [&] { call(w, thrower); };
                if (w.rank() == 1) EXPECT(thrown<collx::aborted>(w, f).peer() == 0);
                else if (is_of_collx) EXPECT(says(thrown<collx::error>(w, f), "of the range"));
                else EXPECT(says(thrown<std::runtime_error>(w, f), "of the range"));
            });
    };
    run([](collx::communicator& w, const auto& odd) { (void)by_value::broadcast(w, odd); });
    run([](collx::communicator& w, const auto& odd) { (void)by_value::all_gather(w, odd); });
    run([](collx::communicator& w, const auto& odd) { (void)by_value::all_to_all(w, std::vector(2, odd)); });
    run([](collx::communicator& w, const auto& odd) { (void)by_value::scatter(w, std::vector(2, odd)); });
}

TEST_CASE("a wrong root is refused before counts are exchanged, so the call may be made again") {
    on_ranks(2, [](collx::communicator& w) {
        w.set_checked(false);
        const std::vector<int> x(3, w.rank());
        if (w.rank() == 1) {
            for (const auto& e :
                 {thrown<collx::error>(w, [&] { (void)collx::by_value::gather(w, x, {.root = 7}); }),
                  thrown<collx::error>(w, [&] { (void)collx::by_value::all_gather(w, x, {.root = 1}); })})
                EXPECT(e.code() == collx::errc::invalid_argument);
        }
        EXPECT(collx::by_value::gather(w, x, {.root = 0}).size() == (w.rank() == 0 ? 6u : 0u));
        EXPECT(collx::by_value::all_gather(w, x).size() == 6);
    });
}

TEST_CASE("what one rank alone gets wrong is refused before sizes are exchanged, so the call may be made again") {
    on_ranks(2, [](collx::communicator& w) {
        w.set_checked(false);
        const std::vector<std::vector<int>> parts(2, std::vector<int>(3, w.rank()));
        const auto nowhere = collx::view<const int>(nullptr, 4);
        const std::vector lists(2, nowhere);
        if (w.rank() == 1) {
            const auto is_refused = [&](auto&& call) { (void)refused(w, call, collx::errc::invalid_argument, ""); };
            is_refused([&] { (void)by_value::all_to_all(w, parts, {.root = 1}); });
            is_refused([&] { (void)by_value::all_to_all(w, lists); });
            is_refused([&] { (void)by_value::scatter(w, lists, {.root = 1}); });
            is_refused([&] { (void)by_value::broadcast(w, nowhere, {.root = 1}); });
            is_refused([&] { (void)by_value::gather(w, nowhere); });
            is_refused([&] { (void)by_value::all_gather(w, nowhere); });
        }
        EXPECT(by_value::all_to_all(w, parts)[1] == std::vector<int>(3, 1));
        EXPECT(by_value::broadcast(w, parts[0], {.root = 1}) == std::vector<int>(3, 1));
        EXPECT(by_value::all_gather(w, parts[0]).size() == 6);
    });
}

TEST_CASE("the time limit of a call by value includes the exchange of sizes") {
    using options = collx::call_options;
    expect_one_limit(
        false, [](collx::communicator& w, const auto& in, const options& o) { (void)by_value::all_gather(w, in, o); });
    expect_one_limit(
        false, [](collx::communicator& w, const auto& in, const options& o) { (void)by_value::gather(w, in, o); });
    expect_one_limit(false, [](collx::communicator& w, const auto& in, options o) {
        o.root = 1; // which copies its input after the sizes were exchanged
        (void)by_value::broadcast(w, in, o);
    });
    expect_one_limit(false, [](collx::communicator& w, const auto& in, const options& o) {
        if (w.rank() == 0) (void)by_value::recv<std::vector<int>>(w, 1, o);
        else by_value::send(w, in, 0, o);
    });
    expect_one_limit(false, [](collx::communicator& w, const auto& in, const options& o) {
        (void)by_value::sendrecv(w, in, 1 - w.rank(), 1 - w.rank(), o);
    });
}

TEST_CASE("a rank without room for a message ends the communicator, so that its sender does not wait") {
    collx_test::expect_end_without_room(
        false, [](collx::communicator& w) { (void)collx::by_value::recv<std::vector<int>>(w, 0); });
    collx_test::expect_end_without_room(
        true, [](collx::communicator& w) { (void)collx::by_value::sendrecv(w, std::vector<int>{7}, 0, 0); });
}
