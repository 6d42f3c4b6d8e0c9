# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Lays out the pages of the site as Markdown: what is in docs/, the reference, the sources that pages link to, a gallery
of all pictures, and the navigation, which follows the README's "Reading on" and the folders. Links lead to the pages'
places on the site; a link, anchor or picture that leads nowhere is a problem that the caller reports.
"""
import collections
import json
import pathlib
import re
import shutil

import reference

LINK = re.compile(r"(!?)\[((?:[^\[\]]|\[[^\]]*\])*)\]\(([^)\s]+)\)")
PICTURES = (".svg", ".png", ".jpg", ".gif", ".webp")
LANGUAGES = {".hpp": "cpp", ".cpp": "cpp", ".cu": "cpp", ".cuh": "cpp", ".py": "python", ".cmake": "cmake", ".sh": "bash"}
OTHER_PAGES = ("CONTRIBUTING.md", "CHANGELOG.md")  # besides README.md, docs/ and bench/


def anchor(heading, separator="-"):
    """For Python-Markdown's slugify: headings have the anchors that GitHub gives them."""
    del separator
    return reference.anchor(heading)


def outside_code(text):
    """(line number from 1, line, whether it is code) of a page."""
    fence, was_code = None, False
    for number, line in enumerate(text.split("\n"), 1):
        mark = re.match(r"\s*(```+|~~~+)", line)
        if fence is None and mark:
            fence = mark[1]
            yield number, line, True
        elif fence is not None:
            if line.strip() == fence:
                fence = None
            yield number, line, True
        else:
            if line.strip():  # what is indented is code, but for lists in lists
                was_code = line.startswith("    ") and (was_code or not re.match(r"\s+([-*]|\d+\.) ", line))
            yield number, line, was_code and bool(line.strip())


def headings(text):
    found = []
    for _, line, is_code in outside_code(text):
        match = None if is_code else re.match(r"(#+) +(.*?)\s*#*$", line)
        if match:
            found.append(re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", match[2]))
    return found


def anchors(text):
    found, seen = set(re.findall(r'\bid="([^"]+)"', text)), collections.Counter()
    for heading in headings(text):
        name = anchor(heading.replace("`", ""))
        found.add(name if not seen[name] else f"{name}_{seen[name]}")
        seen[name] += 1
    return found


def title_of(text, fallback):
    found = headings(text)
    return found[0].replace("`", "") if found else fallback


def for_python_markdown(text):
    """Lists, tables and code begin without an empty line on GitHub; here they need one. What belongs to an item of a list
    is indented by four here, by as much as the item's words there."""
    out, before, indent, has_paragraphs = [], "", 0, False
    for _, line, is_code in outside_code(text):
        item = re.match(r"([-*] |\d+\. )", line)
        if item and not is_code:
            if has_paragraphs and before.strip():
                out.append("")
            indent, has_paragraphs = len(item[1]), False
        elif line.strip() and not line.startswith(" "):
            indent = 0
        elif indent and line.startswith(" " * indent):
            line = " " * (4 - indent) + line
        has_paragraphs = bool(indent) and (has_paragraphs or not line.strip())
        begins = re.match(r"(?:([-*]|\d+\.) |\||```|<!--)", line)
        kind = "list" if begins and begins[1] else begins[0] if begins else ""
        was = re.match(r"(?:([-*]|\d+\.) |\||<!--)", before)
        was_kind = "list" if was and was[1] else was[0] if was else "in a list" if before.startswith("  ") else ""
        is_same = kind == was_kind or (kind == "list" and was_kind == "in a list")
        if before.strip() and kind and not is_same and not (is_code and kind != "```") and not (kind == "```" and before == "```"):
            out.append("")
        elif was_kind == "<!--" and line.strip():
            out.append("")
        out.append(line if is_code else re.sub(r"^<details>", '<details markdown="1">', line))  # answers to exercises
        before = "" if is_code else line
    return "\n".join(out)


def with_links(line, replace):
    """Links replaced; what looks like one inside of `code` stays."""
    kept = []

    def keep(match):
        kept.append(match[0])
        return f"\0{len(kept) - 1}\0" if "](" in match[0] else match[0]

    line = LINK.sub(replace, re.sub(r"`[^`]*`", keep, line))
    return re.sub("\0(\\d+)\0", lambda m: kept[int(m[1])], line)


class Site:
    """pages: place on the site -> Markdown; files: place -> file to copy. problems: sentences with places."""

    def __init__(self, root):
        self.root = pathlib.Path(root).resolve()
        self.pages, self.files, self.problems = {}, {}, []
        self.place = {}  # file of the project -> place on the site
        self.shown = collections.OrderedDict()  # picture of the project -> (place of the page, alternative text)
        self.drawn = collections.OrderedDict()  # chapter of the gallery -> (place, what it shows)
        for path in self.own_pages():
            self.place[path] = self.place_of(path)
        self.declared = declared = reference.Declarations(self.root)
        made = reference.Pages(declared, lambda page: self.place.get(self.root / page))
        for place, text in made.pages.items():
            self.pages[f"reference/{place}"] = text
        for path in declared.of_header:
            if declared.of_header[path] and f"reference/{made.page(path)}" in self.pages:
                self.place[path] = f"reference/{made.page(path)}"
        for path in self.own_pages():
            self.pages[self.place[path]] = self.moved(path, path.read_text(encoding="utf-8"))

    # ------------------------------------------------------------------ pages of the project
    def own_pages(self):
        first = [self.root / "README.md", *(self.root / p for p in OTHER_PAGES)]
        rest = [*sorted((self.root / "docs").rglob("*.md")), *sorted((self.root / "bench").rglob("*.md"))]
        return [p for p in first + rest if p.exists()]

    def place_of(self, path):
        relative = path.relative_to(self.root)
        parts = list(relative.parts)
        if parts[0] == "docs":
            parts.pop(0)
        name = {"README.md": "index.md"}.get(parts[-1], parts[-1].lower())
        return "/".join([*parts[:-1], name])

    def moved(self, path, text):
        """A page with links to where their ends are on the site."""
        lines = []
        for number, line, is_code in outside_code(text):
            if not is_code:
                line = with_links(line, lambda m: self.link(path, number, m))
            lines.append(line)
        return for_python_markdown("\n".join(lines))

    def link(self, path, number, match):
        is_picture, words, target = match.groups()
        if "](" in words:  # a picture that is a link
            words = LINK.sub(lambda m: self.link(path, number, m), words)
        if re.match(r"[a-z]+:", target) or target.startswith("#"):
            return f"{is_picture}[{words}]({target})"
        where, _, fragment = target.partition("#")
        file = (path.parent / where).resolve()
        place = self.found(file)
        if place is None:
            self.problems.append(f"{path.relative_to(self.root)}:{number}: there is no {target}")
            return words
        if is_picture:
            self.shown.setdefault(file, (self.place[path], words))
        relative = relative_place(self.place[path], place)
        return f"{is_picture}[{words}]({relative}{'#' + fragment if fragment else ''})"

    def found(self, file):
        """Where a file of the project is on the site; sources get a page when a link leads to them."""
        if file in self.place:
            return self.place[file]
        if not file.is_relative_to(self.root) or not file.exists():
            return None
        if file.is_dir():
            return self.folder(file)
        relative = str(file.relative_to(self.root))
        if file.suffix in PICTURES:
            place = relative.removeprefix("docs/")
            self.files[place] = file
        else:
            place = f"source/{relative}.md"
            text = file.read_text(encoding="utf-8", errors="replace").rstrip()
            fence = "`" * (max(map(len, re.findall(r"`+", text)), default=0) + 3)
            self.pages[place] = f"# {relative}\n\n{fence}{LANGUAGES.get(file.suffix, 'text')}\n{text}\n{fence}\n"
        self.place[file] = place
        return place

    def folder(self, folder):
        for index in ("README.md", "index.md"):
            if folder / index in self.place:
                return self.place[folder / index]
        place = f"source/{folder.relative_to(self.root)}/index.md"
        self.place[folder] = place
        rows = [f"- [{p.name}]({relative_place(place, self.found(p))})" for p in sorted(folder.iterdir()) if p.is_file()]
        self.pages[place] = f"# {folder.relative_to(self.root)}\n\n" + "\n".join(rows) + "\n"
        return place

    # ------------------------------------------------------------------ what programs print
    def print_tables(self, facts):
        """facts(arguments): what collx_facts prints. Its tables take the places between their marks."""
        for page, by, arguments in (("algorithms.md", "collx_facts", []), ("algorithms.md", "collx_facts --choices", ["--choices"]),
                                    ("verbs.md", "collx_facts", ["--verbs"])):
            if page not in self.pages:
                continue
            mark = re.compile(rf"(<!-- {by} begin -->\n)(.*?)(<!-- {by} end -->)", flags=re.S)
            printed, text = facts(arguments), self.pages[page]
            old = mark.search(text)
            if old is None:
                self.problems.append(f"docs/{page}: the marks of {by} are missing")
            elif old[2].strip() != printed.strip():
                self.problems.append(f"docs/{page}: this is not what {by} prints now; build the tools again, or put it there")
            else:
                self.pages[page] = mark.sub(lambda m: f"{m[1]}\n{printed}\n{m[3]}", text)
        rows = []
        for ranks in (2, 4, 5, 16):
            self.pages[f"costs/{ranks}.md"] = (f"# Costs on {ranks} ranks\n\nPrinted by `collx_facts {ranks}`; [what the "
                                               f"columns say](../algorithms.md#what-each-costs).\n\n{facts([str(ranks)])}")
            rows.append(f"- [on {ranks} ranks]({ranks}.md)")
        self.pages["costs/index.md"] = ("# Costs on other numbers of ranks\n\nCounted from the recorded steps of each algorithm, "
                                        "as [those on 8 ranks](../algorithms.md#what-each-costs).\n\n" + "\n".join(rows) + "\n")

    def draw(self, folder, chapter):
        """Pictures that a tool has put into a folder, in the gallery under a heading."""
        for file in sorted(pathlib.Path(folder).iterdir()):
            place = f"pictures/{chapter.lower().replace(' ', '_')}/{file.name}"
            self.files[place] = file
            self.drawn.setdefault(chapter, []).append((place, file.stem.replace(".", ": ").replace("_", " ")))

    def gallery(self):
        lines = ["# Gallery", ""]
        if self.shown:
            lines += ["## On pages", ""]
            for file, (page, words) in self.shown.items():
                lines += picture(self.place[file], words or file.stem)
                lines += [f"From [{title_of(self.pages[page], page)}]({page}).", ""]
        for chapter, pictures in self.drawn.items():
            lines += [f"## {chapter}", ""]
            for place, words in pictures:
                lines += [f"### {words}", "", *picture(place, words)]
        self.pages["gallery.md"] = "\n".join(lines) + "\n"

    # ------------------------------------------------------------------ navigation
    def navigation(self):
        nav, used = [{"collx": "index.md"}], {"index.md"}

        def entry(place):
            used.add(place)
            return {title_of(self.pages[place], place): place}

        lessons = [p for p in self.pages if p.startswith("lessons/")]
        if lessons:
            nav.append({"Lessons": [entry(p) for p in sorted(lessons, key=lambda p: (p != "lessons/index.md", p))]})
        for group, places in self.reading_on():
            places = [p for p in dict.fromkeys(places) if p not in used]
            if places:
                nav.append({group: [entry(p) for p in places]})
        for place, title in (("reference/index.md", "Reference"), ("costs/index.md", "Costs"), ("gallery.md", "Gallery")):
            if place in self.pages:
                inner = [p for p in self.pages if place.endswith("/index.md") and p.startswith(place[:-8]) and
                         (p.count("/") == 1 or p.endswith("/index.md"))]
                nav.append({title: [entry(p) for p in sorted(inner, key=lambda p: p != place)] if inner else place})
                used.add(place)
        rest = [p for p in sorted(self.pages) if p not in used and not p.startswith(("source/", "reference/"))]
        folders = collections.OrderedDict()
        for place in rest:
            folders.setdefault(place.rpartition("/")[0].replace("/", " ").capitalize() or "More", []).append(place)
        return nav + [{folder: [entry(p) for p in places]} for folder, places in folders.items()]

    def reading_on(self):
        """(group, places) of the README's last chapter: `- Use: [tensors](docs/tensors.md) · ...`."""
        text = self.pages["index.md"]
        chapter = re.search(r"^## Reading on\n(.*?)(?=^## |\Z)", text, flags=re.S | re.M)
        groups = []
        for line in chapter[1].split("\n") if chapter else []:
            head = re.match(r"- ([A-Z][\w ]+): (?=\[)", line)
            if head:
                groups.append((head[1], []))
            if groups:
                groups[-1][1].extend(t.partition("#")[0] for _, _, t in LINK.findall(line) if t.partition("#")[0] in self.pages)
        return groups

    # ------------------------------------------------------------------ checks and output
    def check(self):
        """Links between pages, with their anchors, and pictures."""
        known = {}
        for page, text in self.pages.items():
            for number, line, is_code in outside_code(text):
                for _, words, target in () if is_code else LINK.findall(re.sub(r"`[^`]*`", "", line)):
                    for t in [target, *(inner[2] for inner in LINK.findall(words))]:
                        problem = self.dead(page, t, known)
                        if problem:
                            self.problems.append(f"{page}:{number}: {problem}")
        return self.problems

    def dead(self, page, target, known):
        if re.match(r"[a-z]+:", target):
            return None
        where, _, fragment = target.partition("#")
        place = resolved(page, where) if where else page
        if place in self.files:
            return None
        if place not in self.pages:
            return f"the link {target} leads nowhere"
        if fragment:
            if place not in known:
                known[place] = anchors(self.pages[place])
            if fragment not in known[place]:
                return f"there is no heading for {target}"
        return None

    def write(self, folder):
        folder = pathlib.Path(folder)
        shutil.rmtree(folder, ignore_errors=True)
        for place, text in self.pages.items():
            target = folder / place
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_text(text, encoding="utf-8")
        for place, file in self.files.items():
            target = folder / place
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(file, target)
        (folder / "site.css").write_text(STYLE, encoding="utf-8")


STYLE = """\
/* Long words in headings and tables break rather than make a page wider than its window. */
.md-typeset h1, .md-typeset h2, .md-typeset h3, .md-typeset code { overflow-wrap: anywhere; }
.md-typeset img { height: auto; }
.md-typeset td code { word-break: normal; overflow-wrap: normal; }
.md-header__title { overflow: hidden; min-width: 0; }
/* Tables without a heading: README's lists of what is there. */
.md-typeset table:not([class]) th:empty { padding: 0; }
.md-grid { max-width: 76rem; }
"""


def picture(place, words):
    return [f"[![{words}]({place})]({place})", ""]


def relative_place(page, place):
    here, there = page.split("/")[:-1], place.split("/")
    while here and len(there) > 1 and here[0] == there[0]:
        here.pop(0)
        there.pop(0)
    return "/".join([".."] * len(here) + there)


def resolved(page, where):
    parts = page.split("/")[:-1]
    for part in where.split("/"):
        if part == "..":
            if not parts:
                return None
            parts.pop()
        elif part not in ("", "."):
            parts.append(part)
    return "/".join(parts)


def configuration(site, pages_folder, site_folder):
    """mkdocs.yml. All of it works without a network; JSON is YAML."""
    settings = {
        "site_name": "collx",
        "docs_dir": str(pages_folder),
        "site_dir": str(site_folder),
        "use_directory_urls": False,
        "theme": {"name": "material", "language": "en", "font": False, "features": ["navigation.top"]},
        "extra_css": ["site.css"],
        "extra": {"generator": False},
        "plugins": ["search"],
        "nav": site.navigation(),
    }
    lines = [f"{key}: {json.dumps(value, ensure_ascii=False)}" for key, value in settings.items()]
    return "\n".join(lines + ["markdown_extensions:", "  - tables", "  - sane_lists", "  - md_in_html", "  - pymdownx.superfences",
                              "  - pymdownx.highlight:", "      guess_lang: false", "  - toc:", "      permalink: false",
                              "      toc_depth: 3", "      slugify: !!python/name:site_pages.anchor"]) + "\n"
