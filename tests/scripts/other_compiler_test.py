#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""clang reads the sources that were changed last, for what g++ lets pass: at most eight of them, for about five seconds. At
night the preset clang compiles and runs all of them. BUILD_DIR is a configured build folder, for the include paths."""
import json
import os
import pathlib
import resource
import shlex
import shutil
import subprocess
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]
CLANG = shutil.which("clang++-14") or shutil.which("clang++")
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


def readers(names, known):
    """Sources to read for changed files: themselves, and for a header the test that mirrors it. Not CUDA's."""
    for name in names:
        if name.startswith("include/collx/"):
            name = "tests/" + name.removeprefix("include/collx/").removesuffix(".hpp") + "_test.cpp"
        if name.startswith(FOLDERS) and name.endswith(".cpp") and name in known:
            yield name


class OtherCompiler(unittest.TestCase):
    def test_what_was_changed_last(self):
        entries = {os.path.relpath(e["file"], ROOT): e["command"] for e in json.loads(DATABASE.read_text())}
        sources = list(dict.fromkeys(readers(changed(40), entries)))
        if not sources:
            print("SKIPPED: git is not installed, or knows of no source that was changed.")
        begin = resource.getrusage(resource.RUSAGE_CHILDREN).ru_utime
        for source in sources[:8]:
            with self.subTest(source=source):
                r = reading(CLANG, flags_of(entries[source]), str(ROOT / source))
                self.assertEqual((r.returncode, r.stderr[:3000]), (0, ""))
            if resource.getrusage(resource.RUSAGE_CHILDREN).ru_utime - begin > 4:
                break

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
