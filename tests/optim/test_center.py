"""Centres: u belongs to w - c, and c stays what it was, to the bit."""

import copy
import io
import math

import pytest
import torch
from catalogue import PATHS, bits, make_params, set_gradients
from torch import nn

import mirrormargin as mm
from mirrormargin import ElasticNetPotential, MirrorAdam, MirrorDescent, OptimizerError
from mirrormargin.optim import centers

KINDS = {
    "adam": lambda params, **options: MirrorAdam(params, lr=0.2, p=1.1, **options),
    "descent": lambda params, **options: MirrorDescent(params, lr=2.0, p=1.1, **options),
    "elastic net": lambda params, **options: MirrorAdam(
        params, lr=0.2, potential=ElasticNetPotential(0.3), **options
    ),
}
DTYPES = (torch.float32, torch.float64, torch.bfloat16, torch.float16)


def take_steps(optimizer, params, num=5, start=0):
    for k in range(start, start + num):
        set_gradients(params, k)
        optimizer.step()


def image_of(state, p):
    u = state["dual"].double()
    return state["center"].double() + u.abs().pow(1 / (p - 1)).copysign(u)


IMAGES = [
    pytest.param(
        dtype,
        p,
        path,
        marks=pytest.mark.slow if (path, dtype) == ("fused", torch.float16) else (),
    )
    for dtype in DTYPES
    for p in (1.05, 1.1, 1.3, 1.5, 1.75, 2.0, 3.0, 4.0)
    for path in PATHS
    if (path, dtype) != ("fused", torch.float64)
]


@pytest.mark.parametrize(("dtype", "p", "path"), IMAGES)
def test_weights_are_the_nearest_image_of_their_state(dtype, p, path):
    params, before = make_params(dtype), make_params(dtype)
    optimizer = MirrorAdam(params, lr=0.2 if p < 1.4 else 0.02, p=p, center=True, **PATHS[path])
    take_steps(optimizer, params)
    for param, start in zip(params, before, strict=True):
        state = optimizer.state[param]
        assert torch.equal(state["center"], start)
        assert state["center"].dtype is dtype
        image = image_of(state, p)
        wide = torch.finfo(torch.promote_types(dtype, torch.float32)).eps
        allowed = 0.5 * torch.finfo(dtype).eps + 8 * wide
        scale = image.abs().clamp_min(torch.finfo(dtype).tiny / torch.finfo(dtype).eps)
        assert bool(((param.double() - image).abs() <= 1.01 * allowed * (scale + 1)).all())


@pytest.mark.parametrize("kind", KINDS)
def test_nothing_moves_before_a_gradient_comes(kind):
    params = make_params()
    optimizer = KINDS[kind](params, center=True)
    before = bits(params)
    for _ in range(3):
        for param in params:
            param.grad = torch.zeros_like(param)
        optimizer.step()
    assert bits(params) == before
    assert not any(bool(optimizer.state[param]["dual"].any()) for param in params)


def test_decay_draws_weights_to_the_centre():
    params = make_params()
    optimizer = MirrorAdam(params, lr=0.2, p=1.1, weight_decay=1.0, center=True)
    take_steps(optimizer, params, 10)
    far = sum(float((p - optimizer.state[p]["center"]).detach().abs().max()) for p in params)
    for param in params:
        param.grad = torch.zeros_like(param)
        optimizer.state[param]["exp_avg"].zero_()
    for _ in range(300):
        optimizer.step()
    for param in params:
        torch.testing.assert_close(param.detach(), optimizer.state[param]["center"])
    assert far > 0.1


def test_a_long_run_is_bounded_by_decay():
    """|u| cannot pass 1 / weight_decay: steps of Adam are at most about lr long."""
    param = nn.Parameter(torch.zeros(3))
    optimizer = MirrorAdam([param], lr=0.05, p=1.1, weight_decay=1.25, center=True)
    for _ in range(400):
        param.grad = torch.tensor([1.0, -1.0, 0.5])
        optimizer.step()
    assert float(optimizer.state[param]["dual"].abs().max()) <= 0.81
    assert float(param.detach().abs().max()) <= 0.81**10


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("kind", KINDS)
def test_edits_are_followed_and_the_rest_of_u_is_kept(kind, dtype):
    params = make_params(dtype)
    optimizer = KINDS[kind](params, center=True)
    take_steps(optimizer, params)
    before = [optimizer.state[param]["dual"].clone() for param in params]
    with torch.no_grad():
        params[0][2, 3] += 0.5
    take_steps(optimizer, params, 0)
    for param in params:
        param.grad = torch.zeros_like(param)
        optimizer.state[param].get("exp_avg", torch.zeros(())).zero_()
    optimizer.step()
    kept = torch.ones_like(before[0], dtype=torch.bool)
    kept[2, 3] = False
    after = [optimizer.state[param]["dual"] for param in params]
    assert torch.equal(after[0][kept], before[0][kept])
    assert not torch.equal(after[0], before[0])
    assert all(torch.equal(a, b) for a, b in zip(after[1:], before[1:], strict=True))


def test_switching_the_centre_off_and_on_rebuilds_u():
    params = make_params()
    optimizer = MirrorAdam(params, lr=0.1, p=1.5, center=True)
    take_steps(optimizer, params)
    optimizer.param_groups[0]["center"] = False
    take_steps(optimizer, params, 1)
    assert not any("center" in optimizer.state[p] or "dual" in optimizer.state[p] for p in params)
    optimizer.param_groups[0]["center"] = True
    start = bits(params)
    take_steps(optimizer, params, 1)
    assert bits([optimizer.state[param]["center"] for param in params]) == start


@pytest.mark.parametrize("dtype", DTYPES)
def test_a_checkpoint_holds_the_centre_or_its_digest(dtype, tmp_path):
    params, base = make_params(dtype), make_params(dtype)
    optimizer = MirrorAdam(params, lr=0.2, p=1.1, center=True)
    shared = make_params(dtype)
    given = MirrorAdam(shared, lr=0.2, p=1.1, center=True)
    given.center_at(base)
    take_steps(optimizer, params)
    take_steps(given, shared)
    assert bits(params) == bits(shared)
    whole, lean = (copy.deepcopy(one.state_dict()) for one in (optimizer, given))
    assert all("center" in state for state in whole["state"].values())
    assert not any("center" in state for state in lean["state"].values())
    assert given.state[shared[0]]["center"].data_ptr() == base[0].data_ptr()  # not copied
    stored = io.BytesIO()
    torch.save(lean, stored)
    stored.seek(0)
    lean = torch.load(stored, weights_only=True)
    for order in ("center first", "load first"):
        resumed = make_params(dtype)
        with torch.no_grad():
            for mine, other in zip(resumed, params, strict=True):
                mine.copy_(other)
        again = MirrorAdam(resumed, lr=0.2, p=1.1, center=True)
        if order == "center first":
            again.center_at(base)
        again.load_state_dict(copy.deepcopy(lean))
        if order == "load first":
            with pytest.raises(OptimizerError, match="saved without the centre of"):
                take_steps(again, resumed, 1)
            with pytest.raises(OptimizerError, match="belongs to another centre"):
                again.center_at(make_params(dtype, seed=3))
            again.center_at(base)
        take_steps(again, resumed, 3, start=5)
        expected = copy.deepcopy(params)
        twin = MirrorAdam(expected, lr=0.2, p=1.1, center=True)
        twin.load_state_dict(copy.deepcopy(whole))
        take_steps(twin, expected, 3, start=5)
        assert bits(resumed) == bits(expected)


def test_what_is_centred_before_the_first_step_is_saved_and_loaded():
    params = make_params()
    optimizer = MirrorAdam(params, lr=0.2, p=1.1, center=True)
    optimizer.center_at(make_params())
    saved = optimizer.state_dict()
    others = make_params()
    resumed = MirrorAdam(others, lr=0.2, p=1.1, center=True)
    resumed.load_state_dict(saved)
    resumed.center_at(make_params())
    take_steps(optimizer, params)
    take_steps(resumed, others)
    assert bits(params) == bits(others)


def test_the_centre_of_a_checkpoint_comes_before_one_that_was_given():
    params, others = make_params(), make_params()
    optimizer = MirrorAdam(params, lr=0.2, p=1.1, center=True)
    take_steps(optimizer, params)
    resumed = MirrorAdam(others, lr=0.2, p=1.1, center=True)
    resumed.center_at([torch.zeros_like(param) for param in others])
    resumed.load_state_dict(optimizer.state_dict())
    with torch.no_grad():
        for mine, other in zip(others, params, strict=True):
            mine.copy_(other)
    take_steps(optimizer, params, 3, start=5)
    take_steps(resumed, others, 3, start=5)
    assert bits(params) == bits(others)


@pytest.mark.parametrize("capturable", [False, True])
def test_a_centre_that_is_missing_is_never_made_up(capturable):
    params = make_params()
    optimizer = MirrorAdam(params, lr=0.2, p=1.1, center=True, capturable=capturable)
    optimizer.center_at(make_params())
    take_steps(optimizer, params)
    resumed = MirrorAdam(params, lr=0.2, p=1.1, center=True, capturable=capturable)
    resumed.load_state_dict(optimizer.state_dict())
    for act in (resumed.resync, resumed.step):
        with pytest.raises(OptimizerError, match="saved without"):
            act()


def test_the_parameters_themselves_are_no_centre():
    params = make_params()
    optimizer = MirrorAdam(params, lr=0.2, p=1.1, center=True)
    with pytest.raises(OptimizerError, match="is the parameter itself"):
        optimizer.center_at(params)


def test_a_model_that_is_converted_takes_its_given_centre_along():
    model = nn.Linear(4, 3, bias=False)
    base = copy.deepcopy(model)
    optimizer = MirrorAdam(model.parameters(), lr=0.3, p=1.1, center=True)
    optimizer.center_at([base.weight])
    model.weight.grad = torch.ones(3, 4)
    optimizer.step()
    model.bfloat16()
    model.weight.grad = torch.ones(3, 4, dtype=torch.bfloat16)
    optimizer.step()
    saved = optimizer.state_dict()
    resumed = MirrorAdam(model.parameters(), lr=0.3, p=1.1, center=True)
    resumed.load_state_dict(saved)
    resumed.center_at([base.weight.detach().bfloat16()])


def test_a_mapped_file_serves_as_the_centre(tmp_path):
    from safetensors.torch import load_file, save_file

    model = nn.Sequential(nn.Linear(4, 3), nn.Linear(3, 2))
    save_file(model.state_dict(), tmp_path / "base.safetensors")
    groups = mm.mirror_groups(model, p=1.1, center=True)
    optimizer = MirrorAdam(groups, lr=0.3)
    optimizer.center_at(load_file(tmp_path / "base.safetensors"))
    for _ in range(4):
        model(torch.ones(2, 4)).sum().backward()
        optimizer.step()
    saved = load_file(tmp_path / "base.safetensors")
    assert torch.equal(optimizer.state[model[0].weight]["center"], saved["0.weight"])
    assert not torch.equal(model[0].weight, saved["0.weight"])
    assert "center" not in optimizer.state[model[0].bias]
    assert "centred" in mm.describe_groups(groups)


@pytest.mark.parametrize(
    ("weights", "message"),
    [
        ({}, "the weights have no 'weight'"),
        ([], "0 tensors were given for 1 parameters"),
        ([torch.zeros(2)], r"shape \(2,\), the parameter"),
        ([torch.zeros(3, 4, dtype=torch.float64)], "float64 of shape"),
        ([3.0], "the centre of weight is a float"),
        (5, "weights is 5"),
    ],
)
def test_centres_that_do_not_fit_are_refused(weights, message):
    layer = nn.Linear(4, 3, bias=False)
    optimizer = MirrorAdam(mm.param_groups(layer, {"*": {"p": 1.1, "center": True}}), lr=0.1)
    with pytest.raises(OptimizerError, match=message):
        optimizer.center_at(weights)
    assert not optimizer.state


def test_a_copy_that_was_saved_is_kept_where_another_centre_was_given():
    params = make_params()
    optimizer = MirrorAdam(params, lr=0.2, p=1.1, center=True)
    take_steps(optimizer, params)
    saved = copy.deepcopy(optimizer.state_dict())
    resumed = copy.deepcopy(params)
    again = MirrorAdam(resumed, lr=0.2, p=1.1, center=True)
    again.center_at(make_params(seed=3))
    again.load_state_dict(saved)
    for mine, theirs in zip(resumed, params, strict=True):
        assert torch.equal(again.state[mine]["center"], optimizer.state[theirs]["center"])
        assert "center_digest" not in again.state[mine]
    take_steps(again, resumed, 2, start=5)
    take_steps(optimizer, params, 2, start=5)
    assert bits(resumed) == bits(params)


@pytest.mark.parametrize("num_steps", [0, 2])
def test_a_given_centre_goes_with_a_copy_of_the_optimizer(num_steps):
    params, base = make_params(), make_params()
    with torch.no_grad():
        params[0][0, 0] += 1
    optimizer = MirrorAdam(params, lr=0.2, p=1.1, center=True)
    optimizer.center_at(make_params(seed=3))  # before the first step it may be given again
    optimizer.center_at(base)
    assert not optimizer.state  # as torch's tools expect of an optimizer that has made no step
    take_steps(optimizer, params, num_steps)
    twins, twin = copy.deepcopy((params, optimizer))
    for own, one in ((params, optimizer), (twins, twin)):
        take_steps(one, own, 2, start=num_steps)
    assert bits(twins) == bits(params)
    for param, center in zip(twins, base, strict=True):
        assert torch.equal(twin.state[param]["center"], center)


def test_without_groups_with_a_centre_there_is_nothing_to_centre():
    optimizer = MirrorAdam([nn.Parameter(torch.ones(3))], lr=0.1)
    with pytest.raises(OptimizerError, match="no group has center=True"):
        optimizer.center_at([torch.ones(3)])
    unnamed = MirrorAdam([nn.Parameter(torch.ones(3))], lr=0.1, center=True)
    with pytest.raises(OptimizerError, match="has no name in the optimizer"):
        unnamed.center_at({"w": torch.ones(3)})
    with pytest.raises(OptimizerError, match="center is 'yes'"):
        MirrorAdam([nn.Parameter(torch.ones(3))], lr=0.1, center="yes")


@pytest.mark.parametrize("dtype", DTYPES)
def test_digests_differ_where_a_bit_does(dtype):
    x = torch.randn(70, 31, generator=torch.Generator().manual_seed(0)).to(dtype)
    others = [x.clone() for _ in range(3)]
    others[1][69, 30] = torch.nextafter(x[69, 30], x[69, 30] + 1) if x[69, 30].isfinite() else 0
    others[2] = x.flip(0)
    [first, same, bit, order] = centers.find_digests([x, *others], [x, *others])
    assert first == same
    assert len({first, bit, order}) == 3
    assert math.log2(max(first, bit, order)) <= 32


def test_a_digest_adds_up_over_parts(monkeypatch):
    x = torch.randn(1000, generator=torch.Generator().manual_seed(0))
    [whole] = centers.find_digests([x], [x])
    index = torch.arange(1000)
    parts = [centers._sum_here(x[cut], index[cut]) for cut in (slice(0, 333), slice(333, None))]
    assert sum(parts) % 2**32 == whole
    monkeypatch.setattr(centers, "_AT_ONCE", 64)
    assert centers.find_digests([x], [x]) == [whole]


def sparse_teacher(p: float, lr: float) -> float:
    """The test loss of a linear layer after fine-tuning to a teacher that differs in 30 weights."""
    generator = torch.Generator().manual_seed(0)
    layer = nn.Linear(60, 40, bias=False)
    with torch.no_grad():
        layer.weight.copy_(torch.randn(40, 60, generator=generator) / 60**0.5)
    teacher = layer.weight.detach().clone()
    changed = torch.randperm(2400, generator=generator)[:30]
    signs = torch.randint(2, (30,), generator=generator) * 2.0 - 1
    teacher.view(-1)[changed] += signs
    x, new = (torch.randn(num, 60, generator=generator) for num in (48, 2000))
    optimizer = MirrorAdam(layer.parameters(), lr=lr, p=p, center=True)
    for _ in range(1500):
        optimizer.zero_grad()
        (layer(x) - x @ teacher.T).square().mean().backward()
        optimizer.step()
    return float((layer(new) - new @ teacher.T).square().mean().detach())


def test_a_sparse_change_is_recovered_near_p_1_alone():
    """Without training the loss is the 30 / 40 of the changed weights."""
    assert sparse_teacher(1.1, 2e-2) < 0.1
    assert sparse_teacher(2.0, 3e-3) > 0.7
