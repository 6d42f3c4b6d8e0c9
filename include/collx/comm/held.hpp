// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// What must stay alive and in place while a call is under way: buffers that were moved into it, tables of counts.
#pragma once

#include <type_traits>

#include <collx/comm/count_table.hpp>

COLLX_BEGIN_NAMESPACE

namespace detail {

struct nothing {};

template <class R>
struct held_operation {
    std::conditional_t<std::is_void_v<R>, nothing, R> held;
    count_tables tables; // of v-variants
};

} // namespace detail

COLLX_END_NAMESPACE
