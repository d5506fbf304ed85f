"""Every scheduler that torch has drives our optimizers as it drives torch's own."""

from __future__ import annotations

import copy
import inspect

import pytest
import torch
from catalogue import bits, make_params, set_gradients
from torch.optim import lr_scheduler, swa_utils
from torch.optim.lr_scheduler import (
    ChainedScheduler,
    ConstantLR,
    CosineAnnealingLR,
    CosineAnnealingWarmRestarts,
    CyclicLR,
    ExponentialLR,
    LambdaLR,
    LinearLR,
    LRScheduler,
    MultiplicativeLR,
    MultiStepLR,
    OneCycleLR,
    PolynomialLR,
    ReduceLROnPlateau,
    SequentialLR,
    StepLR,
)
from torch.optim.swa_utils import SWALR

from mirrormargin import MirrorAdam, MirrorDescent, OptimizerError

LR, NUM_STEPS = 0.02, 9

# The name of a scheduler and what it is made with; CyclicLR and OneCycleLR move momentum as well.
SCHEDULERS = {
    "ChainedScheduler": lambda o: ChainedScheduler([LinearLR(o, 0.2), ExponentialLR(o, 0.9)]),
    "ConstantLR": lambda o: ConstantLR(o, 0.5, 3),
    "CosineAnnealingLR": lambda o: CosineAnnealingLR(o, 6),
    "CosineAnnealingWarmRestarts": lambda o: CosineAnnealingWarmRestarts(o, 3),
    "CyclicLR": lambda o: CyclicLR(o, 0.001, LR, 3),
    "ExponentialLR": lambda o: ExponentialLR(o, 0.7),
    "LambdaLR": lambda o: LambdaLR(o, lambda step: 1 / (step + 1)),
    "LinearLR": lambda o: LinearLR(o, 0.2, 1.0, 4),
    "MultiStepLR": lambda o: MultiStepLR(o, [2, 4], 0.3),
    "MultiplicativeLR": lambda o: MultiplicativeLR(o, lambda step: 0.8),
    "OneCycleLR": lambda o: OneCycleLR(o, LR, total_steps=NUM_STEPS),
    "PolynomialLR": lambda o: PolynomialLR(o, 6, 2.0),
    "ReduceLROnPlateau": lambda o: ReduceLROnPlateau(o, patience=1, factor=0.5),
    "SWALR": lambda o: SWALR(o, 0.005, anneal_epochs=3),
    "SequentialLR": lambda o: SequentialLR(o, [LinearLR(o, 0.2), CosineAnnealingLR(o, 5)], [3]),
    "StepLR": lambda o: StepLR(o, 2, 0.5),
}
MOVED = ("lr", "momentum", "betas")
EACH = pytest.mark.parametrize("name", SCHEDULERS)
KINDS = pytest.mark.parametrize(
    ("kind", "torchs"),
    [
        (MirrorDescent, lambda params, lr: torch.optim.SGD(params, lr)),
        (MirrorAdam, lambda params, lr: torch.optim.AdamW(params, lr, weight_decay=0.0)),
    ],
    ids=["descent", "adam"],
)


def read_moved(optimizer):
    """What a scheduler has made of the options, as numbers."""
    found = []
    for group in optimizer.param_groups:
        values = [group[name] for name in MOVED if name in group]
        found.append([tuple(map(float, v)) if isinstance(v, tuple) else float(v) for v in values])
    return found


def advance(optimizer, scheduler, params, steps):
    """Steps of both, and the options before each."""
    course = []
    for k in steps:
        set_gradients(params, k)
        course.append(read_moved(optimizer))
        optimizer.step()
        scheduler.step(*([1.0] if isinstance(scheduler, ReduceLROnPlateau) else []))
    return course


def test_every_scheduler_of_torch_is_tried():
    found = {
        name
        for module in (lr_scheduler, swa_utils)
        for name, one in vars(module).items()
        if inspect.isclass(one) and issubclass(one, LRScheduler)
    }
    assert found - {"LRScheduler", "_LRScheduler"} == SCHEDULERS.keys()


@EACH
@KINDS
@pytest.mark.parametrize("as_tensor", [False, True], ids=["number", "tensor"])
def test_at_p_2_the_weights_are_those_of_torchs_optimizer(name, kind, torchs, as_tensor):
    ends = []
    for make in (kind, torchs):
        params = make_params()
        optimizer = make(params, torch.tensor(LR, dtype=torch.float64) if as_tensor else LR)
        course = advance(optimizer, SCHEDULERS[name](optimizer), params, range(NUM_STEPS))
        ends.append((params, course))
    (ours, course), (theirs, expected) = ends
    assert course == expected
    assert len({str(one) for one in course}) > 1  # it has moved something
    for mine, other in zip(ours, theirs, strict=True):
        torch.testing.assert_close(mine, other, rtol=1e-5, atol=1e-6)


@EACH
@KINDS
def test_at_other_p_each_step_takes_what_the_scheduler_has_set(name, kind, torchs):
    params, twins = make_params(), make_params()
    optimizer, twin = kind(params, LR, p=1.3), kind(twins, LR, p=1.3)
    course = advance(optimizer, SCHEDULERS[name](optimizer), params, range(NUM_STEPS))
    for k, [values] in enumerate(course):
        present = [one for one in MOVED if one in twin.param_groups[0]]
        twin.param_groups[0].update(zip(present, values, strict=True))
        set_gradients(twins, k)
        twin.step()
    assert bits(params) == bits(twins)


@EACH
@KINDS
def test_a_scheduled_training_that_is_resumed_ends_at_the_same_bits(name, kind, torchs):
    params = make_params()
    optimizer = kind(params, LR, p=1.3)
    scheduler = SCHEDULERS[name](optimizer)
    advance(optimizer, scheduler, params, range(4))
    saved = copy.deepcopy((optimizer.state_dict(), scheduler.state_dict()))
    others = [torch.nn.Parameter(param.detach().clone()) for param in params]
    other = kind(others, LR, p=1.3)
    second = SCHEDULERS[name](other)
    other.load_state_dict(saved[0])
    second.load_state_dict(saved[1])
    advance(optimizer, scheduler, params, range(4, NUM_STEPS))
    advance(other, second, others, range(4, NUM_STEPS))
    assert bits(params) == bits(others)


def test_one_cycle_is_refused_where_its_max_lr_would_bound_polyaks_steps():
    params = make_params()
    optimizer = MirrorDescent(params, 1.0, step_rule="polyak", max_lr=3.0)
    OneCycleLR(optimizer, 0.5, total_steps=9)
    set_gradients(params, 0)
    with pytest.raises(OptimizerError, match="OneCycleLR has written its own max_lr"):
        optimizer.step(loss=1.0)
