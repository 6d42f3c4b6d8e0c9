// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Random bytes of the system, for names and secrets.
#pragma once

#include <sys/random.h>

#include <cerrno>
#include <cstddef>

#include <collx/core/error.hpp>
#include <collx/core/kept_text.hpp>

COLLX_BEGIN_NAMESPACE
namespace detail {

// Errors: resource.
inline void draw_random(void* to, std::size_t bytes) {
    for (std::size_t got = 0; got < bytes;) {
        const ssize_t n = ::getrandom(static_cast<char*>(to) + got, bytes - got, 0);
        if (n < 0 && errno != EINTR) fail(errc::resource, -1, -1, "", "the system has no random numbers");
        if (n > 0) got += static_cast<std::size_t>(n);
    }
}

// Two digits for each byte.
inline kept_text hex_text(const unsigned char* from, std::size_t bytes) {
    constexpr char digits[] = "0123456789abcdef";
    kept_text text;
    for (std::size_t i = 0; i < bytes; ++i) {
        text += digits[from[i] >> 4];
        text += digits[from[i] & 15];
    }
    return text;
}

// 128 random bits as 32 digits: the same name never comes twice.
inline kept_text random_token() {
    unsigned char bytes[16];
    draw_random(bytes, sizeof bytes);
    return hex_text(bytes, sizeof bytes);
}

} // namespace detail
COLLX_END_NAMESPACE
