"""C3 and C4: mirror descent on linear models and deep networks, with lp and other potentials.

C3 is "Mirror Descent Maximizes Generalized Margin and Can Be Implemented Efficiently", C4 "A
Unified Approach to Controlling Implicit Regularization via Mirror Descent".
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise
from typing import Any

import numpy as np

from mirrormargin.claims.checks import (
    all_at_least,
    all_at_most,
    all_equal,
    share_at_least,
    smaller,
)
from mirrormargin.claims.claim import Claim, Finding, Provenance
from mirrormargin.claims.evidence import Evidence

__all__ = ["CLAIMS"]

EARLY = (0.1, 0.25)  # shares of the decades of steps that set the factor of a bound
ENOUGH_DECADES = 100


def examine_linear(evidence: Evidence) -> Finding:
    lp = evidence["potential"] == "lp"
    D, cross, p = evidence["divergence"][lp], evidence["cross"][lp], evidence["p"][lp]
    nearest = evidence["exponents"][cross.argmin(axis=1)]
    left = D[:, -1] / D[:, 0]
    margin = (evidence["margin"][lp, -1] / evidence["target_margin"][lp])[p <= 3]
    return Finding(
        [
            all_equal("exponent of the nearest max-margin solution", nearest, p),
            all_at_most("D at the end, as a share of D after 10 steps", left, 0.15),
            all_at_least("share of the largest margin, p ≤ 3", margin, 0.9),
        ],
        "D " + ", ".join(f"{D[p == r, -1].max():.1e} (p = {r:g})" for r in np.unique(p)),
        "At p = 10 weights near zero are stiff, and fewer decades of steps are followed",
    )


def examine_rate(evidence: Evidence) -> Finding:
    from mirrormargin.dynamics import bound_holds, claimed_rate, fit_rate

    lp = np.flatnonzero(evidence["potential"] == "lp")
    holds, exponents = [], {}
    for row in lp:
        p, decades = evidence["p"][row], evidence["log10_k"][row]
        if decades[-1] < ENOUGH_DECADES:
            continue
        log_k, D = _keep_first(decades * np.log(10.0), evidence["divergence"][row])
        early = tuple(share * decades[-1] for share in EARLY)
        late = (early[1], decades[-1])
        holds.append(bound_holds(log_k, D, claimed_rate(float(p))[1], early, late).holds)
        window = (early[1] * np.log(10.0), log_k[-1])
        found = fit_rate("log", log_steps=log_k, values=D, window=window).exponent
        exponents.setdefault(float(p), []).append(found)
    return Finding(
        [share_at_least("flows whose D stays below the proven rate", holds)],
        "D ~ (log k)^-a with a = "
        + ", ".join(f"{np.mean(found):.2g} (p = {p:g})" for p, found in exponents.items()),
        f"Flows of fewer than {ENOUGH_DECADES} decades, at p above 5, cannot tell",
    )


def examine_parallel(evidence: Evidence) -> Finding:
    differing, places = evidence["differing"], evidence["last_places"]
    return Finding(
        [
            all_at_least("share of entries that the steps move", evidence["moved"], 0.9),
            all_at_most("difference between pieces and whole, in last places", places, 100),
        ],
        f"of {evidence['size'][0]} entries at most {differing.max()} differ, by"
        f" {places.max()} in the last place, in {differing.size} cuttings",
        "A power may depend on its place in a vector register by rounding, and does not where steps"
        " are compiled, in float32. Normalised steps need one norm of all pieces",
    )


def examine_weights(evidence: Evidence) -> Finding:
    lp = evidence["potential"] == "lp"
    p, spread, small = (evidence[name][lp] for name in ("p", "l1_l2", "small"))
    values = np.unique(p)
    least, most = p == p.min(), p == p.max()
    return Finding(
        [
            *(
                all_at_least(
                    f"rise of |w|_1 / (sqrt(d) |w|_2) from p = {a:g} to {b:g}, seed by seed",
                    spread[p == b] - spread[p == a],
                    0.01,
                )
                for a, b in pairwise(values)
            ),
            all_at_least("fall of the share of small weights", small[least] - small[most], 0.1),
        ],
        f"|w|_1 / (sqrt(d) |w|_2) from {spread[least].mean():.2f} (p = {p.min():g}) to"
        f" {spread[most].mean():.2f} (p = {p.max():g}); weights below 1% of the largest:"
        f" {small[least].mean():.0%} and {small[most].mean():.0%}",
        "Published for deep networks; checked on linear ones",
    )


def examine_overhead(evidence: Evidence) -> Finding:
    ratio = evidence["ratio"]
    return Finding(
        [
            all_at_most(
                "time of a mirror step over that of SGD, medians", np.median(ratio, axis=1), 2.5
            )
        ],
        ", ".join(
            f"{np.median(row):.2f} (p = {p:g})" for p, row in zip(evidence["p"], ratio, strict=True)
        ),
    )


def examine_deep(evidence: Evidence) -> Finding:
    p = evidence["p"].tolist()
    accuracy, small, spread = (
        np.moveaxis(evidence[name], 1, 0) for name in ("accuracy", "small", "l1_l2")
    )
    at = {r: p.index(r) for r in (1.1, 2.0, 3.0, 10.0)}
    return Finding(
        [
            smaller("share of small weights: p = 1.1 above p = 2", small[at[2.0]], small[at[1.1]]),
            smaller("|w|_1 / |w|_2: p = 10 above p = 2", spread[at[2.0]], spread[at[10.0]]),
            smaller("accuracy: p = 3 above p = 2", accuracy[at[2.0]], accuracy[at[3.0]]),
        ],
        "accuracy " + ", ".join(f"{accuracy[i].mean():.3f} (p = {r:g})" for r, i in at.items()),
    )


def examine_homogeneous(evidence: Evidence) -> Finding:
    other = evidence["potential"] != "lp"
    D, names = evidence["divergence"][other], evidence["potential"][other]
    margin = evidence["margin"][other, -1] / evidence["target_margin"][other]
    at_two = evidence["cross"][other][:, evidence["exponents"].tolist().index(2.0)]
    return Finding(
        [
            all_at_most(
                "1 - cos to the max-margin solution in the potential's norm", D[:, -1], 1e-3
            ),
            all_at_least("1 - cos to the Euclidean one", at_two, 1e-2),
            all_at_least("share of the largest margin", margin, 0.99),
        ],
        f"1 - cos ≤ {D[:, -1].max():.1e} with {len(np.unique(names))} potentials, and"
        f" {at_two.min():.2f} or more from the Euclidean solution",
    )


def examine_normalized(evidence: Evidence) -> Finding:
    from mirrormargin.dynamics import bound_holds

    log_k, D, p = np.log(evidence["steps"]), evidence["divergence"], evidence["p"]
    margins = evidence["margin"] * np.exp(evidence["log_norm"])
    values = np.maximum(D, 1e-16)  # in rounding D may come out as zero or below
    holds = []
    for row, r, m in zip(values, p, margins, strict=True):
        # Rates are about the end: before all samples have a margin, nothing has to fall.
        begin = float(np.log10(evidence["steps"][m > 1][0]))
        end = float(np.log10(evidence["steps"][-1]))
        middle = (begin + end) / 2
        rate = _find_rate(float(r))
        holds.append(bound_holds(log_k, row, rate, (begin, middle), (middle, end)).holds)
    constant = evidence["constant_divergence"]
    return Finding(
        [
            share_at_least("runs whose D stays below the rate", holds),
            smaller(
                "log D: normalised steps below constant ones",
                np.log(values[:, -1]),
                np.log(constant),
            ),
            all_at_most("D at the end, as a share of D after a step", D[:, -1] / D[:, 0], 0.1),
        ],
        f"D after {evidence['steps'][-1]} steps "
        + ", ".join(
            f"{D[p == r, -1].mean():.1e}, constant {constant[p == r].mean():.1e} (p = {r:g})"
            for r in np.unique(p)
        ),
        "The exponents follow from |w| ~ k^(1/(p-1)): k^-1 up to p = 2, with a logarithm there, and"
        " k^(-1/(p-1)) above. Their factors are set from the step on at which every sample has a"
        " margin of 1",
    )


def _find_rate(p: float) -> Callable[[Any], Any]:
    if p == 2:
        return lambda log_k: log_k * np.exp(-log_k)
    return lambda log_k: np.exp(-min(1.0, 1 / (p - 1)) * log_k)


def _keep_first(log_k: Any, D: Any) -> tuple[Any, Any]:
    """Points at new steps only: early ones can fall together."""
    kept = np.append(True, np.diff(log_k) > 0)
    return log_k[kept], np.maximum(D[kept], 1e-16)


CLAIMS: tuple[Claim, ...] = (
    Claim(
        id="C3.thm.linear",
        title="On separable data mirror descent goes to the lp max-margin direction",
        statement="For a linear model and separable data, mirror descent with psi_p and a small"
        " constant rate converges in direction to the solution of least lp norm.",
        source="C3, theorem on the implicit bias",
        provenance=Provenance.RECALLED,
        published="D → 0",
        experiment="linear-flow",
        examine=examine_linear,
        figures=("linear",),
    ),
    Claim(
        id="C3.thm.rate",
        title="The direction converges at a rate in log k that depends on p",
        statement="The divergence is O((log k)^-(p-1)) for p below 2, O(log log k / log k) at 2,"
        " and O(1 / log k) above.",
        source="C3, theorem on the rate",
        provenance=Provenance.RECALLED,
        published="(log k)^-(p-1), log log k / log k, 1 / log k",
        experiment="linear-flow",
        examine=examine_rate,
        figures=("linear",),
    ),
    Claim(
        id="C3.parallel",
        title="A step acts on each weight alone, so it parallelises fully",
        statement="Mirror descent with psi_p needs nothing but a weight and its gradient: tensors"
        " cut into pieces step to the same values.",
        source="C3, abstract",
        provenance=Provenance.SEEN,
        published="fully parallelisable",
        experiment="shards",
        examine=examine_parallel,
    ),
    Claim(
        id="C3.fig.weights",
        title="Small p gives the sparsest weights, large p the most even ones",
        statement="Of p = 1.1, 2, 3 and 10 the first gives the sparsest weights, and the last those"
        " of the most equal size.",
        source="C3, histograms of weights",
        provenance=Provenance.RECALLED,
        published="",
        experiment="linear-flow",
        examine=examine_weights,
        figures=("linear",),
    ),
    Claim(
        id="C3.fig.deep",
        title="Deep networks on CIFAR-10: p = 3 generalises best, p = 1.1 is sparsest",
        statement="Trained by mirror descent on CIFAR-10, four networks generalise best at p = 3,"
        " have the sparsest weights at p = 1.1 and the most equal ones at p = 10.",
        source="C3, tables and histograms of deep networks",
        provenance=Provenance.RECALLED,
        published="",
        experiment="deep-networks",
        should_hold=False,
        examine=examine_deep,
    ),
    Claim(
        id="C3.overhead",
        title="A mirror step costs hardly more than one of SGD",
        statement="Mirror descent with an lp potential runs with virtually no overhead over SGD.",
        source="C3, abstract",
        provenance=Provenance.SEEN,
        published="virtually no overhead",
        experiment="overhead",
        examine=examine_overhead,
        should_hold=False,
    ),
    Claim(
        id="C4.fig.deep",
        title="The same on images with other potentials",
        statement="On MNIST, CIFAR-10 and ImageNet, too, the potential shapes the weights of"
        " trained networks and how they generalise.",
        source="C4, experiments with deep networks",
        provenance=Provenance.RECALLED,
        published="",
        experiment="deep-networks",
        examine=examine_deep,
        should_hold=False,
    ),
    Claim(
        id="C4.thm.homogeneous",
        title="Any homogeneous strictly convex potential leads to the max margin in its norm",
        statement="On separable data mirror descent with a potential that is homogeneous and"
        " strictly convex converges in direction to the largest margin in the potential's norm.",
        source="C4, theorem on the implicit bias",
        provenance=Provenance.RECALLED,
        published="1 - cos → 0",
        experiment="linear-flow",
        examine=examine_homogeneous,
        figures=("linear",),
    ),
    Claim(
        id="C4.thm.normalized",
        title="Normalised steps have the same limit and get there at a polynomial rate",
        statement="If steps are divided by the norm of the gradient, the direction converges to the"
        " same max-margin solution, with a divergence that falls like a power of k, not of log k.",
        source="C4, theorem on normalised mirror descent",
        provenance=Provenance.RECALLED,
        published="polynomial in k",
        experiment="linear-steps",
        examine=examine_normalized,
        figures=("linear",),
    ),
)
