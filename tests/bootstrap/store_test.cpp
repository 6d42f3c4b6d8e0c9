// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// The contract of stores for all models, and the archetype, a minimal store.
//
// collx-test: timeout=240
#include <collx/bootstrap/file_store.hpp>
#include <collx/bootstrap/memory_store.hpp>
#include <collx/bootstrap/store.hpp>
#include <collx/bootstrap/tcp_server.hpp>
#include <collx/bootstrap/tcp_store.hpp>

#include <cstdlib>
#include <memory>
#include <string>

#include "bootstrap/store_contract.hpp"
#include "bootstrap/store_support.hpp"
#include "support/skip.hpp"

using namespace collx_test;

namespace {

// renew() makes an empty store, as for a new job.
struct memory_world {
    std::unique_ptr<collx::memory_store> store = std::make_unique<collx::memory_store>();
    collx::memory_store& connect() { return *store; }
    void renew() { store = std::make_unique<collx::memory_store>(); }
};
struct file_world {
    std::unique_ptr<scratch_directory> directory = std::make_unique<scratch_directory>();
    collx::file_store connect() { return collx::file_store(directory->path + "/store"); }
    void renew() { directory = std::make_unique<scratch_directory>(); }
};
struct tcp_world {
    std::unique_ptr<collx::tcp_server> server = std::make_unique<collx::tcp_server>();
    collx::tcp_store connect() { return collx::tcp_store("127.0.0.1", server->port(), soon()); }
    void renew() { server = std::make_unique<collx::tcp_server>(); }
};
struct tcp6_world : tcp_world {
    tcp6_world() { renew(); }
    collx::tcp_store connect() { return collx::tcp_store("[::1]", server->port(), soon()); }
    void renew() { server = std::make_unique<collx::tcp_server>("::1"); }
};

// A store behind the interface that start-up code is compiled for.
struct faced_world {
    collx::memory_store store;
    collx::detail::store_face<collx::memory_store> face{store};
    collx::any_store& connect() { return face; }
};
static_assert(collx::Store<collx::any_store> && !collx::OwnStore<collx::any_store>);

// The archetype: only the functions that rendezvous() may use.
struct least_store {
    collx::memory_store* to;
    explicit least_store(collx::memory_store* s) : to(s) {}
    least_store(const least_store&) = delete;
    void set(std::string_view k, std::string_view v) { to->set(k, v); }
    std::string get(std::string_view k, const collx::deadline& d) { return to->get(k, d); }
    std::int64_t add(std::string_view k, std::int64_t n) { return to->add(k, n); }
    void barrier(std::string_view n, int r, const collx::deadline& d) { to->barrier(n, r, d); }
};
static_assert(collx::Store<least_store> && collx::Store<collx::memory_store> && collx::Store<collx::file_store> &&
              collx::Store<collx::tcp_store>);
static_assert(!collx::Store<int> && !collx::Store<collx::tcp_server>);
struct least_world {
    collx::memory_store store;
    least_store connect() { return least_store(&store); }
};

} // namespace

TEMPLATE_TEST_CASE("stores keep values", "", memory_world, file_world, tcp_world) { check_values<TestType>(); }
TEMPLATE_TEST_CASE("stores keep keys apart, whatever is in them", "", memory_world, file_world, tcp_world) {
    check_keys<TestType>();
}
TEMPLATE_TEST_CASE("stores refuse what does not fit", "", memory_world, file_world, tcp_world) {
    check_refusals<TestType>();
}
TEMPLATE_TEST_CASE("stores wait for a key, but not for ever", "", memory_world, file_world, tcp_world) {
    check_waiting<TestType>();
}
TEMPLATE_TEST_CASE("stores add at once for all", "", memory_world, file_world, tcp_world) { check_sums<TestType>(); }
TEMPLATE_TEST_CASE("stores show whole values", "", memory_world, file_world, tcp_world) {
    check_whole_values<TestType>();
}
TEMPLATE_TEST_CASE("stores hold barriers", "", memory_world, file_world, tcp_world) { check_barrier<TestType>(); }
TEMPLATE_TEST_CASE("ranks agree on a job through a store", "", memory_world, file_world, tcp_world) {
    check_rendezvous<TestType>();
}

TEST_CASE("a store behind a face is the store") {
    faced_world world;
    check_values<faced_world>();
    check_sums<faced_world>();
    check_waiting<faced_world>();
    world.face.set("key", "value");
    CHECK(world.store.get("key", soon()) == "value");
}
TEST_CASE("a store on an IPv6 address") {
    try {
        collx::tcp_server probe("::1");
    } catch (const collx::error&) {
        return skip("this host has no ::1");
    }
    check_values<tcp6_world>();
}

TEST_CASE("a store of a user's own is enough for a rendezvous") {
    least_world world;
    std::vector<std::string> token(3);
    const auto thrown = as_ranks(
        world, 3, [&](int r, auto& s) { token[static_cast<std::size_t>(r)] = collx::rendezvous(s, r, 3, soon()); });
    for (const auto& t : thrown) CHECK(t == "");
    CHECK(token[0].size() == 32);
    CHECK(token[1] == token[0]);
    CHECK(token[2] == token[0]);
}

namespace {

// A store in which rank 1's value arrives just after the last rank has stopped waiting for it.
struct tardy_store {
    collx::memory_store store;
    bool is_late = true;
    void set(std::string_view key, std::string_view value) { store.set(key, value); }
    std::string get(std::string_view key, const collx::deadline& until) {
        if (is_late && key.find("/sum/1") != key.npos) {
            is_late = false;
            collx::detail::fail_store_timeout(key);
        }
        return store.get(key, until);
    }
    std::int64_t add(std::string_view key, std::int64_t delta) { return store.add(key, delta); }
    void barrier(std::string_view name, int n, const collx::deadline& until) { store.barrier(name, n, until); }
};

// A store far away: each look takes as long as the answer travels.
struct distant_store {
    collx::memory_store store;
    int looks = 0;
    std::int64_t look_ns = 0;
    void set(std::string_view key, std::string_view value) { store.set(key, value); }
    std::string get(std::string_view key, const collx::deadline& until) {
        ++looks;
        if (look_ns > 0) collx::detail::nap_ns(look_ns);
        return store.get(key, until);
    }
    std::int64_t add(std::string_view key, std::int64_t delta) { return store.add(key, delta); }
    void barrier(std::string_view name, int n, const collx::deadline& until) { store.barrier(name, n, until); }
};

} // namespace

TEST_CASE("a rank that is missing among many is found with a few looks into the store") {
    distant_store s;
    // Rank 99 is missing. So those above it in the tree say nothing, and they are no more to blame than rank 0.
    for (int r = 1; r < 99; ++r) {
        (void)s.add("collx/turn/" + std::to_string(r), 1);
        if (r != 1 && r != 5 && r != 24) s.set("collx/1/sum/" + std::to_string(r), collx::detail::findings().text());
    }
    try {
        (void)collx::rendezvous(s, 0, 100, soon(200));
        FAIL("it did not throw");
    } catch (const collx::timed_out& e) {
        INFO(e.what());
        CHECK(e.peer() == 99);
        CHECK(std::string(e.what()).find(" 1 of 100 ranks did not come to the store: 99") != std::string::npos);
        CHECK(s.looks < 40);
    }
}
TEST_CASE("a number of missing ranks that is not all of them is said to be the least") {
    distant_store s;
    s.look_ns = 500'000;
    try {
        (void)collx::rendezvous(s, 0, 1000, soon(200));
        FAIL("it did not throw");
    } catch (const collx::timed_out& e) {
        INFO(e.what());
        CHECK(e.peer() == 1);
        CHECK(std::string(e.what()).find("at least ") != std::string::npos);
        CHECK(std::string(e.what()).find(" of 1000 ranks did not come to the store: 1") != std::string::npos);
    }
}
TEST_CASE("a rank that came to the store and says no more is named") {
    collx::memory_store s;
    (void)s.add("collx/turn/1", 1);
    try {
        (void)collx::rendezvous(s, 0, 2, soon(200));
        FAIL("it did not throw");
    } catch (const collx::timed_out& e) {
        INFO(e.what());
        CHECK(e.peer() == 1);
        CHECK(std::string(e.what()).find("rank 1 came to the store and says no more") != std::string::npos);
    }
}
TEST_CASE("a rank that comes as the time ends is not called another, and no number that no rank has") {
    tardy_store s;
    (void)s.add("collx/turn/1", 1);
    s.set("collx/1/sum/1", collx::detail::findings().text());
    try {
        (void)collx::rendezvous(s, 0, 2, soon());
        FAIL("it did not throw");
    } catch (const collx::timed_out& e) {
        INFO(e.what());
        CHECK(e.peer() == -1);
        CHECK(std::string(e.what()).find("-1") == std::string::npos);
        CHECK(std::string(e.what()).find("when the time was over") != std::string::npos);
    }
}
