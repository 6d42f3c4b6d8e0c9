#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""What each lesson has: a question, formulas with their sources, a picture that its program prints, and exercises whose
answers are there and checked. Its files are short."""
import pathlib
import re
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]
MOST_LINES = 200
CHECKED = r"program|counted|printed|compared?s?\b|checked|`[^`]*\d[^`]*`|refused|example|recurrence|says so"


def sources(name):
    """The files of examples/NAME.cpp or of the folder examples/NAME/."""
    one = ROOT / "examples" / f"{name}.cpp"
    return [one] if one.exists() else sorted((ROOT / "examples" / name).iterdir())


def pictures(page):
    """Fenced blocks in no language, which are not code."""
    return [text for language, text in re.findall(r"^```(\w*)\n(.*?)^```$", page, re.M | re.S) if language in ("", "text")]


def exercises(page):
    part = page.split("\n## Exercises\n")
    if len(part) != 2:
        return []
    return [e.strip() for e in re.split(r"^\d+\. ", part[1].split("\n<!--")[0], flags=re.M)[1:]]


def problems(page, program):
    """What is missing of a lesson: its page's text, and all that its program's files say."""
    found = []
    if len(re.findall(r"^\*\*Question\.\*\* .*", page, re.M)) != 1:
        found.append("one paragraph begins with **Question.**")
    if not re.search(r"^\|.*\| source \|$", page, re.M) and not re.search(r"^Source: ", page, re.M):
        found.append("formulas have sources: a column of a table, or a line that begins with Source:")
    literals = " ".join(re.findall(r'"((?:[^"\\]|\\.)*)"', program))
    is_printed = lambda line: len(w := re.findall(r"[A-Za-z]{3,}", line)) >= 2 and all(x in literals for x in w)
    if not any(any(is_printed(line) for line in p.splitlines()) for p in pictures(page)):
        found.append("a picture, in words that the program prints")
    asked = exercises(page)
    if len(asked) < 3:
        found.append("three exercises or more")
    for n, text in enumerate(asked, 1):
        if not re.search(r"\*[^*\s][^*]*\*", text):
            found.append(f"the answer of exercise {n}, in italics")
        elif not re.search(CHECKED, text.split("?", 1)[-1], re.I):
            found.append(f"exercise {n} says what checks its answer")
    return found


class Lessons(unittest.TestCase):
    pages = sorted((ROOT / "docs/lessons").glob("[0-9]*.md"))

    def test_each_lesson_is_complete(self):
        self.assertGreater(len(self.pages), 10)
        for path in self.pages:
            with self.subTest(path.name):
                files = sources(path.stem)
                shared = [ROOT / "examples" / name for name in ("draw.hpp", "timeline.hpp", "text.hpp")]
                program = "\n".join(f.read_text() for f in files + shared)
                self.assertEqual(problems(path.read_text(), program), [])
                for f in files:
                    self.assertLessEqual(len(f.read_text().splitlines()), MOST_LINES, f.name)

    def test_each_lesson_is_listed(self):
        listed = (ROOT / "docs/lessons/README.md").read_text()
        for path in self.pages:
            self.assertIn(f"]({path.name})", listed)

    def test_what_is_missing_is_found(self):
        page = (ROOT / "docs/lessons/28_views.md").read_text()
        program = "\n".join(f.read_text() for f in sources("28_views"))
        self.assertEqual(problems(page, program), [])
        for change, said in (
            ((r"\*\*Question\.\*\*", "Question."), "Question"),
            ((r"\| source \|", "| reason |"), "sources"),
            ((r"^```\n.*?^```$", ""), "picture"),
            ((r"## Exercises", "## More"), "three exercises"),
            ((r"\*None; packed it is 72,000 · 16 bytes\.\*", "None."), "answer of exercise 2"),
            ((r"\(Counted\.\)", ""), "exercise 2 says what checks"),
        ):
            with self.subTest(said):
                blocks = re.split(r"(^```\w*\n.*?^```$)", page, flags=re.M | re.S) if said == "picture" else [page]
                text = "".join(re.sub(change[0], change[1], b, flags=re.M | re.S) for b in blocks)
                self.assertIn(said, " ".join(problems(text, program)))


if __name__ == "__main__":
    unittest.main()
