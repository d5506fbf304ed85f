"""What a reader meets first: the names of the package, and how its objects show themselves."""

import subprocess
import sys
from typing import Literal, get_args, get_origin, get_type_hints

import numpy as np
import pytest
import torch

import mirrormargin as mm
from mirrormargin.data.dataset import DataSet, Split

PROBLEM = mm.synthetic.unit_sphere(1)
CHOSEN = PROBLEM.optimal_tokens


def test_dir_has_public_names_only():
    program = (
        "import mirrormargin as mm; before = dir(mm); mm.train_attention; mm.MirrorAdam;"
        " assert dir(mm) == before == sorted([*mm.__all__, '__version__']), dir(mm)"
    )
    subprocess.run([sys.executable, "-c", program], check=True, timeout=120)


def test_dir_of_synthetic_has_the_problems_only():
    assert dir(mm.synthetic) == sorted(["GENERATORS", *mm.synthetic.GENERATORS])


def _make_data() -> DataSet:
    split = Split(torch.zeros(500, 64, dtype=torch.int32), torch.zeros(500, dtype=torch.int64))
    vocabulary = tuple(f"word{i}" for i in range(5000))
    return DataSet(
        name="mine", kind="text", classes=("no", "yes"), shape=(64,), vocabulary=vocabulary,
        train=split, validation=split, test=split, sha256={"a": "b"}, note="long " * 100,
    )  # fmt: skip


def _fail_to_separate():
    tokens = np.ones((1, 2, 2))
    return mm.solve_attention_svm(tokens, [[1.0, 0.0]], [0], raise_on_failure=False).certificate


def _train():
    return mm.train_attention(PROBLEM, p=[1.5, 2, 3], num_steps=50)


def _check_bound():
    log_k = np.linspace(1, 100, 200)
    return mm.bound_holds(log_k, 1 / log_k, mm.claimed_rate(3)[1], early=(1, 10), late=(10, 40))


def _make_delta():
    base, model = torch.nn.Linear(40, 60), torch.nn.Linear(40, 60)
    return mm.SparseDelta.extract(model, base, keep=30, whole=["bias"])


def _fill_store():
    base = torch.nn.Linear(40, 60)
    store = mm.DeltaStore(base)
    for number in range(20):
        store.add(f"task {number}", mm.SparseDelta.extract(torch.nn.Linear(40, 60), base, keep=3))
    return store


SHOWN = {
    "problem": lambda: PROBLEM,
    "record": _train,
    "joint record": lambda: mm.train_joint(PROBLEM, num_steps=50),
    "flow": lambda: mm.mirror_flow(PROBLEM, 2.0, decades=10),
    "solution": lambda: mm.solve_attention_svm(PROBLEM.tokens, PROBLEM.queries, CHOSEN),
    "solutions": lambda: mm.solve_many(PROBLEM, CHOSEN, p=[1.5, 2]),
    "nuclear": lambda: mm.solve_nuclear_svm(PROBLEM.tokens, PROBLEM.queries, CHOSEN),
    "decoder": lambda: mm.solve_decoder_svm(PROBLEM.queries, PROBLEM.labels),
    "certificate": _fail_to_separate,
    "path": lambda: mm.regularization_path(PROBLEM, num_radii=3),
    "joint path": lambda: mm.joint_regularization_path(mm.synthetic.joint_toy(), num_radii=3),
    "basins": lambda: mm.basin_statistics(_train()),
    "comparison": lambda: mm.compare_exponents(_train()),
    "rate": lambda: mm.mirror_flow(PROBLEM, 2.0, decades=120).fit_rate(),
    "bound": _check_bound,
    "data set": _make_data,
    "delta": _make_delta,
    "deltas compared": lambda: (delta := _make_delta()).compare(delta),
    "store of deltas": _fill_store,
    "split": lambda: _make_data().train,
}


@pytest.mark.parametrize("name", SHOWN)
def test_repr_is_short_and_shows_no_arrays(name):
    text = repr(SHOWN[name]())
    assert len(text) <= 300
    assert len(text.splitlines()) <= 3
    assert not any(word in text for word in ("array(", "tensor(", "[[", "object at"))


@pytest.mark.parametrize(
    ("function", "parameter", "choices"),
    [
        (mm.train_attention, "step_rule", {"constant", "normalized", "polyak"}),
        (mm.train_attention, "parameterization", {"W", "KQ"}),
        (mm.train_joint, "step_rule", {"constant", "normalized"}),
        (mm.MirrorDescent.__init__, "step_rule", {"constant", "normalized", "polyak"}),
        (mm.MirrorDescent.__init__, "norm_over", {"tensor", "group"}),
        (mm.MirrorDescent.__init__, "polyak", {"bregman", "dual_norm"}),
        (mm.MirrorDescent.__init__, "nonfinite", {"propagate", "raise", "skip"}),
        (mm.MirrorAdam.__init__, "nonfinite", {"propagate", "raise", "skip"}),
        (mm.AttentionProblem.__init__, "loss", {"logistic", "exponential", "correlation"}),
        (mm.GroupLpPotential.__init__, "groups", {"rows", "columns"}),
        (mm.SparseDelta.extract, "scope", {"global", "tensor"}),
        (mm.FlowRecord.fit_rate, "quantity", {"divergence", "loss_gap", "unattended"}),
    ],
)
def test_an_editor_knows_the_choices(function, parameter, choices):
    import mirrormargin.dynamics.descent.recording as recording

    hint = get_type_hints(function, localns={"Progress": recording.Progress})[parameter]
    assert get_origin(hint) is Literal
    assert set(get_args(hint)) == choices
