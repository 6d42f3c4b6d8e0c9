#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The public headers compile with clang and libc++, and a program of two hosts runs with it."""
import os
import pathlib
import shutil
import subprocess
import tempfile
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]
CLANG = shutil.which("clang++-14") or shutil.which("clang++")
COMMAND = [CLANG, "-stdlib=libc++", "-std=c++20", "-Wall", "-Wextra", "-Werror", "-pthread", f"-I{ROOT}/include"]
# Their libraries are compiled for the system's own standard library, or may be missing.
NEEDS_OTHERS = "interop/"


def is_there():
    return CLANG is not None and subprocess.run([*COMMAND, "-x", "c++", "-", "-o", os.devnull], text=True, timeout=60,
                                                input="#include <vector>\nint main() {}\n", capture_output=True).returncode == 0


class Libcxx(unittest.TestCase):
    def test_all_headers(self):
        names = sorted(str(h.relative_to(ROOT / "include")) for h in (ROOT / "include").rglob("*.hpp"))
        lines = [f"#include <{n}>\n" for n in names if NEEDS_OTHERS not in n and not n.endswith("_once.hpp")]
        self.assertGreater(len(lines), 300)
        done = subprocess.run([*COMMAND, "-fsyntax-only", "-x", "c++", "-"], input="".join(lines), capture_output=True, text=True,
                              timeout=300)
        self.assertEqual(done.returncode, 0, done.stderr[:4000])

    def test_a_program(self):
        with tempfile.TemporaryDirectory() as folder:
            program = pathlib.Path(folder) / "program"
            subprocess.run([*COMMAND, ROOT / "tests/support/libcxx.cpp", "-o", program], check=True, timeout=300)
            done = subprocess.run([program], capture_output=True, text=True, timeout=120)
            self.assertEqual(done.returncode, 0, done.stdout + done.stderr)


if __name__ == "__main__":
    if is_there():
        unittest.main()
    else:
        print("SKIPPED: clang with libc++ was not found; on Debian install clang-14, libc++-14-dev and libc++abi-14-dev.")
