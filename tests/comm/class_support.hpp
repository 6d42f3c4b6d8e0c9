// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// A few calls, the same for each class used as an element type.
#pragma once

#include "support.hpp"

namespace collx_test {

// all_reduce, broadcast, all_to_all and messages of one type, with sizes below and above what a header can carry.
template <class T, class Make, class Op>
void check_class(collx::communicator& w, const char* name, Make make, Op op) {
    const int n = w.size(), me = w.rank();
    for (const std::size_t size : {1u, 2u, 5u, 601u}) {
        at("%s n=%d size=%zu", name, n, size);
        std::vector<T> x(size), in(size * static_cast<std::size_t>(n)), out(in);
        for (std::size_t i = 0; i < size; ++i) x[i] = make(me, i);
        auto sum = x, from_last = x, got = x;
        collx::all_reduce(w, sum, op);
        collx::broadcast(w, from_last, {.root = n - 1});
        collx::sendrecv(w, x, (me + 1) % n, got, (me + n - 1) % n);
        for (std::size_t i = 0; i < in.size(); ++i) in[i] = make(me, i);
        collx::all_to_all(w, in, out);
        for (std::size_t i = 0; i < size; ++i) {
            T expected = make(0, i);
            for (int r = 1; r < n; ++r) expected = op(expected, make(r, i));
            EXPECT_AT(i, sum[i] == expected && from_last[i] == make(n - 1, i) && got[i] == make((me + n - 1) % n, i));
        }
        for (std::size_t i = 0; i < in.size(); ++i)
            EXPECT_AT(i, out[i] == make(static_cast<int>(i / size), static_cast<std::size_t>(me) * size + i % size));
        // Trees keep partial results in other memory.
        for_each_copying_algorithm<collx::collective::all_reduce>([&](auto a) {
            if constexpr (std::string_view(a.name) == "binomial") {
                at("%s %s n=%d size=%zu", name, a.name, n, size);
                auto y = x;
                collx::all_reduce(w.with(a), y, collx::commutative(op));
                EXPECT(y == sum);
            }
        });
    }
}

} // namespace collx_test
