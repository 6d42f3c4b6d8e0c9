// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Characters that are stored elsewhere, as in std::string_view, whose header costs every .cu file 0.3 s because it
// includes the declarations of streams and a part of <ranges>. Converts from and to std::string and std::string_view
// where a program includes them.
#pragma once

#include <cstddef>

#include <collx/version.hpp>

COLLX_BEGIN_NAMESPACE

class name_view {
public:
    static constexpr std::size_t npos = ~std::size_t{0}; // not found

    constexpr name_view() noexcept : name_view(nullptr, 0) {}
    constexpr name_view(const char* text) noexcept : name_view(text, __builtin_strlen(text)) {}
    constexpr name_view(const char* text, std::size_t size) noexcept : data_(text), size_(size) {}
    template <class Text>
    requires requires(const Text& x, const char*& p, std::size_t& n) {
        p = x.data();
        n = x.size();
    }
    constexpr name_view(const Text& x) noexcept : name_view(x.data(), x.size()) {}

    constexpr const char* data() const noexcept { return data_; }
    constexpr std::size_t size() const noexcept { return size_; }
    constexpr bool empty() const noexcept { return size_ == 0; }
    constexpr const char* begin() const noexcept { return data_; }
    constexpr const char* end() const noexcept { return data_ + size_; }
    constexpr char back() const noexcept { return data_[size_ - 1]; }
    constexpr char operator[](std::size_t i) const noexcept { return data_[i]; }
    // At most `count` characters from `from` on. Requires: from <= size().
    constexpr name_view substr(std::size_t from, std::size_t count = ~std::size_t{0}) const noexcept {
        return {data_ + from, count < size_ - from ? count : size_ - from};
    }
    constexpr bool starts_with(name_view x) const noexcept { return size_ >= x.size_ && substr(0, x.size_) == x; }
    // The position of the first x at or after `from`; npos if there is none.
    constexpr std::size_t find(name_view x, std::size_t from = 0) const noexcept {
        for (; from <= size_ && x.size_ <= size_ - from; ++from)
            if (substr(from, x.size_) == x) return from;
        return npos;
    }
    constexpr std::size_t find(char x, std::size_t from = 0) const noexcept { return find({&x, 1}, from); }
    // The position of the last x at or before `last`; npos if there is none.
    constexpr std::size_t rfind(char x, std::size_t last = npos) const noexcept {
        for (std::size_t i = last < size_ ? last + 1 : size_; i > 0; --i)
            if (data_[i - 1] == x) return i - 1;
        return npos;
    }
    constexpr std::size_t find_first_of(name_view which, std::size_t from = 0) const noexcept {
        while (from < size_ && which.find(data_[from]) == npos) ++from;
        return from < size_ ? from : npos;
    }
    constexpr std::size_t find_first_not_of(name_view which) const noexcept {
        for (std::size_t i = 0; i < size_; ++i)
            if (which.find(data_[i]) == npos) return i;
        return npos;
    }
    constexpr void remove_prefix(std::size_t count) noexcept {
        data_ += count;
        size_ -= count;
    }
    friend constexpr bool operator==(name_view a, name_view b) noexcept {
        if (a.size_ != b.size_) return false;
        for (std::size_t i = 0; i < a.size_; ++i)
            if (a[i] != b[i]) return false;
        return true;
    }
    friend constexpr bool operator<(name_view a, name_view b) noexcept {
        for (std::size_t i = 0; i < a.size_ && i < b.size_; ++i)
            if (a[i] != b[i]) return static_cast<unsigned char>(a[i]) < static_cast<unsigned char>(b[i]);
        return a.size_ < b.size_;
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
