"""Checkpoints of torch.distributed.checkpoint, saved by some ranks and loaded by others."""

from __future__ import annotations

import itertools

import torch
import torch.distributed.checkpoint as dcp
from rank_models import (
    KINDS,
    check_weights,
    draw_batches,
    make_net,
    shard,
    train,
    train_alone,
)
from rank_tensors import compare, draw, give, group, make
from torch import nn
from torch.distributed.checkpoint.state_dict import (
    StateDictOptions,
    get_state_dict,
    set_state_dict,
)
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import Shard

import mirrormargin as mm

# What is more in the state than u and buffers of the weights' dtype.
STATES = {
    "rms": (mm.MirrorDescent, {"lr": 0.05, "p": 1.1, "scale": "rms", "momentum": 0.9}),
    "normalized-rms": (
        mm.MirrorDescent,
        {"lr": 0.05, "p": 1.5, "scale": "rms", "step_rule": "normalized"},
    ),
    "amsgrad": (mm.MirrorAdam, {"lr": 0.02, "p": 1.1, "scale": "rms", "amsgrad": True}),
    "centred": (mm.MirrorAdam, {"lr": 0.1, "p": 1.1, "center": True}),
    "centred-momentum": (mm.MirrorDescent, {"lr": 0.1, "p": 1.5, "center": True, "momentum": 0.9}),
    "bfloat16": (
        mm.MirrorAdam,
        {"lr": 0.02, "p": 1.1, "amsgrad": True, "state_dtype": torch.bfloat16},
    ),
    "bfloat16-momentum": (
        mm.MirrorDescent,
        {"lr": 0.05, "p": 1.1, "momentum": 0.9, "state_dtype": torch.bfloat16},
    ),
}


def save(model, optimizer, folder, flat):
    options = StateDictOptions(flatten_optimizer_state_dict=flat)
    weights, state = get_state_dict(model, optimizer, options=options)
    dcp.save({"model": weights, "optimizer": state}, checkpoint_id=folder)


def load(model, optimizer, folder, flat):
    options = StateDictOptions(flatten_optimizer_state_dict=flat)
    weights, state = get_state_dict(model, optimizer, options=options)
    held = {"model": weights, "optimizer": state}
    dcp.load(held, checkpoint_id=folder)
    set_state_dict(
        model,
        optimizer,
        model_state_dict=held["model"],
        optim_state_dict=held["optimizer"],
        options=options,
    )


def train_models(launch, names, folder, source, start, end):
    """Load what others have saved, if they have, step, and save again."""
    rank, count = launch["rank"], launch["count"]
    with group(launch):
        mesh = init_device_mesh("cpu", (count,))
        for name, flat in itertools.product(names, (False, True)):
            model = shard(make_net(), mesh)
            optimizer = KINDS[name](model.parameters())
            batches = tuple(one[:end] for one in draw_batches())
            if source is not None:
                load(model, optimizer, f"{source}/{name}-{flat}", flat)
            train(model, optimizer, batches, rank, count, start=start)
            save(model, optimizer, f"{folder}/{name}-{flat}", flat)
            check_weights(model, train_alone(name, batches))


def step_tensors(launch, folder, source, start, end):
    """The same for states of all sorts; who loads them has begun with other weights."""
    with group(launch):
        mesh = init_device_mesh("cpu", (launch["count"],))
        for name, flat in itertools.product(STATES, (False, True)):
            kind, options = STATES[name]
            weights, grads = draw(torch.float32)
            whole, _, one, _ = make(kind, weights, mesh, [Shard(0)], options)
            begun = weights if source is None else draw(torch.float32, seed=1)[0]
            _, parts, _, two = make(kind, begun, mesh, [Shard(0)], options)
            if source is not None:
                load(nn.ParameterList(parts), two, f"{source}/{name}-{flat}", flat)
            for step in grads[:end]:
                give(whole, step)
                one.step()
            for step in grads[start:end]:
                give(parts, step)
                two.step()
            difference = compare(whole, parts, one, two, 1e-6)
            assert difference <= (0 if "bfloat16" in name else 1e-6), (name, flat, difference)
            save(nn.ParameterList(parts), two, f"{folder}/{name}-{flat}", flat)
