// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Buffer views: how the rest of collx sees a tensor. A view is a small value that refers to memory and numbers the
// elements 0 .. size() - 1. Element i of one rank is combined with element i of every other rank, whatever the memory
// layouts of their tensors. Views never own and never allocate.
// It must not know which user types turn into which view; that is buffer.hpp.
#pragma once

#include <concepts>
#include <cstddef>
#include <type_traits>

#include <collx/core/config.hpp>
#include <collx/core/element.hpp>
#include <collx/core/strides.hpp>
#include <collx/version.hpp>

COLLX_BEGIN_NAMESPACE

// Where the elements can be read: by this processor, or by a device only.
enum class memory_kind : unsigned char { host, device };

// A view of a tensor. Shape: a sequence of `size()` elements of `value_type`.
// Requires: V::is_contiguous   data() points to all elements in order
//           V::is_output       elements can be assigned
//           V::is_window       the memory was allocated by collx to be shared with other ranks
// Models: contiguous_view, window_view, device_view, strided_view, mapped_view, input_view.
template <class V>
concept BufferView = std::copyable<V> && Element<typename V::value_type> && requires(const V& v, std::size_t i) {
    { v.size() } -> std::convertible_to<std::size_t>;
    { v[i] } -> std::convertible_to<typename V::value_type>;
    typename std::bool_constant<V::is_contiguous>;
    typename std::bool_constant<V::is_output>;
    typename std::bool_constant<V::is_window>;
} &&(!V::is_contiguous || requires(const V& v) {
    { v.data() } -> std::convertible_to<const typename V::value_type*>;
});

namespace detail {
template <class View>
using element_of = std::remove_cv_t<typename View::value_type>;
}

// A view whose elements lie in memory in runs: from element i on, `contiguous_run(i)` elements lie side by side at
// `pointer(i)`, so a kernel may work run by run.
template <class V>
concept RunView = BufferView<V> && requires(const V& v, std::size_t i) {
    { v.contiguous_run(i) } -> std::convertible_to<std::size_t>;
    { v.pointer(i) } -> std::convertible_to<const typename V::value_type*>;
};

// The kind of memory of a view: V::memory if there is one, else host memory.
template <class V>
inline constexpr memory_kind memory_kind_v = [] {
    if constexpr (requires { V::memory; }) return V::memory;
    else return memory_kind::host;
}();

// Contiguous elements. `contiguous_view<const T>` is an input only.
template <class T>
class contiguous_view {
public:
    using value_type = std::remove_cv_t<T>;
    static constexpr bool is_contiguous = true;
    static constexpr bool is_output = !std::is_const_v<T>;
    static constexpr bool is_window = false;

    contiguous_view() = default;
    COLLX_HD constexpr contiguous_view(T* data, std::size_t size) : data_(data), size_(size) {}

    COLLX_HD constexpr T* data() const { return data_; }
    COLLX_HD constexpr std::size_t size() const { return size_; }
    COLLX_HD constexpr T& operator[](std::size_t i) const { return data_[i]; }
    COLLX_HD constexpr T* pointer(std::size_t i) const { return data_ + i; }
    COLLX_HD constexpr std::size_t contiguous_run(std::size_t i) const { return size_ - i; }

private:
    T* data_ = nullptr;
    std::size_t size_ = 0;
};

// Memory that collx allocated for sharing: other ranks may load and store it directly.
template <class T>
class window_view : public contiguous_view<T> {
public:
    static constexpr bool is_window = true;
    using contiguous_view<T>::contiguous_view;
};

// Memory of an accelerator: host code passes it on and never touches an element.
template <class T>
class device_view : public contiguous_view<T> {
public:
    static constexpr memory_kind memory = memory_kind::device;
    using contiguous_view<T>::contiguous_view;
};

// Any other view, of an accelerator's memory.
template <BufferView V>
class on_device_view : public V {
public:
    static constexpr memory_kind memory = memory_kind::device;
    COLLX_HD constexpr explicit on_device_view(const V& v) : V(v) {}
};

// A view that says at run time whether the host can read its memory. Verbs refuse it if not; on_device() turns it into
// the view of a device.
template <BufferView V>
class located_view : public V {
public:
    using without_place = V;
    constexpr located_view(const V& v, bool is_on_device) : V(v), is_on_device_(is_on_device) {}
    constexpr bool is_on_device() const { return is_on_device_; }

private:
    bool is_on_device_;
};

// A vector with a stride, or a matrix with a stride between rows and one between columns, numbered row by row.
// Strides count elements and may be negative.
template <class T>
class strided_view {
public:
    using value_type = std::remove_cv_t<T>;
    static constexpr bool is_contiguous = false;
    static constexpr bool is_output = !std::is_const_v<T>;
    static constexpr bool is_window = false;

    strided_view() = default;
    COLLX_HD constexpr strided_view(T* data, std::size_t size, std::ptrdiff_t stride)
        : strided_view(data, 1, size, 0, stride) {}
    COLLX_HD constexpr strided_view(T* data, std::size_t rows, std::size_t cols, std::ptrdiff_t row_stride,
                                    std::ptrdiff_t col_stride)
        : data_(data), rows_(rows), cols_(cols), row_stride_(row_stride), col_stride_(col_stride) {
        // Rows that follow one another at the same stride are one long row, which saves a division per element.
        if (rows_ > 1 && (cols_ <= 1 || row_stride_ == static_cast<std::ptrdiff_t>(cols_) * col_stride_)) {
            if (cols_ == 1) col_stride_ = row_stride_;
            cols_ *= rows_;
            rows_ = 1;
        }
    }

    COLLX_HD constexpr std::size_t size() const { return rows_ * cols_; }
    // Whether several elements lie at one address: such a view can only be read.
    COLLX_HD constexpr bool repeats() const {
        if (size() == 0) return false;
        detail::dimension d[2] = {{cols_, col_stride_}, {rows_, row_stride_}};
        if (cols_ == 1) d[0] = d[1];
        return detail::may_share_addresses(d, (rows_ > 1) + (cols_ > 1));
    }
    COLLX_HD constexpr T& operator[](std::size_t i) const { return *pointer(i); }
    COLLX_HD constexpr T* pointer(std::size_t i) const {
        const std::size_t row = rows_ == 1 ? 0 : i / cols_;
        const std::size_t col = i - row * cols_;
        return data_ + static_cast<std::ptrdiff_t>(row) * row_stride_ + static_cast<std::ptrdiff_t>(col) * col_stride_;
    }
    // Visits the elements from i on in order, with one division in all.
    class walker {
    public:
        COLLX_HD constexpr walker(const strided_view& v, std::size_t i)
            : data_(v.data_), step_(v.col_stride_), cols_(v.cols_) {
            const std::size_t row = v.rows_ == 1 ? 0 : i / cols_, col = i - row * cols_;
            at_ = static_cast<std::ptrdiff_t>(row) * v.row_stride_ + static_cast<std::ptrdiff_t>(col) * step_;
            wrap_ = v.row_stride_ - static_cast<std::ptrdiff_t>(cols_ - 1) * step_;
            left_ = cols_ - col;
        }
        COLLX_HD constexpr T& next() {
            T& x = data_[at_];
            const bool ends_row = --left_ == 0;
            at_ += ends_row ? wrap_ : step_;
            if (ends_row) left_ = cols_;
            return x;
        }

    private:
        T* data_;
        std::ptrdiff_t step_, at_ = 0, wrap_ = 0; // to the next element; its place; to the next row
        std::size_t cols_, left_ = 0;             // per row; left in this one
    };
    COLLX_HD constexpr walker walk(std::size_t i) const { return {*this, i}; }
    COLLX_HD constexpr std::size_t contiguous_run(std::size_t i) const {
        if (col_stride_ != 1) return 1;
        return rows_ == 1 ? cols_ - i : cols_ - i % cols_;
    }

private:
    T* data_ = nullptr;
    std::size_t rows_ = 1;
    std::size_t cols_ = 0;
    std::ptrdiff_t row_stride_ = 0;
    std::ptrdiff_t col_stride_ = 1;
};

// A tensor of any rank. `Mapping` has the number of elements (`size()`) and the place of element i (`offset(i)`); from
// each multiple of `run()` on, `run()` elements lie side by side. See mappings.hpp. Offsets count from `data`.
template <class T, class Mapping>
class mapped_view {
public:
    using value_type = std::remove_cv_t<T>;
    static constexpr bool is_contiguous = false;
    static constexpr bool is_output = !std::is_const_v<T>;
    static constexpr bool is_window = false;

    COLLX_EXEC_CHECK_DISABLE
    COLLX_HD constexpr mapped_view(T* data, const Mapping& mapping)
        : data_(data), first_(mapping.size() == 0 ? data : data + mapping.offset(0)), mapping_(mapping),
          size_(mapping.size()), run_(mapping.run()) {}

    COLLX_HD constexpr std::size_t size() const { return size_; }
    COLLX_HD constexpr T& operator[](std::size_t i) const { return *pointer(i); }
    COLLX_EXEC_CHECK_DISABLE
    COLLX_HD constexpr T* pointer(std::size_t i) const {
        // The first run (all of a dense tensor) needs no computation.
        return i < run_ ? first_ + i : data_ + mapping_.offset(i);
    }
    COLLX_HD constexpr std::size_t contiguous_run(std::size_t i) const { return run_ - i % run_; }
    COLLX_HD constexpr const Mapping& mapping() const { return mapping_; }
    COLLX_EXEC_CHECK_DISABLE
    COLLX_HD constexpr bool repeats() const {
        if constexpr (requires(const Mapping& m) { m.repeats(); }) return mapping_.repeats();
        else return false;
    }

private:
    T* data_;
    T* first_; // element 0
    Mapping mapping_;
    std::size_t size_;
    std::size_t run_; // at least 1
};

// Elements that are computed when they are read, by any random-access iterator. Never an output.
template <class Iterator>
class input_view {
    using reference = decltype(*std::declval<const Iterator&>());
    using difference = decltype(std::declval<const Iterator&>() - std::declval<const Iterator&>());

    static constexpr auto find_value_type() {
        // A proxy reference (zip, vector<bool>) is not its value.
        if constexpr (requires { typename Iterator::value_type; })
            return std::type_identity<typename Iterator::value_type>{};
        else if constexpr (requires { typename std::iterator_traits<Iterator>::value_type; })
            return std::type_identity<typename std::iterator_traits<Iterator>::value_type>{};
        else return std::type_identity<std::remove_cvref_t<reference>>{};
    }

public:
    using value_type = typename decltype(find_value_type())::type;
    static constexpr bool is_contiguous = false;
    static constexpr bool is_output = false;
    static constexpr bool is_window = false;

    COLLX_EXEC_CHECK_DISABLE
    COLLX_HD constexpr input_view(const Iterator& first, std::size_t size) : first_(first), size_(size) {}

    COLLX_HD constexpr std::size_t size() const { return size_; }
    COLLX_EXEC_CHECK_DISABLE
    COLLX_HD constexpr value_type operator[](std::size_t i) const {
        return static_cast<value_type>(*(first_ + static_cast<difference>(i)));
    }

private:
    Iterator first_;
    std::size_t size_;
};

// Marks one buffer as both input and output of a call that could otherwise mean something else.
template <BufferView V>
struct in_place_view {
    V view;

    COLLX_HD constexpr V collx_buffer() const { return view; }
};
// Whether X is an in_place_view.
template <class X>
inline constexpr bool is_in_place_v = false;
template <class V>
inline constexpr bool is_in_place_v<in_place_view<V>> = true;

// Views `n` elements from p on.
template <class T>
constexpr contiguous_view<T> view(T* p, std::size_t n) {
    require_element<std::remove_cv_t<T>>();
    return {p, n};
}

// Views one element.
template <class T>
constexpr contiguous_view<T> value(T& x) {
    return view(__builtin_addressof(x), 1);
}
template <class T>
contiguous_view<std::remove_const_t<T>> value(const T&&) {
    static_assert(sizeof(T) == 0,
                  "collx: value() views a variable, and this is a temporary, which would be gone before "
                  "the result arrives. Give it a name: float x = 3; collx::value(x).");
    return {};
}

// Views every `stride`-th element from p on, n of them.
template <class T>
constexpr strided_view<T> strided(T* p, std::size_t n, std::ptrdiff_t stride) {
    return {p, n, stride};
}

// Views a matrix, numbered row by row. Strides count elements.
template <class T>
constexpr strided_view<T> strided2d(T* p, std::size_t rows, std::size_t cols, std::ptrdiff_t row_stride,
                                    std::ptrdiff_t col_stride = 1) {
    return {p, rows, cols, row_stride, col_stride};
}

// Views n elements that are computed as they are read: first[0] .. first[n - 1].
template <class Iterator>
constexpr auto input(const Iterator& first, std::size_t n) {
    if constexpr (std::is_pointer_v<Iterator>) return contiguous_view<const std::remove_pointer_t<Iterator>>(first, n);
    else return input_view<Iterator>(first, n);
}

COLLX_END_NAMESPACE
