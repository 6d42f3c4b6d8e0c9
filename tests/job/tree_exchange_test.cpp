// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Exchanges between hosts, in which ranks pass on the words of others: what one of them changes on the way.
#include "comm/support.hpp"

#include <collx/job/tree_exchange.hpp>
#include <collx/net.hpp>

#include <cstring>

using namespace collx_test;
using collx::errc;
using collx::detail::table_messages;

namespace {

// Rank 0 of three passes on what `change` makes of the table. As exchange_over_tree() for this rank.
template <class Line, class Change>
void pass_on(collx::communicator& w, const Line& mine, Change&& change) {
    auto& c = w.internals();
    (void)c.agree(sizeof mine);
    Line table[3]{mine};
    collx::detail::open_tree(c.net);
    table_messages<collx::communicator_core> messages(c, 0, nullptr);
    messages.receive(1, reinterpret_cast<std::byte*>(table + 1), sizeof mine);
    messages.receive(2, reinterpret_cast<std::byte*>(table + 2), sizeof mine);
    change(table);
    for (const int r : {2, 1}) messages.send(r, reinterpret_cast<const std::byte*>(table), sizeof table);
    for (const int r : {2, 1}) messages.flush(r);
}

} // namespace

TEST_CASE("a rank's own words are what it said, whatever those on the way have made of them") {
    on_hosts(3, {1}, [](collx::communicator& w) {
        w.set_checked(false);
        const std::uint64_t mine = 100u + static_cast<unsigned>(w.rank());
        if (w.rank() == 0) {
            pass_on(w, mine, [](std::uint64_t* table) { table[1] = table[2] = 7; });
            EXPECT(true);
            return;
        }
        std::uint64_t heard[3] = {};
        w.internals().exchange(&mine, sizeof mine,
                               [&](int r, const std::byte* line) { std::memcpy(&heard[r], line, sizeof heard[r]); });
        EXPECT(heard[0] == 100 && heard[w.rank()] == mine && heard[3 - w.rank()] == 7);
    });
}

TEST_CASE("a place in memory that does not exist is no place: the communicator ends") {
    const auto body = [](collx::communicator& w) {
        w.set_checked(false);
        if (w.rank() != 0) {
            const auto e = thrown<collx::error>(w, [&] { (void)w.dup(); });
            EXPECT(w.rank() == 1 || (e.code() == errc::protocol && e.peer() == 1));
            return;
        }
        auto& c = w.internals();
        c.begin_collective();
        ++c.splits;
        const collx::detail::split_request same{0, 0};
        c.exchange(&same, sizeof same, [](int, const std::byte*) {});
        pass_on(w, collx::detail::split_place{collx::job::no_place, 0, 0},
                [](collx::detail::split_place* table) { table[1].offset = std::uint64_t{1} << 44; });
        (void)thrown<collx::error>(w, [&] { collx::barrier(w); });
    };
    const std::vector<int> host_of{0, 1, 1};
    collx::run_threads(host_of, [&](collx::communicator& w) { run_checked(w, body); });
}
