"""Records that were edited: whatever does not fit together is refused, never resumed."""

import json
from dataclasses import replace

import numpy as np
import pytest

import mirrormargin as mm
from mirrormargin.dynamics.descent.record import KIND
from mirrormargin.errors import ProblemError, RunError
from mirrormargin.runs import read_run, seal, write_run


@pytest.fixture(scope="module")
def record():
    problems = [mm.synthetic.unit_sphere(seed) for seed in (1, 2)]
    return mm.train_attention(
        problems, [1.75, 2.0], step_rule="polyak", max_lr=1e3, num_steps=20, lr=0.5
    )


def edit_settings(folder, **changes):
    """Change the settings in run.json, checksum included."""
    path = folder / "run.json"
    document = json.loads(path.read_text())
    document["settings"].update(changes)
    path.write_text(json.dumps(seal(document)))


@pytest.mark.parametrize(
    "changes",
    [
        {"p": [1.75, 3.0]},
        {"lr": [0.5, 0.6]},
        {"step_rule": "normalized"},
        {"eps": 0.1},
        {"max_lr": "10.0"},
        {"target_tol": 1e-6},
        {"num_steps": [20, 30]},
        {"p": [0.5, 2.0]},
        {"p": ["2", "3"]},
        {"lr": [float("nan"), 0.5]},
        {"rank": 0},
        {"target": "elsewhere"},
    ],
    ids=str,
)
def test_edited_settings_are_refused(record, tmp_path, changes):
    record.save(tmp_path)
    assert mm.AttentionRecord.load(tmp_path).is_complete
    edit_settings(tmp_path, **changes)
    with pytest.raises(RunError, match="is damaged"):
        mm.AttentionRecord.load(tmp_path)


def test_another_loss_is_refused(record, tmp_path):
    record.save(tmp_path)
    path = tmp_path / "run.json"
    document = json.loads(path.read_text())
    document["losses"] = ["exponential"] * 2
    path.write_text(json.dumps(seal(document)))
    with pytest.raises(RunError, match="not those that its state was trained with"):
        mm.AttentionRecord.load(tmp_path)


@pytest.mark.parametrize(
    "changes", [{"p": (1.75, 3.0)}, {"lr": (0.5, 0.6)}, {"step_rule": "constant"}], ids=str
)
def test_settings_are_compared_with_the_state_even_without_a_digest(record, changes):
    changed = replace(record, settings=replace(record.settings, **changes))
    with pytest.raises(ProblemError, match="does not belong to its settings"):
        mm.resume_training(changed, 30)


@pytest.mark.parametrize("name", ["W", "norm", "steps", "selection", "divergence", "end"])
def test_arrays_of_other_shapes_are_refused(record, tmp_path, name):
    record.save(tmp_path)
    document, arrays = read_run(tmp_path, KIND)
    for wrong in (arrays[name][:, :1], arrays[name].astype(complex), np.zeros(())):
        write_run(
            tmp_path,
            KIND,
            {k: document[k] for k in ("settings", "losses")},
            {**arrays, name: wrong},
        )
        with pytest.raises(RunError, match="is damaged"):
            mm.AttentionRecord.load(tmp_path)


def spoil(record, name, change):
    state = {key: value.copy() for key, value in record.state.items()}
    state[name] = change(state[name])
    return replace(record, state=state)


def put(index, value):
    def change(array):
        array[index] = value
        return array

    return change


@pytest.mark.parametrize(
    ("name", "change"),
    [
        ("u", put((0, 0, 0), np.nan)),
        ("w", put((0, 0, 0), np.inf)),
        ("numbers", put((0, 7), np.nan)),
        ("numbers", put((1, 0), 2.5)),
        ("codes", put(1, 0)),
        ("step", put(0, 10**6)),
        ("step", put(0, -1)),
        ("end", put(0, 17)),
        ("u", lambda array: array[:1]),
        ("u", lambda array: array.astype(np.float32)),
        ("step", lambda array: array.astype(float)),
    ],
)
def test_a_state_that_nothing_leads_to_is_refused(record, name, change):
    with pytest.raises(ProblemError):
        mm.resume_training(spoil(record, name, change), 30)


def test_a_missing_state_is_refused(record):
    state = {key: value for key, value in record.state.items() if key != "u"}
    with pytest.raises(ProblemError, match="the state u"):
        mm.resume_training(replace(record, state=state), 30)


def test_a_diverged_run_may_have_numbers_that_are_not_finite(tmp_path):
    with np.errstate(all="ignore"):
        record = mm.train_attention(
            mm.synthetic.unit_sphere(1), 1.1, step_rule="constant", lr=1e30, num_steps=50
        )
    record.save(tmp_path)
    resumed = mm.resume_training(mm.AttentionRecord.load(tmp_path), 60)
    np.testing.assert_array_equal(resumed.W, record.W)


def test_a_whole_record_resumes_as_ever(record, tmp_path):
    record.save(tmp_path)
    one = mm.resume_training(mm.AttentionRecord.load(tmp_path), 40)
    np.testing.assert_array_equal(one.W, mm.resume_training(record, 40).W)
