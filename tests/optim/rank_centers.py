"""Centres that are given on ranks: their digests, and checkpoints that leave them out."""

from __future__ import annotations

import pytest
import torch
from rank_checkpoints import load, save
from rank_tensors import compare, draw, give, group, make, spread
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import Shard

import mirrormargin as mm
from mirrormargin.errors import OptimizerError

OPTIONS = {"lr": 0.1, "p": 1.1, "center": True}
DTYPES = (torch.float32, torch.float64, torch.bfloat16)


def list_digests(optimizer, params):
    return [optimizer.state[param]["center_digest"] for param in params]


def step(params, optimizer, grads):
    for one in grads:
        give(params, one)
        optimizer.step()


def check_given(launch):
    """Whole tensors and shards are the same centre, and another one is refused by all ranks."""
    with group(launch):
        mesh = init_device_mesh("cpu", (launch["count"],))
        for dtype in DTYPES:
            weights, grads = draw(dtype)
            found = []
            for is_spread in (False, True):
                whole, parts, one, two = make(mm.MirrorAdam, weights, mesh, [Shard(0)], OPTIONS)
                own = [spread(w, mesh, [Shard(0)]) if is_spread else w for w in weights]
                one.center_at(weights)
                two.center_at(own)
                step(whole, one, grads)
                step(parts, two, grads)
                found += [list_digests(one, whole), list_digests(two, parts)]
                limit = 1e-12 if dtype is torch.float64 else 1e-6
                # Of half precision u is compared as well, which is float32.
                assert compare(whole, parts, one, two, limit) <= limit, dtype
            assert found[1:] == found[:-1], dtype
            others, _ = draw(dtype, seed=1)
            with pytest.raises(OptimizerError, match="belongs to another centre"):
                two.center_at(others)
            assert list_digests(two, parts) == found[0]
        # A centre that was copied is the same as the one that is given afterwards.
        weights, grads = draw(torch.float32)
        _, parts, _, two = make(mm.MirrorAdam, weights, mesh, [Shard(0)], OPTIONS)
        step(parts, two, grads[:1])
        two.center_at(weights)
        assert len(set(list_digests(two, parts))) == len(weights)


def hand_over(launch, flat, folder, source, start, end):
    """Load what others have saved without the centre, step, and save."""
    with group(launch):
        mesh = init_device_mesh("cpu", (launch["count"],))
        weights, grads = draw(torch.float32)
        whole, _, one, _ = make(mm.MirrorAdam, weights, mesh, [Shard(0)], OPTIONS)
        begun = weights if source is None else draw(torch.float32, seed=1)[0]
        _, parts, _, two = make(mm.MirrorAdam, begun, mesh, [Shard(0)], OPTIONS)
        two.center_at(weights)
        if source is not None:
            load(nn.ParameterList(parts), two, source, flat)
        step(whole, one, grads[:end])
        step(parts, two, grads[start:end])
        one.center_at(weights)  # which adds digests
        assert compare(whole, parts, one, two, 1e-6) <= 1e-6
        save(nn.ParameterList(parts), two, folder, flat)
        saved = two.state_dict()["state"].values()
        assert not any("center" in state for state in saved)
