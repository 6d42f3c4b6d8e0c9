// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// The installed contract suite: every channel of the library passes it, and the suite reports each planted defect
// with the name of the violated rule.
#include <collx/testing/archetypes.hpp>
#include <collx/testing/channel_contract.hpp>
#include <collx/transport/custom_links.hpp>
#include <collx/transport/memory.hpp>
#include <collx/transport/shm.hpp>
#include <collx/transport/stream.hpp>

#include <sys/socket.h>

#include <deque>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include <catch2/catch.hpp>

#include "support/patience.hpp"
#include "transport/connections.hpp"

namespace {

using namespace collx::testing;
constexpr std::size_t small = std::size_t{64} << 20;

// A channel in memory: shared by threads, or a sealed memfd, of which both ends use one mapping here.
struct arena_link {
    collx::counted_ptr<collx::arena> memory;
    std::byte* base;
    collx::sending_end sending;
    collx::receiving_end receiving;
    arena_link(collx::counted_ptr<collx::arena> m, collx::channel_shape s)
        : memory(std::move(m)), base(memory->at(memory->take(s.bytes()))), sending(base, s), receiving(base, s) {}
    auto& tx() { return sending; }
    auto& rx() { return receiving; }
    void move_sender() {}
    void move_receiver() {}
};
// A channel over a connection.
struct stream_link {
    collx::stream left, right;
    collx::sending_end sending;
    collx::receiving_end receiving;
    stream_link(int family, collx::channel_shape s)
        : left(collx::system_socket_calls, s, 1), right(collx::system_socket_calls, s, 1) {
        auto [a, b] = collx_test::connection(family);
        left.open(std::move(a), false);
        right.open(std::move(b), false);
        sending = left.tx(0);
        receiving = right.rx(0);
    }
    auto& tx() { return sending; }
    auto& rx() { return receiving; }
    void move_sender() { left.move(); }
    void move_receiver() { right.move(); }
};

} // namespace

TEST_CASE("channels over memory keep the contract, with exactly their depth of room") {
    for (const int depth : {1, 2, 3, 16})
        for (const bool is_memfd : {false, true}) {
            const collx::channel_shape shape{.depth = depth, .slot_bytes = 8192};
            const auto r = check_channel(
                [&] {
                    return arena_link(is_memfd ? collx::join_shm(nullptr, 0, 1, {}, small)
                                               : collx::make_memory_arena(2, small),
                                      shape);
                },
                {.most_bytes = 8192, .least_messages = depth, .most_messages = depth});
            INFO("depth " << depth << "\n" << r.text());
            CHECK(r.is_clean());
        }
}

TEST_CASE("channels over connections keep the contract") {
    for (const int family : {AF_INET, AF_UNIX})
        for (const int depth : {1, 4}) {
            const collx::channel_shape shape{.depth = depth, .slot_bytes = 65536};
            const auto r = check_channel([&] { return stream_link(family, shape); },
                                         {.most_bytes = 65536,
                                          .least_messages = depth,
                                          .most_messages = 2 * depth,
                                          .limit_ns = collx_test::patient(30'000'000'000)});
            INFO("depth " << depth << "\n" << r.text());
            CHECK(r.is_clean());
        }
}

namespace {

// Messages and state of a program's own transport between two ranks, per receiver.
struct wire {
    std::deque<std::vector<std::byte>> to[2];
    bool is_gone[2] = {};
};
class wire_endpoint final : public collx::detail::custom_endpoint {
public:
    wire_endpoint(wire& m, int rank) : wire_(m), mine_(m.to[rank]) {}
    collx::endpoint_address address() override { return {}; }
    void connect(int, const collx::endpoint_address&) override {}
    std::size_t most_bytes() override { return 1000; }
    std::byte* try_acquire(int peer, std::size_t bytes) override {
        if (wire_.to[peer].size() == 8) return nullptr;
        next_.resize(bytes);
        return next_.data();
    }
    void commit(int peer, std::size_t) override { wire_.to[peer].push_back(next_); }
    bool is_drained(int peer) override { return wire_.to[peer].empty(); }
    const std::byte* peek(int, std::size_t& bytes) override {
        if (mine_.empty()) return nullptr;
        bytes = mine_.front().size();
        return mine_.front().data();
    }
    void release(int, std::size_t) override { mine_.pop_front(); }
    void move() override {}
    bool is_gone(int peer) override { return wire_.is_gone[peer]; }

private:
    wire& wire_;
    std::deque<std::vector<std::byte>>& mine_;
    std::vector<std::byte> next_;
};
// One rank of a communicator of two.
struct custom_side {
    collx::counted_ptr<collx::detail::custom_hub> hub;
    collx::atomic<std::uint64_t> failed{0};
    collx::detail::custom_links links;
    custom_side(wire& m, int rank, collx::channel_shape s)
        : hub(collx::make_counted<collx::detail::custom_hub>(collx::make_sole<wire_endpoint>(m, rank), 2)),
          links(hub, {.id = 5, .rank = rank, .ranks = {0, 1}, .shape = s, .ports = 1}) {
        hub->connect(1 - rank, {});
    }
};
struct custom_link {
    std::unique_ptr<wire> carried = std::make_unique<wire>();
    std::unique_ptr<custom_side> left, right;
    collx::sending_end sending;
    collx::receiving_end receiving;
    explicit custom_link(collx::channel_shape s, bool begins = true)
        : left(std::make_unique<custom_side>(*carried, 0, s)), right(std::make_unique<custom_side>(*carried, 1, s)) {
        left->links.begin(left->failed);
        if (begins) right->links.begin(right->failed);
        sending = left->links.tx(0, 1);
        receiving = right->links.rx(0, 0);
    }
    auto& tx() { return sending; }
    auto& rx() { return receiving; }
    void move_sender() { left->links.move(); }
    void move_receiver() { right->links.move(); }
};

} // namespace

TEST_CASE("channels over a transport of a program's own keep the contract") {
    for (const int depth : {1, 4}) {
        const collx::channel_shape shape{.depth = depth, .slot_bytes = 8192};
        const auto r =
            check_channel([&] { return custom_link(shape); }, {.most_bytes = 8192,
                                                               .least_messages = depth,
                                                               .most_messages = 2 * depth,
                                                               .limit_ns = collx_test::patient(5'000'000'000)});
        INFO("depth " << depth << "\n" << r.text());
        CHECK(r.is_clean());
    }
}

TEST_CASE("over a transport of a program's own, a message waits for its communicator, and news of failures travel") {
    custom_link l({.depth = 4, .slot_bytes = 8192}, false);
    std::memset(l.tx().try_acquire(3000), 7, 3000);
    l.tx().commit(3000, 1);
    l.move_sender();
    l.move_receiver();
    CHECK_FALSE(l.rx().has_message());
    {
        const collx::detail::lock_held here(l.right->hub->lock());
        l.right->hub->move(); // in a call of another communicator
    }
    l.right->links.begin(l.right->failed);
    l.move_receiver();
    REQUIRE((l.rx().has_message() && l.rx().is_expected(3000, 1)));
    CHECK(l.rx().peek(3000)[2999] == std::byte{7});

    l.left->failed.store(collx::failure(collx::errc::aborted, 0).word);
    l.move_sender();
    l.move_receiver();
    const collx::failure heard(l.right->failed.load());
    CHECK((heard && heard.code() == collx::errc::aborted && heard.rank() == 0));

    CHECK(l.right->links.find_gone(0, 1) == -1);
    l.carried->is_gone[0] = true;
    CHECK(l.right->links.find_gone(0, 2) == 0);
}

TEST_CASE("the archetype keeps the contract") {
    const auto r = check_channel([] { return queue_link(); }, {.least_messages = 4, .most_messages = 4});
    INFO(r.text());
    CHECK(r.is_clean());
}

namespace {

// The archetype with one defect.
enum class defect {
    reorders,
    drops_last_byte,
    drops_one,
    doubles_one,
    ignores_depth,
    overwrites_when_full,
    shows_too_early,
    says_drained_too_early,
    never_drained,
    moves_what_was_peeked,
    changes_what_was_peeked,
    lies_about_size,
    keeps_room,
    mixes_content,
    holds_the_last_back,
    takes_room_again,
    refuses_when_empty,
    sends_what_was_acquired_twice
};
struct broken_link {
    defect what;
    message_queue q;
    std::uint64_t commits = 0, lost = 0;
    bool is_acquired = false; // and not committed
    std::vector<std::byte> shown;

    struct sending {
        broken_link& l;
        std::byte* try_acquire(std::size_t bytes) {
            auto& q = l.q;
            if (l.what == defect::refuses_when_empty && l.commits == 0) return nullptr;
            const bool is_full = q.committed.size() + q.arrived.size() + l.lost >= q.depth;
            if (is_full && l.what != defect::ignores_depth && l.what != defect::overwrites_when_full) return nullptr;
            if (is_full && l.what == defect::overwrites_when_full && !q.arrived.empty()) q.arrived.pop_back();
            const bool is_again = std::exchange(l.is_acquired, true);
            if (l.what == defect::takes_room_again && is_again) ++l.lost;
            if (l.what == defect::sends_what_was_acquired_twice && is_again) q.committed.push_back(q.acquired);
            q.acquired.resize(bytes + 1);
            if (l.what == defect::shows_too_early) q.arrived.push_back(q.acquired);
            return q.acquired.data();
        }
        void commit(std::size_t bytes) {
            auto& q = l.q;
            ++l.commits;
            l.is_acquired = false;
            q.acquired.resize(bytes);
            if (l.what == defect::shows_too_early) return void(q.arrived.back() = q.acquired);
            if (l.what == defect::drops_one && l.commits % 7 == 0) return;
            if (l.what == defect::mixes_content && bytes > 100) q.acquired[70] ^= std::byte{1};
            if (l.what == defect::drops_last_byte && bytes > 1) q.acquired.back() = std::byte{};
            q.committed.push_back(q.acquired);
            if (l.what == defect::doubles_one && l.commits % 5 == 0) q.committed.push_back(q.acquired);
        }
        bool is_drained() {
            if (l.what == defect::says_drained_too_early) return true;
            return l.what == defect::never_drained ? l.commits == 0 : l.q.committed.empty();
        }
    };
    struct receiving {
        broken_link& l;
        bool has_message() { return !l.q.arrived.empty(); }
        std::size_t message_bytes() { return l.q.arrived.front().size() + (l.what == defect::lies_about_size ? 1 : 0); }
        const std::byte* peek(std::size_t) {
            if (l.what == defect::lies_about_size) l.q.arrived.front().reserve(l.q.arrived.front().size() + 1);
            if (l.what != defect::moves_what_was_peeked) return l.q.arrived.front().data();
            std::vector<std::byte> there = l.q.arrived.front();
            l.shown.swap(there);
            return l.shown.data();
        }
        void release(std::size_t) {
            l.q.arrived.pop_front();
            if (l.what == defect::keeps_room) ++l.lost;
        }
    };
    sending sends{*this};
    receiving receives{*this};

    explicit broken_link(defect d) : what(d) {}
    broken_link(const broken_link&) = delete;
    sending& tx() { return sends; }
    receiving& rx() { return receives; }
    void move_sender() {
        if (what == defect::reorders && q.committed.size() > 1) std::swap(q.committed[0], q.committed[1]);
        const std::size_t held_back = what == defect::holds_the_last_back ? 1 : 0;
        for (; q.committed.size() > held_back; q.committed.pop_front()) {
            if (what == defect::changes_what_was_peeked && !q.arrived.empty() && !q.arrived.front().empty())
                q.arrived.front()[0] ^= std::byte{1};
            q.arrived.push_back(q.committed.front());
            if (what == defect::reorders && q.arrived.size() > 2) std::swap(q.arrived[1], q.arrived[2]);
        }
    }
    void move_receiver() {}
};

} // namespace

TEST_CASE("each planted defect is found by the rule that it breaks") {
    const auto found = [](defect d) {
        return check_channel([&] { return broken_link(d); },
                             {.least_messages = 4, .most_messages = 4, .limit_ns = 200'000'000});
    };
    const struct {
        defect what;
        const char* rule;
    } all[] = {{defect::reorders, "order"},
               {defect::drops_last_byte, "content"},
               {defect::drops_one, "order"},
               {defect::doubles_one, "order"},
               {defect::ignores_depth, "credit"},
               {defect::overwrites_when_full, "credit"},
               {defect::shows_too_early, "commit"},
               {defect::says_drained_too_early, "drained"},
               {defect::never_drained, "drained"},
               {defect::moves_what_was_peeked, "stay"},
               {defect::changes_what_was_peeked, "stay"},
               {defect::lies_about_size, "size"},
               {defect::keeps_room, "room"},
               {defect::mixes_content, "content"},
               {defect::holds_the_last_back, "arrival"},
               {defect::takes_room_again, "commit"},
               {defect::refuses_when_empty, "room"},
               {defect::sends_what_was_acquired_twice, "commit"}};
    for (const auto& row : all) {
        const auto r = found(row.what);
        INFO("defect " << static_cast<int>(row.what) << ", expected: " << row.rule << ", found:\n" << r.text());
        CHECK(r.names(row.rule));
    }
}
