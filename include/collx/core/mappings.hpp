// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Mappings for mapped_view: where element i of a tensor lies. All number the elements as C does, last index fastest,
// whatever the layout in memory, so that a row-major and a column-major tensor can take part in the same collective.
// It must not know whose tensor it is, nor include an mdspan.
#pragma once

#include <cstddef>
#include <type_traits>
#include <utility>

#include <collx/core/config.hpp>
#include <collx/core/strides.hpp>
#include <collx/version.hpp>

COLLX_BEGIN_NAMESPACE

// Up to eight dimensions with a stride each; their number is known at run time.
// Adjacent dimensions that form one longer dimension are merged, so dense tensors of any rank have one dimension.
class strided_mapping {
public:
    static constexpr int max_rank = 8;

    // Adds a dimension inside those added so far.
    // Ensures: false, and nothing added, if there would be more than max_rank dimensions that cannot be merged.
    COLLX_HD constexpr bool add(std::size_t extent, std::ptrdiff_t stride) {
        if (extent == 1) return true;
        if (rank_ > 0 && strides_[rank_ - 1] == static_cast<std::ptrdiff_t>(extent) * stride) {
            size_ *= extent;
            extents_[rank_ - 1] *= extent;
            strides_[rank_ - 1] = stride;
            return true;
        }
        if (rank_ == max_rank) return false;
        size_ *= extent;
        extents_[rank_] = extent;
        strides_[rank_] = stride;
        ++rank_;
        return true;
    }

    COLLX_HD constexpr std::size_t size() const { return size_; }
    // Whether several elements lie at one address, as in a tensor that was expanded or unfolded.
    COLLX_HD constexpr bool repeats() const {
        detail::dimension d[max_rank];
        for (int i = 0; i < rank_; ++i) d[i] = {extents_[i], strides_[i]};
        return size_ != 0 && detail::may_share_addresses(d, rank_);
    }
    COLLX_HD constexpr std::size_t run() const {
        const bool dense = rank_ > 0 && strides_[rank_ - 1] == 1 && extents_[rank_ - 1] > 0;
        return dense ? extents_[rank_ - 1] : 1;
    }
    COLLX_HD constexpr std::ptrdiff_t offset(std::size_t i) const {
        std::ptrdiff_t sum = 0;
        for (int d = rank_ - 1; d >= 0; --d) {
            sum += static_cast<std::ptrdiff_t>(i % extents_[d]) * strides_[d];
            i /= extents_[d];
        }
        return sum;
    }

private:
    std::size_t extents_[max_rank] = {};
    std::ptrdiff_t strides_[max_rank] = {};
    std::size_t size_ = 1;
    int rank_ = 0;
};

// The mapping of an mdspan (std, cuda::std, Kokkos), with any layout, including layouts without strides.
template <class Mapping>
class mdspan_mapping {
    using extents_type = std::remove_cvref_t<decltype(std::declval<const Mapping&>().extents())>;
    using index_type = typename extents_type::index_type;
    static constexpr std::size_t rank = extents_type::rank();

public:
    COLLX_EXEC_CHECK_DISABLE
    COLLX_HD constexpr explicit mdspan_mapping(const Mapping& mapping) : mapping_(mapping) {}

    COLLX_EXEC_CHECK_DISABLE
    COLLX_HD constexpr std::size_t size() const {
        std::size_t n = 1;
        for (std::size_t d = 0; d < rank; ++d) n *= static_cast<std::size_t>(mapping_.extents().extent(d));
        return n;
    }
    COLLX_EXEC_CHECK_DISABLE
    COLLX_HD constexpr std::size_t run() const {
        std::size_t n = 1;
        if constexpr (requires(const Mapping& m) { m.stride(0); }) {
            if (!mapping_.is_strided() || size() == 0) return 1;
            for (std::size_t d = rank; d-- > 0;) {
                const auto extent = static_cast<std::size_t>(mapping_.extents().extent(d));
                if (extent == 1) continue;
                if (static_cast<std::size_t>(mapping_.stride(d)) != n) break;
                n *= extent;
            }
        }
        return n;
    }
    COLLX_EXEC_CHECK_DISABLE
    COLLX_HD constexpr bool repeats() const {
        if constexpr (requires(const Mapping& m) { m.is_unique(); }) return size() != 0 && !mapping_.is_unique();
        else return false;
    }
    COLLX_EXEC_CHECK_DISABLE
    COLLX_HD constexpr std::ptrdiff_t offset(std::size_t i) const { return at(i, std::make_index_sequence<rank>{}); }

private:
    COLLX_EXEC_CHECK_DISABLE
    template <std::size_t... D>
    COLLX_HD constexpr std::ptrdiff_t at(std::size_t i, std::index_sequence<D...>) const {
        index_type index[rank + 1] = {}; // one more, for tensors of rank 0
        for (std::size_t d = rank; d-- > 0;) {
            const auto extent = static_cast<std::size_t>(mapping_.extents().extent(d));
            index[d] = static_cast<index_type>(i % extent);
            i /= extent;
        }
        return static_cast<std::ptrdiff_t>(mapping_(index[D]...));
    }

    Mapping mapping_;
};

COLLX_END_NAMESPACE
