#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""What scripts/test counts: nothing that failed, or never ran, may look like a pass."""
import pathlib
import subprocess
import sys
import tempfile
import unittest

SCRIPT = pathlib.Path(__file__).resolve().parents[2] / "scripts" / "support" / "summary.py"

PASSED = '<testcase name="p" status="run"><system-out>fine</system-out></testcase>'
IN_PART = '<testcase name="q" status="run"><system-out>SKIPPED: half of it</system-out></testcase>'
SKIPPED = '<testcase name="s" status="notrun"><skipped message=""/><system-out>SKIPPED: no GPU</system-out></testcase>'
FAILED = '<testcase name="f" status="fail"><failure message=""/><system-out>SKIPPED: but it failed</system-out></testcase>'
NOT_BUILT = '<testcase name="n" status="notrun"><skipped message="Unable to find executable"/><system-out/></testcase>'


def summary(cases, checks="", presets=""):
    with tempfile.TemporaryDirectory() as folder:
        if cases is not None:
            pathlib.Path(folder, "ci.xml").write_text(f"<testsuite>{''.join(cases)}</testsuite>")
        pathlib.Path(folder, "checks.tsv").write_text(checks)
        pathlib.Path(folder, "presets").write_text(presets)
        done = subprocess.run([sys.executable, str(SCRIPT), folder], capture_output=True, text=True)
        return done.returncode, done.stdout.splitlines()


class Summary(unittest.TestCase):
    def test_everything_is_added_up(self):
        code, lines = summary([PASSED, IN_PART, SKIPPED], "passed\tlayers\t\nskipped\tformat\tnot installed\n")
        self.assertEqual(code, 0)
        self.assertEqual(lines[-1], "3 passed, 0 failed, 2 skipped")
        self.assertIn("skipped  ci: s: no GPU", lines)
        self.assertIn("skipped  format: not installed", lines)
        self.assertIn("in part  ci: q: half of it", lines)

    def test_a_failure_is_a_failure(self):
        for cases, checks in [([PASSED, FAILED], ""), ([PASSED], "failed\tlayers\t\n")]:
            code, lines = summary(cases, checks)
            self.assertEqual(code, 1)
            self.assertEqual(lines[-1], "1 passed, 1 failed, 0 skipped")

    def test_a_program_that_was_not_built_failed(self):
        code, lines = summary([PASSED, NOT_BUILT])
        self.assertEqual(code, 1)
        self.assertEqual(lines[-1], "1 passed, 1 failed, 0 skipped")

    def test_no_test_is_a_failure(self):
        code, lines = summary([SKIPPED])
        self.assertEqual(code, 1)
        self.assertEqual(lines[-1], "0 passed, 0 failed, 1 skipped")
        self.assertEqual(summary(None)[0], 1)

    def test_a_preset_without_tests_is_a_failure(self):
        built = "passed\tci: build\t\npassed\tlayers\t\n"
        for cases in ([], [SKIPPED], None):
            code, lines = summary(cases, built, "ci\n")
            self.assertEqual(code, 1)
            self.assertIn("FAILED   ci: no test ran", lines)
        self.assertEqual(summary([PASSED], built, "ci\n")[0], 0)
        code, lines = summary([PASSED], built, "ci\nasan\n")
        self.assertIn("FAILED   asan: no test ran", lines)
        code, lines = summary([PASSED], built + "failed\tasan: configure\t\n", "ci\nasan\n")
        self.assertEqual(lines[-1], "3 passed, 1 failed, 0 skipped")

    def test_a_broken_report_is_a_failure(self):
        code, lines = summary(["<testcase>"], "passed\tlayers\t\n")
        self.assertEqual(code, 1)
        self.assertEqual(lines[-1], "1 passed, 1 failed, 0 skipped")


if __name__ == "__main__":
    unittest.main()
