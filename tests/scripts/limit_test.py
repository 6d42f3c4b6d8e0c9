#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""What ends tests: how it ends itself, and, at night, that its seconds are those of a machine that does nothing else:
what makes the machine busy for that would disturb the tests beside it."""
import os
import pathlib
import signal
import subprocess
import sys
import tempfile
import time
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]
BUSY = [sys.executable, "-c", "import time\nwhile time.process_time() < 1: pass"]


class Limit(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.room = tempfile.TemporaryDirectory()
        cls.addClassCleanup(cls.room.cleanup)
        cls.program = str(pathlib.Path(cls.room.name, "collx_limit"))
        subprocess.run([os.environ.get("CXX", "c++"), "-std=c++20", str(ROOT / "tests/support/limit.cpp"), "-o", cls.program],
                       check=True)

    def limited(self, seconds, *command):
        begun = time.monotonic()
        done = subprocess.run([self.program, str(seconds), *command], capture_output=True, text=True)
        return done, time.monotonic() - begun

    def under_load(self, seconds, *command):
        """Beside six endless loops per core."""
        loops = [subprocess.Popen([sys.executable, "-c", "while True: pass"])
                 for _ in range(6 * len(os.sched_getaffinity(0)))]
        try:
            time.sleep(0.5)
            return self.limited(seconds, *command)
        finally:
            for loop in loops:
                loop.kill()
                loop.wait()

    def test_it_ends_as_the_command_does(self):
        for status in (0, 1, 77):
            self.assertEqual(self.limited(60, "sh", "-c", f"exit {status}")[0].returncode, status)
        self.assertEqual(self.limited(60, "sh", "-c", "kill -SEGV $$")[0].returncode, -signal.SIGSEGV)
        self.assertEqual(self.limited(60, "/no/such/program")[0].returncode, 127)
        self.assertEqual(self.limited(60, "sh", "-c", "echo word")[0].stdout, "word\n")
        self.assertEqual(self.limited(0, "true")[0].returncode, 2)

    def test_what_does_not_end_is_ended_with_its_children(self):
        done, _ = self.limited(1, "sh", "-c", "sleep 1000 & echo $!; wait")
        self.assertEqual(done.returncode, 124)
        self.assertIn("(sleep)", done.stdout)
        child = int(done.stdout.split()[0])
        for _ in range(1000):
            try:
                if pathlib.Path(f"/proc/{child}/stat").read_text().rsplit(")", 1)[1].split()[0] == "Z":
                    return
            except OSError:
                return
            time.sleep(0.01)
        self.fail(f"process {child} still runs")

    @unittest.skipUnless(os.environ.get("COLLX_TEST_NIGHTLY"), "at night")
    def test_work_has_more_time_on_a_busy_machine(self):
        done, took = self.under_load(2, *BUSY) # a second of a core, of which it has a seventh or less
        self.assertGreater(took, 3)
        self.assertEqual(done.returncode, 0, done.stdout)

    @unittest.skipUnless(os.environ.get("COLLX_TEST_NIGHTLY"), "at night")
    def test_a_hang_is_noticed_on_a_busy_machine(self):
        done, took = self.under_load(1, "sleep", "1000")
        self.assertEqual(done.returncode, 124)
        self.assertLess(took, 60)


if __name__ == "__main__":
    unittest.main()
