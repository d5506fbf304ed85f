"""The flow in log-time: the limit of small steps, as far as one likes."""

import numpy as np
import pytest
from scipy.integrate import solve_ivp

import mirrormargin as mm

EXPONENTS = [1.25, 1.75, 2.0, 2.5, 3.0, 5.0]
SMALL = mm.synthetic.unit_sphere(2, 3, 4, 4)


def descend(problem, p, lr, steps):
    """W of mirror descent with a constant rate at the given times, lr times their numbers."""
    times = (np.asarray(steps) / lr).round().astype(int)
    record = mm.train_attention(
        problem,
        p,
        step_rule="constant",
        lr=lr,
        num_steps=int(times[-1]),
        record=times,
        target=None,
        keep_path=True,
        threads=1,
    )
    chosen = np.searchsorted(record.steps[0, 0, 0], times)
    return record.path[0, 0, 0, chosen]


@pytest.mark.parametrize("p", EXPONENTS)
def test_the_flow_is_the_limit_of_small_steps(p):
    times = np.array([10.0, 100.0, 1000.0])
    flow = mm.mirror_flow(SMALL, p, decades=3, record=np.log10(times), tol=1e-7)
    errors = []
    for lr in (0.02, 0.01):
        # 10^5 steps of the smaller rate.
        W = descend(SMALL, p, lr, times)
        errors.append(np.abs(W - flow.path).max() / np.abs(flow.path).max())
    assert errors[1] < 2e-3
    assert errors[1] == pytest.approx(errors[0] / 2, rel=0.2)


@pytest.mark.parametrize("p", [1.5, 2.0, 3.0])
def test_another_integrator_finds_the_same(p):
    log10_k = np.array([1.0, 5.0, 10.0, 20.0])
    flow = mm.mirror_flow(SMALL, p, decades=20, record=log10_k, tol=1e-7)
    start, d = -7.0, SMALL.dim

    def slope(tau, u):
        W = (np.sign(u) * np.abs(u) ** (1 / (p - 1))).reshape(d, d)
        mantissa, log_scale = SMALL.scaled_gradient(W)
        return -(mantissa * np.exp(tau + log_scale)).reshape(-1)

    # At t = e^-7 one explicit step is right to 1e-3 of a W that is itself negligible later on.
    u = -np.exp(start) * SMALL.gradient(np.zeros((d, d))).reshape(-1)
    ends = np.log(10) * log10_k
    options = {"method": "Radau", "rtol": 1e-8, "atol": 1e-10}
    solved = solve_ivp(slope, (start, ends[-1]), u, t_eval=ends, **options)
    W = np.sign(solved.y.T) * np.abs(solved.y.T) ** (1 / (p - 1))
    for ours, theirs in zip(flow.path, W, strict=True):
        np.testing.assert_allclose(
            ours.reshape(-1), theirs, atol=3e-4 * np.abs(theirs).max(), rtol=0
        )


@pytest.mark.parametrize("p", EXPONENTS)
def test_proven_rates_hold_over_three_hundred_decades(p):
    flow = mm.mirror_flow(mm.synthetic.unit_sphere(1), p, decades=300)
    log_k = np.log(10) * flow.log10_k[10:]
    _, rate = mm.claimed_rate(p)
    check = mm.bound_holds(log_k, flow.divergence[10:], rate, (20, 50), (200, 300))
    assert check.holds
    assert flow.selection[-1].tolist() == flow.target_selection.tolist()
    # |W| grows like log k.
    late = flow.log10_k >= 100
    ratio = flow.norm[late] / flow.log10_k[late]
    assert ratio.max() < 1.1 * ratio.min()


@pytest.mark.parametrize("p", [1.5, 2.0, 3.0])
def test_three_thousand_decades_are_no_further(p):
    flow = mm.mirror_flow(SMALL, p, decades=3000)
    assert flow.log10_k[-1] == 3000
    assert (np.diff(flow.divergence[150:]) < 0).all()
    assert flow.logit_gap[-1] > 5000


def test_a_smaller_tolerance_changes_little():
    problem = mm.synthetic.unit_sphere(3)
    loose, tight = (mm.mirror_flow(problem, 1.75, 100, tol=tol) for tol in (1e-5, 1e-7))
    np.testing.assert_allclose(loose.divergence[20:], tight.divergence[20:], rtol=1e-4)


def test_lr_only_names_the_steps():
    one = mm.mirror_flow(SMALL, 2.0, 10, record=[5.0, 9.0], tol=1e-7)
    ten = mm.mirror_flow(SMALL, 2.0, 10, record=[4.0, 8.0], lr=10.0, tol=1e-7)
    np.testing.assert_allclose(one.path, ten.path, rtol=1e-6)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"p": 1.0}, "p is 1"),
        ({"decades": 0}, "decades is 0"),
        ({"decades": float("nan")}, "decades is nan"),
        ({"lr": -1.0}, "lr is -1"),
        ({"tol": 1.0}, "tol is 1"),
        ({"init": np.zeros(3)}, "init has shape"),
        ({"init": np.full((4, 4), np.nan)}, r"init.* is (nan|inf): give finite numbers"),
        ({"target": np.zeros((3, 3))}, "target has shape"),
        ({"record": [3.0, 2.0]}, "record must increase"),
    ],
)
def test_bad_input_is_named(options, message):
    with pytest.raises(mm.ProblemError, match=message):
        mm.mirror_flow(SMALL, **{"p": 2.0, "decades": 5} | options)
