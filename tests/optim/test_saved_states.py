"""Checkpoints of earlier versions load, and the next step is the one that followed then.

``saved_states.json`` holds for several optimizers, as version 0.1.0 wrote them before its first
release: the weights and the ``state_dict`` after three steps, and the gradients, weights and state
of the fourth.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

import mirrormargin as mm
from mirrormargin.optim.dual_state import name_potential

CASES = json.loads(Path(__file__).with_name("saved_states.json").read_text(encoding="utf-8"))
# Rounding may differ between processors and libraries; Polyak's root is found to 1e-13.
TOLERANCES = {"float32": 1e-6, "float64": 1e-11, "bfloat16": 2**-7}


def _unpack(entry: Any) -> Any:
    """Tensors were stored as ``{"dtype": ..., "values": ...}``."""
    if isinstance(entry, dict):
        if set(entry) == {"dtype", "values"}:
            return torch.tensor(entry["values"], dtype=getattr(torch, entry["dtype"]))
        return {int(k) if k.isdigit() else k: _unpack(value) for k, value in entry.items()}
    return [_unpack(value) for value in entry] if isinstance(entry, list) else entry


def _make_optimizer(case: dict[str, Any], params: list[nn.Parameter]) -> Any:
    options = dict(case["options"])
    if "potential" in options:
        options["potential"] = mm.HypentropyPotential(**options["potential"])
    return getattr(mm, case["optimizer"])(params, **options)


@pytest.mark.parametrize("name", CASES)
def test_a_checkpoint_of_an_earlier_version_gives_its_next_step(name):
    case = CASES[name]
    params = [nn.Parameter(weight) for weight in _unpack(case["weights"])]
    optimizer = _make_optimizer(case, params)
    optimizer.load_state_dict(_unpack(case["state_dict"]))
    for param, gradient in zip(params, _unpack(case["next_gradients"]), strict=True):
        param.grad = gradient
    optimizer.step(loss=0.4) if case["optimizer"] == "MirrorDescent" else optimizer.step()
    tolerance = TOLERANCES[case["dtype"]]
    torch.testing.assert_close(params, _unpack(case["next_weights"]), rtol=20 * tolerance, atol=0)
    for param, expected in zip(params, _unpack(case["next_state"]), strict=True):
        state = optimizer.state[param]
        assert state.keys() == expected.keys()
        for key, value in expected.items():
            if isinstance(value, torch.Tensor):
                torch.testing.assert_close(state[key], value, rtol=tolerance, atol=0)
            else:
                assert state[key] == _as_number(value)


@pytest.mark.parametrize("name", CASES)
def test_what_is_saved_has_the_form_that_earlier_versions_read(name):
    case = CASES[name]
    params = [nn.Parameter(weight) for weight in _unpack(case["weights"])]
    optimizer, then = _make_optimizer(case, params), _unpack(case["state_dict"])
    optimizer.load_state_dict(then)
    now = optimizer.state_dict()
    assert now.keys() == then.keys()
    for mine, other in zip(now["param_groups"], then["param_groups"], strict=True):
        assert mine.keys() >= other.keys()  # more are ignored
    for index, state in then["state"].items():
        assert now["state"][index].keys() == state.keys()
        for key, value in state.items():
            is_tensor = isinstance(value, torch.Tensor)
            same = torch.equal if is_tensor else lambda a, b: a == b  # step was an integer
            assert same(now["state"][index][key], _as_number(value)), key


def _as_number(value):
    """The name of a potential was text. A version that reads a number computes u again from w."""
    return name_potential(value) if isinstance(value, str) else value
