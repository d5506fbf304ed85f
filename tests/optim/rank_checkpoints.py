"""Checkpoints of torch.distributed.checkpoint, saved by some ranks and loaded by others."""

from __future__ import annotations

from pathlib import Path

import torch.distributed.checkpoint as dcp
from rank_models import KINDS, check_weights, draw_batches, make_net, shard, train
from rank_tensors import group
from torch.distributed.checkpoint.state_dict import (
    StateDictOptions,
    get_state_dict,
    set_state_dict,
)
from torch.distributed.device_mesh import init_device_mesh

from tools.soak.processes import report


def save(launch, folder, name, flat):
    """Three steps on these ranks, saved with torch.distributed.checkpoint."""
    continue_training(launch, folder, name, flat, None, 0, 3)


def continue_training(launch, folder, name, flat, source, start, end):
    """Load what others have saved, step, and save again."""
    rank, count = launch["rank"], launch["count"]
    with group(launch):
        mesh = init_device_mesh("cpu", (count,))
        model = shard(make_net(), mesh)
        optimizer = KINDS[name](model.parameters())
        batches = tuple(one[:end] for one in draw_batches())
        options = StateDictOptions(flatten_optimizer_state_dict=flat)
        if source is not None:
            weights, state = get_state_dict(model, optimizer, options=options)
            held = {"model": weights, "optimizer": state}
            dcp.load(held, checkpoint_id=source)
            set_state_dict(
                model,
                optimizer,
                model_state_dict=held["model"],
                optim_state_dict=held["optimizer"],
                options=options,
            )
        train(model, optimizer, batches, rank, count, start=start)
        weights, state = get_state_dict(model, optimizer, options=options)
        dcp.save({"model": weights, "optimizer": state}, checkpoint_id=folder)
        alone = make_net()
        reference = KINDS[name](alone.parameters())
        if name == "polyak":
            reference.param_groups[0]["loss_over"] = "rank"
        train(alone, reference, batches)
        check_weights(model, alone)
    report(str(Path(folder).exists()))
