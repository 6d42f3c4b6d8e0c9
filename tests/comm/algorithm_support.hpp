// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// What a verb must do with every algorithm, number of ranks, root, and size of buffer and piece. `check(w, bound,
// size)`, or `check(w, bound, size, root)` for a verb with a root, makes the call on `bound`, which is `w` or
// `w.with(...)`, and checks the result.
#pragma once

#include <type_traits>

#include "support.hpp"

namespace collx_test {

template <class Check, class Comm>
void check_with(Check check, collx::communicator& w, Comm&& bound, std::size_t size, int root) {
    if constexpr (std::is_invocable_v<Check, collx::communicator&, Comm, std::size_t, int>) check(w, bound, size, root);
    else check(w, bound, size);
}

template <collx::collective Verb, class Check>
void check_algorithms(Check check) {
    constexpr bool is_rooted = std::is_invocable_v<Check, collx::communicator&, collx::communicator&, std::size_t, int>;
    for (const int n : rank_counts)
        on_ranks(n, [&](collx::communicator& w) {
            for (const std::size_t size : sizes)
                for (int root = 0; root < (is_rooted ? w.size() : 1); ++root) {
                    at("default n=%d size=%zu root=%d", w.size(), size, root);
                    check_with(check, w, w, size, root);
                    if (size > 5000 && root % 3 != 0) continue;
                    for_each_copying_algorithm<Verb>([&](auto a) {
                        at("%s n=%d size=%zu root=%d", a.name, w.size(), size, root);
                        check_with(check, w, w.with(a), size, root);
                    });
                }
        });
}

template <collx::collective Verb, class Check>
void check_pieces(Check check) {
    for (const int n : {1, 2, 3, 5, 8})
        on_ranks(n, [&](collx::communicator& w) {
            for (const std::size_t bytes : {1u, 60u, 256u, 1u << 30})
                for (const std::size_t size : {0u, 1u, 33u, 517u, 1037u})
                    for_each_copying_algorithm<Verb>([&](auto a) {
                        at("%s n=%d size=%zu piece=%zu", a.name, w.size(), size, bytes);
                        check_with(check, w, w.with(a, collx::piece{bytes}), size, w.size() / 2);
                    });
        });
}

} // namespace collx_test
