// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Authentication through libsodium: a program that includes this header anywhere and links collx::sodium can
// authenticate with a job's key (docs/security.md). Nothing else changes; without a key the header does nothing.
// collx-header: needs=sodium
#pragma once

#include <sodium/core.h>
#include <sodium/crypto_auth_hmacsha256.h>
#include <sodium/utils.h>

#include <collx/core/authentication.hpp>
#include <collx/core/provided.hpp>

COLLX_BEGIN_NAMESPACE

namespace detail {

static_assert(crypto_auth_hmacsha256_KEYBYTES == 32 && crypto_auth_hmacsha256_BYTES == 32);

inline void sign_by_sodium(const unsigned char* key, const void* text, std::size_t bytes, unsigned char* tag) {
    static const bool is_ready = ::sodium_init() >= 0;
    if (!is_ready) fail(errc::unsupported, -1, -1, "see libsodium's sodium_init()", "libsodium does not start");
    (void)::crypto_auth_hmacsha256(tag, static_cast<const unsigned char*>(text), bytes, key);
}
inline constexpr mac_component macs_of_sodium{
    "libsodium", sign_by_sodium,
    [](const unsigned char* a, const unsigned char* b, std::size_t n) { return ::sodium_memcmp(a, b, n) == 0; }};
inline const bool has_sodium = provided(macs, &macs_of_sodium);

} // namespace detail

COLLX_END_NAMESPACE
