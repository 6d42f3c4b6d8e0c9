#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The drivers of proofs and compile-fail tests must be able to fail. The compiler comes from CXX (default: c++)."""
import os
import pathlib
import subprocess
import tempfile
import unittest

SUPPORT = pathlib.Path(__file__).resolve().parents[1] / "support"


def drive(driver, source):
    with tempfile.TemporaryDirectory() as folder:
        path = pathlib.Path(folder, "case.cpp")
        path.write_text(source)
        command = ["cmake", f"-DCOMPILER={os.environ.get('CXX', 'c++')}", "-DINCLUDES=.", "-DTESTS=.",
                   f"-DSOURCE={path}", "-P", str(SUPPORT / driver)]
        done = subprocess.run(command, capture_output=True, text=True, cwd=folder)
        return done.returncode, done.stdout + done.stderr


class CompileFail(unittest.TestCase):
    def refused(self, source, why):
        code, text = drive("compile_fail.cmake", source)
        self.assertNotEqual(code, 0, text)
        self.assertIn(why, " ".join(text.split()))

    def accepted(self, source):
        code, text = drive("compile_fail.cmake", source)
        self.assertEqual(code, 0, text)

    def test_the_expected_words_pass(self):
        self.accepted('// expect: words; with [brackets]\n'
                      '#ifdef COLLX_FAIL\nstatic_assert(false, "words; with [brackets]");\n#endif\n')
        self.accepted('// expect-re: w[a-z]+ds\n#ifdef COLLX_FAIL\n#error words\n#endif\n')

    def test_other_words_fail(self):
        self.refused('// expect: verbs\n#ifdef COLLX_FAIL\nstatic_assert(false, "words");\n#endif\n', "without the words")
        self.refused('// expect-re: v[a-z]+bs\n#ifdef COLLX_FAIL\n#error words\n#endif\n', "without the words")

    def test_an_echoed_source_line_is_no_message(self):
        self.refused('// expect: nonsense_here\n#ifdef COLLX_FAIL\nint x = "nonsense_here";\n#endif\n', "without the words")

    def test_code_that_compiles_fails(self):
        self.refused('// expect: words\n#ifdef COLLX_FAIL\nint x;\n#endif\n', "should be refused")

    def test_a_broken_twin_fails(self):
        self.refused('// expect: words\n#ifdef COLLX_FAIL\n#else\n#error words\n#endif\n', "passing twin")

    def test_expecting_nothing_fails(self):
        self.refused('#ifdef COLLX_FAIL\n#error words\n#endif\n', "no '// expect:' line")


class Prove(unittest.TestCase):
    def test_a_true_assertion_is_a_proof(self):
        self.assertEqual(drive("prove.cmake", "static_assert(1 + 1 == 2);\n")[0], 0)

    def test_a_false_assertion_is_not(self):
        self.assertNotEqual(drive("prove.cmake", "static_assert(1 + 1 == 3);\n")[0], 0)

    def test_nothing_is_not(self):
        self.assertNotEqual(drive("prove.cmake", "int x;\n")[0], 0)


if __name__ == "__main__":
    unittest.main()
