"""Bad input: a clear message, and parameters untouched."""

from __future__ import annotations

import math

import pytest
import torch
from catalogue import PATHS, bits, make_params, set_gradients
from torch import nn

from mirrormargin import (
    HypentropyPotential,
    LpPotential,
    MirrorAdam,
    MirrorDescent,
    NonFiniteGradientError,
    OptimizerError,
    param_groups,
)

BAD_DESCENT = [
    ({"lr": -1.0}, "lr is -1.0: give a number of at least 0"),
    ({"lr": math.nan}, "lr is nan: give a number"),
    ({"lr": math.inf}, "lr is inf: give a number"),
    ({"lr": "fast"}, "lr is 'fast': give a number"),
    ({"p": 1.0}, "p is 1.0: give a number above 1 and below inf"),
    ({"p": 0.5}, "p is 0.5: give a number above 1"),
    ({"p": math.inf}, "p is inf: give a number above 1 and below inf"),
    ({"p": math.nan}, "p is nan: give a number"),
    ({"p": "two"}, "p is 'two': give a number"),
    (
        {"step_rule": "adaptive"},
        "step_rule is 'adaptive': give one of constant, normalized, polyak",
    ),
    ({"norm_over": "model"}, "norm_over is 'model': give one of tensor, group"),
    ({"polyak": "sps"}, "polyak is 'sps': give one of bregman, dual_norm"),
    ({"momentum": 1.0}, "momentum is 1.0: give a number of at least 0 and below 1"),
    ({"momentum": -0.1}, "momentum is -0.1: give"),
    ({"nesterov": True}, "nesterov=True needs momentum"),
    ({"weight_decay": -0.1}, "weight_decay is -0.1: give a number of at least 0"),
    ({"scale": 0.0}, "scale is 0.0: give a number above 0"),
    ({"scale": "std"}, "scale is 'std': give a number above 0; \"rms\""),
    ({"f_min": math.inf}, "f_min is inf: give a number"),
    ({"max_lr": 0.0}, "max_lr is 0.0: give a number above 0; or None"),
    ({"maximize": True, "step_rule": "polyak"}, "minimize -loss"),
    ({"nonfinite": "ignore"}, "nonfinite is 'ignore': give one of propagate, raise, skip"),
    ({"fused": True, "foreach": True}, "both True: choose one path"),
    ({"potential": "l1"}, "potential is 'l1': give a Potential, or None"),
    ({"potential": HypentropyPotential(1.0), "p": 1.5}, "leave them out"),
    ({"potential": HypentropyPotential(1.0), "step_rule": "normalized"}, "has no dual norm"),
    ({"potential": HypentropyPotential(1.0), "clip": 1.0}, "has no dual norm, which clip needs"),
    ({"clip": 0.0}, "clip is 0.0: give a number above 0; or None"),
    ({"clip": 1.0, "step_rule": "normalized"}, "which divides by the norm: use clip=None"),
    ({"clip": 1.0, "step_rule": "polyak"}, "which needs the loss's own gradient: use clip=None"),
    ({"caution": True}, "caution=True needs momentum"),
    ({"state_dtype": torch.float16}, r"state_dtype is torch.float16: give torch.float32, torch.b"),
    ({"state_dtype": torch.bfloat16, "fused": True}, "fused=True keeps no state in bfloat16"),
    ({"capturable": True, "fused": True}, "plain torch operations: use fused=None"),
    ({"capturable": True, "nonfinite": "skip"}, "nonfinite is 'skip', use \"propagate\""),
    ({"capturable": True, "step_rule": "polyak"}, "Polyak's step is found by reading"),
]
BAD_ADAM = [
    ({"betas": (1.0, 0.9)}, r"betas\[0\] is 1.0: give a number of at least 0 and below 1"),
    ({"betas": 0.9}, "betas is 0.9: give two numbers"),
    ({"eps": -1e-8}, "eps is -1e-08: give a number of at least 0"),
    ({"p": 1.0}, "p is 1.0: give a number above 1 and below inf"),
    ({"norm_over": "model"}, "norm_over is 'model': give one of tensor, group"),
    ({"caution": "yes"}, "caution is 'yes': give"),
]


@pytest.mark.parametrize(("options", "message"), BAD_DESCENT)
def test_each_wrong_option_of_mirror_descent_is_named(options, message):
    with pytest.raises(OptimizerError, match=message):
        MirrorDescent(make_params(), **{"lr": 0.1, **options})


@pytest.mark.parametrize(("options", "message"), BAD_ADAM)
def test_each_wrong_option_of_mirror_adam_is_named(options, message):
    with pytest.raises(OptimizerError, match=message):
        MirrorAdam(make_params(), **options)


def test_options_of_added_groups_are_checked():
    params = make_params()
    optimizer = MirrorDescent(params[:1], lr=0.1, p=1.2)
    with pytest.raises(OptimizerError, match=r"p is 1\.0: give a number above 1"):
        optimizer.add_param_group({"params": params[1:2], "p": 1.0})
    assert len(optimizer.param_groups) == 1
    optimizer.add_param_group({"params": params[1:2], "p": 3.0})
    assert [group["p"] for group in optimizer.param_groups] == [1.2, 3.0]


@pytest.mark.parametrize(
    ("name", "value", "message"),
    [
        ("p", 1.0, "p is 1.0: give a number above 1"),
        ("scale", -1.0, "scale is -1.0: give"),
        ("step_rule", "nonsense", "step_rule is 'nonsense': give"),
        ("lr", -1.0, "lr is -1.0: give"),
    ],
)
def test_an_option_edited_to_nonsense_is_refused_before_any_step(name, value, message):
    params = make_params()
    optimizer = MirrorDescent([{"params": params[:2]}, {"params": params[2:]}], lr=0.1, p=1.2)
    set_gradients(params, 0)
    before = bits(params)
    optimizer.param_groups[1][name] = value
    with pytest.raises(OptimizerError, match=message):
        optimizer.step()
    assert bits(params) == before


def test_a_scale_that_float32_cannot_hold_is_refused_before_any_step():
    params = [nn.Parameter(torch.full((3,), w)) for w in (0.5, 1e-4)]
    optimizer = MirrorDescent(params, lr=1e-3, p=101.0, scale="rms")
    for param in params:
        param.grad = torch.ones(3)
    before = bits(params)
    with pytest.raises(OptimizerError, match="use a smaller p, or float64"):
        optimizer.step()
    assert bits(params) == before


def test_groups_may_come_as_iterators():
    complex_weight = nn.Parameter(torch.ones(2, dtype=torch.complex64))
    with pytest.raises(OptimizerError, match="view_as_real"):
        MirrorDescent([{"params": iter([complex_weight])}], lr=0.1)
    optimizer = MirrorDescent([{"params": iter(make_params())}], lr=0.1)
    assert len(optimizer.param_groups[0]["params"]) == 5


@pytest.mark.parametrize("path", PATHS)
@pytest.mark.parametrize("kind", [MirrorDescent, MirrorAdam])
@pytest.mark.parametrize("bad", [math.nan, math.inf])
def test_nonfinite_gradients_raise_skip_or_propagate(path, kind, bad):
    outcomes = {}
    for policy in ("raise", "skip", "propagate"):
        params = make_params()
        names = [(f"layer.{i}", param) for i, param in enumerate(params)]
        optimizer = kind(names, lr=0.1, p=1.3, nonfinite=policy, **PATHS[path])
        set_gradients(params, 0)
        params[3].grad[1, 2, 3] = bad
        before = bits(params)
        if policy == "raise":
            with pytest.raises(NonFiniteGradientError, match=r"'layer\.3' holds nan or inf"):
                optimizer.step()
        else:
            optimizer.step()
        outcomes[policy] = bits(params) == before
        if policy == "propagate":
            assert not bool(params[3][1, 2, 3].isfinite())
            assert bool(params[0].isfinite().all())
    assert outcomes == {"raise": True, "skip": True, "propagate": False}


@pytest.mark.parametrize("path", PATHS)
def test_nonfinite_gradients_poison_a_normalized_step_alike_on_every_path(path):
    params = make_params()
    optimizer = MirrorDescent(params, lr=0.1, p=1.3, step_rule="normalized", **PATHS[path])
    set_gradients(params, 0)
    params[0].grad[0, 0], params[1].grad[0] = math.inf, math.nan
    before = params[0].detach().clone()
    optimizer.step()
    assert bool(params[0][0, 0].isnan())
    assert torch.equal(params[0][1:], before[1:])  # finite / inf = 0: no step
    assert bool(params[1].isnan().all())
    assert bool(params[4].isfinite().all())


def test_sparse_gradients_get_a_clear_error():
    embedding = nn.Embedding(10, 4, sparse=True)
    optimizer = MirrorDescent(embedding.named_parameters(), lr=0.1, p=1.1)
    embedding(torch.tensor([1, 2])).sum().backward()
    before = bits([embedding.weight])
    with pytest.raises(OptimizerError, match="'weight' has a sparse gradient"):
        optimizer.step()
    assert bits([embedding.weight]) == before


def test_complex_parameters_are_refused():
    with pytest.raises(OptimizerError, match="view_as_real"):
        MirrorDescent([nn.Parameter(torch.ones(2, dtype=torch.complex64))], lr=0.1)


def test_fused_is_refused_where_it_cannot_be():
    with pytest.raises(
        OptimizerError, match="fused=True needs dense float32, bfloat16 or float16 CPU"
    ):
        MirrorDescent(make_params(torch.float64), lr=0.1, fused=True)
    with pytest.raises(OptimizerError, match="fused=True needs"):
        MirrorAdam(make_params(), fused=True, potential=HypentropyPotential())


def test_narrow_state_is_refused_for_wide_weights():
    with pytest.raises(OptimizerError, match="narrower than parameter 0, which is float64"):
        MirrorAdam(make_params(torch.float64), state_dtype=torch.bfloat16)


def test_an_lp_potential_sets_p_and_scale():
    optimizer = MirrorDescent(make_params(), lr=0.1, potential=LpPotential(1.4, scale=0.2))
    group = optimizer.param_groups[0]
    assert (group["p"], group["scale"], group["potential"]) == (1.4, 0.2, None)
    for contradiction in ({"p": 1.7}, {"scale": 0.3}):
        with pytest.raises(OptimizerError, match="give one or the other"):
            MirrorDescent(make_params(), lr=0.1, potential=LpPotential(1.4), **contradiction)


@pytest.mark.parametrize("norm_over", ["tensor", "group"])
def test_a_potential_with_a_dual_norm_may_be_normalized(norm_over):
    class Mine(HypentropyPotential):
        def dual_norm(self, gradient):
            return gradient.abs().max()

    params, potential = make_params(torch.float64), Mine(0.5)
    starts = [potential.to_dual(param.detach()) for param in params]
    set_gradients(params, 0)
    options = {"step_rule": "normalized", "norm_over": norm_over}
    MirrorDescent(params, lr=0.1, potential=potential, **options).step()
    moves = [
        float((potential.to_dual(param.detach()) - start).abs().max())
        for param, start in zip(params, starts, strict=True)
    ]
    assert (max(moves) if norm_over == "group" else min(moves)) == pytest.approx(0.1)


def test_polyak_needs_a_loss():
    params = make_params()
    optimizer = MirrorDescent(params, lr=1.0, p=1.5, step_rule="polyak")
    set_gradients(params, 0)
    before = bits(params)
    with pytest.raises(OptimizerError, match=r"step\(loss=loss\)"):
        optimizer.step()
    assert bits(params) == before


def test_potentials_are_matched_between_checkpoint_and_optimizer():
    params = make_params()
    saved = MirrorDescent(params, lr=0.1, potential=HypentropyPotential(0.5)).state_dict()
    assert saved["param_groups"][0]["potential"] == "HypentropyPotential(beta=0.5)"
    MirrorDescent(params, lr=0.2, potential=HypentropyPotential(0.5)).load_state_dict(saved)
    other = MirrorDescent(params, lr=0.2, potential=HypentropyPotential(0.7))
    with pytest.raises(OptimizerError, match="build it with the saved one"):
        other.load_state_dict(saved)
    assert other.param_groups[0]["lr"] == 0.2


class TestParamGroups:
    model = nn.TransformerEncoderLayer(8, 2, 16)

    def test_first_match_wins_and_names_are_kept(self):
        groups = param_groups(
            self.model, {"*attn*": {"p": 1.1}, "*.bias": {"lr": 0.5}, "*": {"p": 3.0}}
        )
        optimizer = MirrorDescent(groups, lr=0.1)
        names = [group["param_names"] for group in optimizer.param_groups]
        assert all("attn" in name for name in names[0])
        assert "self_attn.out_proj.bias" in names[0]
        assert sum(map(len, names)) == len(list(self.model.parameters()))
        assert [group["lr"] for group in optimizer.param_groups] == [0.1, 0.5, 0.1]

    def test_a_pattern_that_matches_nothing_is_an_error(self):
        with pytest.raises(
            OptimizerError, match=r"'\*atn\*' gives an empty group.*names look like"
        ):
            param_groups(self.model, {"*atn*": {"p": 1.1}, "*": {}})

    def test_a_shadowed_pattern_is_an_error(self):
        with pytest.raises(OptimizerError, match="taken by earlier patterns"):
            param_groups(self.model, {"*": {}, "*attn*": {"p": 1.1}})

    def test_an_unmatched_parameter_is_an_error(self):
        with pytest.raises(OptimizerError, match="match no pattern"):
            param_groups(self.model, {"*attn*": {"p": 1.1}})

    def test_frozen_parameters_are_left_out_and_tied_ones_come_once(self):
        model = nn.Module()
        model.a, model.b = nn.Linear(3, 3, bias=False), nn.Linear(3, 3)
        model.c = model.a
        model.b.bias.requires_grad_(False)
        (group,) = param_groups(model, {"*": {"p": 1.5}})
        assert [name for name, _ in group["params"]] == ["a.weight", "b.weight"]
