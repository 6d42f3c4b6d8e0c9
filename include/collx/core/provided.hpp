// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// How a header that a program includes provides a component when the program starts:
//   inline const bool has_net = provided(net_starter, &net_of_sockets);
#pragma once

#include <collx/version.hpp>

COLLX_BEGIN_NAMESPACE

namespace detail {

template <class Slot, class Component>
bool provided(Slot& slot, Component what) {
    slot = what;
    return true;
}

} // namespace detail

COLLX_END_NAMESPACE
