// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Ranks that a store refuses: they come with another key, none, or an unwanted one. Such a rank tries again for two
// seconds, because the port may still be another job's. A rank that was refused for 1.5 s and has no connection keeps
// the start from ending: ranks that wait in the store, then or soon afterwards, receive its number. The number is not
// checked.
#pragma once

#include <cstdint>

#include <collx/core/growing_array.hpp>

COLLX_BEGIN_NAMESPACE
namespace detail {

class refused_ranks {
public:
    static constexpr std::int64_t after_ns = 1'500'000'000, heard_for_ns = 5'000'000'000;
    static constexpr int after_times = 16;
    static constexpr std::size_t most = 256;

    // Notes that the rank was refused once more. True: often enough and for long enough.
    bool is_in_the_way(std::int64_t rank, std::int64_t now) {
        erase_if(all_, [&](const refused& r) { return now - r.last_ns > after_ns; });
        auto r = all_.begin();
        while (r != all_.end() && r->rank != rank) ++r;
        if (r == all_.end()) {
            if (all_.size() < most) all_.push_back({rank, now, now});
            return false;
        }
        r->last_ns = now;
        return ++r->times >= after_times && now - r->first_ns >= after_ns;
    }

private:
    struct refused {
        std::int64_t rank, first_ns, last_ns;
        int times = 1;
    };
    growing_array<refused> all_;
};

} // namespace detail
COLLX_END_NAMESPACE
