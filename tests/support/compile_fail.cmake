# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#
# One compile-fail test: SOURCE must compile as it is (its passing twin) and, with -DCOLLX_FAIL, must be refused with
# every text that it expects:
#   // expect: literal text of the message
#   // expect-re: CMake regular expression
#   // expect-gcc: literal text that only g++ says
# Variables: COMPILER, INCLUDES, TESTS (the tests folder), SOURCE.
# Without carets, so that an echoed source line cannot stand in for a message.
execute_process(COMMAND ${COMPILER} --version OUTPUT_VARIABLE version)
set(no_carets -fno-diagnostics-show-caret)
if(version MATCHES "clang")
  set(no_carets -fno-caret-diagnostics)
endif()
set(command ${COMPILER} -std=c++20 -fsyntax-only ${no_carets} -I${INCLUDES} -I${TESTS} ${SOURCE})
# Plain quotes in messages, whatever the user's language.
set(ENV{LC_ALL} C)

# Read as one string: a list of lines would break at semicolons and brackets.
file(READ ${SOURCE} source_text)
string(REPLACE ";" "@semicolon@" source_text "${source_text}")
string(REPLACE "[" "@open@" source_text "${source_text}")
string(REPLACE "]" "@close@" source_text "${source_text}")
string(REGEX MATCHALL "// expect(-re|-gcc)?: [^\n]+" expectations "${source_text}")
if(NOT expectations)
  message(FATAL_ERROR "${SOURCE} has no '// expect:' line, so any error at all would pass.")
endif()
if(NOT source_text MATCHES "COLLX_FAIL")
  message(FATAL_ERROR "${SOURCE} has no COLLX_FAIL section.")
endif()

execute_process(COMMAND ${command} RESULT_VARIABLE code OUTPUT_VARIABLE text ERROR_VARIABLE text)
if(NOT code EQUAL 0)
  message(FATAL_ERROR "the passing twin of ${SOURCE} does not compile:\n${text}")
endif()

execute_process(COMMAND ${command} -DCOLLX_FAIL RESULT_VARIABLE code OUTPUT_VARIABLE text ERROR_VARIABLE text)
if(code EQUAL 0)
  message(FATAL_ERROR "${SOURCE} compiles with COLLX_FAIL, but should be refused.")
endif()
foreach(expectation IN LISTS expectations)
  if(expectation MATCHES "^// expect-gcc" AND version MATCHES "clang")
    continue()
  endif()
  string(REGEX REPLACE "^// expect(-re|-gcc)?: " "" wanted "${expectation}")
  string(REPLACE "@semicolon@" ";" wanted "${wanted}")
  string(REPLACE "@open@" "[" wanted "${wanted}")
  string(REPLACE "@close@" "]" wanted "${wanted}")
  string(STRIP "${wanted}" wanted)
  if(expectation MATCHES "^// expect-re")
    string(REGEX MATCH "${wanted}" found "${text}")
    string(LENGTH "${found}" place)
    math(EXPR place "${place} - 1")
  else()
    string(FIND "${text}" "${wanted}" place)
  endif()
  if(place LESS 0)
    message(FATAL_ERROR "${SOURCE} is refused, but without the words\n  ${wanted}\nThe compiler said:\n${text}")
  endif()
endforeach()
list(LENGTH expectations count)
message("refused with the ${count} expected message(s): ${SOURCE}")
