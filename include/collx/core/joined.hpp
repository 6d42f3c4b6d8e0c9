// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Text made of pieces: joined({"rank ", rank, " of ", size}). It is one function for all callers, because a sum of
// strings would be compiled at each of them, with the code that destroys its parts.
#pragma once

#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <type_traits>

#include <collx/core/kept_text.hpp>
#include <collx/version.hpp>

COLLX_BEGIN_NAMESPACE
namespace detail {

// A piece keeps a number itself; text that it was made of must outlive it.
class text_piece {
public:
    text_piece(name_view text) : text_(text.data()), bytes_(text.size()) {}
    template <class Text>
    requires requires(const Text& x, const char*& p, std::size_t& n) {
        p = x.data();
        n = x.size();
    }
    text_piece(const Text& text) : text_(text.data()), bytes_(text.size()) {}
    text_piece(const char* text) : text_piece(name_view(text)) {}
    text_piece(bool yes) : text_piece(yes ? "1" : "0") {}
    template <class Number>
    requires std::is_integral_v<Number> text_piece(Number n) {
        bool is_negative = false;
        if constexpr (std::is_signed_v<Number>) is_negative = n < 0; // nvcc warns of this test on an unsigned type
        write(is_negative, is_negative ? 0 - static_cast<std::uint64_t>(n) : static_cast<std::uint64_t>(n));
    }
    name_view text() const { return {text_, bytes_}; }
    text_piece(const text_piece&) = delete;

private:
    [[gnu::noinline]] void write(bool is_negative, std::uint64_t n) {
        char* at = digits_ + sizeof digits_;
        do *--at = static_cast<char>('0' + n % 10);
        while ((n /= 10) != 0);
        if (is_negative) *--at = '-';
        text_ = at;
        bytes_ = static_cast<std::size_t>(digits_ + sizeof digits_ - at);
    }
    const char* text_ = nullptr;
    std::size_t bytes_ = 0;
    char digits_[20];
};

[[gnu::cold, gnu::noinline]] inline kept_text joined(std::initializer_list<text_piece> pieces) {
    std::size_t bytes = 0;
    for (const text_piece& p : pieces) bytes += p.text().size();
    kept_text all;
    all.reserve(bytes);
    for (const text_piece& p : pieces) all.append(p.text());
    return all;
}

} // namespace detail
COLLX_END_NAMESPACE
