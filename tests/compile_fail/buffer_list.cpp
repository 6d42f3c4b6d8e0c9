// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// clang-format off
// expect: collx::buffer: the elements of this range have no numbers: it needs random access and a size. Copy it into a std::vector first.
// clang-format on
#include <collx/core/buffer.hpp>

#include <list>
#include <vector>

int main() {
    std::list<int> items = {1, 2, 3};
#ifdef COLLX_FAIL
    return static_cast<int>(collx::buffer(items).size());
#else
    return static_cast<int>(collx::buffer(std::vector<int>(items.begin(), items.end())).size());
#endif
}
