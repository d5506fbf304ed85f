"""What training does not accept, and the message for each."""

import numpy as np
import pytest

import mirrormargin as mm
from mirrormargin.attention import AttentionProblem, synthetic
from mirrormargin.errors import MirrorMarginError, ProblemError

D = 5


def sphere(seed=1, n=3, T=4, d=D, loss="logistic"):
    return synthetic.unit_sphere(seed, n, T, d, loss=loss)


def with_zero_query():
    problem = sphere()
    queries = problem.queries.copy()
    queries[1] = 0.0
    return AttentionProblem(problem.tokens, queries, problem.labels, problem.head)


BOTH = {
    "no problems": ({"problems": []}, "problems is empty"),
    "number": ({"problems": 3}, "problems is a int: give an AttentionProblem"),
    "arrays": ({"problems": [np.ones((3, 4, D))]}, r"problems\[0\] is a ndarray"),
    "mixed shapes": (
        {"problems": [sphere(), sphere(n=4)]},
        r"problems\[1\] has tokens of shape \(4, 4, 5\), problems\[0\] of shape \(3, 4, 5\)",
    ),
    "mixed losses": (
        {"problems": [sphere(), sphere(loss="exponential")]},
        "problems have different losses",
    ),
    "zero query": ({"problems": with_zero_query()}, r"problems\[0\].queries\[1\] is all zeros"),
    "p of 1": ({"p": 1.0}, "p is 1.0: give a number above 1"),
    "p below 1": ({"p": [2.0, 0.5]}, "p is 0.5: give a number above 1"),
    "inf p": ({"p": np.inf}, "p is inf: give a number above 1 and below inf"),
    "nan p": ({"p": np.nan}, "p is nan: give a number above 1"),
    "word p": ({"p": "two"}, "p is 'two': give a number above 1"),
    "no p": ({"p": []}, r"p has shape \(0,\): give a number, or a list of numbers"),
    "matrix of p": ({"p": [[2.0]]}, r"p has shape \(1, 1\)"),
    "lr of 0": ({"lr": 0.0}, "lr is 0.0: give a positive number"),
    "negative lr": ({"lr": -1}, "lr is -1: give a positive number"),
    "nan lr": ({"lr": np.nan}, "lr is nan"),
    "number of lr": ({"lr": [0.1, 0.2]}, r"lr has shape \(2,\)"),
    "negative steps": ({"num_steps": -1}, "num_steps is -1: give integers >= 0"),
    "half a step": ({"num_steps": 0.5}, "num_steps is 0.5"),
    "number of num_steps": ({"num_steps": [1, 2]}, r"num_steps has shape \(2,\)"),
    "record of 0": ({"record": 0}, "record is 0: record at least 1 step"),
    "negative record": ({"record": [-1, 2]}, "record must be"),
    "init shape": ({"init": np.ones((D, D + 1))}, r"init has shape \(5, 6\).*does not broadcast"),
    "nan init": ({"init": np.nan}, r"init.* is (nan|inf): give finite numbers"),
    "empty init": ({"init": np.ones((0, D, D))}, r"init has shape \(0, 5, 5\) and is empty"),
    "unknown rule": ({"step_rule": "newton"}, "step_rule is 'newton': give one of"),
    "no rule": ({"step_rule": None}, "step_rule is None"),
    "unknown target": ({"target": "best"}, "target is 'best': give \"own\""),
    "target_tol of 0": (
        {"target_tol": 0.0},
        "target_tol is 0.0: give a number above 0",
    ),
    "target_tol of 1": ({"target_tol": 1.0}, "target_tol is 1.0"),
    "nan target_tol": ({"target_tol": np.nan}, "target_tol is nan"),
    "word target_tol": ({"target_tol": "small"}, "target_tol is 'small'"),
    "negative eps": ({"eps": -1e-16}, "eps is -1e-16: give a number of at least 0"),
    "nan eps": ({"eps": np.nan}, "eps is nan"),
    "word eps": ({"eps": "tiny"}, "eps is 'tiny'"),
    "true eps": ({"eps": True}, "eps is True"),
    "no threads": ({"threads": 0}, "threads is 0: give a positive integer, or None"),
    "half a thread": ({"threads": 0.5}, "threads is 0.5"),
}
ATTENTION = {
    "max_lr of 0": ({"max_lr": 0.0}, "max_lr is 0.0: give a number above 0, or inf"),
    "nan max_lr": ({"max_lr": np.nan}, "max_lr is nan"),
    "word max_lr": ({"max_lr": "much"}, "max_lr is 'much'"),
    "unknown parameterization": (
        {"parameterization": "QK"},
        "parameterization is 'QK': give one of W, KQ",
    ),
    "zero factors": ({"parameterization": "KQ"}, "init is 0, where K and Q stay for ever"),
    "shape of factors": (
        {"parameterization": "KQ", "rank": 2, "init": np.ones((2, D, D))},
        r"init has shape \(2, 5, 5\).*\(1, 1, 1, 2, 5, 2\)",
    ),
    "rank of 0": (
        {"parameterization": "KQ", "rank": 0},
        "rank is 0: give an integer from 1 to 5",
    ),
    "rank above d": ({"parameterization": "KQ", "rank": 6}, "rank is 6"),
    "half a rank": ({"parameterization": "KQ", "rank": 1.5}, "rank is 1.5"),
    "target shape": ({"target": np.ones(3)}, r"target has shape \(3,\).*does not broadcast"),
    "word rule": ({"step_rule": "polyak", "lr": 0.0}, "lr is 0.0"),
}
JOINT = {
    "head_lr of 0": ({"head_lr": 0.0}, "head_lr is 0.0: give a positive number"),
    "head_init shape": ({"head_init": np.ones(D + 1)}, r"head_init has shape \(6,\)"),
    "nan head_init": ({"head_init": np.nan}, r"head_init.* is nan: give finite numbers"),
    "different starts": (
        {"init": mm.NormalInit(1.0, range(2)), "head_init": mm.NormalInit(1.0, range(3))},
        "init gives 2 starts and head_init 3: give as many, or one",
    ),
    "negative decay": ({"decay": -0.5}, "decay is -0.5: give a number of at least 0"),
    "nan head_decay": ({"head_decay": np.nan}, "head_decay is nan"),
    "polyak": (
        {"step_rule": "polyak"},
        "step_rule is 'polyak': give one of normalized, constant",
    ),
    "array target": ({"target": np.ones((D, D))}, 'target is a ndarray: give "own" or None'),
}


def start(train, options):
    return train(**({"problems": sphere(), "num_steps": 3} | options))


@pytest.mark.parametrize("train", [mm.train_attention, mm.train_joint])
@pytest.mark.parametrize("case", BOTH)
def test_wrong_arguments_are_named(train, case):
    options, message = BOTH[case]
    with pytest.raises(ProblemError, match=message):
        start(train, options)


@pytest.mark.parametrize("train", [mm.train_attention, mm.train_joint])
def test_more_matrices_than_memory_are_refused(train, monkeypatch):
    options = {"p": [1.5, 2.0], "num_steps": 20, "record": range(21), "target": None}
    limit = "mirrormargin.dynamics.descent.recording.MOST_MEMORY"
    monkeypatch.setattr(limit, 2 * 21 * D * D * 8)
    record = start(train, options)
    monkeypatch.setattr(
        "mirrormargin.dynamics.descent.recording.MOST_MEMORY", 2 * 21 * D * D * 8 - 1
    )
    with pytest.raises(ProblemError, match=r"21 recorded steps of 2 runs are .* GiB of matrices"):
        start(train, options)
    # Going on needs what is added alone.
    mm.resume_training(record, num_steps=30)


@pytest.mark.parametrize("case", ATTENTION)
def test_wrong_arguments_of_attention_training_are_named(case):
    options, message = ATTENTION[case]
    with pytest.raises(ProblemError, match=message):
        start(mm.train_attention, options)


@pytest.mark.parametrize("case", JOINT)
def test_wrong_arguments_of_joint_training_are_named(case):
    options, message = JOINT[case]
    with pytest.raises(ProblemError, match=message):
        start(mm.train_joint, options)


def test_errors_are_of_the_library_and_value_errors():
    with pytest.raises(MirrorMarginError) as caught:
        start(mm.train_attention, {"lr": 0.0})
    assert isinstance(caught.value, ValueError)


@pytest.mark.parametrize(
    "options",
    [
        {"p": 2, "lr": np.float32(0.1), "num_steps": np.int64(3), "eps": np.float64(1e-3)},
        {"p": np.array([1.5, 2.0]), "lr": (0.1, 0.2), "num_steps": [3, 4], "record": np.arange(3)},
        {"init": np.ones((D, D), np.float32), "threads": np.int64(1), "eps": 1},
        {"parameterization": "KQ", "rank": np.int64(2), "init": mm.NormalInit()},
        {"step_rule": "polyak", "max_lr": 1, "target_tol": np.float32(1e-4)},
        {"problems": (sphere(1), sphere(2)), "init": [[[0.0] * D] * D] * 2},
    ],
)
def test_numbers_may_come_in_any_type(options):
    assert start(mm.train_attention, options).is_complete
