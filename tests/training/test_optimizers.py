"""Optimizers by name: which they are, literal steps, groups, options that are refused."""

import pytest
import torch
from torch import nn

from mirrormargin.errors import OptimizerError, TrainingError
from mirrormargin.optim import MirrorAdam, MirrorDescent
from mirrormargin.training.building import build_optimizer
from mirrormargin.training.config import OPTIMIZERS, OptimizerConfig


def make_model():
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(6, 5), nn.Tanh(), nn.Linear(5, 3)).double()
    return model


def compute_loss(model):
    generator = torch.Generator().manual_seed(1)
    return model(torch.randn(8, 6, generator=generator, dtype=torch.float64)).square().mean()


def take_gradients(model):
    model.zero_grad()
    loss = compute_loss(model)
    loss.backward()
    return float(loss.detach()), [p.grad.clone() for p in model.parameters()]


KINDS = {
    "MirrorDescent": MirrorDescent,
    "MirrorAdam": MirrorAdam,
    "SGD": torch.optim.SGD,
    "SNGD": MirrorDescent,
    "Polyak": MirrorDescent,
    "Adam": torch.optim.Adam,
    "AdamW": torch.optim.AdamW,
}


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_name_gives_its_optimizer_over_all_parameters(name):
    model = make_model()
    optimizer = build_optimizer(OptimizerConfig(name, 0.25, weight_decay=0.125), model)
    assert type(optimizer) is KINDS[name]
    held = [p for group in optimizer.param_groups for p in group["params"]]
    assert {id(p) for p in held} == {id(p) for p in model.parameters()}
    assert [(g["lr"], g["weight_decay"]) for g in optimizer.param_groups] == [(0.25, 0.125)]


def test_unknown_name_lists_the_known_ones():
    with pytest.raises(TrainingError, match=r"'Lion'.*MirrorDescent.*AdamW"):
        build_optimizer(OptimizerConfig("Lion", 0.1), make_model())


def test_sngd_divides_by_the_norm_of_all_gradients_together():
    model = make_model()
    before = [p.detach().clone() for p in model.parameters()]
    optimizer = build_optimizer(OptimizerConfig("SNGD", 0.3), model)
    _, gradients = take_gradients(model)
    optimizer.step()
    norm = sum(float(g.square().sum()) for g in gradients) ** 0.5
    for old, parameter, gradient in zip(before, model.parameters(), gradients, strict=True):
        torch.testing.assert_close(parameter, old - 0.3 * gradient / norm, rtol=1e-9, atol=1e-12)


def test_mirror_descent_steps_in_dual_coordinates():
    p = 1.5
    model = make_model()
    before = [w.detach().clone() for w in model.parameters()]
    optimizer = build_optimizer(OptimizerConfig("MirrorDescent", 0.01, p=p), model)
    _, gradients = take_gradients(model)
    optimizer.step()
    for old, parameter, gradient in zip(before, model.parameters(), gradients, strict=True):
        u = old.sign() * old.abs() ** (p - 1) - 0.01 * gradient
        wanted = u.sign() * u.abs() ** (1 / (p - 1))
        torch.testing.assert_close(parameter.detach(), wanted, rtol=1e-6, atol=1e-12)


def test_polyak_step_is_lr_times_loss_over_the_squared_gradient_at_p_2():
    model = make_model()
    before = [p.detach().clone() for p in model.parameters()]
    optimizer = build_optimizer(OptimizerConfig("Polyak", 0.5), model)
    loss, gradients = take_gradients(model)
    optimizer.step(loss=loss)
    rate = 0.5 * loss / sum(float(g.square().sum()) for g in gradients)
    for old, parameter, gradient in zip(before, model.parameters(), gradients, strict=True):
        torch.testing.assert_close(parameter, old - rate * gradient, rtol=1e-5, atol=1e-9)


def test_polyak_step_is_capped():
    model = make_model()
    before = [p.detach().clone() for p in model.parameters()]
    optimizer = build_optimizer(OptimizerConfig("Polyak", 0.5, max_lr=1e-4), model)
    loss, gradients = take_gradients(model)
    optimizer.step(loss=loss)
    for old, parameter, gradient in zip(before, model.parameters(), gradients, strict=True):
        torch.testing.assert_close(parameter, old - 1e-4 * gradient, rtol=1e-9, atol=1e-12)


def test_groups_by_pattern_have_their_own_options():
    model = make_model()
    groups = (("0.*", {"p": 1.1, "lr": 0.5}),)
    optimizer = build_optimizer(OptimizerConfig("MirrorDescent", 0.1, p=3.0, groups=groups), model)
    found = [(len(g["params"]), g["p"], g["lr"]) for g in optimizer.param_groups]
    assert found == [(2, 1.1, 0.5), (2, 3.0, 0.1)]
    assert optimizer.param_groups[0]["params"][0] is model[0].weight


def test_pattern_that_matches_nothing_is_refused():
    groups = (("blocks.*", {"lr": 0.5}),)
    with pytest.raises(OptimizerError, match="blocks"):
        build_optimizer(OptimizerConfig("AdamW", 0.1, groups=groups), make_model())


NOTHING = [
    *((name, {"p": 1.1}) for name in ("SGD", "SNGD", "Adam", "AdamW")),
    *((name, {"scale": "rms"}) for name in ("SGD", "SNGD", "Adam", "AdamW")),
    *((name, {"momentum": 0.9}) for name in ("MirrorAdam", "Adam", "AdamW")),
    *((name, {"max_lr": 1.0}) for name in ("MirrorAdam", "SGD", "SNGD", "Adam", "AdamW")),
    *((n, {"step_rule": "polyak"}) for n in ("MirrorAdam", "SGD", "SNGD", "Adam", "AdamW")),
]


@pytest.mark.parametrize(("name", "option"), NOTHING)
def test_option_that_does_nothing_is_refused(name, option):
    with pytest.raises(TrainingError, match=f"{name} has no {next(iter(option))}"):
        build_optimizer(OptimizerConfig(name, 0.1, **option), make_model())


def test_options_of_a_group_that_do_nothing_are_refused():
    config = OptimizerConfig("AdamW", 0.1, groups=(("*", {"p": 1.1}),))
    with pytest.raises(TrainingError, match="AdamW has no p"):
        build_optimizer(config, torch.nn.Linear(2, 2))


def test_a_pattern_for_everything_is_kept():
    config = OptimizerConfig("MirrorDescent", 0.1, groups=(("*", {"p": 1.1}),))
    groups = build_optimizer(config, torch.nn.Linear(2, 2)).param_groups
    assert [group["p"] for group in groups] == [1.1]


@pytest.mark.parametrize("option", [{"momentum": 0.9}, {"step_rule": "normalized"}])
def test_polyak_refuses_what_it_does_not_use(option):
    with pytest.raises(TrainingError, match="Polyak has no"):
        build_optimizer(OptimizerConfig("Polyak", 0.1, **option), torch.nn.Linear(2, 2))
