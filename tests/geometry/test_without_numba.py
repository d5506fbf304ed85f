"""Without a working Numba everything but the compiled lab goes on, after one warning."""

import os
import subprocess
import sys
import textwrap

import pytest

BLOCKED = """
import sys
sys.modules["numba"] = None
"""
# Numba is there, but does not compile.
BROKEN = """
import numba
def refuse(*args, **options):
    raise RuntimeError("no code for this processor")
numba.njit = refuse
"""
WORK = """
import warnings
with warnings.catch_warnings(record=True) as caught:
    warnings.simplefilter("always")
    import numpy as np
    import torch
    import mirrormargin as mm

    for name in mm.__all__:
        getattr(mm, name)
    param = torch.nn.Parameter(torch.linspace(-1, 1, 9))
    param.grad = torch.ones(9)
    for make in (
        lambda: mm.MirrorAdam([param], lr=0.1, p=1.1),
        lambda: mm.MirrorDescent([param], lr=0.1, p=1.7, step_rule="normalized"),
    ):
        before = param.detach().clone()
        make().step()
        assert bool((param != before).all())
    assert mm.LpPotential(3.0).to_dual([-2.0]).tolist() == [-4.0]
    problem = mm.synthetic.unit_sphere(1)
    arrays = problem.tokens, problem.queries, problem.optimal_tokens
    assert mm.solve_attention_svm(*arrays, p=1.75).is_optimal()
    many = mm.solve_many([problem, problem], arrays[2], p=[1.75, 3.0])
    assert all(many[i, j, 0].is_optimal() for i in range(2) for j in range(2))
    flow = mm.mirror_flow(problem, 2.0, decades=3)
    assert 0 < flow.divergence[-1] < flow.divergence[1]
    needing = {
        "train_attention": lambda: mm.train_attention(problem),
        "train_joint": lambda: mm.train_joint(problem),
        "fused=True": lambda: mm.MirrorDescent([param], lr=0.1, fused=True),
    }
    for name, call in needing.items():
        try:
            call()
        except mm.MissingNumbaError as error:
            print(error)
            assert str(error).startswith(name)
        else:
            raise AssertionError(name)
print("warnings:", [f"{one.category.__name__}: {one.message}" for one in caught])
"""


def run(script, **environment):
    """What a process of its own prints, the warnings in the last line."""
    environment = {**os.environ, "MIRRORMARGIN_WITHOUT_NUMBA": "0", **environment}
    command = [sys.executable, "-c", textwrap.dedent(script)]
    done = subprocess.run(command, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    *errors, warnings = done.stdout.splitlines()
    return errors, warnings


@pytest.mark.parametrize(
    ("start", "reason"),
    [
        pytest.param(BLOCKED, "ModuleNotFoundError", id="absent"),
        pytest.param(BROKEN, "no code for this processor", id="broken", marks=pytest.mark.slow),
    ],
)
def test_without_numba_there_is_one_warning_and_the_lab_says_what_is_missing(start, reason):
    if start == BROKEN:
        pytest.importorskip("numba", reason="to break", exc_type=ImportError)
    errors, warnings = run(start + WORK)
    assert warnings.count("MirrorMarginWarning") == warnings.count("Warning: ") == 1
    for message in (*errors, warnings):
        assert reason in message
        assert "pip install --upgrade numba" in message
    assert "MIRRORMARGIN_WITHOUT_NUMBA=1" in warnings


@pytest.mark.slow
def test_a_variable_switches_numba_off_without_a_warning():
    errors, warnings = run(WORK, MIRRORMARGIN_WITHOUT_NUMBA="1")
    assert warnings == "warnings: []"
    assert all("MIRRORMARGIN_WITHOUT_NUMBA is set" in message for message in errors)


def test_with_numba_nothing_is_said():
    pytest.importorskip("numba", exc_type=ImportError)
    script = """
    import warnings
    warnings.simplefilter("error")
    from mirrormargin.geometry.compiler import has_numba, require_numba
    assert has_numba()
    require_numba("this")
    print()
    """
    run(script)
