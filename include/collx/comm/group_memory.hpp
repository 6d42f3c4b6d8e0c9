// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// The memory that the calls of a group use. They have no order, so none may write what another one uses: the results
// would depend on sizes.
#pragma once

#include <cstddef>
#include <utility>

#include <collx/call/checks.hpp>
#include <collx/core/growing_array.hpp>

COLLX_BEGIN_NAMESPACE
namespace detail {

class group_memory {
public:
    // The buffers of one call follow next().
    void next(const char* verb) { verb_ = verb, ++calls_; }
    void reads(const seen_buffer& b) { add(reads_, b); }
    void writes(const seen_buffer& b) { add(writes_, b); }
    // Throws if two calls use the same memory and one of them writes it; forgets all calls. Buffers that are strided or
    // computed are not compared. Cost: a look at each buffer where the program adds them in the order of their
    // addresses, else a sort.
    void require_independent(int me);

private:
    struct span {
        const std::byte *begin, *end;
        const char* verb;
        std::size_t call;
    };
    using spans = growing_array<span>;
    void add(spans& to, const seen_buffer& b) {
        if (!b.has_address || b.bytes == 0) return;
        const auto* const at = static_cast<const std::byte*>(b.data);
        to.push_back({at, at + b.bytes, verb_, calls_});
    }
    static void sort(spans& all);
    [[noreturn]] static void refuse(int me, const span& written, const span& used);

    spans reads_, writes_;
    const char* verb_ = "";
    std::size_t calls_ = 0;
};

} // namespace detail
COLLX_END_NAMESPACE

#if !defined(COLLX_ONLY_DECLARED)
#include <collx/comm/group_memory_once.hpp>
#endif
