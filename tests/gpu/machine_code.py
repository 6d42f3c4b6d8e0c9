#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""What the assembler makes of the loops that move data: machine code for sm_90, read instruction by instruction.

  machine_code.py NVCC INCLUDE FILE FOLDER     FOLDER: where nvdisasm is loaded to, if the machine has none

Also read: how many loads stand before a short call's first data, and the order of memory: what makes a release of a store and an
acquire of a load, and where these stand.

Loads that are asked for before anything waits for one of them are under way together. Their bytes, for each of 512 threads on each of
132 multiprocessors, must be what a memory of 4.8 TB/s can deliver within 0.7 us (Little's law): 3.3 MB.
"""
import pathlib
import re
import subprocess
import sys
import tempfile

THREADS, NEEDED = 132 * 512, 3.3e6


def run(*command):
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode != 0:
        sys.exit(f"{' '.join(map(str, command))}\n{done.stdout}{done.stderr}")
    return done.stdout


class Instruction:
    def __init__(self, text):
        parts = re.match(r"(@!?U?P\w+\s+)?(\S+)\s*(.*)", text)
        self.text, self.name, operands = text, parts.group(2), parts.group(3)
        self.is_strong = "STRONG.SYS" in self.name
        self.is_load = self.name.startswith(("LDG", "LD.E")) and not self.is_strong
        self.is_store = self.name.startswith(("STG", "ST.E"))
        width = re.search(r"\.(128|64|U16|S16|U8|S8)\b", self.name)
        self.bytes = {"128": 16, "64": 8, "U16": 2, "S16": 2, "U8": 1, "S8": 1}.get(width.group(1) if width else "", 4)
        registers = [int(r) for r in re.findall(r"\bR(\d+)\b", operands)]
        self.into = set(range(registers[0], registers[0] + max(1, self.bytes // 4))) if self.is_load and registers else set()
        # Wide operands name their first register; what waits for one waits for the load.
        self.reads = set(registers[1:] if registers and not self.is_store else registers)
        self.touches = set(registers)


def functions_of(sass):
    """The instructions of each kernel, and of each function that it calls."""
    for section in re.split(r"^\s*\.section\s+\.text\.", sass, flags=re.M)[1:]:
        kernel = re.match(r"[\w$]+", section).group(0)
        for body in re.split(r"^\s*\.type\s+(?=\$)", section, flags=re.M):
            called = re.match(r"\$[\w$]+", body)
            name = kernel + (called.group(0).replace("$" + kernel, "") if called else "")
            yield name, [Instruction(t.strip()) for t in re.findall(r"/\*[0-9a-f]{4,}\*/\s+([^;]+);", body)]


def under_way(code):
    """The most bytes that a thread has asked for before it waits, for each width of load."""
    most, pending, asked = {}, set(), {}

    def settle():
        # Widths are counted apart: a row of one kind is a row of the loop for it.
        for width, total in asked.items():
            most[width] = max(most.get(width, 0), total)
        pending.clear(), asked.clear()

    for i in code:
        if pending & (i.reads if i.is_load else i.touches) or i.name.startswith(("CALL", "BAR", "EXIT", "RET")):
            settle()
        if i.is_load:
            pending.update(i.into)
            asked[i.bytes] = asked.get(i.bytes, 0) + i.bytes
    settle()
    return most


def stores_in_a_row(code):
    """Of each width, the most stores without a load or a barrier between them."""
    most, row = {}, {}
    for i in code:
        if i.is_load or i.name.startswith(("BAR", "CALL")):
            row = {}
        if i.is_store:
            row[i.bytes] = row.get(i.bytes, 0) + 1
            most[i.bytes] = max(most.get(i.bytes, 0), row[i.bytes])
    return most


def short_call(code):
    """What is wrong with the kernel of short messages, whose words carry flags."""
    wrong = []
    stores = [n for n, i in enumerate(code) if i.name.startswith("STG") and i.is_strong and i.bytes == 16]
    # The words of other ranks are stored for them after my own data has been loaded.
    data = max(n for n, i in enumerate(code[:stores[-1]]) if i.is_load)
    generic = [i.text for i in code[:data] if i.name.startswith("LD.E")]
    if generic:
        wrong.append(f"arguments are loaded from memory before the first data: {generic}")
    calls = [n for n, i in enumerate(code) if i.name.startswith("CALL") and n < data]
    if calls:
        wrong.append("functions are called before the first data")
    row = most = 0
    pending = set()
    for i in code:
        if i.name.startswith("LDG") and i.is_strong and i.bytes == 16:
            row += 1
            registers = [int(r) for r in re.findall(r"\bR(\d+)\b", i.text)]
            pending.update(range(registers[0], registers[0] + 4))
        elif pending & i.touches:
            row, pending = 0, set()
        most = max(most, row)
    print(f"{'words of peers':34} {most:4} loads of 16 bytes before a flag is looked at; {len(generic)} generic loads before the first data")
    if most < 8:
        wrong.append("the words of four peers, two loads each, are not under way together")
    if any(i.name.startswith("MEMBAR") for i in code[data:stores[-1]]):
        wrong.append("words that carry their flags need no fence")
    return wrong


# Functions in which a rank tells others what it has stored, and those in which it waits for what others have.
RELEASES = ("run_signal", "run_leave", "run_end", "window_signal_call")
ACQUIRES = ("run_await", "run_enter", "run_begin", "window_wait_call")
KERNELS = ("window_signal_call", "window_wait_call") # which do it themselves; of the others a function that they call


def memory_order(name, code):
    """What is wrong with the order of memory in a function that tells or waits. PTX says it, the assembler makes it."""
    wrong = []
    at = lambda word: [n for n, i in enumerate(code) if i.name.startswith(word)]
    counts = [n for n, i in enumerate(code) if i.name.startswith("ST") and i.is_strong and i.bytes == 8]
    if any(r in name for r in RELEASES):
        fences = at("MEMBAR")
        barriers = at("BAR")
        # A release is a fence of the whole system and then the store, behind the barrier after the block's last store.
        released = [n for n in counts if any(n - 8 <= f < n for f in fences)]
        if not fences or not all("SYS" in code[f].name for f in fences) or not released:
            wrong.append(f"{name}: no release of the whole system")
        if name != "run_end" and (not barriers or released and barriers[0] > released[-1]): # that may also report
            wrong.append(f"{name}: a count is raised before the block's barrier")
    if any(r in name for r in ACQUIRES):
        # An acquire is a strong load, after which the first-level cache is emptied, before the barrier that lets data be loaded.
        drops = at("CCTL.IVALL")
        looks = [n for n, i in enumerate(code) if i.name.startswith("LD") and i.is_strong and i.bytes == 8]
        barriers = at("BAR")
        # (Where all ranks are in one launch nobody waits for neighbours when it begins.)
        if (not drops or not looks or looks[0] > drops[0]) and (drops or name != "run_begin"):
            wrong.append(f"{name}: no acquire")
        if drops and not any(b > drops[-1] for b in barriers):
            wrong.append(f"{name}: data may be loaded before the acquire")
    return wrong


# Copies between a device and the host have 16 blocks at most: 64 bytes in each thread are 0.5 MB, and 55 GB/s of PCI Express
# at 1.5 us ask for 0.1.
STAGING = [("stage_out", 16), ("stage_out", 4), ("stage_in", 16), ("stage_in", 4)]
# What is in the name of a function, what it is called here, and the width of the loads that are counted.
ROWS = [
    ("zero_copy", "viewIf", "f32", 16),
    ("zero_copy", "viewIf", "f32, misaligned", 4),
    ("zero_copy", "bfloat16", "bf16", 16),
    ("zero_copy", "moments", "structure of 24 bytes", 8),
    ("zero_copy", "complex_double", "complex<double>", 8),
    ("two_shot", "viewIf", "f32 through windows", 16),
    ("two_shot", "viewIf", "f32 through windows, misaligned", 4),
    ("two_shot run_move", "viewIf", "f32 into windows", 16),
    ("two_shot run_move", "viewIf", "f32 into windows, misaligned", 4),
]


def one_of(functions, words, element):
    """The code of the kernel, or of the function that it calls, in whose name all words are."""
    wanted = [c for n, c in functions.items() if all(w in n for w in words.split()) and element in n.split("$")[0] and
              ("$" in n) == ("run_" in words)]
    if len(wanted) != 1:
        sys.exit(f"{len(wanted)} functions of {words} and {element} among {list(functions)}")
    return wanted[0]


def main(nvcc, include, source, folder):
    here = pathlib.Path(__file__).resolve()
    found = subprocess.run([here.parents[2] / "scripts/support/get_nvdisasm", folder, nvcc], capture_output=True, text=True)
    if found.returncode != 0:
        print(found.stdout or found.stderr)
        sys.exit(found.returncode)
    with tempfile.TemporaryDirectory() as work:
        cubin = f"{work}/code.cubin"
        run(nvcc, "-std=c++20", "-arch=sm_90", "-cubin", f"-I{include}", "-o", cubin, source)
        functions = dict(functions_of(run(found.stdout.strip(), cubin)))
    bad = []
    for words, element, label, width in ROWS:
        bytes_each = under_way(one_of(functions, words, element)).get(width, 0)
        total = bytes_each * THREADS
        print(f"{label:34} {bytes_each:4} bytes of each thread in loads of {width:2}, {total / 1e6:5.2f} MB on an H200")
        if total < NEEDED:
            bad.append(label)
    for word, width in STAGING:
        code = one_of(functions, word, "viewIf")
        bytes_each, divides = under_way(code).get(width, 0), any(i.name.startswith(("MUFU.RCP", "I2F")) for i in code)
        print(f"{word:34} {bytes_each:4} bytes of each thread in loads of {width:2}{', and a division' if divides else ''}")
        if bytes_each < 64 or divides:
            bad.append(f"{word} in loads of {width}")
    bad += short_call(one_of(functions, "one_shot", "viewIf"))
    seen = set()
    for name, code in functions.items():
        for word in RELEASES + ACQUIRES:
            if word in name and ("$" in name) == (word not in KERNELS):
                if word != "run_begin" or any(i.name.startswith("CCTL") for i in code):
                    seen.add(word)
                bad += memory_order(word, code)
    print(f"order of memory: read in {', '.join(sorted(seen))}")
    if seen != set(RELEASES + ACQUIRES):
        bad.append("functions that tell or wait are missing")
    # Results of a reduction leave as they came: 16 bytes at a time, to the output and into the window.
    wide = stores_in_a_row(one_of(functions, "two_shot", "viewIf")).get(16, 0)
    print(f"{wide} stores of 16 bytes in a row where a reduction ends")
    if wide < 8:
        bad.append("stores of two_shot")
    if bad:
        sys.exit(f"the machine code is not what it must be ({NEEDED / 1e6} MB under way): " + "; ".join(bad))


if __name__ == "__main__":
    if len(sys.argv) != 5:
        sys.exit(__doc__)
    main(*sys.argv[1:])
