#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Each header brings what it needs: a source that includes nothing else compiles. By day those headers that were changed
last are read, for about five seconds; by night, with --all, each of them, and again by g++, which finds more names that
hide others. All headers together compile in any order, too: a name means the same whatever was included before it.
Headers whose libraries are not installed are left out."""
import os
import pathlib
import random
import re
import resource
import shutil
import subprocess
import sys
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]
INCLUDE = ROOT / "include"
COMPILER = shutil.which("clang++-14") or shutil.which("clang++") or os.environ.get("CXX", "c++")
ALL = "--all" in sys.argv
FLAGS = ["-std=c++20", "-fsyntax-only", "-Wall", "-Wextra", "-Wshadow", "-Werror", "-x", "c++", "-"]


def read(include, headers, compiler=COMPILER, form=()):
    source = "".join(f"#include <{h}>\n" for h in headers)
    comma = ["-Wcomma"] if "clang" in compiler else []
    return subprocess.run([compiler, "-I", str(include), *comma, *form, *FLAGS], input=source,
                          capture_output=True, text=True, timeout=200)


def read_alone(include, header, compiler=COMPILER, form=()):
    return read(include, [header], compiler, form)


def read_together(names):
    """All that can be read here, in this order."""
    names = list(names)
    while names:
        r = read(INCLUDE, names)
        if r.returncode == 0 or not lacks_a_library(r.stderr):
            break
        names.remove(re.search(r"include/(collx/[\w/]+\.hpp):\d+:\d+: fatal error", r.stderr)[1])
    return names, r


def lacks_a_library(said):
    """Whether what stops the compiler is a header of another project that is not there."""
    missing = re.search(r"fatal error: '?([\w./+-]+)'?(?: file not found|: No such file)", said)
    return bool(missing) and not missing[1].startswith("collx/")


def headers():
    """All headers; where git knows, those that were changed last come first."""
    found = {str(p.relative_to(INCLUDE)) for p in INCLUDE.rglob("*.hpp")}
    said = subprocess.run(["git", "-C", str(ROOT), "log", "-40", "--format=", "--name-only", "--", "include"],
                          capture_output=True, text=True, timeout=60) if shutil.which("git") else None
    changed = [n.removeprefix("include/") for n in said.stdout.splitlines()] if said and said.returncode == 0 else []
    return [n for n in dict.fromkeys(changed + sorted(found)) if n in found]


class HeadersAlone(unittest.TestCase):
    def read_all(self, compiler, form=()):
        names, read, begin = headers(), 0, resource.getrusage(resource.RUSAGE_CHILDREN).ru_utime
        self.assertGreater(len(names), 400)
        for header in names:
            if not ALL and resource.getrusage(resource.RUSAGE_CHILDREN).ru_utime - begin > 5:
                break
            r = read_alone(INCLUDE, header, compiler, form)
            if r.returncode != 0 and lacks_a_library(r.stderr):
                continue
            read += 1
            with self.subTest(header=header, compiler=compiler):
                self.assertEqual((r.returncode, r.stderr[:2000]), (0, ""))
        self.assertGreater(read, 400 if ALL else 0)
        print(f"{read} of {len(names)} headers were read by {compiler}")

    def test_a_source_may_include_any_header_first(self):
        self.read_all(COMPILER)

    def test_nor_does_one_lack_an_include_in_the_compiled_form(self):
        self.read_all(COMPILER, ["-DCOLLX_COMPILED"])

    @unittest.skipUnless(ALL and shutil.which("g++"), "by night, and where g++ is installed")
    def test_nor_does_gcc_find_names_that_hide_others(self):
        self.read_all("g++")

    def test_all_headers_together_compile_in_any_order(self):
        for seed in range(20 if ALL else 1):
            names = sorted(headers())
            random.Random(seed).shuffle(names)
            there, r = read_together(names)
            self.assertGreater(len(there), 400)
            with self.subTest(seed=seed):
                self.assertEqual((r.returncode, r.stderr[:2000]), (0, ""))

    def test_a_header_that_lacks_an_include_is_noticed(self):
        self.assertNotEqual(read_alone(ROOT / "tests/support/headers_alone", "needs_vector.hpp").returncode, 0)

    def test_only_other_projects_may_be_missing(self):
        self.assertTrue(lacks_a_library("x.hpp:3:10: fatal error: 'hwloc.h' file not found"))
        self.assertTrue(lacks_a_library("x.hpp:3:10: fatal error: hwloc.h: No such file or directory"))
        self.assertFalse(lacks_a_library("x.hpp:3:10: fatal error: 'collx/core/gone.hpp' file not found"))
        self.assertFalse(lacks_a_library("x.hpp:3:10: error: unknown type name 'call_form'"))


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])
