"""The hooks of ``torch.optim.Optimizer`` are called, and what they return is used."""

from __future__ import annotations

import copy

import pytest
import torch
from catalogue import bits, make_params, set_gradients

from mirrormargin import HypentropyPotential, MirrorAdam, MirrorDescent, OptimizerError

KINDS = pytest.mark.parametrize("kind", [MirrorDescent, MirrorAdam])


@KINDS
def test_step_hooks_surround_every_step(kind):
    params = make_params()
    optimizer = kind(params, lr=0.05, p=1.3)
    calls = []
    before = optimizer.register_step_pre_hook(lambda *given: calls.append(("pre", bits(params))))
    optimizer.register_step_post_hook(lambda *given: calls.append(("post", bits(params))))
    start = bits(params)
    set_gradients(params, 0)
    optimizer.step()
    assert calls == [("pre", start), ("post", bits(params))]
    before.remove()
    optimizer.step()
    assert [name for name, _ in calls] == ["pre", "post", "post"]


@KINDS
def test_a_hook_may_replace_what_is_saved(kind):
    params = make_params()
    optimizer = kind(params, lr=0.05, potential=HypentropyPotential(0.3))
    order = []
    optimizer.register_state_dict_pre_hook(lambda *given: order.append("pre"))
    optimizer.register_state_dict_post_hook(lambda _, saved: {**saved, "note": "mine"})
    saved = optimizer.state_dict()
    assert order == ["pre"]
    assert saved["note"] == "mine"
    assert saved["param_groups"][0]["potential"] == "HypentropyPotential(beta=0.3)"
    optimizer.register_state_dict_post_hook(lambda *given: {"state": {}})
    assert optimizer.state_dict() == {"state": {}}


@KINDS
def test_what_a_hook_makes_of_a_checkpoint_is_loaded_in_its_own_precision(kind):
    params = make_params(torch.bfloat16)
    optimizer = kind(params, lr=0.05, p=1.3)
    set_gradients(params, 0)
    optimizer.step()
    saved = copy.deepcopy(optimizer.state_dict())
    seen = []

    def halve(_, given):
        state = {
            index: {**entries, "dual": entries["dual"] / 2}
            for index, entries in given["state"].items()
        }
        return {**given, "state": state}

    def look(loaded):
        seen.extend(loaded.state[param]["dual"] for param in params)

    optimizer.register_load_state_dict_pre_hook(halve)
    optimizer.register_load_state_dict_post_hook(look)
    optimizer.load_state_dict(saved)
    for index, dual in enumerate(seen):
        assert dual.dtype == torch.float32
        assert torch.equal(dual, saved["state"][index]["dual"] / 2)


def test_what_a_hook_makes_of_a_checkpoint_is_checked():
    params = make_params()
    optimizer = MirrorAdam(params, p=1.3)
    set_gradients(params, 0)
    optimizer.step()
    saved = copy.deepcopy(optimizer.state_dict())
    before = bits([optimizer.state[param]["dual"] for param in params])
    handle = optimizer.register_load_state_dict_pre_hook(lambda _, given: {"state": {}})
    with pytest.raises(OptimizerError, match="give what state_dict"):
        optimizer.load_state_dict(saved)
    assert before == bits([optimizer.state[param]["dual"] for param in params])
    handle.remove()
    optimizer.load_state_dict(saved)
