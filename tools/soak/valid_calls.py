"""A call that works, for every public function, class and method; one or two arguments of it are
then replaced by what makes no sense."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import torch

import mirrormargin as mm
from tools.soak.absurd_values import PROBLEM

__all__ = ["CALLS", "LONG", "METHODS", "NOT_CALLED", "TORCH", "find", "list_parameters"]

Arguments = dict[str, Any]

CHOSEN = PROBLEM.optimal_tokens
STEPS = np.geomspace(10, 1e6, 30)
FALLING = 1 / np.log(STEPS)
W = np.array([[1.0, -0.5], [0.25, 2.0]])

# Too large to be wrong, and too long to wait for: these are allowed and would run for hours.
LONG = {
    ("mirror_flow", "record"): {"1e6", "2**40"},
    ("mirror_flow", "decades"): {"1e6", "2**40", "1e308"},
    ("train_attention", "num_steps"): {"1e6", "2**40"},
    ("train_joint", "num_steps"): {"1e6", "2**40"},
    ("resume_training", "num_steps"): {"1e6", "2**40"},
}

# torch.optim.Optimizer reads ``params`` and refuses, in its own words, what is no tensor
# (TypeError) and an empty list (ValueError).
TORCH: dict[tuple[str, str], tuple[type[Exception], ...]] = {
    ("MirrorAdam", "params"): (TypeError, ValueError),
    ("MirrorDescent", "params"): (TypeError, ValueError),
}


@cache
def train() -> Any:
    return mm.train_attention(PROBLEM, num_steps=20, record=20, keep_path=True)


@cache
def flow() -> Any:
    return mm.mirror_flow(PROBLEM, 2.0, decades=20)


@cache
def follow_path() -> Any:
    return mm.regularization_path(PROBLEM, num_radii=3, num_starts=1)


@cache
def fit() -> Any:
    return mm.fit_rate("log", steps=STEPS, values=FALLING)


def make_model() -> torch.nn.Module:
    return torch.nn.Linear(3, 2)


def make_base() -> torch.nn.Module:
    """Always the same one."""
    base = make_model()
    with torch.no_grad():
        for weight in base.parameters():
            weight.fill_(0.5)
    return base


def make_delta() -> Any:
    return mm.SparseDelta.extract(make_model(), make_base(), keep=3)


def make_store() -> Any:
    store = mm.DeltaStore(make_base())
    store.add("task", make_delta())
    return store


def make_optimizer(kind: Callable[..., Any], **options: Any) -> Any:
    """An optimizer that has made a step, with gradients for the next."""
    model = make_model()
    optimizer = kind(model.parameters(), **options)
    for _ in range(2):
        model(torch.ones(4, 3)).square().mean().backward()
        optimizer.step()
    return optimizer


def make_schedule() -> Any:
    return mm.SparsitySchedule(make_optimizer(mm.MirrorAdam), 0.5, 10)


def _solve_arguments() -> Arguments:
    return {"tokens": PROBLEM.tokens, "queries": PROBLEM.queries, "selection": CHOSEN}


# By the name of a function or class, every argument that has no default.
CALLS: dict[str, Callable[[], Arguments]] = {
    "AttentionProblem": lambda: {
        name: getattr(PROBLEM, name) for name in ("tokens", "queries", "labels", "head")
    },
    "ElasticNetPotential": lambda: {"l1": 0.5, "delta": 2.0},
    "DeltaStore": lambda: {"model": make_model()},
    "GroupLpPotential": lambda: {"p": 1.5, "groups": "rows", "block": 2},
    "HypentropyPotential": lambda: {"beta": 1.0},
    "LpPotential": lambda: {"p": 1.5},
    "MirrorAdam": lambda: {"params": list(make_model().parameters())},
    "MirrorDescent": lambda: {"params": list(make_model().parameters()), "lr": 0.1},
    "NormalInit": dict,
    "SparsitySchedule": lambda: {
        "optimizer": make_optimizer(mm.MirrorAdam),
        "share": 0.5,
        "num_steps": 10,
    },
    "basin_statistics": lambda: {"record": train()},
    "bound_holds": lambda: {
        "log_steps": np.log(STEPS),
        "values": FALLING,
        "rate": mm.claimed_rate(3.0)[1],
        "early": (1, 3),
        "late": (3, 6),
    },
    "claimed_rate": lambda: {"p": 2.0},
    "classify_selections": lambda: {"problems": PROBLEM, "selections": CHOSEN},
    "compare_exponents": lambda: {"record": train()},
    "directional_divergence": lambda: {"target": [1.0, 0.0], "iterate": [1.0, 1.0], "p": 2.0},
    "fit_rate": lambda: {"form": "log", "steps": STEPS, "values": FALLING},
    "is_locally_optimal": lambda: {"problem": PROBLEM, "selection": CHOSEN},
    "joint_regularization_path": lambda: {
        "problem": mm.synthetic.joint_toy(),
        "num_radii": 3,
        "num_starts": 1,
    },
    "mirror_flow": lambda: {"problem": PROBLEM, "p": 2.0, "decades": 5},
    "describe_groups": lambda: {"groups": mm.mirror_groups(make_model(), p=1.5)},
    "mirror_groups": lambda: {
        "model": make_model(),
        "p": 1.5,
        "patterns": {"*bias": {"p": 2.0}},
        "embeddings": False,
        "rest": {"lr": 0.1},
    },
    "param_groups": lambda: {"model": make_model(), "patterns": {"*": {"p": 1.5}}},
    "regularization_path": lambda: {"problem": PROBLEM, "num_radii": 3, "num_starts": 1},
    "resume_training": lambda: {"record": train()},
    "solve_attention_svm": _solve_arguments,
    "solve_decoder_svm": lambda: {"features": PROBLEM.queries, "labels": PROBLEM.labels},
    "solve_many": lambda: {"problems": PROBLEM, "selections": CHOSEN},
    "solve_nuclear_svm": _solve_arguments,
    "train_attention": lambda: {"problems": PROBLEM, "num_steps": 20, "record": 5},
    "train_joint": lambda: {"problems": PROBLEM, "num_steps": 20, "record": 5},
}
CALLS |= {f"synthetic.{name}": dict for name in mm.synthetic.GENERATORS}
for _needs_seed in ("unit_sphere", "equal_scores", "signal_noise"):
    CALLS[f"synthetic.{_needs_seed}"] = lambda: {"seed": 1}

# By the name of a method, the object and its arguments.
METHODS: dict[str, Callable[[], tuple[Any, Arguments]]] = {
    **{
        f"AttentionProblem.{name}": lambda: (PROBLEM, {"W": W})
        for name in (
            *("attention", "selected_tokens", "margins", "loss", "loss_gap", "log_loss_gap"),
            *("gradient", "scaled_gradient", "logits"),
        )
    },
    "AttentionRecord.divergence_from": lambda: (train(), {"target": W}),
    "AttentionRecord.fit_rate": lambda: (train(), {"claimed": None}),
    "AttentionRecord.save": lambda: (train(), {"folder": "saved"}),
    "AttentionRecord.load": lambda: (mm.AttentionRecord, {"folder": _save(train())}),
    "DeltaStore.add": lambda: (make_store(), {"name": "other", "delta": make_delta()}),
    "DeltaStore.remove": lambda: (make_store(), {"name": "task"}),
    "DeltaStore.run": lambda: (make_store(), {"inputs": torch.ones(1, 3), "tasks": ["task"]}),
    "DeltaStore.switch": lambda: (make_store(), {"name": "task"}),
    "FlowRecord.fit_rate": lambda: (flow(), {}),
    "FlowRecord.save": lambda: (flow(), {"folder": "saved"}),
    "FlowRecord.load": lambda: (mm.FlowRecord, {"folder": _save(flow())}),
    "RegularizationPath.save": lambda: (follow_path(), {"folder": "saved"}),
    "RegularizationPath.load": lambda: (mm.RegularizationPath, {"folder": _save(follow_path())}),
    "SparseDelta.apply": lambda: (make_delta(), {"model": make_base()}),
    "SparseDelta.compare": lambda: (make_delta(), {"other": make_delta()}),
    "SparseDelta.extract": lambda: (
        mm.SparseDelta,
        {"model": make_model(), "base": make_base(), "keep": 3},
    ),
    "SparseDelta.keep": lambda: (make_delta(), {"num_values": 2}),
    "SparseDelta.load": lambda: (mm.SparseDelta, {"path": _save_delta()}),
    "SparseDelta.remove": lambda: _remove_delta(),
    "SparseDelta.save": lambda: (make_delta(), {"path": "saved"}),
    "RateFit.predict": lambda: (fit(), {"steps": [10.0, 100.0]}),
    **{
        f"LpPotential.{name}": lambda name=name: (
            mm.LpPotential(1.5),
            {"gradient" if name == "dual_norm" else "weight": torch.ones(3)}
            if name not in ("to_primal", "bregman")
            else {"dual": torch.ones(3)}
            if name == "to_primal"
            else {"first": torch.ones(3), "second": torch.ones(3)},
        )
        for name in ("bind", "value", "to_dual", "to_primal", "bregman", "norm", "dual_norm")
    },
    **{
        f"GroupLpPotential.{name}": lambda name=name: (
            mm.GroupLpPotential(1.5),
            {"gradient" if name == "dual_norm" else "weight": torch.ones(3, 2)},
        )
        for name in ("value", "to_dual", "norm", "dual_norm")
    },
    "GroupLpPotential.to_primal": lambda: (
        mm.GroupLpPotential(1.5),
        {"dual": torch.ones(3, 2)},
    ),
    "GroupLpPotential.bregman": lambda: (
        mm.GroupLpPotential(1.5),
        {"first": torch.ones(3, 2), "second": torch.ones(3, 2)},
    ),
    "ElasticNetPotential.to_primal": lambda: (mm.ElasticNetPotential(0.5), {"dual": torch.ones(3)}),
    "HypentropyPotential.to_dual": lambda: (mm.HypentropyPotential(), {"weight": torch.ones(3)}),
    "HypentropyPotential.to_primal": lambda: (mm.HypentropyPotential(), {"dual": torch.ones(3)}),
    "MirrorAdam.step": lambda: (make_optimizer(mm.MirrorAdam), {}),
    "MirrorAdam.add_param_group": lambda: (make_optimizer(mm.MirrorAdam), _new_group()),
    "MirrorAdam.center_at": lambda: (
        mm.MirrorAdam([torch.nn.Parameter(torch.ones(3))], center=True),
        {"weights": [torch.ones(3)]},
    ),
    "MirrorAdam.load_state_dict": lambda: _load(mm.MirrorAdam, p=1.5),
    "MirrorDescent.step": lambda: (make_optimizer(mm.MirrorDescent, lr=0.1), {}),
    "MirrorDescent.add_param_group": lambda: (
        make_optimizer(mm.MirrorDescent, lr=0.1),
        _new_group(),
    ),
    "MirrorDescent.load_state_dict": lambda: _load(mm.MirrorDescent, lr=0.1, p=1.3, momentum=0.9),
    "SparsitySchedule.step": lambda: (make_schedule(), {}),
    "SparsitySchedule.rank": lambda: (make_schedule(), {"share": 0.3}),
    "SparsitySchedule.share_at": lambda: (make_schedule(), {"step": 3}),
    "SparsitySchedule.load_state_dict": lambda: (
        make_schedule(),
        {"state_dict": make_schedule().state_dict()},
    ),
    "NormalInit.draw": lambda: (
        mm.NormalInit(),
        {"num_problems": 1, "exponents": np.array([2.0]), "shape": (2, 2)},
    ),
}


def _new_group() -> Arguments:
    return {"param_group": {"params": [torch.nn.Parameter(torch.ones(2))], "p": 1.5}}


def _load(kind: Callable[..., Any], **options: Any) -> tuple[Any, Arguments]:
    saved = make_optimizer(kind, **options).state_dict()
    return make_optimizer(kind, **options), {"state_dict": saved}


def _save(record: Any) -> str:
    record.save("kept")
    return str(Path("kept").absolute())


def _save_delta() -> str:
    make_delta().save("kept.safetensors")
    return str(Path("kept.safetensors").absolute())


def _remove_delta() -> tuple[Any, Arguments]:
    delta, model = make_delta(), make_base()
    delta.apply(model)
    return delta, {"model": model}


# Records and contracts are made by the functions above, and an enumeration has its own errors.
NOT_CALLED = {
    "AttentionRecord",
    "FlowRecord",
    "Potential",
    "RateFit",
    "RateVerdict",
    "RegularizationPath",
    "SparseDelta",
    "synthetic",
}


def find(name: str) -> tuple[Callable[..., Any], Arguments]:
    """What to call, and with what it works."""
    if name in METHODS:
        owner, arguments = METHODS[name]()
        return getattr(owner, name.rpartition(".")[2]), arguments
    found: Any = mm
    for part in name.split("."):
        found = getattr(found, part)
    return found, CALLS[name]()


def list_parameters(name: str) -> Iterator[inspect.Parameter]:
    """The arguments of a call that can be given by name."""
    found: Any = mm
    for part in name.split("."):
        found = getattr(found, part)
    for parameter in inspect.signature(found).parameters.values():
        if parameter.name != "self" and parameter.kind is not parameter.VAR_KEYWORD:
            yield parameter
