// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Characters that live elsewhere: what std::string_view is for, but its header costs every .cu file 0.3 s, for it
// brings streams' declarations and a part of <ranges>. Converts from std::string and std::string_view and to them,
// where a program includes them.
#pragma once

#include <cstddef>

#include <collx/version.hpp>

COLLX_BEGIN_NAMESPACE

class name_view {
public:
    constexpr name_view(const char* text) noexcept : name_view(text, __builtin_strlen(text)) {}
    constexpr name_view(const char* text, std::size_t size) noexcept : data_(text), size_(size) {}
    template <class Text>
    requires requires(const Text& x, const char*& p, std::size_t& n) { p = x.data(), n = x.size(); }
    constexpr name_view(const Text& x) noexcept : name_view(x.data(), x.size()) {}

    constexpr const char* data() const noexcept { return data_; }
    constexpr std::size_t size() const noexcept { return size_; }
    constexpr bool empty() const noexcept { return size_ == 0; }
    constexpr const char* begin() const noexcept { return data_; }
    constexpr const char* end() const noexcept { return data_ + size_; }
    constexpr char operator[](std::size_t i) const noexcept { return data_[i]; }
    // At most `count` characters from `from` on, which must not lie behind the end.
    constexpr name_view substr(std::size_t from, std::size_t count = ~std::size_t{0}) const noexcept {
        return {data_ + from, count < size_ - from ? count : size_ - from};
    }
    constexpr bool starts_with(name_view x) const noexcept { return size_ >= x.size_ && substr(0, x.size_) == x; }
    // Where x begins for the first time; size() if nowhere.
    constexpr std::size_t find(name_view x) const noexcept {
        for (std::size_t i = 0; i + x.size_ <= size_; ++i)
            if (substr(i, x.size_) == x) return i;
        return size_;
    }
    // The same from the end.
    constexpr std::size_t rfind(char x) const noexcept {
        for (std::size_t i = size_; i > 0; --i)
            if (data_[i - 1] == x) return i - 1;
        return size_;
    }
    friend constexpr bool operator==(name_view a, name_view b) noexcept {
        if (a.size_ != b.size_) return false;
        for (std::size_t i = 0; i < a.size_; ++i)
            if (a[i] != b[i]) return false;
        return true;
    }
    template <class Text>
    requires requires(const char* p, std::size_t n) { Text(p, n); }
    constexpr operator Text() const { return Text(data_, size_); }
    template <class Stream>
    requires requires(Stream& s, const char* p) { s.write(p, 1); }
    friend Stream& operator<<(Stream& s, name_view x) {
        s.write(x.data_, static_cast<std::ptrdiff_t>(x.size_));
        return s;
    }

private:
    const char* data_;
    std::size_t size_;
};

COLLX_END_NAMESPACE
