// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// From chunks to elements: where chunk c begins in a buffer and how many elements it has. Pieces cut each chunk in
// equal strides, so that one piece fits a slot. Knows no algorithm and no memory. Kernels ask the same questions as the
// host, so all of it is code for both.
#pragma once

#include <cstddef>

#include <collx/core/config.hpp>
#include <collx/version.hpp>

COLLX_BEGIN_NAMESPACE

// Where the chunks of a buffer begin, and how many elements each has.
class chunk_layout {
public:
    // `total` elements in `chunks` almost equal chunks, cut at multiples of `align` elements.
    COLLX_HD static constexpr chunk_layout even(std::size_t total, int chunks, std::size_t align = 1) {
        const std::size_t per =
            chunks <= 1 ? total : (total + static_cast<std::size_t>(chunks) - 1) / static_cast<std::size_t>(chunks);
        chunk_layout l;
        l.chunks_ = chunks;
        l.total_ = total;
        l.stride_ = per < align ? per : (per + align - 1) / align * align;
        return l;
    }
    // Every chunk has `each` elements.
    COLLX_HD static constexpr chunk_layout blocks(std::size_t each, int chunks) {
        chunk_layout l;
        l.chunks_ = chunks;
        l.total_ = each * static_cast<std::size_t>(chunks);
        l.stride_ = each;
        return l;
    }
    // Chunk c has sizes[c] elements from offsets[c] on. The caller keeps the tables.
    COLLX_HD static constexpr chunk_layout table(const std::size_t* sizes, const std::size_t* offsets, int chunks) {
        chunk_layout l;
        l.chunks_ = chunks;
        l.sizes_ = sizes;
        l.offsets_ = offsets;
        return l;
    }
    // The same chunks, but the buffer holds only one of them, at its start.
    COLLX_HD constexpr chunk_layout packed() const {
        chunk_layout l = *this;
        l.packed_ = true;
        return l;
    }

    COLLX_HD constexpr int chunks() const { return chunks_; }
    // The numbers of a layout without tables; kernels take these instead of pointers.
    constexpr bool is_table() const { return sizes_ != nullptr; }
    constexpr std::size_t stride() const { return stride_; }
    constexpr std::size_t total() const { return total_; }
    constexpr bool is_packed() const { return packed_; }
    COLLX_HD constexpr std::size_t size(int c) const {
        if (sizes_ != nullptr) return sizes_[c];
        const std::size_t begin = stride_ * static_cast<std::size_t>(c);
        if (begin >= total_) return 0;
        return total_ - begin < stride_ ? total_ - begin : stride_;
    }
    COLLX_HD constexpr std::size_t offset(int c) const {
        if (packed_) return 0;
        if (sizes_ != nullptr) return offsets_[c];
        const std::size_t begin = stride_ * static_cast<std::size_t>(c);
        return begin < total_ ? begin : total_;
    }
    COLLX_HD constexpr std::size_t largest() const {
        if (sizes_ == nullptr) return size(0);
        std::size_t most = 0;
        for (int c = 0; c < chunks_; ++c) most = sizes_[c] > most ? sizes_[c] : most;
        return most;
    }

private:
    int chunks_ = 1;
    std::size_t total_ = 0, stride_ = 0;
    const std::size_t* sizes_ = nullptr;
    const std::size_t* offsets_ = nullptr;
    bool packed_ = false;
};

COLLX_END_NAMESPACE
