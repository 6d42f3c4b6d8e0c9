#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""scripts/gpu on a machine whose GPU, compiler and sanitizer are shell scripts: its report, its exit codes."""
import os
import pathlib
import subprocess
import tempfile
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]
SMI = """#!/bin/sh
case "$*" in
  *compute_cap*) echo 9.0 ;;
  *driver_version*) echo 580.0 ;;
  *) echo "NVIDIA H100 80GB HBM3" ;;
esac
"""
# Writes a program that does what the test asks for; refuses what the test names.
NVCC = """#!/bin/sh
[ "$1" = --version ] && { echo "Cuda compilation tools, release 13.0, V13.0.88"; exit 0; }
while [ "$1" != -o ]; do shift; done
case "$2" in *"$BROKEN"*) echo "error: broken on request"; exit 1 ;; esac
cp "$PROGRAM" "$2" && chmod +x "$2"
"""
PROGRAM = """#!/bin/sh
case "$0" in
  */probe) echo "probe,flag to the device and back,1.5,us"; exit 0 ;;
  */run | */calls | */shared | */windows | */moe) echo "5 checks, $FAILS failed"; exit "$FAILS" ;;
  *) echo what,variant,ranks,bytes,us,algbw_GBps,fraction; echo copy,cudaMemcpy,1,1024,2.00,0.51,1.000 ;;
esac
"""
# Writes down what it is told; where the test wants it so, it does not start.
MPS = """#!/bin/sh
[ -n "$MPS_REFUSES" ] && { echo "Cannot find MPS control daemon process"; exit 1; }
[ "$1" = -d ] && { echo "started in $CUDA_MPS_PIPE_DIRECTORY" >> "$WORDS"; echo log > "$CUDA_MPS_LOG_DIRECTORY/control.log"; exit 0; }
read word && echo "$word in $CUDA_MPS_PIPE_DIRECTORY" >> "$WORDS"
"""
# A tensor is a row of equal numbers, or several; a pass over one takes 10 us.
TORCH = """
now = [0.0]
class Tensor:
    def __init__(self, rows): self.rows = rows
    def __getitem__(self, i): return self.rows[i]
    def copy_(self, other): now[0] += 20; self.rows = other.rows
    def zero_(self): self.rows = 0.0
    def add_(self, other): now[0] += 30; self.rows += other.rows
    def __eq__(self, x): return Tensor(self.rows == x)
    def all(self): return self.rows
def ones(*shape, device): return Tensor([Tensor(1.0) for _ in range(shape[0])] if len(shape) > 1 else 1.0)
def empty(n, device): return Tensor(0.0)
def add(a, b, out): now[0] += 30; out.rows = a.rows + b.rows
def sum(x, axis, out):
    now[0] += 10 * (len(x.rows) + 1)
    out.rows = 0.0
    for row in x.rows: out.rows += row.rows
def device(name): return name
class cuda:
    class Event:
        def __init__(self, enable_timing): pass
        def record(self): self.at = now[0]
        def elapsed_time(self, other): return (other.at - self.at) / 1000
    def is_available(): return True
    def synchronize(): pass
"""
SANITIZER = """#!/bin/sh
[ "$REFUSES" = yes ] && { echo "Error: Device not supported"; exit 1; }
echo "$2" >> "$TOOLS"
shift 4
"$@"
"""


class Gpu(unittest.TestCase):
    def setUp(self):
        self.room = tempfile.TemporaryDirectory()
        self.folder = pathlib.Path(self.room.name)
        self.addCleanup(self.room.cleanup)

    def tool(self, name, text):
        (self.folder / name).write_text(text)
        (self.folder / name).chmod(0o755)

    def run_script(self, *args, fails="0", broken="nothing", refuses="no", mps_refuses=""):
        env = dict(os.environ, PATH=f"{self.folder}:/usr/bin:/bin", PROGRAM=str(self.folder / "program"), FAILS=fails,
                   BROKEN=broken, REFUSES=refuses, TOOLS=str(self.folder / "tools"), WORDS=str(self.folder / "words"),
                   MPS_REFUSES=mps_refuses, PYTHONPATH=str(self.folder / "python"))
        return subprocess.run([str(ROOT / "scripts/gpu"), "--build", str(self.folder / "build"), "--out",
                               str(self.folder / "out"), *args], env=env, capture_output=True, text=True)

    def with_gpu(self):
        for name, text in (("nvidia-smi", SMI), ("nvcc", NVCC), ("program", PROGRAM), ("compute-sanitizer", SANITIZER)):
            self.tool(name, text)

    def test_report_and_figures(self):
        self.with_gpu()
        done = self.run_script()
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        report = (self.folder / "out/nvidia-h100-80gb-hbm3.md").read_text()
        self.assertIn("# Fused kernels on NVIDIA H100 80GB HBM3", report)
        self.assertIn("release 13.0, driver 580.0, sm_90", report)
        self.assertIn("| copy | cudaMemcpy | 1 | 1024 | 2.00 | 0.51 | 1.000 |", report)
        self.assertIn("| flag to the device and back | 1.5 | us |", report)
        order = [report.index(f"- {name}:") for name in ("probe", "tests-short", "calls-short", "bench", "tests", "memcheck")]
        self.assertEqual(order, sorted(order))
        for name in ("tests", "calls", "shared", "windows", "moe", "memcheck-calls", "memcheck-windows", "memcheck", "racecheck",
                     "synccheck", "bench", "tune"):
            self.assertIn(f"- {name}: passed", report)
        self.assertEqual((self.folder / "tools").read_text().split(),
                         ["memcheck", "memcheck", "racecheck", "synccheck", "memcheck", "memcheck"]) # the first: whether it runs
        self.assertEqual(len((self.folder / "out/nvidia-h100-80gb-hbm3.csv").read_text().splitlines()), 3)

    def test_processes_under_mps(self):
        self.with_gpu()
        self.tool("nvidia-cuda-mps-control", MPS)
        self.tool("program", PROGRAM.replace("#!/bin/sh", '#!/bin/sh\n[ -n "$CUDA_MPS_PIPE_DIRECTORY" ] && '
                                             'echo "$0 $* in $CUDA_MPS_PIPE_DIRECTORY" >> "$WORDS"'))
        done = self.run_script("--short")
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        self.assertIn("- calls-under-mps: passed", done.stdout)
        started, ran, ended = (line.split(" in ") for line in (self.folder / "words").read_text().splitlines())
        self.assertEqual([started[0], ended[0]], ["started", "quit"])
        self.assertTrue(ran[0].endswith("/calls --short"), ran)
        self.assertEqual({started[1], ran[1], ended[1]}, {started[1]})
        self.assertFalse(pathlib.Path(started[1]).exists(), "the control's folder is left")

    def test_without_mps_the_step_is_a_skip(self):
        self.with_gpu()
        self.assertIn("- calls-under-mps: skipped, there is no nvidia-cuda-mps-control", self.run_script("--short").stdout)
        self.tool("nvidia-cuda-mps-control", MPS)
        done = self.run_script("--short", mps_refuses="yes")
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        self.assertIn("- calls-under-mps: skipped, MPS did not start: Cannot find MPS control daemon process", done.stdout)

    def with_torch(self, text=TORCH):
        self.with_gpu()
        (self.folder / "python").mkdir()
        (self.folder / "python/torch.py").write_text(text)
        return self.run_script("--short")

    def test_sums_by_torch(self):
        done = self.with_torch()
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        self.assertIn("- torch-sum: passed", done.stdout)
        csv = (self.folder / "out/nvidia-h100-80gb-hbm3.csv").read_text()
        # Of 4 tensors: three sums of two, nine passes; or all at once, five, as fast as passes can be.
        self.assertIn("sum,torch_in_turn,4,1048576,90.00,11.65,0.556", csv)
        self.assertIn("sum,torch_by_axis,4,1048576,50.00,20.97,1.000", csv)

    def test_wrong_sums_by_torch_are_a_failure(self):
        done = self.with_torch(TORCH.replace("out.rows += row.rows", "out.rows += 2 * row.rows"))
        self.assertEqual(done.returncode, 1)
        self.assertIn("torch_by_axis of 2: wrong sums", done.stdout)

    def test_without_a_device_for_torch_the_step_is_a_skip(self):
        done = self.with_torch(TORCH.replace("is_available(): return True", "is_available(): return False"))
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        self.assertIn("- torch-sum: skipped, torch finds no GPU", done.stdout)

    def test_failures_are_reported(self):
        self.with_gpu()
        done = self.run_script(fails="3")
        self.assertEqual(done.returncode, 1)
        self.assertIn("- tests: **failed** with exit code 3", done.stdout)
        self.assertIn("5 checks, 3 failed", done.stdout)
        self.assertIn("- calls: **failed** with exit code 3", done.stdout)
        self.assertIn("- bench: passed", done.stdout)

    def test_a_refused_sanitizer_is_a_skip_and_a_warning_no_failure(self):
        self.with_gpu()
        self.tool("nvcc", NVCC.replace('cp "$PROGRAM"', 'echo "x.cu(1): warning: something"\ncp "$PROGRAM"'))
        done = self.run_script(refuses="yes")
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        self.assertIn("- compute-sanitizer: skipped, it runs no program on this device: Error: Device not supported", done.stdout)
        programs = done.stdout.count("- build-")
        self.assertGreater(programs, 10)
        self.assertIn(f"- the compilers warned: {programs} lines", done.stdout)
        self.assertIn("- bench: passed", done.stdout)

    def test_what_does_not_compile(self):
        self.with_gpu()
        done = self.run_script(broken="fused")
        self.assertEqual(done.returncode, 1)
        self.assertIn("broken on request", done.stdout)
        self.assertIn("**fused was not built**", done.stdout)
        self.assertIn("- tests: passed", done.stdout)

    def test_no_budget(self):
        self.with_gpu()
        done = self.run_script("--budget", "1")
        self.assertIn("**not run**, the budget of 1 s was used up", done.stdout)
        self.assertIn("nothing was measured, so the report stays in", done.stdout)
        self.assertEqual(done.returncode, 1)

    def test_no_gpu(self):
        self.tool("nvcc", NVCC)
        done = self.run_script()
        self.assertEqual(done.returncode, 77)
        self.assertIn("SKIPPED: no GPU", done.stdout)


if __name__ == "__main__":
    unittest.main()
