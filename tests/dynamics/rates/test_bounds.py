"""bound_holds and claimed_rate: the rates that theorems promise."""

import numpy as np
import pytest

from mirrormargin.dynamics.rates import (
    Rate,
    RateVerdict,
    bound_holds,
    choose_windows,
    claimed_rate,
    fit_rate,
)
from mirrormargin.errors import ProblemError


@pytest.mark.parametrize(
    ("p", "name", "expected"),
    [
        (1.1, "(log k)^-0.1", lambda t: t**-0.1),
        (1.75, "(log k)^-0.75", lambda t: t**-0.75),
        (2.0, "(log log k / log k)", lambda t: np.log(t) / t),
        (2.5, "(log k)^-1", lambda t: 1 / t),
        (3.0, "(log k)^-1", lambda t: 1 / t),
    ],
)
def test_the_claimed_rate_is_that_of_the_theorem(p, name, expected):
    log_k = np.geomspace(3.0, 1e4, 50)
    given, rate = claimed_rate(p)
    assert given == name
    np.testing.assert_allclose(rate(log_k), expected(log_k))
    fit = fit_rate(rate.form, log_steps=log_k, values=rate(log_k), claimed=rate.exponent)
    assert fit.verdict is RateVerdict.AT_LEAST_AS_FAST
    assert fit.exponent == pytest.approx(rate.exponent)


@pytest.mark.parametrize("p", [1.0, 0.5, np.inf, np.nan, "two", None])
def test_a_rate_is_claimed_for_p_above_one_only(p):
    with pytest.raises(ProblemError, match="give a number above 1"):
        claimed_rate(p)


LN10 = np.log(10.0)
LOG_K = np.linspace(1, 300, 400) * LN10


@pytest.mark.parametrize(
    ("values", "holds"),
    [(2 / LOG_K, True), (LOG_K**-1.2, True), (LOG_K**-0.9, False), (np.log(LOG_K) / LOG_K, False)],
    ids=["the rate", "faster", "slower", "slower by log log"],
)
def test_a_bound_holds_for_what_falls_at_least_as_fast(values, holds):
    check = bound_holds(LOG_K, values, claimed_rate(3.0)[1], early=(2, 20), late=(100, 300))
    assert check.holds is holds
    np.testing.assert_allclose(check.ratio, values * LOG_K)
    late = check.ratio[LOG_K >= 100 * LN10]
    assert check.late_max == late.max()
    assert (check.late_max <= check.early_max * (1 + 1e-9)) is holds


def test_only_the_windows_count():
    values = 1 / LOG_K
    values[(LOG_K > 25 * LN10) & (LOG_K < 95 * LN10)] *= 10
    check = bound_holds(LOG_K, values, Rate("log", 1.0), early=(2, 20), late=(100, 300))
    assert check.holds
    assert check.ratio.max() == pytest.approx(10.0)
    # A window includes its ends: log10 k = 1 is the only point up to 1.5.
    at_end = bound_holds(LOG_K, values, Rate("log", 1.0), early=(1, 1.5), late=(300, 301))
    assert (at_end.early_max, at_end.late_max) == (pytest.approx(1.0), pytest.approx(1.0))


def test_a_rate_that_starts_late_is_nan_before():
    log_k = np.linspace(0.5, 50.0, 100)
    check = bound_holds(log_k, 1 / log_k, claimed_rate(2.0)[1], early=(2, 5), late=(5, 20))
    assert check.holds
    np.testing.assert_array_equal(np.isnan(check.ratio), log_k <= 1)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"values": np.ones(3)}, r"values \(3,\), but both must have shape"),
        ({"values": np.ones((2, 400))}, "check one trajectory at a time"),
        ({"values": -np.ones(400)}, "must be finite and at least 0"),
        ({"values": np.full(400, np.nan)}, "is nan"),
        ({"log_steps": LOG_K[::-1]}, "log_steps must increase"),
        ({"early": (20, 2)}, r"early is \(20, 2\): give a pair"),
        ({"late": (10, 300)}, "late starts at 10, before early ends at 20"),
        ({"late": (400, 500)}, "runs from 1 to 300"),
        ({"rate": lambda log_k: 100 - log_k}, "not positive in the window late"),
    ],
)
def test_a_bound_refuses_what_it_cannot_check(change, message):
    good = {"log_steps": LOG_K, "values": 1 / LOG_K, "rate": Rate("log", 1.0)}
    with pytest.raises(ProblemError, match=message):
        bound_holds(**{**good, "early": (2, 20), "late": (100, 300), **change})


def test_a_long_flow_is_checked_in_its_last_third():
    assert choose_windows(300) == ((20.0, 50.0), (200.0, 300.0))
    (_, early_end), (late_start, _) = choose_windows(100)
    assert early_end < late_start
    with pytest.raises(ProblemError, match=r"decades is 99\.5: give a number of at least 100"):
        choose_windows(99.5)
