"""``mirrormargin doctor``: what this machine has, and whether the optimizer works on it."""

from __future__ import annotations

import importlib.util
import os
import platform
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from cyclopts import App

from mirrormargin.cli import interrupts
from mirrormargin.cli.options import Json
from mirrormargin.cli.terminal import print_json, print_pairs, say
from mirrormargin.environment import list_versions

__all__ = ["app", "doctor"]

CPU_FEATURES = ("avx2", "fma", "avx512f")
# Name that pip knows, name that Python imports.
EXTRAS = {
    "scikit-learn": "sklearn",
    "matplotlib": "matplotlib",
    "plotly": "plotly",
    "transformers": "transformers",
    "accelerate": "accelerate",
    "lightning": "lightning",
    "pyarrow": "pyarrow",
    "ray": "ray",
}


app = App(name="doctor", help_epilogue="exit code: 0 healthy, 1 a test failed")


@app.default
def doctor(*, json: Json = False) -> int:
    """Show versions, CPU features and the path each device takes, and test the optimizer."""
    machine = _describe_machine()  # first: it imports torch, which is not the self-test's time
    checks = {name: _judge(check) for name, check in (CHECKS | _find_gpu_checks()).items()}
    healthy = all(check["ok"] for check in checks.values())
    report = {
        "versions": list_versions(),
        "machine": machine,
        "paths": _find_paths(),
        "extras": {
            name: importlib.util.find_spec(module) is not None for name, module in EXTRAS.items()
        },
        "self_test": checks,
        "ok": healthy,
    }
    if json:
        print_json(report)
    else:
        _print_report(report)
    return 0 if healthy else 1


def _describe_machine() -> dict[str, Any]:
    """Each entry is found separately, so that a broken installation spoils only its own line."""
    entries: dict[str, Callable[[], Any]] = {
        "platform": platform.platform,
        "cores": os.cpu_count,
        "torch_threads": _count_torch_threads,
        "kernel_threads": _name_threading_layer,
        "cpu_features": _find_cpu_features,
        "kernel_cache": _check_kernel_cache,
    }
    described = {}
    for name, describe in entries.items():
        try:
            described[name] = describe()
        except Exception as error:
            _refuse_interrupt()
            described[name] = f"unknown ({type(error).__name__}: {error})"
    return described


def _find_paths() -> dict[str, str]:
    """Which path of the optimizers each kind of device takes, and why."""
    try:
        from mirrormargin.optim.devices import describe_paths

        return describe_paths()
    except Exception as error:
        _refuse_interrupt()
        return {"all": f"unknown ({type(error).__name__}: {error})"}


def _count_torch_threads() -> int:
    import torch

    return torch.get_num_threads()


def _name_threading_layer() -> str:
    from mirrormargin.geometry.float32_kernels import threading_layer

    return threading_layer()


def _find_cpu_features() -> dict[str, bool]:
    from llvmlite import binding

    found = binding.get_host_cpu_features()
    return {name: bool(found.get(name, False)) for name in CPU_FEATURES}


def _check_kernel_cache() -> dict[str, Any]:
    """Where Numba keeps compiled kernels: its own setting, or beside the source file."""
    from mirrormargin import geometry

    beside = Path(geometry.__path__[0]) / "__pycache__"
    folder = Path(os.environ.get("NUMBA_CACHE_DIR") or beside)
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=folder):
            writable = True
    except OSError:
        writable = False
    return {"folder": str(folder), "writable": writable}


def _judge(check: Callable[[], None]) -> dict[str, Any]:
    start = time.perf_counter()
    try:
        check()
        outcome: dict[str, Any] = {"ok": True, "message": ""}
    except Exception as error:
        _refuse_interrupt()
        outcome = {"ok": False, "message": f"{type(error).__name__}: {error}"}
    return outcome | {"seconds": round(time.perf_counter() - start, 3)}


def _refuse_interrupt() -> None:
    """An interrupted import may raise any error: do not report that as a finding."""
    if interrupts.is_received():
        raise KeyboardInterrupt


def _check_fused_step() -> None:
    from mirrormargin import MirrorDescent
    from mirrormargin.optim.reference import ReferenceMirrorDescent

    for p in (1.1, 1.5, 3.0, 4.0):
        fast = _take_steps(lambda params, p=p: MirrorDescent(params, lr=0.01, p=p, fused=True))
        slow = _take_steps(lambda params, p=p: ReferenceMirrorDescent(params, lr=0.01, p=p))
        _require_close(f"p = {p:g}", fast, slow)


def _find_gpu_checks() -> dict[str, Callable[[], None]]:
    """Tests of the Triton kernels, where they can run: on a GPU, or in Triton's interpreter."""
    try:
        import torch

        from mirrormargin.optim.devices import find_triton_failure, is_interpreted
    except Exception:  # told by the other checks
        _refuse_interrupt()
        return {}
    on_gpu = torch.cuda.is_available() and not find_triton_failure(torch.device("cuda", 0))
    if not on_gpu and (not is_interpreted() or find_triton_failure()):
        return {}
    device = "cuda" if on_gpu else "cpu"
    where = "on the GPU" if on_gpu else "in the interpreter"
    return {f"Triton step {where} equals the reference": lambda: _check_triton_step(device)}


def _check_triton_step(device: str) -> None:
    """Calls the path itself, for the optimizer would take another one on the CPU."""
    import torch

    from mirrormargin import LpPotential
    from mirrormargin.optim import triton_step
    from mirrormargin.optim.reference import ReferenceMirrorDescent

    class Direct:
        def __init__(self, params: list[Any], p: float) -> None:
            self.params, self.potential = params, LpPotential(p)
            self.there = [param.detach().to(device, copy=True) for param in params]
            self.duals = [triton_step.to_dual(w, self.potential) for w in self.there]

        def step(self) -> None:
            triton_step.mirror_descent(
                self.there,
                [param.grad.to(device) for param in self.params],
                self.duals,
                None,
                potential=self.potential,
                grad_scales=[(1.0, 1.0)],
                lrs=[0.01],
                coupled_decays=[0.0],
                decay=1.0,
                momentum=0.0,
                nesterov=False,
            )
            with torch.no_grad():
                self.params[0].copy_(self.there[0])

    for p in (1.1, 1.3, 1.5, 3.0, 4.0):
        fast = _take_steps(lambda params, p=p: Direct(params, p))
        slow = _take_steps(lambda params, p=p: ReferenceMirrorDescent(params, lr=0.01, p=p))
        _require_close(f"p = {p:g}", fast, slow)


def _check_p2_is_sgd() -> None:
    import torch

    from mirrormargin import MirrorDescent

    ours = _take_steps(lambda params: MirrorDescent(params, lr=0.01, p=2.0))
    theirs = _take_steps(lambda params: torch.optim.SGD(params, lr=0.01))
    _require_close("p = 2", ours, theirs)


CHECKS: dict[str, Callable[[], None]] = {
    "fused step equals the reference": _check_fused_step,
    "p = 2 equals torch.optim.SGD": _check_p2_is_sgd,
}


def _take_steps(make_optimizer: Callable[[list[Any]], Any]) -> Any:
    """Three steps on 1,000 weights from fixed numbers, gradients included."""
    import torch

    generator = torch.Generator(device="cpu").manual_seed(0)
    weight = torch.randn(1000, generator=generator, device="cpu", dtype=torch.float32)
    weight.requires_grad_()
    optimizer = make_optimizer([weight])
    for _ in range(3):
        weight.grad = torch.randn(1000, generator=generator, device="cpu", dtype=torch.float32)
        optimizer.step()
    return weight.detach()


def _require_close(where: str, given: Any, expected: Any) -> None:
    import torch

    if not torch.allclose(given, expected, rtol=1e-4, atol=1e-7):
        difference = (given - expected).abs().max().item()
        raise ArithmeticError(f"{where}: weights differ by {difference:.1e}")


def _print_report(report: dict[str, Any]) -> None:
    machine = dict(report["machine"])
    features, cache = machine.pop("cpu_features"), machine.pop("kernel_cache")
    if isinstance(features, dict):
        features = ", ".join(n if found else f"no {n}" for n, found in features.items())
    if isinstance(cache, dict):
        advice = "writable" if cache["writable"] else "not writable: set NUMBA_CACHE_DIR"
        cache = f"{cache['folder']} ({advice})"
    found = [name for name, present in report["extras"].items() if present]
    missing = [name for name, present in report["extras"].items() if not present]
    lines = report["versions"] | {name.replace("_", " "): value for name, value in machine.items()}
    lines |= {"cpu features": features, "kernel cache": cache}
    lines |= {f"path on {device}": path for device, path in report["paths"].items()}
    lines |= {"extras found": ", ".join(found) or "none", "not found": ", ".join(missing) or "none"}
    print_pairs(lines, indent=0)
    say()
    verdicts = {
        name: ("ok" if check["ok"] else f"FAILED: {check['message']}")
        + f" ({check['seconds']:.2f} s)"
        for name, check in report["self_test"].items()
    }
    print_pairs(verdicts, indent=0)
