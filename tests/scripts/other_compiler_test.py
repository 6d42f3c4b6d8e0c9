#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The other compiler reads the sources that were changed last, for what the first lets pass: at most eight of them, for
about five seconds. It is clang for what g++ compiles by day, and g++ for the tests that only clang compiles, under
sanitizers. At night the presets compile and run all of them with both. BUILD_DIR is a configured build folder, for the
include paths."""
import json
import os
import pathlib
import re
import resource
import shlex
import shutil
import subprocess
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]
CLANG = shutil.which("clang++-14") or shutil.which("clang++")
FIRST = os.environ.get("CXX", "c++")
DATABASE = pathlib.Path(os.environ.get("BUILD_DIR", ROOT / "build/ci"), "compile_commands.json")
FOLDERS = ("tests/", "tools/", "examples/")


def flags_of(command):
    """Of a compiler's command line what another compiler needs to read the same source."""
    words = iter(shlex.split(command))
    kept = []
    for word in words:
        if word == "-isystem":
            kept += [word, next(words)]
        elif word.startswith(("-I", "-D", "-std=")):
            kept.append(word)
    return kept + ["-Wall", "-Wextra", "-Werror", "-Wno-missing-field-initializers"]


def changed(commits):
    """The project's files in the order in which they were changed last: those not committed, then by commit."""
    names = []
    if not shutil.which("git"):
        return []
    for command in (["status", "--porcelain", "--no-renames"], ["log", f"-{commits}", "--format=", "--name-only"]):
        said = subprocess.run(["git", "-C", str(ROOT), *command], capture_output=True, text=True, timeout=60)
        if said.returncode != 0:
            return []
        names += [line[3:] if command[0] == "status" else line for line in said.stdout.splitlines()]
    return list(dict.fromkeys(names))


def reading(compiler, flags, source):
    return subprocess.run([compiler, *flags, "-fsyntax-only", source], capture_output=True, text=True, timeout=200)


def may_be_read(test):
    """Not where a library that it needs may be missing, for that can be why it is left out."""
    return test.exists() and " needs=" not in test.read_text()[:4000]


def readers(names, known):
    """(compiler, source, command) for changed files: themselves, and for a header the test that mirrors it. Not CUDA's. Tests
    that this build leaves out are read with the flags of another test of wide includes."""
    for name in names:
        if name.startswith("include/collx/"):
            name = "tests/" + name.removeprefix("include/collx/").removesuffix(".hpp") + "_test.cpp"
        if not name.startswith(FOLDERS) or not name.endswith(".cpp"):
            continue
        if name in known:
            yield CLANG, name, known[name]
        elif re.fullmatch(r"tests/[a-z]+/\w+_test\.cpp", name) and may_be_read(ROOT / name):
            wide = next(source for source in known if re.fullmatch(r"tests/(comm|interop)/\w+_test\.cpp", source))
            beside = known[wide].replace(pathlib.Path(wide).stem, pathlib.Path(name).stem)
            yield FIRST, name, beside + f' -DCOLLX_SOURCE_DIR="{ROOT}"'


class OtherCompiler(unittest.TestCase):
    def test_what_was_changed_last(self):
        entries = {os.path.relpath(e["file"], ROOT): e["command"] for e in json.loads(DATABASE.read_text())}
        sources = list(dict.fromkeys(readers(changed(40), entries)))
        if not sources:
            print("SKIPPED: git is not installed, or knows of no source that was changed.")
        begin = resource.getrusage(resource.RUSAGE_CHILDREN).ru_utime
        for compiler, source, command in sources[:8]:
            with self.subTest(compiler=compiler, source=source):
                r = reading(compiler, flags_of(command), str(ROOT / source))
                self.assertEqual((r.returncode, r.stderr[:3000]), (0, ""))
            if resource.getrusage(resource.RUSAGE_CHILDREN).ru_utime - begin > 4:
                break

    def test_what_this_build_leaves_out_is_read_by_the_first_compiler(self):
        known = {"tests/comm/all_reduce_test.cpp": "c++ -DA -c /x/tests/comm/all_reduce_test.cpp"}
        names = ["include/collx/comm/split.hpp", "tests/comm/all_reduce_test.cpp", "tests/comm/not_there_test.cpp",
                 "tests/support/main.cpp", "tests/interop/openssl_test.cpp"]
        self.assertEqual([(c, s) for c, s, _ in readers(names, known)],
                         [(FIRST, "tests/comm/split_test.cpp"), (CLANG, "tests/comm/all_reduce_test.cpp")])

    def test_a_warning_is_an_error(self):
        said = subprocess.run([CLANG, *flags_of("c++ -std=c++20 -o x.o -c x.cpp"), "-fsyntax-only", "-x", "c++", "-"],
                              input="int f(int i) { return [i] { return 1; }(); }\n", capture_output=True, text=True,
                              timeout=60)
        self.assertNotEqual(said.returncode, 0)
        self.assertIn("unused-lambda-capture", said.stderr)

    def test_flags_are_taken_over_as_far_as_they_fit(self):
        self.assertEqual(flags_of("c++ -DA=1 -Iinclude -isystem /e -O2 -Winvalid-pch -include p.hxx -std=c++20 -c x.cpp")[:5],
                         ["-DA=1", "-Iinclude", "-isystem", "/e", "-std=c++20"])


if __name__ == "__main__":
    if not CLANG:
        print("SKIPPED: no clang++ was found; on Debian install clang.")
    elif not DATABASE.exists():
        print(f"SKIPPED: there is no {DATABASE}: configure first.")
    else:
        unittest.main()
