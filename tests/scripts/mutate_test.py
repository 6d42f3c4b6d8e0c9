#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""scripts/mutate in a small tree of its own: what is killed, what survives, and what is no mutant."""
import importlib.util
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]
HEADER = "inline int twice(int x) { return 2 * x; }\ninline int thrice(int x) { return 3 * x; }\n"
TEST = '#include <collx/core/numbers.hpp>\nint main() { return twice(2) == 4 ? 0 : 1; }\n'
TABLE = """import collections
Mutant = collections.namedtuple("Mutant", "what file old new tests")
Mutant.room = property(lambda m: m.file.split("/")[2])
LIBRARIES = {}
MUTANTS = [Mutant("a defect", "include/collx/core/numbers.hpp", %r, %r, ["core/numbers"])]
"""


class Mutate(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.TemporaryDirectory()
        self.root = pathlib.Path(self.folder.name)
        for name, text in {"include/collx/core/numbers.hpp": HEADER, "tests/core/numbers_test.cpp": TEST,
                           "tests/support/main.cpp": ""}.items():
            (self.root / name).parent.mkdir(parents=True, exist_ok=True)
            (self.root / name).write_text(text)
        (self.root / "scripts/support").mkdir(parents=True)
        shutil.copy(ROOT / "scripts/mutate", self.root / "scripts/mutate")

    def tearDown(self):
        self.folder.cleanup()

    def run_with(self, old, new, *words):
        (self.root / "scripts/support/mutants.py").write_text(TABLE % (old, new))
        done = subprocess.run([sys.executable, str(self.root / "scripts/mutate"), *words], capture_output=True, text=True,
                              env=dict(os.environ, PYTHONDONTWRITEBYTECODE="1"))
        self.assertEqual((self.root / "include/collx/core/numbers.hpp").read_text(), HEADER)
        return done.returncode, done.stdout + done.stderr

    def test_a_defect_that_a_test_notices_is_killed(self):
        code, said = self.run_with("2 * x", "4 * x")
        self.assertEqual(code, 0, said)
        self.assertIn("killed   core: a defect", said)
        self.assertIn("1 of   1 killed, 100.0 %", said)

    def test_a_defect_that_no_test_notices_survives(self):
        code, said = self.run_with("3 * x", "4 * x")
        self.assertEqual(code, 1, said)
        self.assertIn("survived core: a defect", said)

    def test_a_static_assertion_notices_too(self):
        code, said = self.run_with("return 2 * x", 'static_assert(false); return 2 * x')
        self.assertEqual(code, 0, said)

    def test_what_does_not_apply_or_compile_is_no_mutant(self):
        for old, new, why in [("7 * x", "4 * x", "stands 0 times"), ("int x", "int", "stands 2 times"),
                              ("2 * x", "2 * y", "does not compile")]:
            code, said = self.run_with(old, new)
            self.assertEqual(code, 1, said)
            self.assertIn(why, said)
        self.assertEqual(self.run_with("7 * x", "", "--list")[0], 1)
        self.assertEqual(self.run_with("2 * x", "", "--list")[0], 0)

    def test_a_test_that_fails_without_a_defect_kills_nothing(self):
        (self.root / "tests/core/numbers_test.cpp").write_text(TEST.replace("== 4", "== 5"))
        code, said = self.run_with("2 * x", "4 * x")
        self.assertEqual(code, 1, said)
        self.assertIn("WRONG core/numbers without a defect", said)
        self.assertNotIn("killed   core", said)

    def test_each_text_of_the_table_is_found_once(self):
        done = subprocess.run([sys.executable, str(ROOT / "scripts/mutate"), "--list"], capture_output=True, text=True,
                              env=dict(os.environ, PYTHONDONTWRITEBYTECODE="1"))
        wrong = [line for line in done.stdout.splitlines() if line.startswith("WRONG")]
        self.assertEqual((wrong, done.returncode), ([], 0), done.stderr)

    def test_each_defect_is_looked_for_by_the_tests_of_its_own_room(self):
        spec = importlib.util.spec_from_file_location("mutants", ROOT / "scripts/support/mutants.py")
        table = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(table)
        # A call passes three rooms: what breaks in one of them is seen through the verbs of all.
        seen_from = {room: {"job", "call", "comm"} for room in ("job", "call", "comm")}
        seen_from["exec"] = {"exec", "gpu"}  # what exec gives to kernels of a caller's own is run by the room of the devices
        self.assertEqual([m.what for m in table.MUTANTS
                          if not {t.split("/")[0] for t in m.tests} <= seen_from.get(m.room, {m.room})], [])
        self.assertGreaterEqual(len(table.MUTANTS), 60)


if __name__ == "__main__":
    unittest.main()
