"""What ranks tell each other in a step: every collective, however torch is asked for it."""

from __future__ import annotations

import itertools
import json

import torch
import torch.distributed as dist
from rank_tensors import draw, give, group, spread
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import DTensor, Shard
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_flatten

import mirrormargin as mm
from tools.soak.processes import report

NORMALIZED = {"step_rule": "normalized"}
POLYAK = {"step_rule": "polyak", "max_lr": 0.5}
CASES = {
    "constant": (mm.MirrorDescent, {}),
    "constant, p = 2": (mm.MirrorDescent, {"p": 2.0, "momentum": 0.9}),
    "constant, p = 3": (mm.MirrorDescent, {"p": 3.0}),
    "MirrorAdam": (mm.MirrorAdam, {"amsgrad": True}),
    "MirrorAdam, bfloat16": (mm.MirrorAdam, {"state_dtype": torch.bfloat16}),
    "MirrorAdam, rms": (mm.MirrorAdam, {"scale": "rms"}),
    "normalized": (mm.MirrorDescent, NORMALIZED),
    "normalized, group": (mm.MirrorDescent, {**NORMALIZED, "norm_over": "group"}),
    "normalized, rms": (mm.MirrorDescent, {**NORMALIZED, "scale": "rms", "momentum": 0.9}),
    "clip": (mm.MirrorAdam, {"clip": 1.0}),
    "caution": (mm.MirrorAdam, {"caution": True}),
    "nonfinite": (mm.MirrorAdam, {"nonfinite": "skip"}),
    "polyak, p = 2": (mm.MirrorDescent, {**POLYAK, "p": 2.0}),
    "polyak": (mm.MirrorDescent, POLYAK),
}


class Messages(TorchDispatchMode):
    """Notes the collectives of c10d and of DTensor, and the bytes that this rank gives to each."""

    def __init__(self) -> None:
        super().__init__()
        self.sent: list[tuple[str, int]] = []

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        if DTensor in types:
            return NotImplemented  # once it has asked for what it needs
        is_collective = func.namespace in ("c10d", "_c10d_functional")
        if is_collective and "wait" not in func.name() and "wrap" not in func.name():
            tensors = [one for one in tree_flatten(args)[0] if isinstance(one, torch.Tensor)]
            self.sent.append((func.name(), sum(one.nbytes for one in tensors)))
        return func(*args, **(kwargs or {}))


def count_messages(launch):
    """Number and bytes in the first step and the next, of 5 and 50 tensors, in 1 and 2 groups.

    All of them are sums and maxima.
    """
    counts = {}
    with group(launch):
        mesh = init_device_mesh("cpu", (launch["count"],))
        check_messages(mesh)
        for repeats, num_groups in itertools.product((1, 10), (1, 2)):
            weights, grads = draw(torch.float32)
            for name, (kind, options) in CASES.items():
                parts = [nn.Parameter(spread(one, mesh, [Shard(0)])) for one in weights * repeats]
                groups = [{"params": parts[k::num_groups]} for k in range(num_groups)]
                optimizer = kind(groups, **{"lr": 0.01, "p": 1.1, **options})
                found = []
                for step in grads[:2]:
                    give(parts, step * repeats)
                    with Messages() as messages:
                        optimizer.step(**({"loss": 1.0} if "polyak" in name else {}))
                    assert {kind for kind, _ in messages.sent} <= {"c10d::allreduce_"}
                    found.append((len(messages.sent), sum(size for _, size in messages.sent)))
                counts[f"{name}; {len(parts)} tensors, {num_groups}"] = found
    report(json.dumps(counts))


def check_messages(mesh):
    """Whichever way torch is asked, it is noticed."""
    tensor = spread(torch.ones(4), mesh, [Shard(0)])
    with Messages() as messages:
        dist.all_reduce(torch.ones(3))
        dist.all_gather_object([None] * mesh.size(), "one")
        tensor.full_tensor()
        tensor.sum().full_tensor()
    kinds = [kind for kind, _ in messages.sent]
    assert messages.sent[0] == ("c10d::allreduce_", 12)
    gathered = ["c10d::allgather_"] * 2  # an object's size goes first
    by_tensors = ["_c10d_functional::all_gather_into_tensor", "_c10d_functional::all_reduce"]
    assert kinds[1:] == gathered + by_tensors
