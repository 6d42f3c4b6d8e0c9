#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""bench/over_sockets must start every program over TCP and say how many times longer a peer took; its ranks must find
themselves on two hosts where it makes them. Its programs are played by scripts with known numbers."""
import os
import pathlib
import shutil
import stat
import subprocess
import sys
import tempfile
import unittest

SCRIPT = pathlib.Path(__file__).resolve().parents[2] / "bench" / "over_sockets"

# Prints a line of CSV for each size, and leaves behind who it was.
PROGRAM = """#!{python}
import os, pathlib, sys
words = dict(zip(sys.argv, sys.argv[1:]))
rank = os.environ.get("COLLX_RANK", "0")
net = os.stat("/proc/self/ns/net").st_ino
pathlib.Path(__file__).with_name("seen." + words.get("--algo", words.get("--peer", "collx")) + rank).write_text(
    f"{{os.environ.get('COLLX_ADDRESS')}} {{os.environ.get('COLLX_HOST_ID')}} {{net}}")
time = 30 if "--algo" in words else {time}
for size in words["--sizes"].split(",") if rank == "0" else []:
    print(f"{{words['--ops']}},{{size}},{ranks},tcp,{{words.get('--peer', 'collx')}},{{words.get('--variant', 'default')}},"
          f"{{time}},{{time}},1,1,out,1,7,{{time}},{{time}}")
"""
# Stands for collx_run: both ranks, one after the other.
RUN = """#!{python}
import os, subprocess, sys
at = sys.argv.index("--hosts")
for rank in range(int(sys.argv[sys.argv.index("-n") + 1])):
    env = {{**os.environ, "COLLX_RANK": str(rank), "COLLX_SIZE": sys.argv[sys.argv.index("-n") + 1],
            "COLLX_HOST_ID": "host" + str(rank)}}
    code = subprocess.run(sys.argv[at + 2:], env=env).returncode
    if code: sys.exit(code)
"""
# Stands for mpirun.openmpi: keeps its own words and runs the program at their end.
LAUNCHER = """#!{python}
import os, pathlib, sys
at = next(i for i, w in enumerate(sys.argv) if "peer_mpi" in w)
pathlib.Path(__file__).with_name("words").write_text(" ".join(sys.argv[1:at]))
os.execv(sys.argv[at], sys.argv[at:])
"""
LIMITS = "#!/bin/sh\necho 50,50\n"


class OverSockets(unittest.TestCase):
    def setUp(self):
        keep = tempfile.TemporaryDirectory()
        self.addCleanup(keep.cleanup)
        self.folder = pathlib.Path(keep.name)

    def program(self, name, text, **words):
        path = self.folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text.format(python=sys.executable, **words) if "{python}" in text else text)
        path.chmod(path.stat().st_mode | stat.S_IXUSR)

    def run_it(self, *words, ranks=2):
        self.program("tree/bench/limits", LIMITS)
        self.program("tree/tools/collx_run", RUN)
        self.program("tree/tools/collx_perf", PROGRAM, time=10, ranks=ranks)
        self.program("peer_mpi.openmpi", PROGRAM, time=25, ranks=ranks)
        self.program("tree/bench/raw_sockets", PROGRAM, time=8, ranks=ranks)
        self.program("bin/mpirun.openmpi", LAUNCHER)
        self.program("bin/mpicxx.openmpi", "#!/bin/sh\nexit 1\n")
        path = f"{self.folder}/bin:{os.environ['PATH']}"
        return subprocess.run([sys.executable, SCRIPT, "--no-build", "--build", self.folder, "--out",
                               self.folder / "out.csv", "-r", "1", "-n", str(ranks), "--ops", "alltoall", "--sizes",
                               "8192,1048576", "--peers", "openmpi", *words], capture_output=True, text=True,
                              env={**os.environ, "PATH": path}, check=False)

    def test_loopback(self):
        done = self.run_it("--flat", "pairwise")
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertIn("10.0 (**2.50** openmpi tcp)", done.stdout)
        self.assertIn("at 2 of 2 points", done.stdout)
        words = (self.folder / "bin/words").read_text()
        self.assertIn("--mca btl tcp,self", words)
        flat = [r for r in (self.folder / "out.csv").read_text().splitlines() if ",30,30," in r]
        self.assertEqual(len(flat), 2)
        self.assertIn("8.00 (**80 %**)", done.stdout)  # of what bare sockets move; they are no peer

    def test_without_bare_sockets(self):
        done = self.run_it("--no-raw")
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertNotIn("Bare sockets", done.stdout)
        self.assertNotIn("raw", (self.folder / "out.csv").read_text())

    def test_goes_on_in_a_file_of_the_same_columns_only(self):
        self.assertEqual(self.run_it().returncode, 0)
        first = (self.folder / "out.csv").read_text().splitlines()
        self.assertEqual(self.run_it("--append").returncode, 0)
        self.assertEqual(len((self.folder / "out.csv").read_text().splitlines()), 2 * len(first) - 1)
        old = "\n".join(",".join(w for k, w in enumerate(line.split(",")) if k not in (15, 16)) for line in first) + "\n"
        (self.folder / "out.csv").write_text(old)
        done = self.run_it("--append")
        self.assertEqual(done.returncode, 1)
        self.assertIn("out.csv has other columns than this version writes", done.stderr)
        self.assertEqual((self.folder / "out.csv").read_text(), old)
        done = self.run_it("--append", "-r", "0")
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertIn("10.0 (**2.50** openmpi tcp)", done.stdout)

    def test_collx_by_another_algorithm_stays_a_peer_in_a_file(self):
        tables = [[line for line in self.run_it("--flat", "pairwise", *words).stdout.splitlines() if line.startswith("|")]
                  for words in ((), ("--append", "-r", "0"))]
        self.assertIn("10.0 (**2.50** openmpi tcp)", " ".join(tables[0]))
        self.assertEqual(*tables)

    def test_wrong_results_fail(self):
        self.program("tree/broken", "#!/bin/sh\nexit 3\n")
        done = self.run_it("--extra", f"broken={self.folder}/tree/broken")
        self.assertEqual(done.returncode, 1)
        self.assertIn("exit 3", done.stdout)

    def test_two_hosts(self):
        if os.geteuid() != 0 or not shutil.which("ip"):
            self.skipTest("needs root and the ip command")
        if subprocess.run(["ip", "netns", "add", f"probe-{os.getpid()}"], capture_output=True, check=False).returncode:
            self.skipTest("this machine does not allow network namespaces")
        subprocess.run(["ip", "netns", "del", f"probe-{os.getpid()}"], check=False)
        done = self.run_it("--namespaces", "--placement", "alternate", ranks=4)
        self.assertEqual(done.returncode, 0, done.stderr)
        seen = [(self.folder / f"tree/tools/seen.collx{r}").read_text().split() for r in range(4)]
        self.assertEqual([s[0] for s in seen], ["10.231.78.1", "10.231.78.2"] * 2)
        self.assertEqual({s[1] for s in seen}, {"None"})  # the namespace is the host
        self.assertEqual(seen[0][2], seen[2][2])
        self.assertNotEqual(seen[0][2], seen[1][2])
        left = subprocess.run(["ip", "netns"], capture_output=True, text=True, check=False).stdout
        self.assertNotIn("collx-bench", left)


if __name__ == "__main__":
    unittest.main()
