# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The reference: which public names lack a docstring, and pages that show all of them, from the headers
(public_names.py). What a verb takes and gives and what its algorithms cost are the tables that collx_facts has printed
into docs/verbs.md and docs/algorithms.md and that a test compares with the code; no second copy of them is made here.
"""
import collections
import pathlib
import re

import public_names

SECTIONS = ("Shape", "Cost", "Requires", "Ensures", "Order", "Errors", "Source", "Example", "Mode", "Modes")
SECTION = re.compile(r"^(?:%s)\b(?:,? [^:.`(]{0,40})?:(?= |$)" % "|".join(SECTIONS))
INNER = re.compile(r"(?<=[.)]) (?=(?:%s): )" % "|".join(SECTIONS))
# Rooms whose classes programs hold: of these, members are checked, too.
CHECKED_MEMBERS = {"", "comm", "call", "gpu", "interop"}
NEEDED_OF_VERBS = ("Cost", "Errors", "Example")  # shape and order are columns of the table of verbs


class Declarations:
    """What the headers under root/include declare in public."""

    def __init__(self, root):
        self.root = pathlib.Path(root).resolve()
        self.include = self.root / "include"
        self.headers = {path: public_names.Reader(path) for path in public_names.headers(self.include)}
        self.of_header = {path: reader.read() for path, reader in self.headers.items()}
        self.by_name = collections.OrderedDict()
        for declarations in self.of_header.values():
            for d in declarations:
                self.by_name.setdefault(d.name, []).append(d)
        self.verbs = table_of(self.root / "docs/verbs.md")

    def room(self, path):
        parts = path.relative_to(self.include / "collx").parts
        return parts[0] if len(parts) > 1 else ""

    def is_mode(self, name):
        """async::all_reduce is all_reduce."""
        mode, _, rest = name.partition("::")
        return mode in public_names.MODES and rest in self.by_name

    def doc_of(self, name):
        """What the first header that documents a name says of it."""
        return next((d.doc for d in self.by_name[name] if d.doc), "")

    def members(self, d):
        """name -> declarations, of the public members, those of nested classes included."""
        found = collections.OrderedDict()
        says_values = any(m.doc for m in d.members)  # values that explain themselves need no comments, but all or none
        for m in d.members:
            if m.kind != "special" and (m.kind != "enumerator" or says_values):
                found.setdefault(m.name, []).append(m)
            for name, inner in self.members(m).items():
                found.setdefault(name, []).extend(inner)
        return found

    def undocumented(self):
        """(path, line, name) of public names without a docstring, and how many names there are. Overloads in several
        headers are documented in each."""
        missing, count = [], 0

        def look_at(name, declarations):
            nonlocal count
            count += 1
            first = {d.path: d for d in reversed(declarations)}
            documented = {d.path for d in declarations if d.doc}
            missing.extend((path, d.line, name) for path, d in first.items() if path not in documented)

        for name, declarations in self.by_name.items():
            if self.is_mode(name):
                continue
            look_at(name, declarations)
            if self.room(declarations[0].path) in CHECKED_MEMBERS:
                for d in declarations:
                    for member, all_of_it in self.members(d).items():
                        look_at(member, all_of_it)
        return sorted(missing), count

    def sections_of_verb(self, name):
        """The parts of a verb's docstring; what a v-variant does not say is as with its verb."""
        own = sections(self.doc_of(name))
        base = name.removesuffix("_v")
        if base != name and base in self.by_name:
            own = {**{k: v for k, v in sections(self.doc_of(base)).items() if k}, **own}
        return own

    def problems(self):
        """What is wrong, each with its place."""
        found = [(path, line, f"collx::{name} has no docstring") for path, line, name in self.undocumented()[0]]
        return [f"{path.relative_to(self.root)}:{line}: {what}" for path, line, what in found + self.incomplete_verbs()]

    def incomplete_verbs(self):
        """(path, line, what is missing) of each verb that lacks a part, and each row of the table without a verb."""
        found = []
        for name in self.verbs:
            if name not in self.by_name:
                found.append((self.root / "docs/verbs.md", 1, f"the row '{name}' is of no public name"))
                continue
            d = self.by_name[name][0]
            said = self.sections_of_verb(name)
            for part in NEEDED_OF_VERBS:
                if part not in said:
                    found.append((d.path, d.line, f"the verb collx::{name} does not say its {part}:"))
        for name, declarations in self.by_name.items():
            if declarations[0].kind == "verb" and name not in self.verbs:
                found.append((declarations[0].path, declarations[0].line, f"the verb collx::{name} is no row of docs/verbs.md"))
        return found


# ---------------------------------------------------------------------------------------------- what docs have printed
def printed_block(path, printed_by="collx_facts"):
    text = path.read_text(encoding="utf-8") if path.exists() else ""
    found = re.search(rf"<!-- {printed_by} begin -->\n(.*?)<!-- {printed_by} end -->", text, flags=re.S)
    return found[1] if found else ""


def table_of(path):
    """name -> {column: cell}, of the table that stands between the marks of collx_facts."""
    lines = [line for line in printed_block(path).splitlines() if line.startswith("|")]
    if not lines:
        return {}
    cells = [[c.strip() for c in line.strip("|").split("|")] for line in lines]
    return {row[0].strip("`"): dict(zip(cells[0], row)) for row in cells[2:]}


def cost_tables(path):
    """collective -> the lines of its table of algorithms."""
    found, current = {}, None
    for line in printed_block(path).splitlines():
        heading = re.fullmatch(r"### (\w+)", line)
        if line.startswith("#"):
            current = heading[1] if heading else None
        elif line.startswith("|") and current:
            found.setdefault(current, []).append(line)
    return found


# ---------------------------------------------------------------------------------------------- docstrings as Markdown
def sections(doc):
    """{"": text, "Cost": text, ...} of a docstring."""
    found, current = {"": []}, ""
    for line in doc.split("\n"):
        for part in INNER.split(line) if current != "Example" else [line]:
            match = SECTION.match(part)
            if match:
                heads = [h for h in SECTIONS if re.search(rf"\b{h}\b", match[0])] or [""]
                for other in heads[1:]:
                    found.setdefault(other, []).append(part[match.end():].strip())
                current = heads[0]
                found.setdefault(current, [])
                extra = re.sub(r"^\w+(, (?:%s))*,?" % "|".join(SECTIONS), "", match[0][:-1]).strip()
                found[current].append((f"({extra}) " if extra else "") + part[match.end():].strip())
            else:
                found[current].append(part if not current or current == "Example" else part.strip())
    return {k: "\n".join(v).strip("\n") for k, v in found.items() if k == "" or "\n".join(v).strip()}


def escaped(text, link=lambda page: None):
    """Plain words of a comment as Markdown; `code` stays, and the page of a named docs/x.md is linked."""
    parts = re.split(r"(`[^`]+`)", text)
    for i, part in enumerate(parts):
        if i % 2:
            continue
        part = part.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
        part = re.sub(r"([\\*_\[\]|#])", r"\\\1", part)
        parts[i] = re.sub(r"\bdocs/((?:[\w\\]+/)*[\w\\]+)\.md", lambda m: linked(m, link), part)
    return "".join(parts)


def linked(match, link):
    plain = match[0].replace("\\", "")
    target = link(plain)
    return f"[{match[1]}]({target})" if target else match[0]


def markdown(doc, link=lambda page: None):
    """A docstring's words: paragraphs, and what is indented as code."""
    out, code = [], []

    def end_of_code():
        if code:
            indent = min(len(l) - len(l.lstrip()) for l in code if l.strip())
            out.extend(["", "```cpp", *[l[indent:] for l in code], "```", ""])
            code.clear()

    is_continued = False  # a list's item, whose lines are indented
    for line in doc.split("\n"):
        if line.startswith("  ") and line.strip() and not is_continued:
            code.append(line)
            continue
        end_of_code()
        if re.match(r"\s*(-|\d+\.) ", line):
            if out and out[-1] and not is_continued:
                out.append("")
            is_continued = True
            out.append(re.match(r"\s*(-|\d+\.) ", line)[0].lstrip() + escaped(line[re.match(r"\s*(-|\d+\.) ", line).end():], link))
        else:
            is_continued = is_continued and line.startswith("  ")
            out.append(escaped(line.strip() if not is_continued else "  " + line.strip(), link))
    end_of_code()
    return "\n".join(out).strip("\n")


def code_block(text):
    return f"```cpp\n{text}\n```"


def example_text(text):
    lines = text.split("\n")
    rest = [l for l in lines[1:] if l.strip()]
    indent = min((len(l) - len(l.lstrip()) for l in rest), default=0)
    return "\n".join([lines[0].strip()] + [l[indent:] for l in lines[1:]])


def brief_of(doc):
    """The first sentence."""
    text = " ".join(sections(doc).get("", "").split("\n\n")[0].split())
    return re.split(r"(?<=[.:]) (?=[A-Z`])", text)[0] if text else ""


def anchor(heading):
    """As GitHub makes it of a heading."""
    return re.sub(r"[^\w\- ]", "", heading.strip().lower()).replace(" ", "-")


# ---------------------------------------------------------------------------------------------- pages
class Pages:
    """path below reference/ -> Markdown. link(page of the project) -> its place on the site, or None."""

    def __init__(self, declared, link):
        self.declared, self.link = declared, link
        self.costs = cost_tables(declared.root / "docs/algorithms.md")
        self.place = {}  # name -> page#anchor
        self.pages = {}
        self.groups = {path: self.grouped(ds) for path, ds in declared.of_header.items()}
        for path, groups in self.groups.items():
            for group in groups:
                for name in group:
                    self.place.setdefault(name, f"{self.page(path)}#{anchor(name)}")
        for path in self.groups:
            if self.groups[path]:
                self.pages[self.page(path)] = self.header_page(path)
        rooms = collections.OrderedDict()
        for path in self.groups:
            if self.groups[path]:
                rooms.setdefault(declared.room(path), []).append(path)
        for room, paths in rooms.items():
            self.pages[f"{room}/index.md" if room else "top.md"] = self.room_page(room, paths)
        self.pages["index.md"] = self.index_page(rooms)
        self.pages["names.md"] = self.names_page()

    def page(self, path):
        return str(path.relative_to(self.declared.include / "collx").with_suffix("")) + \
            ("_cuh" if path.suffix == ".cuh" else "") + ".md"

    def up(self, page):
        return "../" * page.count("/")

    def from_page(self, page):
        """Links of docs/x.md, as seen from a page of the reference."""
        def link(plain):
            target = self.link(plain)
            return None if target is None else self.up(page) + "../" + target
        return link

    def grouped(self, declarations):
        """Lists {name: declarations} of what one comment documents, overloads together. Modes are told with their verb."""
        groups = collections.OrderedDict()
        group_of_name = {}
        for d in declarations:
            if self.declared.is_mode(d.name) or not re.search(r"\w$", d.name):
                continue
            key = group_of_name.setdefault(d.name, d.group)
            groups.setdefault(key, collections.OrderedDict()).setdefault(d.name, []).append(d)
        return list(groups.values())

    # ------------------------------------------------------------------ one header
    def header_page(self, path):
        page, declared = self.page(path), self.declared
        link = self.from_page(page)
        relative = path.relative_to(declared.include)
        room = declared.room(path)
        lines = [f"# {relative}", ""]
        crumb = f"[Reference]({self.up(page)}index.md) › " + (f"[{room}](index.md)" if page.count("/") == 1 and room else
                                                              f"[{room}](../index.md)" if room else "[top](top.md)")
        introduction = declared.headers[path].introduction()
        lines += [crumb, "", markdown(introduction, link), ""]
        if f"#include <{relative}>" not in introduction:
            lines += [code_block(f"#include <{relative}>"), ""]
        for group in self.groups[path]:
            lines += self.entry(group, link)
        return "\n".join(lines).replace("\n\n\n", "\n\n") + "\n"

    def entry(self, group, link):
        names = list(group)
        lines = ["", f"## `{names[0]}`", ""]
        lines += [f'<div id="{anchor(n)}"></div>' for n in names[1:] if anchor(n) != anchor(names[0])] + [""]
        first = group[names[0]][0]
        if names[0] in self.declared.verbs:
            for name in names:
                lines += self.verb(name, link, len(names) > 1)
            return lines
        lines += [code_block("\n".join(dict.fromkeys(shown(d) for n in names for d in group[n]))), ""]
        docs = list(dict.fromkeys(d.doc for n in names for d in group[n] if d.doc))
        for doc in docs:
            lines += self.docstring(doc, link)
        for name in names:
            for d in group[name]:
                lines += self.members(d, link)
        return lines

    def docstring(self, doc, link):
        said = sections(doc)
        lines = [markdown(said.pop("", ""), link), ""]
        example = said.pop("Example", "")
        for section, text in said.items():
            lines += [f"**{section}**: {escaped(' '.join(text.split()), link)}", ""]
        if example:
            lines += ["**Example**:", "", code_block(example_text(example)), ""]
        return lines

    def members(self, d, link):
        if not d.members:
            return []
        if d.kind == "enum":
            rows = [f"| `{m.name.split('::')[-1]}` | {escaped(' '.join(m.doc.split()), link)} |" for m in d.members]
            return ["", "| value | meaning |", "|---|---|", *rows, ""]
        groups = collections.OrderedDict()
        for m in d.members:
            groups.setdefault(m.group, []).append(m)
        lines, bare = [], []
        for group in groups.values():
            doc = next((m.doc for m in group if m.doc), "")
            if not doc and all(not m.members for m in group):
                bare += list(dict.fromkeys(shown(m) for m in group))
                continue
            names = dict.fromkeys(d.name if m.kind == "special" else m.name for m in group)
            if list(names) != [d.name]:
                lines += ["", f"### `{', '.join(names)}`"]
            lines += ["", code_block("\n".join(dict.fromkeys(shown(m) for m in group))), ""]
            lines += self.docstring(doc, link)
            for m in group:
                lines += self.members(m, link)
        if bare:
            lines += ["", "Also public:" if lines else "Public:", "", code_block("\n".join(bare)), ""]
        return lines

    def verb(self, name, link, is_one_of_several):
        row, said = self.declared.verbs[name], self.declared.sections_of_verb(name)
        own = sections(self.declared.doc_of(name))
        modes = [f"`collx::{m}::{name}`" for m in public_names.MODES
                 if self.declared.by_name[name][0].kind == "verb" or f"{m}::{name}" in self.declared.by_name]
        lines = [f"**`collx::{name}`**", ""] if is_one_of_several else []
        lines += [markdown(own.get("", ""), link), "", "| | |", "|---|---|"]
        lines.append(f"| modes | `collx::{name}` (blocking), {', '.join(modes)} |")
        for column, cell in row.items():
            if column != "verb":
                lines.append(f"| {column} | {cell} |")
        for part in ("Shape", "Cost", "Order", "Requires", "Ensures", "Errors"):
            if part in said:
                lines.append(f"| {part} | {escaped(' '.join(said[part].split()), link)} |")
        lines.append("")
        if "Example" in said:
            lines += [code_block(example_text(said["Example"])), ""]
        costs = self.costs.get(name.removesuffix("_v"))
        if costs:
            page = link("docs/algorithms.md")
            see = f" ([what the columns say]({page}#what-each-costs), [which one runs by default]({page}#which-one-runs-by-default))" \
                if page else ""
            gallery = page and page.rpartition("/")[0] + "/gallery.md"
            drawn = f" The [gallery]({gallery}) draws them." if gallery else ""
            lines += [f"Its algorithms on 8 ranks, as `collx_facts` counts them{see}.{drawn}", "", *costs, ""]
        return lines

    # ------------------------------------------------------------------ overviews
    def rows(self, paths, page):
        prefix = self.up(page)
        lines = ["| header | names |", "|---|---|"]
        for path in paths:
            names = [n for group in self.groups[path] for n in group]
            relative = path.relative_to(self.declared.include / "collx")
            words = " ".join(f"[`{n}`]({prefix}{self.place[n]})" for n in names)
            lines.append(f"| [{relative}]({prefix}{self.page(path)}) | {words} |")
        return lines

    def room_page(self, room, paths):
        page = f"{room}/index.md" if room else "top.md"
        holds = self.rooms_of_contributing().get(room, "")
        lines = [f"# Room {room}" if room else "# Headers outside of rooms", "",
                 f"[Reference]({self.up(page)}index.md)" + (f" › holds {holds}" if holds else ""), ""]
        return "\n".join(lines + self.rows(paths, page)) + "\n"

    def rooms_of_contributing(self):
        path = self.declared.root / "CONTRIBUTING.md"
        text = path.read_text(encoding="utf-8") if path.exists() else ""
        return {room: holds for names, holds in re.findall(r"^\| \d+ \| (`.*?`) \| (.*) \|$", text, flags=re.M)
                for room in re.findall(r"`(\w+)`", names)}

    def index_page(self, rooms):
        lines = ["# Reference", "", f"The {self.declared.undocumented()[1]} public names of the headers, read from them. "
                 "[All in the order of the alphabet](names.md).", "", "## Verbs", "", "| verb | what it does |", "|---|---|"]
        for name in self.declared.verbs:
            brief = escaped(brief_of(self.declared.doc_of(name)), self.from_page("index.md"))
            lines.append(f"| [`{name}`]({self.place[name]}) | {brief} |")
        lines += ["", "## Rooms", "", "A program includes `<collx/collx.hpp>`, `<collx/net.hpp>` for several hosts, and what "
                  "these do not bring. Rooms are listed from the highest level to the lowest; the lower ones are for programs that build on parts.", "",
                  "| room | holds | headers |", "|---|---|---:|"]
        holds = self.rooms_of_contributing()
        # As CONTRIBUTING.md lists them, from the highest level to the lowest; below them those that it does not name.
        order = {room: i for i, room in enumerate(reversed(holds))}
        for room in sorted(rooms, key=lambda r: order.get(r, len(order))):
            if room:
                lines.append(f"| [{room}]({room}/index.md) | {holds.get(room, '')} | {len(rooms[room])} |")
        if "" in rooms:
            lines.append(f"| [outside of rooms](top.md) | | {len(rooms[''])} |")
        return "\n".join(lines) + "\n"

    def names_page(self):
        lines = ["# All names", "", "[Reference](index.md)", "", "| name | what it is |", "|---|---|"]
        for name in sorted(self.place, key=lambda n: (n.split("::")[-1].lower(), n)):
            brief = escaped(brief_of(self.declared.doc_of(name)), self.from_page("names.md"))
            lines.append(f"| [`{name}`]({self.place[name]}) | {brief} |")
        return "\n".join(lines) + "\n"


def shown(d):
    """A declaration as a page shows it."""
    text = re.sub(r"\b(COLLX_HD|COLLX_ONCE|COLLX_ALWAYS_INLINE|COLLX_NOINLINE|COLLX_EXEC_CHECK_DISABLE) ?\n?", "", d.text)
    text = re.sub(r"\[\[gnu::\w+(, gnu::\w+)*\]\] ?", "", text).strip()
    return text + ("" if text.endswith((";", "}")) else ";")
