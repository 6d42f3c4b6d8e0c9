#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Ranks that were compiled by g++ and by clang, with other options, are one job, in memory and over sockets."""
import os
import pathlib
import shutil
import subprocess
import tempfile
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]
COMPILERS = [shutil.which("g++"), shutil.which("clang++-14") or shutil.which("clang++")]
OPTIONS = [["-std=c++20", "-O0", "-D_GLIBCXX_DEBUG"], ["-std=gnu++2b", "-O0", "-DNDEBUG", "-funsigned-char"]]


class TwoCompilers(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)

    def job(self, programs, **more):
        ranks = [subprocess.Popen([program], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
                                  env={**os.environ, "COLLX_SIZE": "2", "COLLX_RANK": str(r), "COLLX_TIMEOUT": "60",
                                       **{name: value(r) for name, value in more.items()}})
                 for r, program in enumerate(programs)]
        said = [rank.communicate(timeout=150)[0] for rank in ranks]
        self.assertEqual([rank.returncode for rank in ranks], [0, 0], "".join(said))

    def test_one_job(self):
        programs = [self.folder / "by_gcc", self.folder / "by_clang"]
        for compiler, options, program in zip(COMPILERS, OPTIONS, programs):
            subprocess.run([compiler, *options, "-pthread", f"-I{ROOT}/include", ROOT / "tests/support/two_compilers.cpp", "-o",
                            program], check=True, timeout=200)
        self.job(programs, COLLX_JOB=lambda r: f"two-compilers-{os.getpid()}")
        store = self.folder / "store"
        store.mkdir(mode=0o700)
        self.job(programs, COLLX_STORE=lambda r: f"file:{store}", COLLX_HOST_ID=lambda r: f"host-{r}")


if __name__ == "__main__":
    if None in COMPILERS:
        print("SKIPPED: g++ or clang++ was not found; on Debian install both.")
    else:
        unittest.main()
