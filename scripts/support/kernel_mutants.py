#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Plants mistakes in the body of the fused kernels and expects the twin's tests to notice each.

  kernel_mutants.py [--jobs N] [--only WORD] [--compiler CXX] [--prefix COMMAND]

Each mistake is one change of text in a copy of include/; tests/exec/device_test.cpp is compiled against it under
ThreadSanitizer, and must fail. Without any mistake it must pass. Exit: 0 all were noticed, 1 one was not, or does not
apply to the text any more, 77 there is no ThreadSanitizer.
"""
import argparse
import concurrent.futures
import os
import pathlib
import shlex
import shutil
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parents[2]
DEVICE = "include/collx/exec/device/"
# What it is, where, the text, and what is put in its place.
MISTAKES = [
    ("a peer that is many calls ahead ends a call", "block.hpp", "are_not_before(Env", "are_of_one_call(Env"),
    ("a message's release is relaxed", "messages.hpp",
     "Env::store_release(&control(m.to)->tail[rank_], sent)", "Env::store_relaxed(&control(m.to)->tail[rank_], sent)"),
    ("a wait's acquire is relaxed", "block.hpp", "seen = Env::load_acquire(word);", "seen = Env::load_relaxed(word);"),
    ("credit off by one", "messages.hpp",
     "number < shared_.drained[peer] + args_.shape.slots", "number <= shared_.drained[peer] + args_.shape.slots"),
    ("no barrier before counts are raised", "messages.hpp", "else env.sync();\n", "\n"),
    ("no barrier before a signal", "messages.hpp", "        env.sync();\n        COLLX_ROLLED", "        COLLX_ROLLED"),
    ("no vote when a piece with flags ends", "executor.hpp", "if constexpr (flagged) stop_if(env_.any(failed_));\n", "\n"),
    ("no vote after the waits of a step", "messages.hpp",
     "m.is_first && env.any(w.has_failed_to_enter(m));", "m.is_first && w.has_failed_to_enter(m);"),
    ("a flag off by one", "steps_move.hpp", "x.rx_flag = slots.in_number + 1;", "x.rx_flag = slots.in_number;"),
    ("neighbours not waited for", "block.hpp", "w.wait_for_neighbours();", "static_cast<void>(0);"),
    ("sums are pushed into the contributions' cells", "steps_window.hpp",
     "this->push_pack(sched::segment_of(s.also), ", "this->push_pack(0, "),
    ("sums are taken from the contributions' cells", "steps_move.hpp",
     "packets_at(gets ? segment : 0, rank_, peer)", "packets_at(0, rank_, peer)"),
    ("a switch is asked where it misses an operand", "steps_window.hpp", "(!from_window || s.own == place::none)", "true"),
    ("what a switch leaves over goes to one rank", "steps_window.hpp", "last = multicasts ? ranks() : rank_ + 1;",
     "last = multicasts ? 1 : rank_ + 1;"),
    ("one cell a peer", "control.hpp", "static_cast<unsigned>(iteration & 1)) *", "static_cast<unsigned>(iteration & 0)) *"),
    ("old words of the second segment stay", "steps_window.hpp", "if (!spreads) refresh(", "if (false) refresh("),
    ("packs that are left over are left out", "executor.hpp", "at <= even; at += block", "at < even; at += block"),
]


def build_and_run(folder, include, main_object, options):
    """The test's exit code and the last lines it wrote; None: it does not compile."""
    program = folder / "test"
    compile_it = [*options.prefix, options.compiler, "-std=c++20", "-O0", "-g0", "-fsanitize=thread", "-pthread", f"-I{include}",
                  f"-I{ROOT / 'tests'}", str(ROOT / "tests/exec/device_test.cpp"), str(main_object), "-o", str(program)]
    done = subprocess.run(compile_it, capture_output=True, text=True, timeout=900)
    if done.returncode != 0:
        return None, done.stderr[-2000:]
    environment = dict(os.environ, TSAN_OPTIONS="halt_on_error=1 exitcode=66")
    try:
        run = subprocess.run([*options.prefix, str(program), "--abort"], capture_output=True, text=True, env=environment,
                             timeout=600)
    except subprocess.TimeoutExpired:
        return 124, "it did not end"
    return run.returncode, (run.stdout + run.stderr)[-2000:]


def plant(mistake, main_object, options):
    what, file, old, new = mistake
    with tempfile.TemporaryDirectory() as work:
        folder = pathlib.Path(work)
        shutil.copytree(ROOT / "include", folder / "include")
        if file is not None:
            path = folder / DEVICE / file
            text = path.read_text()
            if text.count(old) != 1:
                return what, False, f"the text stands {text.count(old)} times in {DEVICE}{file}, not once: {old}"
            path.write_text(text.replace(old, new))
        code, said = build_and_run(folder, folder / "include", main_object, options)
    if code is None:
        return what, False, f"does not compile:\n{said}"
    if file is None:
        return what, code == 0, "passes" if code == 0 else f"exit code {code}:\n{said}"
    how = "a data race" if code == 66 else f"exit code {code}"
    return what, code != 0, f"noticed, {how}" if code != 0 else "NOT noticed"


def main():
    reader = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    reader.add_argument("--jobs", type=int, default=1)
    reader.add_argument("--only", default="", help="mistakes whose name has this word in it")
    reader.add_argument("--compiler", default=os.environ.get("CXX", "g++"))
    reader.add_argument("--prefix", default="", help="put before each command that takes long")
    options = reader.parse_args()
    options.prefix = shlex.split(options.prefix)
    with tempfile.TemporaryDirectory() as work:
        probe = pathlib.Path(work) / "probe.cpp"
        probe.write_text("int main() { return 0; }\n")
        if subprocess.run([options.compiler, "-fsanitize=thread", str(probe), "-o", f"{work}/probe"],
                          capture_output=True).returncode != 0:
            print("SKIPPED: the compiler has no ThreadSanitizer.")
            return 77
        main_object = pathlib.Path(work) / "main.o"
        subprocess.run([*options.prefix, options.compiler, "-std=c++20", "-O0", "-g0", f"-I{ROOT / 'include'}",
                        f"-I{ROOT / 'tests'}", "-c", str(ROOT / "tests/support/main.cpp"), "-o", str(main_object)],
                       check=True, timeout=600)
        chosen = [m for m in MISTAKES if options.only in m[0]]
        if not options.only:
            chosen.insert(0, ("no mistake", None, "", ""))
        bad = 0
        with concurrent.futures.ThreadPoolExecutor(options.jobs) as pool:
            for what, is_right, said in pool.map(lambda m: plant(m, main_object, options), chosen):
                print(f"{'' if is_right else 'WRONG '}{what}: {said}", flush=True)
                bad += not is_right
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
