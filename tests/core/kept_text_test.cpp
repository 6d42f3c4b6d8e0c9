// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// kept_text: the operations that start-up uses, compared with std::string.
#include <collx/core/kept_text.hpp>

#include <sstream>
#include <string>
#include <string_view>
#include <utility>

#include <catch2/catch.hpp>

using collx::kept_text;
using collx::name_view;

TEST_CASE("a kept text is made, copied and moved like a string") {
    const kept_text none;
    CHECK(none.empty());
    CHECK(std::string_view(none.c_str()) == "");
    CHECK(none == "");
    kept_text a = "rank 3";
    const kept_text b = a, c(std::string("rank 3")), d(name_view("rank 3 of 4").substr(0, 6)), e("rank 3 of 4", 6);
    CHECK(b == a);
    CHECK(c == a);
    CHECK(d == a);
    CHECK(e == a);
    CHECK(kept_text(3, 'x') == "xxx");
    CHECK(a.c_str() != b.c_str());
    const kept_text f = std::move(a);
    CHECK(f == "rank 3");
    a = f; // a moved-from text may be reused
    a = *&a;
    CHECK(a == "rank 3");
    const std::string text = a;
    CHECK(text == "rank 3");
    CHECK(std::string(a) == text);
    CHECK(std::string_view(a) == text);
    CHECK(text == a);
    CHECK_FALSE(a == "rank 33");
    CHECK_FALSE(a == none);
    std::ostringstream out;
    out << a << none;
    CHECK(out.str() == "rank 3");
}

TEST_CASE("a kept text grows, also by a part of itself, and ends with a zero") {
    kept_text a;
    std::string like;
    for (int i = 0; i < 300; ++i) {
        const char c = static_cast<char>('a' + i % 26);
        if (i % 3 == 0) {
            a += c;
            like += c;
        } else {
            a += name_view("bytes\0and more", 14);
            like.append("bytes\0and more", 14);
        }
        REQUIRE(a == like);
        REQUIRE(a.c_str()[a.size()] == '\0');
    }
    a = "abc";
    for (int i = 0; i < 6; ++i) a += a; // with and without enough capacity
    CHECK(a.size() == 3 * 64);
    CHECK(a.find("cabcab") == 2);
    a += name_view(a).substr(1, 2);
    CHECK(a.substr(a.size() - 4) == "bcbc");
    CHECK("x" + kept_text("y") + "z" == "xyz");
    CHECK(kept_text("x") + std::string("y") == "xy");
}

TEST_CASE("a kept text's first bytes are read as an object") {
    struct two {
        int a;
        short b;
    };
    const two x{77, -3};
    kept_text t(reinterpret_cast<const char*>(&x), sizeof x);
    t += "and more";
    CHECK(t.as<two>().a == 77);
    CHECK(t.as<two>().b == -3);
    CHECK(t.as<char>() == *t.data());
}

TEST_CASE("a kept text is cut") {
    kept_text a = "key=value";
    a.erase(0, 4);
    CHECK(a == "value");
    CHECK(std::string_view(a.c_str()) == "value");
    a.erase(1, 2);
    CHECK(a == "vue");
    a.erase(1);
    CHECK(a == "v");
    a.erase(0, 0);
    CHECK(a == "v");
    a.resize(3, 'w');
    CHECK(a == "vww");
    a.resize(2);
    CHECK(std::string_view(a.c_str()) == "vw");
    a.clear();
    CHECK(a.empty());
    CHECK(std::string_view(a.c_str()) == "");
    kept_text none;
    none.clear();
    none.erase(0);
    none.resize(0);
    CHECK(none.empty());
}

TEST_CASE("a kept text is searched like a string") {
    const std::string like = "tcp:[::1]:4711 tcp";
    const kept_text a(like);
    for (const char* x : {"tcp", ":", "::", "4711", "", "none", "tcp:[::1]:4711 tcp and more"})
        for (std::size_t from = 0; from <= like.size() + 1; ++from) CHECK(a.find(x, from) == like.find(x, from));
    for (const char x : {':', 't', 'x', 'p'}) {
        CHECK(a.find(x) == like.find(x));
        CHECK(a.rfind(x) == like.rfind(x));
        for (std::size_t last = 0; last <= like.size() + 1; ++last) CHECK(a.rfind(x, last) == like.rfind(x, last));
    }
    CHECK(a.find_first_of("[1") == like.find_first_of("[1"));
    CHECK(a.find_first_of("[1", 5) == like.find_first_of("[1", 5));
    CHECK(a.find_first_of("!") == kept_text::npos);
    CHECK(a.find_first_not_of("tcp:") == like.find_first_not_of("tcp:"));
    CHECK(kept_text("1.2").find_first_not_of("0123456789.") == kept_text::npos);
    CHECK(a.starts_with("tcp:"));
    CHECK_FALSE(a.starts_with("unix"));
    CHECK(a.back() == 'p');
    CHECK(a.substr(15) == "tcp");
    CHECK(a.substr(4, 5) == "[::1]");
}
