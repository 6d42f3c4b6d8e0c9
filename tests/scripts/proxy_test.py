#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Calls on device memory name no transport between hosts: the proxy runs verbs of communicators, which have theirs."""
import pathlib
import re
import sys

ROOT = pathlib.Path(__file__).resolve().parents[2] / "include" / "collx"
HOST_WORDS = re.compile(r"\b(sockets?|shm|tcp|epoll|remote_links|memory_links|per_peer)\b")
DEVICE_TRANSPORTS = re.compile(r"collx/transport/(gpu_\w+|nvlink|pcie|peer_file)\.hpp")


def mistakes(text):
    code = re.sub(r"//[^\n]*|/\*.*?\*/", "", text, flags=re.S)
    found = HOST_WORDS.findall(re.sub(r"#include[^\n]*", "", code))
    found += [i for i in re.findall(r"collx/transport/[\w/]+\.hpp", code) if not DEVICE_TRANSPORTS.fullmatch(i)]
    return found


def main():
    assert mistakes("#include <collx/transport/stream.hpp>\n") and mistakes("x.sockets; // shm")
    assert not mistakes("// over sockets\n#include <collx/transport/gpu_links.hpp>\n")
    files = sorted((ROOT / "gpu").glob("*.hpp"))
    assert len(files) > 10, "where is gpu?"
    wrong = [f"{f.name}: {', '.join(m)}" for f in files if (m := mistakes(f.read_text()))]
    print("\n".join(wrong) or f"{len(files)} files name no transport between hosts")
    return 1 if wrong else 0


sys.exit(main())
