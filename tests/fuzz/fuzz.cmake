# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#
# Each fuzz target for half a minute, where clang has libFuzzer. What is found goes to
# the build folder; what is worth keeping is copied to corpus/ by hand. (replay_test.cpp needs no clang.)
set(fuzz_targets handshake frames aggregated records store pmi environment cards)
find_program(COLLX_FUZZ_CLANG NAMES clang++-14 clang++)
set(fuzz_flags -std=c++20 -O1 -g1 -fsanitize=fuzzer,address,undefined -fno-sanitize-recover=all -pthread)
if(NOT COLLX_FUZZ_CLANG)
  set(fuzz_missing "no clang++ was found; on Debian install clang-14 and libclang-rt-14-dev.")
elseif(NOT DEFINED COLLX_FUZZ_WORKS)
  file(WRITE "${CMAKE_CURRENT_BINARY_DIR}/fuzz/probe.cpp"
       "extern \"C\" int LLVMFuzzerTestOneInput(const unsigned char*, unsigned long) { return 0; }\n")
  execute_process(COMMAND ${COLLX_FUZZ_CLANG} ${fuzz_flags} "${CMAKE_CURRENT_BINARY_DIR}/fuzz/probe.cpp" -o
                          "${CMAKE_CURRENT_BINARY_DIR}/fuzz/probe" RESULT_VARIABLE failed OUTPUT_QUIET ERROR_QUIET)
  if(failed EQUAL 0)
    execute_process(COMMAND "${CMAKE_CURRENT_BINARY_DIR}/fuzz/probe" -runs=1 RESULT_VARIABLE failed OUTPUT_QUIET
                            ERROR_QUIET TIMEOUT 20)
  endif()
  if(failed EQUAL 0)
    set(COLLX_FUZZ_WORKS TRUE CACHE INTERNAL "")
  endif()
endif()
if(COLLX_FUZZ_CLANG AND NOT COLLX_FUZZ_WORKS)
  set(fuzz_missing "clang++ makes no program with libFuzzer that runs here; on Debian install libclang-rt-14-dev.")
endif()

if(NOT fuzz_missing)
  # A program of its own compiler, so no target of this build.
  set(fuzz_program "${CMAKE_CURRENT_BINARY_DIR}/fuzz/fuzz")
  add_custom_command(
    OUTPUT "${fuzz_program}"
    COMMAND ${COLLX_FUZZ_CLANG} ${fuzz_flags} -I${PROJECT_SOURCE_DIR}/include -I${CMAKE_CURRENT_SOURCE_DIR} -MMD -MF
            "${fuzz_program}.d" -MT "${fuzz_program}" "${CMAKE_CURRENT_SOURCE_DIR}/fuzz/fuzz.cpp" -o "${fuzz_program}"
    DEPENDS fuzz/fuzz.cpp
    DEPFILE "${fuzz_program}.d"
    COMMENT "Fuzz targets"
    VERBATIM)
  add_custom_target(fuzz ALL DEPENDS "${fuzz_program}")
endif()
foreach(name IN LISTS fuzz_targets)
  set(test fuzz_${name})
  if(fuzz_missing)
    collx_skipped(${test} "${fuzz_missing}" fuzz)
    continue()
  endif()
  set(found "${CMAKE_CURRENT_BINARY_DIR}/fuzz/${test}")
  file(MAKE_DIRECTORY "${found}")
  add_test(NAME ${test} COMMAND "${fuzz_program}" -max_total_time=30 -rss_limit_mb=4096 -timeout=10
                                -print_final_stats=1 "-artifact_prefix=${found}-" "${found}"
                                "${CMAKE_CURRENT_SOURCE_DIR}/fuzz/corpus/${name}" --target=${name})
  # The longest tests first: nothing waits for them at the end.
  set_tests_properties(${test} PROPERTIES LABELS fuzz TIMEOUT 120 COST 30)
endforeach()
