// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Owning pointers with one owner or a count of owners. The standard's include <ostream> in C++20 (0.2 s for every user
// of collx.hpp), only to print addresses. std::exchange and std::swap check five properties of each type, which every
// .cu file pays for three times.
#pragma once

#include <cstddef>
#include <utility>

#include <collx/core/atomic.hpp>
#include <collx/version.hpp>

COLLX_BEGIN_NAMESPACE

// One owner. Movable. The object may be of a class derived from T if T's destructor is virtual.
template <class T>
class sole_ptr {
public:
    sole_ptr() = default;
    sole_ptr(std::nullptr_t) {}
    explicit sole_ptr(T* p) : p_(p) {}
    sole_ptr(sole_ptr&& o) noexcept : p_(o.release()) {}
    template <class U>
    sole_ptr(sole_ptr<U>&& o) noexcept : p_(o.release()) {}
    sole_ptr& operator=(sole_ptr&& o) noexcept {
        if (this != &o) {
            T* const was = p_;
            p_ = o.release();
            delete was;
        }
        return *this;
    }
    ~sole_ptr() { delete p_; }
    T* get() const { return p_; }
    T* release() {
        T* const was = p_;
        p_ = nullptr;
        return was;
    }
    T& operator*() const { return *p_; }
    T* operator->() const { return p_; }
    explicit operator bool() const { return p_ != nullptr; }
    bool operator==(std::nullptr_t) const { return p_ == nullptr; }

private:
    T* p_ = nullptr;
};

// Makes a new T of these arguments. Returns its sole owner.
template <class T, class... Args>
sole_ptr<T> make_sole(Args&&... args) {
    return sole_ptr<T>(new T(std::forward<Args>(args)...));
}

namespace detail {
// Written by: every owner, when it joins (relaxed) and when it leaves (acquire-release).
struct owner_count {
    atomic<long> owners{1};
    virtual ~owner_count() = default;
};
template <class T>
struct counted_value final : owner_count {
    T value;
    template <class... Args>
    explicit counted_value(Args&&... args) : value(std::forward<Args>(args)...) {}
};
} // namespace detail

// Any number of owners, in any threads.
template <class T>
class counted_ptr {
public:
    counted_ptr() = default;
    counted_ptr(std::nullptr_t) {}
    counted_ptr(T* value, detail::owner_count* count) : p_(value), count_(count) {} // takes over one ownership
    counted_ptr(const counted_ptr& o) : p_(o.p_), count_(o.count_) { join(); }
    counted_ptr(counted_ptr&& o) noexcept { swap(o); }
    template <class U>
    counted_ptr(const counted_ptr<U>& o) : p_(o.get()), count_(o.count()) {
        join();
    }
    // Shares ownership of `whole`, and points to a part of it.
    template <class U>
    counted_ptr(const counted_ptr<U>& whole, T* part) : p_(part), count_(whole.count()) {
        join();
    }
    counted_ptr& operator=(counted_ptr o) noexcept {
        swap(o);
        return *this;
    }
    void swap(counted_ptr& o) noexcept {
        T* const p = p_;
        detail::owner_count* const count = count_;
        p_ = o.p_;
        count_ = o.count_;
        o.p_ = p;
        o.count_ = count;
    }
    ~counted_ptr() {
        if (count_ != nullptr && count_->owners.fetch_sub(1, memory_order::acq_rel) == 1) delete count_;
    }
    void reset() { *this = counted_ptr(); }
    T* get() const { return p_; }
    detail::owner_count* count() const { return count_; }
    T& operator*() const { return *p_; }
    T* operator->() const { return p_; }
    explicit operator bool() const { return p_ != nullptr; }
    bool operator==(const counted_ptr& o) const { return p_ == o.p_; }
    bool operator==(std::nullptr_t) const { return p_ == nullptr; }

private:
    void join() {
        if (count_ != nullptr) count_->owners.fetch_add(1, memory_order::relaxed);
    }
    T* p_ = nullptr;
    detail::owner_count* count_ = nullptr;
};

// Makes a new T of these arguments. Returns its first owner. Cost: one allocation.
template <class T, class... Args>
counted_ptr<T> make_counted(Args&&... args) {
    auto* made = new detail::counted_value<T>(std::forward<Args>(args)...);
    return {&made->value, made};
}

COLLX_END_NAMESPACE
