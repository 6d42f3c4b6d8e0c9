#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Writes the hand-made beginnings of the corpora, tests/fuzz/corpus/TARGET/seed-N. What libFuzzer adds lies beside."""
import pathlib
import struct

here = pathlib.Path(__file__).resolve().parent / "corpus"


def frame(what, port=0, size=0, tag=0, taken=0, magic=0x4C43):
    return struct.pack("<BBHIII", what, port, magic, size, tag, taken)


def request(word, key=b"", value=b"", number=0, magic=0x31535843):
    return struct.pack("<IHBBIIq", magic, 1, word, 0, len(key), len(value), number) + key + value


def message(port, size):
    return frame(1, port, size) + b"m" * size


seeds = {
    "handshake": [bytes([how, step]) + change for how in (0, 1, 3) for step in (0, 30, 255)
                  for change in (b"", b"\0" * 112 + b"\1", b"\1", b"\0" * 20 + b"\xff" * 100)],
    "frames": [
        bytes([0, 255]) + message(0, 10) + message(4, 1024) + frame(2, 0, 0, 0, 0) + frame(6),
        bytes([1, 3]) + frame(5) + message(1, 60) + frame(4, 0, 3),
        bytes([2, 60]) + frame(2, 2, taken=1) + frame(3, 0, 1, 4) + frame(6),
        bytes([4, 255]) + b"".join(message(3, 100) for _ in range(5)),
        bytes([0, 1]) + frame(1, 5, 10) + frame(1, 0, 0xFFFFFFFF) + frame(9) + frame(7),
    ],
    "aggregated": [
        bytes([0, 20]) + bytes(range(16)),
        bytes([1, 255]) + bytes([200] * 16),
        bytes([2, 3]) + bytes([9, 0, 1, 250] * 4) + bytes([1] * 20),
        bytes([3, 40]) + bytes([50] * 16) + bytes([0, 1, 62, 4, 255, 0] * 4),
        bytes([5, 7]) + bytes([3, 80, 0, 26] * 4) + bytes([8, 1, 60] * 6),
    ],
    "records": [
        bytes([255, 0, 0, 10]),
        bytes([1, 2, 0, 10, 0, 200, 3, 0]) + bytes([0, 3, 1]),
        bytes([40, 3, 255, 255, 1, 0, 0, 0, 200, 1]) + bytes([1, 0, 0, 0, 20, 128]),
    ],
    "store": [
        bytes([0]) + request(1) + request(2, b"key", b"value") + request(3, b"key") + request(4, b"n", number=5),
        bytes([0]) + request(3, b"none", number=1000) + request(2, b"key", b"v"),
        bytes([1]) + request(5) + bytes(32) + bytes(32) + request(3, b"key"),
        bytes([1]) + request(3, b"key"),
        bytes([0]) + request(5) + bytes(32),
        bytes([0]) + request(2, b"k", b"x")[:20],
        bytes([0]) + b"GET / HTTP/1.1\r\n\r\n",
    ],
    "pmi": [b"cmd=get_result rc=0 value=cabc%20", b"(vector,(0,2,2),(2,1,3))", b"4(x2),3", b"c%zz", b"12345678901234567890"],
    "environment": [
        b"_RANK=1\n_SIZE=4\n_JOB=abc\n_TIMEOUT=2.5\n_CHECKED=1",
        b"_RANK=0\n_SIZE=2\n_STORE=tcp:127.0.0.1:5000\n_ADDRESS=::1\n_HOST_ID=a\n_SECURITY=encrypted\n_KEY=" + b"k" * 40,
        b"PMI_FD=7\nPMI_RANK=1\nPMI_SIZE=2\nMPI_LOCALRANKID=0\nMPI_LOCALNRANKS=2",
        b"PMIX_NAMESPACE=x\nPMIX_RANK=1\nOMPI_COMM_WORLD_RANK=1\nOMPI_COMM_WORLD_SIZE=2",
        b"SLURM_STEP_ID=0\nSLURM_PROCID=1\nSLURM_STEP_NUM_TASKS=8\nSLURM_STEP_NUM_NODES=2\nSLURM_STEP_TASKS_PER_NODE=4(x2)\nSLURM_NODEID=0\nSLURM_LOCALID=1",
        b"TORCHELASTIC_RUN_ID=r\nRANK=0\nWORLD_SIZE=2\nLOCAL_RANK=0\nLOCAL_WORLD_SIZE=2\nMASTER_ADDR=h\nMASTER_PORT=1",
        b"JOB_COMPLETION_INDEX=0\n_SIZE=3\n_STORE=file:d\n_ARENA_BYTES=4G\n_WAIT=spin",
    ],
    "cards": [
        bytes([0]) + b"8\na=1 protection=none key=-\nhost\nmachine",
        bytes([1]) + b"8\na=2\nhost2\nmachine2",
        bytes([1]) + b"1 0 0 -1 3 1\n3\na=2\na=1",
        bytes([1]) + b"10.1.2.3 4000 12345678901234567890 1",
        bytes([0]) + b"k0123456789abcdef0123456789abcdef",
        bytes([0]) + b"t1 1 of 2 ranks did not come",
        bytes([0]) + b"127.0.0.1 4000",
        bytes([0]) + b"fe80::1%lo 4000",
        bytes([0]) + b"collx-1-0123456789abcdef-0123456789abcdef0123456789abcdef",
    ],
    "topology": [
        bytes([0]) + b'<system version="1"><!-- c --><cpu numaid="0" arch="x86_64" vendor="GenuineIntel" modelid="85">'
        b'<pci busid="a" class="0x060400" link_speed="8 GT/s" link_width="16"><pci busid="b"><gpu dev="0" sm="90" rank="0">'
        b'<nvlink target="x" count="18" tclass="0x068000"/><c2c bw="44712" count="5"/></gpu></pci><pci busid="d"><gpu dev="1" rank="1">'
        b'<nvlink target="b" count="2"/></gpu></pci><pci busid="c"><nic><net dev="0" speed="400000" name="m"/></nic></pci></pci>'
        b'</cpu><cpu numaid="1" arch="arm64" host_hash="0x2"/></system>',
        bytes([0]) + b'<?xml version="1.0"?>\n<a b="&lt;&amp;&quot;&apos;&gt;" c=\'1\'><d/></a>\n',
        bytes([1]) + b'<graphs version="1"><graph id="0" pattern="4" nchannels="1" speedintra="20" speedinter="12.5" typeintra="NVL" '
        b'typeinter="PIX" samechannels="1"><channel><net dev="0"/><gpu dev="1"/><gpu dev="0"/><net dev="1"/></channel></graph></graphs>',
        bytes([3]) + b"collx-machine 1\ncpu X\n# c\ncores 2\nl2_bytes 1024\nlast_bytes 4096\nwindows own points 3 residual 0.1 call_ns 5\n"
        b"channels shared byte_ns 0.5 l2_byte_ns 1e-3\n",
        bytes([4]) + b'<?xml version="1.0"?><!DOCTYPE topology SYSTEM "hwloc2.dtd"><topology version="2.0"><object type="Machine" nodeset="0x3">'
        b'<object type="NUMANode" os_index="0"/><object type="NUMANode" os_index="1"/><object type="Bridge" bridge_type="0-1">'
        b'<object type="Bridge" bridge_type="1-1" pci_busid="a" gp_index="1"><object type="Bridge" bridge_type="1-1" pci_busid="b">'
        b'<object type="PCIDev" pci_busid="c" gp_index="2" pci_type="0302 [10de:20b0] [0:0] a1" pci_link_speed="31.5">'
        b'<object type="OSDev" gp_index="3" name="nvml0" osdev_type="1"/></object><object type="PCIDev" pci_busid="d" gp_index="4" '
        b'pci_type="0680 [10de:1af1] [0:0] a1"/></object></object></object></object><distances2 nbobjs="2" name="NVLinkBandwidth">'
        b'<indexes length="4">3 PCIDev:4 </indexes><u64values length="9">0 300 300 0</u64values></distances2></topology>',
        bytes([2]) + b"\tGPU0\tGPU1\tNIC0\tCPU Affinity\nGPU0\t X \tNV12\tPXB\t0-3\t0\nGPU1\tNV12\t X \tSOC\nNIC0\tPXB\tSYS\t X \nLegend:\n",
    ],
}


def put(at, size, signals=0):
    """A message of the target `windows`: the form, then what next_message() takes for it."""
    return bytes([signals << 7, 1, at >> 8, at & 255, 1, size >> 8, size & 255]) + bytes(range(8))[:min(size, 8)] + b"\0"


def call(ordinal, verb, outcome=1, kind=0, peer=-1, code=0, begin=1000, end=2000):
    if outcome == 0:
        end = 0
    return struct.pack("<4Q2q24s24s5i4B", ordinal, ordinal, ordinal, 4096, begin, end, verb, b"ring", peer, 1, 2, 0, 1, kind, outcome,
                       code & 255, code >> 8)


def records(rank, size, calls, begun=None, capacity=None):
    head = struct.pack("<8sII2Q2qQ4i", b"collxrec", 1, 120, 7, 9, 500, 10**18, len(calls) if begun is None else begun, rank, size,
                       rank, len(calls) if capacity is None else capacity)
    body = head.ljust(128, b"\0") + b"".join(calls)
    return struct.pack(">H", len(body)) + body


seeds["calls"] = [
    bytes([0]) + records(0, 2, [call(1, b"barrier"), call(2, b"all_reduce", 0, peer=1)]),
    bytes([1 + 4 + 8]) + records(0, 2, [call(1, b"barrier")]) + records(1, 2, [call(1, b"barrier", 2, 1, 0, 3)]),
    bytes([2 + 28]) + b"".join(records(r, 3, [call(4, b"scan"), call(5, b"scan", 0, 2)], 5, 2) for r in range(3)),
    bytes([4]) + records(0, 1, [call(1, b"\x1b[2J\x07\xff")]),
]
seeds["windows"] = [
    bytes([2, 0, 1]) + put(0, 16) + put(100, 700, 1) + put(7, 0, 1) + bytes([3, 0]) + bytes([1, 0, 3, 0, 9, 0]),
    bytes([2, 2, 1]) + bytes([2 + 96 + 1, 4, 0, 0, 10, 1, 2, 3, 4, 5, 6, 7, 8, 0]) * 4,
    bytes([3, 1, 0]) + bytes([127, 0, 0, 0, 3, 1, 2, 3, 4, 5, 6, 7, 8, 0]) + bytes([132, 0, 0, 5, 0, 1, 2, 3, 4, 0]),
    bytes([4, 4, 2]) + bytes([4, 0, 0, 0]) + bytes([96, 7, 0]) * 3 + bytes([129, 0, 0, 0, 200, 0]),
    bytes([5, 5, 3]) + bytes([132, 2, 1, 0]) + bytes([97, 7, 0]) * 3 + bytes([1, 0, 0, 2, 255, 0]),
    bytes([4, 4, 2]) + bytes([4, 0, 0, 0]) + put(0, 16),
    bytes([5, 5, 3]) + bytes([132, 2, 1, 0]) + bytes([97, 7, 0]),
    bytes([6, 3, 0]) + put(0, 16) + bytes([0, 0, 50, 0, 4, 9]) + bytes([5, 1]),
    bytes([7, 0, 1]) + put(0, 16) + bytes([3, 65, 0, 39, 2, 1]),
    bytes([1]) + bytes([0, 100, 1, 0, 0, 0, 0, 0, 2, 200, 0, 0, 0]),
    bytes([1]) + bytes([2, 200, 0, 0, 0, 0, 50, 1, 2, 0, 60]),
    bytes([0]) + (bytes([0, 64, 8, 1, 0]) + bytes(range(32))) + (bytes([1, 3, 0, 32, 2, 1]) + bytes(range(32))),
    bytes([0]) + (bytes([3, 1, 8, 1, 0]) + bytes(32)),
]

for target, inputs in seeds.items():
    folder = here / target
    folder.mkdir(parents=True, exist_ok=True)
    for number, data in enumerate(inputs):
        (folder / f"seed-{number}").write_bytes(data)
