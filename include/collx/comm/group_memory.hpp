// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// The memory that the calls of a group use. They have no order, so none may write what another one uses: the results
// would depend on sizes.
#pragma once

#include <cstddef>

#include <collx/call/checks.hpp>
#include <collx/core/growing_array.hpp>

COLLX_BEGIN_NAMESPACE
namespace detail {

// Where all buffers of a group lie, looked at as the calls are added. Most programs add them in the order of their
// addresses: then no two overlap, and nothing more is compared.
class group_memory {
public:
    void look(const buffer_facts& b) {
        if (!b.has_address || b.bytes == 0) return;
        const auto *const begin = static_cast<const std::byte*>(b.data), *const end = begin + b.bytes;
        if (low_ == nullptr) {
            low_ = begin;
            high_ = end;
        } else if (begin >= high_) high_ = end;
        else if (end <= low_) low_ = begin;
        else may_overlap_ = true;
    }
    bool may_overlap() const { return may_overlap_; }

private:
    const std::byte *low_ = nullptr, *high_ = nullptr;
    bool may_overlap_ = false;
};

// The buffers of a group's calls, to be compared.
class group_buffers {
public:
    // A buffer that call number `call` of the group reads, or writes. Buffers that are strided or computed are left
    // out.
    void add(const buffer_facts& b, bool is_written, const char* verb, std::size_t call);
    // Throws if two calls use the same memory and one of them writes it. Cost: sorts the buffers by address.
    void require_independent(int me);

private:
    struct span {
        const std::byte *begin, *end;
        const char* verb;
        std::size_t call;
    };
    using spans = growing_array<span>;
    static void sort(spans& all);
    [[noreturn]] static void refuse(int me, const span& written, const span& used);

    spans reads_, writes_;
};

} // namespace detail
COLLX_END_NAMESPACE

#if !defined(COLLX_ONLY_DECLARED)
#include <collx/comm/group_memory_once.hpp>
#endif
