"""Splits that depend on nothing but the data."""

import hashlib
from pathlib import Path

import numpy as np
import pytest

from mirrormargin.data.splitting import compute_share, normalize, shuffle, split_classes
from mirrormargin.errors import DataError


def test_share_is_the_hash_as_a_fraction():
    whole = int(hashlib.sha256(b"tt0453418").hexdigest(), 16) / 2**256
    assert compute_share("tt0453418") == pytest.approx(whole, abs=1e-13)


def test_shares_are_spread_evenly():
    shares = [compute_share(str(number)) for number in range(4000)]
    counts, _ = np.histogram(shares, 10, (0.0, 1.0))
    assert counts.min() > 320
    assert counts.max() < 480


def test_capital_letters_and_blanks_do_not_make_another_text():
    assert normalize("Boom ! \n Why?") == normalize("boom! why ?")
    assert normalize("boom") != normalize("boom!")


def test_shuffle_keeps_every_row_and_the_order_is_fixed():
    order = shuffle(range(100))
    assert sorted(order.tolist()) == list(range(100))
    assert order.tolist() == shuffle(range(100)).tolist()
    assert order.tolist() != list(range(100))


def test_each_class_is_in_each_split():
    labels = ["b"] * 40 + ["a"] * 3 + ["10"] * 20 + ["9"] * 5
    keys = [str(number) for number in range(len(labels))]
    classes, rows = split_classes(labels, keys, Path("own.csv"))
    assert classes == ("9", "10", "a", "b")
    for name, sizes in {"test": (1, 2, 1, 4), "validation": (1, 2, 1, 4)}.items():
        found = [labels[row] for row in rows[name]]
        assert tuple(found.count(label) for label in classes) == sizes
    assert sorted(np.concatenate(list(rows.values()))) == list(range(len(labels)))


def test_a_row_keeps_its_split_when_the_file_is_in_another_order():
    labels = ["a", "b"] * 30
    keys = [str(number) for number in range(60)]
    rows = split_classes(labels, keys, Path("own.csv"))[1]
    back = split_classes(labels[::-1], keys[::-1], Path("own.csv"))[1]
    for name in ("train", "validation", "test"):
        assert {keys[row] for row in rows[name]} == {keys[::-1][row] for row in back[name]}


def test_one_class_is_refused():
    with pytest.raises(DataError, match=r"own.csv has 1 class \(good\): give two at least"):
        split_classes(["good"] * 9, list("abcdefghi"), Path("own.csv"))


def test_too_few_of_a_class_are_refused():
    with pytest.raises(DataError, match="2 of the class 'bad': give three at least"):
        split_classes(["good"] * 3 + ["bad"] * 2, list("abcde"), Path("own.csv"))
