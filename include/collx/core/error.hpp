// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Errors: one exception type with a code, the ranks concerned and a remedy. Transports and schedules report through it;
// nothing here knows them. Uses only <exception> and a buffer inside the object: <stdexcept> and <system_error> would
// cost every user 0.1 s of compile time.
#pragma once

#include <cstdarg>   // for va_list
#include <cstdint>   // for uint64_t
#include <cstdio>    // for vsnprintf
#include <exception> // for exception

#include <collx/core/config.hpp>
#include <collx/version.hpp>

COLLX_BEGIN_NAMESPACE

// The code of an error. None is 0, so a C interface may return a code, and 0 for success.
enum class errc : unsigned char {
    invalid_argument = 1, // the call is wrong whatever other ranks call: null, overlapping, out of range, overflow
    mismatch,             // ranks disagree on the call: counts, types, operators, roots, order
    peer_failed,          // a rank died; error::peer() says which
    timeout,              // a deadline passed; error::peer() says which rank was waited for
    aborted,              // the communicator was aborted by some rank
    resource,             // the system has no more of something: memory, descriptors, processes
    unsupported,          // this machine or this build cannot do it
    environment,          // a COLLX_* variable or launcher setting makes no sense
    protocol,             // a peer sent something that its schedule does not allow
    forked,               // collx was used in a child process that fork() made
    security,             // a peer could not prove that it has the job's key, or its data were changed on the way
};
// The code with the highest number.
inline constexpr errc last_errc = errc::security;
// Whether a number that another process sent is the code of an error.
constexpr bool is_errc(std::int64_t number) { return number >= 1 && number <= static_cast<std::int64_t>(last_errc); }

// The name of a code.
constexpr const char* name_of(errc c) {
    constexpr const char* names[] = {"invalid_argument", "mismatch",    "peer_failed", "timeout", "aborted", "resource",
                                     "unsupported",      "environment", "protocol",    "forked",  "security"};
    return names[static_cast<int>(c) - 1];
}

// The exception that collx throws. what() is one line: what happened, on which rank, with which peer, and the remedy.
class error : public std::exception {
public:
    error(errc code, int rank, int peer, const char* text, const char* remedy) noexcept
        : code_(code), rank_(rank), peer_(peer) {
        const char* close = remedy[0] != '\0' ? ")" : "";
        const char* open = remedy[0] != '\0' ? " (" : "";
        if (rank >= 0) std::snprintf(what_, sizeof what_, "collx: rank %d: %s%s%s%s", rank, text, open, remedy, close);
        else std::snprintf(what_, sizeof what_, "collx: %s%s%s%s", text, open, remedy, close);
    }
    const char* what() const noexcept override { return what_; }
    errc code() const noexcept { return code_; }
    int rank() const noexcept { return rank_; } // the rank that reports, -1 before there is one
    int peer() const noexcept { return peer_; } // the rank that failed or is missing, -1 if none can be named
    // Number of the call on its communicator (messages between two ranks count as calls), 0 outside one.
    std::uint64_t sequence() const noexcept { return sequence_; }
    void set_sequence(std::uint64_t s) noexcept { sequence_ = s; }

private:
    char what_[512];
    std::uint64_t sequence_ = 0;
    errc code_;
    int rank_, peer_;
};

// Errors that programs catch by type.
// A rank died; peer() says which. The communicator has ended on all ranks; shrink() continues without that rank.
struct peer_failed : error {
    using error::error;
    explicit peer_failed(const error& e) : error(e) {}
};
// A deadline passed; peer() says which rank was waited for, where one can be named.
struct timed_out : error {
    using error::error;
    explicit timed_out(const error& e) : error(e) {}
};
// Ranks disagree on the call: counts, types, operators, roots or order. The message has both versions.
struct mismatch : error {
    using error::error;
    explicit mismatch(const error& e) : error(e) {}
};
// The communicator has ended: a rank called abort(), or left with an error of its own.
struct aborted : error {
    using error::error;
    explicit aborted(const error& e) : error(e) {}
};
// The call is wrong on this rank, whatever other ranks call.
struct invalid_argument : error {
    using error::error;
    explicit invalid_argument(const error& e) : error(e) {}
};

// Throws the type that belongs to the error's code.
[[noreturn, gnu::cold, gnu::noinline]] inline void raise(const error& e) {
    switch (e.code()) {
        case errc::peer_failed: throw peer_failed(e);
        case errc::timeout: throw timed_out(e);
        case errc::mismatch: throw mismatch(e);
        case errc::aborted: throw aborted(e);
        case errc::invalid_argument: throw invalid_argument(e);
        default: throw e;
    }
}

// Throws a new error. Format as for printf; kept out of line so that hot paths carry only a call.
COLLX_NOMERGE [[noreturn, gnu::cold, gnu::noinline, gnu::format(printf, 5, 6)]] inline void
fail(errc code, int rank, int peer, const char* remedy, const char* format, ...) {
    char text[400];
    va_list args;
    va_start(args, format);
    std::vsnprintf(text, sizeof text, format, args);
    va_end(args);
    raise(error(code, rank, peer, text, remedy));
}

COLLX_END_NAMESPACE
