// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// The packet that rank 0 and the other ranks exchange while they join an arena. Its size is fixed, so that a length
// never comes from the other end. Every field is compared, none is trusted.
//
//   guest: hello → rank 0: welcome + descriptor → guest: mapped → rank 0, when all have: done
//   either side at any time: failed
#pragma once

#include <cstdint>
#include <cstdio>

#include <collx/core/error.hpp>

COLLX_BEGIN_NAMESPACE

namespace detail {

struct join_packet {
    static constexpr std::uint64_t magic_value = 0x6e69'6f6a'786c'6c63;
    static constexpr std::uint32_t version_value = 1;
    enum class kind : std::uint32_t { hello, welcome, mapped, done, failed };

    std::uint64_t magic = magic_value;
    std::uint32_t version = version_value;
    kind what = kind::hello;
    std::uint64_t number = 0; // hello: hash of the job; welcome: bytes of the arena
    std::int64_t left_ns = 0; // hello: how long this rank will wait
    std::int32_t rank = -1;   // failed: the guilty rank
    std::int32_t ranks = 0;
    std::int32_t pid = -1;  // hello: as the guest sees itself; welcome: the same if rank 0 sees it so too, else -1
    std::uint32_t code = 0; // failed: errc
    char text[240] = {};    // failed: what happened; hello: the settings that all ranks must share

    bool is_ours() const { return magic == magic_value && version == version_value; }
};

// Throws the exception that a failed packet stands for. Its text is from the other side: it is cut and printed only.
[[noreturn]] inline void fail_as_told(join_packet& p, int rank, const char* remedy) {
    p.text[sizeof p.text - 1] = '\0';
    fail(is_errc(p.code) ? static_cast<errc>(p.code) : errc::protocol, rank,
         p.rank >= 0 && p.rank < p.ranks ? p.rank : -1, remedy, "%s", p.text);
}

constexpr const char* remedy_of_join(errc code) {
    switch (code) {
        case errc::timeout:
            return "start the missing ranks, by this user and with the same COLLX_JOB; see their output; or raise "
                   "COLLX_TIMEOUT";
        case errc::mismatch:
            return "give all ranks the same COLLX_ variables and the same list of transports, and each its own "
                   "COLLX_RANK";
        case errc::security:
            return "give all ranks the same COLLX_KEY_FD, COLLX_KEY_FILE or COLLX_KEY, and COLLX_SECURITY";
        case errc::peer_failed: return "see the output of that rank";
        case errc::resource:
            return "raise what is short there: open files (ulimit -n), address space (ulimit -v), file size (ulimit "
                   "-f)";
        default: return "see the output of the ranks";
    }
}

// "1, 3-5 and 9 more": the numbers for which is_listed is true, as many of them as fit.
template <class IsListed>
[[gnu::cold]] void list_ranks(char* out, std::size_t bytes, int ranks, IsListed&& is_listed) {
    std::size_t used = 0;
    int not_shown = 0;
    out[0] = '\0';
    for (int r = 0; r < ranks; ++r) {
        if (!is_listed(r)) continue;
        int last = r;
        while (last + 1 < ranks && is_listed(last + 1)) ++last;
        if (used + 40 > bytes) {
            not_shown += last - r + 1;
        } else {
            const char* comma = used > 0 ? ", " : "";
            const int n = last > r ? std::snprintf(out + used, bytes - used, "%s%d-%d", comma, r, last)
                                   : std::snprintf(out + used, bytes - used, "%s%d", comma, r);
            used += static_cast<std::size_t>(n);
        }
        r = last;
    }
    if (not_shown > 0) std::snprintf(out + used, bytes - used, " and %d more", not_shown);
}

} // namespace detail

COLLX_END_NAMESPACE
