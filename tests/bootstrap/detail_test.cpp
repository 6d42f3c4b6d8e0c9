// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// collx-test: sanitize=address
//
// The small parts of stores and launchers, tested without a server or a process manager: the text of PMI-1, the
// headers of a tcp_store's frames, unique ids, the number of this host. External input is refused unless it is exactly
// right.
#include <collx/bootstrap/detail/host_id.hpp>
#include <collx/bootstrap/detail/pmi_text.hpp>
#include <collx/bootstrap/detail/tcp_frame.hpp>
#include <collx/bootstrap/unique_id.hpp>

#include <memory>
#include <string>

#include <catch2/catch.hpp>

using namespace collx;
using namespace collx::detail;

TEST_CASE("PMI-1: values are found as whole words") {
    const std::string_view line = "cmd=get_result rc=0 value=x=y longkey=1 key=2 empty=";
    CHECK(pmi_value(line, "cmd") == "get_result");
    CHECK(pmi_value(line, "value") == "x=y");
    CHECK(pmi_value(line, "key") == "2"); // not the end of longkey
    bool is_there = false;
    CHECK(pmi_value(line, "empty", &is_there).empty());
    CHECK(is_there);
    CHECK(pmi_value(line, "k", &is_there).empty());
    CHECK(!is_there);
    CHECK(pmi_value("", "cmd").empty());
}

TEST_CASE("PMI-1: numbers are all of their text and within bounds") {
    CHECK(pmi_number("17", 100) == 17);
    CHECK(pmi_number("0", 0) == 0);
    for (const char* bad : {"", "-1", "101", "1 ", " 1", "1x", "0x1", "99999999999999999999"})
        CHECK(pmi_number(bad, 100) == -1);
}

TEST_CASE("PMI-1: any bytes go there and back as one word") {
    std::string all;
    for (int c = 0; c < 256; ++c) all += static_cast<char>(c);
    for (const std::string& bytes : {std::string(), std::string("plain_1.2-3"), std::string("a b=c\n"), all}) {
        const std::string word = pmi_word(bytes);
        CHECK(word.find_first_of(" =\n;") == std::string::npos);
        collx::kept_text back = "?";
        CHECK(read_pmi_word(word, back));
        CHECK(back == bytes);
    }
    collx::kept_text out;
    for (const char* bad : {"", "x", "c%", "c%1", "c%gg", "c%1G", "%20"}) CHECK(!read_pmi_word(bad, out));
    CHECK(pmi_key("short", 20) == "cshort");
    const std::string key = pmi_key(std::string(200, 'k'), 64), other = pmi_key(std::string(200, 'l'), 64);
    CHECK(key.size() <= 64);
    CHECK(key[0] == 'h'); // no PMI command begins with it
    CHECK(key != other);
}

TEST_CASE("PMI-1: where ranks run") {
    pmi_mapping m;
    REQUIRE(m.read("(vector,(0,2,3),(5,1,2))"));
    const int expected[] = {0, 0, 0, 1, 1, 1, 5, 5, 0, 0}; // and repeated from the start
    for (int r = 0; r < 10; ++r) CHECK(m.node_of(r) == expected[r]);
    for (const char* bad :
         {"", "(vector,)", "(vector,(0,1))", "(vector,(0,1,1)", "(vector,(0,0,4))", "(vector,(0,1,-1))",
          "(vector,(0,1,1))x", "(vectors,(0,1,1))", "(vector,(0,1,99999999999))"})
        CHECK(!m.read(bad));
    std::string many = "(vector";
    for (int i = 0; i <= pmi_mapping::most_blocks; ++i) many += ",(0,1,1)";
    CHECK(!m.read(many + ")"));
}

TEST_CASE("heads of frames: only what may begin one") {
    tcp_request r;
    CHECK(r.is_sound());
    r.key_bytes = 1;
    CHECK(!r.is_sound()); // hello has no payload
    for (const tcp_word w : {tcp_word::set, tcp_word::get, tcp_word::add, tcp_word::claim, tcp_word::watch}) {
        tcp_request q{.word = w, .key_bytes = 1};
        CHECK(q.is_sound());
        q.value_bytes = 1;
        CHECK(q.is_sound() == (w != tcp_word::add && w != tcp_word::watch));
        q.value_bytes = 0;
        q.key_bytes = 0;
        CHECK(!q.is_sound());
        q.key_bytes = static_cast<std::uint32_t>(most_key_bytes) + 1;
        CHECK(!q.is_sound());
    }
    CHECK(tcp_request{.word = tcp_word::set, .key_bytes = 1, .value_bytes = most_value_bytes}.is_sound());
    CHECK(!tcp_request{.word = tcp_word::set, .key_bytes = 1, .value_bytes = most_value_bytes + 1}.is_sound());
    CHECK(tcp_request{.word = tcp_word::get, .key_bytes = 1, .value_bytes = most_key_bytes}.is_sound()); // a bell
    CHECK(!tcp_request{.word = tcp_word::get, .key_bytes = 1, .value_bytes = most_key_bytes + 1}.is_sound());
    CHECK(tcp_request{.word = tcp_word::bye}.is_sound());
    CHECK(!tcp_request{.word = tcp_word::bye, .key_bytes = 1}.is_sound());
    CHECK(!tcp_request{.word = static_cast<tcp_word>(0), .key_bytes = 1}.is_sound());
    CHECK(!tcp_request{.magic = tcp_reply_magic}.is_sound());
    CHECK(!tcp_request{.version = tcp_version + 1}.is_sound());
    CHECK(!tcp_request{.word = static_cast<tcp_word>(10), .key_bytes = 1}.is_sound());
    CHECK(!tcp_request{.zero = 1}.is_sound());
    CHECK(tcp_reply{}.is_sound());
    CHECK(!tcp_reply{.magic = tcp_request_magic}.is_sound());
    CHECK(!tcp_reply{.value_bytes = most_value_bytes + 1}.is_sound());
}

TEST_CASE("addresses are numbers, not names") {
    CHECK(numeric_address("127.0.0.1", 80).address.ss_family == AF_INET);
    CHECK(numeric_address("::1", 80).address.ss_family == AF_INET6);
    CHECK(numeric_address("[::1]", 65535).address.ss_family == AF_INET6);
    for (const char* bad : {"localhost", "", "1.2.3", "127.0.0.1x", "[127.0.0.1", "::g"}) {
        CHECK_THROWS_AS(numeric_address(bad, 80), error);
    }
    CHECK_THROWS_AS(numeric_address("127.0.0.1", 65536), error);
    CHECK_THROWS_AS(numeric_address("::1", -1), error);
    const auto s = tcp_socket(numeric_address("127.0.0.1", 80));
    CHECK(s.is_open());
    CHECK((::fcntl(s.get(), F_GETFL) & O_NONBLOCK) != 0);
    CHECK((::fcntl(s.get(), F_GETFD) & FD_CLOEXEC) != 0);
}

TEST_CASE("a unique id is one text and then zeros") {
    const auto is_refused = [](const unique_id& id) {
        try {
            (void)id.text();
        } catch (const invalid_argument&) {
            return true;
        }
        return false;
    };
    const std::string text = "collx-1-" + std::string(16, 'a') + "-" + std::string(32, '0');
    for (const std::string& good : {text, text + "@127.0.0.1:4000"}) {
        const unique_id id = unique_id::from_text(good);
        CHECK(id.text() == good);
        for (const std::size_t at : {good.size() + 1, std::size_t{120}, std::size_t{127}}) {
            unique_id broken = id;
            broken.bytes[at] = 'x';
            INFO(good << ", byte " << at);
            CHECK(is_refused(broken));
        }
    }
    for (const std::size_t at : {std::size_t{7}, std::size_t{8}, std::size_t{23}, std::size_t{25}, std::size_t{56}}) {
        unique_id broken = unique_id::from_text(text);
        broken.bytes[at] = broken.bytes[at] == '-' ? 'a' : '-';
        INFO("byte " << at);
        CHECK(is_refused(broken)); // a hyphen stands before both numbers and nowhere else
    }
    for (const char instead : {'0', 'a', '@', '\0'}) {
        unique_id broken = unique_id::from_text(text);
        broken.bytes[24] = instead;
        CHECK(is_refused(broken));
    }
    CHECK(unique_id::from_text(text).address().empty());
    for (const int port : {1, 4000, 65535})
        CHECK(unique_id::from_text(text + "@127.0.0.1:" + std::to_string(port)).port() == port);
    CHECK(unique_id::from_text(text).port() == 0); // no store
    for (const char* bad : {"@127.0.0.1:40x5", "@127.0.0.1:", "@127.0.0.1:0", "@127.0.0.1:65536",
                            "@127.0.0.1:4294971296", "@127.0.0.1:-5", "@", "@127.0.0.1", "@:4000"}) {
        INFO(bad);
        CHECK_THROWS_AS(unique_id::from_text(text + bad), invalid_argument);
    }
}

TEST_CASE("this host has one number") {
    CHECK(host_id() == host_id());
    CHECK(host_id() != 0);
}
