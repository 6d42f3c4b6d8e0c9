#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""bench/beside_ddp must say what is missing where there is no PyTorch, start collx with a host for each rank or with one, compute
what its tables say, and fail where averages are wrong. The interpreter with torch is played by a script with known numbers."""
import os
import pathlib
import stat
import subprocess
import sys
import tempfile
import unittest

SCRIPT = pathlib.Path(__file__).resolve().parents[2] / "bench" / "beside_ddp"

# Stands for an interpreter: says its torch's version, or is a rank that took TIMES[way] ms longer than its computation, which
# takes a ms more from block to block.
PYTHON = """#!{python}
import os, sys
if sys.argv[1] == "-c":
    print({asked!r})
    sys.exit({missing!r} or 0)
words = dict(zip(sys.argv, sys.argv[1:]))
if {wrong!r}: sys.exit({wrong!r})
times = {{"alone": 0, "ddp": 5, "ddp views": 4, "gloo flat": 6, "collx": 2, "collx views": 1, "collx thread": 8}}
for case in words["--cases"].split(","):
    for way in ["alone", *words["--ways"].split(",")]:
        for block in range(int(words["--blocks"]) - {lost}):
            print(f"{{case}},2000000,{{os.environ['RANKS']}},{{way}},{{block}},7,{{10 + block + times[way]}},3")
"""
# Stands for collx_run: keeps its own words and becomes the program.
RUN = """#!{python}
import os, pathlib, sys
at = next(i for i, w in enumerate(sys.argv) if w.endswith("/python"))
with open(pathlib.Path(__file__).with_name("words"), "a") as f: print(*sys.argv[1:at], os.environ["GLOO_SOCKET_IFNAME"], file=f)
os.environ["RANKS"] = sys.argv[sys.argv.index("-n") + 1]
os.execv(sys.argv[at], sys.argv[at:])
"""


class BesideDdp(unittest.TestCase):
    def run_it(self, *words, asked="2.9 True", missing="", wrong="", lost=0):
        with tempfile.TemporaryDirectory() as name:
            folder = pathlib.Path(name)
            for path, text in (("python", PYTHON), ("tree/tools/collx_run", RUN), ("tree/bench/libddp_buckets.so", "")):
                file = folder / path
                file.parent.mkdir(parents=True, exist_ok=True)
                file.write_text(text.format(python=sys.executable, asked=asked, missing=missing, wrong=wrong, lost=lost))
                file.chmod(file.stat().st_mode | stat.S_IXUSR)
            done = subprocess.run([sys.executable, SCRIPT, "--no-build", "--build", folder, "--python", folder / "python",
                                   "-r", "1", "-n", "2", "--cases", "step small", "--blocks", "3", "-o", folder / "out.csv",
                                   *words], capture_output=True, text=True)
            self.text = done.stdout + done.stderr
            kept = folder / "tree/tools/words"
            self.launches = kept.read_text().splitlines() if kept.exists() else []
            return done.returncode

    def test_steps_exposed_times_and_ratios_to_the_fastest_way_of_torchs(self):
        self.assertEqual(self.run_it(), 0, self.text)
        self.assertIn("torch 2.9", self.text)
        self.assertIn("| step small, 2.0 MB | ddp | 3 | 11.00 | 16.00 | 5.00 |  |  |", self.text)
        self.assertIn("| step small, 2.0 MB | gloo flat | 3 | 11.00 | 17.00 | 6.00 |  |  |", self.text)
        self.assertIn("| step small, 2.0 MB | collx | 3 | 11.00 | 13.00 | 2.00 | **1.15** | **2.00** |", self.text)
        self.assertIn("| step small, 2.0 MB | collx thread | 3 | 11.00 | 19.00 | 8.00 | **0.79** | **0.50** |", self.text)

    def test_each_rank_is_a_host_over_tcp_and_gloo_is_on_loopback(self):
        self.run_it("-n", "2,4")
        self.assertEqual(self.launches, ["-n 2 --hosts 2 --no-prefix lo", "-n 2 --no-prefix lo",
                                         "-n 4 --hosts 4 --no-prefix lo", "-n 4 --no-prefix lo"])
        self.assertIn("## 4 ranks, collx over shared memory", self.text)

    def test_an_interpreter_without_torch_is_named(self):
        self.assertEqual(self.run_it(missing="ImportError: libnothing.so.1"), 77, self.text)
        self.assertIn("cannot import torch: ImportError: libnothing.so.1", self.text)
        self.assertIn("--python", self.text)
        self.assertEqual(self.launches, [])
        self.assertEqual(self.run_it("--python", "/nowhere/python"), 77, self.text)
        self.assertIn("/nowhere/python", self.text)

    def test_a_torch_without_gloo_is_named(self):
        self.assertEqual(self.run_it(asked="2.9 False"), 77, self.text)
        self.assertIn("without Gloo", self.text)

    def test_wrong_averages_fail_the_run(self):
        self.assertEqual(self.run_it(wrong="gradients differ by 0.3"), 1, self.text)
        self.assertIn("- Failed: tcp, 2 ranks: exit 1, 0 lines of 21. gradients differ by 0.3", self.text)

    def test_lines_that_are_missing_fail_the_run(self):
        self.assertEqual(self.run_it(lost=1), 1, self.text)
        self.assertIn("14 lines of 21", self.text)

    def test_names_that_it_does_not_know(self):
        self.assertEqual(self.run_it("--cases", "step tiny"), 2, self.text)
        self.assertIn("'step tiny' is no case; there are step small", self.text)

    def test_what_is_not_built_is_named(self):
        with tempfile.TemporaryDirectory() as empty:
            self.assertEqual(self.run_it("--build", empty), 1, self.text)
        self.assertIn("collx_run is not built; leave --no-build out", self.text)


if __name__ == "__main__":
    unittest.main()
