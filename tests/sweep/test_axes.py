"""Products of settings: their numbering, and what one has beyond others."""

import json
import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mirrormargin.errors import SweepError
from mirrormargin.sweep.axes import Axis, Product, find_missing

SETS = st.lists(st.integers(0, 6), min_size=1, max_size=5, unique=True).map(Axis)
RANGES = st.tuples(st.integers(0, 6), st.integers(1, 5)).map(lambda e: Axis(range(e[0], sum(e))))
PRODUCTS = st.builds(
    lambda a, b, c: Product({"a": a, "b": b, "c": c}), SETS | RANGES, RANGES, SETS | RANGES
)


def runs(product):
    listed = [tuple(product.settings(number).items()) for number in range(product.size)]
    assert len(set(listed)) == product.size
    return {tuple(sorted(run)) for run in listed}


@given(PRODUCTS, st.lists(PRODUCTS, max_size=3))
def test_missing_runs_are_the_difference_each_of_them_once(wanted, known):
    missing = find_missing(wanted, known, lambda product, name: None)
    expected = runs(wanted) - {run for one in known for run in runs(one)}
    found = [run for piece in missing for run in runs(piece)]
    assert len(found) == len(set(found))
    assert set(found) == expected


def test_a_setting_that_a_product_lacks_has_its_default():
    old = Product({"seed": Axis([1, 2])})
    new = Product({"p": Axis([2.0, 3.0]), "seed": Axis([1, 2])})
    missing = find_missing(new, [old], lambda product, name: {"p": 2.0}[name])
    assert [piece.size for piece in missing] == [2]
    assert {missing[0].settings(k)["p"] for k in range(2)} == {3.0}


def test_a_billion_runs_are_compared_at_once():
    old = Product({"seed": Axis(range(10**9)), "p": Axis([2.0])})
    new = Product({"seed": Axis(range(5 * 10**8, 2 * 10**9)), "p": Axis([2.0, 3.0])})
    missing = find_missing(new, [old], lambda product, name: None)
    assert sum(piece.size for piece in missing) == 2 * (15 * 10**8) - 5 * 10**8


@given(PRODUCTS)
def test_places_are_those_of_the_settings(product):
    places = product.places(0, product.size)
    for number in range(product.size):
        named = {name: product.axes[name][int(found[number])] for name, found in places.items()}
        assert named == product.settings(number)


def test_a_document_is_small_and_comes_back():
    axes = {"seed": Axis(range(1, 10**9)), "max_lr": Axis([1.0, math.inf]), "rank": Axis([None])}
    text = json.dumps(Product(axes).to_document(), allow_nan=False)
    again = Product.from_document(json.loads(text))
    assert len(text) < 100
    assert again.size == Product(axes).size
    assert again.settings(1) == Product(axes).settings(1)
    assert math.isinf(again.settings(1)["max_lr"])


def test_equal_values_are_refused_and_true_is_not_one():
    with pytest.raises(SweepError, match=r"2\.0 is given with repetitions: give each value once"):
        Axis([2.0, 1.5, 2.0])
    assert len(Axis([1, True, 1.0])) == 3
    with pytest.raises(SweepError, match="there are no values"):
        Axis([])
