#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""What scripts/check_format finds in a source: the licence, blanks, tabs, long headers, and where functions begin and end."""
import pathlib
import sys
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "scripts/support"))
import form  # noqa: E402

LICENCE = f"// {form.LICENCE}\n"


def found(text):
    return [what for _, what in form.faults("x.hpp", text)]


def lengths(text):
    return list(form.functions(text.split("\n")))


class Look(unittest.TestCase):
    def test_a_clean_source(self):
        self.assertEqual(found(LICENCE + "int x;\n"), [])

    def test_each_fault_is_named(self):
        self.assertEqual(found("int x;\n"), ["no SPDX licence line"])
        self.assertEqual(found(LICENCE + "int x; \n"), ["blanks at the end of a line"])
        self.assertEqual(found(LICENCE + "int\tx;\n"), ["a tab"])
        self.assertEqual(found(LICENCE + "int x;"), ["no newline at the end"])

    def test_a_header_is_guarded_and_short(self):
        self.assertEqual(list(form.header_faults("int x;\n", 400, 50)), [(1, "no #pragma once")])
        self.assertEqual(list(form.header_faults("#pragma once\n" * 5, 4, 50)), [(5, "5 lines; a header has at most 4")])


class Functions(unittest.TestCase):
    def test_one_with_a_template_head_and_arguments_over_lines(self):
        text = "template <class A>\ninline int f(A a,\n             int b) {\n    return b;\n}\n"
        self.assertEqual(lengths(text), [(2, 4)])

    def test_members_out_of_line_and_constructors(self):
        text = "struct s {\n    s(int x)\n        : x_(x) {\n        f();\n    }\n    int x_;\n};\nCOLLX_HD void a<B>::c() {\n    f();\n}\n"
        self.assertEqual(lengths(text), [(2, 4), (8, 3)])

    def test_a_lambda_is_part_of_its_function(self):
        text = "void f() {\n    const auto g = [&](int x) {\n        h(x);\n    };\n    each(g, [] {\n        i();\n    });\n}\n"
        self.assertEqual(lengths(text), [(1, 8)])

    def test_what_else_has_braces_is_none(self):
        self.assertEqual(lengths("namespace a {\nenum class e : int {\n    one,\n};\nconstexpr int x[] = {\n    f(1),\n};\n}\n"), [])

    def test_the_length_is_held(self):
        text = "#pragma once\nvoid f() {\n" + "    g();\n" * 4 + "}\n"
        self.assertEqual(list(form.header_faults(text, 400, 6)), [])
        self.assertEqual(list(form.header_faults(text, 400, 5)), [(2, "a function of 6 lines; it has at most 5")])


if __name__ == "__main__":
    unittest.main()
