"""One way to check an argument, and one form of the message."""

import math
from fractions import Fraction

import numpy as np
import pytest
import torch

from mirrormargin.arguments import (
    check_choice,
    check_count,
    check_exponent,
    check_number,
    check_seed,
    check_threads,
    read_array,
    read_exponents,
    read_numbers,
)
from mirrormargin.errors import GeometryError, OptimizerError, ProblemError


@pytest.mark.parametrize(
    "value", [2, 2.0, np.float32(2), np.int64(2), Fraction(2), torch.tensor(2.0)]
)
def test_whatever_is_a_number_becomes_a_float(value):
    assert check_number("lr", value, above=0.0) == 2.0
    assert type(check_number("lr", value)) is float
    assert check_exponent(value) == 2.0


@pytest.mark.parametrize(
    "value", ["2", b"2", True, np.True_, None, [2.0], 1j, math.nan, math.inf, -math.inf, 10**400]
)
def test_nothing_else_is_a_number(value):
    with pytest.raises(ProblemError, match=r"lr is .*: give a number"):
        check_number("lr", value)


@pytest.mark.parametrize(
    ("value", "limits", "message"),
    [
        (0.0, {"above": 0.0}, r"x is 0.0: give a number above 0$"),
        (-1, {"least": 0.0}, r"x is -1: give a number of at least 0$"),
        (1.0, {"above": 0.0, "below": 1.0}, r"give a number above 0 and below 1$"),
        (2.0, {"least": 0.5, "most": 1.5}, r"give a number of at least 0.5 and at most 1.5$"),
        (-2.0, {"above": 0, "most": math.inf}, r"give a number above 0, or inf$"),
        (0.0, {"above": 0.0, "hint": "1e-8 is usual"}, r"above 0; 1e-8 is usual$"),
        ("a", {}, r"x is 'a': give a number$"),
    ],
)
def test_numbers_outside_their_limits_are_named_with_them(value, limits, message):
    with pytest.raises(ProblemError, match=message):
        check_number("x", value, **limits)


def test_limits_are_allowed_where_they_are_inclusive():
    assert check_number("x", 0, least=0.0, most=1.0) == 0
    assert check_number("x", 1, least=0.0, most=1.0) == 1
    assert check_number("x", math.inf, above=0.0, most=math.inf) == math.inf


@pytest.mark.parametrize("value", [3, np.int32(3), torch.tensor(3)])
def test_whatever_is_an_integer_is_a_count(value):
    assert check_count("num", value) == 3
    assert type(check_count("num", value)) is int


@pytest.mark.parametrize(
    ("value", "limits", "message"),
    [
        (0, {}, r"num is 0: give a positive integer$"),
        (1.5, {}, r"num is 1.5: give a positive integer$"),
        (2.0, {}, r"num is 2.0: give a positive integer$"),
        (True, {"least": 0}, r"num is True: give an integer of at least 0$"),
        ("3", {}, r"num is '3': give a positive integer$"),
        (None, {"hint": "or inf"}, r"num is None: give a positive integer, or inf$"),
        (1, {"least": 2}, r"num is 1: give an integer of at least 2$"),
        (9, {"least": 0, "most": 8}, r"num is 9: give an integer from 0 to 8$"),
    ],
)
def test_other_counts_are_named_with_what_is_allowed(value, limits, message):
    with pytest.raises(ProblemError, match=message):
        check_count("num", value, **limits)


def test_threads_are_a_count_or_none():
    assert check_threads(None) is None
    assert check_threads(2) == 2
    with pytest.raises(ProblemError, match="threads is 0: give a positive integer, or None"):
        check_threads(0)


def test_seeds_are_those_of_a_generator():
    assert check_seed(2**64 - 1) == 2**64 - 1
    for seed in (-1, 2**64, 1.0, "1"):
        with pytest.raises(ProblemError, match=r"seed is .*: give an integer from 0 to"):
            check_seed(seed)


def test_choices_are_listed():
    assert check_choice("rule", "b", {"a": 1, "b": 2}) == "b"
    for value in ("c", None, 1, ["a"]):
        with pytest.raises(ProblemError, match=r"rule is .*: give one of a, b$"):
            check_choice("rule", value, ("a", "b"))


@pytest.mark.parametrize("p", [1.0, 0.5, -2, math.nan, math.inf, "two", None, True, [2.0, 3.0]])
def test_a_bad_exponent_has_one_message(p):
    for check in (check_exponent, read_exponents):
        given = p if check is check_exponent or not isinstance(p, list) else [2.0, 0.0]
        with pytest.raises(OptimizerError, match=r"p is .*: give a number above 1 and below inf;"):
            check(given, error=OptimizerError)
    with pytest.raises(GeometryError):
        check_exponent(p)


def test_exponents_are_one_or_several():
    for p in (2, 2.0, [2.0], np.array(2.0), torch.tensor([2.0])):
        np.testing.assert_array_equal(read_exponents(p), [2.0])
    np.testing.assert_array_equal(read_exponents((1.5, 3)), [1.5, 3.0])
    for p in ([], [[2.0, 3.0]]):
        with pytest.raises(ProblemError, match=r"p has shape .*: give a number, or a list"):
            read_exponents(p)


def test_arrays_are_copied_to_float64():
    given = np.array([1.0, 2.0])
    for value in (given, [1, 2], (1.0, 2.0), torch.tensor([1, 2]), torch.ones(2).cumsum(0)):
        found = read_array("x", value)
        assert found.dtype == np.float64
        np.testing.assert_array_equal(found, given)
        assert not np.shares_memory(found, given)
    half = torch.tensor([1.0, 2.0], dtype=torch.bfloat16, requires_grad=True)
    np.testing.assert_array_equal(read_array("x", half), given)
    assert read_numbers("x", [True, False]).dtype == bool
    assert read_numbers("x", given) is given


@pytest.mark.parametrize(
    ("value", "message"),
    [
        ([[1.0], [1.0, 2.0]], "x cannot be read as an array of numbers"),
        (["a", "b"], "x has dtype .*: give real numbers"),
        ([1j, 2.0], "x has dtype complex128: give real numbers"),
        (None, "x has dtype object: give real numbers"),
        ([1.0, 2.0, 3.0], r"x has shape \(3,\): give shape \(2,\), one number for each side$"),
        ([1.0, np.nan], r"x\[1\] is nan: give finite numbers"),
    ],
)
def test_other_arrays_are_named_with_what_is_allowed(value, message):
    with pytest.raises(GeometryError, match=message):
        read_array("x", value, (2,), "one number for each side", finite=True, error=GeometryError)
