#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Every optional library may be missing: the tools, the examples and a program per header of interop/ are configured with
none of them, with what scripts/install_deps installs for the demo, and without each of them alone.

What a missing library changes is compiled (for its syntax only). What it does not change needs no compiler: it is the file
that this build compiles, as long as it reaches no header of that library. The compiler comes from CXX (default: c++).
"""
import concurrent.futures
import json
import os
import pathlib
import re
import shlex
import subprocess
import tempfile
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]
INCLUDE = re.compile(r'^\s*#\s*include\s*[<"]([^>"]+)', re.M)
TOOLS_NEED = {"cli11", "json"}
TOOLS = sorted(ROOT.glob("tools/collx_*.cpp"))
assert len(TOOLS) >= 5, TOOLS


def libraries():
    """name -> (Debian package, how the names of its headers begin)"""
    table = re.findall(r'^\s+"([^"]*\|[^"]*)"', (ROOT / "cmake/collx_optional.cmake").read_text(), re.M)
    rows = [row.split("|") for row in table]
    return {row[0]: (row[4], row[5]) for row in rows}


def of_the_demo():
    packages = re.search(r"^needed=\((.*)\)$", (ROOT / "scripts/install_deps").read_text(), re.M).group(1).split()
    return {name for name, (package, _) in libraries().items() if package in packages}


def run(*command, **options):
    return subprocess.run(command, capture_output=True, text=True, **options)


def folders_of(words):
    """The folders that a command looks for headers in, and its other words."""
    folders, rest, left = set(), [], iter(words)
    for word in left:
        if word in ("-I", "-isystem"):
            folders.add(os.path.normpath(next(left)))
        elif word.startswith("-I"):
            folders.add(os.path.normpath(word[2:]))
        else:
            rest.append(word)
    return folders, rest


# As CMake 3.25.1 has it, where nvToolsExt is not there.
FIND_CUDA = """
if(CMAKE_MINIMUM_REQUIRED_VERSION VERSION_GREATER_EQUAL 3.25)
  set_property(TARGET CUDA::nvToolsExt PROPERTY DEPRECATION "superseded by nvtx3")
endif()
add_library(CUDA::cudart INTERFACE IMPORTED GLOBAL)
"""
ASKS_FOR_CUDA = """
cmake_minimum_required(VERSION 3.25)
project(asks LANGUAGES NONE)
list(APPEND CMAKE_MODULE_PATH "${CMAKE_CURRENT_SOURCE_DIR}")
include("%s/cmake/collx_optional.cmake")
collx_find_optional(cuda target missing)
message(STATUS "found: ${target}, at least ${CMAKE_MINIMUM_REQUIRED_VERSION}")
"""


class Toolkit(unittest.TestCase):
    def test_a_cuda_toolkit_without_nvtoolsext_is_found_by_debians_cmake(self):
        with tempfile.TemporaryDirectory() as folder:
            pathlib.Path(folder, "FindCUDAToolkit.cmake").write_text(FIND_CUDA)
            pathlib.Path(folder, "CMakeLists.txt").write_text(ASKS_FOR_CUDA % ROOT)
            done = run("cmake", "-G", "Ninja", "-S", folder, "-B", folder + "/build")
            self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
            self.assertIn("found: CUDA::cudart, at least 3.25", done.stdout)


class Hidden(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.room = tempfile.TemporaryDirectory()
        cls.addClassCleanup(cls.room.cleanup)
        cls.build = pathlib.Path(cls.room.name, "build")
        cls.pool = concurrent.futures.ThreadPoolExecutor(2)
        cls.addClassCleanup(cls.pool.shutdown)
        cls.known = libraries()
        cls.compiled_before = {}  # (file, command) -> headers: what one library changes, a set of libraries changes alike
        done, cls.all = cls.configured(set())
        assert done.returncode == 0, done.stdout + done.stderr
        cls.includes = {}  # file -> what its #includes name
        near = {file: words for file, words in cls.all.items() if cls.may_reach_a_library(file, words)}
        cls.reached = {file: set() for file in cls.all}
        cls.reached.update(zip(near, cls.pool.map(lambda item: cls.headers_of(item, "-M"), near.items())))

    @classmethod
    def configured(cls, hidden):
        """CMake's answer, and file -> (object, its command)."""
        settings = {"COLLX_HIDE": ";".join(sorted(hidden)), "COLLX_TESTS": "OFF" if "catch2" in hidden else "ON",
                    "COLLX_TEST_ROOMS": "interop", "COLLX_CUDA": "OFF", "COLLX_WERROR": "ON", "COLLX_NATIVE": "OFF",
                    "CMAKE_BUILD_TYPE": "Debug", "CMAKE_EXPORT_COMPILE_COMMANDS": "ON"}
        done = run("cmake", "-G", "Ninja", "-S", str(ROOT), "-B", str(cls.build),
                   *[f"-D{name}={value}" for name, value in settings.items()])
        commands = {}
        if done.returncode == 0:
            for entry in json.loads((cls.build / "compile_commands.json").read_text()):
                words = shlex.split(entry["command"])
                if os.path.basename(words[0]) == "ccache":
                    del words[0]
                if "-o" in words:
                    del words[words.index("-o"):words.index("-o") + 2]
                commands[entry["file"]] = words
        return done, commands

    @classmethod
    def may_reach_a_library(cls, file, words):
        """Whether a file names a header of any library, or one of collx's own that does: whatever the conditions around
        it are. The compiler is asked only about those."""
        folders = [pathlib.Path(word[2:]) for word in words if word.startswith("-I")]
        begins = tuple(begin for _, begin in cls.known.values())
        seen, left = set(), [pathlib.Path(file)]
        while left:
            path = left.pop()
            if path in seen:
                continue
            seen.add(path)
            if path not in cls.includes:
                cls.includes[path] = INCLUDE.findall(path.read_text())
            for name in cls.includes[path]:
                own = [folder / name for folder in (path.parent, *folders) if (folder / name).is_file()]
                if own:
                    left.append(own[0])
                elif name.startswith(begins):
                    return True
        return False

    @classmethod
    def headers_of(cls, item, *how):
        """Of all that a command reads: those that are not collx's own. Raises when the compiler refuses the file."""
        file, words = item
        done = run(*words, *how, cwd=cls.build)
        if done.returncode != 0:
            raise AssertionError(f"{file} does not compile:\n{done.stderr[:3000]}")
        text = done.stdout
        if "-MF" in how:
            text = pathlib.Path(how[how.index("-MF") + 1]).read_text()
        paths = {os.path.normpath(p) for p in text.replace("\\\n", " ").split() if p.startswith("/")}
        return {p for p in paths if not p.startswith(str(ROOT) + "/")}

    def of_library(self, headers, name):
        begin = self.known[name][1]
        return [p for p in headers if re.search("/include/(.*/)?" + re.escape(begin), p)]

    def reads_something_else(self, file, words):
        """Whether a file must be compiled again: not where its command only lost folders from which it took no header."""
        before = self.all.get(file)
        if before is None:
            return True
        folders, rest = folders_of(words)
        folders_before, rest_before = folders_of(before)
        lost = folders_before - folders
        took_from_lost = any(header.startswith(folder + "/") for header in self.reached[file] for folder in lost)
        return rest != rest_before or folders - folders_before or took_from_lost

    def holds_without(self, hidden):
        done, commands = self.configured(hidden)
        self.assertEqual(done.returncode, 0, f"without {sorted(hidden)}:\n{done.stdout}{done.stderr}")
        if not hidden & TOOLS_NEED:
            for tool in TOOLS:
                self.assertIn(str(tool), commands, f"not built without {sorted(hidden)}")
        self.assertIn(str(ROOT / "examples/01_hello_all_reduce.cpp"), commands)
        changed = {file: words for file, words in commands.items() if self.reads_something_else(file, words)}
        now = {file: self.reached[file] for file in commands if file not in changed}
        with tempfile.TemporaryDirectory() as work:
            def compiled(numbered):
                number, (file, words) = numbered
                key = (file, *words)
                if key not in self.compiled_before:
                    self.compiled_before[key] = self.headers_of((file, words), "-fsyntax-only", "-MD", "-MF",
                                                                f"{work}/{number}.d")
                return self.compiled_before[key]
            now.update(zip(changed, self.pool.map(compiled, enumerate(changed.items()))))
        for file, headers in now.items():
            for name in hidden:
                self.assertEqual(self.of_library(headers, name), [], f"{file} reaches {name}, which is missing")
        return changed

    def test_the_libraries_are_seen_where_they_are_used(self):
        """A wrong word in the table would make the tests below look for nothing."""
        everything = set().union(*self.reached.values())
        for name in sorted(of_the_demo() & (TOOLS_NEED | {"eigen", "zlib"})):
            self.assertTrue(self.of_library(everything, name), name)
        for file in (pathlib.Path(f) for f in self.all):
            header = ROOT / "include/collx/interop" / f"{file.stem}.hpp"
            if file.parent.name == "interop" and header.exists():
                for name in re.search(r"^// collx-header: needs=(\S+)", header.read_text(), re.M).group(1).split(","):
                    self.assertTrue(self.of_library(self.reached[str(file)], name), f"{file}: {name}")

    def test_without_any(self):
        self.holds_without(set(self.known))

    def test_with_what_the_demo_installs(self):
        kept = of_the_demo()
        self.assertLessEqual(TOOLS_NEED, kept)
        self.holds_without(set(self.known) - kept)

    def test_without_each(self):
        everything = set().union(*self.reached.values())
        used = {name for name in self.known if self.of_library(everything, name)}
        for name in sorted(used):
            with self.subTest(name):
                self.holds_without({name})
        self.holds_without(set(self.known) - used - {"catch2"})

    def test_tests_without_catch2(self):
        done = run("cmake", "-DCOLLX_HIDE=catch2", "-DCOLLX_TESTS=ON", str(self.build))
        self.assertNotEqual(done.returncode, 0)
        self.assertIn("'catch2' is hidden", " ".join(done.stderr.split()))


if __name__ == "__main__":
    unittest.main()
