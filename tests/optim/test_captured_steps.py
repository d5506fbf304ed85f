"""``torch.compile`` and ``capturable``: one graph for all steps, and nothing is read back."""

from __future__ import annotations

import copy
import shutil
from typing import Any

import pytest
import torch
from catalogue import bits, make_params, set_gradients
from torch import nn
from torch.utils._python_dispatch import TorchDispatchMode

from mirrormargin import (
    ElasticNetPotential,
    HypentropyPotential,
    MirrorAdam,
    MirrorDescent,
    OptimizerError,
    mirror_groups,
)

# What torch imports to compile uses its own deprecated functions.
pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning")

NARROW = {"state_dtype": torch.bfloat16}
ADAMS = {
    "p1.1": {"p": 1.1},
    "p1.5": {"p": 1.5},
    "p2-decay": {"p": 2.0, "weight_decay": 0.1},
    "p4-amsgrad": {"p": 4.0, "amsgrad": True, "maximize": True},
    "rms": {"p": 1.3, "scale": "rms"},
    "hypentropy": {"potential": HypentropyPotential(0.3)},
    "caution": {"p": 1.3, "caution": True},
    "clip": {"p": 1.3, "clip": 0.05},
    "center": {"p": 1.1, "center": True, "weight_decay": 0.1},
    "center-p2": {"p": 2.0, "center": True, "amsgrad": True},
    "center-elastic-net": {"potential": ElasticNetPotential(0.01), "center": True},
    "narrow-clip-group": {"p": 1.3, "clip": 0.05, "norm_over": "group", **NARROW},
}
DESCENTS = {
    "p1.1": {"p": 1.1},
    "p3-momentum": {"p": 3.0, "momentum": 0.9, "nesterov": True, "weight_decay": 0.1},
    "caution": {"p": 1.3, "momentum": 0.9, "caution": True, "clip": 0.1},
    "normalized": {"p": 1.3, "step_rule": "normalized", "weight_decay": 0.1},
    "normalized-group": {"p": 1.3, "step_rule": "normalized", "norm_over": "group"},
    "narrow": {"p": 1.3, "momentum": 0.9, **NARROW},
    "center": {"p": 1.1, "momentum": 0.9, "center": True},
    "center-narrow": {"p": 1.3, "momentum": 0.9, "center": True, **NARROW},
}
VARIANTS = pytest.mark.parametrize(
    ("kind", "options"),
    [pytest.param(MirrorAdam, options, id=f"adam-{name}") for name, options in ADAMS.items()]
    + [
        pytest.param(MirrorDescent, options, id=f"descent-{name}")
        for name, options in DESCENTS.items()
    ],
)


class Counting:
    """A backend of torch.compile that runs what it is given, and counts."""

    def __init__(self) -> None:
        self.graphs = 0

    def __call__(self, graph: Any, _: Any) -> Any:
        self.graphs += 1
        return graph.forward


class Reads(TorchDispatchMode):
    """Counts how often a value is read from a tensor."""

    def __init__(self) -> None:
        super().__init__()
        self.count = 0

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        self.count += func is torch.ops.aten._local_scalar_dense.default
        return func(*args, **(kwargs or {}))


def _make(kind, options, **more):
    params = make_params()
    numbers: dict[str, Any] = {"lr": torch.tensor(0.02, dtype=torch.float64)}
    if kind is MirrorAdam:
        betas = (torch.tensor(beta, dtype=torch.float64) for beta in (0.9, 0.99))
        numbers["betas"] = tuple(betas)
    groups: list[dict[str, Any]] = [{"params": params[:2]}, {"params": params[2:]}]
    if "potential" not in options:
        groups[1]["p"] = 1.7  # each group has its own exponent
    return params, kind(groups, **{**numbers, **options, "fused": False, **more})


def _train(params, optimizer, step, steps):
    for k in steps:
        set_gradients(params, k)
        group = optimizer.param_groups[0]
        group["lr"].fill_(0.02 / (k + 1))
        if "betas" in group:
            group["betas"][0].fill_(0.9 - 0.1 * k)
            group["betas"][1].fill_(0.99 - 0.01 * k)
        step()


def _compare(params, optimizer, others, other):
    for mine, theirs in zip(params, others, strict=True):
        torch.testing.assert_close(mine, theirs, rtol=1e-5, atol=1e-7)
        state, expected = optimizer.state[mine], other.state[theirs]
        assert state.keys() == expected.keys()
        assert state.get("dual_of") == expected.get("dual_of")
        for key in expected.keys() - {"dual_of"}:
            value = expected[key]
            torch.testing.assert_close(state[key], value, rtol=1e-6, atol=1e-7, msg=key)


@VARIANTS
def test_one_compiled_graph_makes_the_eager_steps(kind, options):
    torch._dynamo.reset()
    twins, twin = _make(kind, options)
    _train(twins, twin, twin.step, range(5))
    params, optimizer = _make(kind, options)
    backend = Counting()
    step = torch.compile(optimizer.step, backend=backend, fullgraph=True)
    _train(params, optimizer, step, range(4))
    assert backend.graphs == 1
    _train(params, optimizer, optimizer.step, range(4, 5))  # and back
    _compare(params, optimizer, twins, twin)


@pytest.mark.slow
@pytest.mark.parametrize("backend", ["aot_eager", "inductor"])
@pytest.mark.parametrize("options", [{}, NARROW], ids=["wide", "narrow"])
def test_real_compilers_take_the_step(backend, options):
    if backend == "inductor" and not shutil.which("g++"):
        pytest.skip("inductor needs a C++ compiler")
    torch._dynamo.reset()
    twins, twin = _make(MirrorAdam, {"p": 1.5, **options})
    _train(twins, twin, twin.step, range(3))
    params, optimizer = _make(MirrorAdam, {"p": 1.5, **options})
    step = torch.compile(optimizer.step, backend=backend, fullgraph=True)
    _train(params, optimizer, step, range(3))
    for mine, theirs in zip(params, twins, strict=True):
        tolerance = 2**-6 if options else 1e-5  # one rounding that falls otherwise
        torch.testing.assert_close(mine, theirs, rtol=tolerance, atol=1e-6)


@VARIANTS
def test_a_capturable_step_is_the_usual_one_and_reads_nothing(kind, options):
    twins, twin = _make(kind, options)
    _train(twins, twin, twin.step, range(4))
    params, optimizer = _make(kind, options, capturable=True)
    _train(params, optimizer, optimizer.step, range(1))  # scale="rms" may read the weights once
    reads = Reads()

    def step():
        with reads:
            optimizer.step()

    _train(params, optimizer, step, range(1, 4))
    assert reads.count == 0
    _compare(params, optimizer, twins, twin)
    with reads:
        twin.step()
    assert reads.count > 0


@pytest.mark.parametrize("is_compiled", [False, True])
def test_a_given_centre_is_captured_and_not_copied(is_compiled):
    torch._dynamo.reset()
    twins, twin = _make(MirrorAdam, {"p": 1.1, "center": True})
    _train(twins, twin, twin.step, range(4))
    base = make_params()
    params, optimizer = _make(MirrorAdam, {"p": 1.1, "center": True}, capturable=True)
    optimizer.center_at(base)
    backend = Counting()
    compiled = torch.compile(optimizer.step, backend=backend, fullgraph=True)
    _train(params, optimizer, compiled if is_compiled else optimizer.step, range(4))
    assert backend.graphs == is_compiled
    assert bits(base) == bits(make_params())
    for param, twin_param, center in zip(params, twins, base, strict=True):
        torch.testing.assert_close(param, twin_param, rtol=1e-5, atol=1e-7)
        assert optimizer.state[param]["center"].data_ptr() == center.data_ptr()


def test_weights_of_all_precisions_share_a_compiled_step():
    torch._dynamo.reset()
    dtypes = (torch.float32, torch.bfloat16, torch.float64)
    results = []
    for is_compiled in (False, True):
        params = [param for dtype in dtypes for param in make_params(dtype)]
        lr = torch.tensor(0.02, dtype=torch.float64)
        optimizer = MirrorAdam(params, lr=lr, p=1.5, fused=False, weight_decay=0.1)
        step = optimizer.step
        if is_compiled:
            step = torch.compile(step, backend="eager", fullgraph=True)
        for k in range(3):
            set_gradients(params, k)
            step()
        results.append([param.detach() for param in params])
    torch.testing.assert_close(*results, rtol=1e-6, atol=1e-7)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"step_rule": "polyak"}, "Polyak's step is found by reading"),
        ({"nonfinite": "raise"}, "cannot look at gradients first"),
        ({"fused": True}, "plain torch operations: use fused=None"),
    ],
)
def test_what_cannot_be_compiled_says_so(options, message):
    torch._dynamo.reset()
    params = make_params()
    optimizer = MirrorDescent(params, lr=0.1, p=1.3, **options)
    set_gradients(params, 0)
    with pytest.raises(Exception, match=message):
        torch.compile(optimizer.step, backend="eager", fullgraph=True)(loss=1.0)


def test_a_compiled_optimizer_resumes_from_a_checkpoint_and_resyncs():
    torch._dynamo.reset()
    params, optimizer = _make(MirrorAdam, {"p": 1.3})
    step = torch.compile(optimizer.step, backend="eager", fullgraph=True)
    _train(params, optimizer, step, range(2))
    saved = copy.deepcopy(optimizer.state_dict())
    weights = [param.detach().clone() for param in params]
    _train(params, optimizer, step, range(2, 4))
    expected = bits(params)
    with torch.no_grad():
        for param, weight in zip(params, weights, strict=True):
            param.copy_(weight)
    optimizer.load_state_dict(saved)
    _train(params, optimizer, step, range(2, 4))
    assert bits(params) == expected
    with torch.no_grad():
        for param in params:
            param.fill_(0.5)
    optimizer.resync()
    for param in params:
        param.grad = torch.zeros_like(param)
        optimizer.state[param]["exp_avg"].zero_()
    step()
    assert all(bool((param == 0.5).all()) for param in params)


def test_steps_are_counted_as_adamw_counts_them():
    states = []
    for kind in (torch.optim.AdamW, MirrorAdam):
        weight = nn.Parameter(torch.ones(3))
        optimizer = kind([weight])
        weight.grad = torch.ones(3)
        optimizer.step()
        states.append(optimizer.state_dict()["state"][0])
    theirs, mine = states
    assert mine.keys() == theirs.keys()
    assert torch.equal(mine["step"], theirs["step"])
    assert mine["step"].dtype == theirs["step"].dtype


def test_a_tensor_of_nonsense_is_refused_when_it_is_given():
    for options in ({"lr": torch.tensor(-1.0)}, {"betas": (torch.tensor(2.0), 0.9)}):
        with pytest.raises(OptimizerError, match="give a number"):
            MirrorAdam(make_params(), capturable=True, **options)


def _train_by(compiler, kind):
    """Steps of loss, gradients, optimizer and scheduler: the weights, and how many graphs."""
    with torch.random.fork_rng():
        torch.manual_seed(0)
        net = nn.Sequential(nn.Linear(6, 8), nn.Tanh(), nn.Linear(8, 2))
        batches, labels = torch.randn(5, 12, 6), torch.randint(0, 2, (5, 12))
    lr = torch.tensor(0.05, dtype=torch.float64)  # a number would be compiled into the step
    optimizer = kind(mirror_groups(net, p=1.3), lr=lr)
    scheduler = torch.optim.lr_scheduler.ExponentialLR(optimizer, 0.7)
    backend, graphs = Counting(), []

    def take_step(batch, label):
        nn.functional.cross_entropy(net(batch), label).backward()
        optimizer.step()
        optimizer.zero_grad()

    step = torch.compile(take_step, backend=backend) if compiler else take_step
    for batch, label in zip(batches, labels, strict=True):
        step(batch, label)
        scheduler.step()
        graphs.append(backend.graphs)
    return list(net.parameters()), graphs


@pytest.mark.parametrize("kind", [MirrorAdam, MirrorDescent])
def test_a_whole_training_step_compiles_once_and_follows_its_scheduler(kind):
    torch._dynamo.reset()
    twins, _ = _train_by(False, kind)
    params, graphs = _train_by(True, kind)
    assert graphs == [graphs[0]] * 5
    for mine, theirs in zip(params, twins, strict=True):
        torch.testing.assert_close(mine, theirs, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("kind", [MirrorAdam, MirrorDescent])
@pytest.mark.parametrize("backend", ["eager", pytest.param("inductor", marks=pytest.mark.slow)])
def test_optimizers_of_several_exponents_compile_in_one_process(kind, backend):
    """From the second one on p is a symbol, which stands for numbers that change."""
    if backend == "inductor" and not shutil.which("g++"):
        pytest.skip("inductor needs a C++ compiler")
    torch._dynamo.reset()
    for p in (1.1, 1.3, 2.0, 3.0, 1.7):
        ends = []
        for compiles in (False, True):
            params = make_params()
            lr = torch.tensor(0.02, dtype=torch.float64)
            optimizer = kind(params, lr=lr, p=p, fused=False)
            step = optimizer.step
            if compiles:
                step = torch.compile(step, backend=backend, fullgraph=True)
            for k in range(2):
                set_gradients(params, k)
                step()
            ends.append(params)
        for mine, theirs in zip(*ends, strict=True):
            torch.testing.assert_close(mine, theirs, rtol=1e-5, atol=1e-6)
