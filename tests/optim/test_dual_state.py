"""The dual variable follows the weights, whoever changes them."""

from __future__ import annotations

import copy

import pytest
import torch
from catalogue import PATHS, bits, make_params, set_gradients
from torch import nn

from mirrormargin import LpPotential, MirrorAdam, MirrorDescent, OptimizerError

PATH = pytest.mark.parametrize("path", PATHS)


def _fresh(params, p=1.3, path="fused"):
    return MirrorDescent(params, lr=0.05, p=p, **PATHS[path])


def _expect_like_new(params, optimizer, path):
    """The next step equals that of an optimizer that has only ever seen these weights."""
    twins = [nn.Parameter(param.detach().clone()) for param in params]
    twin = _fresh(twins, optimizer.param_groups[0]["p"], path)
    for targets, stepper in ((params, optimizer), (twins, twin)):
        set_gradients(targets, 9)
        stepper.step()
    for mine, other in zip(params, twins, strict=True):
        torch.testing.assert_close(mine, other, rtol=1e-6, atol=0)


@PATH
@pytest.mark.parametrize("edit", ["copy_", "mul_", "init", "load_state_dict", "data+resync"])
def test_edits_of_the_weights_are_followed(path, edit):
    params = make_params()
    optimizer = _fresh(params, path=path)
    for k in range(3):
        set_gradients(params, k)
        optimizer.step()
    news = make_params(seed=7)
    with torch.no_grad():
        for param, new in zip(params, news, strict=True):
            if edit == "copy_":
                param.copy_(new)
            elif edit == "mul_":
                param.mul_(1 - 1e-6)  # tiny edits count as well
            elif edit == "init":
                nn.init.constant_(param, 0.3)
            elif edit == "load_state_dict":
                module = nn.Module()
                module.weight = param
                module.load_state_dict({"weight": new.detach()})
            else:
                param.data.copy_(new)
    if edit == "data+resync":
        optimizer.resync()
    _expect_like_new(params, optimizer, path)


@PATH
def test_changing_p_rebuilds_the_dual(path):
    params = make_params()
    optimizer = _fresh(params, p=1.1, path=path)
    for p in (1.1, 1.7, 2.0, 4.0, 1.5):
        optimizer.param_groups[0]["p"] = p
        set_gradients(params, int(10 * p))
        optimizer.step()
        _expect_like_new(params, optimizer, path)
    assert "dual" not in optimizer.state[params[0]]


def test_changing_scale_rescales_the_step():
    weight = nn.Parameter(torch.full((4,), 0.5))
    optimizer = MirrorDescent([weight], lr=0.1, p=1.2, scale=0.5)
    for scale in (0.5, 0.1):
        optimizer.param_groups[0]["scale"] = scale
        potential = LpPotential(1.2, scale)
        expected = potential.to_primal(potential.to_dual(weight.detach().double()) - 0.1)
        weight.grad = torch.ones(4)
        optimizer.step()
        torch.testing.assert_close(weight.detach().double(), expected, rtol=1e-5, atol=0)


def test_rms_scale_is_that_of_the_initial_tensor_and_survives_a_checkpoint():
    weight = nn.Parameter(torch.tensor([3.0, 4.0]))
    optimizer = MirrorDescent([weight], lr=0.1, p=1.2, scale="rms")
    for _ in range(2):
        weight.grad = torch.ones(2)
        optimizer.step()
    assert optimizer.state[weight]["scale"] == pytest.approx(12.5**0.5)
    other = MirrorDescent([weight], lr=0.1, p=1.2, scale="rms")
    other.load_state_dict(copy.deepcopy(optimizer.state_dict()))
    assert other.state[weight]["scale"] == optimizer.state[weight]["scale"]


@PATH
def test_no_dead_zone_at_p_near_one(path):
    """|u|^(1/(p-1)) underflows long before u does: only a stored u gets out of zero."""
    weight = nn.Parameter(torch.zeros(3))
    group = {"params": [weight], "p": 1.1}
    optimizer = MirrorDescent([group], lr=2.5e-5, **PATHS[path])
    weight.grad = torch.ones(3)
    for _ in range(8_000):
        optimizer.step()
    assert weight.detach().tolist() == pytest.approx([-1.02e-7] * 3, rel=0.02)


@PATH
@pytest.mark.parametrize("p", [1.1, 1.75, 4.0])
def test_dead_zone_survives_checkpoints_and_harmless_edits(path, p):
    weight = nn.Parameter(torch.zeros(5))
    optimizer = MirrorDescent([{"params": [weight], "p": p}], lr=1e-6, **PATHS[path])
    weight.grad = torch.ones(5)
    for _ in range(5):
        optimizer.step()
    dual = optimizer.state[weight]["dual"].clone()
    with torch.no_grad():
        weight.add_(0.0)  # an in-place write that changes nothing
    saved = copy.deepcopy(optimizer.state_dict())
    optimizer.load_state_dict(saved)
    weight.grad = torch.zeros(5)
    optimizer.step()
    assert torch.equal(optimizer.state[weight]["dual"], dual)


def test_state_is_rebuilt_when_a_checkpoint_has_none():
    params = make_params()
    optimizer = _fresh(params)
    saved = copy.deepcopy(optimizer.state_dict())
    set_gradients(params, 0)
    optimizer.step()
    optimizer.load_state_dict(saved)
    assert "dual" not in optimizer.state[params[0]]
    _expect_like_new(params, optimizer, "fused")


@pytest.mark.parametrize("kind", [MirrorDescent, MirrorAdam])
def test_a_step_with_zero_gradients_only_creates_state(kind):
    """Checkpoint helpers step a fresh optimizer once, with zero gradients and lr 0."""
    params = make_params()
    before = bits(params)
    for step_rule in ("constant", "normalized", "polyak"):
        options = {"step_rule": step_rule} if kind is MirrorDescent else {}
        optimizer = kind(params, lr=0.1, p=1.3, **options)
        for param in params:
            param.grad = torch.zeros_like(param)
        optimizer.step(closure=None)
        assert bits(params) == before
        assert all("dual" in optimizer.state[param] for param in params)


def test_mismatched_state_is_refused_and_changes_nothing():
    params = make_params()
    optimizer = _fresh(params)
    set_gradients(params, 0)
    optimizer.step()
    before = bits(params), bits([optimizer.state[w]["dual"] for w in params])
    wrong = copy.deepcopy(optimizer.state_dict())
    wrong["state"][1]["dual"] = torch.zeros(9)
    with pytest.raises(OptimizerError, match=r"'dual' of parameter 1 of group 0 has shape \(9,\)"):
        optimizer.load_state_dict(wrong)
    assert before == (bits(params), bits([optimizer.state[w]["dual"] for w in params]))


def test_the_compiled_path_bumps_the_version_counter():
    """A later backward through the old value must fail instead of using overwritten numbers."""
    weight = nn.Parameter(torch.full((3,), 2.0))
    optimizer = MirrorDescent([weight], lr=0.5, p=1.1, fused=True)
    loss = (weight**2).sum()
    weight.grad = torch.ones(3)
    optimizer.step()
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        loss.backward()


KINDS = pytest.mark.parametrize(
    ("kind", "options"),
    [
        (MirrorDescent, {"lr": 0.05, "p": 1.3, "momentum": 0.5}),
        (MirrorDescent, {"lr": 0.05, "p": 2.0, "momentum": 0.5}),
        (MirrorAdam, {"lr": 0.05, "p": 2.0}),
        (MirrorAdam, {"lr": 0.05, "p": 1.3, "amsgrad": True}),
    ],
)


def _train_conv(kind, options, change, fused):
    """Two steps on a convolution, a change of the model, two more steps."""
    torch.manual_seed(0)
    conv = nn.Conv2d(3, 4, 3)
    optimizer = kind(conv.parameters(), **options, fused=fused)
    for k in range(4):
        if k == 2:
            change(conv)
        for i, param in enumerate(conv.parameters()):
            generator = torch.Generator().manual_seed(10 * k + i)
            param.grad = torch.randn(param.shape, generator=generator).to(param.dtype)
        optimizer.step()
    return [param.detach().float().contiguous() for param in conv.parameters()]


@KINDS
@pytest.mark.parametrize(
    "change",
    [
        lambda conv: conv.to(memory_format=torch.channels_last),
        lambda conv: conv.double().float(),
        lambda conv: conv.double(),
        lambda conv: conv.bfloat16(),
    ],
    ids=["channels_last", "there-and-back", "double", "bfloat16"],
)
def test_a_model_may_change_layout_or_dtype_between_steps(kind, options, change):
    """State and gradients are brought to what the parameter has become before kernels see them."""
    expected = _train_conv(kind, options, lambda conv: None, fused=False)
    changed = _train_conv(kind, options, change, fused=None)
    is_half = change(nn.Conv2d(1, 1, 1)).weight.dtype == torch.bfloat16
    torch.testing.assert_close(
        changed, expected, rtol=0.05 if is_half else 1e-4, atol=0.01 if is_half else 1e-5
    )


@KINDS
@pytest.mark.parametrize("dtypes", [(torch.float64, torch.float32), (torch.float32, torch.float64)])
def test_a_checkpoint_of_another_precision_is_converted(kind, options, dtypes):
    params = [make_params(dtype) for dtype in dtypes]
    source, target = (kind(tensors, **options) for tensors in params)
    set_gradients(params[0], 0)
    source.step()
    with torch.no_grad():
        for mine, other in zip(*params, strict=True):
            other.copy_(mine)
    target.load_state_dict(copy.deepcopy(source.state_dict()))
    for optimizer, tensors in zip((source, target), params, strict=True):
        set_gradients(tensors, 1)
        optimizer.step()
    for mine, other in zip(*params, strict=True):
        torch.testing.assert_close(mine.double(), other.double(), rtol=1e-5, atol=1e-7)


@KINDS
def test_gradients_are_read_by_value(kind, options):
    """A negated view must not be read as raw memory."""
    results = []
    for gradient in (torch.linspace(-1, 1, 8), torch._neg_view(-torch.linspace(-1, 1, 8))):
        weight = nn.Parameter(torch.ones(8))
        optimizer = kind([weight], **options)
        weight.grad = gradient
        optimizer.step()
        results.append(weight.detach())
    assert torch.equal(*results)


def test_replaced_data_is_noticed():
    weight = nn.Parameter(torch.ones(2))
    optimizer = MirrorDescent([weight], lr=1e-3, p=1.3)
    for _ in range(2):
        weight.grad = torch.ones(2)
        optimizer.step()
        nn.utils.vector_to_parameters(torch.tensor([5.0, 5.0]), [weight])
    weight.grad = torch.ones(2)
    optimizer.step()
    assert weight.detach().tolist() == pytest.approx([5.0, 5.0], rel=0.01)


@PATH
@pytest.mark.parametrize("swap", ["swap_tensors", "to"])
def test_swapped_parameters_are_noticed(path, swap):
    """The tensor behind a parameter may change while the optimizer holds the same object."""
    model = nn.Linear(3, 4)
    optimizer = _fresh(list(model.parameters()), path=path)
    set_gradients(list(model.parameters()), 0)
    optimizer.step()
    old = torch.__future__.get_swap_module_params_on_conversion()
    torch.__future__.set_swap_module_params_on_conversion(True)
    try:
        if swap == "to":
            model.to(torch.float64).to(torch.float32)
        else:
            for param in model.parameters():
                param.grad = None
                torch.utils.swap_tensors(param, nn.Parameter(torch.full_like(param, 0.25)))
    finally:
        torch.__future__.set_swap_module_params_on_conversion(old)
    _expect_like_new(list(model.parameters()), optimizer, path)


@pytest.mark.parametrize(
    ("saver", "loader"),
    [
        (torch.optim.AdamW, MirrorAdam),
        (torch.optim.SGD, MirrorDescent),
        (MirrorAdam, MirrorDescent),
    ],
)
def test_another_optimizers_checkpoint_is_refused(saver, loader):
    params = make_params()
    with pytest.raises(OptimizerError, match="saved by another optimizer"):
        loader(params, lr=1.0).load_state_dict(saver(params, lr=1.0).state_dict())


def test_a_checkpoint_needs_no_pickle(tmp_path):
    params = make_params()
    optimizer = MirrorAdam(params, p=1.3, scale="rms")
    set_gradients(params, 0)
    optimizer.step()
    torch.save(optimizer.state_dict(), tmp_path / "state.pt")
    loaded = torch.load(tmp_path / "state.pt", weights_only=True)
    MirrorAdam(params, p=1.3, scale="rms").load_state_dict(loaded)
