// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Two errors of one function with the same last arguments but different numbers of arguments. An optimising compiler
// may merge the ends of the two calls; both errors must still be caught.
#include <collx/core/error.hpp>

#include <cstdio>
#include <cstring>

namespace {
[[gnu::noinline]] int checked(int kind, int b, int c) {
    if (kind == 1) collx::fail(collx::errc::invalid_argument, kind, b, "one", "%d, %d and %d", b, c, b);
    if (kind == 2) collx::fail(collx::errc::invalid_argument, kind, b, "two", "%d, %d, %d, %d and %d", b, c, b, b, b);
    return kind + b + c;
}
} // namespace

int main(int argc, char**) {
    int caught = 0;
    for (int kind = 0; kind < 3; ++kind) {
        try {
            checked(kind, 5, argc);
        } catch (const collx::error& e) {
            caught +=
                e.rank() == kind && std::strstr(e.what(), kind == 1 ? "5, 1 and 5" : "5, 1, 5, 5 and 5") != nullptr;
        }
    }
    std::printf("%d of 2 errors caught\n", caught);
    return caught == 2 ? 0 : 1;
}
