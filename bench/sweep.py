# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Which sizes and numbers of ranks a sweep measures, and which of its points are holes: a size that takes longer than a
larger one, a size at which a peer is faster, a number of ranks that costs more than its share. Used by side_by_side
and over_sockets; starts nothing."""
import collections
import statistics

# Of each octave: its beginning, and three sizes off the grid, one of which divides by next to nothing.
FACTORS = (1, 1.37, 1.5, 1.76)
RANKS = [2, 3, 4, 5, 7, 8]
MANY_RANKS = [2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64]
MANY_RANKS_SIZES = [8, 1 << 10, 16 << 10, 64 << 10, 256 << 10, 1 << 20]
MOST_FALL = 1.3               # times as long as a size that is larger, at most twice as large
LEAST_RATIO = {"near": 1.0, "far": 0.9}  # the best peer's time over collx's


def sizes(first=16, last=16 << 20):
    """80 sizes, 60 of them no powers of two, as whole floats."""
    out, octave = [], first
    while octave < last:
        out += [int(octave * factor) // 4 * 4 for factor in FACTORS]
        octave *= 2
    return out


class Point:
    """Of one program: the median of the repetitions' medians, and the fastest sample of all."""

    def __init__(self, rows):
        self.median = statistics.median(float(r["median_us"]) for r in rows)
        self.fastest = min(float(r["min_us"]) for r in rows)


def points(rows, state, ranks):
    """op -> bytes -> program -> Point, of one state of the cores."""
    found = collections.defaultdict(lambda: collections.defaultdict(lambda: collections.defaultdict(list)))
    for r in rows:
        if r["state"] == state and int(r["ranks"]) == ranks:
            name = "collx" if r["peer"] == "collx" else f"{r['peer']} {r['algo']}"
            found[r["op"]][int(r["bytes"])][name].append(r)
    return {op: {size: {name: Point(lines) for name, lines in here.items()} for size, here in sorted(by_size.items())}
            for op, by_size in found.items()}


def falls(by_size, farthest=2.0):
    """(size, larger size) of collx where the smaller takes MOST_FALL times as long; of each size the worst."""
    mine = [(size, here["collx"]) for size, here in by_size.items() if "collx" in here]
    out = []
    for i, (size, point) in enumerate(mine):
        larger = [(point.median / other.median, at, other) for at, other in mine[i + 1:] if at <= farthest * size]
        worst = max(larger, key=lambda x: x[0], default=(0,))
        if worst[0] > MOST_FALL:
            ratio, at, other = worst
            out.append((size, at, ratio, point.fastest / other.fastest))
    return out


def behind(by_size, state):
    """(size, collx us, ratio, best peer, ratio of the fastest samples) where the best peer is ahead; and how many points
    can be compared."""
    out, compared = [], 0
    for size, here in by_size.items():
        peers = {name: p for name, p in here.items() if name != "collx"}
        if "collx" not in here or not peers:
            continue
        compared += 1
        best = min(peers, key=lambda name: peers[name].median)
        ratio = peers[best].median / here["collx"].median
        if ratio < LEAST_RATIO[state]:
            out.append((size, here["collx"].median, ratio, best, peers[best].fastest / here["collx"].fastest))
    return out, compared


def holes(rows, ranks_list):
    """(ranks, op) -> the sizes that a sweep's report names, and those that they are compared with."""
    found = collections.defaultdict(set)
    for ranks in ranks_list:
        for state in ("near", "far"):
            for op, by_size in points(rows, state, ranks).items():
                found[ranks, op].update(size for size, *_ in behind(by_size, state)[0])
                for size, larger, *_ in falls(by_size):
                    found[ranks, op].update((size, larger))
    return {key: sizes for key, sizes in found.items() if sizes}


def growth(by_ranks, cores):
    """(ranks, more ranks, times as long, times as many) where time grows faster than ranks do; only numbers of ranks that
    all share cores, or all do not, are compared."""
    out = []
    for n, here in by_ranks.items():
        worse = [(there / here / (m / n), m, there / here) for m, there in by_ranks.items()
                 if m > n and (n > cores) == (m > cores) and there / here > MOST_FALL * m / n]
        if worse:
            _, m, times = max(worse)
            out.append((n, m, times, m / n))
    return out


def report(rows, ranks_list, cores, size_text, time_text, table):
    """What a sweep over sizes found."""
    for ranks in ranks_list:
        for state in ("near", "far"):
            found = points(rows, state, ranks)
            lines, slower, compared, measured = [], [], 0, 0
            for op, by_size in found.items():
                here, count = behind(by_size, state)
                compared += count
                measured += sum("collx" in p for p in by_size.values())
                slower += [[op, size_text(s), time_text(us), f"{ratio:.2f}", best, f"{fastest:.2f}"]
                           for s, us, ratio, best, fastest in here]
                lines += [[op, size_text(s), time_text(by_size[s]["collx"].median), size_text(at),
                           time_text(by_size[at]["collx"].median), f"{ratio:.2f}", f"{fastest:.2f}"]
                          for s, at, ratio, fastest in falls(by_size)]
            if not measured:
                continue
            print(f"## {ranks} ranks, cores {state}\n")
            print(f"{len(lines)} of {measured} sizes take more than {MOST_FALL} times as long as one up to twice as large.\n")
            if lines:
                table(["operation", "size", "us", "larger", "us", "times as long", "fastest samples"], lines)
            print(f"{len(slower)} of {compared} sizes are below {LEAST_RATIO[state]} of the best peer.\n")
            if slower:
                table(["operation", "size", "us", "peer's time / collx's", "best peer", "fastest samples"], slower)


def report_ranks(rows, ranks_list, cores, size_text, time_text, table):
    """What a sweep over numbers of ranks found: a table of each operation, and its holes."""
    for state in ("near", "far", "unknown"):
        times = collections.defaultdict(lambda: collections.defaultdict(dict))  # op -> size -> ranks -> points
        for ranks in ranks_list:
            for op, by_size in points(rows, state, ranks).items():
                for size, here in by_size.items():
                    wanted = min(MANY_RANKS_SIZES, key=lambda s: abs(s - size))  # rounded to what divides
                    times[op][wanted if size else 0][ranks] = here
        for op, by_size in times.items():
            print(f"## {op}, cores {state}\n")
            lines, holes = [], []
            for size, by_ranks in sorted(by_size.items()):
                cells = []
                for ranks in ranks_list:
                    here = by_ranks.get(ranks, {})
                    others = [p.median for name, p in here.items() if name != "collx"]
                    mine = here.get("collx")
                    cells.append("" if mine is None else time_text(mine.median) +
                                 (f" (**{min(others) / mine.median:.2f}**)" if others else ""))
                lines.append([size_text(size)] + cells)
                mine = {n: here["collx"].median for n, here in by_ranks.items() if "collx" in here}
                holes += [f"{size_text(size)}: {m} ranks take {times_as_long:.1f} times as long as {n} ({many:.1f} times as many)."
                          for n, m, times_as_long, many in growth(mine, cores)]
            for ranks in ranks_list:
                mine = {size: by_ranks[ranks] for size, by_ranks in sorted(by_size.items()) if ranks in by_ranks}
                holes += [f"{ranks} ranks: {size_text(size)} takes {ratio:.2f} times as long as {size_text(at)}."
                          for size, at, ratio, _ in falls(mine, float("inf"))]
            table(["us (peer's time / collx's)"] + [f"{n} ranks" for n in ranks_list], lines)
            print("\n".join(f"- {hole}" for hole in holes) + "\n" if holes else
                  "Time grows at most linearly with ranks and never falls when the message grows.\n")
