"""What AttentionProblem accepts, and the message for each thing that it does not."""

import numpy as np
import pytest
import torch

from mirrormargin.attention import AttentionProblem
from mirrormargin.errors import MirrorMarginError, ProblemError

N, T, D = 2, 3, 4


def arrays(**changed):
    rng = np.random.default_rng(0)
    good = {
        "tokens": rng.normal(size=(N, T, D)),
        "queries": rng.normal(size=(N, D)),
        "labels": np.array([1.0, -1.0]),
        "head": rng.normal(size=D),
    }
    return good | changed


def with_entry(name, index, value):
    array = arrays()[name].copy()
    array[index] = value
    return {name: array}


WRONG = {
    "flat tokens": (
        {"tokens": np.ones((T, D))},
        r"tokens has shape \(3, 4\).*\(num_sequences, num_tokens, dim\), one matrix",
    ),
    "no sequences": ({"tokens": np.ones((0, T, D))}, r"tokens has shape \(0, 3, 4\) and is empty"),
    "no width": ({"tokens": np.ones((N, T, 0))}, r"tokens has shape \(2, 3, 0\) and is empty"),
    "one token": ({"tokens": np.ones((N, 1, D))}, r"\(2, 1, 4\), one token.*at least 2"),
    "queries": (
        {"queries": np.ones((N, D + 1))},
        r"queries has shape \(2, 5\): give shape \(2, 4\), one query",
    ),
    "labels": (
        {"labels": np.ones((N, 1))},
        r"labels has shape \(2, 1\): give shape \(2,\), one label",
    ),
    "head": (
        {"head": np.ones((1, D))},
        r"head has shape \(1, 4\): give shape \(4,\), one vector",
    ),
    "nan token": (with_entry("tokens", (1, 2, 3), np.nan), r"tokens\[1, 2, 3\] is nan"),
    "inf query": (with_entry("queries", (1, 0), -np.inf), r"queries\[1, 0\] is -inf"),
    "nan label": (with_entry("labels", 1, np.nan), r"labels\[1\] is nan"),
    "inf head": (with_entry("head", 2, np.inf), r"head\[2\] is inf"),
    "labels in {0, 1}": ({"labels": [1, 0]}, r"labels\[1\] is 0: give \+1 or -1.*2 \* y - 1"),
    "zero head": ({"head": np.zeros(D)}, r"head is all zeros.*nonzero"),
    "loss": ({"loss": "hinge"}, r"loss is 'hinge': give one of logistic"),
    "unhashable loss": ({"loss": []}, r"loss is \[\]: give one of logistic"),
    "words": ({"labels": ["yes", "no"]}, r"labels has dtype .*real numbers"),
    "complex": ({"head": 1j * np.ones(D)}, r"head has dtype complex128.*real numbers"),
    "complex tensor": ({"head": 1j * torch.ones(D)}, r"head has dtype complex64.*real numbers"),
    "ragged": ({"queries": [[1.0, 2.0], [1.0]]}, r"queries cannot be read as an array of numbers"),
    "sparse": (
        {"queries": torch.ones(N, D).to_sparse()},
        r"queries cannot be read as an array of numbers",
    ),
}


@pytest.mark.parametrize(("changed", "message"), WRONG.values(), ids=WRONG.keys())
def test_wrong_arrays_are_named_with_what_is_allowed(changed, message):
    with pytest.raises(ProblemError, match=message):
        AttentionProblem(**arrays(**changed))


def test_first_of_several_bad_entries_is_reported():
    tokens = arrays()["tokens"]
    tokens[0, 1, 2] = tokens[1, 0, 0] = np.nan
    with pytest.raises(ProblemError, match=r"tokens\[0, 1, 2\] is nan"):
        AttentionProblem(**arrays(tokens=tokens))


def test_problem_errors_are_value_errors_of_the_library():
    assert issubclass(ProblemError, ValueError)
    assert issubclass(ProblemError, MirrorMarginError)


@pytest.mark.parametrize(
    "method", ["attention", "selected_tokens", "margins", "loss", "loss_gap", "gradient"]
)
@pytest.mark.parametrize(
    ("W", "message"),
    [
        (np.ones((D, D + 1)), r"W has shape \(4, 5\): give shape \(4, 4\)"),
        (np.ones(D * D), r"W has shape \(16,\)"),
        (np.full((D, D), np.nan), r"W\[0, 0\] is nan"),
        (np.full((D, D), 1e308), r"W is so large that X W z overflows"),
    ],
)
def test_wrong_weights_are_refused(method, W, message):
    problem = AttentionProblem(**arrays())
    with pytest.raises(ProblemError, match=message):
        getattr(problem, method)(W)


@pytest.mark.parametrize(
    "convert",
    [
        np.ndarray.tolist,
        np.float32,
        torch.as_tensor,
        lambda a: torch.tensor(a, requires_grad=True),
        lambda a: torch.nn.Parameter(torch.tensor(a, dtype=torch.bfloat16)),
        lambda a: torch.tensor(a).unsqueeze(-1).expand(*a.shape, 2)[..., 0],
        np.asfortranarray,
    ],
    ids=["list", "float32", "tensor", "requires_grad", "bfloat16", "strided", "fortran"],
)
def test_arrays_tensors_and_lists_become_float64_arrays(convert):
    given = {name: convert(np.round(array)) for name, array in arrays().items()}
    problem = AttentionProblem(**given)
    for name, array in arrays().items():
        stored = getattr(problem, name)
        assert type(stored) is np.ndarray
        assert stored.dtype == np.float64
        np.testing.assert_array_equal(stored, np.round(array))


def test_integer_labels_and_tensor_weights_are_accepted():
    problem = AttentionProblem(**arrays(labels=torch.tensor([1, -1])))
    W = torch.eye(D, dtype=torch.float64, requires_grad=True)
    np.testing.assert_array_equal(problem.gradient(W), problem.gradient(np.eye(D)))
