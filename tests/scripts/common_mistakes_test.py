#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#
# The mistakes that newcomers make most: the first error is the sentence that says what is wrong, and all that the
# compiler prints fits a screen. By day g++ and one statement for each sentence, by night all of them, with clang too. What
# all programs include is compiled once.
import os
import pathlib
import re
import shutil
import subprocess
import tempfile
import unittest

root = pathlib.Path(__file__).resolve().parents[2]
compilers = [os.environ.get("CXX", "g++")]
if os.environ.get("COLLX_TEST_NIGHTLY"):
    compilers += [c for c in [shutil.which("clang++") or shutil.which("clang++-14")] if c]
MOST_LINES = {"g++": 25, "clang": 30}  # clang has three for each argument of a call that no form takes

MISTAKES = {  # statement: part of the first error
    "collx::all_reduce(world, x, shout{});": "this reduction operator cannot combine two elements",
    "collx::scan(world, x, y, shout{});": "this reduction operator cannot combine two elements",
    "(void)collx::async::all_reduce(world, x, shout{});": "this reduction operator cannot combine two elements",
    "collx::all_reduce(world.with(42), x);": "with() takes policies",
    'collx::all_reduce(world, x, "sum");': "a text stands where an operator or an output is expected",
    "collx::broadcast(world, texts);": "this type has a destructor",
    "collx::all_reduce(world, constant);": "the result cannot be written into this buffer: it is const",
    "collx::all_gather(world, x, constant);": "the result cannot be written into this buffer: it is const",
    "collx::all_reduce(world, x, whole);": "the input has floating-point numbers and the output integers",
    "(void)collx::async::all_gather(world, x, whole);": "the input has floating-point numbers and the output integers",
    "(void)collx::persistent::all_reduce(world, x, shout{});": "this reduction operator cannot combine two elements",
    "(void)collx::persistent::broadcast(world, constant);": "the result cannot be written into this buffer: it is const",
    "collx::neighbor_all_to_all(world, edges, texts, texts);": "this type has a destructor",
    "collx::any::all_reduce(world, x);": "this is no any_buffer. collx::as_any(x) makes one",
    "(void)collx::any::async::broadcast(world, texts, {.root = 1});": "this is no any_buffer",
    "collx::any::all_reduce(world, collx::as_any(x), collx::max{});": "nor an operator of any:: calls",
    "collx::broadcast(world, x, {.rooot = 1});": "It takes the communicator, a buffer, or an input and an output, and",
    "collx::reduce(world, x, y, {.rooot = 1});": "then one operator (the sum if there is none), and options by name",
    "(void)collx::async::all_reduce(world, x, {.timeout = 5});": "a time without its unit (5s)?",
    "(void)collx::persistent::broadcast(world.with(), x, {.rooot = 1});": "an option misspelt",
    "collx::all_to_all(world, x, y, x);": "no form of this verb takes these arguments",
    "collx::all_reduce(world);": "Is an argument missing",
    "collx::send(world, x);": "a buffer, the peer's rank, and options by name",
    "(void)collx::async::recv(world, x, {.rooot = 1});": "a buffer, the peer's rank, and options",
    "collx::sendrecv(world, x, y);": "a buffer, the rank to send it to, another, the rank to receive it from",
    "collx::all_gather_v(world, x, y);": "with lists of counts",
    "collx::neighbor_all_gather(world, edges, x, y, {.rooot = 1});": "the neighbours {sources, destinations}",
    "(void)collx::async::neighbor_all_to_all(world, x, y);": "the neighbours {sources, destinations}",
    "collx::neighbor_all_to_all_v(world, edges, x, y);": "with their counts",
    "collx::all_to_all_v(world, x, counts, y, y);": "with lists of counts",
    "collx::all_gather_v(world, x, y, y);": "with lists of counts",
    "collx::barrier(world, x);": "It takes the communicator, no buffer, and options by name",
    "collx::any::send(world, collx::as_any(x));": "any_buffers, then what the typed verb takes",
    "collx::reduce_local(x, y, shout{});": "this reduction operator cannot combine two elements",
    "collx::broadcast(world, x, 1);": "Options go by name: {.root = 1}",
    "collx::broadcast(world, pointer, {.root = 1});": "a pointer does not say how many elements it points to",
    "collx::reduce(world, pointer, collx::plus{}, {.root = 1});": "a pointer does not say how many elements it points to",
    "collx::all_reduce(world, pointer);": "a pointer does not say how many elements it points to",
    "collx::all_reduce(x, world);": "the first argument is the communicator",
    "collx::broadcast(world, device);": "this buffer lies in device memory. Make the call in a .cu file",
    "group.all_reduce(x, {.rooot = 1});": "in a group. It takes one buffer and an operator (the sum if there is none)",
    "group.all_reduce(x, shout{});": "this reduction operator cannot combine two elements",
    "group.all_reduce(x, y);": "in a group. It takes one buffer and an operator (the sum if there is none)",
    "group.all_reduce();": "Is an argument missing?",
    "group.all_reduce(world, x);": "but no communicator, which the group has",
    "group.all_reduce(texts);": "this type has a destructor",
    "group.reduce(x, collx::max{});": "It takes one buffer, the root's rank and an operator",
    "group.reduce(constant, 0);": "the result cannot be written into this buffer: it is const",
    "group.broadcast(x, {.root = 1});": "It takes one buffer and the root's rank, but no communicator",
    "group.broadcast(constant, 0);": "the result cannot be written into this buffer: it is const",
    "group.all_gather(x);": "It takes an input and an output, but no communicator",
    "group.all_gather(x, whole);": "the input has floating-point numbers and the output integers",
    "group.all_gather(x, texts);": "this type has a destructor",
    "group.all_gather(x, constant);": "the result cannot be written into this buffer: it is const",
    "group.send(x);": "It takes a buffer and the peer's rank",
    "group.recv(constant, 1);": "the result cannot be written into this buffer: it is const",
    "group.neighbor_all_to_all(x, y);": "It takes the neighbours {sources, destinations}, an input and an output",
    "group.neighbor_all_gather(edges, x, whole);": "both buffers of a neighbourhood collective have elements of one type",
    "group.neighbor_all_gather(edges, x, constant);": "the result cannot be written into this buffer: it is const",
    "devices.all_reduce(device, {.rooot = 1});": "in a group. It takes one buffer and an operator",
    "devices.all_reduce(x);": "a device_group takes buffers in device memory",
    "devices.reduce_scatter(device);": "It takes an input and an output",
    "devices.all_reduce(fixed);": "the result cannot be written into this buffer: it is const",
    "(void)collx::device_group(world).all_reduce(device, device);": "It takes one buffer and an operator",
    "team.all_reduce(parts);": "no form of this call of a fused team takes these arguments",
    "team.scan(parts, parts, collx::plus{}, {.strem = nullptr});": "no form of this call of a fused team",
    "team.reduce(parts, parts, collx::max{});": "the root, an operator; and options by name",
    "team.all_reduce(parts, parts, shout{});": "this reduction operator cannot combine two elements",
    "team.all_gather(parts, fixeds);": "the result cannot be written into this buffer: it is const",
    "team.reduce_scatter(parts, wholes);": "the input has floating-point numbers and the output integers",
}
HOST, WIDE = "host", "wide"
HEADERS = {HOST: """#include <collx/collx.hpp>
#include <string>
#include <vector>
"""}
HEADERS[WIDE] = HEADERS[HOST] + """#include <collx/comm/any.hpp>
#include <collx/testing/twin.hpp>
#include <collx/gpu/device_group.hpp>
#include <collx/gpu/fused_team.hpp>
"""
OBJECTS = {HOST: """
    collx::communicator world;
    std::vector<float> x(8), y(8);
    std::vector<std::string> texts(3);
    const std::vector<float> constant(64);
    std::vector<int> whole(64), counts(1);
    const collx::neighbors edges{{0}, {0}};
    float* pointer = x.data();
    collx::group group(world);
"""}
OBJECTS[WIDE] = OBJECTS[HOST] + """
    const collx::device_view<float> device(pointer, 8);
    const collx::device_view<const float> fixed(pointer, 8);
    const std::vector<collx::device_view<float>> parts(2, device);
    const std::vector<collx::device_view<const float>> fixeds(2, fixed);
    const std::vector<collx::device_view<int>> wholes(2, collx::device_view<int>(nullptr, 8));
    collx::device_group devices(world);
    collx::fused_team<collx::device::twin_machine> team(2);
"""
PROGRAM = """struct shout {
    std::string operator()(float, float) const { return "no"; }
};
int main() {
    OBJECTS
    STATEMENT
}
"""


def to_try():
    """By day the first statement of each sentence."""
    if os.environ.get("COLLX_TEST_NIGHTLY"):
        return MISTAKES
    first = {}
    for statement, sentence in MISTAKES.items():
        first.setdefault(sentence, statement)
    return {statement: sentence for sentence, statement in first.items()}


def kind_of(statement):
    """Each compiler reads all that was compiled beforehand, so few programs get the headers that few need."""
    return WIDE if re.search(r"any|device|team|parts|fixed", statement) else HOST


class Mistakes(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        """A compiler that finds the header compiled beside it takes that; one that does not reads the header itself."""
        cls.folder = tempfile.TemporaryDirectory()
        for kind, text in HEADERS.items():
            headers = cls.headers(kind)
            headers.write_text(text)
            for compiler in compilers:
                ending = "pch" if "clang" in compiler else "gch"
                subprocess.run([compiler, "-std=c++20", f"-I{root}/include", "-x", "c++-header", str(headers), "-o",
                                f"{headers}.{ending}"], check=True, timeout=240)

    @classmethod
    def headers(cls, kind):
        return pathlib.Path(cls.folder.name) / f"{kind}.hpp"

    @classmethod
    def tearDownClass(cls):
        cls.folder.cleanup()

    def compiled(self, compiler, statement):
        kind = kind_of(statement)
        text = PROGRAM.replace("OBJECTS", OBJECTS[kind]).replace("STATEMENT", statement)
        return subprocess.run([compiler, "-std=c++20", "-fsyntax-only", f"-I{root}/include", "-include",
                               str(self.headers(kind)), "-x", "c++", "-"], input=text, capture_output=True, text=True, timeout=120,
                              env={**os.environ, "LC_ALL": "C"})

    def test_the_first_error_is_the_sentence(self):
        for compiler in compilers:
            for statement, sentence in to_try().items():
                with self.subTest(compiler=compiler, statement=statement):
                    r = self.compiled(compiler, statement)
                    self.assertNotEqual(r.returncode, 0)
                    errors = [line for line in r.stderr.splitlines() if "error:" in line]
                    self.assertIn(sentence, errors[0])
                    most = MOST_LINES["clang" if "clang" in compiler else "g++"]
                    self.assertLessEqual(len(r.stderr.splitlines()), most, r.stderr)

    def test_the_program_without_a_mistake(self):
        for compiler in compilers:
            r = self.compiled(compiler, "collx::all_reduce(world, x, y), group.all_reduce(x), team.all_reduce(parts, parts);")
            self.assertEqual(r.returncode, 0, r.stderr)


if __name__ == "__main__":
    unittest.main()
