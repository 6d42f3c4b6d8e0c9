#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""bench/gpu/side_by_side on a machine whose GPUs, compiler and peers are shell scripts with known times: what it starts, its
tables, what it says of peers that are missing or wrong, its exit codes."""
import os
import pathlib
import subprocess
import sys
import tempfile
import unittest

SCRIPT = pathlib.Path(__file__).resolve().parents[2] / "bench" / "gpu" / "side_by_side"
SMI = """#!/bin/sh
for i in $(seq $GPUS); do echo 9.0; done
"""
# Writes a program that prints its ranks' times, and says how it was called.
NVCC = """#!/bin/sh
echo "nvcc $*" >> "$WORDS"
while [ "$1" != -o ]; do shift; done
[ -n "$BROKEN" ] && { echo "error: broken on request" >&2; exit 1; }
cp "$PROGRAM" "$2" && chmod +x "$2"
"""
PROGRAM = """#!/bin/sh
echo "between $*" >> "$WORDS"
echo op,variant,ranks,bytes,us,algbw_GBps,busbw_GBps
echo all_reduce,calls,$2,8,20.0,0.0,0.0
echo all_reduce,graph,$2,8,10.0,0.0,0.0
echo all_reduce,calls,$2,1048576,50.0,20.9,31.4
exit $ENDS
"""
NCCL = """#!/bin/sh
echo "nccl $*" >> "$WORDS"
case "$*" in *-G*) us=12.0 ;; *) us=25.0 ;; esac
echo "# nThread 1 nGpus 4 minBytes 8 maxBytes 1048576"
echo "#       size         count      type   redop    root     time   algbw   busbw #wrong     time   algbw   busbw #wrong"
echo "           8             2     float     sum      -1    $us    0.00    0.00      $WRONG    11.00    0.00    0.00      0"
echo "     1048576        262144     float     sum      -1    75.00   13.98   20.97      0    99.00    0.00    0.00      0"
"""
PYTHON = """#!/bin/sh
if [ "$1" = -c ]; then [ -n "$TORCH" ] && echo "$TORCH" || { echo "ModuleNotFoundError: No module named 'torch'" >&2; exit 1; }; exit 0; fi
echo "torch $*" >> "$WORDS"
echo all_reduce,symmetric two-shot,4,1048576,40.0,26.2,39.3
"""


class GpuSideBySide(unittest.TestCase):
    def run_it(self, *words, gpus=4, broken="", ends="0", wrong="0", torch="", tests="all_reduce_perf"):
        with tempfile.TemporaryDirectory() as name:
            folder = pathlib.Path(name)
            for path, text in (("nvidia-smi", SMI), ("nvcc", NVCC), ("program", PROGRAM), (f"tests/{tests}", NCCL),
                               ("python", PYTHON)):
                (folder / path).parent.mkdir(exist_ok=True)
                (folder / path).write_text(text)
                (folder / path).chmod(0o755)
            env = dict(os.environ, PATH=f"{folder}:/usr/bin:/bin", NCCL_TESTS=str(folder / "tests"), GPUS=str(gpus),
                       PROGRAM=str(folder / "program"), WORDS=str(folder / "words"), BROKEN=broken, ENDS=ends, WRONG=wrong,
                       TORCH=torch)
            done = subprocess.run([sys.executable, SCRIPT, "--build", folder / "build", "--python", folder / "python", "-r", "2",
                                   "--ops", "all_reduce", "--to", "1M", "-o", folder / "out.csv", *words], env=env,
                                  capture_output=True, text=True)
            self.text = done.stdout + done.stderr
            out = folder / "out.csv"
            self.csv = out.read_text().splitlines() if out.exists() else []
            kept = folder / "words"
            self.launches = kept.read_text().splitlines() if kept.exists() else []
            return done.returncode

    def test_programs_in_turn_and_the_ratio_to_the_best_peer(self):
        self.assertEqual(self.run_it(torch="2.9 4"), 0, self.text)
        self.assertIn("-arch=sm_90", self.launches[0])
        self.assertEqual([w.split()[0] for w in self.launches[1:]], ["between", "nccl", "nccl", "torch"] * 2)
        self.assertIn("--ranks 4 --from 8 --to 1048576 --factor 4 --ops all_reduce", self.launches[1])
        self.assertIn("-b 8 -e 1048576 -f 4 -g 4 -d float -c 1", self.launches[2])
        self.assertIn("--nproc-per-node=4", self.launches[4])
        self.assertIn("| bytes | collx calls | collx graph | nccl-tests | nccl-tests graph | symmetric two-shot | ", self.text)
        self.assertIn("| 8 B | 20.0 | 10.0 | 25.0 | 12.0 |  | **1.20** |", self.text)
        self.assertIn("| 1 MiB | 50.0 |  | 75.0 | 75.0 | 40.0 | **0.80** |", self.text)
        self.assertEqual(len(self.csv), 1 + 2 * (3 + 2 + 2 + 1))
        self.assertTrue(self.csv[-1].endswith("torch 2.9,2"), self.csv[-1])

    def test_peers_that_are_missing_are_named(self):
        self.assertEqual(self.run_it(tests="none"), 0, self.text)
        self.assertIn("Not measured: nccl-tests: no all_reduce_perf on the PATH", self.text)
        self.assertIn("Not measured: torch: ModuleNotFoundError", self.text)
        self.assertEqual(self.run_it("--python", "/nowhere/python"), 0, self.text)
        self.assertIn("/nowhere/python", self.text)
        self.assertEqual(self.run_it(torch="2.9 1"), 0, self.text)
        self.assertIn("Not measured: torch: torch 2.9 sees 1 of the devices", self.text)

    def test_one_more_program(self):
        self.assertEqual(self.run_it("--peer", "mscclpp/all_reduce=all_reduce_perf -g {ranks}", tests="none"), 1, self.text)
        self.assertIn("Failed: mscclpp", self.text)  # it is not there
        self.assertEqual(self.run_it("--peer", "mine=/bin/echo all_reduce,mine,{ranks},8,5.0,0,0", "-n", "2"), 0, self.text)
        self.assertIn("| 8 B | 20.0 | 10.0 | 25.0 | 12.0 | 5.00 | **0.50** |", self.text)
        self.assertEqual(self.run_it("--peer", "mine/all_reduced=x"), 2, self.text)
        self.assertIn("--peer mine/all_reduced=x", self.text)

    def test_wrong_results_and_broken_programs_fail(self):
        self.assertEqual(self.run_it(wrong="3"), 1, self.text)
        self.assertIn("Failed: nccl-tests all_reduce, round 1: wrong results of 8 bytes", self.text)
        self.assertEqual(self.run_it(ends="1"), 1, self.text)
        self.assertIn("Failed: collx, round 1: exit 1", self.text)
        self.assertEqual(self.run_it(broken="yes"), 1, self.text)
        self.assertIn("nvcc failed", self.text)
        self.assertIn("broken on request", self.text)

    def test_fewer_than_two_gpus_is_a_skip(self):
        for gpus in (0, 1):
            self.assertEqual(self.run_it(gpus=gpus), 77, self.text)
            self.assertIn(f"SKIPPED: needs two GPUs, there are {gpus}", self.text)
        self.assertEqual(self.run_it("-n", "5"), 1, self.text)
        self.assertIn("--ranks is 2 to 4", self.text)


if __name__ == "__main__":
    unittest.main()
