# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#
# How collx's own programs (tests, tools, examples, bench) are compiled and registered. A source file says what it
# needs in comments near its top, `// collx-test: ...` or `// collx-example: ...`, so that adding a program never means
# editing a CMake file; CONTRIBUTING.md lists the words.
include_guard(DIRECTORY)

if(PROJECT_IS_TOP_LEVEL AND NOT CMAKE_CXX_COMPILER_LAUNCHER)
  find_program(COLLX_CCACHE ccache)
  if(COLLX_CCACHE)
    set(CMAKE_CXX_COMPILER_LAUNCHER ${COLLX_CCACHE})
    set(CMAKE_CUDA_COMPILER_LAUNCHER ${COLLX_CCACHE})
  endif()
endif()

set(CMAKE_CXX_EXTENSIONS OFF)

# g++ 12 and clang 14 both pass with these. A local may be named like a function of the C library (signal) or like one
# of our function objects (barrier); only g++ can be told to object to shadowed locals alone.
# Leaving members out of a designated initialiser is how options are written.
set(collx_warnings -Wall -Wextra -Wno-missing-field-initializers -Wnon-virtual-dtor $<$<CXX_COMPILER_ID:GNU>:-Wshadow=local>)
if(COLLX_WERROR)
  list(APPEND collx_warnings -Werror)
  if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
    # These three look through inlining and are wrong too often to stop a build.
    list(APPEND collx_warnings -Wno-error=maybe-uninitialized -Wno-error=array-bounds -Wno-error=stringop-overflow)
  endif()
endif()
if(PROJECT_IS_TOP_LEVEL)
  add_compile_options("$<$<COMPILE_LANGUAGE:CXX>:${collx_warnings}>")
endif()

if(COLLX_SANITIZE)
  list(JOIN COLLX_SANITIZE "," collx_sanitizers)
  add_compile_options("$<$<COMPILE_LANGUAGE:CXX>:-fsanitize=${collx_sanitizers};-fno-omit-frame-pointer>")
  if("undefined" IN_LIST COLLX_SANITIZE)
    add_compile_options("$<$<COMPILE_LANGUAGE:CXX>:-fno-sanitize-recover=all>")
  endif()
  add_link_options(-fsanitize=${collx_sanitizers})
endif()

# CUDA: found once, enabled only where a .cu file is built. collx_cuda says whether there is a compiler.
set(collx_cuda FALSE)
if(NOT COLLX_CUDA STREQUAL "OFF")
  include(CheckLanguage)
  check_language(CUDA)
  if(CMAKE_CUDA_COMPILER)
    set(collx_cuda TRUE)
    if(NOT CMAKE_CUDA_ARCHITECTURES)
      set(CMAKE_CUDA_ARCHITECTURES 90)
    endif()
  elseif(COLLX_CUDA STREQUAL "ON")
    message(FATAL_ERROR "COLLX_CUDA=ON, but no CUDA compiler was found; set CMAKE_CUDA_COMPILER or install the toolkit.")
  endif()
endif()
file(GLOB collx_cuda_sources CONFIGURE_DEPENDS "${PROJECT_SOURCE_DIR}/tests/*/*_test.cu"
     "${PROJECT_SOURCE_DIR}/examples/*/*.cu" "${PROJECT_SOURCE_DIR}/tools/*.cu")
if(collx_cuda AND collx_cuda_sources)
  enable_language(CUDA)
  include(collx_cuda20)
endif()

# collx_directives(<prefix> <word> <file>...): for each `// <word>: key=value flag ...` line sets <prefix>_key to value
# (comma lists become CMake lists) and <prefix>_flag to TRUE.
function(collx_directives prefix word)
  foreach(key label timeout serial procs needs main sanitize args env gpu optimised everywhere)
    set(${prefix}_${key} "" PARENT_SCOPE)
  endforeach()
  foreach(file IN LISTS ARGN)
    # A changed directive must re-run this file.
    set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS "${file}")
    file(STRINGS "${file}" lines REGEX "^//.* ${word}:")
    foreach(line IN LISTS lines)
      if(NOT line MATCHES "^// ${word}:")
        message(FATAL_ERROR "${file}: '${word}:' must stand at the start of a comment line of its own.")
      endif()
      string(REGEX REPLACE "^// ${word}:" "" line "${line}")
      string(REGEX MATCHALL "[^ \t]+" words "${line}")
      foreach(item IN LISTS words)
        if(item MATCHES "^(label|timeout|procs|needs|main|sanitize|args|env)=(.+)$")
          set(key ${CMAKE_MATCH_1})
          string(REPLACE "," ";" value "${CMAKE_MATCH_2}")
          set(${prefix}_${key} "${value}" PARENT_SCOPE)
        elseif(item MATCHES "^(serial|gpu|optimised|everywhere)$")
          set(${prefix}_${item} TRUE PARENT_SCOPE)
        else()
          message(FATAL_ERROR "${file}: unknown word '${item}' after '// ${word}:'; CONTRIBUTING.md lists them.")
        endif()
      endforeach()
    endforeach()
  endforeach()
endfunction()

# collx_program(<name> <missing_out> SOURCES ... [NEEDS ...] [NATIVE]): an executable on collx::collx, or, when a
# library it needs is absent, no target and a sentence in <missing_out>.
function(collx_program name missing_out)
  cmake_parse_arguments(arg "NATIVE" "" "SOURCES;NEEDS" ${ARGN})
  set(libraries "")
  set(missing "")
  foreach(need IN LISTS arg_NEEDS)
    collx_find_optional(${need} target sentence)
    list(APPEND libraries ${target})
    string(APPEND missing "${sentence}")
  endforeach()
  if(NOT collx_cuda AND "${arg_SOURCES}" MATCHES "\\.cu(;|$)")
    string(APPEND missing "no CUDA compiler was found.")
  endif()
  set(${missing_out} "${missing}" PARENT_SCOPE)
  if(missing)
    return()
  endif()
  add_executable(${name} ${arg_SOURCES})
  target_link_libraries(${name} PRIVATE collx::collx ${libraries})
  if(arg_NATIVE AND COLLX_NATIVE)
    target_compile_options(${name} PRIVATE $<$<COMPILE_LANGUAGE:CXX>:-march=native>)
  endif()
endfunction()

# collx_skipped(<test> <reason> <label>...): a ctest entry that always reports itself skipped, with the reason.
function(collx_skipped name reason)
  add_test(NAME ${name} COMMAND ${CMAKE_COMMAND} -E echo "SKIPPED: ${reason}")
  set_tests_properties(${name} PROPERTIES SKIP_REGULAR_EXPRESSION "SKIPPED: " LABELS "${ARGN}")
endfunction()

# collx_register(<test> <target> <prefix> <label>...): the ctest entry of a program with the directives <prefix>_*.
function(collx_register name target prefix)
  set(command ${target})
  set(serial "${${prefix}_serial}")
  if(${prefix}_procs)
    if(NOT TARGET collx_run)
      list(GET ${prefix}_procs 0 processes)
      collx_skipped(${name} "it runs as ${processes} processes, which needs the tool collx_run." ${ARGN})
      return()
    endif()
    set(command collx_run -n ${${prefix}_procs} "$<TARGET_FILE:${target}>")
    set(serial TRUE)
  endif()
  set(timeout 180) # for hangs: several times what the slowest of them takes on a machine that is busy
  if(${prefix}_timeout)
    set(timeout ${${prefix}_timeout})
  endif()
  set(labels ${ARGN} ${${prefix}_label})
  if(${prefix}_gpu)
    list(APPEND labels gpu)
  endif()
  add_test(NAME ${name} COMMAND ${command} ${${prefix}_args})
  set_tests_properties(${name} PROPERTIES SKIP_RETURN_CODE 77 TIMEOUT ${timeout} LABELS "${labels}"
                                          ENVIRONMENT "${${prefix}_env}")
  if(serial)
    # They wait more than they compute, so tests of one process fill the other core. First, since they are the longest row.
    set_tests_properties(${name} PROPERTIES RESOURCE_LOCK machine COST 100)
  endif()
endfunction()
