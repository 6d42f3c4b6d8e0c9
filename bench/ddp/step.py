#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""One rank of bench/beside_ddp: the same training steps in turn with PyTorch's DistributedDataParallel over Gloo, with
collx::bucketed, and with no reduction. PyTorch computes in all of them, on one thread; only who averages the gradients differs.
Rank 0 prints CSV lines: case,gradient_bytes,ranks,way,block,steps,ms_per_step,buckets (ms of the slowest rank).
"""
import argparse
import copy
import ctypes
import os
import sys
import time

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

MODELS = {"small": [784, 512, 512, 10], "large": [784, 1024, 2048, 1024, 10]}


class Given(torch.autograd.Function):
    """A loss whose gradient of each parameter is a tensor that is there already: a backward pass that computes nothing."""

    @staticmethod
    def forward(ctx, given, *parameters):
        ctx.given = given
        return parameters[0].new_zeros((), requires_grad=True)

    @staticmethod
    def backward(ctx, _):
        return None, *ctx.given


class Reduction(torch.nn.Module):
    """The tensors of a model, with given gradients: small whole numbers, whose sums are exact in any order."""

    def __init__(self, model, rank, ranks):
        super().__init__()
        self.own = torch.nn.ParameterList(torch.zeros_like(p) for p in model.parameters())
        of = [[(torch.arange(p.numel()) * 7 + 13 * r + k).remainder(201).sub(100).reshape(p.shape) for r in range(ranks)]
              for k, p in enumerate(model.parameters())]
        self.given = [numbers[rank].float() for numbers in of]
        self.average = [sum(n.double() for n in numbers) / ranks for numbers in of]

    def forward(self):
        return Given.apply(self.given, *self.own)


class Way:
    """A model of its own, its optimiser, and a step."""

    def __init__(self, model, backward):
        self.model, self.backward = copy.deepcopy(model), backward
        self.called, self.buckets = self.model, 0
        self.optimiser = torch.optim.SGD(self.model.parameters(), lr=0.01)

    def gradients(self):
        self.optimiser.zero_grad(set_to_none=True)
        self.backward(self.called)

    def step(self):
        self.gradients()
        self.optimiser.step()


class Ddp(Way):
    def __init__(self, model, backward, mib, **more):
        super().__init__(model, backward)
        # Where nothing is said it has 25 MiB, and 1 MiB for the first bucket; else all are of the size that was said.
        self.called = DistributedDataParallel(self.model, bucket_cap_mb=None if mib == 25 else mib, **more)

    def count(self):
        return len(self.called._get_ddp_logging_data().get("rebuilt_bucket_sizes", "").split(","))


class GlooFlat(Way):
    """By hand, without DDP: one all_reduce of all gradients when the backward pass is over."""

    def gradients(self):
        super().gradients()
        of = [p.grad for p in self.model.parameters()]
        flat = torch.cat([g.reshape(-1) for g in of]).div_(dist.get_world_size())
        dist.all_reduce(flat)
        for g, part in zip(of, flat.split([g.numel() for g in of])):
            g.copy_(part.view_as(g))

    def count(self):
        return 1


class Collx(Way):
    def __init__(self, model, backward, mib, native, has_thread, has_views=False):
        super().__init__(model, backward)
        self.native = native
        tensors = list(self.model.parameters())
        # As DDP's views: each gradient is copied into one array, averaged there, and is a view of it afterwards.
        parts = torch.empty(sum(p.numel() for p in tensors)).split([p.numel() for p in tensors])
        self.views = [part.view_as(p) for part, p in zip(parts, tensors)] if has_views else None
        sizes = (ctypes.c_size_t * len(tensors))(*(p.numel() for p in tensors))
        at = (ctypes.c_void_p * len(tensors))(*(p.data_ptr() for p in tensors))  # each step says where they lie
        self.open = self.asked(native.gradients_open(len(tensors), sizes, at, mib << 20,
                                                     (1 if mib == 25 else mib) << 20, has_thread))
        for k, p in enumerate(tensors):
            p.register_post_accumulate_grad_hook(lambda p, k=k: self.ready(p, k))

    def ready(self, p, k):
        if self.views:
            p.grad = self.views[k].copy_(p.grad)
        self.asked(not self.native.gradients_ready(self.open, k, p.grad.data_ptr()))

    def asked(self, result):
        if not result:
            raise RuntimeError(self.native.gradients_error().decode())
        return result

    def gradients(self):
        super().gradients()
        self.asked(not self.native.gradients_finish(self.open))

    def count(self):
        return self.native.gradients_buckets(self.open)

    def close(self):
        self.native.gradients_close(self.open)


def load(path):
    native = ctypes.CDLL(path)
    handle = ctypes.c_void_p
    for name, result, arguments in (("error", ctypes.c_char_p, []), ("buckets", ctypes.c_int, [handle]),
                                    ("open", handle, [ctypes.c_int, handle, handle, ctypes.c_size_t, ctypes.c_size_t,
                                                      ctypes.c_int]),
                                    ("ready", ctypes.c_int, [handle, ctypes.c_int, handle]),
                                    ("finish", ctypes.c_int, [handle]), ("close", None, [handle]), ("leave", None, [])):
        function = getattr(native, "gradients_" + name)
        function.restype, function.argtypes = result, arguments
    return native


def gathered(tensor):
    parts = [torch.empty_like(tensor) for _ in range(dist.get_world_size())]
    dist.all_gather(parts, tensor)
    return parts


def difference(way, exact):
    """The largest, over the largest of what is exact."""
    pairs = [(p.grad.double(), e) for p, e in zip(way.model.parameters(), exact)]
    return (max((g - e).abs().max() for g, e in pairs) / max(e.abs().max() for _, e in pairs)).item()


def check_gradients(case, ways, exact):
    """The averages of float64, made by gathering what each rank computes alone, or known beforehand."""
    allowed = 1e-7 if case.startswith("reduce") else 1e-5
    for name, way in ways.items():
        way.gradients()
        got = difference(way, exact)
        if (got <= allowed) == (name == "alone"):  # alone has only its own: if that passes, the check sees nothing
            sys.exit(f"step: {case}, {name}, rank {dist.get_rank()}: gradients differ from the average by {got:.3g} of the "
                     f"largest; {'more than' if name == 'alone' else 'at most'} {allowed:g} is expected")


def check_parameters(case, ways):
    """Ranks that got the same bits in every step have the same parameters."""
    for name, way in ways.items():
        own = torch.cat([p.detach().reshape(-1) for p in way.model.parameters()]).view(torch.int32)
        alike = all(torch.equal(own, other) for other in gathered(own))
        if name != "alone" and not alike:
            sys.exit(f"step: {case}, {name}: parameters differ between ranks after the last step")


def exact_averages(way):
    way.gradients()
    return [torch.stack(gathered(p.grad.double())).mean(0) for p in way.model.parameters()]


def mlp(widths):
    layers = []
    for a, b in zip(widths, widths[1:]):
        layers += [torch.nn.Linear(a, b), torch.nn.ReLU()]
    return torch.nn.Sequential(*layers[:-1])


def case_of(name, args, rank, ranks):
    """(model, what makes its gradients)"""
    torch.manual_seed(args.seed)
    model = mlp(MODELS[name.split()[-1]])
    if name.startswith("reduce"):
        return Reduction(model, rank, ranks), lambda called: called().backward()
    data = torch.Generator().manual_seed(args.seed + 1 + rank)
    x = torch.randn(args.batch, model[0].in_features, generator=data)
    y = torch.randint(model[-1].out_features, (args.batch,), generator=data)
    return model, lambda called: torch.nn.functional.cross_entropy(called(x), y).backward()


def block_ms(way, steps):
    time.sleep(0.01)  # threads that watch for more after the last call have gone to sleep
    dist.barrier()
    begin = time.perf_counter()
    for _ in range(steps):
        way.step()
    return (time.perf_counter() - begin) * 1e3 / steps


def measure(case, args, native, rank, ranks):
    model, backward = case_of(case, args, rank, ranks)
    ways = {"alone": Way(model, backward)}
    if "ddp" in args.ways:
        ways["ddp"] = Ddp(model, backward, args.bucket_mib)
    if "ddp views" in args.ways:
        ways["ddp views"] = Ddp(model, backward, args.bucket_mib, gradient_as_bucket_view=True)
    if "gloo flat" in args.ways:
        ways["gloo flat"] = GlooFlat(model, backward)
    if "collx" in args.ways:
        ways["collx"] = Collx(model, backward, args.bucket_mib, native, 0)
    if "collx views" in args.ways:
        ways["collx views"] = Collx(model, backward, args.bucket_mib, native, 0, True)
    if "collx thread" in args.ways:
        ways["collx thread"] = Collx(model, backward, args.bucket_mib, native, 1)
    check_gradients(case, ways, model.average if isinstance(model, Reduction) else exact_averages(ways["alone"]))
    for way in ways.values():
        block_ms(way, 3)
    steps = torch.tensor([args.block_ms / block_ms(ways["alone"], 3)])
    dist.broadcast(steps, 0)
    steps = max(2, round(steps.item()))
    times = torch.zeros(args.blocks, len(ways), dtype=torch.float64)
    for b in range(args.blocks):
        for k in sorted(range(len(ways)), reverse=b % 2 == 1):  # the order turns round
            times[b, k] = block_ms(list(ways.values())[k], steps)
    slowest = torch.stack(gathered(times)).amax(0)
    check_parameters(case, ways)
    total = sum(p.numel() * 4 for p in model.parameters())
    for k, (name, way) in enumerate(ways.items()):
        for b in range(args.blocks if rank == 0 else 0):
            count = way.count() if hasattr(way, "count") else 0
            print(f"{case},{total},{ranks},{name},{b},{steps},{slowest[b, k].item():.4f},{count}", flush=True)
    for way in ways.values():
        if isinstance(way, Collx):
            way.close()


def main():
    p = argparse.ArgumentParser(description=__doc__)
    p.add_argument("--native", required=True)
    p.add_argument("--meet", required=True, help="a file that does not exist, for Gloo's start")
    p.add_argument("--cases", required=True)
    p.add_argument("--ways", required=True)
    p.add_argument("--batch", type=int, default=64)
    p.add_argument("--blocks", type=int, default=9)
    p.add_argument("--block-ms", type=float, default=60)
    p.add_argument("--bucket-mib", type=int, default=25)
    p.add_argument("--seed", type=int, default=1)
    args = p.parse_args()
    args.ways = args.ways.split(",")
    torch.set_num_threads(1)
    rank, ranks = int(os.environ["COLLX_RANK"]), int(os.environ["COLLX_SIZE"])
    dist.init_process_group("gloo", init_method=f"file://{args.meet}", rank=rank, world_size=ranks)
    native = load(args.native)
    for case in args.cases.split(","):
        measure(case, args, native, rank, ranks)
    native.gradients_leave()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
