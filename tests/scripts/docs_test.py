#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#
# The documentation shows code that compiles and points to pages that exist:
#   - each ```cpp block follows a line `<!-- source: FILE#REGION -->` and equals the lines between `// [doc:REGION]` and
#     `// [doc:end]` of that file, or the whole file after its comment header where no region is named;
#   - each relative link leads to a file, and each #heading to a heading.
#   - the table after `<!-- variables -->` says what include/collx/bootstrap/variables.hpp says;
#   - no code of collx stands in a page without such a line;
#   - the options of collx's tools that pages show exist, as do the COLLX_ names, files, scripts and all names in `code`;
#   - the README leads to every page, bench/README.md names every program, CONTRIBUTING.md has the rooms, words and numbers
#     of defects that the scripts have, and the tour's functions stand in the files that it names;
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


def plain_lines(page):
    """(number, line) outside of ```cpp blocks."""
    lines = page.read_text().splitlines()
    code = {i for first, end, _ in blocks(lines) for i in range(first, end)}
    return [(i + 1, line) for i, line in enumerate(lines) if i not in code]


def tool_options():
    """tool -> its options, as its sources give them to CLI11 or compare them."""
    found = {}
    for main in sorted((root / "tools").glob("collx_*.cpp")):
        parts = {main, *(root / "tools" / main.stem.removeprefix("collx_")).glob("*")}
        parts |= {root / "tools" / name for name in re.findall(r'#include "([^"]+)"', main.read_text())}
        text = "".join(p.read_text() for p in sorted(parts))
        names = re.findall(r'add_(?:option|flag)\("([^"]+)"', text) + re.findall(r'argv\[\d\], "(-[^"]+)"', text)
        found[main.stem] = {"--help", "-h"} | {n.strip().lstrip("!") for name in names for n in name.split(",")}
        found[main.stem] |= set(re.findall(r'"(-np)"', text))
    return found


def commands(page, tools):
    """(number, tool, arguments up to its own program) of each command of a tool, in indented lines and in `code`."""
    for number, line in plain_lines(page):
        for code in [line] if line.startswith("    ") else re.findall(r"`([^`]+)`", line):
            words = re.split(r"\s[#>|]|…|[;&]", code)[0].replace('"', " ").replace("[", " ").replace("]", " ").split()
            at = next((i for i, w in enumerate(words) if w.split("/")[-1] in tools), None)
            while at is not None:
                rest = words[at + 1:]
                end = next((i for i, w in enumerate(rest)
                            if w.split("/")[-1] in tools or w.startswith("./") or w in ("python3", "--", "env")), None)
                yield number, words[at].split("/")[-1], rest[:end]
                at = at + 1 + end if end is not None and rest[end].split("/")[-1] in tools else None


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

    def test_code_of_collx_is_a_compiled_snippet(self):
        for page in pages:
            for number, line in plain_lines(page):
                if line.startswith("    ") and re.search(r"#include <collx|^ *(auto|using|const) .*;|collx::.*;", line):
                    with self.subTest(f"{page.relative_to(root)}:{number}"):
                        self.fail(f"make it a ```cpp block with a source line: {line}")

    def test_commands_name_options_that_exist(self):
        tools, seen = tool_options(), set()
        for tool, options in tools.items():
            self.assertGreater(len(options), 2, tool)
        for page in pages:
            for number, tool, arguments in commands(page, tools):
                for word in arguments:
                    if re.match(r"--?[A-Za-z]", word):
                        seen.add((tool, word))
                        with self.subTest(f"{page.relative_to(root)}:{number}"):
                            self.assertIn(word.split("=")[0].rstrip(",.)"), tools[tool], tool)
        self.assertGreater(len(seen), 30)

    def test_names_that_begin_with_collx_exist(self):
        known = set()
        for room in ("include", "cmake", "tests", "tools", "scripts", "examples", "bench"):
            for p in (root / room).rglob("*"):
                if p.is_file() and p.suffix not in (".md", ".csv", ".svg", ".json"):
                    known |= set(re.findall(r"\bCOLLX_\w+", p.read_text(errors="replace")))
        known |= set(re.findall(r"\bCOLLX_\w+", (root / "CMakeLists.txt").read_text()))
        for page in (p for p in pages if "log" not in p.parts):  # logs say what was measured then
            for number, line in plain_lines(page):
                for name in re.findall(r"(?<![\w*])COLLX_\w*[A-Z0-9](?![\w*])", line):
                    with self.subTest(f"{page.relative_to(root)}:{number}"):
                        self.assertIn(name, known)

    def test_files_exist(self):
        rooms = {p.name for p in (root / "include/collx").iterdir() if p.is_dir()}
        tops = {p.name for p in root.iterdir() if p.is_dir() and p.name not in ("build", ".git")}
        count = 0
        for page in pages:
            if "log" in page.parts:
                continue  # what was measured then
            for number, line in plain_lines(page):
                for path in re.findall(r"[`<(]((?:collx/)?[a-z_]+/[\w/]*\w(?:\.(?:hpp|cuh|cpp|cu|md|py|cmake))?)[`>)]", line):
                    first = path.split("/")[0]
                    places = []
                    if first == "collx" and path.endswith((".hpp", ".cuh")):
                        places = ["include/" + path]
                    elif first in rooms and path.endswith((".hpp", ".cuh")):
                        places = ["include/collx/" + path, path, str((page.parent / path).relative_to(root))]
                    elif first in tops:
                        places = [path, "include/collx/" + path]
                    if places and not path.startswith("examples/NN"):
                        count += 1
                        with self.subTest(f"{page.relative_to(root)}:{number}"):
                            self.assertTrue(any((root / p).exists() for p in places), f"there is no {path}")
        self.assertGreater(count, 100)

    def test_names_in_code_exist(self):
        """Files' stems count; names of other projects are listed here, or have their prefix."""
        others = re.compile("MPI_|NCCL_|nccl[A-Z]|nvshmem")
        known = set("""
            EAGER CUDA_MODULE_LOADING CUDA_DEVICE_MAX_CONNECTIONS CUDA_LAUNCH_BLOCKING cudaMallocAsync cudaLaunchHostFunc
            thrust_iterator cicc ptxas dryrun optimize DNDEBUG defaultMode secretKeyRef fvisibility CXX_VISIBILITY_PRESET nodelete QT_NO_KEYWORDS
            basic_communicator VERB property_
            """.split())  # in the third line: what a page says is not there, and words that stand for others
        for room in ("include", "cmake", "tests", "tools", "scripts", "examples", "bench"):
            for p in (root / room).rglob("*"):
                known.add(p.stem)
                if p.is_file() and p.suffix not in (".md", ".csv", ".svg", ".json", ".pyc"):
                    known |= set(re.findall(r"\w+", p.read_text(errors="replace")))
        for p in ("CMakeLists.txt", "CMakePresets.json"):
            known |= set(re.findall(r"\w+", (root / p).read_text()))
        count = 0
        for page in (p for p in pages if "log" not in p.parts):
            for number, line in plain_lines(page):
                for name in (n for code in re.findall(r"`([^`]+)`", line) for n in re.findall(r"(?<!\w)[A-Za-z]\w{2,}", code)):
                    count += 1
                    with self.subTest(f"{page.relative_to(root)}:{number}"):
                        self.assertTrue(name in known or others.match(name), f"nothing is called {name}")
        self.assertGreater(count, 3000)

    def test_the_readme_leads_to_every_page(self):
        text = (root / "README.md").read_text()
        for page in sorted((root / "docs").rglob("*.md")):
            with self.subTest(page.name):
                self.assertIn(f"({page.relative_to(root)}", text)

    def test_every_program_of_bench_is_named(self):
        text = (root / "bench/README.md").read_text()
        files = [p for p in sorted((root / "bench").rglob("*")) if p.is_file() and "log" not in p.parts and
                 "__pycache__" not in p.parts and "results" not in p.parts and p.name not in ("README.md", "CMakeLists.txt")]
        self.assertGreater(len(files), 10)
        for file in files:
            with self.subTest(file.name):
                self.assertIn(f"`{file.relative_to(root / 'bench')}`", text)

    def test_contributing_has_the_rooms_and_words_of_the_scripts(self):
        text = (root / "CONTRIBUTING.md").read_text()
        levels = re.search(r"LEVELS = \[\n(.*?)\n\]", (root / "scripts/check_layers").read_text(), flags=re.S)[1]
        rooms = [(room, level) for level, line in enumerate(levels.splitlines(), 1) for room in re.findall(r'"(\w+)"', line)]
        said = [(room, int(level)) for level, names in re.findall(r"^\| (\d+) \| (`.*?`) \|", text, flags=re.M)
                for room in re.findall(r"`(\w+)`", names)]
        self.assertEqual(said, rooms)
        keys = re.search(r"foreach\(key ([\w ]+)\)", (root / "cmake/collx_programs.cmake").read_text())[1].split()
        words = re.findall(r"^\| `(\w+)(?:=\S*)?` \|", text[text.index("| word | meaning |"):text.index("By night")], flags=re.M)
        self.assertEqual(sorted(words), sorted(keys))

    def test_the_tour_names_functions_where_they_stand(self):
        count = 0
        for line in (root / "docs/tour.md").read_text().splitlines():
            row = re.fullmatch(r"\| [\d, ]+ \| (.*) \| (.*) \|", line)
            if row is None:
                continue
            files = "".join((root / "include/collx" / f).read_text() for f in re.findall(r"`([\w/.]+)`", row[2]))
            for name in (n for code in re.findall(r"`([^`]+)`", row[1]) for n in re.findall(r"(?<!\w)[a-z]\w{2,}", code)):
                count += 1
                with self.subTest(line):
                    self.assertRegex(files, rf"\b{name}\b")
        self.assertGreater(count, 25)

    def test_variables_of_tests_and_examples_are_known(self):
        """Another name that begins with COLLX_ makes the library print a warning."""
        table = set(re.findall(r'\{"(COLLX_\w+)"', (root / "include/collx/bootstrap/variables.hpp").read_text()))
        read = set()
        for p in (p for room in ("tests", "examples", "scripts", "bench") for p in (root / room).rglob("*")):
            if p.suffix in (".cpp", ".hpp", ".cu", ".py", ""):
                if p.is_file():
                    read |= set(re.findall(r'(?:getenv\("|environ(?:\.get\(|\[)"|export )(COLLX_\w+)',
                                           p.read_text(errors="replace")))
        self.assertIn("COLLX_TEST_NIGHTLY", read)
        self.assertLessEqual(read, table)

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
        vague = re.compile(r"\b(nobody|everybody|somebody|anybody|whoever|had better|(is|are|was|were|be|been) told|knock(s|ed)?|lend(s|ing|er)?|lent|far_(links|peers?|members|window))\b", re.I)
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
