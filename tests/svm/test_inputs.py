"""What the solvers accept, and the message for each thing that they do not."""

import numpy as np
import pytest
import torch
from svm_problems import planted

from mirrormargin.errors import MirrorMarginError, ProblemError
from mirrormargin.svm import solve_attention_svm, solve_decoder_svm

N, T, D = 3, 4, 5


def arrays(**changed):
    return planted(0, N, T, D)._asdict() | changed


def with_entry(name, index, value):
    array = arrays()[name].copy()
    array[index] = value
    return {name: array}


def booleans(row):
    selection = np.arange(T) == arrays()["selection"][:, None]
    selection[1] = row
    return {"selection": selection}


WRONG = {
    "nan token": (with_entry("tokens", (1, 2, 3), np.nan), r"tokens\[1, 2, 3\] is nan"),
    "inf token": (with_entry("tokens", (0, 1, 2), np.inf), r"tokens\[0, 1, 2\] is inf"),
    "nan query": (with_entry("queries", (1, 0), np.nan), r"queries\[1, 0\] is nan"),
    "inf query": (with_entry("queries", (2, 4), -np.inf), r"queries\[2, 4\] is -inf"),
    "flat tokens": ({"tokens": np.ones((T, D))}, r"tokens has shape \(4, 5\)"),
    "no sequences": ({"tokens": np.ones((0, T, D))}, r"tokens has shape \(0, 4, 5\) and is empty"),
    "no width": ({"tokens": np.ones((N, T, 0))}, r"tokens has shape \(3, 4, 0\) and is empty"),
    "one token": ({"tokens": np.ones((N, 1, D))}, r"tokens has shape .*one token.*at least 2"),
    "ragged tokens": ({"tokens": [[[1.0], [1.0, 2.0]]]}, r"tokens cannot be read"),
    "words": ({"tokens": [[["a"], ["b"]]]}, r"tokens has dtype"),
    "complex": ({"queries": 1j * np.ones((N, D))}, r"queries has dtype complex128"),
    "width": ({"queries": np.ones((N, D + 1))}, r"queries has shape \(3, 6\).*\(3, 5\)"),
    "number of queries": ({"queries": np.ones((N + 1, D))}, r"queries has shape \(4, 5\)"),
    "zero query": (with_entry("queries", 1, 0.0), r"queries\[1\] is all zeros.*remove"),
    "number of selections": ({"selection": [0, 1]}, r"selection has shape \(2,\).*\(3,\)"),
    "matrix of integers": ({"selection": np.ones((N, T), int)}, r"selection has shape \(3, 4\)"),
    "scalar selection": ({"selection": 1}, r"selection has shape \(\)"),
    "out of range": ({"selection": [0, 1, T]}, r"selection\[2\] is 4: give an integer from 0 to 3"),
    "negative": ({"selection": [0, -1, 1]}, r"selection\[1\] is -1: give an integer from 0 to 3"),
    "float": ({"selection": [0.0, 1.5, 1.0]}, r"selection\[1\] is .*: give an integer from 0"),
    "nan": ({"selection": [0.0, np.nan, 1.0]}, r"selection\[1\] is .*: give an integer from 0"),
    "inf": ({"selection": [0.0, np.inf, 1.0]}, r"selection\[1\] is inf"),
    "words selected": ({"selection": ["a", "b", "c"]}, r"selection has dtype"),
    "no selection": ({"selection": None}, r"selection has dtype object"),
    "all selected": (booleans(True), r"selection\[1\] selects 4 of 4 tokens.*leave at least one"),
    "none selected": (booleans(False), r"selection\[1\] selects 0 of 4 tokens: select at least"),
    "flat booleans": ({"selection": [True, False, True]}, r"selection has shape \(3,\).*\(3, 4\)"),
    "p of 1": ({"p": 1.0}, r"p is 1.0: give a number above 1"),
    "p below 1": ({"p": 0.5}, r"p is 0.5: give a number above 1"),
    "negative p": ({"p": -2}, r"p is -2: give a number above 1"),
    "nan p": ({"p": np.nan}, r"p is nan: give a number above 1"),
    "inf p": ({"p": np.inf}, r"p is inf: give a number above 1 and below inf"),
    "word p": ({"p": "two"}, r"p is 'two': give a number above 1"),
    "no p": ({"p": None}, r"p is None: give a number above 1"),
    "list p": ({"p": [2.0, 3.0]}, r"p is \[2.0, 3.0\]: give a number"),
    "tol of 0": ({"tol": 0.0}, r"tol is 0.0: give a number above 0 and below 1"),
    "negative tol": ({"tol": -1e-8}, r"tol is -1e-08: give a number above 0 and below 1"),
    "nan tol": ({"tol": np.nan}, r"tol is nan: give a number above 0 and below 1"),
    "tol of 1": ({"tol": 1.0}, r"tol is 1.0: give a number above 0 and below 1"),
    "word tol": ({"tol": "small"}, r"tol is 'small'"),
    "C of 0": ({"C": 0.0}, r"C is 0.0: give a number above 0; None for a hard margin"),
    "negative C": ({"C": -1.0}, r"C is -1.0: give a number above 0"),
    "nan C": ({"C": np.nan}, r"C is nan: give a number above 0"),
    "inf C": ({"C": np.inf}, r"C is inf: give a number above 0"),
    "word C": ({"C": "hard"}, r"C is 'hard'"),
    "rhs of 2": ({"rhs": [0, 1, 2]}, r"rhs\[2\] is 2: give 0 or 1"),
    "rhs of 1/2": ({"rhs": [1, 0.5, 0]}, r"rhs\[1\] is 0.5: give 0 or 1"),
    "nan rhs": ({"rhs": [1, np.nan, 0]}, r"rhs\[1\] is nan: give 0 or 1"),
    "rhs of zeros": ({"rhs": [0, 0, 0]}, r"rhs is 0 everywhere.*set it to 1 somewhere"),
    "number of rhs": ({"rhs": [0, 1]}, r"rhs has shape \(2,\).*\(3,\)"),
    "max_iter of 0": ({"max_iter": 0}, r"max_iter is 0: give a positive integer"),
    "negative max_iter": ({"max_iter": -5}, r"max_iter is -5: give a positive integer"),
    "half max_iter": ({"max_iter": 1.5}, r"max_iter is 1.5: give a positive integer"),
    "true max_iter": ({"max_iter": True}, r"max_iter is True: give a positive integer"),
    "nan max_iter": ({"max_iter": np.nan}, r"max_iter is nan: give a positive integer"),
    "word max_iter": ({"max_iter": "many"}, r"max_iter is 'many': give a positive integer"),
    "no max_iter": ({"max_iter": None}, r"max_iter is None: give a positive integer"),
    "no threads": ({"threads": 0}, r"threads is 0: give a positive integer"),
    "negative threads": ({"threads": -1}, r"threads is -1: give a positive integer"),
    "half a thread": ({"threads": 1.5}, r"threads is 1.5: give a positive integer"),
    "true threads": ({"threads": True}, r"threads is True: give a positive integer"),
    "flat start": ({"warm_start": np.ones(N)}, r"warm_start has shape \(3,\).*\(3, 4\)"),
    "nan start": ({"warm_start": np.full((N, T), np.nan)}, r"warm_start\[0, 0\] is nan"),
    "zero start": ({"warm_start": np.zeros((N, T))}, r"warm_start has no positive dual"),
    "word start": ({"warm_start": "here"}, r"warm_start has dtype"),
}


@pytest.mark.parametrize(("changed", "message"), WRONG.values(), ids=WRONG.keys())
def test_wrong_arguments_are_named_with_what_is_allowed(changed, message):
    with pytest.raises(ProblemError, match=message) as caught:
        solve_attention_svm(**arrays(**changed))
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("name", ["max_iter", "threads"])
def test_wrong_arguments_are_named_even_where_nothing_is_solved(name):
    tokens = arrays()["tokens"].copy()
    tokens[0] = 1.0
    with pytest.raises(ProblemError, match=name):
        solve_attention_svm(**arrays(tokens=tokens, **{name: 0}))


@pytest.mark.parametrize(
    "changed",
    [{"p": 2}, {"p": np.float32(2)}, {"p": torch.tensor(2.0)}, {"selection": [0.0, 1.0, 2.0]}],
    ids=["integer", "float32", "tensor", "whole floats"],
)
def test_whatever_is_a_number_is_accepted(changed):
    given = arrays(selection=[0, 1, 2]) | changed
    expected = solve_attention_svm(**arrays(selection=[0, 1, 2]), p=2.0)
    assert (solve_attention_svm(**given).W == expected.W).all()


@pytest.mark.parametrize("threads", [1, 2, np.int64(1)])
def test_numbers_of_threads_are_accepted(threads):
    assert solve_attention_svm(**arrays(), threads=threads).is_optimal()


def test_options_are_given_by_name():
    with pytest.raises(TypeError, match="positional"):
        solve_attention_svm(*arrays().values(), 2.0, 1e-8, None)


@pytest.mark.parametrize("raise_on_failure", [False, True])
def test_wrong_arguments_always_raise(raise_on_failure):
    with pytest.raises(ProblemError):
        solve_attention_svm(**arrays(p=0.0), raise_on_failure=raise_on_failure)


def samples(**changed):
    rng = np.random.default_rng(1)
    return {"features": rng.normal(size=(4, 3)) + 5, "labels": np.ones(4)} | changed


WRONG_SAMPLES = {
    "flat features": ({"features": np.ones(3)}, r"features has shape \(3,\).*\(num_samples, dim\)"),
    "no samples": ({"features": np.ones((0, 3))}, r"features has shape \(0, 3\)"),
    "nan feature": ({"features": np.full((4, 3), np.nan)}, r"features\[0, 0\] is nan"),
    "words": ({"features": [["a"]]}, r"features has dtype"),
    "number of labels": ({"labels": np.ones(3)}, r"labels has shape \(3,\).*\(4,\)"),
    "labels in {0, 1}": ({"labels": [1, 0, 1, 1]}, r"labels\[1\] is 0: give \+1 or -1"),
    "nan label": ({"labels": [1, 1, np.nan, 1]}, r"labels\[2\] is nan"),
    "p": ({"p": 1}, r"p is 1: give a number above 1"),
    "tol": ({"tol": 0}, r"tol is 0: give a number above 0 and below 1"),
    "C": ({"C": 0}, r"C is 0: give a number above 0"),
    "max_iter": ({"max_iter": 0}, r"max_iter is 0: give a positive integer"),
    "threads": ({"threads": 0}, r"threads is 0: give a positive integer"),
    "start": ({"warm_start": np.ones(3)}, r"warm_start has shape \(3,\).*\(4,\)"),
}


@pytest.mark.parametrize(("changed", "message"), WRONG_SAMPLES.values(), ids=WRONG_SAMPLES.keys())
def test_wrong_arguments_of_the_decoder_are_named(changed, message):
    with pytest.raises(ProblemError, match=message) as caught:
        solve_decoder_svm(**samples(**changed))
    assert "\n" not in str(caught.value)


def test_problem_errors_are_value_errors_of_the_library():
    assert issubclass(ProblemError, ValueError)
    assert issubclass(ProblemError, MirrorMarginError)
