// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// A value that may be absent, as std::optional, of whose forty functions the library used six.
#pragma once

#include <new>

#include <collx/version.hpp>

COLLX_BEGIN_NAMESPACE
namespace detail {

template <class T>
class maybe {
public:
    maybe() {}
    maybe(const T& x) { emplace(x); }
    maybe(T&& x) { emplace(static_cast<T&&>(x)); }
    maybe(const maybe& o) {
        if (o.is_there_) emplace(o.value_);
    }
    maybe(maybe&& o) noexcept(noexcept(T(static_cast<T&&>(o.value_)))) {
        if (o.is_there_) emplace(static_cast<T&&>(o.value_));
    }
    maybe& operator=(const maybe& o) {
        if (this != &o) {
            reset();
            if (o.is_there_) emplace(o.value_);
        }
        return *this;
    }
    maybe& operator=(maybe&& o) {
        if (this != &o) {
            reset();
            if (o.is_there_) emplace(static_cast<T&&>(o.value_));
        }
        return *this;
    }
    ~maybe() { reset(); }

    // Destroys the previous value first.
    template <class... Args>
    T& emplace(Args&&... args) {
        reset();
        T* const at = ::new (static_cast<void*>(&value_)) T(static_cast<Args&&>(args)...);
        is_there_ = true;
        return *at;
    }
    void reset() {
        if (is_there_) {
            is_there_ = false;
            value_.~T();
        }
    }

    bool has_value() const { return is_there_; }
    explicit operator bool() const { return is_there_; }
    T& operator*() { return value_; }
    const T& operator*() const { return value_; }
    T* operator->() { return &value_; }

private:
    union {
        T value_;
    };
    bool is_there_ = false;
};

} // namespace detail
COLLX_END_NAMESPACE
