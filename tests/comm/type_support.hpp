// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// all_reduce of one type with one operator, compared with a left fold on one thread.
#pragma once

#include <typeinfo>

#include "support.hpp"

namespace collx_test {

// `base` shifts the values to a range where the operator is interesting and still exact in T.
template <class T, class Op>
void check_op(collx::communicator& w, Op op, int base = 0) {
    for (const std::size_t size : {1u, 7u, 33u, 3001u}) {
        at("%s %s n=%d size=%zu", typeid(T).name(), typeid(Op).name(), w.size(), size);
        const auto value = [&](int r, std::size_t i) { return static_cast<T>(sample(r, i) % 4 + base); };
        std::vector<T> x(size), out(size), expected(size);
        for (std::size_t i = 0; i < size; ++i) {
            x[i] = value(w.rank(), i);
            expected[i] = value(0, i);
            for (int r = 1; r < w.size(); ++r) expected[i] = static_cast<T>(op(expected[i], value(r, i)));
        }
        collx::all_reduce(w, x, out, op);
        collx::all_reduce(w, x, op);
        EXPECT(x == expected && out == expected);
    }
}

} // namespace collx_test
