#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""PyTorch adds N tensors of one device, beside what an all_reduce of N ranks on that device does: tensor by tensor into the
first, and over the first axis of a tensor that holds them all. Prints the lines that bench/gpu/fused.cu prints; the fraction
is the least traffic (N tensors read, one written) at the speed at which torch copies, divided by the time taken. Results are
checked once. scripts/gpu runs it. Exits with 77 where there is no torch, or no device for it.
"""
import statistics
import sys

try:
    import torch
except ImportError as e:
    print(f"SKIPPED: {e}")
    sys.exit(77)


def time_us(call):
    begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))

    def batch(count):
        begin.record()
        for _ in range(count):
            call()
        end.record()
        torch.cuda.synchronize()
        return 1000 * begin.elapsed_time(end) / count

    count = min(max(int(3000 / (batch(3) + 0.1)), 3), 100)
    return statistics.median(batch(count) for _ in range(7))


def main():
    if not torch.cuda.is_available():
        print("SKIPPED: torch finds no GPU")
        return 77
    size = (1 if "--short" in sys.argv[1:] else 256) << 20
    device, elems = torch.device("cuda"), size // 4
    a, b = (torch.ones(elems, device=device) for _ in range(2))
    copied = 2 * size / time_us(lambda: b.copy_(a))

    def line(variant, ranks, call, least):
        us = time_us(call)
        print(f"sum,{variant},{ranks},{size},{us:.2f},{size / us / 1000:.2f},{least / copied / us:.3f}", flush=True)

    line("torch_copy", 1, lambda: b.copy_(a), 2 * size)
    for ranks in (2, 4, 8):
        whole = torch.ones(ranks, elems, device=device)
        out = torch.empty(elems, device=device)

        def in_turn():
            torch.add(whole[0], whole[1], out=out)
            for r in range(2, ranks):
                out.add_(whole[r])

        def by_axis():
            torch.sum(whole, 0, out=out)

        for name, call in (("torch_in_turn", in_turn), ("torch_by_axis", by_axis)):
            out.zero_()
            call()
            if not bool((out == ranks).all()):
                print(f"{name} of {ranks}: wrong sums")
                return 1
            line(name, ranks, call, (ranks + 1) * size)
    return 0


if __name__ == "__main__":
    sys.exit(main())
