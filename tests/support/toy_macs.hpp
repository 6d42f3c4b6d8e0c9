// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// A stand-in for a cryptography library, so that code built on one is tested where none is installed and under every
// sanitizer. It gives no security: a plain hash with a key in front.
#pragma once

#include <collx/core/authentication.hpp>
#include <collx/core/descriptor.hpp>

namespace collx_test {

inline void toy_sign(const unsigned char* key, const void* text, std::size_t bytes, unsigned char* tag) {
    std::string all(reinterpret_cast<const char*>(key), 32);
    all.append(static_cast<const char*>(text), bytes);
    for (std::uint64_t i = 0; i < 4; ++i) {
        const std::uint64_t h = collx::detail::hash_bytes(all.data(), all.size(), i + 1);
        std::memcpy(tag + 8 * i, &h, 8);
    }
}
inline constexpr collx::detail::mac_component toy_macs{
    "a toy", toy_sign,
    [](const unsigned char* a, const unsigned char* b, std::size_t n) { return std::memcmp(a, b, n) == 0; }};

// Installs the toy, as including a component's header would.
struct with_toy_macs {
    const collx::detail::mac_component* before = collx::detail::macs;
    with_toy_macs() { collx::detail::macs = &toy_macs; }
    with_toy_macs(const with_toy_macs&) = delete;
    ~with_toy_macs() { collx::detail::macs = before; }
};
inline collx::job_protection toy_protection(char of) {
    return {collx::protection::auth_only, collx::job_key(std::string(64, of))};
}

} // namespace collx_test
