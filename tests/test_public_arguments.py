"""Every public function and class answers an absurd argument with an error of our own.

For each of them there is a call that works; every argument in turn is replaced by values that make
no sense. The call must then still work, or raise a :class:`MirrorMarginError` that names what is
wrong. What torch checks for its own arguments is listed in :data:`TORCH`.
"""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
import torch

import mirrormargin as mm

MODEL = torch.nn.Linear(3, 2)
PROBLEM = mm.synthetic.unit_sphere(1, num_sequences=2, num_tokens=3, dim=2)
CHOSEN = PROBLEM.optimal_tokens
STEPS = np.geomspace(10, 1e6, 30)
FALLING = 1 / np.log(STEPS)

ABSURD: dict[str, Any] = {
    "None": None,
    "a text": "x",
    "an empty text": "",
    "a number as text": "2",
    "bytes": b"2",
    "an object": object(),
    "a class": int,
    "a function": len,
    "True": True,
    "-1": -1,
    "0": 0,
    "a fraction": 0.5,
    "a complex number": 2 + 1j,
    "nan": math.nan,
    "inf": math.inf,
    "1e6": 1e6,
    "1e308": 1e308,
    "10**400": 10**400,
    "an empty list": [],
    "a list of texts": ["a", "b"],
    "a list of objects": [object(), None],
    "a ragged list": [[1.0], [1.0, 2.0]],
    "a list of numbers": [1.0, 2.0, 3.0, 4.0, 5.0],
    "a dictionary": {"a": 1},
    "a set": {1, 2},
    "an array of nan": np.full((2, 2), np.nan),
    "an array of 1e308": np.full((2, 2), 1e308),
    "an array of objects": np.array([None, "a"], dtype=object),
    "an array of complex numbers": np.ones((2, 2), complex),
    "an array of four axes": np.ones((1, 2, 3, 4)),
    "an empty array": np.zeros((0, 2)),
    "a tensor": torch.ones(3),
    "a complex tensor": torch.ones(2, dtype=torch.complex64),
    "a problem": PROBLEM,
    "a list of problems": [PROBLEM],
    "a list of a problem and a number": [PROBLEM, 3],
    "a module": np,
}

# Too large to be wrong, and too long to wait for: these are allowed and would run for hours.
LONG = {
    ("mirror_flow", "record"): {"1e6"},
    ("train_attention", "num_steps"): {"1e6"},
    ("train_joint", "num_steps"): {"1e6"},
    ("resume_training", "num_steps"): {"1e6"},
}


# torch.optim.Optimizer reads ``params`` and refuses, in its own words, what is no tensor
# (TypeError) and an empty list (ValueError).
TORCH: dict[tuple[str, str], tuple[type[Exception], ...]] = {
    ("MirrorAdam", "params"): (TypeError, ValueError),
    ("MirrorDescent", "params"): (TypeError, ValueError),
}

# What a function of the caller raises is the caller's.
FUNCTIONS = {"progress", "rate"}


def _trained() -> Any:
    return mm.train_attention(PROBLEM, num_steps=20, record=20)


def _joint() -> dict[str, Any]:
    return {"problem": mm.synthetic.joint_toy(), "num_radii": 3, "num_starts": 1}


# A call that works, with every argument that has no default.
CALLS: dict[str, Callable[[], dict[str, Any]]] = {
    "AttentionProblem": lambda: {
        name: getattr(PROBLEM, name) for name in ("tokens", "queries", "labels", "head")
    },
    "HypentropyPotential": lambda: {"beta": 1.0},
    "LpPotential": lambda: {"p": 1.5},
    "MirrorAdam": lambda: {"params": list(MODEL.parameters())},
    "MirrorDescent": lambda: {"params": list(MODEL.parameters()), "lr": 0.1},
    "NormalInit": dict,
    "basin_statistics": lambda: {"record": _trained()},
    "bound_holds": lambda: {
        "log_steps": np.log(STEPS),
        "values": FALLING,
        "rate": mm.claimed_rate(3.0)[1],
        "early": (1, 3),
        "late": (3, 6),
    },
    "claimed_rate": lambda: {"p": 2.0},
    "classify_selections": lambda: {"problems": PROBLEM, "selections": CHOSEN},
    "compare_exponents": lambda: {"record": _trained()},
    "directional_divergence": lambda: {"target": [1.0, 0.0], "iterate": [1.0, 1.0], "p": 2.0},
    "fit_rate": lambda: {"form": "log", "steps": STEPS, "values": FALLING},
    "is_locally_optimal": lambda: {"problem": PROBLEM, "selection": CHOSEN},
    "joint_regularization_path": _joint,
    "mirror_flow": lambda: {"problem": PROBLEM, "p": 2.0, "decades": 5},
    "param_groups": lambda: {"model": MODEL, "patterns": {"*": {"p": 1.5}}},
    "regularization_path": lambda: {"problem": PROBLEM, "num_radii": 3, "num_starts": 1},
    "resume_training": lambda: {"record": _trained()},
    "solve_attention_svm": lambda: {
        "tokens": PROBLEM.tokens,
        "queries": PROBLEM.queries,
        "selection": CHOSEN,
    },
    "solve_decoder_svm": lambda: {"features": PROBLEM.queries, "labels": PROBLEM.labels},
    "solve_many": lambda: {"problems": PROBLEM, "selections": CHOSEN},
    "solve_nuclear_svm": lambda: {
        "tokens": PROBLEM.tokens,
        "queries": PROBLEM.queries,
        "selection": CHOSEN,
    },
    "train_attention": lambda: {"problems": PROBLEM, "num_steps": 20, "record": 5},
    "train_joint": lambda: {"problems": PROBLEM, "num_steps": 20, "record": 5},
}
CALLS |= {f"synthetic.{name}": dict for name in mm.synthetic.GENERATORS}
for needs_seed in ("unit_sphere", "equal_scores", "signal_noise"):
    CALLS[f"synthetic.{needs_seed}"] = lambda: {"seed": 1}

# Records and contracts are made by the functions above, and an enumeration has its own errors.
NOT_CALLED = {
    "AttentionRecord",
    "FlowRecord",
    "Potential",
    "RateFit",
    "RateVerdict",
    "RegularizationPath",
    "synthetic",
}


def _find(name: str) -> Callable[..., Any]:
    found: Any = mm
    for part in name.split("."):
        found = getattr(found, part)
    return found


def _cases() -> Iterator[Any]:
    for name in CALLS:
        for parameter in inspect.signature(_find(name)).parameters:
            yield pytest.param(name, parameter, id=f"{name}-{parameter}")


def test_every_public_function_and_class_has_a_call():
    errors = {name for name in mm.__all__ if name.endswith(("Error", "Warning", "Interrupted"))}
    assert set(mm.__all__) - errors - NOT_CALLED == {name for name in CALLS if "." not in name}


@pytest.mark.parametrize("name", CALLS)
def test_the_call_works(name):
    _find(name)(**CALLS[name]())


@pytest.mark.parametrize(("name", "parameter"), list(_cases()))
def test_an_absurd_argument_works_or_raises_our_error(name, parameter):
    function, arguments = _find(name), CALLS[name]()
    allowed = (mm.MirrorMarginError, *TORCH.get((name, parameter), ()))
    wrong = []
    for what, value in ABSURD.items():
        if what in LONG.get((name, parameter), ()) or (parameter in FUNCTIONS and callable(value)):
            continue
        try:
            function(**{**arguments, parameter: value})
        except allowed as error:
            if not str(error).strip():
                wrong.append(f"{what}: an error without a message")
        except Exception as error:
            wrong.append(f"{what}: {type(error).__name__}: {str(error)[:120]}")
    assert not wrong, "\n".join(wrong)
