#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""scripts/include_cost with a compiler that is a shell script: budgets are kept or exceeded, and no compiler cache answers
in the compiler's place. And which headers of the standard library every program reads, and what of the library a small program contains."""
import os
import pathlib
import subprocess
import tempfile
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]
# Counts to 200,000 for the yardstick, and to $TURNS for each other source. A cache that is not switched off answers at once.
COMPILER = """#!/bin/sh
[ "$CCACHE_DISABLE" = 1 ] || exit 0
turns=$TURNS
case "$*" in *regex.cpp*) turns=200000 ;; esac
i=0
while [ $i -lt $turns ]; do i=$((i + 1)); done
"""


class IncludeCost(unittest.TestCase):
    def check(self, turns):
        with tempfile.TemporaryDirectory() as folder:
            compiler = pathlib.Path(folder) / "compiler"
            compiler.write_text(COMPILER)
            compiler.chmod(0o755)
            env = {k: v for k, v in os.environ.items() if k != "CCACHE_DISABLE"}
            return subprocess.run([ROOT / "scripts/include_cost", "--check"], capture_output=True, text=True, timeout=120,
                                  env=dict(env, CXX=str(compiler), TURNS=str(turns)))

    def test_a_budget_that_is_kept(self):
        done = self.check(turns=4000)
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        seconds = float(done.stdout.splitlines()[0].split()[-2])
        self.assertGreater(seconds, 0.02, "the yardstick was not compiled: a cache answered")

    def test_a_budget_that_is_exceeded_by_half(self):
        done = self.check(turns=150000)
        self.assertEqual(done.returncode, 1, done.stdout + done.stderr)
        self.assertIn("The budget is exceeded by half", done.stdout)
        self.assertIn("again", done.stdout, "what seems too dear is measured twice")


class StandardHeaders(unittest.TestCase):
    # Each takes a tenth of a second or more of every source, and nvcc reads it three times (docs/design/compile-once.md).
    # <memory>, for one, includes <ostream> in C++20.
    SLOW = {"algorithm", "chrono", "functional", "iostream", "locale", "map", "memory", "mutex", "optional", "ostream",
            "ranges", "regex", "sstream", "string", "string_view", "thread", "unordered_map"}

    def test_what_every_program_reads_is_quick(self):
        for header in ("collx/collx.hpp", "collx/gpu/calls.hpp"):
            done = subprocess.run([os.environ.get("CXX", "c++"), "-std=c++20", f"-I{ROOT}/include", "-M", "-x", "c++", "-"],
                                  input=f"#include <{header}>\n", capture_output=True, text=True, timeout=120)
            self.assertEqual(done.returncode, 0, done.stderr)
            # No header of collx or of the system has a name without an ending.
            read = {pathlib.Path(word).name for word in done.stdout.split()}
            self.assertIn("cstddef", read)
            self.assertEqual(self.SLOW & read, set(), header)


class Contents(unittest.TestCase):
    """Each function that a header-only program can reach is compiled with it."""
    def names_in(self, source):
        with tempfile.TemporaryDirectory() as folder:
            made = subprocess.run([os.environ.get("CXX", "c++"), "-std=c++20", "-O1", f"-I{ROOT}/include", "-c", "-x",
                                   "c++", "-", "-o", f"{folder}/o"], input=source, capture_output=True, text=True,
                                  timeout=300, env=dict(os.environ, CCACHE_DISABLE="1"))
            self.assertEqual(made.returncode, 0, made.stderr)
            return subprocess.run(["nm", "-C", f"{folder}/o"], capture_output=True, text=True, check=True).stdout

    def test_ranks_that_are_threads_need_no_start_of_processes(self):
        names = self.names_in("#include <collx/collx.hpp>\nint main() {\n"
                              "collx::run_threads(2, [](collx::communicator& w) { collx::barrier(w); }); }\n")
        found = [name for name in ("run_thread_jobs", "this_job", "join_shm", "describe_job") if name in names]
        self.assertEqual(found, ["run_thread_jobs"])


if __name__ == "__main__":
    unittest.main()
