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
set(collx_warnings -Wall -Wextra -Wno-missing-field-initializers -Wnon-virtual-dtor $<$<CXX_COMPILER_ID:GNU>:-Wshadow=local>
                   $<$<CXX_COMPILER_ID:Clang>:-Wcomma>)
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
    # clang's check of the table of virtual functions opens a pipe, and some tests leave no descriptor for it.
    add_compile_options("$<$<COMPILE_LANG_AND_ID:CXX,Clang>:-fno-sanitize=vptr>")
  endif()
  add_link_options(-fsanitize=${collx_sanitizers})
endif()

# Presets of CI compile hundreds of sources, each of which needs less memory than g++ may use before it looks for
# garbage (4 to 9 % of its time), and link hundreds of programs, so by a fast linker where there is one.
if(COLLX_TEST_FAST_BUILD)
  if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
    add_compile_options("$<$<COMPILE_LANGUAGE:CXX>:SHELL:--param ggc-min-expand=1000 --param ggc-min-heapsize=500000>")
  endif()
  include(CheckLinkerFlag)
  foreach(linker lld gold)
    check_linker_flag(CXX -fuse-ld=${linker} COLLX_LINKS_WITH_${linker})
    if(COLLX_LINKS_WITH_${linker})
      add_link_options($<$<LINK_LANGUAGE:CXX>:-fuse-ld=${linker}>)
      break()
    endif()
  endforeach()
endif()

# CUDA: found once, enabled only where a .cu file is built. collx_cuda says whether there is a compiler.
set(collx_cuda FALSE)
if(NOT COLLX_CUDA STREQUAL "OFF")
  include(CheckLanguage)
  if(NOT CMAKE_CUDA_COMPILER)
    unset(CMAKE_CUDA_COMPILER CACHE) # it may have come since the last time
  endif()
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
  foreach(key label timeout serial alone procs needs uses main sanitize args env gpu optimised everywhere)
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
        if(item MATCHES "^(label|timeout|procs|needs|uses|main|sanitize|args|env)=(.+)$")
          set(key ${CMAKE_MATCH_1})
          string(REPLACE "," ";" value "${CMAKE_MATCH_2}")
          set(${prefix}_${key} "${value}" PARENT_SCOPE)
        elseif(item MATCHES "^(serial|alone|gpu|optimised|everywhere)$")
          set(${prefix}_${item} TRUE PARENT_SCOPE)
        else()
          message(FATAL_ERROR "${file}: unknown word '${item}' after '// ${word}:'; CONTRIBUTING.md lists them.")
        endif()
      endforeach()
    endforeach()
  endforeach()
endfunction()

# collx_program(<name> <missing_out> SOURCES ... [NEEDS ...] [NATIVE] [HEADER_ONLY]): an executable on collx::collx, or, when a
# library it needs is absent, no target and a sentence in <missing_out>.
function(collx_program name missing_out)
  cmake_parse_arguments(arg "NATIVE;HEADER_ONLY" "" "SOURCES;NEEDS" ${ARGN})
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
  target_link_libraries(${name} PRIVATE $<IF:$<BOOL:${arg_HEADER_ONLY}>,collx::header_only,collx::collx> ${libraries})
  if(arg_NATIVE AND COLLX_NATIVE)
    target_compile_options(${name} PRIVATE $<$<COMPILE_LANGUAGE:CXX>:-march=native>)
  endif()
endfunction()

# collx_precompile(<target> <group> HEADERS <header>... [LIBRARIES ...] [OPTIONS ...]): headers are most of the compile time of
# collx's own programs, so in the presets of CI the headers that the targets of a group include are compiled once. The first
# call for a group says which headers, libraries and compile options; all targets of the group get the options.
function(collx_precompile target group)
  cmake_parse_arguments(arg "" "" "HEADERS;LIBRARIES;OPTIONS" ${ARGN})
  set(options "$<$<COMPILE_LANGUAGE:CXX>:${arg_OPTIONS}>")
  if(NOT TARGET collx_pch_${group})
    file(CONFIGURE OUTPUT pch_${group}.cpp CONTENT "// What a group of programs includes, compiled once.\n")
    add_library(collx_pch_${group} OBJECT ${CMAKE_CURRENT_BINARY_DIR}/pch_${group}.cpp)
    target_link_libraries(collx_pch_${group} PRIVATE collx::collx ${arg_LIBRARIES})
    target_precompile_headers(collx_pch_${group} PRIVATE ${arg_HEADERS})
    target_compile_options(collx_pch_${group} PRIVATE ${options})
  endif()
  target_compile_options(${target} PRIVATE ${options})
  target_precompile_headers(${target} REUSE_FROM collx_pch_${group})
endfunction()

# collx_add_test(<test> <seconds> <command> [<argument>...]): a ctest entry with a limit in seconds of a machine that does
# nothing else (tests/support/limit.cpp). ctest's own limit, of the clock on the wall, is only for what that cannot end.
function(collx_add_test name seconds command)
  if(TARGET ${command})
    set(command "$<TARGET_FILE:${command}>")
  endif()
  add_test(NAME ${name} COMMAND collx_limit ${seconds} ${command} ${ARGN})
  math(EXPR ceiling "${seconds} * 50")
  set_tests_properties(${name} PROPERTIES TIMEOUT ${ceiling})
endfunction()
if(COLLX_TESTS)
  add_executable(collx_limit "${PROJECT_SOURCE_DIR}/tests/support/limit.cpp")
  target_compile_features(collx_limit PRIVATE cxx_std_20)
  target_compile_options(collx_limit PRIVATE -O1 -g0 -fno-sanitize=all)
  target_link_options(collx_limit PRIVATE -fno-sanitize=all)
endif()

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
    set(command $<TARGET_FILE:collx_run> -n ${${prefix}_procs} "$<TARGET_FILE:${target}>")
    set(serial TRUE)
  endif()
  set(timeout 180) # for hangs: several times what the slowest of them takes
  if(${prefix}_timeout)
    set(timeout ${${prefix}_timeout})
  endif()
  set(labels ${ARGN} ${${prefix}_label})
  if(${prefix}_gpu)
    list(APPEND labels device)
  endif()
  collx_add_test(${name} ${timeout} ${command} ${${prefix}_args})
  set_tests_properties(${name} PROPERTIES SKIP_RETURN_CODE 77 LABELS "${labels}" ENVIRONMENT "${${prefix}_env}")
  if(${prefix}_alone)
    set_tests_properties(${name} PROPERTIES RUN_SERIAL TRUE)
  elseif(serial)
    # They wait more than they compute, so tests of one process fill the other core. First, since they are the longest row.
    set_tests_properties(${name} PROPERTIES RESOURCE_LOCK machine COST 100)
  endif()
endfunction()
