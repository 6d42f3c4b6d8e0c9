// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// clang-format off
// expect: collx: elements travel between ranks as bytes, and this type is an address in this process's memory. Send what it refers to: a buffer of its own, or std::vector<char> for texts. If it holds all elements itself, say so with collx::enable_wire<T> = true.
// clang-format on
#include <collx/core/buffer.hpp>

#include <array>
#include <string_view>
#include <vector>

// Looks like a view, but holds its characters: its owner says so.
struct tag {
    char text[15] = {};
    unsigned char length = 0;
    tag() = default;
    tag(const char* from, std::size_t n);
    const char* data() const { return text; }
    std::size_t size() const { return length; }
};
template <>
inline constexpr bool collx::enable_wire<tag> = true;
static_assert(collx::Element<tag>);

int main() {
#ifdef COLLX_FAIL
    std::vector<std::string_view> words(2);
#else
    std::vector<std::array<char, 16>> words(2);
#endif
    return static_cast<int>(collx::buffer(words).size());
}
