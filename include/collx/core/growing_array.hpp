// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// An array that grows, for what the library keeps of its own types. To a compiler each std::vector<T> is sixty
// functions and as many small classes, and nvcc's three parsers read all of them anew: together a third of what
// collx.hpp cost a .cu file. This one is a dozen functions of a few lines. What users see (counts, ranks, bytes) is
// std::vector.
#pragma once

#include <cstddef>
#include <initializer_list>
#include <new>

#include <collx/version.hpp>

COLLX_BEGIN_NAMESPACE
namespace detail {

// Requires: T moves without exceptions. An iterator is a pointer.
template <class T>
class growing_array {
public:
    growing_array() = default;
    // Through the default constructor, after which an exception finds the destructor.
    explicit growing_array(std::size_t size) : growing_array() { resize(size); }
    growing_array(std::initializer_list<T> all) : growing_array() { append(all.begin(), all.size()); }
    // A copy of a std::vector<T>, say.
    template <class List>
    requires requires(const List& l) { l.data() + l.size(); }
    growing_array(const List& all) : growing_array() { append(all.data(), all.size()); }
    growing_array(growing_array&& o) noexcept { swap(o); }
    growing_array(const growing_array& o) : growing_array() { append(o.at_, o.size_); }
    growing_array& operator=(growing_array o) noexcept { return swap(o), *this; }
    ~growing_array() {
        clear();
        ::operator delete(at_);
    }

    T* begin() { return at_; }
    T* end() { return at_ + size_; }
    const T* begin() const { return at_; }
    const T* end() const { return at_ + size_; }
    T* data() { return at_; }
    const T* data() const { return at_; }
    std::size_t size() const { return size_; }
    bool empty() const { return size_ == 0; }
    T& operator[](std::size_t i) { return at_[i]; }
    const T& operator[](std::size_t i) const { return at_[i]; }
    T& front() { return at_[0]; }
    T& back() { return at_[size_ - 1]; }

    // The arguments may be parts of this array: the element is there before anything moves.
    template <class... Args>
    T& emplace_back(Args&&... args) {
        T made(static_cast<Args&&>(args)...);
        if (size_ == room_) reserve(2 * size_ + 4);
        return *add(static_cast<T&&>(made));
    }
    void push_back(T made) {
        if (size_ == room_) reserve(2 * size_ + 4);
        add(static_cast<T&&>(made));
    }
    void reserve(std::size_t room) {
        static_assert(alignof(T) <= alignof(std::max_align_t));
        if (room <= room_) return;
        T* const to = static_cast<T*>(::operator new(room * sizeof(T)));
        for (std::size_t i = 0; i < size_; ++i) {
            ::new (static_cast<void*>(to + i)) T(static_cast<T&&>(at_[i]));
            at_[i].~T();
        }
        ::operator delete(at_);
        at_ = to, room_ = room;
    }
    void resize(std::size_t size) {
        while (size_ > size) pop_back();
        reserve(size);
        while (size_ < size) ::new (static_cast<void*>(at_ + size_)) T(), ++size_;
    }
    void append(const T* from, std::size_t count) {
        reserve(size_ + count);
        for (std::size_t i = 0; i < count; ++i) add(from[i]);
    }
    void erase(T* which) {
        for (T* last = end() - 1; which != last; ++which) *which = static_cast<T&&>(which[1]);
        pop_back();
    }
    void pop_back() { at_[--size_].~T(); }
    void clear() {
        while (size_ != 0) pop_back();
    }
    void swap(growing_array& o) noexcept {
        T* const at = at_;
        const std::size_t size = size_, room = room_;
        at_ = o.at_, size_ = o.size_, room_ = o.room_;
        o.at_ = at, o.size_ = size, o.room_ = room;
    }

private:
    template <class From>
    T* add(From&& from) {
        T* const at = ::new (static_cast<void*>(at_ + size_)) T(static_cast<From&&>(from));
        return ++size_, at;
    }

    T* at_ = nullptr;
    std::size_t size_ = 0, room_ = 0;
};

// All for which `is_out(element)` is true leave; the others keep their order.
template <class T, class IsOut>
void erase_if(growing_array<T>& all, IsOut&& is_out) {
    T* to = all.begin();
    for (T& x : all)
        if (!is_out(x)) {
            if (&x != to) *to = static_cast<T&&>(x);
            ++to;
        }
    while (all.end() != to) all.pop_back();
}

} // namespace detail
COLLX_END_NAMESPACE
