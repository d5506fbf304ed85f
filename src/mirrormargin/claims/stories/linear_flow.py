r"""Mirror descent with a small constant rate on linearly separable data, for hundreds of decades.

Potentials are psi_p at several p, and four others that are homogeneous and strictly convex:

    weighted 1.5, weighted 3    (1/p) sum_i c_i |w_i|^p
    quadratic                   w' M w / 2
    squared 3                   |w|_3^2 / 2

Axes: S flows, one for each potential and seed; R recorded decades; E exponents; d weights.
"""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import numpy as np

from mirrormargin.claims.checks import all_at_least, all_at_most, all_equal, share_at_least
from mirrormargin.claims.claim import Claim, Finding, Provenance
from mirrormargin.claims.evidence import Evidence
from mirrormargin.claims.stories.separable import draw_linear, draw_rows, follow_flow, make_map
from mirrormargin.claims.story import Arrays, Settings, Story, list_seeds
from mirrormargin.figures import Axis, Figure, Panel, Series
from mirrormargin.figures.palette import name_exponent
from mirrormargin.figures.spread import find_median

__all__ = ["STORY"]

OTHERS = (("weighted 1.5", 1.5), ("weighted 3", 3.0), ("quadratic", 2.0), ("squared 3", 3.0))
NUM_POINTS = 80
EARLY_SHARES = (0.1, 0.25)  # of the decades of steps: they set the factor of a bound
ENOUGH_DECADES = 100

ARRAYS = {
    "exponents": "E: of psi_p",
    "potential": 'S: "lp" or one of the names above',
    "p, seed": 'S: p is 2 for "quadratic"',
    "log10_k": "S R: decades of steps",
    "divergence": 'S R: from the max-margin solution in the potential\'s norm: D for "lp", 1 - cos'
    " for the others",
    "margin": "S R: least margin of a sample, over the norm",
    "target_margin": "S: that of the max-margin solution",
    "cross": "S E: the last divergence, but from the lp solutions of all exponents",
    "entries": "S d: |w_i| / max |w_i| in the end, the largest first",
    "l1_l2": "S: |w|_1 / (sqrt(d) |w|_2): 1 if all entries are alike",
    "small": "S: share of entries below 1% of the largest",
}


def split(settings: Settings) -> list[tuple[str, float, int]]:
    chosen = [("lp", p) for p in settings["p"]] + list(OTHERS)
    return [(name, p, seed) for name, p in chosen for seed in list_seeds(settings)]


def run(settings: Settings, part: Any) -> Arrays:
    import mirrormargin as mm

    name, p, seed = part
    n, d = settings["n"], settings["d"]
    A = draw_rows(seed, n, d)
    to_primal, find_norm, scale = _make_potential(name, p, d, seed)
    # In the coordinates scale^-1 w the potential's norm is the lp norm.
    target = scale @ mm.solve_decoder_svm(A @ scale, np.ones(n), p, 1e-11).v
    # Far above p = 2 weights near zero are stiff: steps get so short that decades get dear.
    decades = settings["decades"] if p <= 5 else settings["stiff_decades"]
    q = p / (p - 1)
    log10_k, path = follow_flow(A, to_primal, q, decades, np.geomspace(1, decades, NUM_POINTS))
    sizes = np.array([find_norm(w) for w in path])
    plain = [mm.solve_decoder_svm(A, np.ones(n), r, 1e-11).v for r in settings["p"]]

    def diverge(U: Any, w: Any) -> float:
        return float(mm.directional_divergence(U, w, p if name == "lp" else 2.0))

    last = np.sort(np.abs(path[-1]))[::-1]
    return {
        "exponents": np.array(settings["p"]),
        "potential": np.array([name]),
        "p": np.array([p]),
        "seed": np.array([seed]),
        "log10_k": log10_k[None],
        "divergence": np.array([[diverge(target, w) for w in path]]),
        "margin": ((path @ A.T).min(axis=1) / sizes)[None],
        "target_margin": np.array([(A @ target).min() / find_norm(target)]),
        "cross": np.array([[diverge(U, path[-1]) for U in plain]]),
        "entries": (last / last[0])[None],
        "l1_l2": np.array([last.sum() / np.sqrt(d) / np.linalg.norm(last)]),
        "small": np.array([(last < 0.01 * last[0]).mean()]),
    }


def _make_potential(name: str, p: float, d: int, seed: int) -> tuple[Any, Any, Any]:
    """The inverse mirror map, the norm, and the matrix that turns it into the lp norm."""
    rng = np.random.default_rng([seed, 22])

    def find_lp(w: Any) -> float:
        top = np.abs(w).max()
        return float(top * ((np.abs(w) / top) ** p).sum() ** (1 / p))

    if name.startswith("weighted"):
        c = np.exp(rng.normal(size=d))
        to_primal = make_map(p)
        scale = np.diag(c ** (-1 / p))
        return lambda u: to_primal(u / c), lambda w: find_lp(c ** (1 / p) * w), scale
    if name == "quadratic":
        B = rng.normal(size=(d, d)) / np.sqrt(d)
        L = np.linalg.cholesky(B @ B.T + 0.1 * np.eye(d))
        inverse = np.linalg.inv(L)
        return lambda u: inverse.T @ (inverse @ u), lambda w: find_lp(L.T @ w), inverse.T
    if name.startswith("squared"):
        q = p / (p - 1)

        def to_primal_squared(u: Any) -> Any:
            if not u.any():
                return np.zeros_like(u)
            size = (np.abs(u) ** q).sum() ** (1 / q)
            return size ** (2 - q) * np.sign(u) * np.abs(u) ** (q - 1)

        return to_primal_squared, find_lp, np.eye(d)
    return make_map(p), find_lp, np.eye(d)


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
        early = tuple(share * decades[-1] for share in EARLY_SHARES)
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


def _keep_first(log_k: Any, D: Any) -> tuple[Any, Any]:
    """Points at new steps only: early ones can fall together."""
    kept = np.append(True, np.diff(log_k) > 0)
    return log_k[kept], np.maximum(D[kept], 1e-16)


CLAIMS = (
    Claim(
        id="C3.thm.linear",
        title="On separable data mirror descent goes to the lp max-margin direction",
        statement="For a linear model and separable data, mirror descent with psi_p and a small"
        " constant rate converges in direction to the solution of least lp norm.",
        source="C3, theorem on the implicit bias",
        provenance=Provenance.RECALLED,
        published="D → 0",
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
        examine=examine_rate,
        figures=("linear",),
    ),
    Claim(
        id="C3.fig.weights",
        title="Small p gives the sparsest weights, large p the most even ones",
        statement="Of p = 1.1, 2, 3 and 10 the first gives the sparsest weights, and the last those"
        " of the most equal size.",
        source="C3, histograms of weights",
        provenance=Provenance.RECALLED,
        published="",
        examine=examine_weights,
        figures=("linear",),
    ),
    Claim(
        id="C4.thm.homogeneous",
        title="Any homogeneous strictly convex potential leads to the max margin in its norm",
        statement="On separable data mirror descent with a potential that is homogeneous and"
        " strictly convex converges in direction to the largest margin in the potential's norm.",
        source="C4, theorem on the implicit bias",
        provenance=Provenance.RECALLED,
        published="1 - cos → 0",
        examine=examine_homogeneous,
        figures=("linear",),
    ),
)


def draw_flows(evidence: Evidence) -> Figure:
    lp = evidence["potential"] == "lp"
    settling, entries = [], []
    for p in np.unique(evidence["p"][lp]):
        flows, group = lp & (evidence["p"] == p), name_exponent(p)
        x = evidence["log10_k"][flows][0]
        settling.append(Series(group, x, *find_median(evidence["divergence"][flows]), group=group))
        sizes = find_median(evidence["entries"][flows]).middle
        ranks = np.arange(1.0, sizes.size + 1)
        entries.append(Series(group, ranks, sizes, group=group))
    others = [
        Series(
            name,
            evidence["log10_k"][evidence["potential"] == name][0],
            *find_median(evidence["divergence"][evidence["potential"] == name]),
            group=name,
        )
        for name in dict.fromkeys(evidence["potential"][~lp].tolist())
    ]
    decades, size = Axis("log₁₀ k", "log"), Axis("|w_i| / largest")
    return draw_linear(
        Panel("small steps, lp", decades, Axis("D", "log"), tuple(settling)),
        Panel("other potentials", decades, Axis("1 − cos", "log"), tuple(others)),
        Panel("entries in the end", Axis("rank"), size, tuple(entries)),
    )


STORY = Story(
    name="linear-flow",
    title="mirror descent on separable data with lp and other potentials, over hundreds of decades",
    arrays=ARRAYS,
    profiles={
        "quick": {
            "num_seeds": 2,
            "p": [1.1, 1.5, 2.0, 3.0, 10.0],
            "n": 15,
            "d": 60,
            "decades": 200,
            "stiff_decades": 30,
        },
        "full": {
            "num_seeds": 20,
            "p": [1.1, 1.5, 2.0, 3.0, 10.0],
            "n": 15,
            "d": 60,
            "decades": 300,
            "stiff_decades": 60,
        },
    },
    split=split,
    run=run,
    early=True,
    draw=(draw_flows,),
    claims=CLAIMS,
)
