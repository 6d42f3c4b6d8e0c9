// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// A growable array for the library's own data. To a compiler each std::vector<T> is sixty functions and as many small
// classes, which nvcc's three parsers all read: together a third of the cost of collx.hpp in a .cu file; <vector>
// itself costs a twelfth of the rest. This class has a dozen short functions. Programs pass std::vectors.
#pragma once

#include <cstddef>
#include <initializer_list>
#include <new>

#include <collx/version.hpp>

COLLX_BEGIN_NAMESPACE
namespace detail {

// Requires: T moves without exceptions. An iterator is a pointer. In constant evaluation (proofs record while
// compiling) there is no raw memory: reserve() makes default elements there, so T must have them.
template <class T>
class growing_array {
public:
    using value_type = T;

    constexpr growing_array() = default;
    // Delegates to the default constructor, so that the destructor runs after an exception.
    constexpr explicit growing_array(std::size_t size) : growing_array() { resize(size); }
    constexpr growing_array(std::size_t size, const T& value) : growing_array() { assign(size, value); }
    constexpr growing_array(std::initializer_list<T> all) : growing_array() { append(all.begin(), all.size()); }
    constexpr growing_array(const T* from, const T* to) : growing_array() {
        append(from, static_cast<std::size_t>(to - from));
    }
    // Copies a std::vector<T>, for example, or a list of values from which a T can be made.
    template <class List>
    requires requires(const List& l, const T*& p) {
        p = l.data();
        l.size();
    } ||(__is_class(T) && requires(const List& l) { T(l.data()[l.size()]); }) constexpr growing_array(const List& all)
        : growing_array() {
        if constexpr (requires(const T*& p) { p = all.data(); }) append(all.data(), all.size());
        else
            for (std::size_t i = 0; i < all.size(); ++i) push_back(T(all.data()[i]));
    }
    constexpr growing_array(growing_array&& o) noexcept { swap(o); }
    constexpr growing_array(const growing_array& o) : growing_array() { append(o.at_, o.size_); }
    constexpr growing_array& operator=(growing_array o) noexcept {
        swap(o);
        return *this;
    }
    constexpr ~growing_array() {
        if (__builtin_is_constant_evaluated()) {
            delete[] at_;
        } else {
            clear();
            // Clang 14 emits no destructor call for a const variable whose destruction it can evaluate, and skips
            // `operator delete` with its arguments in that check. Reading at_ outside of them makes the check fail.
            T* const memory = at_;
            ::operator delete(memory);
        }
    }

    constexpr T* begin() { return at_; }
    constexpr T* end() { return at_ + size_; }
    constexpr const T* begin() const { return at_; }
    constexpr const T* end() const { return at_ + size_; }
    constexpr T* data() { return at_; }
    constexpr const T* data() const { return at_; }
    constexpr std::size_t size() const { return size_; }
    constexpr bool empty() const { return size_ == 0; }
    // Of any integer type, so that a rank, which is an int, needs no cast.
    template <class Index>
    constexpr T& operator[](Index i) {
        return at_[i];
    }
    template <class Index>
    constexpr const T& operator[](Index i) const {
        return at_[i];
    }
    constexpr T& front() { return at_[0]; }
    constexpr const T& front() const { return at_[0]; }
    constexpr T& back() { return at_[size_ - 1]; }
    constexpr const T& back() const { return at_[size_ - 1]; }

    // The arguments may refer to parts of this array: the element is made before anything moves.
    template <class... Args>
    constexpr T& emplace_back(Args&&... args) {
        T made(static_cast<Args&&>(args)...);
        if (size_ == room_) reserve(2 * size_ + 4);
        return *add(static_cast<T&&>(made));
    }
    constexpr void push_back(T made) {
        if (size_ == room_) reserve(2 * size_ + 4);
        add(static_cast<T&&>(made));
    }
    constexpr void insert(const T* before, T made) {
        const std::size_t at = static_cast<std::size_t>(before - at_);
        emplace_back();
        for (std::size_t i = size_ - 1; i > at; --i) at_[i] = static_cast<T&&>(at_[i - 1]);
        at_[at] = static_cast<T&&>(made);
    }
    [[gnu::cold]] constexpr void reserve(std::size_t room) {
        static_assert(alignof(T) <= alignof(std::max_align_t));
        if (room <= room_) return;
        T* const from = at_;
        if (__builtin_is_constant_evaluated()) {
            if constexpr (has_defaults) {
                at_ = new T[room];
                for (std::size_t i = 0; i < size_; ++i) at_[i] = static_cast<T&&>(from[i]);
                delete[] from;
            }
        } else {
            at_ = static_cast<T*>(::operator new(room * sizeof(T)));
            if constexpr (__is_trivially_copyable(T)) {
                if (size_ != 0) __builtin_memcpy(static_cast<void*>(at_), from, size_ * sizeof(T));
            } else {
                for (std::size_t i = 0; i < size_; ++i) {
                    ::new (static_cast<void*>(at_ + i)) T(static_cast<T&&>(from[i]));
                    from[i].~T();
                }
            }
            ::operator delete(from);
        }
        room_ = room;
    }
    constexpr void resize(std::size_t size) {
        while (size_ > size) pop_back();
        if (size > room_) reserve(size);
        if constexpr (sizeof(T) == 1 && __is_trivially_copyable(T)) // bytes, of which there may be many
            if (!__builtin_is_constant_evaluated() && size_ < size) {
                __builtin_memset(static_cast<void*>(at_ + size_), 0, size - size_);
                size_ = size;
            }
        while (size_ < size) add(T());
    }
    constexpr void assign(std::size_t size, const T& value) {
        clear();
        if (size > room_) reserve(size);
        while (size_ < size) add(value);
    }
    constexpr void append(const T* from, std::size_t count) {
        if (size_ + count > room_) reserve(size_ + count);
        if constexpr (__is_trivially_copyable(T))
            if (!__builtin_is_constant_evaluated()) {
                if (count != 0) __builtin_memcpy(static_cast<void*>(at_ + size_), from, count * sizeof(T));
                size_ += count;
                return;
            }
        for (std::size_t i = 0; i < count; ++i) add(from[i]);
    }
    constexpr void erase(const T* which) {
        for (T* to = at_ + (which - at_); to != end() - 1; ++to) *to = static_cast<T&&>(to[1]);
        pop_back();
    }
    constexpr void erase_at(std::size_t i) { erase(at_ + i); }
    constexpr void pop_back() {
        --size_;
        if (!__builtin_is_constant_evaluated()) at_[size_].~T();
    }
    constexpr void clear() {
        if constexpr (__is_trivially_copyable(T)) size_ = 0; // at once, however many elements
        else
            while (size_ != 0) pop_back();
    }
    constexpr void swap(growing_array& o) noexcept {
        T* const at = at_;
        const std::size_t size = size_, room = room_;
        at_ = o.at_;
        size_ = o.size_;
        room_ = o.room_;
        o.at_ = at;
        o.size_ = size;
        o.room_ = room;
    }
    friend constexpr bool operator==(const growing_array& a, const growing_array& b) {
        std::size_t same = 0;
        while (a.size_ == b.size_ && same < a.size_ && a.at_[same] == b.at_[same]) ++same;
        return a.size_ == b.size_ && same == a.size_;
    }

private:
    static constexpr bool has_defaults = requires(T & x) {
        T();
        x = static_cast<T&&>(x);
    };

    template <class From>
    constexpr T* add(From&& from) {
        if constexpr (has_defaults)
            if (__builtin_is_constant_evaluated()) {
                at_[size_] = T(static_cast<From&&>(from));
                return at_ + size_++;
            }
        T* const at = ::new (static_cast<void*>(at_ + size_)) T(static_cast<From&&>(from));
        ++size_;
        return at;
    }

    T* at_ = nullptr;
    std::size_t size_ = 0, room_ = 0;
};

// Removes all elements for which `is_out(element)` is true; the others keep their order.
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
