# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Adds up what scripts/test recorded in a folder and prints it; the last line is "N passed, N failed, N skipped".

The folder holds <preset>.xml (ctest --output-junit), checks.tsv (status, name, reason) and `presets`, a line for each
preset that was to run. Exit: 0 if something passed, nothing failed, and tests of each such preset ran.
"""
import pathlib
import re
import sys
import xml.etree.ElementTree as ElementTree

SKIPPED = re.compile(r"SKIPPED: (.*)")


def read_junit(path):
    """Yields (status, name, reasons) for each ctest entry of one preset."""
    for case in ElementTree.parse(path).getroot().iter("testcase"):
        output = case.findtext("system-out") or ""
        name = f"{path.stem}: {case.get('name')}"
        status = case.get("status")
        reasons = SKIPPED.findall(output)
        if status == "run" and case.find("failure") is None:
            # Cases of a program that ran: the program passed, but say what it left out.
            yield "passed", name, reasons
        elif case.find("skipped") is not None and reasons:
            yield "skipped", name, reasons
        elif status == "disabled":
            yield "skipped", name, ["disabled"]
        else:
            # Failed, timed out, or could not be started at all.
            yield "failed", name, []


def read_checks(path):
    for line in path.read_text().splitlines():
        status, name, reason = (line.split("\t") + ["", ""])[:3]
        yield status, name, [reason] if reason else []


def main():
    folder = pathlib.Path(sys.argv[1])
    results = []
    for path in sorted(folder.glob("*.xml")):
        try:
            results += read_junit(path)
        except ElementTree.ParseError as error:
            results.append(("failed", f"{path.stem}: unreadable test report ({error})", []))
    results += read_checks(folder / "checks.tsv")
    presets = folder / "presets"
    for preset in presets.read_text().split() if presets.exists() else []:
        entries = [(status, name) for status, name, _ in results if name.startswith(f"{preset}: ")]
        has_run = any(status == "passed" and name != f"{preset}: build" for status, name in entries)
        if not has_run and not any(status == "failed" for status, _ in entries):
            results.append(("failed", f"{preset}: no test ran", []))

    by_status = {"passed": [], "failed": [], "skipped": []}
    for status, name, reasons in results:
        by_status[status].append((name, reasons))
    left_out = [(name, reasons) for name, reasons in by_status["passed"] if reasons]

    print("\n==== summary")
    groups = {}
    for status, name, _ in results:
        group = name.split(":")[0] if ":" in name else "checks"
        groups.setdefault(group, {"passed": 0, "failed": 0, "skipped": 0})[status] += 1
    for group, counts in groups.items():
        print(f"{group:8} {counts['passed']} passed, {counts['failed']} failed, {counts['skipped']} skipped")
    for name, reasons in by_status["skipped"]:
        print(f"skipped  {name}: {'; '.join(dict.fromkeys(reasons))}")
    for name, reasons in left_out:
        print(f"in part  {name}: {'; '.join(dict.fromkeys(reasons))}")
    for name, _ in by_status["failed"]:
        print(f"FAILED   {name}")
    if not by_status["passed"]:
        print("FAILED   no test ran")
    # Other programs read this line: keep its form.
    print(f"{len(by_status['passed'])} passed, {len(by_status['failed'])} failed, {len(by_status['skipped'])} skipped")
    return 1 if by_status["failed"] or not by_status["passed"] else 0


if __name__ == "__main__":
    sys.exit(main())
