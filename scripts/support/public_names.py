# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Reads from headers what they declare in public, each with the comment that documents it. No compiler: the headers are
formatted by clang-format and use few forms, so tokens, brackets and namespaces are enough, and all of them take a second.

What documents a declaration: the comment lines directly above it; one behind it on its line; for the name of a header's
file (communicator.hpp: communicator) the paragraph at the file's beginning. Declarations that follow one another without
an empty line or a comment are one entry, with one comment. Overloads are one name.
"""
import bisect
import collections
import dataclasses
import pathlib
import re

TOKEN = re.compile(r"""
    (?P<comment>//[^\n]*)
  | (?P<block>/\*.*?\*/)
  | (?P<macro>^[ \t]*\#(?:[^\n]*\\\n)*[^\n]*)
  | (?P<text>R"(?P<mark>[^(\s]*)\(.*?\)(?P=mark)"|"(?:[^"\\\n]|\\.)*"|'(?:[^'\\\n]|\\.)+')
  | (?P<word>[A-Za-z_]\w*)
  | (?P<number>\d(?:[\w.']|[eE][+-])*)
  | (?P<sign>::|<<|->|\[\[|\]\]|<=>|&&|\|\||\.\.\.|[^\s\w])
""", re.X | re.S | re.M)

HIDDEN = {"detail", "internal", "hardware", "adl", "ptx"}  # namespaces that are no reader's business
MODES = ("async", "try_", "persistent")  # the namespaces in which COLLX_VERB defines a name besides collx
KINDS = ("class", "struct", "union", "enum")


@dataclasses.dataclass
class Token:
    kind: str
    text: str
    start: int
    end: int


@dataclasses.dataclass
class Declaration:
    name: str  # qualified, without collx::
    kind: str  # verb, class, enum, function, concept, alias, variable
    path: pathlib.Path
    line: int
    text: str  # as it is written, without its body
    doc: str = ""
    members: list = dataclasses.field(default_factory=list)  # of a class, in groups that share a comment
    group: int = 0  # declarations of one number share a comment


Last = collections.namedtuple("Last", "scope line kind name group doc")


def tokens_of(text):
    found = []
    for m in TOKEN.finditer(text):
        kind = m.lastgroup if m.lastgroup != "mark" else "text"
        if kind not in ("block",):
            found.append(Token(kind, m.group(), m.start(), m.end()))
    return found


def comment_text(lines):
    """The words of // lines, without the slashes and the blank after them."""
    return "\n".join(re.sub(r"^\s*// ?", "", line).rstrip() for line in lines)


class Reader:
    def __init__(self, path, text=None):
        self.path = path
        self.text = path.read_text(encoding="utf-8") if text is None else text
        self.lines = self.text.split("\n")
        self.starts = [0]
        for line in self.lines:
            self.starts.append(self.starts[-1] + len(line) + 1)
        every = tokens_of(self.text)
        self.comment_lines = {}  # line -> whether the comment is alone on it
        for t in every:
            if t.kind == "comment":
                number = self.line_of(t.start)
                self.comment_lines[number] = self.text[self.starts[number]:t.start].strip() == ""
        self.tokens = [t for t in every if t.kind not in ("comment", "macro")]
        self.at = 0
        self.found = []
        self.groups = 0
        self.last = None  # the declaration before

    def line_of(self, offset):
        return bisect.bisect_right(self.starts, offset) - 1

    # ------------------------------------------------------------------ comments
    def introduction(self):
        """The paragraph at the beginning of the file, without the SPDX line."""
        first = 1 if self.lines and "SPDX" in self.lines[0] else 0
        last = first
        while last < len(self.lines) and self.lines[last].startswith("//"):
            last += 1
        return comment_text(self.lines[first:last]).strip("\n")

    def above(self, line):
        """The comment lines that end directly above a line."""
        first = line
        while self.comment_lines.get(first - 1):
            first -= 1
        above = [l for l in self.lines[first:line] if not re.match(r"\s*// (clang-format|collx-\w+:|NOLINT|-{10})", l)]
        return "" if above and "SPDX" in above[0] else comment_text(above)

    def behind(self, line):
        """The comment behind the code of a line, with the lines that continue it."""
        if self.comment_lines.get(line) is not False:
            return ""
        column = self.comment_column(line)
        texts = [self.lines[line][column:]]
        while self.comment_lines.get(line + 1) and self.comment_column(line + 1) == column:
            line += 1
            texts.append(self.lines[line])
        return comment_text(texts)

    def comment_column(self, line):
        return self.lines[line].rindex("//") if self.comment_lines.get(line) else self.lines[line].index("//")

    # ------------------------------------------------------------------ tokens
    def peek(self, ahead=0):
        i = self.at + ahead
        return self.tokens[i].text if i < len(self.tokens) else ""

    def skip_balanced(self, opening, closing):
        """Past the closing bracket of the opening one that is next."""
        depth = 0
        while self.at < len(self.tokens):
            text = self.peek()
            self.at += 1
            if text == opening:
                depth += 1
            elif text == closing:
                depth -= 1
                if depth == 0:
                    return
        raise ValueError(f"{self.path}: '{opening}' without '{closing}'")

    def skip_angles(self):
        depth = 0
        while self.at < len(self.tokens):
            text = self.peek()
            if text == "(":
                self.skip_balanced("(", ")")
                continue
            self.at += 1
            if text == "<":
                depth += 1
            elif text == ">":
                depth -= 1
                if depth == 0:
                    return

    # ------------------------------------------------------------------ scopes
    def read(self):
        while self.at < len(self.tokens):
            text = self.peek()
            if text == "COLLX_BEGIN_NAMESPACE":
                self.at += 1
                self.scope([])
            elif text == "namespace" and self.peek(1) == "collx":
                while self.peek() != "{":
                    self.at += 1
                self.at += 1
                self.scope([])
            else:
                self.at += 1  # what stands outside is no part of collx
        stem = self.path.stem
        top = [d for d in self.found if d.name.split("::")[-1] == stem]
        for d in top:
            if not d.doc and not any(other.doc for other in top):
                d.doc = self.introduction()
        return self.found

    def scope(self, names):
        while self.at < len(self.tokens):
            text = self.peek()
            if text in ("}", "COLLX_END_NAMESPACE"):
                self.at += 1
                return
            if text == "inline" and self.peek(1) == "namespace":
                self.at += 1
                continue
            if text == "namespace":
                self.namespace(names)
            elif text == "extern" and self.tokens[self.at + 1].kind == "text" and self.peek(2) == "{":
                self.at += 3
                self.scope(names)
            else:
                self.declaration(names, None, self.found)

    def namespace(self, names):
        self.at += 1
        inner = []
        while self.peek() not in ("{", ";"):
            if self.tokens[self.at].kind == "word":
                inner.append(self.peek())
            self.at += 1
            if self.peek() == "=":  # another name of a namespace
                while self.peek() != ";":
                    self.at += 1
        if self.peek() == ";":
            self.at += 1
        elif not inner or set(inner) & HIDDEN:
            self.skip_balanced("{", "}")
        else:
            self.at += 1
            self.scope(names + inner)

    def class_body(self, names, is_public, members):
        """Past the closing brace. Only public declarations are kept."""
        while self.at < len(self.tokens):
            text = self.peek()
            if text == "}":
                self.at += 1
                return
            if text in ("public", "protected", "private") and self.peek(1) == ":":
                is_public = text == "public"
                self.at += 2
            else:
                self.declaration(names, names[-1], members if is_public else [])

    def enumerators(self, names, members, first_line):
        """Past the closing brace of an enumeration."""
        while self.peek() != "}":
            if self.peek() == "[[":
                self.skip_balanced("[[", "]]")
                continue
            begin = self.tokens[self.at]
            self.at += 1
            end = begin
            while self.peek() not in (",", "}"):
                end = self.tokens[self.at]
                if self.peek() in "({":
                    self.skip_balanced(self.peek(), ")" if self.peek() == "(" else "}")
                else:
                    self.at += 1
            if self.peek() == ",":
                self.at += 1
            line = self.line_of(begin.start)
            behind = "" if line == first_line else self.behind(line)  # there it is of the enumeration
            if behind and self.peek() != "}" and self.line_of(self.tokens[self.at].start) == line:
                behind = ""  # several on a line: the comment behind is of the last
            self.groups += 1
            members.append(Declaration("::".join(names + [begin.text]), "enumerator", self.path, line + 1,
                                       self.text[begin.start:end.end],
                                       behind or ("" if line == first_line else self.above(line)), [], self.groups))
        self.at += 1

    # ------------------------------------------------------------------ declarations
    def declaration(self, names, inside, into):
        """One declaration at the scope `names`, with its body. inside: the class that it is a member of."""
        first, last = self.at, self.last
        begin = self.tokens[first]
        if begin.text == ";":
            self.at += 1
            return
        if re.match(r"COLLX_[A-Z_]+$", begin.text) and self.peek(1) == "(" and begin.text != "COLLX_MULTIMEM":
            self.macro_call(names, into)
            return
        head = Head()
        while self.at < len(self.tokens):
            token = self.tokens[self.at]
            text = token.text
            if text == "template" and self.peek(1) == "<":
                self.at += 1
                self.skip_angles()
                continue
            if text == "[[":
                self.skip_balanced("[[", "]]")
                continue
            if text == "[":
                self.skip_balanced("[", "]")
                continue
            if text == "operator" and not head.parameters and not head.is_initialised:
                self.operator(head)
                continue
            if text == "(":
                before = self.peek(-1)
                self.skip_balanced("(", ")")
                if not head.is_initialised and not head.kind:
                    head.brackets(before)
                continue
            if text == "<" and not head.is_initialised and self.tokens[self.at - 1].kind == "word":
                head.is_special = bool(head.kind and head.name and not head.in_bases) or head.is_special
                self.skip_angles()
                continue
            if text == "{":
                if head.takes_body(self.peek(-1)):
                    break
                self.skip_balanced("{", "}")
                continue
            if text == ";":
                break
            if text == "}":
                raise ValueError(f"{self.path}:{self.line_of(token.start) + 1}: a declaration without an end")
            head.word(text, token.kind, self.peek(-1) if self.at > first else "")
            if head.in_list and head.cut is None:
                head.cut = self.at
            self.at += 1
        end = self.tokens[self.at - 1]
        is_body = self.peek() == "{"
        made = self.made(names, inside, head, begin, end)
        if not is_body:
            self.at += 1
        elif head.kind in ("class", "struct", "union"):
            self.at += 1
            members = made.members if made else []
            self.class_body(names + [head.name or "?"], head.kind != "class", members)
            self.to_semicolon()
        elif head.kind == "enum":
            self.at += 1
            self.enumerators(names + [head.name or "?"], made.members if made else [], self.line_of(begin.start))
            self.to_semicolon()
        else:
            self.skip_balanced("{", "}")
            self.handlers()
        self.last = last  # not its members
        if made is None:
            return
        if head.kind and not is_body:
            return  # a declaration of a class that is defined elsewhere
        is_behind = False
        if not made.doc:
            made.doc = self.behind(self.line_of(self.tokens[self.at - 1].start))
            is_behind = bool(made.doc)
        self.append(into, made, tuple(names), inside, is_behind)
        for name in head.more:
            into.append(dataclasses.replace(made, name="::".join(names + [name])))

    def to_semicolon(self):
        while self.peek() != ";":
            self.at += 1
        self.at += 1

    def operator(self, head):
        """`operator` and its sign; a conversion keeps its type."""
        self.at += 1
        sign = ""
        while self.peek() != "(" or not sign:
            if self.peek() == "(":
                sign, self.at = "()", self.at + 2
                continue
            sign += (" " if self.tokens[self.at].kind == "word" else "") + self.peek()
            self.at += 1
        head.name, head.is_named, head.is_operator = "operator" + sign, True, True

    def handlers(self):
        """The catch blocks of a function that is one try block."""
        while self.peek() == "catch":
            self.at += 1
            self.skip_balanced("(", ")")
            self.skip_balanced("{", "}")

    def macro_call(self, names, into):
        begin = self.tokens[self.at]
        argument = self.tokens[self.at + 2].text
        self.at += 1
        self.skip_balanced("(", ")")
        line = self.line_of(begin.start)
        if begin.text in ("COLLX_VERB", "COLLX_VERB_BY"):
            self.groups += 1
            into.append(Declaration("::".join(names + [argument]), "verb", self.path, line + 1, argument,
                                    self.above(line), [], self.groups))

    def made(self, names, inside, head, begin, end):
        """The declaration that a head makes, or None where it makes no name of its own."""
        name = head.name
        if head.is_nothing or head.is_special or head.is_guide or not name or name == "?":
            return None
        is_same = inside is not None and name == inside
        if inside is not None and (is_same or name.startswith("~") or name.startswith("operator")):
            kind = "special"  # constructors, operators: documented by their class unless they say more
        else:
            kind = head.kind_of_declaration()
        line = self.line_of(begin.start)
        text = self.text[begin.start:end.end if head.cut is None else self.tokens[head.cut - 1].end]
        return Declaration("::".join(names + [name]), {"class": "class", "struct": "class", "union": "class"}.get(kind, kind),
                           self.path, line + 1, tidy(text, self.starts, begin.start, self.line_of), self.above(line))

    def append(self, into, made, scope, inside, is_behind):
        """Keeps a declaration, with the comment of the one before where the two are one entry."""
        line = made.line - 1
        last = self.last
        if not made.doc and last and last.scope == scope and last.line + 1 == line and last.kind == made.kind and \
                (not inside or last.name == made.name):
            made.group, made.doc = last.group, last.doc
        else:
            self.groups += 1
            made.group = self.groups
        self.last = Last(scope, self.line_of(self.tokens[self.at - 1].end - 1), made.kind, made.name, made.group,
                         "" if is_behind else made.doc)
        into.append(made)


class Head:
    """What the tokens of a declaration have said so far."""

    def __init__(self):
        self.name = ""
        self.kind = ""  # class, struct, union, enum
        self.form = ""  # using, concept, ...
        self.parameters = False  # has the brackets of a function
        self.is_initialised = False
        self.is_named = False
        self.is_nothing = False
        self.in_requires = False
        self.in_list = False  # of a constructor's initialisers
        self.in_bases = False
        self.is_special = False  # a template for some arguments
        self.is_qualified = False
        self.is_operator = False
        self.words = 0
        self.more = []  # int a, b; declares b, too
        self.after_comma = False
        self.is_guide = False  # how a class's arguments are deduced
        self.cut = None  # the token before which what a reader needs ends

    def word(self, text, kind, before):
        if text == "," and self.name and not (self.kind or self.form or self.parameters):
            self.after_comma = self.is_initialised = True
        elif self.after_comma and kind == "word":
            self.more.append(text)
            self.after_comma = False
        if self.in_bases or self.in_list or self.is_initialised:
            return
        if text == "friend" or text == "static_assert" or (text == "using" and not self.form and self.name):
            self.is_nothing = True
        if text in ("using", "typedef", "concept", "namespace") and not self.name:
            self.form = text
        elif text in KINDS and not self.parameters and not self.is_named and not self.form and not self.in_requires:
            self.kind, self.name = (self.kind or text), ""
        elif text == "requires":
            self.in_requires = True
        elif text == "=":
            self.is_initialised = not self.parameters
            if self.form == "concept" or self.form == "using":
                self.is_initialised = True
        elif text == ":" and self.kind:
            self.in_bases = True
        elif text == ":" and self.parameters:
            self.in_list = True
        elif text == ":":
            self.is_initialised = True  # a field of bits
        elif text == "~" and not self.is_named:
            self.is_special = before == "::"
            self.name = "~"
        elif kind == "word" and not self.parameters and not self.is_named:
            if self.kind and self.name and text in ("final", "alignas"):
                return
            if self.kind and re.match(r"COLLX_", text):
                return
            if self.form == "using" and before == "::":
                self.is_nothing = True
            self.is_qualified = before == "::" and bool(self.name)  # a member that is defined outside of its class
            self.words += 1
            self.name = ("~" if self.name == "~" else "") + text
        elif text == "->" and self.parameters:
            self.is_guide = self.words == 1 and not self.is_operator

    def brackets(self, before):
        if self.in_list or self.in_bases:
            return
        if before in ("requires", "alignas", "decltype", "explicit", "noexcept", "&&", "||", "!", "static_assert",
                      "__attribute__"):
            if before == "decltype":
                self.name = ""
            return
        if self.name and not self.form:
            self.parameters = True
            self.is_named = True
            self.is_special = self.is_special or self.is_qualified

    def takes_body(self, before):
        if self.form == "concept" or self.is_initialised or before == "requires":
            return False
        if self.kind:
            return not self.parameters
        if self.in_list:  # a{1}, b{2} { body }
            return before in (")", "}")
        return self.parameters

    def kind_of_declaration(self):
        if self.kind:
            return "enum" if self.kind == "enum" else "class"
        if self.form == "concept":
            return "concept"
        if self.form in ("using", "typedef"):
            return "alias"
        return "function" if self.parameters else "variable"


def tidy(text, starts, begin, line_of):
    """A declaration as written, its continuation lines moved left with it."""
    column = begin - starts[line_of(begin)]
    lines = text.split("\n")
    lines = [re.sub(r"\s*//.*$", "", line) for line in lines]
    return "\n".join(l[column:] if i and l[:column].strip() == "" else l for i, l in enumerate(lines) if l.strip())


def headers(include_root):
    """Those that declare: not the folders of details, nor the bodies of what is compiled once."""
    return sorted(p for p in (include_root / "collx").rglob("*")
                  if p.suffix in (".hpp", ".cuh") and not p.stem.endswith("_once") and not set(p.parts[:-1]) & HIDDEN)


def read_all(include_root):
    found = []
    for path in headers(include_root):
        found += Reader(path).read()
    return found
