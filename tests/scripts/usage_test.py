#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Asked for help, each script of scripts/ says what it does and does nothing; an option that it does not know is refused
in the same way. The scripts run in a copy that has nothing else, so one that starts its work is noticed."""
import os
import pathlib
import re
import shutil
import subprocess
import tempfile
import unittest

SCRIPTS = pathlib.Path(__file__).resolve().parents[2] / "scripts"
NAMES = sorted(p.name for p in SCRIPTS.iterdir() if p.is_file() and os.access(p, os.X_OK))


class Usage(unittest.TestCase):
    def answers(self, word):
        for name in NAMES:
            with self.subTest(script=name), tempfile.TemporaryDirectory() as folder:
                copy = pathlib.Path(folder, "scripts")
                shutil.copytree(SCRIPTS, copy, ignore=shutil.ignore_patterns("__pycache__"))
                before = sorted(copy.parent.rglob("*"))
                r = subprocess.run([str(copy / name), word], cwd=folder, capture_output=True, text=True, timeout=60,
                                   env={**os.environ, "PYTHONDONTWRITEBYTECODE": "1"})
                yield name, r.returncode, r.stdout + r.stderr
                self.assertEqual(sorted(copy.parent.rglob("*")), before)

    def test_help(self):
        self.assertGreater(len(NAMES), 12)
        for name, code, text in self.answers("--help"):
            self.assertIn(code, (0, 2), text)
            self.assertRegex(text, re.compile(rf"(scripts/|usage: ){name}\b"))

    def test_unknown_option(self):
        for name, code, text in self.answers("--no-such-option"):
            self.assertEqual(code, 2, text)
            self.assertIn(name, text)


if __name__ == "__main__":
    unittest.main()
