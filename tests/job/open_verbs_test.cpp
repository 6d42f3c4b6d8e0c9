// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// collx-test: sanitize=no
//
// Whether messages may go by RDMA, and what the library is asked for: the test's own library records the requests.
#include <collx/job/machine.hpp>
#include <collx/job/open_verbs.hpp>
#include <collx/topo/machines.hpp>
#include <collx/topo/nccl_topology_writer.hpp>

#include <arpa/inet.h>

#include <array>
#include <string>

#include <catch2/catch.hpp>

#include "support/written_file.hpp"

namespace {

using namespace collx;

struct silent_device final : verbs_device {
    const char* name() const override { return "silent"; }
    std::uint32_t most_write_bytes() const override { return 1 << 20; }
    std::uint32_t most_head_bytes() const override { return 256; }
    sole_ptr<verbs_memory> register_memory(std::byte*, std::size_t, peers_may) override { return nullptr; }
    sole_ptr<queue_pair> make_queue_pair(const verbs_limits&) override { return nullptr; }
};

bool has_device = true;
verbs_choice heard;
std::string heard_name;

constexpr verbs_component library{"the test's library",
                                  [](const verbs_choice& c) -> sole_ptr<verbs_device> {
                                      heard = c;
                                      heard_name = c.device == nullptr ? "" : c.device;
                                      if (has_device && heard_name != "NIC3") return make_sole<silent_device>();
                                      return nullptr;
                                  },
                                  [] { return "none is plugged in"; }};

struct with_library {
    explicit with_library(bool device = true) {
        has_device = device;
        detail::verbs_library = &library;
        heard = {};
    }
    ~with_library() { detail::verbs_library = nullptr; }
};

constexpr transports any{}, plain = per_peer{shm{}, sockets{}}, rdma = per_peer{shm{}, verbs{}};

bool opens(const transports& over, std::initializer_list<const char*> entries = {}, protection by = protection::none,
           const socket_address& at = {}) {
    std::array<const char*, 4> all{};
    std::size_t n = 0;
    for (const char* e : entries) all[n++] = e;
    return static_cast<bool>(detail::open_verbs(over, by, at, 3, environment(all.data())));
}
template <class... Args>
std::string refusal(errc code, Args&&... args) {
    try {
        (void)opens(args...);
    } catch (const error& e) {
        CHECK(e.code() == code);
        CHECK(e.rank() == 3);
        return e.what();
    }
    return "opened";
}
const auto contains = [](const std::string& text) { return Catch::Matchers::Contains(text); };

} // namespace

TEST_CASE("verbs are used where they are, and not missed where they are not") {
    CHECK_FALSE(opens(any));
    {
        const with_library none(false);
        CHECK_FALSE(opens(any));
    }
    const with_library here;
    CHECK(opens(any));
    CHECK_FALSE(opens(plain));
    CHECK(opens(rdma));
    CHECK_FALSE(opens(any, {"COLLX_VERBS=never"}));
    CHECK(opens(any, {"COLLX_VERBS=always"}));
    CHECK(opens(any, {"COLLX_VERBS=auto"}));
}

TEST_CASE("verbs that are asked for are not left out in silence") {
    CHECK_THAT(refusal(errc::unsupported, rdma), contains("include collx/interop/libibverbs.hpp"));
    CHECK_THAT(refusal(errc::unsupported, any, std::initializer_list<const char*>{"COLLX_VERBS=always"}),
               contains("has no library"));
    CHECK_THAT(refusal(errc::environment, plain, std::initializer_list<const char*>{"COLLX_VERBS=always"}),
               contains("per_peer{shm,sockets} has no verbs"));
    CHECK_THAT(refusal(errc::environment, rdma, std::initializer_list<const char*>{"COLLX_VERBS=never"}),
               contains("has nothing else for other hosts"));
    const with_library empty(false);
    CHECK_THAT(refusal(errc::environment, rdma), contains("the test's library finds no device: none is plugged in"));
}

TEST_CASE("what is sealed does not go by RDMA") {
    const with_library here;
    CHECK(opens(any, {}, protection::auth_only));
    for (const protection by : {protection::integrity, protection::encrypted}) {
        CHECK_FALSE(opens(any, {}, by));
        CHECK_THAT(refusal(errc::security, rdma, std::initializer_list<const char*>{}, by),
                   contains("cannot be sealed"));
    }
}

TEST_CASE("a device by name, port and address") {
    const with_library here;
    CHECK(opens(any));
    CHECK((heard.device == nullptr && heard.port == 0 && heard.gid_index == -1 && !heard.has_address));
    CHECK(opens(any, {"COLLX_VERBS_DEVICE=mlx5_0"}));
    CHECK((heard_name == "mlx5_0" && heard.port == 0 && heard.gid_index == -1));
    CHECK(opens(any, {"COLLX_VERBS_DEVICE=rxe1:2"}));
    CHECK((heard_name == "rxe1" && heard.port == 2 && heard.gid_index == -1));
    CHECK(opens(any, {"COLLX_VERBS_DEVICE=rxe1:1:0"}));
    CHECK((heard_name == "rxe1" && heard.port == 1 && heard.gid_index == 0));
    for (const char* odd :
         {"COLLX_VERBS_DEVICE=:1", "COLLX_VERBS_DEVICE=rxe0:", "COLLX_VERBS_DEVICE=rxe0:0", "COLLX_VERBS_DEVICE=rxe0:x",
          "COLLX_VERBS_DEVICE=rxe0:1:", "COLLX_VERBS_DEVICE=rxe0:1:x", "COLLX_VERBS_DEVICE=rxe0:1:2:3",
          "COLLX_VERBS_DEVICE=rxe0:300", "COLLX_VERBS_DEVICE=rxe0:1:256"}) {
        INFO(odd);
        try {
            (void)opens(any, {odd});
            FAIL("taken");
        } catch (const error& e) {
            CHECK(e.code() == errc::environment);
            CHECK_THAT(e.what(), contains("NAME:PORT:GID_INDEX"));
        }
    }
}

TEST_CASE("without a name, the card beside the rank's GPU is taken") {
    const with_library here;
    const collx_test::written_file file(topo::write_nccl_topology(topo::dgx_1v(), 70));
    const std::string machine = "COLLX_TOPOLOGY=" + file.name();
    const auto asks_for = [&](int place, const char* more = nullptr) {
        const char* const entries[] = {machine.c_str(), more, nullptr};
        CHECK(detail::open_verbs(any, protection::none, {}, 3, environment(entries), place, 8));
        return heard_name;
    };
    CHECK(asks_for(0) == "NIC0");
    CHECK(asks_for(5) == "NIC2");
    CHECK(asks_for(2, "CUDA_VISIBLE_DEVICES=0,2,4,6") == "NIC2");
    CHECK(asks_for(5, "COLLX_GPU=2") == "NIC1");
    CHECK(asks_for(5, "COLLX_VERBS_DEVICE=mlx5_9") == "mlx5_9");
    CHECK(asks_for(7) == "");                // its card is not an RDMA device
    CHECK(asks_for(5, "COLLX_GPU=8") == ""); // the first communicator reports this error
}

TEST_CASE("a device is looked for by the address of the sockets") {
    const with_library here;
    socket_address v4;
    auto& a = reinterpret_cast<sockaddr_in&>(v4.address);
    a.sin_family = AF_INET;
    REQUIRE(::inet_pton(AF_INET, "10.1.2.3", &a.sin_addr) == 1);
    v4.bytes = sizeof a;
    CHECK(opens(any, {}, protection::none, v4));
    const unsigned char mapped[16] = {0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff, 10, 1, 2, 3};
    CHECK((heard.has_address && std::equal(mapped, mapped + 16, heard.address)));
    socket_address v6;
    auto& b = reinterpret_cast<sockaddr_in6&>(v6.address);
    b.sin6_family = AF_INET6;
    REQUIRE(::inet_pton(AF_INET6, "fd00::7", &b.sin6_addr) == 1);
    v6.bytes = sizeof b;
    CHECK(opens(any, {}, protection::none, v6));
    CHECK((heard.has_address && heard.address[0] == 0xfd && heard.address[15] == 7));
}
