"""Half-precision weights follow a float32 dual, at every exponent."""

from __future__ import annotations

import copy

import pytest
import torch
from catalogue import PATHS, bits, make_params, set_gradients
from torch import nn

from mirrormargin import LpPotential, MirrorAdam, MirrorDescent

PATH = pytest.mark.parametrize("path", PATHS)
HALF = pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
EXPONENT = pytest.mark.parametrize("p", [1.1, 1.5, 2.0, 3.0, 4.0])


@PATH
@HALF
@pytest.mark.parametrize("kind", [MirrorDescent, MirrorAdam])
@pytest.mark.parametrize("p", [1.5, 2.0, 3.0])
def test_steps_too_short_for_the_weights_add_up(path, dtype, kind, p):
    weight = nn.Parameter(torch.ones(4, dtype=dtype))
    optimizer = kind([weight], lr=1e-4, p=p, **PATHS[path])
    for _ in range(1000):
        weight.grad = torch.ones(4, dtype=dtype)
        optimizer.step()
    expected = LpPotential(p).to_primal(torch.full((4,), 0.9, dtype=torch.float64))
    torch.testing.assert_close(weight.detach().double(), expected, rtol=2**-8, atol=0)


@PATH
@HALF
@EXPONENT
def test_each_weight_is_the_nearest_image_of_its_dual(path, dtype, p):
    params = make_params(dtype)
    optimizer = MirrorDescent(params, lr=0.05, p=p, momentum=0.5, **PATHS[path])
    for k in range(3):
        set_gradients(params, k)
        optimizer.step()
    for param in params:
        dual = optimizer.state[param]["dual"]
        assert dual.dtype == torch.float32
        image = LpPotential(p).to_primal(dual.double())
        error, ulp = (param.detach().double() - image).abs(), torch.finfo(dtype).eps * image.abs()
        assert bool((error <= 0.5001 * ulp).all())


def test_float32_weights_keep_no_dual_where_none_is_needed():
    for p in (1.5, 2.0, 3.0):
        params = make_params()
        optimizer = MirrorDescent(params, lr=0.05, p=p)
        set_gradients(params, 0)
        optimizer.step()
        assert not any("dual" in optimizer.state[param] for param in params)


@PATH
@pytest.mark.parametrize("p", [1.3, 2.0, 3.0])
@pytest.mark.parametrize("edit", ["copy_", "data+resync", "checkpoint without a dual"])
def test_the_dual_follows_half_precision_weights(path, p, edit):
    params = make_params(torch.bfloat16)
    optimizer = MirrorDescent(params, lr=0.05, p=p, **PATHS[path])
    set_gradients(params, 0)
    optimizer.step()
    news = make_params(torch.bfloat16, seed=7)
    with torch.no_grad():
        for param, new in zip(params, news, strict=True):
            (param.data if "resync" in edit else param).copy_(new)
    if "resync" in edit:
        optimizer.resync()
    if "checkpoint" in edit:
        saved = copy.deepcopy(optimizer.state_dict())
        for state in saved["state"].values():
            state.clear()
        optimizer.load_state_dict(saved)
    twin = MirrorDescent(news, lr=0.05, p=p, **PATHS[path])
    for tensors, stepper in ((params, optimizer), (news, twin)):
        set_gradients(tensors, 1)
        stepper.step()
    assert bits(params) == bits(news)


def test_half_precision_and_wide_weights_share_a_group():
    """A batch of one path has a dual of all its tensors, or of none."""
    mixed = [*make_params(torch.bfloat16), *make_params()]
    optimizer = MirrorDescent(mixed, lr=0.05, p=2.0, fused=False)
    alone = [make_params(torch.bfloat16), make_params()]
    for tensors in alone:
        set_gradients(tensors, 0)
        MirrorDescent(tensors, lr=0.05, p=2.0, fused=False).step()
    set_gradients(mixed[:5], 0)
    set_gradients(mixed[5:], 0)
    optimizer.step()
    assert bits(mixed) == bits(alone[0] + alone[1])


BYTES = {  # weights and state, as docs/choosing-p.md has them: plain descent, momentum, Adam
    (torch.float32, 1.1, None): (8, 12, 16),
    (torch.float32, 2.0, None): (4, 8, 12),
    (torch.float32, 1.1, torch.bfloat16): (6, 8, 10),
    (torch.float32, 2.0, torch.bfloat16): (4, 6, 8),
    (torch.bfloat16, 1.1, None): (6, 10, 14),
    (torch.bfloat16, 2.0, None): (6, 10, 14),
    (torch.bfloat16, 2.0, torch.bfloat16): (4, 6, 8),
}


@pytest.mark.parametrize(("dtype", "p", "state_dtype"), BYTES)
def test_bytes_per_parameter_are_those_of_the_table(dtype, p, state_dtype):
    found = []
    for kind, options in (
        (MirrorDescent, {}),
        (MirrorDescent, {"momentum": 0.9}),
        (MirrorAdam, {}),
    ):
        weight = nn.Parameter(torch.ones(100, dtype=dtype))
        optimizer = kind([weight], lr=0.1, p=p, state_dtype=state_dtype, **options)
        weight.grad = torch.ones_like(weight)
        optimizer.step()
        kept = [
            one for key, one in optimizer.state[weight].items() if key not in ("step", "dual_of")
        ]
        found.append(sum(one.element_size() for one in [weight, *kept]))
    assert tuple(found) == BYTES[dtype, p, state_dtype]
