// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// The setting COLLX_SINGLE_COPY: whether the receiver reads a large message in its sender's memory, not through slots.
#pragma once

#include <collx/core/config.hpp>
#include <collx/version.hpp>

COLLX_BEGIN_NAMESPACE

// automatic: where it costs less than a copy according to measurements. always: wherever the system allows it.
enum class single_copy_mode : unsigned char { automatic, never, always };

COLLX_END_NAMESPACE
