#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""What nvcc makes of the device executor, without a GPU.

  check_code.py kernels NVCC INCLUDE FILE [ARCH...]   no stack, no spill, at most 128 registers, 16-byte accesses; for
                                                      sm_90, and by night (COLLX_TEST_NIGHTLY) for sm_80 and sm_100
  check_code.py examples NVCC INCLUDE FOLDER [ARCH...] the same for the kernels that the examples instantiate
  check_code.py memory_model NVCC INCLUDE FILE        ours and cuda::atomic_ref's are the same instructions
  check_code.py host_only NVCC INCLUDE FILE           what only the host can call is refused, not left out
  check_code.py known_kernels NVCC INCLUDE FILE       what may be launched is known before main(), so that it can be loaded
"""
import os
import pathlib
import re
import subprocess
import sys
import tempfile


def run(*command):
    done = subprocess.run(command, capture_output=True, text=True)
    text = done.stdout + done.stderr
    if done.returncode != 0:
        sys.exit(f"{' '.join(command)}\n{text}")
    return text


def ptx_of(nvcc, include, source, arch):
    with tempfile.TemporaryDirectory() as folder:
        out = pathlib.Path(folder) / "code.ptx"
        run(nvcc, "-std=c++20", f"-arch=sm_{arch}", "-ptx", f"-I{include}", "-o", str(out), source)
        return out.read_text()


def report_of(nvcc, include, source, arches, folder):
    codes = [f"-gencode=arch=compute_{a},code=sm_{a}" for a in arches]
    return run(nvcc, "-std=c++20", "-Werror", "all-warnings", *codes, "-Xptxas", "-v", "-c", f"-I{include}",
               "--keep", "--keep-dir", folder, "-o", f"{folder}/kernels.o", source)


def judge(report):
    """How many kernels the assembler reports, and how many of them use too much. CUB's own kernels are not judged."""
    report = re.sub(r"^.*Compiling entry function '_ZN(?:3cub|6thrust)\w+' for(?:.*\n){4}", "", report, flags=re.M)
    found = re.findall(r"entry function '(\w+)' for 'sm_(\w+)'.*?(\d+) bytes stack frame, (\d+) bytes spill stores, "
                       r"(\d+) bytes spill loads.*?Used (\d+) registers", report, re.S)
    bad = 0
    for name, arch, stack, stores, loads, registers in found:
        kind = re.search(r"(simple|packet|line|multicast)_protocolELi(\d)", name)
        text = re.search(r"algo\d+(\w+?)ENS", name)
        label = f"{text.group(1) if text else name} {kind.group(1)} x{kind.group(2)}" if kind else name
        if "call_mix" in name:
            label = f"{name.count('Li1E')} kinds of calls in one kernel"
        wrong = int(stack) or int(stores) or int(loads) or int(registers) > 128
        bad += bool(wrong)
        print(f"{'WRONG ' if wrong else ''}sm_{arch}  {registers:>3} registers  {stack} stack  {label}")
    # The functions that kernels call, too.
    spilled = re.findall(r"(?!0 bytes stack frame, 0 bytes spill stores, 0 bytes spill loads)\d+ bytes stack frame, "
                         r"\d+ bytes spill stores, \d+ bytes spill loads", report)
    for line in spilled:
        print("WRONG ", line)
    return len(found), bad + len(spilled)


def kernels(nvcc, include, source, *arches):
    arches = arches or (("80", "90", "100") if os.environ.get("COLLX_TEST_NIGHTLY") else ("90",))
    expected = len(re.findall(r"^KERNEL\w*\(", pathlib.Path(source).read_text(), re.M)) * len(arches)
    with tempfile.TemporaryDirectory() as folder:
        report = report_of(nvcc, include, source, arches, folder)
        ptx = "".join(p.read_text() for p in pathlib.Path(folder).glob("*.ptx"))
    found, bad = judge(report)
    if found != expected:
        sys.exit(f"the assembler reported {found} kernels, expected {expected}:\n{report}")
    wide = len(re.findall(r"\b(?:ld|st)(?:\.global)?\.v4\.[ubf]32|\b(?:ld|st)(?:\.global)?\.v2\.[ubf]64", ptx))
    cached = ptx.count("ld.global.nc")
    print(f"PTX: {wide} accesses of 16 bytes, {cached} through the read-only path")
    if bad or wide < 20 or cached:
        sys.exit("kernels must not use a stack or more than 128 registers, and must load and store 16 bytes at a time, "
                 "never through the read-only path: peers write what they read")
    # What only newer devices have must be used where it is there, and only there.
    words = {"multimem.ld_reduce": "multicast", "cvt.rn.bf16x2.f32": "bf16", "cvt.rn.satfinite.e4m3x2": "e4m3"}
    for word, use in words.items():
        if use in pathlib.Path(source).read_text() and "90" in arches and word not in ptx:
            sys.exit(f"no {word} in the PTX")


def examples(nvcc, include, folder, *arches):
    total = bad = 0
    for source in sorted(pathlib.Path(folder).rglob("*.cu")):
        with tempfile.TemporaryDirectory() as work:
            found, wrong = judge(report_of(nvcc, include, str(source), arches or ("80", "90", "100"), work))
        total, bad = total + found, bad + wrong
    if bad or not total:
        sys.exit("the examples' kernels must not use a stack or more than 128 registers")


def instructions(ptx, name):
    body = re.search(rf"\.entry {name}\(.*?^}}", ptx, re.S | re.M)
    if not body:
        sys.exit(f"no function {name} in the PTX")
    lines = re.findall(r"^\s*((?:ld|st|fence|membar|atom|red)[.\w]*)", body.group(0), re.M)
    # An address space and a type of the same width change nothing; the store of the result is not what is compared.
    words = [re.sub(r"\.(global|[ub]64)", "", x) for x in lines if not x.startswith("ld.param")]
    return [w for w in words if w != "st"]


def memory_model(nvcc, include, source):
    ptx = ptx_of(nvcc, include, source, "90")
    bad = False
    for name in ("load_relaxed", "load_acquire", "store_relaxed", "store_release"):
        ours, theirs = instructions(ptx, "ours_" + name), instructions(ptx, "theirs_" + name)
        same = ours == theirs and len(ours) == 1
        bad = bad or not same
        print(f"{'' if same else 'WRONG '}{name}: ours {ours}, cuda::atomic_ref {theirs}")
    if bad:
        sys.exit("the functions of the memory model are not those of cuda::atomic_ref")


def host_only(nvcc, include, source):
    def front_end(mistake, *flags):
        with tempfile.TemporaryDirectory() as folder:
            return subprocess.run([nvcc, "-std=c++20", "-arch=sm_90", "-cuda", f"-I{include}", f"-DMISTAKE={mistake}", *flags,
                                   "-o", f"{folder}/out", source], capture_output=True, text=True)

    right = front_end(0)
    if right.returncode != 0:
        sys.exit(f"what is marked must compile:\n{right.stderr}")
    mistakes = re.findall(r"MISTAKE == (\d+) // (\w+)", pathlib.Path(source).read_text())
    if [int(number) for number, _ in mistakes] != list(range(1, len(mistakes) + 1)):
        sys.exit("the mistakes are not numbered from 1 on")
    for mistake, word in mistakes:
        done = front_end(mistake)
        if done.returncode == 0 or not re.search(r"calling a (?:constexpr )?__host__ function.*\b" + word, done.stderr):
            sys.exit(f"mistake {mistake} was not refused in a function named {word}:\n{done.stderr}")
        print(f"mistake {mistake}: refused")
        if word.startswith("layout") and front_end(mistake, "--expt-relaxed-constexpr").returncode != 0:
            sys.exit(f"mistake {mistake} is refused also where kernels may call constexpr functions of the host")


def known_kernels(nvcc, include, source):
    with tempfile.TemporaryDirectory() as folder:
        for level in ("-O0", "-O3"):
            run(nvcc, "-std=c++20", "-arch=sm_90", level, f"-I{include}", "-o", f"{folder}/out", source)
            print(run(f"{folder}/out").strip())


if __name__ == "__main__":
    commands = {"kernels": kernels, "examples": examples, "memory_model": memory_model, "host_only": host_only,
                "known_kernels": known_kernels}
    if len(sys.argv) < 5 or sys.argv[1] not in commands:
        sys.exit(__doc__)
    commands[sys.argv[1]](*sys.argv[2:])
