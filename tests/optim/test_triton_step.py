"""The path for GPUs: it computes what it should, compiles for GPUs, and is taken there.

No GPU takes part. Triton's interpreter runs the kernels, in a process of its own, and Triton's
compiler makes the code that GPUs would run.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch

pytest.importorskip("triton", reason="Triton cannot be imported here", exc_type=ImportError)
import triton.language as tl
from triton._C.libtriton import interpreter

from mirrormargin import MirrorAdam, MirrorDescent, OptimizerError
from mirrormargin.geometry.triton_powers import power_kernel, power_sum_kernel
from mirrormargin.optim import devices, foreach, paths, plain, triton_step

FOLDER = Path(__file__).parent


@pytest.mark.parametrize(
    "chosen", ["not slow", pytest.param("slow", marks=pytest.mark.slow)], ids=["covering", "rest"]
)
def test_kernels_are_right_in_the_interpreter(chosen):
    """The claims are the tests of ``triton_in_interpreter.py``."""
    if not hasattr(interpreter, "fma_fp32"):
        pytest.skip("the interpreter of this old Triton rounds a fused multiply-add twice")
    options = ["-q", "-x", "-m", chosen, "-p", "no:cacheprovider"]
    done = subprocess.run(
        [sys.executable, "-m", "pytest", *options, str(FOLDER / "triton_in_interpreter.py")],
        env={**os.environ, "TRITON_INTERPRET": "1", "PYTHONPATH": os.pathsep.join(sys.path)},
        capture_output=True,
        text=True,
        cwd=FOLDER.parents[1],
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert re.search(r"\d+ passed", done.stdout)
    assert "skipped" not in done.stdout


TARGETS = {"cuda": ("cuda", 80, 32), "older cuda": ("cuda", 75, 32), "rocm": ("hip", "gfx942", 64)}
STEP = {"DUAL_KIND": 0, "KIND": 0, "GRAD_DTYPE": tl.bfloat16, "HAS_CENTER": False}
VARIANTS = [
    (triton_step.descent_kernel, STEP | {"HAS_BUFFER": True, "NESTEROV": True, "HAS_CENTER": True}),
    (
        triton_step.descent_kernel,
        STEP | {"DUAL_KIND": -2, "KIND": 2, "HAS_BUFFER": False, "NESTEROV": False},
    ),
    (triton_step.adam_kernel, STEP | {"AMSGRAD": True}),
    (triton_step.adam_kernel, STEP | {"AMSGRAD": False, "HAS_CENTER": True}),
    (triton_step.adam_kernel, STEP | {"KIND": 10, "AMSGRAD": False}),
    (power_kernel, {"KIND": 20, "num_tensors": 1}),  # Triton makes a constant of 1
    (power_sum_kernel, {"KIND": 0}),
]


@pytest.mark.parametrize(
    "target", ["cuda", pytest.param("older cuda", marks=pytest.mark.slow), "rocm"]
)
def test_kernels_compile_for_gpus(target, tmp_path, monkeypatch):
    """To code that rounds roots and quotients correctly, flushes nothing and contracts nothing."""
    from triton import compile as compile_kernel
    from triton.backends.compiler import GPUTarget
    from triton.compiler import ASTSource

    monkeypatch.setenv("TRITON_CACHE_DIR", str(tmp_path))
    dtypes = list(triton_step.DTYPES.values())
    for number, (kernel, constants) in enumerate(VARIANTS):
        constants = {**constants, "DTYPE": dtypes[number % 3], "BLOCK": 1024}
        signature = {"table": "*i64", "owners": "*i32", "num_tensors": "i32", "out": "*fp32"}
        source = ASTSource(
            kernel,
            signature=signature | dict.fromkeys(constants, "constexpr"),
            constexprs={(kernel.arg_names.index(name),): v for name, v in constants.items()},
        )
        made = compile_kernel(
            source, target=GPUTarget(*TARGETS[target]), options={"enable_fp_fusion": False}
        )
        if target == "rocm":
            assert "float_denorm_mode_32 3" in made.asm["amdgcn"]  # 3: neither flushed on the way
            assert len(made.asm["hsaco"]) > 0
        else:
            code = made.asm["ptx"]
            assert ".ftz" not in code
            assert "sqrt.approx" not in code
            assert not re.search(r"\b(mul|add|sub)\.f32", code)  # without .rn it may be contracted
            assert len(made.asm["cubin"]) > 0


@pytest.fixture
def gpu(monkeypatch):
    """Make what says that it is a tensor on a GPU."""
    monkeypatch.setattr(devices, "find_triton_failure", lambda device=None: None)
    monkeypatch.setattr(paths, "_PLAIN_TYPES", {SimpleNamespace})

    def make(dtype=torch.float32, device="cuda", dense=True):
        return SimpleNamespace(
            dtype=dtype,
            device=torch.device(device),
            is_cpu=False,
            ndim=2,
            is_contiguous=lambda: dense,
        )

    return make


GROUP = {"p": 1.1, "potential": None, "foreach": None, "fused": None, "capturable": False}
GROUP |= {"state_dtype": None}


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
def test_tensors_on_a_gpu_take_triton(gpu, dtype):
    weight = gpu(dtype)
    assert paths.choose_path(GROUP, weight) is triton_step
    assert paths.choose_path(GROUP | {"fused": True}, weight) is triton_step
    assert paths.choose_path(GROUP | {"fused": False}, weight) is plain
    assert paths.choose_path(GROUP | {"foreach": True}, weight) is foreach


def test_what_has_no_kernel_takes_the_plain_path(gpu):
    for group, weight in (
        (GROUP, gpu(torch.float64)),
        (GROUP, gpu(device="xpu")),
        (GROUP, gpu(dense=False)),
        (GROUP | {"p": 1.005}, gpu()),
        (GROUP | {"p": 200.0}, gpu()),
        (GROUP | {"potential": object()}, gpu()),
        (GROUP | {"state_dtype": torch.bfloat16}, gpu()),
        (GROUP | {"capturable": True}, gpu()),
    ):
        assert paths.choose_path(group, weight) is plain


def test_the_interpreter_is_kept_away_from_a_gpu(monkeypatch):
    """It reads memory by address, and that of a GPU is not its own."""
    monkeypatch.setenv("TRITON_INTERPRET", "1")
    failure = devices.find_triton_failure.__wrapped__(torch.device("cuda", 0))
    assert failure is not None
    assert failure.startswith("TRITON_INTERPRET is set")


def test_triton_that_cannot_be_imported_is_no_error(monkeypatch):
    monkeypatch.setitem(sys.modules, "triton", None)
    monkeypatch.delitem(sys.modules, "triton.language", raising=False)
    failure = devices.find_triton_failure.__wrapped__(None)
    assert failure is not None
    assert failure.startswith("Triton cannot be imported (ModuleNotFoundError")


@pytest.mark.parametrize("make", [MirrorDescent, MirrorAdam])
def test_fused_needs_a_type_that_has_a_kernel(make):
    weight = torch.nn.Parameter(torch.ones(3, dtype=torch.float64))
    with pytest.raises(OptimizerError, match="on a GPU with Triton"):
        make([weight], lr=0.1, fused=True)
