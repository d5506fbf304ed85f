"""torch.optim.swa_utils: averages of weights, and going on from them."""

from __future__ import annotations

import copy

import pytest
import torch
from catalogue import bits
from torch import nn
from torch.optim.swa_utils import SWALR, AveragedModel, get_ema_multi_avg_fn, update_bn

from mirrormargin import MirrorAdam, MirrorDescent, SparsitySchedule, mirror_groups

NUM_STEPS = 6
KINDS = pytest.mark.parametrize(
    ("kind", "options"),
    [(MirrorDescent, {"lr": 0.05, "momentum": 0.9}), (MirrorAdam, {"lr": 0.02})],
    ids=["descent", "adam"],
)


def make_net():
    with torch.random.fork_rng():
        torch.manual_seed(0)
        return nn.Sequential(nn.Linear(6, 8), nn.BatchNorm1d(8), nn.Tanh(), nn.Linear(8, 3))


def take_step(net, optimizer, k):
    generator = torch.Generator().manual_seed(k)
    inputs = torch.randn(20, 6, generator=generator)
    labels = torch.randint(0, 3, (20,), generator=generator)
    optimizer.zero_grad()
    nn.functional.cross_entropy(net(inputs), labels).backward()
    optimizer.step()


def train(kind, options, averaged, net, p=1.2):
    """Steps with averaging; the optimizer, and the weights after each step."""
    optimizer = kind(mirror_groups(net, p=p), **options)
    scheduler, seen = SWALR(optimizer, swa_lr=0.01, anneal_epochs=3), []
    for k in range(NUM_STEPS):
        take_step(net, optimizer, k)
        averaged.update_parameters(net)
        scheduler.step()
        seen.append([param.detach().clone() for param in net.parameters()])
    return optimizer, seen


@KINDS
def test_the_average_is_that_of_the_weights_after_each_step(kind, options):
    net = make_net()
    averaged = AveragedModel(net)
    _, seen = train(kind, options, averaged, net)
    for mean, steps in zip(averaged.module.parameters(), zip(*seen, strict=True), strict=True):
        expected = torch.stack(steps).double().mean(dim=0).float()
        torch.testing.assert_close(mean, expected, rtol=1e-6, atol=1e-6)


@KINDS
def test_a_moving_average_follows_and_statistics_are_found_again(kind, options):
    net = make_net()
    averaged = AveragedModel(net, multi_avg_fn=get_ema_multi_avg_fn(0.5))
    _, seen = train(kind, options, averaged, net)
    for mean, steps in zip(averaged.module.parameters(), zip(*seen, strict=True), strict=True):
        expected = steps[0].double()
        for one in steps[1:]:
            expected = (expected + one) / 2
        torch.testing.assert_close(mean, expected.float(), rtol=1e-6, atol=1e-6)
    inputs = torch.randn(50, 6)
    update_bn([inputs], averaged)
    hidden = averaged.module[0](inputs)
    torch.testing.assert_close(averaged.module[1].running_mean, hidden.mean(dim=0))


@KINDS
def test_training_goes_on_from_averaged_weights(kind, options):
    """They are noticed, and u is computed again: no call of resync() is needed."""
    net = make_net()
    averaged = AveragedModel(net)
    optimizer, _ = train(kind, options, averaged, net)
    twin = copy.deepcopy(net)
    other = kind(mirror_groups(twin, p=1.2), **options)
    other.load_state_dict(copy.deepcopy(optimizer.state_dict()))
    for model, its in ((net, optimizer), (twin, other)):
        model.load_state_dict(averaged.module.state_dict())
        if model is twin:
            its.resync()
        take_step(model, its, NUM_STEPS)
    assert bits(list(net.parameters())) == bits(list(twin.parameters()))
    start, end = averaged.module[0].weight, net[0].weight
    assert 0 < (start - end).abs().max() < 0.1  # a step from there, and not from before


@KINDS
def test_weights_that_are_removed_stay_zero_in_an_average_of_later_steps(kind, options):
    net = make_net()
    optimizer = kind(mirror_groups(net, p=1.2), **options)
    schedule = SparsitySchedule(optimizer, 0.75, NUM_STEPS, end=0.5, every=1)
    averaged = AveragedModel(net)
    for k in range(NUM_STEPS):
        take_step(net, optimizer, k)
        schedule.step()
        if schedule.is_over:
            averaged.update_parameters(net)
    for own, mean in zip(net.parameters(), averaged.module.parameters(), strict=True):
        assert torch.equal(own == 0, mean == 0)
    assert schedule.removed_share == pytest.approx(0.75, abs=0.01)
