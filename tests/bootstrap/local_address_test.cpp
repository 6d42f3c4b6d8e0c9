// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// How the forms of COLLX_ADDRESS are resolved (addresses, interfaces, networks, routes, unix sockets), with made-up
// lists of interfaces and with this machine's loopback.
#include <collx/bootstrap/host.hpp>
#include <collx/bootstrap/local_address.hpp>
#include <collx/bootstrap/names.hpp>

#include <algorithm>

#include <catch2/catch.hpp>

#include "support/patience.hpp"
#include "support/skip.hpp"

using namespace collx;
using namespace collx_test;

namespace {

const std::vector<interface_address> office{{"lo", "127.0.0.1"},         {"lo", "::1"},        {"eth0", "10.1.2.3"},
                                            {"eth0", "2001:db8::7"},     {"ib0", "fd00:5::1"}, {"ib0", "192.168.40.9"},
                                            {"eth7", "10.99.0.1", false}};

std::string address_for(const char* wanted, const char* root = "") {
    return choose_address(wanted, root, office).address;
}
std::string why_not(const char* wanted, const char* root = "") {
    try {
        return "got " + choose_address(wanted, root, office).address;
    } catch (const error& e) {
        CHECK(e.code() == errc::environment);
        return e.what();
    }
}
bool holds(const std::string& text, const char* part) { return text.find(part) != std::string::npos; }
host_description host_from(std::vector<const char*> variables, const std::string& root = {}) {
    variables.push_back(nullptr);
    return describe_host(environment(variables.data()), {}, root);
}
bool has_v6_loopback() {
    const auto all = detail::interface_addresses();
    return std::any_of(all.begin(), all.end(), [](const auto& i) { return i.address == "::1"; });
}

} // namespace

TEST_CASE("an interface, a network or an address becomes an address, with the reason") {
    CHECK(address_for("10.9.9.9") == "10.9.9.9"); // not checked: listen() fails if it is not ours
    CHECK(address_for("fd00::1") == "fd00::1");
    CHECK(address_for("eth0") == "10.1.2.3");
    CHECK(address_for("ib0") == "192.168.40.9"); // IPv4 has priority
    CHECK(address_for("10.0.0.0/8") == "10.1.2.3");
    CHECK(address_for("10.1.2.3/32") == "10.1.2.3");
    CHECK(address_for("0.0.0.0/0") == "127.0.0.1");
    CHECK(address_for("192.168.40.8/31") == "192.168.40.9");
    CHECK(address_for("fd00::/8") == "fd00:5::1");
    CHECK(address_for("2001:db8::/32") == "2001:db8::7");
    CHECK(address_for("::1/128") == "::1");
    CHECK(address_for("unix") == "unix");
    CHECK(address_for("unix:/run/job 7") == "unix:/run/job 7");
    CHECK(holds(choose_address("10.0.0.0/8", "", office).why, "COLLX_ADDRESS=10.0.0.0/8: eth0"));
    CHECK(holds(choose_address("ib0", "", office).why, "ib0"));
}

TEST_CASE("what does not fit is an error that lists what there is") {
    for (const char* wanted : {"eth1", "localhost", "172.16.0.0/12", "fd77::/16", "10.99.0.0/16", "eth7"}) {
        const std::string text = why_not(wanted);
        INFO(text);
        CHECK(holds(text, wanted));
        CHECK(holds(text, "eth0 10.1.2.3"));
        CHECK(holds(text, "ib0 fd00:5::1"));
    }
    CHECK(holds(why_not("eth1"), "no interface"));
    CHECK(holds(why_not("eth7"), "down"));
    CHECK(holds(why_not("172.16.0.0/12"), "no address of this network"));
    for (const char* wanted :
         {"10.0.0.0/33", "10.0.0.0/", "10.0.0/8", "fd00::/129", "10.0.0.0/8x", "/8", "10.0.0.0/-1"})
        CHECK(holds(why_not(wanted), "no network such as"));
    for (const char* wanted : {"10.0.0.0.1", "1.2.3", "256.1.1.1", "127.0.0.1:80", "fd00::zz", "route:x"}) {
        const std::string text = why_not(wanted);
        INFO(text);
        CHECK(holds(text, ("COLLX_ADDRESS=" + std::string(wanted) + ": ").c_str()));
        CHECK(holds(text, wanted == std::string("route:x") ? "'x' is no address in numbers" : "no address such as"));
        CHECK(holds(text, "eth0 10.1.2.3"));
        CHECK(!holds(text, "store"));
    }
    CHECK(holds(why_not("route"), "route:ADDRESS"));
}

TEST_CASE("a route is asked of the system") {
    CHECK(address_for("route:127.0.0.9") == "127.0.0.1");
    CHECK(address_for("route", "127.3.4.5") == "127.0.0.1");
    if (has_v6_loopback()) CHECK(address_for("route:::1") == "::1");
    CHECK(holds(choose_address("route", "127.3.4.5", office).why, "127.3.4.5"));
    CHECK(holds(why_not("route", "nowhere"), "'nowhere' is no address in numbers"));
}

TEST_CASE("this machine's loopback is found by name and by network") {
    CHECK(host_from({"COLLX_ADDRESS=lo"}).address == "127.0.0.1");
    CHECK(host_from({"COLLX_ADDRESS=127.0.0.0/8"}).address == "127.0.0.1");
    CHECK(host_from({"COLLX_ADDRESS=127.0.0.1/32"}).has_address);
    CHECK_THROWS_AS(host_from({"COLLX_ADDRESS=no-such-interface"}), error);
    const char* const far[] = {"COLLX_ADDRESS=192.0.2.2", "COLLX_HOST_ID=here", nullptr}; // one rank needs none of it
    CHECK((describe_host_of_one(environment(far)).id == "here" && !describe_host_of_one(environment(far)).has_address));
    for (const char* any : {"0.0.0.0", "::", "0:0::0"})
        CHECK(holds(why_not(any), "no other host reaches this address"));
    if (!has_v6_loopback()) return skip("no IPv6 here");
    CHECK(host_from({"COLLX_ADDRESS=::1/128"}).address == "::1");
}

TEST_CASE("without COLLX_ADDRESS: loopback, or the way to where the ranks meet") {
    CHECK(host_from({}).address == "127.0.0.1");
    CHECK(!host_from({}).has_address);
    CHECK(host_from({}, "127.0.0.1").why == host_from({}).why);
    // A route out of this machine, if there is one: documentation addresses belong to no host, and nothing is sent.
    const std::string out = detail::address_towards(detail::numeric_address("192.0.2.1", 9));
    if (out.empty()) return skip("no route out of this machine");
    const auto h = host_from({"COLLX_INSECURE=1"}, "192.0.2.1");
    CHECK(h.address == out);
    CHECK(h.has_address);
    CHECK(holds(h.why, "192.0.2.1"));
    CHECK_THROWS_AS(host_from({}, "192.0.2.1"), error); // other hosts can reach it, and there is no key
}

TEST_CASE("unix sockets need no key, and are of one machine unless they are files") {
    CHECK(!host_from({"COLLX_ADDRESS=unix"}).has_address);
    CHECK(host_from({"COLLX_ADDRESS=unix:/run/shared"}).has_address);
    CHECK(detail::connection_words(host_from({"COLLX_ADDRESS=unix"})) !=
          detail::connection_words(host_from({"COLLX_ADDRESS=unix:/run/shared"})));
    CHECK(detail::connection_words(host_from({"COLLX_ADDRESS=127.0.0.1"})) == detail::connection_words(host_from({})));
    for (const char* wrong :
         {"COLLX_ADDRESS=", "COLLX_ADDRESS=unix:", "COLLX_ADDRESS=unix:here", "COLLX_ADDRESS=unix:/",
          "COLLX_ADDRESS=two words", "COLLX_ADDRESS=a,b", "COLLX_ADDRESS=a;b"}) {
        INFO(wrong);
        CHECK_THROWS_AS(host_from({wrong}), error);
    }
}

TEST_CASE("names of hosts are looked up, and all ranks choose the same address") {
    using detail::choose_named;
    using list = std::vector<std::string>;
    CHECK(choose_named("head", list{"10.0.0.9", "10.0.0.10"}, office) == "10.0.0.10");
    CHECK(choose_named("head", list{"10.0.0.10", "10.0.0.9"}, office) == "10.0.0.10");
    CHECK(choose_named("head", list{"fd00::1", "10.0.0.9", "127.0.1.1"}, office) == "10.0.0.9");
    CHECK(choose_named("head", list{"::1", "fd00::1"}, office) == "fd00::1");
    CHECK(choose_named("localhost", list{"::1", "127.0.0.1"}, office) == "127.0.0.1");

    // The host's own name, as in /etc/hosts.
    const std::vector<interface_address> one = {
        {"lo", "127.0.0.1", true}, {"eth0", "10.1.2.3", true}, {"eth0", "fd00::3", true}, {"eth7", "10.9.9.9", false}};
    CHECK(choose_named("here", list{"127.0.1.1"}, one) == "10.1.2.3");
    CHECK(choose_named("here", list{"127.0.1.1"}, {{"lo", "127.0.0.1", true}}) == "127.0.1.1");
    try {
        (void)choose_named("here", list{"127.0.1.1"}, {{"eth0", "10.1.2.3", true}, {"eth1", "10.1.3.3", true}});
        FAIL("which of two addresses others can reach is not known here");
    } catch (const error& e) {
        CHECK(e.code() == errc::environment);
        CHECK(holds(e.what(), "'here' is 127.0.1.1 on this host"));
        CHECK(holds(e.what(), "eth1 10.1.3.3"));
    }

    CHECK(look_up("127.0.0.1", deadline::in_ns(0)) == "127.0.0.1");
    CHECK(look_up("[::1]", deadline::in_ns(0)) == "[::1]");
    for (const char* none : {"", "*", "a host", "1.2.3"}) CHECK(look_up(none, deadline::in_ns(0)) == none);
    CHECK(look_up("localhost", deadline::in_ns(collx_test::patient(20'000'000'000))) == "127.0.0.1");
}

TEST_CASE("addresses of one link and of this host lead nowhere") {
    for (const char* none : {"fe80::1", "127.0.1.1", "::1"}) CHECK_FALSE(detail::is_outward(none));
    for (const char* good : {"fd00::1", "10.1.2.3"}) CHECK(detail::is_outward(good));
}

TEST_CASE("a name that does not resolve yet is asked for again, until the deadline") {
    static int asked;
    asked = 0;
    CHECK(holds(look_up("x", deadline::in_ns(collx_test::patient(60'000'000'000)),
                        [](const collx::kept_text& name) {
                            return ++asked < 3 ? detail::name_answer{{}, EAI_NONAME}
                                               : detail::name_answer{{name == "x" ? "10.7.7.7" : "10.8.8.8"}, 0};
                        }),
                "10.7.7.7"));
    CHECK(asked == 3);
    try {
        (void)look_up("no-such-host", deadline::in_ns(1'000'000), [](const collx::kept_text&) {
            return detail::name_answer{{}, EAI_NONAME};
        });
        FAIL("that name does not resolve");
    } catch (const error& e) {
        CHECK(e.code() == errc::environment);
        CHECK(holds(e.what(), "no address is known for 'no-such-host': Name or service not known"));
    }
    job_description d;
    d.size = 2;
    d.store = "tcp:localhost:4000";
    look_up_store(d, deadline::in_ns(collx_test::patient(20'000'000'000)));
    CHECK(d.store == "tcp:127.0.0.1:4000");
    d.store = "tcp:[::1]:4000";
    look_up_store(d, deadline::in_ns(0));
    CHECK(d.store == "tcp:[::1]:4000");
    d.store = "file:localhost:1";
    look_up_store(d, deadline::in_ns(0));
    CHECK(d.store == "file:localhost:1");
}
