// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Characters that are owned, as in std::string, whose header costs every .cu file that includes collx 0.4 s; collx's
// start-up used a dozen of its functions. Converts from and to std::string where a program includes it. Functions that
// only read are those of name_view.
#pragma once

#include <cstddef>
#include <cstring>
#include <new>
#include <type_traits>

#include <collx/core/name_view.hpp>
#include <collx/version.hpp>

COLLX_BEGIN_NAMESPACE

class kept_text {
public:
    static constexpr std::size_t npos = name_view::npos;

    kept_text() = default;
    kept_text(const char* text) : kept_text(name_view(text)) {}
    kept_text(name_view text) : kept_text() { append(text); }
    template <class Text>
    requires requires(const Text& x, const char*& p, std::size_t& n) {
        p = x.data();
        n = x.size();
    }
    kept_text(const Text& x) : kept_text(name_view(x)) {}
    kept_text(const char* text, std::size_t size) : kept_text(name_view(text, size)) {}
    kept_text(std::size_t size, char c) : kept_text() { resize(size, c); }
    kept_text(kept_text&& o) noexcept { swap(o); }
    kept_text(const kept_text& o) : kept_text(name_view(o)) {}
    kept_text& operator=(kept_text o) noexcept {
        swap(o);
        return *this;
    }
    ~kept_text() { ::operator delete(at_); }

    const char* data() const noexcept { return at_ != nullptr ? at_ : ""; }
    const char* c_str() const noexcept { return data(); } // zero-terminated
    char* data() noexcept { return at_ != nullptr ? at_ : none(); }
    std::size_t size() const noexcept { return size_; }
    bool empty() const noexcept { return size_ == 0; }
    const char* begin() const noexcept { return data(); }
    const char* end() const noexcept { return data() + size_; }
    char* begin() noexcept { return data(); }
    char* end() noexcept { return data() + size_; }
    const char& operator[](std::size_t i) const noexcept { return data()[i]; }
    char& operator[](std::size_t i) noexcept { return data()[i]; }
    char back() const noexcept { return at_[size_ - 1]; }
    // Copies the first bytes into a Plain. Requires: size() >= sizeof(Plain). Reads at_, because g++ warns about a
    // memcpy from data() of an empty text.
    template <class Plain>
    Plain as() const noexcept {
        static_assert(std::is_trivially_copyable_v<Plain>);
        Plain x{};
        if (at_ != nullptr) std::memcpy(&x, at_, sizeof x);
        return x;
    }

    // At most `count` characters from `from` on. Requires: from <= size().
    kept_text substr(std::size_t from, std::size_t count = npos) const { return view().substr(from, count); }
    std::size_t find(name_view x, std::size_t from = 0) const noexcept { return view().find(x, from); }
    std::size_t find(char x, std::size_t from = 0) const noexcept { return view().find(x, from); }
    std::size_t rfind(char x, std::size_t last = npos) const noexcept { return view().rfind(x, last); }
    std::size_t find_first_of(name_view which, std::size_t from = 0) const noexcept {
        return view().find_first_of(which, from);
    }
    std::size_t find_first_not_of(name_view which) const noexcept { return view().find_first_not_of(which); }
    bool starts_with(name_view x) const noexcept { return view().starts_with(x); }

    // The text may be a part of this one. Cold, so that g++ optimises the functions that make texts for size.
    [[gnu::cold]] kept_text& append(name_view text) {
        if (text.empty()) return *this;
        if (size_ + text.size() > room_) {
            kept_text more;
            more.reserve(2 * size_ + text.size());
            std::memcpy(more.at_, data(), size_);
            std::memcpy(more.at_ + size_, text.data(), text.size());
            more.set_size(size_ + text.size());
            swap(more);
        } else {
            std::memmove(at_ + size_, text.data(), text.size());
            set_size(size_ + text.size());
        }
        return *this;
    }
    kept_text& operator+=(name_view text) { return append(text); }
    kept_text& operator+=(char c) { return append({&c, 1}); }
    friend kept_text operator+(kept_text a, name_view b) { return static_cast<kept_text&&>(a += b); }
    friend kept_text operator+(const char* a, const kept_text& b) { return kept_text(a) + b; }
    void push_back(char c) { append({&c, 1}); }

    [[gnu::cold]] void reserve(std::size_t room) {
        if (room <= room_) return;
        char* const to = static_cast<char*>(::operator new(room + 1));
        std::memcpy(to, data(), size_ + 1);
        ::operator delete(at_);
        at_ = to;
        room_ = room;
    }
    void resize(std::size_t size, char c = '\0') {
        reserve(size);
        if (size > size_) std::memset(at_ + size_, c, size - size_);
        set_size(size);
    }
    void clear() noexcept { set_size(0); }
    void erase(std::size_t from, std::size_t count = npos) noexcept {
        if (count > size_ - from) count = size_ - from;
        if (count == 0) return;
        std::memmove(at_ + from, at_ + from + count, size_ - from - count);
        set_size(size_ - count);
    }
    void swap(kept_text& o) noexcept {
        char* const at = at_;
        const std::size_t size = size_, room = room_;
        at_ = o.at_;
        size_ = o.size_;
        room_ = o.room_;
        o.at_ = at;
        o.size_ = size;
        o.room_ = room;
    }

    template <class Text>
    requires requires(const Text& x) { name_view(x); }
    friend bool operator==(const kept_text& a, const Text& b) noexcept { return a.view() == name_view(b); }
    template <class Text>
    requires(!std::is_same_v<Text, name_view>) && requires(const char* p, std::size_t n) { Text(p, n); }
    operator Text() const { return Text(data(), size_); }
    template <class Stream>
    requires requires(Stream& s, const char* p) { s.write(p, 1); }
    friend Stream& operator<<(Stream& s, const kept_text& x) { return s << x.view(); }

private:
    name_view view() const noexcept { return {data(), size_}; }
    static char* none() noexcept {
        static char zero;
        return &zero;
    }
    void set_size(std::size_t size) noexcept {
        size_ = size;
        if (at_ != nullptr) at_[size] = '\0';
    }

    char* at_ = nullptr;
    std::size_t size_ = 0, room_ = 0;
};

COLLX_END_NAMESPACE
