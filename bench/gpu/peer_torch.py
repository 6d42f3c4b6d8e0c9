#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""One rank of PyTorch's collectives between devices, started by torchrun: NCCL through torch.distributed, and all_reduce
over symmetric memory. Rank 0 prints the lines that bench/gpu/between.cu prints. Results are checked once before a point
is timed. Exits with 77 where torch sees fewer than two devices.
"""
import argparse
import os
import statistics
import sys

try:
    import torch
    import torch.distributed as dist
except ImportError as e:
    print(f"SKIPPED: {e}", file=sys.stderr)
    sys.exit(77)


def given(rank, first, count, device):
    return (torch.arange(first, first + count, device=device) + 3 * rank).remainder(7).float()


class Bench:
    def __init__(self, args):
        self.args = args
        self.rank, self.ranks = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
        self.device = torch.device("cuda", int(os.environ["LOCAL_RANK"]))
        torch.cuda.set_device(self.device)
        dist.init_process_group("nccl", device_id=self.device)
        self.group = dist.group.WORLD.group_name

    def agreed(self, x, op):
        t = torch.tensor([x], dtype=torch.float64, device=self.device)
        dist.all_reduce(t, op)
        return t.item()

    def batch(self, call, count):
        dist.barrier()
        torch.cuda.synchronize()
        begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        begin.record()
        for _ in range(count):
            call()
        end.record()
        torch.cuda.synchronize()
        return self.agreed(1000 * begin.elapsed_time(end) / count, dist.ReduceOp.MAX)

    def line(self, op, variant, size, share, call, result, expected):
        call()
        torch.cuda.synchronize()
        if self.agreed((result() != expected).sum().item(), dist.ReduceOp.SUM):
            sys.exit(f"{op} {variant} of {size} bytes: wrong results")
        first = self.batch(call, 2)
        count = min(max(int(10_000 / (first + 0.1)), 3), 100)
        us = statistics.median(self.batch(call, count) for _ in range(5))
        if self.rank == 0:
            rate = size / us / 1000
            print(f"{op},{variant},{self.ranks},{size},{us:.2f},{rate:.2f},{share * rate:.2f}", flush=True)

    def nccl(self, op, size):
        n, elems = self.ranks, size // 4
        part = elems // n
        others, whole = (n - 1) / n, part * n
        mine = lambda count: given(self.rank, 0, count, self.device)  # noqa: E731
        sums = lambda first, count: sum(given(r, first, count, self.device) for r in range(n))  # noqa: E731
        if op == "all_reduce":
            # In place, and each call adds again: the checked call is the first.
            x, expected = mine(elems), sums(0, elems)
            self.line(op, "nccl", size, 2 * others, lambda: dist.all_reduce(x), lambda: x, expected)
        elif op == "broadcast":
            x = mine(elems)
            self.line(op, "nccl", size, 1, lambda: dist.broadcast(x, 0), lambda: x, given(0, 0, elems, self.device))
        elif part == 0:
            return
        elif op == "all_gather":
            x, out = mine(part), torch.empty(whole, device=self.device)
            expected = torch.cat([given(r, 0, part, self.device) for r in range(n)])
            self.line(op, "nccl", 4 * whole, others, lambda: dist.all_gather_into_tensor(out, x), lambda: out, expected)
        elif op == "reduce_scatter":
            x, out = mine(whole), torch.empty(part, device=self.device)
            self.line(op, "nccl", 4 * whole, others, lambda: dist.reduce_scatter_tensor(out, x), lambda: out,
                      sums(self.rank * part, part))
        elif op == "all_to_all":
            x, out = mine(whole), torch.empty(whole, device=self.device)
            expected = torch.cat([given(r, self.rank * part, part, self.device) for r in range(n)])
            self.line(op, "nccl", 4 * whole, others, lambda: dist.all_to_all_single(out, x), lambda: out, expected)

    def symmetric(self, size):
        import torch.distributed._symmetric_memory as memory
        elems, n = size // 4, self.ranks
        x = memory.empty(elems, dtype=torch.float32, device=self.device)
        memory.rendezvous(x, self.group)
        expected = sum(given(r, 0, elems, self.device) for r in range(n))
        ops, out = torch.ops.symm_mem, [None]
        share = 2 * (n - 1) / n

        def one_shot():
            out[0] = ops.one_shot_all_reduce(x, "sum", self.group)

        ways = [("symmetric one-shot", one_shot, lambda: out[0]),
                ("symmetric two-shot", lambda: ops.two_shot_all_reduce_(x, "sum", self.group), lambda: x),
                ("symmetric multimem", lambda: ops.multimem_all_reduce_(x, "sum", self.group), lambda: x)]
        for name, call, result in ways:
            if name == "symmetric one-shot" and size > 8 << 20:
                continue
            x.copy_(given(self.rank, 0, elems, self.device))
            torch.cuda.synchronize()
            dist.barrier()
            try:
                self.line("all_reduce", name, size, share, call, result, expected)
            except RuntimeError as e:  # no such operation in this torch, no multicast, a size it does not take: on all alike
                if self.rank == 0:
                    print(f"{name}, {size} bytes: {str(e).splitlines()[0]}", file=sys.stderr)

    def run(self):
        size = self.args.start
        while size <= self.args.to:
            for op in self.args.ops.split(","):
                self.nccl(op, size)
            if "all_reduce" in self.args.ops.split(","):
                try:
                    self.symmetric(size)
                except (ImportError, RuntimeError) as e:
                    if self.rank == 0:
                        print(f"symmetric memory: {str(e).splitlines()[0]}", file=sys.stderr)
            size *= self.args.factor
        dist.destroy_process_group()


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--from", dest="start", type=int, default=8)
    p.add_argument("--to", type=int, default=256 << 20)
    p.add_argument("--factor", type=int, default=4)
    p.add_argument("--ops", default="all_reduce,all_gather,reduce_scatter,all_to_all,broadcast")
    args = p.parse_args()
    if torch.cuda.device_count() < 2:
        print(f"SKIPPED: needs two GPUs, torch sees {torch.cuda.device_count()}", file=sys.stderr)
        return 77
    if "RANK" not in os.environ:
        p.error("start it by torchrun --standalone --nproc-per-node N")
    Bench(args).run()
    return 0


if __name__ == "__main__":
    sys.exit(main())
