#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#
# The documentation shows code that compiles and points to pages that exist:
#   - each ```cpp block follows a line `<!-- source: FILE#REGION -->` and equals the lines between `// [doc:REGION]` and
#     `// [doc:end]` of that file, or the whole file after its comment header where no region is named;
#   - each relative link leads to a file, and each #heading to a heading.
#   - the table after `<!-- variables -->` says what include/collx/bootstrap/variables.hpp says;
#   - pages and comments name the rank, process or mechanism that acts, not "somebody".
# `docs_test.py --fix` puts the present code and variables into the pages.
import pathlib
import re
import sys
import textwrap
import unittest

root = pathlib.Path(__file__).resolve().parents[2]
pages = ([root / "README.md", root / "CONTRIBUTING.md", root / "bench/README.md"] + sorted((root / "docs").rglob("*.md")) +
         sorted((root / "bench/log").glob("*.md")))


def region(path, name):
    lines = (root / path).read_text().splitlines()
    if name is None:
        while lines and lines[0].startswith("//"):
            lines.pop(0)
        return "\n".join(lines)
    start = lines.index(next(l for l in lines if l.strip() == f"// [doc:{name}]")) + 1
    end = next(i for i in range(start, len(lines)) if lines[i].strip() == "// [doc:end]")
    return textwrap.dedent("\n".join(lines[start:end]))


def anchor(heading):
    text = re.sub(r"[^\w\- ]", "", heading.strip().lower())
    return text.replace(" ", "-")


def variable_table():
    text = (root / "include/collx/bootstrap/variables.hpp").read_text()
    rows = re.findall(r'\{"(COLLX_\w+)", variable::kind::(\w+), "([^"]*)",\s+"([^"]*)"(.*?)\},\n', text, flags=re.S)
    lines = ["| variable | if not set | meaning |", "|---|---|---|"]
    for name, kind, fallback, meaning, rest in rows:
        if kind == "foreign":
            continue
        choices = re.search(r'"([^"]*)"', rest)
        if choices:
            meaning += ": " + ", ".join(f"`{c}`" for c in choices[1].split("|"))
        lines.append(f"| `{name}` | {fallback or '-'} | {meaning} |")
    return lines


def variable_places(lines):
    """(first, last + 1) of the table after each marker."""
    for i, line in enumerate(lines):
        if line.strip() == "<!-- variables -->":
            end = i + 1
            while end < len(lines) and lines[end].startswith("|"):
                end += 1
            yield i + 1, end


def blocks(lines):
    """(first, last + 1, source match) of the code in each ```cpp block."""
    i = 0
    while i < len(lines):
        if lines[i].strip() == "```cpp":
            end = next(k for k in range(i + 1, len(lines)) if lines[k].strip() == "```")
            yield i + 1, end, re.fullmatch(r"<!-- source: ([^#\s]+)(?:#(\w+))? -->", lines[i - 1].strip())
            i = end
        i += 1


def fix():
    for page in pages:
        lines = page.read_text().splitlines()
        for first, end, source in reversed(list(blocks(lines))):
            if source is not None:
                lines[first:end] = region(*source.groups()).strip("\n").splitlines()
        for first, end in reversed(list(variable_places(lines))):
            lines[first:end] = variable_table()
        page.write_text("\n".join(lines) + "\n")


class Docs(unittest.TestCase):
    def test_there_are_pages(self):
        self.assertGreater(len(pages), 10)

    def test_snippets_are_compiled_code(self):
        count = 0
        for page in pages:
            lines = page.read_text().splitlines()
            for first, end, source in blocks(lines):
                where = f"{page.relative_to(root)}:{first}"
                self.assertIsNotNone(source, f"{where}: no source line above this block")
                shown = "\n".join(lines[first:end])
                self.assertEqual(shown.strip(), region(*source.groups()).strip(), where)
                count += 1
        self.assertGreater(count, 10)

    def test_variables_are_those_of_the_library(self):
        self.assertGreater(len(variable_table()), 12)
        count = 0
        for page in pages:
            lines = page.read_text().splitlines()
            for first, end in variable_places(lines):
                self.assertEqual(lines[first:end], variable_table(), page.relative_to(root))
                count += 1
        self.assertEqual(count, 1)

    def test_links_lead_somewhere(self):
        for page in pages:
            text = re.sub(r"```.*?```", "", page.read_text(), flags=re.S)
            for target in re.findall(r"\]\(([^)\s]+)\)", text):
                if re.match(r"[a-z]+:", target):
                    continue
                path, _, fragment = target.partition("#")
                file = (page.parent / path).resolve() if path else page
                where = f"{page.relative_to(root)}: {target}"
                self.assertTrue(file.exists(), where)
                if fragment:
                    headings = re.findall(r"^#+ (.*)$", file.read_text(), flags=re.M)
                    self.assertIn(fragment, [anchor(h) for h in headings], where)

    def test_sentences_have_a_subject(self):
        vague = re.compile(r"\b(nobody|everybody|somebody|anybody|whoever|had better|(is|are|was|were|be|been) told)\b", re.I)
        files = [p for p in pages if "log" not in p.parts]
        for room in ("include", "tools", "examples", "bench", "tests"):
            files += [p for p in sorted((root / room).rglob("*")) if p.suffix in (".hpp", ".cuh", ".cpp", ".cu")]
        self.assertGreater(len(files), 700)
        for file in files:
            for number, line in enumerate(file.read_text().splitlines(), 1):
                found = vague.search(line)
                with self.subTest(f"{file.relative_to(root)}:{number}"):
                    self.assertIsNone(found, f"say which rank, process or mechanism instead: {line.strip()}")


if __name__ == "__main__":
    if sys.argv[1:] == ["--fix"]:
        sys.exit(fix())
    sys.exit(0 if unittest.main(exit=False, verbosity=1).result.wasSuccessful() else 1)
