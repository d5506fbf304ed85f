"""One training, from its data to its scores."""

from __future__ import annotations

import tempfile
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

from mirrormargin.data import Split, order_epoch
from mirrormargin.training import evaluate, find_configuration, load_training_data
from mirrormargin.training.building import build_model, find_factor
from mirrormargin.training.config import TrainingConfig
from tools.delta_trainings.trainings import RECORDS, Records, Trial, find_full, find_method

__all__ = ["train"]

FULL = Path(__file__).parents[2] / "campaign" / "deltas"
BATCH, WARMUP = 32, 0.1
MASK_BATCHES = 8
EVALUATED = 2_000  # examples of a part at most


def train(trial: Trial, data_dir: str | None) -> dict[str, Any]:
    """Train, store, read back and score: a line of the records."""
    torch.set_num_threads(1)
    began = time.monotonic()
    seeds = {f"seeds.{one}": trial.seed for one in ("init", "order", "dropout")}
    config = find_configuration(trial.configuration, seeds)
    data = load_training_data(config, data_dir=data_dir)
    method = find_method(trial, FULL)
    if method.dropout is not None:
        config = replace(config, model=replace(config.model, dropout=method.dropout))
    model, base = build_model(config, data), build_model(config, data).eval()
    method.num_steps = trial.num_steps
    if trial.method == "lottery" and not method.full.is_file():
        train(find_full(trial, Records(RECORDS)), data_dir)
    generator = torch.Generator().manual_seed(trial.seed)
    order = torch.randperm(len(data.train), generator=generator)[: BATCH * MASK_BATCHES]

    def list_losses(model: nn.Module) -> Iterator[Tensor]:
        for rows in order.split(BATCH):
            yield _compute_loss(model, data.train, rows)

    with torch.random.fork_rng([]):
        torch.manual_seed(trial.seed)
        optimizer = method.start(model, list_losses)
        rates = method.rates = [group["lr"] for group in optimizer.param_groups]
        losses = _train(trial, config, data, model, method, optimizer, rates)
    minutes = round((time.monotonic() - began) / 60, 2)
    model.eval()
    if trial.method == "full" and trial.is_final:
        _keep_full(trial, model)
    scores = []
    with tempfile.TemporaryDirectory() as folder:
        for stored in method.store(model, base, Path(folder)):
            row: dict[str, Any] = {
                "label": stored.label,
                "numbers": stored.numbers,
                "bytes": stored.bytes,
            }
            for name in trial.parts:
                part = data.validation if name == "validation" else data.test
                with torch.autocast("cpu", torch.bfloat16, enabled=not trial.is_final):
                    found = evaluate(stored.model, _sort_by_length(part))
                row[name] = {m: round(float(getattr(found, m)), 4) for m in config.task.measures}
            scores.append(row)
    return {
        "key": trial.key,
        "digest": config.digest(),
        "steps": trial.num_steps,
        "loss": round(sum(losses[-20:]) / max(len(losses[-20:]), 1), 4),
        "minutes": minutes,
        "scores": scores,
    }


def _compute_loss(model: nn.Module, split: Split, rows: Tensor) -> Tensor:
    """Of a batch, with activations in bfloat16."""
    with torch.autocast("cpu", torch.bfloat16):
        logits = model(split.inputs[rows])
    return functional.cross_entropy(logits.float(), split.labels[rows].long())


def _count_tokens(split: Split) -> Tensor:
    return (split.inputs != 0).sum(dim=1)


def _sort_by_length(part: Split) -> Split:
    """The first examples, the shortest one first: so that little padding is computed."""
    part = Split(part.inputs[:EVALUATED], part.labels[:EVALUATED])
    order = _count_tokens(part).argsort()
    return Split(part.inputs[order], part.labels[order])


def _keep_full(trial: Trial, model: nn.Module) -> None:
    """For the masks of LT-SFT."""
    from safetensors.torch import save_file

    FULL.mkdir(parents=True, exist_ok=True)
    state = {name: tensor.contiguous() for name, tensor in model.state_dict().items()}
    beside = FULL / f"{trial.name_full()}.new"
    save_file(state, beside)
    beside.replace(FULL / f"{trial.name_full()}.safetensors")


def _train(
    trial: Trial,
    config: TrainingConfig,
    data: Any,
    model: nn.Module,
    method: Any,
    optimizer: torch.optim.Optimizer,
    rates: list[float],
) -> list[float]:
    model.train()
    losses: list[float] = []
    step, epoch = 0, 0
    lengths = _count_tokens(data.train)
    while step < trial.num_steps:
        for rows in order_epoch(config.seeds.order, epoch, len(data.train), BATCH, lengths):
            if step == trial.num_steps:
                break
            factor = find_factor("cosine", WARMUP, step, trial.num_steps)
            for group, rate in zip(optimizer.param_groups, rates, strict=True):
                group["lr"] = rate * factor
            optimizer.zero_grad()
            loss = _compute_loss(model, data.train, rows)
            loss.backward()
            method.after_backward(model)
            optimizer.step()
            method.after_step(model, factor)
            losses.append(float(loss.detach()))
            step += 1
        epoch += 1
    return losses
