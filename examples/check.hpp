// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Shared by the examples: checks of what is expected, arguments, and whether this run is the short one of the tests.
#pragma once

#include <atomic>
#include <charconv>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <stdexcept>
#include <string>

namespace example {

inline std::atomic<int> wrong{0}; // ranks may be threads

inline void expect(bool right, const char* what) {
    if (right) return;
    std::printf("WRONG: %s\n", what);
    ++wrong;
}

// For `return` in main.
inline int result() {
    std::printf("%s\n", wrong == 0 ? "All as expected." : "Something was wrong, see above.");
    return wrong == 0 ? 0 : 1;
}

inline bool is_short() {
    const char* value = std::getenv("COLLX_EXAMPLE_SHORT");
    return value != nullptr && value[0] == '1';
}

// Argument i of a program as a whole number from 1 to `most`; `otherwise` where it is not given.
inline int number(int argc, char** argv, int i, int otherwise, int most) {
    if (i >= argc) return otherwise;
    int n = 0;
    const char* const end = argv[i] + std::strlen(argv[i]);
    const auto [stop, bad] = std::from_chars(argv[i], end, n);
    if (bad != std::errc() || stop != end || n < 1 || n > most)
        throw std::invalid_argument("argument " + std::to_string(i) + " is a number from 1 to " + std::to_string(most) +
                                    ", not " + argv[i]);
    return n;
}

// Whether the program was given `word`, the only argument that it takes.
inline bool has_word(int argc, char** argv, const char* word) {
    if (argc > 2 || (argc == 2 && std::strcmp(argv[1], word) != 0))
        throw std::invalid_argument(std::string("the only argument, given once, is ") + word);
    return argc == 2;
}

} // namespace example
