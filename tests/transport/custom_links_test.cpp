// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Frames that a peer must not send over a program's own transport. What it may send is tested by
// job/custom_transport_test.cpp.
#include <collx/collx.hpp>

#include <collx/job/custom_transport.hpp>

#include <cstring>
#include <memory>
#include <utility>
#include <vector>

#include <catch2/catch.hpp>

using namespace collx;
using namespace collx::detail;

namespace {

constexpr std::uint64_t id = 9;

// The endpoint of rank 0 of two. What rank 1 is to have sent is put in.
struct scripted final : custom_endpoint {
    std::vector<std::vector<std::byte>> in;
    std::size_t at = 0;
    std::vector<std::byte> out;
    int committed = 0;
    bool is_full = false, is_rank_gone = false;
    endpoint_address address() override { return {}; }
    void connect(int, const endpoint_address&) override {}
    std::size_t most_bytes() override { return 1 << 20; }
    std::byte* try_acquire(int, std::size_t bytes) override {
        if (is_full) return nullptr;
        out.resize(bytes);
        return out.data();
    }
    int moves = 0;
    struct counts {
        int committed = 0, moves = 0;
    }* counts_for = nullptr; // gets the numbers in the end
    ~scripted() override {
        if (counts_for != nullptr) *counts_for = {committed, moves};
    }
    void commit(int, std::size_t) override { ++committed; }
    bool is_drained(int) override { return true; }
    const std::byte* peek(int, std::size_t& bytes) override {
        if (at == in.size()) return nullptr;
        bytes = in[at].size();
        return in[at].data();
    }
    void release(int, std::size_t) override { ++at; }
    void move() override { ++moves; }
    bool is_gone(int) override { return is_rank_gone; }

    void put(custom_frame f, std::size_t bytes, unsigned char fill) {
        f.from = 1;
        put_as_is(f, bytes, fill);
    }
    void put_as_is(custom_frame f, std::size_t bytes, unsigned char fill) {
        if (f.communicator == 0) f.communicator = id;
        std::vector<std::byte> frame(sizeof f + bytes, std::byte{fill});
        std::memcpy(frame.data(), &f, sizeof f);
        in.push_back(std::move(frame));
    }
};

// A frame, and the number of bytes that follow it.
using sent = std::pair<custom_frame, std::size_t>;
// The failure that rank 0 sees after these frames.
failure after(const std::vector<sent>& frames, waiting_words waits = {}) {
    auto made = make_sole<scripted>();
    scripted& endpoint = *made;
    for (const auto& [frame, bytes] : frames) endpoint.put(frame, bytes, 0x41);
    const auto hub = make_counted<custom_hub>(sole_ptr<custom_endpoint>(std::move(made)), 2);
    hub->connect(1, {});
    growing_array<int> ranks;
    ranks.push_back(0);
    ranks.push_back(1);
    custom_links links(hub, {id, 0, std::move(ranks), {.depth = 4, .slot_bytes = 64 * 1024}, 1});
    atomic<std::uint64_t> failed{0};
    links.begin(failed, waits);
    links.move();
    return failure(failed.load(memory_order::acquire));
}
// The same after these parts of a message: each with the message's bytes and tag, where the part begins, and its bytes.
struct part {
    std::uint32_t bytes, tag, offset;
    std::size_t here;
};
failure after(const std::vector<part>& parts) {
    std::vector<sent> frames;
    for (const part& p : parts) frames.push_back({{.bytes = p.bytes, .tag = p.tag, .offset = p.offset}, p.here});
    return after(frames);
}
void check_protocol(const failure& f) {
    CHECK(f);
    CHECK(f.code() == errc::protocol);
    CHECK(f.rank() == 1);
}

} // namespace

TEST_CASE("while ranks still connect, a failure also goes to peers that nothing has gone to") {
    for (const bool is_young : {false, true}) {
        auto made = make_sole<scripted>();
        scripted& endpoint = *made;
        const auto hub = make_counted<custom_hub>(sole_ptr<custom_endpoint>(std::move(made)), 2);
        hub->connect(1, {});
        custom_links links(hub, {.id = id, .rank = 0, .ranks = {0, 1}, .shape = {}, .ports = 1});
        const failure why(errc::peer_failed, 0);
        collx::atomic<std::uint64_t> failed{why.word};
        links.begin(failed);
        links.announce_failure(is_young);
        REQUIRE(endpoint.out.size() == (is_young ? sizeof(custom_frame) : 0));
        if (!is_young) continue;
        custom_frame f;
        std::memcpy(&f, endpoint.out.data(), sizeof f);
        CHECK(f.what == custom_frame::kind::failure);
        CHECK((std::uint64_t{f.tag} << 32 | f.bytes) == why.word);
    }
}

TEST_CASE("all parts of a message state one length and one tag") {
    CHECK_FALSE(after({{300, 5, 0, 100}, {300, 5, 100, 200}}));
    for (const auto& wrong : std::vector<std::vector<part>>{
             {{100, 0, 0, 10}, {64 * 1024, 0, 10, 1000}}, // short, then long: it has no place in the ring
             {{300, 0, 0, 200}, {100, 0, 200, 100}},      // less than has come
             {{300, 5, 0, 100}, {300, 6, 100, 200}},
             {{300, 5, 0, 100}, {300, 5, 100, 201}}})
        check_protocol(after(wrong));
}

TEST_CASE("a failure that names no rank of the communicator is not believed") {
    const auto naming = [](int rank) {
        const std::uint64_t word = failure(errc::peer_failed, rank).word;
        return after(std::vector<sent>{{{.what = custom_frame::kind::failure,
                                         .bytes = static_cast<std::uint32_t>(word),
                                         .tag = static_cast<std::uint32_t>(word >> 32)},
                                        0}});
    };
    CHECK(naming(1).word == failure(errc::peer_failed, 1).word);
    for (const int none : {2, 1000}) check_protocol(naming(none));
}

TEST_CASE("a peer has taken no more than was sent, and sends no more than there is room for") {
    const auto credit = [](std::uint32_t taken) {
        return after(std::vector<sent>{{{.what = custom_frame::kind::credit, .taken = taken}, 0}});
    };
    CHECK_FALSE(credit(0));
    check_protocol(credit(5));
    CHECK_FALSE(after(std::vector<part>(4, {8, 0, 0, 8})));
    check_protocol(after(std::vector<part>(5, {8, 0, 0, 8})));
}

TEST_CASE("a peer says who waits for whom of ranks that there are") {
    std::vector<atomic<std::uint64_t>> table(1001); // of which two places are in use
    const auto says = [&](std::uint32_t rank, std::uint32_t awaited) {
        return after(std::vector<sent>{{{.what = custom_frame::kind::waiting, .bytes = awaited + 1, .tag = rank}, 0}},
                     {table.data(), 2});
    };
    CHECK_FALSE(says(1, 0));
    CHECK(waiting_word(table[1].load(memory_order::relaxed)).peer() == 0);
    check_protocol(says(1000, 0));
    check_protocol(says(1, 2));
}

namespace {

// Rank 0 of three, with a channel to rank 1 only.
struct rank_zero {
    scripted* endpoint;
    counted_ptr<custom_hub> hub;
    atomic<std::uint64_t> failed{0};
    custom_links links;
    explicit rank_zero(sole_ptr<scripted> made = make_sole<scripted>())
        : endpoint(made.get()), hub(make_counted<custom_hub>(sole_ptr<custom_endpoint>(std::move(made)), 3)),
          links(hub, {.id = id, .rank = 0, .ranks = {0, 1, 2}, .shape = {.depth = 4, .slot_bytes = 4096}, .ports = 2}) {
        hub->connect(1, {});
    }
    failure seen() const { return failure(failed.load(memory_order::acquire)); }
};
using frame_kind = custom_frame::kind;

} // namespace

TEST_CASE("who has said goodbye is gone for those who wait for it, and is sent nothing more") {
    for (const bool says_bye : {false, true}) {
        rank_zero zero;
        zero.links.begin(zero.failed);
        sending_end tx = zero.links.tx(0, 1);
        zero.endpoint->put({.what = says_bye ? frame_kind::bye : frame_kind::credit}, 0, 0);
        zero.links.move();
        CHECK_FALSE(zero.seen());
        CHECK(zero.links.find_gone(1, now_ns()) == (says_bye ? 1 : -1));
        CHECK(zero.links.find_gone(2, now_ns()) == -1);
        CHECK(zero.links.find_gone(-1, now_ns()) == -1);
        zero.links.say_waiting();
        REQUIRE(tx.try_acquire(8) != nullptr);
        tx.commit(8);
        zero.links.say_bye();
        CHECK((zero.endpoint->committed == 0) == says_bye);
    }
}

TEST_CASE("a frame counts as of the rank that it came from, or not at all") {
    for (const std::uint32_t other : {0u, 2u, 3u, 1'000'000'000u}) { // itself, another rank, none
        INFO("as of rank " << other);
        rank_zero zero;
        zero.links.begin(zero.failed);
        for (const auto what : {frame_kind::message, frame_kind::credit, frame_kind::bye, static_cast<frame_kind>(0)})
            zero.endpoint->put_as_is({.what = what, .from = other, .bytes = 8}, what == frame_kind::message ? 8 : 0, 1);
        zero.links.move();
        CHECK(zero.endpoint->at == zero.endpoint->in.size());
        CHECK_FALSE(zero.seen());
        CHECK(zero.links.connections() == 0);
        for (const int peer : {1, 2}) CHECK_FALSE(zero.links.rx(0, peer).has_message());
        CHECK(zero.links.find_gone(2, now_ns()) == -1);
    }
}

TEST_CASE("a frame is of a kind and a port that there are") {
    for (const std::uint8_t port : {2, 7, 8, 255})
        for (const auto what : {frame_kind::message, frame_kind::credit})
            check_protocol(after(std::vector<sent>{{{.what = what, .at_port = port}, 0}}));
    for (const std::uint8_t none : {0, 6, 255})
        check_protocol(after(std::vector<sent>{{{.what = static_cast<frame_kind>(none)}, 0}}));
    check_protocol(after(std::vector<sent>{{{.what = frame_kind::credit}, 1}})); // with bytes behind it
}

TEST_CASE("a failure that comes after the goodbye goes to no peer") {
    rank_zero zero;
    zero.links.begin(zero.failed);
    (void)zero.links.tx(0, 1);
    zero.links.say_bye();
    const auto before = zero.endpoint->committed;
    zero.failed.store(failure(errc::aborted, 0).word);
    zero.links.announce_failure(false);
    zero.links.announce_failure(true);
    CHECK(zero.endpoint->committed == before);
}

TEST_CASE("frames of a communicator that has been left keep no room from others") {
    constexpr int more_than_are_kept = 5000;
    rank_zero zero;
    {
        custom_links left(zero.hub, {.id = 77, .rank = 0, .ranks = {0, 1}, .shape = {}, .ports = 1});
        atomic<std::uint64_t> failed{0};
        left.begin(failed);
        left.say_bye();
    }
    zero.links.begin(zero.failed);
    for (int i = 0; i < more_than_are_kept; ++i)
        zero.endpoint->put({.communicator = 77, .what = frame_kind::credit}, 0, 0);
    zero.endpoint->put({.bytes = 8}, 8, 1);
    zero.links.move();
    CHECK(zero.endpoint->at == more_than_are_kept + 1);
    CHECK(zero.links.rx(0, 1).has_message());
}

TEST_CASE("frames for a communicator that is not made yet are kept up to a limit, and the others wait in the channel") {
    constexpr std::size_t more_than_are_kept = 5000;
    rank_zero zero;
    for (std::size_t i = 0; i < more_than_are_kept; ++i) zero.endpoint->put({.what = frame_kind::credit}, 0, 0);
    zero.endpoint->put({.bytes = 8}, 8, 1);
    {
        const lock_held here(zero.hub->lock());
        zero.hub->move(); // in a call of another communicator
    }
    CHECK(zero.endpoint->at > 1000);
    CHECK(zero.endpoint->at < more_than_are_kept);
    zero.links.begin(zero.failed);
    zero.links.move();
    CHECK(zero.endpoint->at == more_than_are_kept + 1);
    CHECK_FALSE(zero.seen());
    CHECK(zero.links.rx(0, 1).has_message());
}

TEST_CASE("a goodbye that finds no room is said when there is some, and does not wait for a rank that has gone") {
    enum class then { room_in_a_call, room_at_the_end, is_gone };
    for (const then what : {then::room_in_a_call, then::room_at_the_end, then::is_gone}) {
        INFO("then: " << static_cast<int>(what));
        auto zero = std::make_unique<rank_zero>();
        scripted& endpoint = *zero->endpoint;
        scripted::counts at_the_end;
        endpoint.is_full = true;
        {
            custom_links leaving(zero->hub, {.id = 77, .rank = 1, .ranks = {2, 0, 1}, .shape = {}, .ports = 1});
            atomic<std::uint64_t> failed{0};
            leaving.begin(failed);
            (void)leaving.tx(0, 2);
            leaving.say_bye();
        }
        zero->links.begin(zero->failed);
        zero->links.move();
        REQUIRE(endpoint.committed == 0);
        if (what == then::room_in_a_call) {
            endpoint.is_full = false;
            zero->links.move();
            zero->links.move();
            CHECK(endpoint.committed == 1);
            custom_frame f;
            REQUIRE(endpoint.out.size() == sizeof f);
            std::memcpy(&f, endpoint.out.data(), sizeof f);
            CHECK((f.what == frame_kind::bye && f.communicator == 77 && f.from == 1));
        }
        endpoint.counts_for = &at_the_end;
        endpoint.moves = 0;
        endpoint.is_full = what == then::is_gone;
        endpoint.is_rank_gone = what == then::is_gone;
        zero.reset();
        CHECK(at_the_end.committed == (what == then::is_gone ? 0 : 1));
        CHECK(at_the_end.moves < 10);
    }
}
