"""Lab runs: each row is what train_attention gives that run alone, bit for bit."""

import numpy as np
import pytest

import mirrormargin as mm

pytest.importorskip("pyarrow", reason="pyarrow is not installed: mirrormargin[sweep]")

from sweep_tables import same_bits

from mirrormargin.sweep import LabGrid
from mirrormargin.sweep.lab_runs import compute_lab_runs, find_lab_digest, list_settings

MEASURES = ("divergence", "log_loss", "log_loss_gap", "norm", "logit_gap", "margin", "attention")
GRID = LabGrid(
    seed="1-4", p=[1.75, 2.0], lr=[0.1, 0.3], num_steps=[3, 40], init_std=[0.0, 1.0], record=9
)


def train_alone(settings):
    sizes = {name: settings[name] for name in ("num_sequences", "num_tokens", "dim")}
    init = 0.0
    if settings["init_std"]:
        init = mm.NormalInit(settings["init_std"], settings["seed"])
    return mm.train_attention(
        mm.synthetic.unit_sphere(settings["seed"], **sizes),
        settings["p"],
        lr=settings["lr"],
        num_steps=settings["num_steps"],
        init=init,
        record=settings["record"],
    )


@pytest.mark.parametrize("number", [0, 7, 22, 40, 63])
def test_a_row_is_the_run_alone(number):
    (product,) = GRID.products
    row = compute_lab_runs(product, 0, product.size).to_pylist()[number]
    record = train_alone(product.settings(number))
    assert row["status"] == "done"
    assert row["steps"] == record.steps[0, 0, 0, -1] == row["num_steps"]
    for name in MEASURES:
        assert row[name] == getattr(record, name)[0, 0, 0, -1], name
    assert row["recorded_steps"] == record.steps[0, 0, 0].tolist()
    np.testing.assert_array_equal(row["recorded_divergence"], record.divergence[0, 0, 0])
    optimal = record.problems[0].optimal_tokens
    assert row["optimal"] == (record.final_selection[0, 0, 0] == optimal).mean()
    assert row["init_seed"] == row["seed"]


def test_rows_do_not_depend_on_who_else_is_computed():
    (product,) = GRID.products
    half = product.size // 2  # a stretch has the settings of one call
    whole = compute_lab_runs(product, 0, half, offset=100)
    for first, stop in ((0, 1), (3, 9), (5, half - 1)):
        part = compute_lab_runs(product, first, stop, offset=100)
        assert same_bits(part, whole.slice(first, stop - first))


def test_factors_step_rules_and_fixed_problems_are_swept():
    grids = [
        LabGrid(parameterization="KQ", rank=2, init_std=1.0, seed=[1, 2], num_steps=5),
        LabGrid(step_rule="polyak", max_lr=10.0, target="none", seed=3, num_steps=5),
        LabGrid("joint_toy", p=[2, 3], num_steps=5),
        LabGrid("equal_scores", loss="exponential", seed="1-2", num_steps=5),
    ]
    rows = []
    for grid in grids:
        (product,) = grid.products
        rows += compute_lab_runs(product, 0, product.size).to_pylist()
    assert {row["status"] for row in rows} == {"done"}
    assert [row["divergence"] is None for row in rows] == [False, False, True] + [False] * 4
    assert rows[3]["seed"] is None
    factors = mm.train_attention(
        mm.synthetic.unit_sphere(2), parameterization="KQ", rank=2, num_steps=5,
        init=mm.NormalInit(1.0, 2),
    )  # fmt: skip
    assert rows[1]["norm"] == factors.norm[0, 0, 0, -1]


def test_a_run_that_raises_has_its_traceback_and_the_others_their_rows(monkeypatch):
    from mirrormargin.sweep import lab_runs

    real = lab_runs.train_attention

    def refuse_one(problems, p, **options):
        if 3.0 in p and any(problem.tokens[0, 0, 0] == wrong for problem in problems):
            raise ArithmeticError("this one does not work")
        return real(problems, p, **options)

    wrong = mm.synthetic.unit_sphere(5).tokens[0, 0, 0]
    (product,) = LabGrid(seed="1-9", p=[2, 3, 4], num_steps=5).products
    expected = compute_lab_runs(product, 0, 27).to_pylist()
    monkeypatch.setattr(lab_runs, "train_attention", refuse_one)
    rows = compute_lab_runs(product, 0, 27).to_pylist()
    failed = rows.pop(13)
    assert rows == expected[:13] + expected[14:]
    assert (failed["seed"], failed["p"], failed["status"]) == (5, 3.0, "failed")
    assert failed["error"] == "ArithmeticError: this one does not work"
    assert "Traceback" in failed["traceback"]
    assert "refuse_one" in failed["traceback"]
    assert failed["norm"] is None


def test_a_problem_that_cannot_be_made_fails_alone():
    (product,) = LabGrid("equal_scores", num_tokens=4, num_sequences=20, dim=64).products
    (row,) = compute_lab_runs(product, 0, 1).to_pylist()
    assert row["status"] == "failed"
    assert row["error"].startswith("ProblemError: dim is 64")


def test_what_no_process_survives_is_a_failed_run_with_its_settings():
    (product,) = GRID.products
    (row,) = compute_lab_runs(product, 5, 6, lost="the process died").to_pylist()
    assert (row["run"], row["status"], row["error"]) == (5, "failed", "the process died")
    assert row["digest"] == find_lab_digest(list_settings(product, 5, 6)[0])


def test_a_digest_names_the_settings_wherever_the_run_is():
    (all_seeds,), (one,) = LabGrid(seed="1-9", p=[2, 3]).products, LabGrid(seed=4, p=3).products
    names = [find_lab_digest(run) for run in list_settings(all_seeds, 0, 18)]
    assert len(set(names)) == 18
    assert names[7] == find_lab_digest(one.settings(0))


def test_bits_are_compared():
    import pyarrow as pa

    left, right = (pa.table({"x": pa.array([value, np.nan])}) for value in (1.0, 1.0 + 2**-52))
    assert same_bits(left, left)
    assert not same_bits(left, right)
