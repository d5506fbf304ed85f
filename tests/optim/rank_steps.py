"""What each of several ranks does in the tests of sharded steps; see test_shards.py."""

from __future__ import annotations

import itertools
import json
import math

import pytest
import torch
from rank_models import Net, shard
from rank_tensors import NUM_STEPS, compare, draw, get_whole, give, group, make, spread, step_both
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import DTensor, Shard

import mirrormargin as mm
from mirrormargin.errors import NonFiniteGradientError, OptimizerError
from mirrormargin.geometry.compiler import has_numba
from tools.soak.processes import report

EXPONENTS = (1.1, 1.5, 2.0, 3.0, 5.0)
PATHS = {"plain": {"fused": False}, "foreach": {"foreach": True}, "compiled": {}}


def list_cases(dtype, full):
    """Options of both optimizers, at every exponent or at two."""
    for p, path in itertools.product(EXPONENTS if full else (1.1, 2.0), PATHS):
        if path == "compiled" and dtype is not torch.float32:
            continue
        rules = ["constant", "normalized", "polyak"]
        for rule, momentum, scale in itertools.product(rules, (0.0, 0.9), (None, "rms")):
            options = {"lr": 0.05, "p": p, "step_rule": rule, "momentum": momentum, "scale": scale}
            yield mm.MirrorDescent, {**options, **PATHS[path], "max_lr": 0.5}, path
        adam = {"lr": 0.02, "p": p, **PATHS[path]}
        for scale in (None, "rms"):
            yield mm.MirrorAdam, {**adam, "scale": scale}, path
        if full or p == 1.1:
            grouped = {"lr": 0.05, "p": p, **PATHS[path], "norm_over": "group"}
            yield mm.MirrorDescent, {**grouped, "step_rule": "normalized"}, path
            yield mm.MirrorDescent, {**grouped, "clip": 0.5, "weight_decay": 0.1}, path
            yield mm.MirrorDescent, {"lr": 0.5, "p": p, "step_rule": "polyak", "max_lr": 0.5,
                                     "polyak": "dual_norm", **PATHS[path]}, path  # fmt: skip
            yield mm.MirrorDescent, {**grouped, "momentum": 0.9, "caution": True}, path
            yield mm.MirrorAdam, {**adam, "caution": True, "amsgrad": True}, path
            yield mm.MirrorAdam, {**adam, "clip": 0.5, "weight_decay": 0.1}, path
            centred = {"p": p, **PATHS[path], "center": True}
            yield mm.MirrorAdam, {**centred, "lr": 0.1, "weight_decay": 0.1}, path
            yield mm.MirrorDescent, {**centred, "lr": 0.1, "step_rule": "normalized"}, path
            yield mm.MirrorDescent, {**centred, "lr": 0.05, "momentum": 0.9}, path
            if path != "compiled" and p == 1.1:
                elastic = {"potential": mm.ElasticNetPotential(0.1), "center": True, **PATHS[path]}
                yield mm.MirrorAdam, {**elastic, "lr": 0.1}, path
            if path != "compiled" and dtype is torch.float32:
                yield mm.MirrorAdam, {**adam, "state_dtype": torch.bfloat16}, path
                options = {"momentum": 0.9, "state_dtype": torch.bfloat16}
                yield mm.MirrorDescent, {"lr": 0.05, "p": p, **PATHS[path], **options}, path


def watch_compiled_steps():
    """A list that grows whenever compiled code steps the tensors of a group."""
    made = []

    def watch(step):
        def noted(*tensors, **options):
            made.append(step)
            step(*tensors, **options)

        return noted

    if has_numba():
        from mirrormargin.optim import compiled

        compiled.mirror_descent = watch(compiled.mirror_descent)
        compiled.mirror_adam = watch(compiled.mirror_adam)
    return made


def check_product(launch, dtype_name, full):
    """Every rule, exponent, path and option: equal to one process."""
    dtype, worst, num = getattr(torch, dtype_name), {}, 0
    rank, count = launch["rank"], launch["count"]
    compiled = watch_compiled_steps()
    with group(launch):
        mesh = init_device_mesh("cpu", (count,))
        weights, grads = draw(dtype)
        for kind, options, path in list_cases(dtype, full):
            own = dict(options)
            compiled.clear()
            if own.get("step_rule") == "polyak":
                own["loss_over"] = "rank"  # of whole tensors: they get the mean
            whole, parts, one, two = make(kind, weights, mesh, [Shard(0)], own, num_whole=1)
            step_both(kind, own, one, two, whole, parts, grads, rank, count)
            tolerance = 1e-12 if dtype is torch.float64 else 1e-6
            difference = compare(whole, parts, one, two, tolerance)
            if own.get("state_dtype") is torch.bfloat16:
                assert difference == 0, (kind, own)  # the same bits are drawn
            assert difference <= tolerance, (kind, own, difference)
            if path != "compiled" or has_numba():  # whole tensors and shards are stepped by it
                assert len(compiled) == (2 * NUM_STEPS if path == "compiled" else 0), (kind, own)
            worst[path] = max(worst.get(path, 0.0), difference)
            num += 1
    report(json.dumps({"cases": num, "worst": worst}))


def check_rules(launch):
    """What ranks must agree on, and what is refused."""
    rank, count = launch["rank"], launch["count"]
    with group(launch):
        mesh = init_device_mesh("cpu", (count,))
        weights, grads = draw(torch.float32)
        # nan on one rank only: nobody steps, and the tensor is named by all.
        for policy in ("skip", "raise"):
            options = {"lr": 0.1, "p": 1.1, "nonfinite": policy}
            _, parts, _, optimizer = make(mm.MirrorDescent, weights, mesh, [Shard(0)], options)
            give(parts, grads[0])
            if rank == count - 1:
                parts[0].grad.to_local()[-1, -1] = math.nan
            if policy == "skip":
                optimizer.step()
            else:
                with pytest.raises(NonFiniteGradientError, match="parameter 0 of group 0"):
                    optimizer.step()
            assert torch.equal(parts[0].full_tensor(), weights[0])
        # nan also reaches the norm of every part.
        _, parts, _, optimizer = make(
            mm.MirrorDescent, weights, mesh, [Shard(0)], {"lr": 0.1, "step_rule": "normalized"}
        )
        give(parts, grads[0])
        if rank == 0:
            parts[0].grad.to_local()[0, 0] = math.nan
        optimizer.step()
        assert parts[0].full_tensor().isnan().all()
        # A step that only makes state changes no bit, for Polyak without a loss too.
        for kind, options in (
            (mm.MirrorAdam, {"lr": 0.0, "p": 1.1}),
            (mm.MirrorDescent, {"lr": 0.0, "p": 1.1, "step_rule": "polyak", "momentum": 0.9}),
        ):
            _, parts, _, optimizer = make(kind, weights, mesh, [Shard(0)], options)
            give(parts, [torch.zeros_like(one) for one in weights])
            optimizer.step()
            for part, weight in zip(parts, weights, strict=True):
                assert torch.equal(part.full_tensor(), weight)
        check_writes(mesh, weights, grads)
        check_layouts(mesh, launch["rank"])
        check_refusals(mesh, weights, grads)
        check_groups(mesh)


@torch.no_grad()
def check_writes(mesh, weights, grads):
    """u follows weights that someone writes to, as a pruner does, or to the part that is here."""
    for find in (lambda part: part, lambda part: part.to_local()):
        options = {"lr": 0.1, "p": 1.1}
        whole, parts, one, two = make(mm.MirrorAdam, weights, mesh, [Shard(0)], options)
        for step in grads:
            give(whole, step)
            give(parts, step)
            one.step()
            two.step()
            for tensor in (*whole, *map(find, parts)):
                tensor.mul_(tensor > 0.05)
        assert compare(whole, parts, one, two, 1e-6) <= 1e-6


def check_layouts(mesh, rank):
    """Transposed in memory, two rows are not contiguous here, and one row is on the next rank."""

    def cut(whole):
        own = whole.chunk(2)[rank].mT.clone(memory_format=torch.contiguous_format).mT
        stride = whole.mT.contiguous().mT.stride()
        return DTensor.from_local(
            own, mesh, [Shard(0)], run_check=False, shape=whole.shape, stride=stride
        )

    first, steps = draw(torch.float32)
    weights, *grads = ([step[0], step[0][:3], *step[1:]] for step in (first, *steps))
    for options in ({"step_rule": "normalized"}, {"momentum": 0.9, "caution": True}):
        whole, parts, one, two = make(
            mm.MirrorDescent, weights, mesh, [Shard(0)], {"lr": 0.1, "p": 1.5, **options}
        )
        parts[1] = nn.Parameter(cut(weights[1]))
        two.param_groups[0]["params"][1] = parts[1]
        for step in grads:
            give(whole, step)
            give(parts, step)
            parts[1].grad = cut(step[1])
            one.step()
            two.step()
        difference = compare(whole, parts, one, two, 1e-6)
        assert difference <= 1e-6, (options, difference)


class Coupled(mm.Potential):
    """Half the square of the l2 norm, said to couple entries."""

    is_separable = False

    def value(self, weight):
        return (weight * weight).sum() / 2

    def to_dual(self, weight):
        return weight

    def to_primal(self, dual):
        return dual

    def __repr__(self):
        return "Coupled()"


class WithNorm(Coupled):
    is_separable = True

    def dual_norm(self, x):
        return x.norm()


def check_refusals(mesh, weights, grads):
    refused = [
        ({"potential": Coupled()}, "couples entries of parameter 0"),
        ({"potential": WithNorm(), "step_rule": "normalized"}, "dual norm of Coupled"),
        ({"capturable": True, "step_rule": "normalized"}, "adds up over processes"),
    ]
    for options, message in refused:
        options = {"lr": 0.1, **options}
        _, parts, _, optimizer = make(mm.MirrorDescent, weights, mesh, [Shard(0)], options)
        give(parts, grads[0])
        with pytest.raises(OptimizerError, match=message):
            optimizer.step()
    param = nn.Parameter(spread(weights[0], mesh, [Shard(0)]))
    optimizer = mm.MirrorDescent([param], lr=0.1, p=1.5, scale="rms")
    param.detach().zero_()
    give([param], [grads[0][0]])
    with pytest.raises(OptimizerError, match="starts at 0"):
        optimizer.step()


def check_groups(mesh):
    """mirror_groups finds tensors that start at 0, though no rank sees all of them."""
    model = Net()
    nn.init.zeros_(model.second.weight)
    shard(model, mesh)
    groups = mm.mirror_groups(model, p=1.1)
    mirrored = [p for one in groups if one.get("p") == 1.1 for p in one["params"]]
    assert len(mirrored) == 1, mm.describe_groups(groups)


def check_captured_steps(launch):
    """On shards capturable steps are the usual ones, and torch.compile is refused."""
    cases = (
        (mm.MirrorAdam, {"lr": 0.02, "p": 1.1}),
        (mm.MirrorAdam, {"lr": 0.02, "p": 1.5, "scale": "rms", "amsgrad": True}),
        (mm.MirrorDescent, {"lr": 0.05, "p": 1.1, "momentum": 0.9}),
    )
    with group(launch):
        mesh = init_device_mesh("cpu", (launch["count"],))
        weights, grads = draw(torch.float32)
        for kind, options in cases:
            whole, _, one, _ = make(kind, weights, mesh, [Shard(0)], options)
            _, parts, _, two = make(
                kind, weights, mesh, [Shard(0)], {**options, "capturable": True}
            )
            for step in grads:
                for params, optimizer in ((whole, one), (parts, two)):
                    give(params, step)
                    optimizer.step()
            assert compare(whole, parts, one, two, 1e-6) <= 1e-6
            for is_capturable in (False, True):
                own = {**options, "capturable": is_capturable}
                _, parts, _, two = make(kind, weights, mesh, [Shard(0)], own, num_whole=1)
                give(parts, grads[0])
                torch._dynamo.reset()
                # torch wraps the error in one of its own.
                with pytest.raises(Exception, match="takes no steps of parameters that are"):
                    torch.compile(two.step, backend="eager")()
                for part, weight in zip(parts, weights, strict=True):
                    assert torch.equal(get_whole(part.detach()), weight)
