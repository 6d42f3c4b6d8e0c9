# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#
# The one table of libraries that collx can work with but never requires. It serves three callers: the `needs=` words
# of tests, tools and examples; the component targets (collx::ranges, ...); and the installed package configuration.
# A missing library is answered with a sentence that names the Debian package. COLLX_HIDE names libraries that are taken
# for missing although they are there: it shows what a machine without them gets (tests/scripts/hidden_libraries_test.py).
#
# name | how it is found | what to look for | target to link | Debian package | how its headers' names begin
set(COLLX_OPTIONAL_LIBRARIES
    "any|config|collx|collx::any|nothing: it is collx's own|collx/"
    "benchmark|config|benchmark|benchmark::benchmark|libbenchmark-dev|benchmark/"
    "catch2|config|Catch2|Catch2::Catch2|catch2|catch2/"
    "cereal|config|cereal|cereal::cereal|libcereal-dev|cereal/"
    "cli11|config|CLI11|CLI11::CLI11|libcli11-dev|CLI/"
    "cuda|module|CUDAToolkit|CUDA::cudart|nvidia-cuda-toolkit, or NVIDIA's cuda-toolkit|cuda"
    "eigen|config|Eigen3|Eigen3::Eigen|libeigen3-dev|Eigen/"
    "gloo|config|Gloo|gloo|libgloo-dev|gloo/"
    "hwloc|pkgconfig|hwloc|PkgConfig::collx_hwloc|libhwloc-dev|hwloc"
    "json|config|nlohmann_json|nlohmann_json::nlohmann_json|nlohmann-json3-dev|nlohmann/"
    "mpi|module|MPI|MPI::MPI_CXX|libopenmpi-dev|mpi.h"
    "openssl|module|OpenSSL|OpenSSL::Crypto|libssl-dev|openssl/"
    "pmix|pkgconfig|pmix|PkgConfig::collx_pmix|libpmix-dev|pmix"
    "pugixml|config|pugixml|pugixml::pugixml|libpugixml-dev|pugixml"
    "ranges|config|range-v3|range-v3::range-v3|librange-v3-dev|range/"
    "rapidcheck|config|rapidcheck|rapidcheck|librapidcheck-dev|rapidcheck"
    "sodium|pkgconfig|libsodium|PkgConfig::collx_sodium|libsodium-dev|sodium"
    "verbs|pkgconfig|libibverbs|PkgConfig::collx_verbs|libibverbs-dev|infiniband/"
    "zlib|module|ZLIB|ZLIB::ZLIB|zlib1g-dev|zlib.h")

# Sets <target_out> to the target of library <name>, or leaves it empty and sets <missing_out> to a sentence.
function(collx_find_optional name target_out missing_out)
  set(${target_out} "" PARENT_SCOPE)
  set(${missing_out} "" PARENT_SCOPE)
  set(row ${COLLX_OPTIONAL_LIBRARIES})
  list(FILTER row INCLUDE REGEX "^${name}[|]")
  if(NOT row)
    set(${missing_out} "collx knows no library or component named '${name}'." PARENT_SCOPE)
    return()
  endif()
  if(name IN_LIST COLLX_HIDE)
    set(${missing_out} "'${name}' is hidden (COLLX_HIDE)." PARENT_SCOPE)
    return()
  endif()
  string(REPLACE "|" ";" row "${row}")
  list(GET row 1 how)
  list(GET row 2 what)
  list(GET row 3 target)
  list(GET row 4 package)
  if(NOT TARGET ${target})
    if(how STREQUAL "config")
      find_package(${what} CONFIG QUIET GLOBAL)
    elseif(how STREQUAL "module")
      # FindCUDAToolkit of CMake 3.25.1 (Debian 12) fails for projects that ask for 3.25 where a toolkit has no nvToolsExt, as
      # CUDA 13 has none: it marks that target as deprecated without asking whether it is there.
      set(CMAKE_MINIMUM_REQUIRED_VERSION 3.24)
      find_package(${what} QUIET GLOBAL)
    else()
      find_package(PkgConfig QUIET)
      if(PkgConfig_FOUND)
        pkg_check_modules(collx_${name} QUIET IMPORTED_TARGET GLOBAL ${what})
      endif()
    endif()
  endif()
  if(TARGET ${target})
    set(${target_out} ${target} PARENT_SCOPE)
  else()
    set(${missing_out} "'${name}' needs ${what}, which was not found; on Debian install ${package}." PARENT_SCOPE)
  endif()
endfunction()

# Defines collx::collx: what every program would compile again (start-up, transports, the engine, the recording of the
# default algorithms) compiled once, in the project that uses it and with its flags.
function(collx_add_compiled)
  if(TARGET collx::collx)
    return()
  endif()
  set(source "${CMAKE_CURRENT_BINARY_DIR}/collx_compiled.cpp")
  file(CONFIGURE OUTPUT "${source}" CONTENT "#include <collx/compile_once.hpp>\n")
  add_library(collx_compiled STATIC EXCLUDE_FROM_ALL "${source}")
  add_library(collx::collx ALIAS collx_compiled)
  target_link_libraries(collx_compiled PUBLIC collx::header_only)
  target_compile_definitions(collx_compiled PUBLIC COLLX_COMPILED)
  set_target_properties(collx_compiled PROPERTIES POSITION_INDEPENDENT_CODE ON)
  # collx::any: the verbs on types that are known at run time (comm/any.hpp), for who links it.
  set(source "${CMAKE_CURRENT_BINARY_DIR}/collx_any.cpp")
  file(CONFIGURE OUTPUT "${source}" CONTENT "#include <collx/comm/any_once.hpp>\n")
  add_library(collx_any STATIC EXCLUDE_FROM_ALL "${source}")
  add_library(collx::any ALIAS collx_any)
  target_link_libraries(collx_any PUBLIC collx::collx)
  set_target_properties(collx_any PROPERTIES POSITION_INDEPENDENT_CODE ON)
endfunction()

# Defines collx::<name>: the library and COLLX_HAS_<NAME>=1, to link beside collx::collx or collx::header_only. Sets
# <missing_out> to a sentence otherwise.
function(collx_add_component name missing_out)
  collx_find_optional(${name} target missing)
  set(${missing_out} "" PARENT_SCOPE)
  if(missing)
    set(${missing_out} "Component ${missing}" PARENT_SCOPE)
  elseif(NOT TARGET collx::${name})
    string(TOUPPER ${name} upper)
    add_library(collx::${name} INTERFACE IMPORTED GLOBAL)
    target_link_libraries(collx::${name} INTERFACE collx::header_only ${target})
    target_compile_definitions(collx::${name} INTERFACE COLLX_HAS_${upper}=1)
  endif()
endfunction()
