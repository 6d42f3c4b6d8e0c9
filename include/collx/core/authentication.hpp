// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// How two processes of a job prove to each other that they have the job's key, before either trusts anything else from
// the other. Here are the key, the messages of the proof, and the interface to a cryptography library
// (interop/sodium.hpp, interop/openssl.hpp); nothing here computes a hash. Knows no sockets: transports and stores
// carry the messages.
//
//   connecting → hello (who, to whom, which job, a fresh nonce)
//              ← answer (a fresh nonce, HMAC of "accepts", hello and nonce)
//              → proof  (HMAC of "connects", hello and answer)
//              ← accepted
#pragma once

#include <string.h>

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <initializer_list>

#include <collx/core/error.hpp>
#include <collx/core/kept_text.hpp>
#include <collx/core/random_bytes.hpp>

COLLX_BEGIN_NAMESPACE

// The protection of a job's connections. A larger value includes the smaller ones.
enum class protection : std::uint32_t {
    none,      // no key: any process that knows the job's name may connect
    auth_only, // both ends have proved that they have the key; later data may be read and changed on the way
    integrity, // and later data cannot be changed
    encrypted  // nor read
};
// The name of a level in COLLX_SECURITY and in messages.
constexpr const char* name_of(protection p) {
    constexpr const char* names[] = {"none", "auth_only", "integrity", "encrypted"};
    return p <= protection::encrypted ? names[static_cast<int>(p)] : "unknown";
}

namespace detail {

// The interface to a cryptography library. Key and tag have 32 bytes.
struct mac_component {
    const char* name;
    void (*sign)(const unsigned char* key, const void* text, std::size_t bytes, unsigned char* tag); // HMAC-SHA256
    bool (*is_equal)(const unsigned char* a, const unsigned char* b, std::size_t bytes);             // in constant time
};
// Written by: the initialisation of a program that includes a component; read by: job_key.
inline const mac_component* macs = nullptr;

// 32 bytes that the destructor wipes.
struct secret {
    unsigned char bytes[32] = {};
    secret() = default;
    secret(const secret&) = default;
    secret& operator=(const secret&) = default;
    ~secret() { ::explicit_bzero(bytes, sizeof bytes); }
};

// The second and the third message. The first, a hello, is defined by the transport and ends with a fresh nonce; the
// whole hello is signed.
struct auth_answer {
    unsigned char nonce[32] = {}, tag[32] = {};
};
struct auth_proof {
    unsigned char tag[32] = {};
};
static_assert(sizeof(auth_answer) == 64 && sizeof(auth_proof) == 32);

} // namespace detail

// The key of a job, or none.
class job_key {
public:
    static constexpr std::size_t least_bytes = 32, most_bytes = 1024;

    job_key() = default;
    // Makes a key from random text, such as 64 hexadecimal digits. Errors: unsupported without a component ·
    // invalid_argument for a text that is too short or too long.
    [[gnu::cold]] explicit job_key(name_view text) {
        if (text.size() < least_bytes || text.size() > most_bytes)
            fail(errc::invalid_argument, -1, -1, "make one with: openssl rand -hex 32",
                 "a job's key has %zu to %zu "
                 "bytes, not %zu",
                 least_bytes, most_bytes, text.size());
        if (detail::macs == nullptr)
            fail(errc::unsupported, -1, -1,
                 "include <collx/interop/sodium.hpp> in one file and link collx::sodium (or openssl), or give no key",
                 "this job has a key, but the program cannot compute with it");
        macs_ = detail::macs;
        constexpr unsigned char purpose[32] = "collx job key, version 1";
        macs_->sign(purpose, text.data(), text.size(), key_.bytes);
    }
    explicit operator bool() const { return macs_ != nullptr; }

    // 16 digits by which the ranks of job `about` compare their keys; "-" without a key.
    [[gnu::cold]] kept_text fingerprint(name_view about) const {
        if (macs_ == nullptr) return "-";
        const kept_text text = "collx fingerprint " + kept_text(about);
        detail::secret tag;
        sign(text.data(), text.size(), tag.bytes);
        return detail::hex_text(tag.bytes, 8);
    }

    // The accepting side. Requires: a key; a Hello without padding.
    template <class Hello>
    [[gnu::cold]] detail::auth_answer answer(const Hello& h) const {
        detail::auth_answer a;
        detail::draw_random(a.nonce, sizeof a.nonce);
        sign_words("collx accepts 1", h, a, 32, a.tag);
        return a;
    }
    template <class Hello>
    [[gnu::cold]] bool is_right(const Hello& h, const detail::auth_answer& a, const detail::auth_proof& p) const {
        return is_signed("collx connects1", h, a, sizeof a, p.tag);
    }
    // The connecting side.
    template <class Hello>
    [[gnu::cold]] bool is_right(const Hello& h, const detail::auth_answer& a) const {
        return is_signed("collx accepts 1", h, a, 32, a.tag);
    }
    template <class Hello>
    [[gnu::cold]] detail::auth_proof prove(const Hello& h, const detail::auth_answer& a) const {
        detail::auth_proof p;
        sign_words("collx connects1", h, a, sizeof a, p.tag);
        return p;
    }
    // A secret of the two ends of this connection. The keys for its later data are derived from it.
    template <class Hello>
    [[gnu::cold]] detail::secret session(const Hello& h, const detail::auth_answer& a) const {
        detail::secret s;
        sign_words("collx session 1", h, a, sizeof a, s.bytes);
        return s;
    }

private:
    void sign(const void* text, std::size_t bytes, unsigned char* tag) const {
        macs_->sign(key_.bytes, text, bytes, tag);
    }
    // Signs role | hello | the first `of_answer` bytes of the answer. All have fixed sizes, so it is unambiguous.
    template <class Hello>
    void sign_words(const char (&role)[16], const Hello& h, const detail::auth_answer& a, std::size_t of_answer,
                    unsigned char* tag) const {
        static_assert(__has_unique_object_representations(Hello), "padding would be signed");
        unsigned char text[16 + sizeof(Hello) + sizeof a];
        std::memcpy(text, role, 16);
        std::memcpy(text + 16, &h, sizeof h);
        std::memcpy(text + 16 + sizeof h, &a, of_answer);
        sign(text, 16 + sizeof h + of_answer, tag);
    }
    template <class Hello>
    bool is_signed(const char (&role)[16], const Hello& h, const detail::auth_answer& a, std::size_t of_answer,
                   const unsigned char* tag) const {
        detail::secret expected;
        sign_words(role, h, a, of_answer, expected.bytes);
        return macs_->is_equal(expected.bytes, tag, sizeof expected.bytes);
    }

    detail::secret key_;
    const detail::mac_component* macs_ = nullptr;
};

// How a job's connections are protected. The key is empty if and only if the level is none.
struct job_protection {
    protection level = protection::none;
    job_key key;
};

COLLX_END_NAMESPACE
