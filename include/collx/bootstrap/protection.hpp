// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Where a process gets its job's key from, and whether the ranks of a job agree on the protection of their connections.
// The key is read once, removed from the environment, and kept for the life of the process.
#pragma once

#include <fcntl.h>
#include <stdlib.h>
#include <sys/stat.h>

#include <collx/bootstrap/description.hpp>
#include <collx/bootstrap/detail/tcp_frame.hpp>
#include <collx/bootstrap/environment.hpp>
#include <collx/core/authentication.hpp>
#include <collx/core/joined.hpp>
#include <collx/core/kept_text.hpp>
#include <collx/core/sealing.hpp>

COLLX_BEGIN_NAMESPACE

// The key that the environment gives.
struct found_key {
    kept_text text;
    const char* source = "none"; // the variable
    // A launcher may pass a key to programs without knowing whether they can compute with it. Its text then begins with
    // "optional:", and a program without a component behaves as if there were no key.
    bool is_optional = false;

    found_key() = default;
    found_key(const found_key&) = delete;
    found_key& operator=(const found_key&) = delete;
    ~found_key() { ::explicit_bzero(text.data(), text.size()); }
};

namespace detail {

inline constexpr name_view optional_key_prefix = "optional:";

// The bytes of a key without the end of its line: files have one, and so does what is made of them.
inline std::size_t without_line_end(const char* text, std::size_t bytes) {
    while (bytes > 0 && (text[bytes - 1] == '\n' || text[bytes - 1] == '\r' || text[bytes - 1] == ' ')) --bytes;
    return bytes;
}

// Reads all there is. A file is read from its beginning, because ranks share the position of an inherited descriptor.
[[gnu::cold]] inline void read_key_from(int fd, const char* variable, found_key& k) {
    const deadline until = deadline::in_ns(10'000'000'000);
    char part[job_key::most_bytes + 64];
    std::size_t got = 0;
    for (bool is_file = true; got < sizeof part;) {
        ssize_t n = -1;
        if (is_file) {
            n = without_eintr([&] { return ::pread(fd, part + got, sizeof part - got, static_cast<off_t>(got)); });
            if (n < 0 && errno == ESPIPE) {
                is_file = false;
                continue;
            }
        } else if (wait_for_event(fd, POLLIN, until)) {
            n = without_eintr([&] { return ::read(fd, part + got, sizeof part - got); });
        } else {
            errno = ETIMEDOUT; // its writer keeps the other end open
        }
        if (n < 0)
            fail(errc::environment, -1, -1, "see docs/security.md", "cannot read the job's key from %s: %s", variable,
                 std::strerror(errno));
        if (n == 0 && got == 0 && !is_file)
            fail(errc::environment, -1, -1, "give each rank a pipe of its own, or all of them one file",
                 "nothing is left in the pipe of %s: a pipe gives its key to one reader", variable);
        if (n == 0) break;
        got += static_cast<std::size_t>(n);
    }
    k.text = {part, without_line_end(part, got)};
    ::explicit_bzero(part, sizeof part);
    k.source = variable;
}

[[gnu::cold]] inline void read_key_file(const char* name, found_key& k) {
    const descriptor f(::open(name, O_RDONLY | O_CLOEXEC | O_NOCTTY | O_NONBLOCK));
    struct stat s {};
    if (!f.is_open() || ::fstat(f.get(), &s) != 0)
        // A key in place of the file's name must not get into a log.
        fail(errc::environment, -1, -1, "name a file that this user can read", "COLLX_KEY_FILE=%.80s: %s",
             std::strlen(name) >= job_key::least_bytes && std::strchr(name, '/') == nullptr
                 ? "(a text as long as a key)"
                 : name,
             std::strerror(errno));
    if (!S_ISREG(s.st_mode) || (s.st_uid != ::geteuid() && s.st_uid != 0) || (s.st_mode & 077) != 0)
        fail(errc::environment, -1, -1, "chmod 600, and the file yours", "COLLX_KEY_FILE=%.80s is not %s", name,
             S_ISREG(s.st_mode) ? "for its owner alone" : "a file");
    read_key_from(f.get(), "COLLX_KEY_FILE", k);
}

} // namespace detail

// Reads the first of COLLX_KEY_FD, COLLX_KEY_FILE and COLLX_KEY that is set. Errors: environment.
[[gnu::cold]] inline void find_key(const environment& env, found_key& k) {
    if (const char* fd = env.get("COLLX_KEY_FD")) {
        const auto n = detail::read_number(detail::variable_named("COLLX_KEY_FD"), fd);
        detail::read_key_from(static_cast<int>(n), "COLLX_KEY_FD", k);
    } else if (const char* name = env.get("COLLX_KEY_FILE")) {
        detail::read_key_file(name, k);
    } else if (const char* text = env.get("COLLX_KEY")) {
        k.text = {text, detail::without_line_end(text, std::strlen(text))};
        k.source = "COLLX_KEY";
    }
    const auto prefix = detail::optional_key_prefix;
    k.is_optional = k.text.starts_with(prefix);
    if (k.is_optional) k.text.erase(0, prefix.size());
}

// Errors: those of find_key() and job_key · environment without the key that a protection needs · unsupported without
// its component.
[[gnu::cold]] inline job_protection find_protection(const environment& env) {
    check_variables(env);
    job_protection by;
    found_key k;
    find_key(env, k);
    const char* wanted = env.get("COLLX_SECURITY");
    if (k.source[0] == 'C' && !(k.is_optional && detail::macs == nullptr)) {
        by.key = job_key(k.text);
        by.level = protection::auth_only;
    }
    if (wanted == nullptr) return by;
    const auto level =
        static_cast<protection>(1 + detail::read_choice(detail::variable_named("COLLX_SECURITY"), wanted));
    if (!by.key && k.source[0] == 'C') // an optional key needs a component as soon as COLLX_SECURITY is set
        fail(errc::unsupported, -1, -1,
             level > protection::auth_only
                 ? "include <collx/interop/openssl.hpp> in one file and link collx::openssl (-lcrypto)"
                 : "include <collx/interop/sodium.hpp> in one file and link collx::sodium (-lsodium), or openssl.hpp",
             "COLLX_SECURITY=%s, and %s gives a key, but the program cannot compute with it", wanted, k.source);
    if (!by.key)
        fail(errc::environment, -1, -1, "give the job a key, see docs/security.md, or unset it",
             "COLLX_SECURITY=%s needs a key", wanted);
    by.level = level;
    if (by.level > protection::auth_only && detail::seals == nullptr)
        fail(errc::unsupported, -1, -1,
             "include <collx/interop/openssl.hpp> in one file and link collx::openssl (-lcrypto)",
             "COLLX_SECURITY=%s, but the program cannot seal what it sends", wanted);
    return by;
}

namespace detail {

// Removes from the environment what no other process should see: /proc shows a process's first environment, and its
// children inherit the present one.
[[gnu::cold]] inline void forget_key() {
    if (char* text = ::getenv("COLLX_KEY")) ::explicit_bzero(text, std::strlen(text));
    ::unsetenv("COLLX_KEY");
    if (const char* fd = ::getenv("COLLX_KEY_FD")) {
        descriptor(static_cast<int>(read_digits(fd, 1 << 20))).close();
        ::unsetenv("COLLX_KEY_FD");
    }
}

// The protection of this process. Read at the first call that succeeds; from then on the environment holds no key.
[[gnu::cold]] inline const job_protection& process_protection() {
    static const job_protection by = [] {
        job_protection found = find_protection(environment());
        forget_key();
        return found;
    }();
    return by;
}

// Refuses an address that others could reach, unless there is a key or the user says that it does not matter.
[[gnu::cold]] inline void require_protection(const environment& env, const char* variable, const kept_text& host,
                                             const job_key& key) {
    const char* insecure = env.get("COLLX_INSECURE");
    if (numeric_address(host, 0).is_loopback() || key || (insecure != nullptr && insecure[0] == '1')) return;
    fail(errc::environment, -1, -1,
         "give the job a key, see docs/security.md, or set COLLX_INSECURE=1 if that whole network is trusted",
         "%s names %.60s, which can be reached from outside, and the job has no key", variable, host.c_str());
}
// The address in tcp:ADDRESS:PORT; empty for other stores.
inline kept_text address_of_store(const kept_text& store) {
    const std::size_t colon = store.rfind(':');
    return store.starts_with("tcp:") && colon > 4 ? store.substr(4, colon - 4) : kept_text();
}
[[gnu::cold]] inline void require_protection_of_store(const job_description& d, const job_key& key,
                                                      const environment& env = environment()) {
    const kept_text address = address_of_store(d.store);
    if (!address.empty()) require_protection(env, "COLLX_STORE", address, key);
}

// What a rank publishes about its protection, after its other settings. It must be the same on all ranks.
[[gnu::cold]] inline kept_text protection_words(const job_protection& by) {
    return joined({" protection=", name_of(by.level), " key=", by.key.fingerprint("of the job")});
}

} // namespace detail

COLLX_END_NAMESPACE
