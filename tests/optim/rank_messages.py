"""What ranks tell each other in a step."""

from __future__ import annotations

import json

import torch
import torch.distributed as dist
from rank_tensors import draw, give, group, make
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import Shard

import mirrormargin as mm
from tools.soak.processes import report


def count_messages(launch):
    """How many reductions, and bytes, a step takes with 5 and with 50 tensors."""
    counts = {}
    with group(launch):
        mesh = init_device_mesh("cpu", (launch["count"],))
        original, sent = dist.all_reduce, []

        def spy(tensor, *arguments, **options):
            sent.append(tensor.numel() * tensor.element_size())
            return original(tensor, *arguments, **options)

        dist.all_reduce = spy
        for repeats in (1, 10):
            weights, grads = draw(torch.float32)
            weights, grads = weights * repeats, [step * repeats for step in grads]
            for name, kind, options in (
                ("constant", mm.MirrorDescent, {}),
                ("MirrorAdam", mm.MirrorAdam, {}),
                ("normalized", mm.MirrorDescent, {"step_rule": "normalized"}),
                ("group", mm.MirrorDescent, {"step_rule": "normalized", "norm_over": "group"}),
                ("clip", mm.MirrorAdam, {"clip": 1.0}),
                ("caution", mm.MirrorAdam, {"caution": True}),
                ("polyak, p = 2", mm.MirrorDescent, {"step_rule": "polyak", "p": 2.0}),
                ("polyak", mm.MirrorDescent, {"step_rule": "polyak"}),
            ):
                options = {"lr": 0.01, "p": 1.1, **options}
                _, parts, _, optimizer = make(kind, weights, mesh, [Shard(0)], options)
                for step in grads[:3]:
                    give(parts, step)
                    sent.clear()
                    optimizer.step(**({"loss": 1.0} if "polyak" in name else {}))
                counts[f"{name}, {len(weights)} tensors"] = len(sent), sum(sent)
    report(json.dumps(counts))
