// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Tells a call on a fused team from a call on a communicator: the team makes the call for all its ranks at once, so it
// is given all their buffers. A separate header, so that the verbs know such teams without including one.
#pragma once

#include <concepts>
#include <cstddef>
#include <type_traits>

#include <collx/core/buffer.hpp>
#include <collx/version.hpp>

COLLX_BEGIN_NAMESPACE

// One buffer per rank, all of one type: std::vector<thrust::device_vector<float>>, std::array<device_view<float>, 4>.
template <class X>
concept RankBuffers = requires(X& x, std::size_t r) {
    { x.size() } -> std::convertible_to<std::size_t>;
    x[r];
    requires Buffer<decltype(x[r])>;
};

// gpu/fused_team.hpp has the model.
template <class T>
concept FusedTeam = requires {
    typename std::remove_cvref_t<T>::is_fused_team;
};

// The options of a fused team's calls: stream, timeout and what its machine adds.
template <FusedTeam T>
using team_options = typename std::remove_cvref_t<T>::options;

COLLX_END_NAMESPACE
