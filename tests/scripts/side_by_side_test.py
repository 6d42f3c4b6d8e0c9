#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""bench/side_by_side must compare only lines of one state of the cores, name missing peers, and compute what it
says. Its programs are played by scripts with known numbers: no time is measured here."""
import csv
import os
import pathlib
import stat
import subprocess
import sys
import tempfile
import unittest

SCRIPT = pathlib.Path(__file__).resolve().parents[2] / "bench" / "side_by_side"

# Prints a line of CSV for each size: TIME us and, for each, its own two looks at the cores, by whichever name it is called
# with.
PROGRAM = """#!{python}
import sys
words = dict(zip(sys.argv, sys.argv[1:]))
if {exit_code}: sys.exit({exit_code})
looks = "{looks}".split()
for at, size in enumerate(words["--sizes"].split(",")):
    print(f"{{words['--ops']}},{{size}},2,shm,{{words.get('--peer', 'collx')}},{{words.get('--variant', 'default')}},"
          "{time},{time},1,1,out,1,7,{time},{time}" + ("," + looks[at % len(looks)] if looks else ""))
"""
# Answers --probe with the next line of a file, and else with limits.
LIMITS = """#!{python}
import pathlib, sys
if "--probe" in sys.argv:
    states = pathlib.Path(__file__).with_name("states")
    first, *rest = states.read_text().split()
    states.write_text(" ".join(rest or [first]))
    print(first + ",50.0")
else:
    print("name,bytes,procs,median,best,worst,unit")
    print("line_pingpong_one_line,4,2,50,50,50,ns one way")
    for procs in (1, 2):
        print(f"mem_memcpy,8192,{{procs}},5,10,1,GB/s")
        print(f"mem_add3,8192,{{procs}},5,20,1,GB/s")
"""
# Stands for mpiexec.hydra and mpirun.openmpi: runs the program at the end of its own words.
LAUNCHER = """#!{python}
import os, sys
at = next(i for i, w in enumerate(sys.argv) if "peer_mpi" in w)
os.execv(sys.argv[at], sys.argv[at:])
"""


class SideBySide(unittest.TestCase):
    def setUp(self):
        keep = tempfile.TemporaryDirectory()
        self.addCleanup(keep.cleanup)
        self.folder = pathlib.Path(keep.name)

    def program(self, name, text, **words):
        path = self.folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text.format(python=sys.executable, **words))
        path.chmod(path.stat().st_mode | stat.S_IXUSR)

    def run_it(self, *words, states="50", looks=("", ""), peers=("mpich",), exit_code=0):
        """`states`: what the looks around launches find; `looks`: what those of collx and of the peers find, point by point."""
        self.program("tree/bench/limits", LIMITS)
        (self.folder / "tree/bench/states").write_text(states)
        self.program("tree/tools/collx_perf", PROGRAM, time=2.0, looks=looks[0], exit_code=0)
        for peer in peers:
            self.program(f"peer_mpi.{peer}", PROGRAM, time=3.0, looks=looks[1], exit_code=exit_code)
            self.program(f"bin/mpicxx.{peer}", "")
            self.program("bin/" + {"mpich": "mpiexec.hydra", "openmpi": "mpirun.openmpi"}[peer], LAUNCHER)
        (self.folder / "bin").mkdir(exist_ok=True)
        done = subprocess.run([sys.executable, SCRIPT, "--no-build", "--build", self.folder, "-r", "1", "--ops",
                               "allreduce,allgather", "--sizes", "8,8192", "-o", self.folder / "out.csv", *words],
                              capture_output=True, text=True, env={**os.environ, "PATH": str(self.folder / "bin")})
        self.text = done.stdout + done.stderr
        self.rows = list(csv.DictReader((self.folder / "out.csv").read_text().splitlines()))
        return done.returncode

    def test_sizes_that_were_rounded_stand_below_what_was_asked_for(self):
        """Of three ranks nothing that has equal parts takes 8 or 8192 bytes."""
        self.program("rounded", PROGRAM.replace("{{size}},2", "{{int(size) // 12 * 12 or 12}},2"), time=1.0, looks="", exit_code=0)
        os.chdir(self.folder)
        self.addCleanup(os.chdir, "/")
        self.assertEqual(self.run_it("--collx", "./rounded", "--peers", "none"), 0, self.text)
        self.assertIn("allreduce,12,2,shm,collx", (self.folder / "out.csv").read_text())
        self.assertIn("| allreduce | 1.00 | 1.00 |", self.text)

    def test_sizes_are_read_as_collx_perf_reads_them(self):
        self.assertEqual(self.run_it("--sizes", "8,8k,8KiB,1.5M"), 0, self.text)
        self.assertIn("| 1536 KiB |", self.text)
        self.assertEqual(self.run_it("--sizes", "8,fast"), 2)
        self.assertIn("'fast' is no size", self.text)

    def test_ratio_and_turns(self):
        self.assertEqual(self.run_it(), 0, self.text)
        self.assertIn("| allreduce | 2.00 (**1.50** mpich posix) | 2.00 (**1.50** mpich posix) |", self.text)
        self.assertIn("at 4 of 4 points", self.text)
        self.assertEqual([r["peer"] for r in self.rows], ["collx", "collx", "mpich", "mpich"] * 2)

    def test_roofline_follows_from_bytes_and_best_rates(self):
        # 2 ranks of 8 KiB. all_reduce: copies 4(n-1)S at 2 x 10 GB/s, sums (n+2)S at 3 x 20 GB/s.
        self.run_it()
        procs = min(2, len(os.sched_getaffinity(0)))
        sums = (4 * 8192 / 20 + 4 * 8192 / 60) / procs / 1e3
        copies = (6 * 8192 / 20) / procs / 1e3
        self.assertIn(f"| allreduce 8 KiB | 2.00 | {sums:.2f} | {100 * sums / 2:.0f} % | 3.00 |", self.text)
        self.assertIn(f"| allgather 8 KiB | 2.00 | {copies:.2f} | {100 * copies / 2:.0f} % | 3.00 |", self.text)

    def test_lines_of_different_states_are_not_compared(self):
        # Looks: two around the limits, then two around each block. collx near, mpich far.
        self.run_it("--ops", "allreduce", states="50 50  50 50  200 200")
        self.assertIn("cores near", self.text)
        self.assertIn("cores far", self.text)
        self.assertNotIn("mpich posix)", self.text)
        self.assertIn("at 0 of 0 points", self.text)

    def test_lines_during_which_the_cores_moved_are_left_out(self):
        self.run_it("--ops", "allreduce", states="50 50  50 50  50 200")
        self.assertIn("2 lines are in no table", self.text)
        self.assertNotIn("mpich posix)", self.text)
        self.assertEqual({r["state"] for r in self.rows}, {"near", "mixed"})

    def test_a_points_own_looks_tell_its_state(self):
        # Near around each launch, but far within it: each program's second point, and the peer's end of its first.
        self.run_it("--ops", "allreduce", looks=("50,60 200,210", "50,200 200,220"))
        self.assertEqual([r["state"] for r in self.rows], ["near", "far", "mixed", "far"])
        self.assertEqual(self.rows[1]["line_at_end_ns"], "210")
        self.assertIn("| allreduce | 2.00 |  |", self.text)
        self.assertIn("| allreduce |  | 2.00 (**1.50** mpich posix) |", self.text)
        self.assertIn("1 lines are in no table", self.text)
        self.assertNotIn("no look of their own", self.text)

    def test_lines_without_looks_have_those_of_their_launch(self):
        # collx looked and was near; the peer could not look (empty), and its launch was near at first, far at last.
        self.run_it("--ops", "allreduce", "--no-limits", looks=("50,50", ","), states="200 200  50 200")
        self.assertEqual([r["state"] for r in self.rows], ["near", "near", "mixed", "mixed"])
        self.assertIn("2 lines have no look of their own", self.text)

    def test_no_roofline_from_limits_of_another_state(self):
        self.run_it(states="200 200  50")
        self.assertIn("No roofline: the limits were measured with the cores far", self.text)

    def test_missing_peers_are_named(self):
        self.assertEqual(self.run_it("--peers", "mpich.posix,openmpi.ucx"), 0, self.text)
        self.assertIn("Not measured: Open MPI: no mpirun.openmpi", self.text)
        self.assertIn("Not measured: openmpi.ucx: asked for", self.text)

    def test_collx_alone(self):
        self.assertEqual(self.run_it(peers=()), 0, self.text)
        self.assertIn("at 0 of 0 points", self.text)

    def test_every_open_mpi_configuration_runs(self):
        self.run_it("--ops", "allreduce", peers=("openmpi",))
        self.assertEqual({r["algo"] for r in self.rows}, {"default", "copy", "cma"})
        self.assertIn("Open MPI ucx: no ompi_info", self.text)

    def test_a_peer_that_fails_is_said_and_fails_the_run(self):
        self.assertEqual(self.run_it(exit_code=3), 1, self.text)
        self.assertIn("- Failed: mpich posix, allreduce, 2 ranks: exit 3", self.text)


class Sweep(unittest.TestCase):
    """Programs whose time is a rule of size and ranks, with a hole where the test wants one."""
    PROGRAM = """#!{python}
import sys
words = dict(zip(sys.argv, sys.argv[1:]))
peer, ranks = words.get("--peer", "collx"), int(words.get("--ranks", words.get("-n", "2")))
for size in map(int, words["--sizes"].split(",")):
    time = {rule}
    print(f"{{words['--ops']}},{{size}},{{ranks}},shm,{{peer}},{{words.get('--variant', 'default')}},"
          f"{{time}},{{time}},1,1,out,1,7,{{time}},{{time}},50,50")
"""

    def run_it(self, rule, *words):
        with tempfile.TemporaryDirectory() as name:
            folder = pathlib.Path(name)
            for path, text in (("tree/bench/limits", "#!/bin/sh\necho 50,50\n"),
                               ("tree/tools/collx_perf", self.PROGRAM.format(python=sys.executable, rule=rule)),
                               ("peer_mpi.mpich", self.PROGRAM.format(python=sys.executable, rule=rule)),
                               ("bin/mpicxx.mpich", ""),
                               ("bin/mpiexec.hydra", LAUNCHER.format(python=sys.executable).replace(
                                   "sys.argv[at:]", "[*sys.argv[at:], '-n', sys.argv[2]]"))):
                file = folder / path
                file.parent.mkdir(parents=True, exist_ok=True)
                file.write_text(text)
                file.chmod(0o755)
            done = subprocess.run([sys.executable, SCRIPT, "--no-build", "--build", folder, "-r", "1", "--ops", "allreduce",
                                   "-o", folder / "out.csv", *words],
                                  capture_output=True, text=True, env={**os.environ, "PATH": str(folder / "bin")})
            self.assertEqual(done.returncode, 0, done.stderr)
            return done.stdout

    def test_sizes_off_the_grid_of_several_ranks(self):
        text = self.run_it("size / 1000 * (1 if peer == 'collx' else 2)", "--sweep")
        for ranks in (2, 3, 4, 5, 7, 8):
            self.assertIn(f"## {ranks} ranks, cores near", text)
        self.assertIn("0 of 80 sizes take more than 1.3 times as long", text)
        self.assertIn("0 of 80 sizes are below 1.0 of the best peer", text)

    def test_a_size_that_takes_longer_than_a_larger_one_is_named(self):
        hole = "(3000 if size == 384 << 10 and peer == 'collx' else size / 1000)"
        text = self.run_it(hole, "--sweep", "-n", "2")
        self.assertIn("1 of 80 sizes take more", text)
        self.assertIn("| allreduce | 384 KiB | 3000 |", text)
        self.assertIn("1 of 80 sizes are below 1.0", text)
        self.assertIn("mpich posix", text)

    def test_holes_are_measured_again_and_what_was_chance_is_not_named(self):
        rule = ("(3000 if peer == 'collx' and (size == 384 << 10 or size == 768 << 10 and words['--sizes'].count(',') > 40) "
                "else size / 1000)")
        text = self.run_it(rule, "--sweep", "-n", "2", "--again", "2")
        self.assertIn("4 points, what looked like holes and the sizes beside them, were measured again, 2 times", text)
        self.assertIn("1 of 80 sizes are below 1.0", text)
        self.assertIn("| allreduce | 384 KiB | 3000 |", text)
        self.assertNotIn("| allreduce | 768 KiB |", text)
        once = self.run_it(rule, "--sweep", "-n", "2")
        self.assertIn("2 of 80 sizes are below 1.0", once)
        self.assertNotIn("measured again", once)

    def test_ranks_that_cost_more_than_their_share_and_times_that_fall_are_named(self):
        rule = "(ranks * size / 100 if ranks < 32 else ranks ** 2 * size / 1000) if size != 65536 else 1e6 * ranks"
        text = self.run_it(rule, "--sweep-ranks", "-n", "16,32,64")
        self.assertIn("1 KiB: 64 ranks take", text)
        self.assertIn("times as long as 16 (4.0 times as many)", text)
        self.assertIn("16 ranks: 64 KiB takes", text)
        linear = self.run_it("ranks * size / 100", "--sweep-ranks", "-n", "2,4,64")
        self.assertIn("Time grows at most linearly with ranks and never falls when the message grows.", linear)


if __name__ == "__main__":
    unittest.main()
