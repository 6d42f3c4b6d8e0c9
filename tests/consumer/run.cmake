# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#
# Uses collx as a stranger would: MODE is find_package or pkg_config (both from a fresh install) or add_subdirectory.
# Variables: MODE, SOURCE (collx), BUILD (its build folder), WORK (scratch), COMPILER, GENERATOR.
set(here "${SOURCE}/tests/consumer")
set(work "${WORK}/${MODE}")
file(REMOVE_RECURSE "${work}")
file(MAKE_DIRECTORY "${work}")

function(must)
  execute_process(COMMAND ${ARGN} WORKING_DIRECTORY "${work}" RESULT_VARIABLE code OUTPUT_VARIABLE text
                  ERROR_VARIABLE text)
  if(NOT code EQUAL 0)
    list(JOIN ARGN " " command)
    message(FATAL_ERROR "${command}\nended with ${code}:\n${text}")
  endif()
  set(said "${text}" PARENT_SCOPE)
endfunction()

# Without -g: nobody debugs these programs, and it is a third of their compile time.
set(configure ${CMAKE_COMMAND} -G ${GENERATOR} "-DCMAKE_CXX_COMPILER=${COMPILER}" -DCMAKE_BUILD_TYPE=Debug
              -DCMAKE_CXX_FLAGS_DEBUG=-O0 -DCOLLX_SOURCE=${SOURCE} "-S${here}/${MODE}" "-B${work}/build")
if(NOT MODE STREQUAL "add_subdirectory")
  # The headers alone: installing must not depend on tools being built.
  must(${CMAKE_COMMAND} -G ${GENERATOR} "-DCMAKE_CXX_COMPILER=${COMPILER}" "-DCMAKE_INSTALL_PREFIX=${work}/prefix"
       -DCOLLX_TESTS=OFF -DCOLLX_TOOLS=OFF -DCOLLX_EXAMPLES=OFF "-S${SOURCE}" "-B${work}/collx")
  must(${CMAKE_COMMAND} --install ${work}/collx)
endif()

if(MODE STREQUAL "pkg_config")
  find_program(pkg_config pkg-config)
  if(NOT pkg_config)
    message("SKIPPED: no pkg-config was found; on Debian install pkg-config.")
    return()
  endif()
  set(ENV{PKG_CONFIG_PATH} "${work}/prefix/share/pkgconfig")
  must(${pkg_config} --cflags --libs collx)
  string(STRIP "${said}" flags)
  separate_arguments(flags UNIX_COMMAND "${flags}")
  must(${COMPILER} -std=c++20 ${here}/main.cpp -o ${work}/consumer ${flags})
  must(${work}/consumer)
else()
  must(${configure} "-DCMAKE_PREFIX_PATH=${work}/prefix")
  must(${CMAKE_COMMAND} --build ${work}/build)
  must(${work}/build/consumer_compiled)
  must(${work}/build/consumer)
  if(MODE STREQUAL "find_package")
    # Two ranks that meet in a folder; commands of one call run side by side.
    foreach(program consumer_net mixed_shared mixed_static mixed_near)
      set(env ${CMAKE_COMMAND} -E env COLLX_SIZE=2 COLLX_STORE=file:${work}/${program} COLLX_TIMEOUT=60)
      file(MAKE_DIRECTORY "${work}/${program}")
      file(CHMOD "${work}/${program}" PERMISSIONS OWNER_READ OWNER_WRITE OWNER_EXECUTE) # not for other users
      must(${env} COLLX_RANK=0 ${work}/build/${program} COMMAND ${env} COLLX_RANK=1 ${work}/build/${program})
    endforeach()
    execute_process(COMMAND ${env} COLLX_RANK=0 ${work}/build/consumer_near RESULT_VARIABLE code OUTPUT_VARIABLE text)
    if(NOT code EQUAL 2 OR NOT text MATCHES "include <collx/net.hpp> in one source")
      message(FATAL_ERROR "a program without collx/net.hpp met a store, ended with ${code} and said:\n${text}")
    endif()
    execute_process(COMMAND ${CMAKE_COMMAND} -E env COLLX_TOPOLOGY=machine.xml ${work}/build/consumer_near RESULT_VARIABLE code
                    OUTPUT_VARIABLE more)
    if(NOT code EQUAL 2 OR NOT more MATCHES "include <collx/topology.hpp> in one source")
      message(FATAL_ERROR "a program without collx/topology.hpp met a file, ended with ${code} and said:\n${more}")
    endif()
    set(said "${said}${text}${more}")
  endif()
endif()
message("${MODE}: ${said}")
