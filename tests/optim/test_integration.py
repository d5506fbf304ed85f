"""The optimizers live in the loops people already have: schedulers, scaling, clipping, threads."""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap
import threading

import pytest
import torch
from catalogue import bits, make_params, set_gradients
from torch import nn

from mirrormargin import MirrorAdam, MirrorDescent
from mirrormargin.geometry.compiler import has_numba

COMPILED = pytest.mark.skipif(not has_numba(), reason="compiled code needs Numba")
KINDS = pytest.mark.parametrize(
    ("kind", "options"),
    [(MirrorDescent, {"lr": 0.05, "p": 1.3}), (MirrorAdam, {"lr": 0.01, "p": 1.3})],
    ids=["descent", "adam"],
)


@KINDS
def test_schedulers_act_on_lr(kind, options):
    params, twins = make_params(), make_params()
    optimizer, twin = kind(params, **options), kind(twins, **options)
    scheduler = torch.optim.lr_scheduler.ExponentialLR(optimizer, gamma=0.5)
    for k in range(3):
        set_gradients(params, k)
        optimizer.step()
        scheduler.step()
        twin.param_groups[0]["lr"] = options["lr"] * 0.5**k
        set_gradients(twins, k)
        twin.step()
    assert bits(params) == bits(twins)


def test_scheduler_scales_polyak_through_its_factor():
    weight = nn.Parameter(torch.ones(3))
    optimizer = MirrorDescent([weight], lr=1.0, step_rule="polyak")
    scheduler = torch.optim.lr_scheduler.StepLR(optimizer, 1, gamma=0.1)
    steps = []
    for _ in range(2):
        weight.grad = torch.ones(3)
        optimizer.step(loss=3.0)
        scheduler.step()
        steps += optimizer.effective_lr
    assert steps == pytest.approx([1.0, 0.1])


@KINDS
def test_lr_may_be_a_tensor(kind, options):
    params, twins = make_params(), make_params()
    optimizer = kind(params, **{**options, "lr": torch.tensor(0.25)})
    twin = kind(twins, **{**options, "lr": 0.25})
    for targets, stepper in ((params, optimizer), (twins, twin)):
        set_gradients(targets, 0)
        stepper.step()
    assert bits(params) == bits(twins)


@KINDS
def test_grad_scaler_unscales_and_skips(kind, options):
    params = make_params()
    optimizer = kind(params, **options)
    scaler = torch.amp.GradScaler("cpu", init_scale=1024.0)
    twins = make_params()
    twin = kind(twins, **options)
    for targets, factor in ((params, 1024.0), (twins, 1.0)):
        set_gradients(targets, 0)
        for target in targets:
            target.grad *= factor
    scaler.scale(torch.ones(()))
    scaler.step(optimizer)
    scaler.update()
    twin.step()
    assert bits(params) == bits(twins)
    before = bits(params)
    set_gradients(params, 1)
    params[0].grad[0, 0] = float("inf")
    scaler.step(optimizer)
    scaler.update()
    assert bits(params) == before
    assert scaler.get_scale() == 512.0


@KINDS
def test_clipping_frozen_and_tied_parameters(kind, options):
    model = nn.Sequential(nn.Linear(6, 6, bias=False), nn.ReLU(), nn.Linear(6, 6))
    model[2].weight = model[0].weight
    model[2].bias.requires_grad_(False)
    optimizer = kind(model.named_parameters(), **options)
    assert optimizer.param_groups[0]["param_names"] == ["0.weight", "2.bias"]
    frozen = bits([model[2].bias])
    losses = []
    inputs, targets = torch.randn(32, 6), torch.randn(32, 6)
    for _ in range(30):
        optimizer.zero_grad()
        loss = nn.functional.mse_loss(model(inputs), targets)
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 0.5)
        optimizer.step()
        losses.append(loss.item())
    assert losses[-1] < losses[0]
    assert bits([model[2].bias]) == frozen


@KINDS
def test_channels_last_weights_take_the_fused_path(kind, options):
    weight = torch.randn(4, 3, 5, 5)
    plain = nn.Parameter(weight.clone())
    last = nn.Parameter(weight.clone().to(memory_format=torch.channels_last))
    gradient = torch.randn(4, 3, 5, 5)
    for param in (plain, last):
        optimizer = kind([param], **options, fused=True)
        for _ in range(3):
            param.grad = gradient.clone()
            optimizer.step()
    assert torch.equal(plain, last)
    assert last.is_contiguous(memory_format=torch.channels_last)


@pytest.mark.parametrize("mode", ["openmp", "python"])
@KINDS
def test_results_do_not_depend_on_threads(kind, options, mode, monkeypatch):
    if mode == "python":
        kernels = pytest.importorskip("mirrormargin.geometry.float32_kernels", exc_type=ImportError)
        monkeypatch.setattr(kernels, "_openmp", None)
    results = []
    num_threads = torch.get_num_threads()
    for threads in (1, 2, 3):
        torch.manual_seed(0)
        weight = nn.Parameter(torch.randn(500, 1001))
        small = nn.Parameter(torch.randn(3))
        rule = {"step_rule": "normalized"} if kind is MirrorDescent else {}
        optimizer = kind([weight, small], **options, **rule)
        try:
            torch.set_num_threads(threads)
            for _ in range(2):
                weight.grad, small.grad = torch.sin(weight.detach()), torch.ones(3)
                optimizer.step()
        finally:
            torch.set_num_threads(num_threads)
        results.append(bits([weight, small]))
    assert results[0] == results[1] == results[2]


@pytest.mark.parametrize("mode", ["openmp", "python"])
def test_several_threads_may_step_at_once(mode, monkeypatch):
    if mode == "python":
        kernels = pytest.importorskip("mirrormargin.geometry.float32_kernels", exc_type=ImportError)
        monkeypatch.setattr(kernels, "_openmp", None)

    def train():
        torch.manual_seed(1)
        weight = nn.Parameter(torch.linspace(-1, 1, 300_000))
        optimizer = MirrorDescent([weight], lr=0.01, p=1.2)
        for _ in range(20):
            weight.grad = torch.cos(weight.detach())
            optimizer.step()
        return bits([weight])

    expected, results = train(), []
    threads = [threading.Thread(target=lambda: results.append(train())) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert results == [expected] * 4


def _run(script: str, **environment: str) -> str:
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", textwrap.dedent(script)],
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        timeout=100,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


_STEP = """
    import os, torch
    from mirrormargin import MirrorDescent
    torch.set_num_threads(2)
    def step():
        weight = torch.nn.Parameter(torch.ones(400_000))
        weight.grad = torch.ones(400_000)
        MirrorDescent([weight], lr=0.1, p=1.1).step()
        return float(weight.detach()[0]), float(weight.detach()[-1])
"""


@COMPILED
@pytest.mark.skipif(not hasattr(os, "fork"), reason="the platform has no fork")
def test_a_forked_child_can_step_after_its_parent_did():
    """The child inherits the pools without their threads. (torch's own large operations hang there
    unless it is set to one thread, so the tensors are made before.)
    """
    script = (
        _STEP
        + """
    parent = step()
    weight = torch.nn.Parameter(torch.ones(400_000))
    weight.grad = torch.ones(400_000)
    optimizer = MirrorDescent([weight], lr=0.1, p=1.1)
    child = os.fork()
    if child == 0:
        optimizer.step()
        os._exit(0 if (weight[0].item(), weight[-1].item()) == parent else 1)
    print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
    """
    )
    assert _run(script, PYTHONWARNINGS="ignore") == "0"


@COMPILED
@pytest.mark.slow
def test_stepping_works_without_a_cache_folder(tmp_path):
    """Caching may fail wherever it likes; the step may not."""
    script = (
        _STEP
        + """
    from numba.core import caching
    def refuse(*args, **kwargs):
        raise OSError("no space left on device")
    caching.IndexDataCacheFile.save = refuse
    print(step()[0] < 1)
    """
    )
    assert _run(script, NUMBA_CACHE_DIR=str(tmp_path)) == "True"
    script = (
        _STEP
        + """
    from numba.core import caching
    caching.CacheImpl._locator_classes = []
    print(step()[0] < 1)
    """
    )
    assert _run(script) == "True"


@COMPILED
@pytest.mark.slow
def test_compiled_code_is_cached_between_processes(tmp_path):
    _run(_STEP + "\n    step()", NUMBA_CACHE_DIR=str(tmp_path))
    first = {path: path.stat().st_mtime_ns for path in tmp_path.rglob("*.nbc")}
    assert first
    _run(_STEP + "\n    step()", NUMBA_CACHE_DIR=str(tmp_path))
    assert {path: path.stat().st_mtime_ns for path in tmp_path.rglob("*.nbc")} == first


@COMPILED
@pytest.mark.slow
def test_kernels_cached_by_different_processes_work_together(tmp_path):
    """Compile each kernel in a process of its own, in other orders, then use them all in one."""
    head = """
    import torch
    from mirrormargin.geometry.float32_norms import scaled_power_sums
    from mirrormargin.geometry.float32_powers import power_tensors
"""
    power = "    x = torch.full((9,), 1.5); y = torch.empty(9); power_tensors([x], [y], {r})\n"
    sums = "    m, s = scaled_power_sums([torch.full((9,), 1.5)], {r})\n"
    step = textwrap.indent(textwrap.dedent(_STEP), "    ") + "    first = step()\n"
    environment = {"NUMBA_CACHE_DIR": str(tmp_path)}
    for script in (sums, power, step):
        _run(head + script.format(r=4.0), **environment)
    checks = "".join(
        power.format(r=r) + f"    assert abs(float(y[0]) - 1.5**{r}) < 1e-5 * 1.5**{r}, {r}\n"
        for r in (4.0, 5.0, 10.0, 20.0, 3.3)
    )
    everything = head + step + checks + sums.format(r=5.0) + "    print(step() == first)"
    assert _run(everything, **environment) == "True"
