// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// collx-test: procs=16 label=nightly timeout=300 sanitize=no
//
// many_communicators_processes_test.cpp with a thousand communicators of 16 processes.
#define COLLX_TEST_MADE 1000
#include "many_communicators_processes_test.cpp"
