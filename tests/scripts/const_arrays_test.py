#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#
# The memory of a const array goes with it, whichever compiler there is: clang 14 has taken the ends of const variables
# for constant, and called no destructor. g++, which most tests are built with, never did.
import os
import pathlib
import shutil
import subprocess
import tempfile
import unittest

root = pathlib.Path(__file__).resolve().parents[2]
compilers = [c for c in (os.environ.get("CXX", "g++"), shutil.which("clang++-14") or shutil.which("clang++")) if c]

PROGRAM = r"""
#include <cstdio>
#include <cstdlib>
#include <new>
#include <collx/core/growing_array.hpp>
static long blocks = 0;
void* operator new(std::size_t n) { return ++blocks, std::malloc(n); }
void operator delete(void* p) noexcept { blocks -= p != nullptr, std::free(p); }
void operator delete(void* p, std::size_t) noexcept { blocks -= p != nullptr, std::free(p); }

template <class T> using array = collx::detail::growing_array<T>;
struct holder { array<int> numbers; int more; };

static int sum(std::size_t n) {
    const array<int> filled(n, 3);
    const array<char> copy = array<char>(n);
    const array<array<int>> rows(n, filled);
    const holder held{filled, 2};
    const array<int> in_array[2] = {filled, filled};
    return filled[0] + copy[0] + rows[n - 1][0] + held.numbers[n - 1] + in_array[1][0];
}

int main(int argc, char**) {
    const long before = blocks;
    if (sum(static_cast<std::size_t>(argc) + 9) != 12) return std::puts("other numbers"), 1;
    std::printf("%ld blocks of memory are left\n", blocks - before);
    return blocks != before;
}
"""


class ConstArrays(unittest.TestCase):
    def test_nothing_is_left(self):
        for compiler in compilers:
            with self.subTest(compiler=compiler), tempfile.TemporaryDirectory() as folder:
                program = f"{folder}/program"
                subprocess.run([compiler, "-std=c++20", f"-I{root}/include", "-x", "c++", "-", "-o", program],
                               input=PROGRAM, text=True, check=True, timeout=120)
                r = subprocess.run([program], capture_output=True, text=True, timeout=60)
                self.assertEqual((r.returncode, r.stdout), (0, "0 blocks of memory are left\n"))


if __name__ == "__main__":
    unittest.main()
