# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""What scripts/check_format reads in a source without a compiler. Sources are laid out by clang-format: a function's body
opens at the end of a line and closes with a brace under the line on which the function began."""
import re

BEGINS_NO_FUNCTION = re.compile(r"\s*(?:namespace|struct|class|union|enum|extern|if|else|for|while|do|switch|try|catch|case|"
                                r"default|return|concept|[})\]#:]|//|$)")
NO_DECLARATION = re.compile(r"\b(?:struct|class|union|enum)\b|[.=]|->")  # before the first parenthesis
LICENCE = "SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception"


def functions(lines):
    """(line of the first word, lines down to the closing brace) of each function; lambdas are part of theirs."""
    number = 0
    while number < len(lines):
        line = lines[number]
        if not line.endswith("{") or "(" not in line and ")" not in line:
            number += 1
            continue
        first = number  # of a declaration over several lines: the one with the least indentation that begins it
        indent = len(line) - len(line.lstrip())
        while first > 0 and continues(lines[first - 1]):
            first -= 1
            indent = min(indent, len(lines[first]) - len(lines[first].lstrip()))
        begin = next((i for i in range(first, number) if not lines[i].lstrip().startswith(("template", "requires"))), number)
        end = next((i for i in range(number + 1, len(lines)) if lines[i].startswith(" " * indent + "}")), None)
        whole = end is not None and lines[end].strip() == "}"
        if not whole or BEGINS_NO_FUNCTION.match(lines[begin]) or NO_DECLARATION.search(lines[begin].split("(")[0]):
            number += 1
            continue
        yield begin + 1, end - begin + 1
        number = end + 1


def continues(line):
    """Whether a declaration goes on below this line."""
    code = line.split(" // ")[0].rstrip()
    return bool(code.strip()) and not code.endswith((";", "{", "}", ":")) and not code.lstrip().startswith(("//", "#", "COLLX_BEGIN", "COLLX_END"))


def faults(path, text):
    """(line, what is wrong) in any file, whatever its language."""
    lines = text.split("\n")
    if not any(LICENCE in line for line in lines[:2]):
        yield 1, "no SPDX licence line"
    for number, line in enumerate(lines, 1):
        if line.endswith((" ", "\t", "\r")):
            yield number, "blanks at the end of a line"
            break
    at = text.find("\t")
    if at >= 0:
        yield text.count("\n", 0, at) + 1, "a tab"
    if not text.endswith("\n"):
        yield len(lines), "no newline at the end"


def header_faults(text, most_lines, most_lines_of_a_function):
    """(line, what is wrong) in a public header."""
    lines = text.split("\n")
    if not any(line.startswith("#pragma once") for line in lines):
        yield 1, "no #pragma once"
    if len(lines) - 1 > most_lines:
        yield len(lines) - 1, f"{len(lines) - 1} lines; a header has at most {most_lines}"
    for line, length in functions(lines):
        if length > most_lines_of_a_function:
            yield line, f"a function of {length} lines; it has at most {most_lines_of_a_function}"
