// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// result<T>: a value or the error that prevented it, for programs that do not want exceptions in their control flow.
// The useful subset of std::expected, which C++20 does not have.
#pragma once

#include <utility>

#include <collx/core/error.hpp>
#include <collx/core/maybe.hpp>
#include <collx/version.hpp>

COLLX_BEGIN_NAMESPACE

template <class T>
class [[nodiscard]] result {
public:
    using value_type = T;
    result(T value) : value_(std::move(value)) {}
    result(const collx::error& e) : error_(e) {}

    bool has_value() const { return value_.has_value(); }
    explicit operator bool() const { return has_value(); }
    // Throws the error if there is no value.
    T& value() & {
        check();
        return *value_;
    }
    T&& value() && {
        check();
        return std::move(*value_);
    }
    T& operator*() { return *value_; }
    T* operator->() { return &*value_; }
    const collx::error& error() const { return *error_; }

private:
    void check() const {
        if (!value_) raise(*error_);
    }
    detail::maybe<T> value_;
    detail::maybe<collx::error> error_;
};

template <>
class [[nodiscard]] result<void> {
public:
    using value_type = void;
    result() = default;
    result(const collx::error& e) : error_(e) {}

    bool has_value() const { return !error_.has_value(); }
    explicit operator bool() const { return has_value(); }
    void value() const {
        if (error_) raise(*error_);
    }
    const collx::error& error() const { return *error_; }

private:
    detail::maybe<collx::error> error_;
};

COLLX_END_NAMESPACE
