"""How many weights a model needs, read from its accuracies when some are removed."""

import numpy as np
import pytest

from mirrormargin.training.pruning import find_needed

SHARES = [0.5, 0.9, 0.95, 0.98, 0.99]


def test_weights_needed_are_where_the_line_crosses_one_point():
    # 85 at 10% left and 83 at 1% left: 84 lies in the middle of the logarithms.
    assert find_needed([0.9, 0.99], [85.0, 83.0], 85.0) == pytest.approx(10**-1.5)


def test_weights_needed_do_not_come_back_after_a_fall():
    assert find_needed(SHARES, [85.0, 80.0, 85.0, 85.0, 85.0], 85.0) > 0.1


def test_weights_needed_are_the_last_share_if_accuracy_never_falls():
    assert find_needed(SHARES, [85.0] * 5, 85.0) == pytest.approx(0.01)


def test_all_weights_may_be_needed():
    assert find_needed([0.01], [10.0], 85.0) > 0.99


def test_more_accuracy_after_pruning_does_not_lower_the_bar():
    high = find_needed(SHARES, [95.0, 95.0, 95.0, 80.0, 80.0], 85.0)
    assert 0.02 < high < 0.05
    assert np.isclose(high, 0.05 * (0.02 / 0.05) ** (11 / 15))
