// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// A rank that comes to a store with another key, or none, or one where none is wanted, tries again for two seconds, as
// the port may still be another job's. Who has done so for this long, and has no connection, is in the way of a start:
// those who wait there, and those who come to wait soon afterwards, hear which rank it is. Its number is not checked.
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

    // Notes that the rank was refused once more. True: often and long enough.
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
