"""``fit_rate`` on a training and on a flow as they come."""

import numpy as np
import pytest

import mirrormargin as mm

PROBLEM = mm.synthetic.unit_sphere(1)


@pytest.fixture(scope="module")
def record():
    problems = [mm.synthetic.unit_sphere(seed) for seed in (1, 2)]
    return mm.train_attention(problems, p=[1.75, 2.0], num_steps=[1000, 2000])


@pytest.fixture(scope="module")
def flow():
    return mm.mirror_flow(PROBLEM, 2.0, decades=120)


def test_a_flow_is_fitted_by_its_proven_law_over_its_last_third(flow):
    used = flow.log10_k >= 80
    by_hand = mm.fit_rate(
        "loglog",
        log_steps=np.log(10) * flow.log10_k[used],
        values=flow.divergence[used],
        claimed=1.0,
    )
    assert flow.fit_rate() == by_hand
    assert mm.fit_rate(flow) == by_hand
    assert by_hand.verdict == mm.RateVerdict.AT_LEAST_AS_FAST


def test_a_flow_takes_a_form_a_window_in_decades_and_a_claim(flow):
    fit = flow.fit_rate("log", window=(60, 120), claimed=1.5)
    assert (fit.form, fit.claimed) == ("log", 1.5)
    assert fit.num_points == int((flow.log10_k >= 60).sum())


def test_the_loss_gap_of_a_flow_falls_like_one_over_k(flow):
    assert flow.fit_rate(quantity="loss_gap").exponent == pytest.approx(1.0, abs=1e-3)


def test_a_record_is_fitted_over_the_later_half_of_its_decades(record):
    steps = record.steps[0, 1, 0]
    used = steps >= np.sqrt(2000)
    by_hand = mm.fit_rate("power", steps=steps[used], values=record.divergence[0, 1, 0, used])
    assert record.fit_rate(problem=0, p=2.0) == by_hand
    assert mm.fit_rate(record, problem=0, p=2.0) == by_hand


def test_several_runs_are_pooled(record):
    fits = [record.fit_rate(problem=i, p=2.0) for i in (0, 1)]
    both = record.fit_rate(p=2.0)
    assert both.seed_exponents == pytest.approx([fit.exponent for fit in fits])
    assert record.fit_rate(problem=[0, 1], p=2.0) == both


def test_an_exponent_with_fewer_steps_ends_where_it_ended():
    record = mm.train_attention(
        PROBLEM,
        p=[1.75, 2.0],
        num_steps=[500, 2000],
        record=np.unique(np.geomspace(1, 2000, 90) // 1),
    )
    steps, first = np.unique(record.steps[0, 0, 0], return_index=True)
    assert len(steps) < record.steps.shape[-1]  # its last step is repeated
    used = first[steps >= np.sqrt(500)]
    assert record.fit_rate(p=1.75).num_points == len(used)


def test_a_loaded_record_has_the_same_rate(record, flow, tmp_path):
    record.save(tmp_path / "record")
    flow.save(tmp_path / "flow")
    assert mm.AttentionRecord.load(tmp_path / "record").fit_rate(p=2) == record.fit_rate(p=2)
    assert mm.FlowRecord.load(tmp_path / "flow").fit_rate() == flow.fit_rate()


def test_constant_steps_are_compared_with_the_proven_rate():
    record = mm.train_attention(PROBLEM, step_rule="constant", lr=1.0, num_steps=5000)
    fit = record.fit_rate()
    assert (fit.form, fit.claimed) == ("loglog", 1.0)
    assert record.fit_rate(claimed=None).claimed is None


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({}, "p is None: give one of the record's exponents, 1.75, 2"),
        ({"p": 3}, "p is 3: give one of"),
        ({"p": 2, "problem": 2}, "problem is 2: give an integer from 0 to 1"),
        ({"p": 2, "problem": []}, "problem is empty"),
        ({"p": 2, "init": -1}, "init is -1"),
        ({"p": 2, "quantity": "loss"}, "quantity is 'loss': give one of divergence, loss_gap"),
        ({"p": 2, "claimed": "fast"}, "claimed is 'fast'"),
        ({"p": 2, "window": (1, 3)}, "3 recorded steps are in the window"),
        ({"p": 2, "steps": [1, 2]}, "steps is given, but a record has its own"),
    ],
)
def test_a_mistake_says_what_is_allowed(record, options, message):
    with pytest.raises(mm.ProblemError, match=message.replace("(", r"\(")):
        mm.fit_rate(record, **options)


def test_without_a_target_there_is_no_divergence():
    record = mm.train_attention(PROBLEM, num_steps=100, target=None)
    with pytest.raises(mm.ProblemError, match='fit quantity="loss_gap"'):
        record.fit_rate()
    assert record.fit_rate(quantity="loss_gap").form == "exp"


def test_which_run_is_asked_only_of_a_record():
    with pytest.raises(mm.ProblemError, match="problem is for a record"):
        mm.fit_rate("log", steps=[1, 2], values=[1, 2], problem=0)
