// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// collx-test: sanitize=no
//
// The list of communicators that were left, and that leaving needs no memory: the test replaces operator new.
#include <collx/transport/custom_links.hpp>
#include <collx/transport/detail/left_communicators.hpp>

#include <cstdlib>
#include <cstring>
#include <new>
#include <utility>

#include <catch2/catch.hpp>

using namespace collx;
using namespace collx::detail;

namespace {

bool has_memory = true;

} // namespace

[[gnu::noinline]] void* operator new(std::size_t n) {
    if (void* p = has_memory ? std::malloc(n != 0 ? n : 1) : nullptr) return p;
    throw std::bad_alloc();
}
[[gnu::noinline]] void operator delete(void* p) noexcept { std::free(p); }
[[gnu::noinline]] void operator delete(void* p, std::size_t) noexcept { std::free(p); }

namespace {

// The endpoint of rank 0 of two. Rank 1 sends to a communicator that is not made here.
struct beset final : custom_endpoint {
    custom_frame frame{.communicator = 77, .what = custom_frame::kind::credit, .from = 1};
    int unread = 3;
    endpoint_address address() override { return {}; }
    void connect(int, const endpoint_address&) override {}
    std::size_t most_bytes() override { return 4096; }
    std::byte* try_acquire(int, std::size_t) override { return nullptr; }
    void commit(int, std::size_t) override {}
    bool is_drained(int) override { return true; }
    const std::byte* peek(int, std::size_t& bytes) override {
        bytes = sizeof frame;
        return unread > 0 ? reinterpret_cast<const std::byte*>(&frame) : nullptr;
    }
    void release(int, std::size_t) override { --unread; }
    void move() override {}
    bool is_gone(int) override { return false; }
};

} // namespace

TEST_CASE("the last communicators that were left are known, and no others") {
    using list = left_communicators;
    list left;
    CHECK(left.find(0) == nullptr);
    for (std::uint64_t id = 1; id <= list::most; ++id) left.add({.id = id, .failure = id + 5});
    CHECK((left.find(1) && left.find(list::most) && left.find(1)->failure == 6));
    CHECK(left.find(list::most + 1) == nullptr);
    left.add({.id = list::most + 1});
    CHECK(left.find(1) == nullptr);
    CHECK((left.find(2) && left.find(list::most + 1)));
    left.add({.id = 5000, .next = {5000, 4, 2}});
    CHECK(left.find_by_meeting(0) == nullptr);
    CHECK(left.find_by_meeting(meeting_of_survivors(5000, 4, 1).id) == nullptr); // this rank has continued with it
    for (const std::uint32_t round : {2u, 3u, 700u}) {
        const auto* const found = left.find_by_meeting(meeting_of_survivors(5000, 4, round).id);
        CHECK((found != nullptr && found->id == 5000));
        CHECK(left.find_by_meeting(meeting_of_survivors(5001, 4, round).id) == nullptr);
    }
}

TEST_CASE("a communicator over a program's own transport ends without memory") {
    for (const bool says_bye : {false, true}) {
        const auto hub = make_counted<custom_hub>(sole_ptr<custom_endpoint>(make_sole<beset>()), 2);
        hub->connect(1, {});
        atomic<std::uint64_t> failed{0};
        {
            custom_links links(
                hub, {.id = 5, .rank = 0, .ranks = {0, 1}, .shape = {.depth = 4, .slot_bytes = 4096}, .ports = 1});
            links.begin(failed);
            if (says_bye) (void)links.tx(0, 1);
            has_memory = false;
            if (says_bye) links.say_bye();
        }
        has_memory = true;
        CHECK(failed.load(memory_order::acquire) == 0);
    }
}
