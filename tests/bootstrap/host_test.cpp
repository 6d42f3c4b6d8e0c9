// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// What ranks say of their hosts: numbers for the hosts, and whether one rank reaches the other. How hosts are
// described: local_address_test.cpp. How ranks meet: meet_test.cpp.
#include <collx/bootstrap/host.hpp>

#include <cstdint>
#include <string>
#include <vector>

#include <catch2/catch.hpp>

using namespace collx;

namespace {

host_description with(const char* machine, bool has_address) {
    host_description h;
    h.machine = machine;
    h.has_address = has_address;
    return h;
}

} // namespace

TEST_CASE("hosts are numbered in the order in which ranks come from them") {
    using ids = std::vector<std::uint64_t>;
    CHECK(detail::number_hosts(ids{7, 9, 7}) == std::vector<int>{0, 1, 0});
    ids many;
    for (std::uint64_t r = 0; r < 1000; ++r) many.push_back(r / 3 << 32); // all hash to one place of the table
    const auto numbers = detail::number_hosts(many);
    for (int r = 0; r < 1000; ++r) CHECK(numbers[static_cast<std::size_t>(r)] == r / 3);
}

TEST_CASE("of two ranks on several machines the one that has no address is named") {
    // Each rank looks at itself and at the one above it in the tree.
    for (const bool up_has : {false, true})
        for (const bool has_address : {false, true})
            for (const char* machine : {"m", "n"}) {
                kept_text address = "10.1.2.3 99" + detail::reach_of(with("m", up_has));
                INFO(address.c_str() << ", here " << machine << " " << has_address);
                try {
                    detail::take_reach(address, with(machine, has_address), 5, 4);
                    CHECK(((up_has && has_address) || machine[0] == 'm'));
                    CHECK(address == "10.1.2.3 99");
                } catch (const error& e) {
                    CHECK((!(up_has && has_address) && machine[0] == 'n'));
                    CHECK(e.code() == errc::environment);
                    CHECK(e.peer() == (up_has ? 5 : 4));
                    CHECK(std::string(e.what()).find("COLLX_ADDRESS") != std::string::npos);
                }
            }
}

TEST_CASE("a published address without its last words is of another version") {
    for (const char* wrong : {"", "10.1.2.3", " 10.1.2.3", "10.1.2.3 99", " 99 1"}) {
        kept_text address = wrong;
        INFO("'" << wrong << "'");
        try {
            detail::take_reach(address, with("m", true), 5, 4);
            FAIL("it was taken");
        } catch (const error& e) {
            CHECK(e.code() == errc::protocol);
            CHECK(e.peer() == 4);
        }
    }
}
