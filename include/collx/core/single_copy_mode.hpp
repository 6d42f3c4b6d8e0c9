// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// The setting COLLX_SINGLE_COPY: whether a large message is read where its sender has it instead of through slots.
#pragma once

#include <collx/core/config.hpp>

COLLX_BEGIN_NAMESPACE

// automatic: where measurements say that it costs less than a copy. always: wherever the system allows it.
enum class single_copy_mode : unsigned char { automatic, never, always };

COLLX_END_NAMESPACE
