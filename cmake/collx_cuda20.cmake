# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#
# CMake 3.25 believes that nvcc stops at C++17: asking it for C++20 is an error, and cxx_std_20 of an INTERFACE target
# does not reach .cu files, which then silently build as C++17. Include this file after enable_language(CUDA); newer
# CMake versions know better and are left alone.
if(CMAKE_CUDA_COMPILER_ID STREQUAL "NVIDIA" AND NOT "cuda_std_20" IN_LIST CMAKE_CUDA_COMPILE_FEATURES)
  set(CMAKE_CUDA20_STANDARD_COMPILE_OPTION "-std=c++20")
  set(CMAKE_CUDA20_EXTENSION_COMPILE_OPTION "-std=c++20")
  set(CMAKE_CUDA20_COMPILE_FEATURES cuda_std_20)
  list(APPEND CMAKE_CUDA_COMPILE_FEATURES cuda_std_20)
endif()
if(NOT DEFINED CMAKE_CUDA_STANDARD)
  set(CMAKE_CUDA_STANDARD 20)
  set(CMAKE_CUDA_STANDARD_REQUIRED ON)
endif()
