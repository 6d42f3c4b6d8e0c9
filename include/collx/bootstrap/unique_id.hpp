// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// A name for a job that does not exist yet, for programs with an exchange of their own: one rank makes it, the program
// sends its bytes to the others, and all ranks join with it. Like NCCL's ncclUniqueId, but printable. For ranks on
// several hosts, the process that makes the id runs the store in which they meet.
#pragma once

#include <cstdio>
#include <cstring>

#include <collx/bootstrap/detail/host_id.hpp>
#include <collx/core/config.hpp>
#include <collx/core/error.hpp>
#include <collx/core/name_view.hpp>

COLLX_BEGIN_NAMESPACE

// 128 bytes: text, padded with zeros. Trivially copyable; may be sent as bytes or written to a file as text.
struct unique_id {
    static constexpr std::size_t most_bytes = 128;
    char bytes[most_bytes] = {};

    // Makes a random id, good for one communicator. Any process may make it, even one that is no rank. With
    // COLLX_ADDRESS or COLLX_HOST_ID set, the id is for ranks on several hosts: this process must live until all have
    // joined, and uses a thread and a socket for the id until it ends.
    // Errors: resource · environment as describe_host().
    static unique_id make();
    // Makes an id for ranks of this host.
    static unique_id make_here();
    // Errors: invalid_argument if the text is no id.
    static unique_id from_text(name_view text) {
        unique_id id;
        if (text.size() >= most_bytes) fail_no_id();
        std::memcpy(id.bytes, text.data(), text.size());
        id.check();
        return id;
    }
    const char* text() const {
        check();
        return bytes;
    }

    // Address and port of the store of an id for several hosts. An empty address: there is no store.
    name_view address() const {
        const name_view all = check_behind();
        return all.substr(0, all.rfind(':') != name_view::npos ? all.rfind(':') : 0);
    }
    int port() const {
        const name_view all = check_behind();
        return all.empty() ? 0 : port_in(all);
    }

    // The name of the job, the same on all ranks.
    // Errors: invalid_argument when bytes were lost on the way · unsupported when the id was made on another host.
    name_view job(int rank) const {
        check();
        char here[17];
        std::snprintf(here, sizeof here, "%016llx", static_cast<unsigned long long>(detail::host_id()));
        if (std::memcmp(bytes + prefix_bytes, here, 16) != 0)
            fail(errc::unsupported, rank, -1, "set COLLX_ADDRESS where the id is made, for ranks on several hosts",
                 "the unique id comes from another host and says no address");
        return {bytes + prefix_bytes + 17, 32};
    }
    friend bool operator==(const unique_id&, const unique_id&) = default;

private:
    // at: "@ADDRESS:PORT" of the store, or empty.
    static unique_id make_at(const char* at);

    static constexpr char prefix[] = "collx-1-";
    static constexpr std::size_t prefix_bytes = sizeof prefix - 1, text_bytes = prefix_bytes + 16 + 1 + 32;

    [[noreturn, gnu::cold]] static void fail_no_id() {
        fail(errc::invalid_argument, -1, -1, "make it with unique_id::make() and ship all of its bytes",
             "this is no unique id");
    }
    name_view check_behind() const {
        check();
        const char* at = bytes + text_bytes;
        return *at == '@' ? name_view(at + 1) : name_view("");
    }
    void check() const {
        bool is_good = std::memcmp(bytes, prefix, prefix_bytes) == 0 && bytes[most_bytes - 1] == '\0';
        for (std::size_t i = prefix_bytes; i < most_bytes; ++i) {
            const char c = bytes[i];
            if (i == text_bytes) is_good = is_good && (c == '\0' || c == '@');
            else if (i > text_bytes) is_good = is_good && (c == '\0' || (bytes[i - 1] != '\0' && c > ' ' && c <= '~'));
            else if (i == prefix_bytes + 16) is_good = is_good && c == '-';
            else is_good = is_good && ((c >= '0' && c <= '9') || (c >= 'a' && c <= 'f'));
        }
        is_good = is_good && (bytes[text_bytes] == '\0' || port_in(bytes + text_bytes + 1) > 0);
        if (!is_good) fail_no_id();
    }
    // The port in ADDRESS:PORT; 0 if there is none, or no address.
    static int port_in(name_view all) {
        const std::size_t colon = all.rfind(':');
        int n = 0;
        if (colon == name_view::npos || colon == 0) return 0;
        for (const char c : all.substr(colon + 1)) {
            if (c < '0' || c > '9') return 0;
            if ((n = n * 10 + (c - '0')) > 65535) return 0;
        }
        return n;
    }
};
static_assert(sizeof(unique_id) == unique_id::most_bytes);

COLLX_END_NAMESPACE

#if !defined(COLLX_ONLY_DECLARED)
#include <collx/bootstrap/id_server.hpp>
#endif
