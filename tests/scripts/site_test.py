#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""scripts/site and scripts/check_reference: by day on small trees of their own, and the pages of this project laid out
without mkdocs (no dead link or anchor, no missing picture, every public name documented). By night the whole site is
built and opened (the ctest entry `site`), and here a page that is too wide for its window."""
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.dont_write_bytecode = True
sys.path.insert(0, str(ROOT / "scripts/support"))
import public_names  # noqa: E402
import reference  # noqa: E402
import site_check  # noqa: E402
import site_pages  # noqa: E402

HEADER = """// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// A tank of water.
#pragma once

COLLX_BEGIN_NAMESPACE

namespace detail {
struct hidden {};
} // namespace detail

// What fills it.
// Cost: one move. Errors: resource.
// Example: collx::pour(tank,
//     2 < 3);
COLLX_VERB(pour)

class tank {
public:
    explicit tank(int litres) : litres_(litres), lid_{0} {}
    // Litres that fit.
    template <class T>
    requires(sizeof(T) < 8) int room(const T& x) const {
        return litres_;
    }
    bool is_empty() const { return litres_ == 0; } // whether there is none

private:
    void leak() {}
    int litres_;
    int lid_;

public:
    int left = 1, right{2}; // litres on each side
};
template <>
class tank_of<int> {};

enum class level { low, high }; // of water
enum class state {
    open, // it runs
    shut,
};

// Greatest common litres.
template <int A, int B>
constexpr int common = A << B;
tank operator+(const tank& a, const tank& b);

// The ones that are caught.
struct spilled : error {
    using error::error;
};
struct dried : error {};

int unsaid(int x = common<1, 2>) try {
    return x;
} catch (...) {
    return 0;
}
using short_name = tank;
inline int tank::outside() { return 1; }

COLLX_END_NAMESPACE
"""
VERBS = """# The verbs
<!-- collx_facts begin -->
| verb | input | order of operands |
|---|---|---|
| `pour` | m | rank order |
<!-- collx_facts end -->
"""


class Tree:
    """A project of few files, {path: text}."""

    def __init__(self, files):
        self.folder = tempfile.TemporaryDirectory()
        self.root = pathlib.Path(self.folder.name).resolve()
        for path, text in files.items():
            target = self.root / path
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_text(text)

    def __enter__(self):
        return self.root

    def __exit__(self, *_):
        self.folder.cleanup()


def tree(files=None):
    return Tree({"include/collx/comm/tank.hpp": HEADER, "docs/verbs.md": VERBS,
                 "README.md": "# tanks\n\n[verbs](docs/verbs.md)\n", **(files or {})})


def check(root, *arguments):
    done = subprocess.run([sys.executable, str(ROOT / "scripts/check_reference"), "--root", str(root), *arguments],
                          capture_output=True, text=True)
    return done.returncode, done.stdout


class Names(unittest.TestCase):
    def setUp(self):
        with tree() as root:
            path = root / "include/collx/comm/tank.hpp"
            self.found = {d.name: d for d in public_names.Reader(path).read()}

    def test_what_is_public(self):
        self.assertEqual(list(self.found), ["pour", "tank", "level", "state", "common", "operator+", "spilled", "dried", "unsaid",
                                            "short_name"])
        self.assertEqual([m.name for m in self.found["tank"].members], ["tank::tank", "tank::room", "tank::is_empty", "tank::left",
                                                                           "tank::right"])
        self.assertEqual([m.name for m in self.found["state"].members], ["state::open", "state::shut"])

    def test_what_documents_a_name(self):
        doc = {name: d.doc for name, d in self.found.items()}
        self.assertEqual(doc["tank"], "A tank of water.")  # the header's paragraph, of the name that the header has
        self.assertEqual(doc["level"], "of water")
        self.assertEqual(doc["state"], "")
        self.assertEqual(doc["common"], "Greatest common litres.")
        self.assertEqual(doc["dried"], "The ones that are caught.")
        self.assertEqual(doc["unsaid"], "")
        self.assertEqual({m.name: m.doc for m in self.found["tank"].members}, {
            "tank::tank": "", "tank::room": "Litres that fit.", "tank::is_empty": "whether there is none",
            "tank::left": "litres on each side", "tank::right": "litres on each side"})

    def test_declarations_have_no_bodies(self):
        members = {m.name: m.text for m in self.found["tank"].members}
        self.assertEqual(members["tank::tank"], "explicit tank(int litres)")
        self.assertEqual(members["tank::room"], "template <class T>\nrequires(sizeof(T) < 8) int room(const T& x) const")
        self.assertEqual(self.found["unsaid"].text, "int unsaid(int x = common<1, 2>) try")
        self.assertEqual((self.found["unsaid"].line, self.found["unsaid"].kind), (55, "function"))

    def test_the_headers_of_this_project_are_read_whole(self):
        """Names that stand last in their headers, in forms that a wrong count of brackets would swallow."""
        def names(header):
            return {d.name for d in public_names.Reader(ROOT / "include/collx" / header).read()}
        self.assertLessEqual({"communicator"}, names("comm/communicator.hpp"))
        self.assertLessEqual({"group", "persistent::group"}, names("comm/group.hpp"))
        self.assertLessEqual({"send", "recv", "sendrecv"}, names("comm/send_recv.hpp"))
        self.assertLessEqual({"sched::all_ranks", "sched::operator|"}, names("sched/step.hpp"))
        self.assertLessEqual({"fail", "raise", "invalid_argument"}, names("core/error.hpp"))


class Reference(unittest.TestCase):
    def test_an_undocumented_name_is_refused_with_its_place(self):
        with tree() as root:
            code, text = check(root)
            self.assertEqual(code, 1, text)
            for line in ("include/collx/comm/tank.hpp:55: collx::unsaid has no docstring",
                         "include/collx/comm/tank.hpp:39: collx::state has no docstring",
                         "include/collx/comm/tank.hpp:60: collx::short_name has no docstring"):
                self.assertIn(line, text)
            self.assertNotIn("collx::tank has", text)
            self.assertNotIn("pour", text)
            self.assertIn("16 public names", text)

    def test_documented_names_pass(self):
        said = HEADER.replace("int unsaid(", "// Now it is.\nint unsaid(").replace("enum class state {", "// Of a door.\nenum class state {")
        said = said.replace("    shut,", "    shut, // it does not").replace("using short", "// Shorter.\nusing short").replace(
            "tank operator+", "// Both.\ntank operator+")
        with tree({"include/collx/comm/tank.hpp": said}) as root:
            code, text = check(root)
            self.assertEqual(code, 0, text)
            self.assertIn("16 public names, 0 without a docstring, 0 problem(s)", text)

    def test_a_verb_says_what_a_reader_asks(self):
        with tree({"include/collx/comm/tank.hpp": HEADER.replace("Errors: resource.", "")}) as root:
            self.assertIn("tank.hpp:15: the verb collx::pour does not say its Errors:", check(root)[1])
        with tree({"docs/verbs.md": VERBS.replace("`pour`", "`drain`")}) as root:
            text = check(root)[1]
            self.assertIn("tank.hpp:15: the verb collx::pour is no row of docs/verbs.md", text)
            self.assertIn("the row 'drain' is of no public name", text)

    def test_an_empty_house_is_an_error(self):
        with Tree({"README.md": ""}) as root:
            code, text = check(root)
            self.assertEqual(code, 1)
            self.assertIn("no public name found", text)

    def test_pages_show_what_headers_and_tables_say(self):
        with tree() as root:
            page = site_pages.Site(root).pages["reference/comm/tank.md"]
        for part in ("| input | m |", "| order of operands | rank order |", "| Cost | one move. |", "| Errors | resource. |",
                     "collx::pour(tank,\n2 < 3);", "`collx::persistent::pour`", "### `tank::room`", "## `unsaid`", "| `open` | it runs |",
                     '<div id="dried"></div>'):
            self.assertIn(part, page)
        self.assertNotIn("leak", page)
        self.assertNotIn("hidden", page)


class Links(unittest.TestCase):
    def problems(self, **files):
        with tree({k.replace("__", "/") + ".md": v for k, v in files.items()}) as root:
            site = site_pages.Site(root)
            site.gallery()
            return site.check()

    def test_dead_links_anchors_and_pictures_are_named(self):
        self.assertEqual(self.problems(docs__a="# A\n\n[b](b.md#the-end) `[no](link)`\n", docs__b="# B\n\n## The end\n"), [])
        self.assertEqual(self.problems(docs__a="# A\n\n[b](b.md)\n"), ["docs/a.md:3: there is no b.md"])
        self.assertEqual(self.problems(docs__a="# A\n\n![x](x.svg)\n"), ["docs/a.md:3: there is no x.svg"])
        self.assertEqual(self.problems(docs__a="# A\n\n[b](b.md#the-end)\n", docs__b="# B\n\n```\n# The end\n```\n"),
                         ["a.md:3: there is no heading for b.md#the-end"])
        self.assertEqual(self.problems(docs__a="# A\n\n[up](../../etc/passwd)\n"), ["docs/a.md:3: there is no ../../etc/passwd"])

    def test_sources_get_pages_and_lessons_a_place(self):
        with tree({"docs/lessons/README.md": "# Lessons\n\n[one](01_one.md)\n", "docs/lessons/01_one.md":
                         "# One\n\n![p](one.svg) [code](../../examples/one.cpp)\n", "docs/lessons/one.svg": "<svg/>",
                         "examples/one.cpp": "int x; // ```"}) as root:
            site = site_pages.Site(root)
            site.gallery()
            self.assertEqual(site.check(), [])
            self.assertIn("````cpp\nint x; // ```\n````", site.pages["source/examples/one.cpp.md"])
            self.assertIn("![p](one.svg) [code](../source/examples/one.cpp.md)", site.pages["lessons/01_one.md"])
            self.assertIn("From [One](lessons/01_one.md)", site.pages["gallery.md"])
            self.assertEqual(site.navigation()[1], {"Lessons": [{"Lessons": "lessons/index.md"}, {"One": "lessons/01_one.md"}]})

    def test_tables_are_those_that_the_tool_prints_now(self):
        with tree() as root:
            site = site_pages.Site(root)
            site.print_tables(lambda arguments: "\n| other |\n")
            self.assertEqual(site.problems, ["docs/verbs.md: this is not what collx_facts prints now; build the tools again, or "
                                             "put it there"])

    def test_what_github_accepts_is_given_empty_lines(self):
        self.assertEqual(site_pages.for_python_markdown("words:\n- a\n  more\n- b\n\n<!-- x -->\n| t |\n|---|\n```\nc\n- d\n```"),
                         "words:\n\n- a\n    more\n- b\n\n<!-- x -->\n\n| t |\n|---|\n\n```\nc\n- d\n```")
        self.assertEqual(site_pages.for_python_markdown("<details><summary>s</summary>\n\nx"),
                         '<details markdown="1"><summary>s</summary>\n\nx')
        self.assertEqual(site_pages.for_python_markdown("- a\n\n  b\n- c"), "- a\n\n    b\n\n- c")
        self.assertEqual(site_pages.for_python_markdown("1. a\n\n   b\n\n       code\n\nc\n\n    - code\n      more"),
                         "1. a\n\n    b\n\n        code\n\nc\n\n    - code\n      more")

    def test_the_pages_of_this_project(self):
        site = site_pages.Site(ROOT)
        site.gallery()
        self.assertEqual(site.check(), [])
        self.assertGreater(len(site.pages), 300)
        self.assertEqual(site.declared.problems(), [])
        self.assertGreater(site.declared.undocumented()[1], 1000)
        self.assertEqual([group for group, places in site.reading_on() if places],
                         ["Start", "Use", "Understand", "Why it is so", "Work on it"])
        for page in ("index.md", "reference/comm/all_reduce.md", "reference/names.md", "gallery.md"):
            self.assertIn(page, site.pages)


class Built(unittest.TestCase):
    """What the crawler and the browser say of HTML that is wrong."""

    def page(self, body, **others):
        return Tree({"index.html": f"<body><article>{body}</article>", **{k + ".html": v for k, v in others.items()}})

    def test_the_crawler_finds_what_is_dead(self):
        with self.page('<a href="b.html#end">b</a>', b='<body><h2 id="end">x</h2>') as root:
            self.assertEqual(site_check.crawl(root), ([], 2, 1, 0))
        with self.page('<a href="c.html">c</a>\n<img src="p.svg"><a href="b.html#no">b</a>', b="<body>", d="<body>") as root:
            self.assertEqual(site_check.crawl(root)[0], [
                "index.html:1: <a> leads nowhere: c.html", "index.html:2: <img> leads nowhere: p.svg",
                "index.html:2: no place of that name: b.html#no", "d.html: no link leads to this page"])
        with self.page('<script src="https://elsewhere/x.js"></script><a href="https://elsewhere/">e</a>') as root:
            self.assertEqual(site_check.crawl(root), (["index.html:1: <script> needs another host: https://elsewhere/x.js"], 1, 0, 2))

    @unittest.skipUnless(os.environ.get("COLLX_TEST_NIGHTLY") and site_check.browser(), "by night, where there is Chromium")
    def test_the_browser_finds_what_is_wide_or_needs_scripts(self):
        with self.page("fine", wide='<body><article>wide <div style="width:700px">box</div></article>',
                       script='<body><article><p id="p">a</p><script>document.getElementById("p").textContent = "b"</script>'
                              '</article>', scrolls='<body><article>x<div style="overflow:auto"><div style="width:2000px">y'
                              '</div></div></article>', broken='<body><article>p<img src="no.png"></article>') as root:
            problems, count = site_check.in_browser(root, sorted(p.name for p in root.iterdir()), seconds=120)
        self.assertEqual(count, 5)
        text = "\n".join(problems)
        self.assertIn("wide.html at 400 px: is 7", text)
        self.assertNotIn("wide.html at 1280", text)
        self.assertIn("script.html at 1280 px: says something else without scripts, at: b", text)
        self.assertIn("broken.html at 400 px: does not show", text)
        self.assertNotIn("index.html", text)
        self.assertNotIn("scrolls.html", text)

    def test_without_mkdocs_it_says_what_to_install(self):
        with tempfile.TemporaryDirectory() as empty:
            (pathlib.Path(empty) / "python3").symlink_to(shutil.which("python3"))
            done = subprocess.run([sys.executable, str(ROOT / "scripts/site")], capture_output=True, text=True,
                                  env={"PATH": empty, "BUILD_DIR": empty})
            self.assertEqual(done.returncode, 77, done.stderr)
            self.assertEqual(done.stdout.strip(),
                             "SKIPPED: no mkdocs was found; on Debian install mkdocs-material (scripts/install_deps site).")
            done = subprocess.run([sys.executable, str(ROOT / "scripts/site"), "--nonsense"], capture_output=True, text=True,
                                  env={"PATH": empty})
            self.assertEqual(done.returncode, 2)


if __name__ == "__main__":
    sys.exit(0 if unittest.main(exit=False, verbosity=1).result.wasSuccessful() else 1)
