// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Sealed connections through OpenSSL: a program that includes this header anywhere and links collx::openssl can use
// COLLX_SECURITY=integrity and encrypted (docs/security.md): AES-256 in Galois/counter mode, with a separate key for
// each direction of each connection. It also authenticates, and so replaces interop/sodium.hpp.
// collx-header: needs=openssl
#pragma once

#include <openssl/core_names.h>
#include <openssl/crypto.h>
#include <openssl/evp.h>
#include <openssl/hmac.h>
#include <openssl/kdf.h>
#include <openssl/params.h>

#include <collx/core/provided.hpp>
#include <collx/core/sealing.hpp>

COLLX_BEGIN_NAMESPACE

namespace detail {

[[noreturn, gnu::cold]] inline void fail_openssl(const char* what) {
    fail(errc::unsupported, -1, -1, "is OpenSSL 3 with AES-GCM and HKDF installed?", "OpenSSL cannot do %s", what);
}

inline void sign_by_openssl(const unsigned char* key, const void* text, std::size_t bytes, unsigned char* tag) {
    unsigned length = 32;
    if (::HMAC(::EVP_sha256(), key, 32, static_cast<const unsigned char*>(text), bytes, tag, &length) == nullptr)
        fail_openssl("HMAC-SHA256");
}

// The key and the first nonce of one direction, derived by HKDF (RFC 5869) as in TLS 1.3.
struct direction_secret {
    unsigned char key[32], nonce[12];
    direction_secret(const secret& session, bool from_connecting, bool hides) {
        unsigned char all[sizeof key + sizeof nonce];
        char purpose[] = "collx 1, from accepting, integrity";
        purpose[14] = from_connecting ? 'c' : 'a';
        purpose[25] = hides ? 'e' : 'i';
        int mode = EVP_KDF_HKDF_MODE_EXTRACT_AND_EXPAND;
        OSSL_PARAM parameters[] = {
            OSSL_PARAM_construct_int(OSSL_KDF_PARAM_MODE, &mode),
            OSSL_PARAM_construct_utf8_string(OSSL_KDF_PARAM_DIGEST, const_cast<char*>("SHA256"), 0),
            OSSL_PARAM_construct_octet_string(OSSL_KDF_PARAM_KEY, const_cast<unsigned char*>(session.bytes), 32),
            OSSL_PARAM_construct_octet_string(OSSL_KDF_PARAM_INFO, purpose, sizeof purpose),
            OSSL_PARAM_construct_end()};
        EVP_KDF* kdf = ::EVP_KDF_fetch(nullptr, "HKDF", nullptr);
        EVP_KDF_CTX* c = kdf != nullptr ? ::EVP_KDF_CTX_new(kdf) : nullptr;
        const bool is_made = c != nullptr && ::EVP_KDF_derive(c, all, sizeof all, parameters) == 1;
        ::EVP_KDF_CTX_free(c);
        ::EVP_KDF_free(kdf);
        std::memcpy(key, all, sizeof key);
        std::memcpy(nonce, all + sizeof key, sizeof nonce);
        ::explicit_bzero(all, sizeof all);
        if (!is_made) fail_openssl("HKDF");
    }
    ~direction_secret() { ::explicit_bzero(this, sizeof *this); }
};

class openssl_sealer final : public sealer {
public:
    openssl_sealer(const secret& session, bool is_connecting, bool hides)
        : hides_(hides), out_(session, is_connecting, hides, true), in_(session, !is_connecting, hides, false) {}

    bool seal(const unsigned char* head, std::size_t head_bytes, unsigned char* text, std::size_t bytes,
              unsigned char* tag) override {
        return out_.run(head, head_bytes, text, bytes, hides_) &&
               ::EVP_CIPHER_CTX_ctrl(out_.context, EVP_CTRL_AEAD_GET_TAG, tag_bytes, tag) == 1;
    }
    bool open(const unsigned char* head, std::size_t head_bytes, unsigned char* text, std::size_t bytes,
              const unsigned char* tag) override {
        return in_.run(head, head_bytes, text, bytes, hides_, tag);
    }

private:
    struct direction {
        direction_secret secrets;
        EVP_CIPHER_CTX* context;
        std::uint64_t number = 0; // of the next record
        bool is_out;

        direction(const secret& session, bool from_connecting, bool hides, bool out)
            : secrets(session, from_connecting, hides), context(::EVP_CIPHER_CTX_new()), is_out(out) {
            if (context == nullptr ||
                ::EVP_CipherInit_ex(context, ::EVP_aes_256_gcm(), nullptr, secrets.key, nullptr, out ? 1 : 0) != 1) {
                ::EVP_CIPHER_CTX_free(context);
                fail_openssl("AES-256-GCM");
            }
        }
        direction(const direction&) = delete;
        ~direction() { ::EVP_CIPHER_CTX_free(context); }

        bool run(const unsigned char* head, std::size_t head_bytes, unsigned char* text, std::size_t bytes, bool hides,
                 const unsigned char* tag = nullptr) {
            unsigned char nonce[12];
            std::memcpy(nonce, secrets.nonce, sizeof nonce);
            for (int i = 0; i < 8; ++i) nonce[4 + i] ^= static_cast<unsigned char>(number >> (56 - 8 * i));
            ++number;
            int n = 0;
            const int length = static_cast<int>(bytes);
            unsigned char rest[16];
            return ::EVP_CipherInit_ex(context, nullptr, nullptr, nullptr, nonce, -1) == 1 &&
                   ::EVP_CipherUpdate(context, nullptr, &n, head, static_cast<int>(head_bytes)) == 1 &&
                   ::EVP_CipherUpdate(context, hides ? text : nullptr, &n, text, length) == 1 &&
                   (is_out || ::EVP_CIPHER_CTX_ctrl(context, EVP_CTRL_AEAD_SET_TAG, tag_bytes,
                                                    const_cast<unsigned char*>(tag)) == 1) &&
                   ::EVP_CipherFinal_ex(context, rest, &n) == 1;
        }
    };
    bool hides_;
    direction out_, in_;
};

inline constexpr mac_component macs_of_openssl{
    "OpenSSL", sign_by_openssl,
    [](const unsigned char* a, const unsigned char* b, std::size_t n) { return ::CRYPTO_memcmp(a, b, n) == 0; }};
inline constexpr seal_component seals_of_openssl{"OpenSSL", [](const secret& session, bool is_connecting, bool hides) {
                                                     return sole_ptr<sealer>(
                                                         new openssl_sealer(session, is_connecting, hides));
                                                 }};
// OpenSSL must not clean up at exit by itself: communicators, and the thread of a unique_id, may outlive that.
inline const bool stays_openssl = ::OPENSSL_init_crypto(OPENSSL_INIT_NO_ATEXIT, nullptr) == 1;
inline const bool has_openssl =
    provided(macs, macs != nullptr ? macs : &macs_of_openssl) && provided(seals, &seals_of_openssl);

} // namespace detail

COLLX_END_NAMESPACE
