#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""What scripts/slowest says of a build and of tests: the last build only, each step once, and its idle end."""
import os
import pathlib
import subprocess
import sys
import tempfile
import unittest

SCRIPT = pathlib.Path(__file__).resolve().parents[2] / "scripts" / "slowest"


class Slowest(unittest.TestCase):
    def setUp(self):
        keep = tempfile.TemporaryDirectory()
        self.addCleanup(keep.cleanup)
        self.folder = pathlib.Path(keep.name)

    def run_it(self, *words):
        done = subprocess.run([sys.executable, SCRIPT, self.folder, *words], capture_output=True, text=True, check=False)
        return done.returncode, (done.stdout + done.stderr).splitlines()

    def build(self, *steps):
        (self.folder / "ci").mkdir()
        (self.folder / "ci/.ninja_log").write_text("# ninja log v5\n" + "".join(
            f"{start}\t{end}\t0\t{output}\t{command}\n" for start, end, output, command in steps))

    def test_the_last_build(self):
        cores = os.cpu_count()
        self.build((0, 90000, "old.o", "a"), (0, 3000, "quick.o", "b"),
                   *((0, 10000, f"wide{k}.o", f"w{k}") for k in range(cores)),
                   (10000, 25500, "long.o", "c"), (10000, 25500, "long.d", "c"))
        code, lines = self.run_it("2")
        self.assertEqual(code, 0)
        idle = 0 if cores == 1 else 16
        self.assertEqual(lines[0], f"ci: build of {cores + 2} steps, 26 s, the last {idle} s without a step for each core")
        self.assertEqual(lines[1].split(), ["15.5", "s", "from", "10", "long.o"])
        self.assertEqual(len(lines), 3)

    def test_tests(self):
        (self.folder / "test-results").mkdir()
        (self.folder / "test-results/tsan.xml").write_text(
            '<testsuite><testcase name="a" time="2.5"/><testcase name="b" time="31"/><testcase name="c"/></testsuite>')
        code, lines = self.run_it("1")
        self.assertEqual((code, lines[0]), (0, "tsan: 3 tests, 34 s one after the other"))
        self.assertEqual(lines[1].split(), ["31.0", "s", "b"])
        self.assertEqual(len(lines), 2)

    def test_nothing_there(self):
        code, lines = self.run_it()
        self.assertEqual(code, 1)
        self.assertIn("There is no build", lines[0])


if __name__ == "__main__":
    unittest.main()
