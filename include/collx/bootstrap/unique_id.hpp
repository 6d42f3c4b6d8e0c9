// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// A name for a job that does not exist yet, for programs with an exchange of their own: one rank makes it, the program
// ships its bytes to the others by whatever it has, all join with it. As NCCL's ncclUniqueId, but printable.
#pragma once

#include <cstdint>
#include <cstdio>
#include <cstring>
#include <string_view>

#include <collx/bootstrap/detail/host_id.hpp>
#include <collx/bootstrap/store.hpp>

COLLX_BEGIN_NAMESPACE

// 128 bytes: text, and zeros behind it. Trivially copyable; may be sent as bytes or written to a file as text.
struct unique_id {
    static constexpr std::size_t most_bytes = 128;
    char bytes[most_bytes] = {};

    // Random, good for one communicator. Any process may make it, also one that is no rank.
    // Errors: resource.
    static unique_id make() {
        unique_id id;
        const std::string token = detail::random_token();
        std::snprintf(id.bytes, sizeof id.bytes, "%s%016llx-%s", prefix,
                      static_cast<unsigned long long>(detail::host_id()), token.c_str());
        return id;
    }
    // Errors: invalid_argument for what is no id.
    static unique_id from_text(std::string_view text) {
        unique_id id;
        if (text.size() >= most_bytes) fail_no_id();
        std::memcpy(id.bytes, text.data(), text.size());
        id.check();
        return id;
    }
    const char* text() const { return check(), bytes; }

    // What all ranks call their job. Errors: invalid_argument when bytes were lost on the way · unsupported when the id
    // was made on another host.
    std::string_view job(int rank) const {
        check();
        char here[17];
        std::snprintf(here, sizeof here, "%016llx", static_cast<unsigned long long>(detail::host_id()));
        if (std::memcmp(bytes + prefix_bytes, here, 16) != 0)
            fail(errc::unsupported, rank, -1, "start all ranks on one host, in one network namespace",
                 "the unique id comes from another host");
        return {bytes + prefix_bytes + 17, 32};
    }
    friend bool operator==(const unique_id&, const unique_id&) = default;

private:
    static constexpr char prefix[] = "collx-1-";
    static constexpr std::size_t prefix_bytes = sizeof prefix - 1, text_bytes = prefix_bytes + 16 + 1 + 32;

    [[noreturn, gnu::cold]] static void fail_no_id() {
        fail(errc::invalid_argument, -1, -1, "make it with unique_id::make() and ship all of its bytes",
             "this is no unique id");
    }
    void check() const {
        bool is_good = std::memcmp(bytes, prefix, prefix_bytes) == 0;
        for (std::size_t i = prefix_bytes; i < most_bytes; ++i) {
            const char c = bytes[i];
            if (i >= text_bytes) is_good = is_good && c == '\0';
            else if (i == prefix_bytes + 16) is_good = is_good && c == '-';
            else is_good = is_good && ((c >= '0' && c <= '9') || (c >= 'a' && c <= 'f'));
        }
        if (!is_good) fail_no_id();
    }
};
static_assert(sizeof(unique_id) == unique_id::most_bytes);

COLLX_END_NAMESPACE
