"""What other people's loops do to an optimizer: wrap it, load its own state, replace parameters."""

from __future__ import annotations

import copy
from types import SimpleNamespace

import pytest
import torch
import torch.distributed.checkpoint as dcp
from catalogue import bits, make_params, set_gradients
from torch import nn
from torch.distributed.checkpoint.state_dict import get_state_dict, set_state_dict

from mirrormargin import (
    MirrorAdam,
    MirrorDescent,
    MirrorMarginWarning,
    OptimizerError,
    SparsitySchedule,
)

KINDS = pytest.mark.parametrize("kind", [MirrorAdam, MirrorDescent])


def take_steps(optimizer, params, steps=range(3)):
    for k in steps:
        set_gradients(params, k)
        optimizer.step()


def reload(optimizer):
    """As Accelerate does to put the state on a device."""
    optimizer.load_state_dict(optimizer.state_dict())


def replace(optimizer):
    """As Accelerate does under FSDP2; the new parameters."""
    new = []
    for group in optimizer.param_groups:
        group["params"] = [nn.Parameter(one.detach().clone()) for one in group["params"]]
        new += group["params"]
    return new


@KINDS
def test_a_state_may_be_loaded_again_and_again(kind):
    params, others = make_params(), make_params()
    optimizer, other = kind(params, lr=0.02, p=1.3), kind(others, lr=0.02, p=1.3)
    take_steps(optimizer, params)
    for mine, its in zip(params, others, strict=True):
        its.data.copy_(mine)
    for _ in range(3):
        other.load_state_dict(copy.deepcopy(optimizer.state_dict()))
    take_steps(optimizer, params, range(3, 5))
    take_steps(other, others, range(3, 5))
    assert bits(params) == bits(others)


@KINDS
def test_parameters_may_be_replaced_once_a_fresh_state_was_loaded(kind):
    optimizer, twins = kind(make_params(), lr=0.02, p=1.3), make_params()
    twin = kind(twins, lr=0.02, p=1.3)
    reload(optimizer)
    params = replace(optimizer)
    for targets, one in ((params, optimizer), (twins, twin)):
        take_steps(one, targets)
    assert bits(params) == bits(twins)
    assert len(optimizer.state_dict()["state"]) == len(params)


@KINDS
def test_tensors_that_start_at_zero_are_still_warned_of(kind):
    weight = nn.Parameter(torch.zeros(4, 4))
    optimizer = kind([weight], lr=0.1, p=1.1)
    reload(optimizer)
    weight.grad = torch.ones(4, 4)
    with pytest.warns(MirrorMarginWarning, match="start"):
        optimizer.step()


def test_centres_of_replaced_parameters_are_refused():
    optimizer = MirrorAdam(make_params(), lr=0.1, p=1.1, center=True)
    base = make_params(seed=1)
    optimizer.center_at(base)
    reload(optimizer)
    params = replace(optimizer)
    with pytest.raises(OptimizerError, match=r"center_at\(\) .* after they are replaced"):
        take_steps(optimizer, params)


@pytest.mark.parametrize("groups", [None, "rows"])
def test_a_schedule_of_replaced_parameters_is_refused(groups):
    optimizer = MirrorAdam(make_params()[:1])
    schedule = SparsitySchedule(optimizer, 0.5, 10, every=1, groups=groups)
    take_steps(optimizer, replace(optimizer), range(1))
    with pytest.raises(OptimizerError, match="after they are replaced"):
        schedule.step()


def test_a_schedule_takes_an_optimizer_that_is_wrapped():
    params = make_params()
    optimizer = MirrorAdam(params)
    wrapped = SimpleNamespace(optimizer=optimizer)
    assert SparsitySchedule(wrapped, 0.5, 10).optimizer is optimizer
    with pytest.raises(OptimizerError, match="a MirrorAdam or MirrorDescent"):
        SparsitySchedule(SimpleNamespace(optimizer=torch.optim.AdamW(params)), 0.5, 10)


@pytest.mark.parametrize("removed", ["forgotten", "kept"])
@KINDS
def test_a_schedule_holds_weights_after_a_state_without_one_was_loaded(kind, removed):
    params, dense = make_params(), make_params()
    before = kind(dense, lr=0.02, p=1.3)
    take_steps(before, dense)
    optimizer = kind(params, lr=0.02, p=1.3)
    schedule = SparsitySchedule(optimizer, 0.5, 8, end=0.5, every=1, removed=removed)
    optimizer.load_state_dict(copy.deepcopy(before.state_dict()))
    for k in range(8):
        take_steps(optimizer, params, range(k, k + 1))
        schedule.step()
    matrices = [param.detach() for param in params if param.ndim >= 2]
    num_zeros = sum(int((one == 0).sum()) for one in matrices)
    assert num_zeros == sum(one.numel() for one in matrices) // 2
    assert schedule.removed_share == pytest.approx(0.5, abs=0.01)
    schedule.finalize()
    assert not any("removed" in group for group in optimizer.param_groups)
    assert schedule.removed_share == 0.0
    take_steps(optimizer, params, range(8, 9))
    assert sum(int((one == 0).sum()) for one in matrices) < num_zeros


def test_a_loss_that_is_given_counts_more_than_that_of_a_closure():
    steps = []
    for closure, loss in (
        (None, 6.0),
        (lambda: 2.0, 6.0),
        (lambda: None, 6.0),
        (lambda: 2.0, None),
    ):
        weight = nn.Parameter(torch.ones(3))
        optimizer = MirrorDescent([weight], lr=1.0, step_rule="polyak")
        weight.grad = torch.ones(3)
        assert optimizer.step(closure, loss=loss) == (loss or 2.0)
        steps += optimizer.effective_lr
    assert steps == pytest.approx([2.0, 2.0, 2.0, 2 / 3])


def make_schedule(groups=None):
    with torch.random.fork_rng():
        torch.manual_seed(0)
        net = nn.Sequential(nn.Linear(6, 8), nn.Tanh(), nn.Linear(8, 3))
    optimizer = MirrorDescent(net.named_parameters(), lr=0.1, p=1.3, step_rule="normalized")
    return net, optimizer, SparsitySchedule(optimizer, 0.6, 12, every=4, groups=groups)


def train(net, optimizer, schedule, steps):
    for k in steps:
        inputs = torch.randn(20, 6, generator=torch.Generator().manual_seed(k))
        optimizer.zero_grad()
        net(inputs).square().mean().backward()
        optimizer.step()
        schedule.step()


@pytest.mark.filterwarnings("ignore:torch.distributed is disabled")
@pytest.mark.parametrize("stop", [2, 6])
def test_distributed_checkpoints_hold_masks(stop, tmp_path):
    """They load what a fresh state has, and nothing else."""
    first, second = make_schedule(), make_schedule()
    train(*first, range(stop))
    weights, state = get_state_dict(*first[:2])
    dcp.save({"model": weights, "optimizer": state}, checkpoint_id=tmp_path, no_dist=True)
    weights, state = get_state_dict(*second[:2])
    held = {"model": weights, "optimizer": state}
    dcp.load(held, checkpoint_id=tmp_path, no_dist=True)
    given = {"model_state_dict": held["model"], "optim_state_dict": held["optimizer"]}
    set_state_dict(*second[:2], **given)
    second[2].load_state_dict(first[2].state_dict())
    for one in (first, second):
        train(*one, range(stop, 12))
    assert bits(list(first[0].parameters())) == bits(list(second[0].parameters()))


@pytest.mark.parametrize(("stop", "is_known"), [(3, True), (4, False), (10, False)])
def test_a_schedule_that_continues_without_its_masks_is_refused(stop, is_known):
    first, second = make_schedule(), make_schedule()
    train(*first, range(stop))
    second[2].load_state_dict(first[2].state_dict())
    if is_known:  # nothing has been removed yet
        train(*second, range(stop, 12))
        return
    with pytest.raises(OptimizerError, match="does not know what was removed"):
        train(*second, range(stop, 12))


def test_the_share_of_removed_rows_is_known_after_a_restart():
    first, second = make_schedule("rows"), make_schedule("rows")
    train(*first, range(12))
    for one, other in zip(first, second, strict=True):
        other.load_state_dict(copy.deepcopy(one.state_dict()))
    assert second[2].removed_share == first[2].removed_share == 6 / 11
