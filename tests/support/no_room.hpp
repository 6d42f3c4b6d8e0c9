// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// What a message does that is longer than any memory: the rank that was to receive it ends the communicator.
#pragma once

#include <cstddef>
#include <cstdint>
#include <stdexcept>

#include "comm/support.hpp"

namespace collx_test {

// take(w) receives from rank 0 a message whose length travels ahead of it; both_send: and sends one there.
template <class Take>
void expect_end_without_room(bool both_send, Take&& take) {
    on_ranks(2, [&](collx::communicator& w) {
        const std::size_t length = SIZE_MAX;
        std::size_t other = 0;
        if (w.rank() == 1) return (void)thrown<std::length_error>(w, [&] { take(w); });
        if (both_send) collx::sendrecv(w, collx::value(length), 1, collx::value(other), 1);
        else collx::send(w, collx::value(length), 1);
        EXPECT(thrown<collx::aborted>(w, [&] { collx::recv(w, collx::value(other), 1); }).peer() == 1);
    });
}

} // namespace collx_test
