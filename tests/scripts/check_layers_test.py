#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""scripts/check_layers must find a bad include where there is one, and none where there is none."""
import pathlib
import subprocess
import sys
import tempfile
import unittest

SCRIPT = pathlib.Path(__file__).resolve().parents[2] / "scripts" / "check_layers"


def run_on(files):
    """Runs the checker on headers {path: text}; returns its exit code and output."""
    with tempfile.TemporaryDirectory() as folder:
        for path, text in files.items():
            target = pathlib.Path(folder) / ("" if path.startswith("examples/") else "include/collx") / path
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_text(text)
        done = subprocess.run([sys.executable, str(SCRIPT), "--root", folder], capture_output=True, text=True)
        return done.returncode, done.stdout


class CheckLayers(unittest.TestCase):
    def refused(self, path, line, reason):
        code, text = run_on({"core/config.hpp": "", path: f"#pragma once\n{line}\n"})
        self.assertEqual(code, 1, text)
        self.assertIn(f"{path}:2: {line}", text)
        self.assertIn(reason, text)

    def accepted(self, path, *lines):
        code, text = run_on({path: "\n".join(lines) + "\n"})
        self.assertEqual(code, 0, text)

    def test_up_is_refused(self):
        self.refused("core/rank.hpp", "#include <collx/sched/step.hpp>", "must not look up")
        self.refused("exec/task.hpp", "#include <collx/comm/request.hpp>", "must not look up")
        self.refused("job/join.hpp", "#include <collx/call/work.hpp>", "must not look up")
        self.refused("call/run.hpp", "#include <collx/comm/communicator.hpp>", "must not look up")
        self.refused("comm/group.hpp", "#include <collx/gpu/calls.hpp>", "must not look up")
        self.refused("sched/step.hpp", "#  include <collx/algo/ring.hpp>", "must not look up")

    def test_systems_and_foreign_libraries_are_refused(self):
        self.refused("algo/ring.hpp", "#include <sys/socket.h>", "knows no operating system")
        self.refused("core/config.hpp", "#include <unistd.h>", "knows no operating system")
        self.accepted("core/clock.hpp", "#include <time.h>")
        self.refused("transport/verbs_path.hpp", "#include <infiniband/verbs.h>", "foreign libraries are for interop/")
        self.refused("bootstrap/key.hpp", "#include <openssl/evp.h>", "foreign libraries are for interop/")
        self.refused("exec/device/block.hpp", "#include <cuda_runtime_api.h>", "for .cuh files")
        self.accepted("exec/device/block.cuh", "#include <cuda_runtime_api.h>")

    def test_includes_are_seen_in_any_form(self):
        self.refused("core/rank.hpp", "/* a */ #include <collx/sched/step.hpp>", "must not look up")
        self.refused("core/rank.hpp", "#include_next <collx/sched/step.hpp>", "must not look up")

    def test_sideways_is_refused(self):
        self.refused("algo/ring.hpp", "#include <collx/transport/memory.hpp>", "never see each other")
        self.refused("transport/shm.hpp", "#include <collx/bootstrap/store.hpp>", "never see each other")

    def test_down_and_own_room_are_fine(self):
        self.accepted("comm/all_reduce.hpp", "#include <collx/version.hpp>", "#include <collx/comm/request.hpp>",
                      "#include <collx/plan/plan.hpp>", "#include <collx/core/rank.hpp>", "#include <thread>")
        self.accepted("gpu/calls.hpp", "#include <collx/comm/all_reduce.hpp>", "#include <collx/call/run.hpp>", "#include <collx/job/job.hpp>")
        self.accepted("exec/device/block.cuh", "#include <collx/exec/task.hpp>", "#include <collx/algo/ring.hpp>")

    def test_unknown_rooms_are_refused(self):
        self.refused("comm/a.hpp", "#include <collx/misc/b.hpp>", "is not a room")
        code, text = run_on({"misc/b.hpp": ""})
        self.assertEqual(code, 1)
        self.assertIn("is not a room", text)

    def test_umbrella(self):
        self.accepted("collx.hpp", "#include <collx/comm/all_reduce.hpp>", "#include <collx/algo/ring.hpp>")
        self.refused("collx.hpp", "#include <collx/interop/eigen.hpp>", "does not include interop/")
        self.refused("comm/all_reduce.hpp", "#include <collx/collx.hpp>", "only a user includes")

    def test_quotes_are_refused(self):
        self.refused("core/rank.hpp", '#include "config.hpp"', "angle brackets")

    def test_heavy_and_foreign_headers_are_refused(self):
        self.refused("comm/a.hpp", "#include <iostream>", "compile time")
        self.refused("algo/ring.hpp", "#include <thread>", "is pure")
        self.refused("comm/a.hpp", "#include <range/v3/all.hpp>", "for interop/")
        self.accepted("interop/ranges.hpp", "#include <range/v3/all.hpp>", "#include <ranges>")

    def test_an_example_that_runs_everywhere_includes_net(self):
        says, net = "// collx-example: timeout=9 everywhere\n", "#include <collx/net.hpp>\n"
        for files, code in [({"examples/01_a.cpp": says}, 1), ({"examples/01_a.cpp": says + net}, 0), ({"examples/01_a.cpp": "int i;\n"}, 0),
                            ({"examples/02_b/main.cpp": says, "examples/02_b/other.hpp": "\n"}, 1),
                            ({"examples/02_b/main.cpp": says, "examples/02_b/other.hpp": net}, 0)]:
            found, text = run_on({"core/config.hpp": "", **files})
            self.assertEqual(found, code, text)
            self.assertEqual("does not include collx/net.hpp" in text, code == 1, text)

    def test_an_empty_house_is_an_error(self):
        code, text = run_on({})
        self.assertEqual(code, 1, text)


if __name__ == "__main__":
    unittest.main()
