// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// The messages of a proof: each depends on its role, on every byte that it covers and on the key. None can replace
// another.
#include <collx/core/authentication.hpp>

#include <cstring>
#include <set>
#include <string>

#include <catch2/catch.hpp>

using namespace collx;

namespace {

// Every bit of key and text changes the tag; secrecy does not matter here.
void mixing_sign(const unsigned char* key, const void* text, std::size_t bytes, unsigned char* tag) {
    for (std::uint64_t word = 0; word < 4; ++word) {
        std::uint64_t h = 0x9e37'79b9'7f4a'7c15 * (word + 1);
        const auto mix = [&](unsigned char c) {
            h = (h ^ c) * 0x0000'0100'0000'01b3;
            h ^= h >> 29;
        };
        for (int i = 0; i < 32; ++i) mix(key[i]);
        for (std::size_t i = 0; i < bytes; ++i) mix(static_cast<const unsigned char*>(text)[i]);
        std::memcpy(tag + 8 * word, &h, 8);
    }
}
constexpr detail::mac_component mixing{
    "mixing", mixing_sign,
    [](const unsigned char* a, const unsigned char* b, std::size_t n) { return std::memcmp(a, b, n) == 0; }};

struct hello { // like a connection's: which ranks, of which communicator and job
    std::uint32_t from = 3, to = 5;
    std::uint64_t communicator = 7;
    char token[32] = "the job";
    unsigned char nonce[32] = {1, 2, 3};
};

std::string text(const unsigned char (&tag)[32]) { return {reinterpret_cast<const char*>(tag), 32}; }

struct with_component {
    with_component() { detail::macs = &mixing; }
    ~with_component() { detail::macs = nullptr; }
};

} // namespace

TEST_CASE("answer, proof and session are three different words") {
    const with_component here;
    const job_key key(name_view(std::string(64, 'k').c_str()));
    const hello h;
    const auto a = key.answer(h);
    const auto p = key.prove(h, a);
    CHECK(std::set{text(a.tag), text(p.tag), text(key.session(h, a).bytes)}.size() == 3);
    CHECK(key.is_right(h, a));
    CHECK(key.is_right(h, a, p));
    detail::auth_proof other;
    std::memcpy(other.tag, a.tag, 32);
    CHECK_FALSE(key.is_right(h, a, other)); // the answer, sent back
    std::memcpy(other.tag, key.session(h, a).bytes, 32);
    CHECK_FALSE(key.is_right(h, a, other));
}

TEST_CASE("every byte that a word covers changes it, and so does the key") {
    const with_component here;
    const job_key key(name_view(std::string(64, 'k').c_str())), another(name_view(std::string(64, 'l').c_str()));
    const hello h;
    const auto a = key.answer(h);
    const auto p = key.prove(h, a);
    const std::string session = text(key.session(h, a).bytes);
    for (std::size_t i = 0; i < sizeof h; ++i) {
        hello changed = h;
        reinterpret_cast<unsigned char*>(&changed)[i] ^= 1;
        INFO("byte " << i << " of the hello");
        CHECK_FALSE(key.is_right(changed, a));
        CHECK_FALSE(key.is_right(changed, a, p));
        CHECK(text(key.session(changed, a).bytes) != session);
    }
    for (std::size_t i = 0; i < sizeof a; ++i) {
        auto changed = a;
        reinterpret_cast<unsigned char*>(&changed)[i] ^= 1;
        INFO("byte " << i << " of the answer");
        CHECK_FALSE(key.is_right(h, changed));
        CHECK_FALSE(key.is_right(h, changed, p));
        CHECK(text(key.session(h, changed).bytes) != session);
    }
    for (std::size_t i = 0; i < sizeof p; ++i) {
        auto changed = p;
        changed.tag[i] ^= 1;
        CHECK_FALSE(key.is_right(h, a, changed));
    }
    CHECK_FALSE(another.is_right(h, a));
    CHECK_FALSE(another.is_right(h, a, p));
    CHECK(text(another.session(h, a).bytes) != session);
    CHECK(text(key.answer(h).nonce) != text(key.answer(h).nonce)); // fresh each time
}

TEST_CASE("a key has 32 to 1024 bytes, and needs a component") {
    const std::string least(32, 'a'), most(1024, 'a');
    CHECK_THROWS_AS(job_key(name_view(least.c_str())), error); // no component can compute with it
    const with_component here;
    CHECK(job_key(name_view(least.c_str())));
    CHECK(job_key(name_view(most.c_str())));
    CHECK_THROWS_AS(job_key(name_view(least.c_str() + 1)), invalid_argument);
    CHECK_THROWS_AS(job_key(name_view((most + 'a').c_str())), invalid_argument);
    CHECK(job_key(name_view(least.c_str())).fingerprint("x").size() == 16);
    CHECK(job_key(name_view(least.c_str())).fingerprint("x") != job_key(name_view(least.c_str())).fingerprint("y"));
    CHECK(job_key().fingerprint("x") == "-");
    CHECK_FALSE(job_key());
}
