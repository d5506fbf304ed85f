"""fit_rate: how fast a trajectory falls, and whether as fast as claimed."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from mirrormargin.dynamics.rates import FORMS, RateVerdict, fit_rate
from mirrormargin.errors import ProblemError

LN10 = np.log(10.0)
K = np.geomspace(20.0, 1e6, 40)


def law(form, a, log_k):
    """log y of an exact law."""
    if form == "exp":
        return 0.7 - 0.3 * np.exp(a * log_k)
    return np.log(4.4) - a * FORMS[form].coordinate(log_k)


@pytest.mark.parametrize(
    ("form", "a"),
    [
        *(("log", 0.25), ("log", 2.0), ("loglog", 1.0), ("power", 0.5), ("power", 3.0)),
        *(("exp", 0.1), ("exp", 1 / 3), ("exp", 1.0), ("exp", 1.5)),
    ],
)
def test_exact_laws_are_recovered(form, a):
    log_y = law(form, a, np.log(K))
    fit = fit_rate(form, steps=K, log_values=log_y, claimed=a)
    coefficient, offset = (0.3, 0.7) if form == "exp" else (4.4, 0.0)
    assert fit.exponent == pytest.approx(a, rel=1e-8)
    assert fit.late_exponent == pytest.approx(a, rel=1e-6)
    assert fit.coefficient == pytest.approx(coefficient, rel=1e-7)
    assert fit.offset == pytest.approx(offset, abs=1e-7)
    assert fit.interval[0] <= fit.exponent <= fit.interval[1]
    assert fit.interval[1] - fit.interval[0] < 1e-7
    assert fit.r_squared == pytest.approx(1.0)
    assert fit.max_residual <= 1e-12 * max(1, np.abs(log_y).max())
    assert fit.verdict is RateVerdict.AT_LEAST_AS_FAST
    np.testing.assert_allclose(fit.predict(K), log_y, rtol=1e-9, atol=1e-9)


def test_exact_laws_meet_their_claim_without_tolerance():
    for form, a in (("log", 1.0), ("loglog", 1.0), ("power", 0.5)):
        fit = fit_rate(form, steps=K, log_values=law(form, a, np.log(K)), claimed=a, tol=0.0)
        assert fit.verdict is not RateVerdict.SLOWER


@pytest.mark.parametrize(("form", "a"), [("log", 1.5), ("loglog", 1.0), ("power", 2.0)])
def test_steps_and_values_beyond_floating_point_are_fitted(form, a):
    log_k = np.geomspace(5.0, 1e5, 60)
    fit = fit_rate(form, log_steps=log_k, log_values=law(form, a, log_k))
    assert fit.exponent == pytest.approx(a, rel=1e-8)
    np.testing.assert_allclose(fit.predict(log_steps=log_k), law(form, a, log_k), rtol=1e-8)


def test_exponentials_beyond_floating_point_are_fitted():
    log_k = np.linspace(300, 700, 50) * LN10
    log_y = 1 - np.exp(0.05 * (log_k - log_k[-1])) * 1e4
    fit = fit_rate("exp", log_steps=log_k, log_values=log_y)
    assert fit.exponent == pytest.approx(0.05, rel=1e-8)
    assert fit.log_coefficient == pytest.approx(np.log(1e4) - 0.05 * log_k[-1])
    np.testing.assert_allclose(fit.predict(log_steps=log_k), log_y, rtol=1e-8)


def test_logs_and_plain_numbers_give_the_same_fit():
    y = 3 / np.log(K) ** 1.3 * (1 + 0.1 * np.sin(np.arange(K.size)))
    plain = fit_rate("log", steps=K, values=y, window=(100.0, 1e5), claimed=1.0)
    logs = fit_rate(
        "log",
        log_steps=torch.tensor(np.log(K)),
        log_values=np.log(y).tolist(),
        window=(np.log(100.0), np.log(1e5)),
        claimed=1.0,
    )
    assert plain == logs


@given(st.floats(-200, 200), st.sampled_from(sorted(FORMS)))
def test_a_factor_moves_only_the_coefficient(shift, form):
    rng = np.random.default_rng(1)
    log_y = law(form, 0.5, np.log(K)) + 0.05 * rng.normal(size=K.size)
    one, other = (fit_rate(form, steps=K, log_values=log_y + s) for s in (0.0, shift))
    assert other.exponent == pytest.approx(one.exponent, rel=1e-6)
    assert other.interval == pytest.approx(one.interval, rel=1e-4)
    np.testing.assert_allclose(other.predict(K), one.predict(K) + shift, atol=1e-6)


@pytest.mark.parametrize("form", ["log", "exp"])
def test_several_seeds_have_student_t_intervals(form):
    rng = np.random.default_rng(0)
    truth = 0.5 + 0.05 * rng.normal(size=5)
    log_y = np.stack([law(form, a, np.log(K)) for a in truth])
    fit = fit_rate(form, steps=K, log_values=log_y, confidence=0.9)
    expected = stats.ttest_1samp(truth, 0.0).confidence_interval(0.9)
    assert fit.num_seeds == 5
    assert fit.num_points == 5 * K.size
    assert fit.exponent == pytest.approx(truth.mean())
    assert fit.interval == pytest.approx((expected.low, expected.high))
    np.testing.assert_allclose(fit.seed_exponents, truth)
    assert fit == fit_rate(form, steps=np.tile(K, (5, 1)), log_values=log_y, confidence=0.9)


def test_one_seed_in_two_dimensions_is_one_trajectory():
    y = K**-0.5 * (1 + 0.1 * np.sin(np.arange(K.size)))
    assert fit_rate("power", steps=K, values=y[None]) == fit_rate("power", steps=K, values=y)


def test_a_higher_confidence_widens_the_interval():
    y = K**-0.5 * (1 + 0.1 * np.sin(np.arange(K.size)))
    widths = [
        np.ptp(fit_rate("power", steps=K, values=y, confidence=c).interval) for c in (0.5, 0.99)
    ]
    assert widths[0] < widths[1]


# What is dropped


def test_zeros_and_early_steps_are_dropped_and_counted():
    k = np.arange(0, 60)
    y = np.exp(-0.5 * k)
    y[50:] = 0.0
    fit = fit_rate("exp", steps=k, values=y)  # step 0 and ten zeros
    assert (fit.num_points, fit.num_dropped) == (49, 11)
    assert fit.exponent == pytest.approx(1.0, abs=1e-8)
    y = 1 / np.maximum(np.log(np.maximum(k, 2)), 0.5)
    assert fit_rate("log", steps=k, values=y).num_dropped == 2  # k = 0 and 1
    assert fit_rate("power", steps=k, values=y).num_dropped == 1


def test_loglog_starts_where_it_falls():
    k = np.arange(1, 400)
    log_log = np.log(np.log(np.maximum(k, 3)))
    fit = fit_rate("loglog", steps=k, values=log_log / np.log(k + (k == 1)))
    assert fit.num_dropped == 15  # e^e = 15.15
    assert fit.exponent == pytest.approx(1.0)


def test_a_window_is_in_the_unit_of_the_steps():
    log_y = np.where(K < 1000, 0.0, -2 * np.log(K))
    fit = fit_rate("power", steps=K, log_values=log_y, window=(1000, 1e9))
    assert fit.exponent == pytest.approx(2.0)
    assert fit.num_points == (K >= 1000).sum()
    assert fit.num_dropped == 0
    inside = fit_rate("power", log_steps=np.log(K), log_values=log_y, window=(np.log(1000), 1e9))
    assert inside.exponent == pytest.approx(2.0)


# The verdict


@pytest.mark.parametrize(
    ("a", "verdict"),
    [
        (2.0, RateVerdict.AT_LEAST_AS_FAST),
        (1.0, RateVerdict.AT_LEAST_AS_FAST),
        (0.99, RateVerdict.AT_LEAST_AS_FAST),
        (0.95, RateVerdict.SLOWER),
        (0.1, RateVerdict.SLOWER),
        (-1.0, RateVerdict.SLOWER),
    ],
)
@pytest.mark.parametrize("form", ["log", "loglog", "power"])
def test_the_verdict_turns_with_the_exponent(form, a, verdict):
    wobble = 1e-4 * np.sin(np.arange(K.size))
    log_y = law(form, a, np.log(K)) + wobble
    assert fit_rate(form, steps=K, log_values=log_y, claimed=1.0).verdict is verdict
    assert fit_rate(form, steps=K, log_values=log_y).verdict is RateVerdict.NO_CLAIM


@pytest.mark.parametrize(
    ("a", "verdict"),
    [
        (0.5, RateVerdict.AT_LEAST_AS_FAST),
        (1 / 3, RateVerdict.AT_LEAST_AS_FAST),
        (0.25, RateVerdict.SLOWER),
    ],
)
def test_the_verdict_on_an_exponential_turns_with_its_exponent(a, verdict):
    log_y = law("exp", a, np.log(K)) + 1e-3 * np.sin(np.arange(K.size))
    assert fit_rate("exp", steps=K, log_values=log_y, claimed=1 / 3).verdict is verdict


def test_noise_leaves_the_verdict_undecided():
    rng = np.random.default_rng(2)
    log_y = -np.log(np.log(K)) + rng.normal(size=K.size)
    assert fit_rate("log", steps=K, log_values=log_y, claimed=1.0).verdict is RateVerdict.UNDECIDED


def test_a_law_that_flattens_is_not_called_fast():
    y = 1 / K + 1e-4
    fit = fit_rate("power", steps=K, values=y, claimed=0.5)
    assert fit.late_exponent < 0.3 < 0.5 < fit.exponent
    assert fit.verdict is RateVerdict.UNDECIDED


@pytest.mark.parametrize(
    ("form", "log_y", "limit"),
    [
        ("exp", -0.36 * K ** (1 / 3) - np.log(K) / 3, 1 / 3),
        ("power", -np.log(K + 30), 1.0),
    ],
    ids=["factor of a power", "shift"],
)
def test_a_law_that_bends_towards_the_claim_is_not_called_slower(form, log_y, limit):
    fit = fit_rate(form, steps=K, log_values=log_y, claimed=limit)
    assert fit.exponent < fit.late_exponent < limit
    assert fit.verdict is not RateVerdict.SLOWER


def test_what_the_form_does_not_describe_shows():
    fit = fit_rate("power", steps=K, log_values=-0.01 * K)
    assert fit.r_squared < 0.7
    assert fit.max_residual > 1000
    flat = fit_rate("power", steps=K, values=np.full(K.size, 3.0), claimed=0.1)
    assert (flat.exponent, flat.r_squared, flat.max_residual) == (0.0, 0.0, 0.0)
    assert flat.verdict is RateVerdict.SLOWER


@pytest.mark.parametrize(
    ("log_y", "end"),
    [(-2 * np.log(K), 0.02), (-((K / 1e5) ** 4), 3.0)],
    ids=["power law", "faster than k^3"],
)
def test_an_exponent_at_the_end_of_the_search_says_so(log_y, end):
    fit = fit_rate("exp", steps=K, log_values=log_y)
    assert fit.at_search_end
    assert fit.exponent == pytest.approx(end)
    assert fit.interval[0] == 0 if end < 1 else fit.interval[1] == np.inf
    assert "end of the search, 0.02 to 3" in str(fit)
    pair = np.stack([log_y, law("exp", 0.5, np.log(K))])
    seeds = fit_rate("exp", steps=K, log_values=pair)
    assert seeds.at_search_end
    assert seeds.interval[0] == 0 if end < 1 else seeds.interval[1] == np.inf


def test_too_few_points_for_halves_leave_the_late_exponent_open():
    fit = fit_rate("power", steps=K[:15], values=1 / K[:15], claimed=1.0)
    assert np.isnan(fit.late_exponent)
    assert fit.late_interval == (-np.inf, np.inf)
    assert fit.verdict is RateVerdict.AT_LEAST_AS_FAST


def test_a_late_half_that_rises_says_nothing_about_an_exponential():
    log_y = np.where(K < 4000, -(K ** (1 / 3)), -16 + np.log(K / 4000) / 10)
    for shape in ((-1,), (2, -1)):
        fit = fit_rate("exp", steps=K, log_values=np.broadcast_to(log_y, (2, 40))[: len(shape)])
        assert np.isnan(fit.late_exponent)
        assert fit.late_interval == (-np.inf, np.inf)


def test_a_fit_prints_on_one_line():
    wobble = 0.02 * np.sin(7 * np.arange(40))
    fit = fit_rate("log", steps=K, log_values=np.log(4.4) - 2 * np.log(np.log(K)) + wobble)
    fit = replace(fit, exponent=2.0, interval=(1.98, 2.02), log_coefficient=np.log(4.4))
    assert str(fit) == "y ~ 4.4 (log k)^-2.00 [1.98, 2.02]"
    met = replace(fit, claimed=1.0, verdict=RateVerdict.AT_LEAST_AS_FAST)
    assert str(met).endswith("[1.98, 2.02]: at least as fast as the claimed exponent 1")
    assert "(log k)^0.50 [-0.52, -0.48]" in str(
        replace(fit, exponent=-0.5, interval=(-0.52, -0.48))
    )
    assert str(replace(fit, log_coefficient=1e4)).startswith("y ~ C (log k)")
    assert str(replace(fit, form="exp", offset=0.7)) == "y ~ exp(0.7 - 4.4 k^2.00) [1.98, 2.02]"


def test_a_prediction_outside_the_form_is_nan():
    fit = fit_rate("log", steps=K, values=1 / np.log(K))
    np.testing.assert_array_equal(np.isnan(fit.predict([0.5, 3.0])), [True, False])
    with pytest.raises(ProblemError, match="neither of steps and log_steps"):
        fit.predict()


# What is refused

Y = 1 / K


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"steps": K, "values": Y, "form": "cubic"}, "'cubic': give one of log, loglog"),
        ({"values": Y}, "neither of steps and log_steps are given"),
        ({"steps": K}, "neither of values and log_values are given"),
        ({"steps": K, "log_steps": np.log(K), "values": Y}, "both of steps and log_steps"),
        ({"steps": K, "values": Y, "log_values": np.log(Y)}, "both of values and log_values"),
        ({"steps": K[::-1], "values": Y}, "steps must increase"),
        ({"log_steps": np.zeros(40), "values": Y}, "log_steps must increase"),
        ({"steps": -K[::-1], "values": Y}, r"steps\[0\] is -1000000.0, but must be finite"),
        ({"log_steps": np.append(np.log(K)[:-1], np.inf), "values": Y}, r"log_steps\[39\] is inf"),
        ({"steps": K, "values": -Y}, r"values\[0\] is -0.05, but must be finite and at least 0"),
        ({"steps": K, "values": np.where(K > 1e5, np.nan, Y)}, "is nan"),
        ({"steps": K, "log_values": np.where(K > 1e5, np.nan, Y)}, "log_values.* is nan"),
        ({"steps": K, "values": np.where(K > 1e5, np.inf, Y)}, "is inf"),
        ({"steps": K, "values": "falls"}, "values has dtype"),
        ({"steps": K, "values": Y[:-1]}, r"steps has shape \(40,\) and values \(39,\)"),
        ({"steps": np.tile(K, (3, 1)), "values": np.tile(Y, (2, 1))}, r"\(3, 40\) and values"),
        ({"steps": K, "values": np.ones((2, 2, 40))}, r"shape \(2, 2, 40\), but must have"),
        ({"steps": [], "values": []}, r"shape \(0,\), but must have"),
        ({"steps": 1.0, "values": 1.0}, r"shape \(\), but must have"),
        ({"steps": K[:7], "values": Y[:7]}, "7 usable points of 7.*at least 8"),
        ({"steps": K, "values": np.where(K > 30, 0, Y)}, "2 usable points of 40"),
        ({"steps": K, "values": Y, "window": (1e5, 2e5)}, "usable points of 40.*widen the window"),
        ({"steps": K, "values": Y, "window": (10, 5)}, r"window is \(10, 5\): give a pair"),
        ({"steps": K, "values": Y, "window": 5}, "window is 5: give a pair"),
        ({"steps": K, "values": Y, "confidence": 1.0}, "confidence is 1.0: give a number above 0"),
        ({"steps": K, "values": Y, "confidence": "high"}, "confidence is 'high'"),
        ({"steps": K, "values": Y, "claimed": 0.0}, "claimed is 0.0: give a number above 0"),
        ({"steps": K, "values": Y, "claimed": np.nan}, "claimed is nan"),
        ({"steps": K, "values": Y, "tol": 1.0}, "tol is 1.0"),
        ({"steps": 1e17 + 16 * np.arange(9), "values": Y[:9]}, "same logarithm"),
        ({"form": "exp", "steps": K, "values": K}, "trajectory 0 do not fall"),
        ({"form": "exp", "steps": K, "values": [1 / K, K]}, "trajectory 1 do not fall"),
        ({"form": "exp", "steps": K, "values": np.ones(40)}, "do not fall"),
    ],
)
def test_wrong_arguments_are_refused(arguments, message):
    with pytest.raises(ProblemError, match=message):
        fit_rate(**{"form": "power", **arguments})
