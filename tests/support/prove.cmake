# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#
# Compiles one file of static_asserts with the compiler's default limits: passing is the proof.
# Variables: COMPILER, INCLUDES, TESTS (the tests folder), SOURCE.
set(all "")
if(DEFINED ENV{COLLX_TEST_NIGHTLY})
  set(all -DCOLLX_PROVE_ALL)
endif()
execute_process(COMMAND ${COMPILER} -std=c++20 ${all} -Wall -Wextra -Werror -fsyntax-only -I${INCLUDES} -I${TESTS} ${SOURCE}
                RESULT_VARIABLE code OUTPUT_VARIABLE text ERROR_VARIABLE text)
if(NOT code EQUAL 0)
  message(FATAL_ERROR "not proved: ${SOURCE}\n${text}")
endif()
# COLLX_PROVE... are the macros of prove.hpp, each several static_asserts.
file(STRINGS ${SOURCE} asserts REGEX "static_assert|^COLLX_PROVE")
list(LENGTH asserts count)
if(count EQUAL 0)
  message(FATAL_ERROR "${SOURCE} holds no assertion, so compiling it proves nothing.")
endif()
message("proved: ${SOURCE} (${count} assertions)")
