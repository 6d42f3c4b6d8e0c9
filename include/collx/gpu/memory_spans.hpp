// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Where the buffers of a call lie that a fused team must not write while another rank still reads them. Blocks of all
// ranks run at once, so nothing that is written may be read or written by another part of the call.
#pragma once

#include <cstddef>
#include <cstdint>

#include <collx/core/error.hpp>
#include <collx/exec/device/control.hpp>

COLLX_BEGIN_NAMESPACE
namespace detail {

class memory_spans {
public:
    // Keeps the spans in the order of their addresses. Programs mostly add them so.
    void add(const void* at, std::size_t bytes, bool is_written, int rank) {
        if (bytes == 0) return;
        const auto begin = reinterpret_cast<std::uintptr_t>(at);
        int k = count_++;
        for (; k > 0 && spans_[k - 1].begin > begin; --k) spans_[k] = spans_[k - 1];
        spans_[k] = {begin, begin + bytes, is_written, rank};
    }
    // Errors: invalid_argument naming the two ranks.
    void require_apart() const {
        const span *reaches = nullptr, *writes = nullptr; // last to end so far, of all and of written ones
        const auto end_of = [](const span* s) { return s == nullptr ? 0 : s->end; };
        for (int k = 0; k < count_; ++k) {
            const span* s = &spans_[k];
            const span* other = s->is_written ? reaches : writes;
            if (end_of(other) > s->begin)
                fail(errc::invalid_argument, other->rank, s->rank, "use buffers that do not overlap",
                     "what rank %d %s and what rank %d %s share memory", other->rank, verb(*other), s->rank, verb(*s));
            if (s->end > end_of(reaches)) reaches = s;
            if (s->is_written && s->end > end_of(writes)) writes = s;
        }
    }

private:
    struct span {
        std::uintptr_t begin, end;
        bool is_written;
        int rank;
    };
    static const char* verb(const span& s) { return s.is_written ? "receives" : "sends"; }
    span spans_[2 * device::max_ranks * device::max_ranks];
    int count_ = 0;
};

} // namespace detail
COLLX_END_NAMESPACE
