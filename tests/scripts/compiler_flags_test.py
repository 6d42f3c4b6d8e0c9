#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#
# A compiler that gets fewer options than the library needs says so in its first error, and stops within a screen.
import os
import pathlib
import shutil
import subprocess
import unittest

root = pathlib.Path(__file__).resolve().parents[2]
compilers = [c for c in (os.environ.get("CXX", "g++"), shutil.which("clang++") or shutil.which("clang++-14")) if c]


def compiled(compiler, *flags):
    return subprocess.run([compiler, *flags, "-fsyntax-only", f"-I{root}/include", "-x", "c++", "-"],
                          input="#include <collx/collx.hpp>\nint main() {}\n", capture_output=True, text=True,
                          timeout=120)


class Flags(unittest.TestCase):
    def expect(self, sentence, *flags):
        for compiler in compilers:
            with self.subTest(compiler=compiler, flags=flags):
                r = compiled(compiler, *flags)
                self.assertNotEqual(r.returncode, 0)
                errors = [line for line in r.stderr.splitlines() if "error:" in line]
                self.assertIn(sentence, errors[0])
                self.assertLessEqual(len(r.stderr.splitlines()), 25, r.stderr)

    def test_an_older_standard(self):
        self.expect("collx: this is a C++20 library", "-std=c++17")

    def test_no_exceptions(self):
        self.expect("collx: errors are exceptions", "-std=c++20", "-fno-exceptions")

    def test_what_is_enough(self):
        for compiler in compilers:
            for standard in ("-std=c++20", "-std=c++2b"):
                r = compiled(compiler, standard)
                self.assertEqual((r.returncode, r.stderr), (0, ""))


if __name__ == "__main__":
    unittest.main()
