r"""Mirror descent with a small constant rate on linearly separable data, for hundreds of decades.

Potentials are psi_p at several p, and four others that are homogeneous and strictly convex:

    weighted 1.5, weighted 3    (1/p) sum_i c_i |w_i|^p
    quadratic                   w' M w / 2
    squared 3                   |w|_3^2 / 2

Arrays (S = one for each potential and seed; R recorded decades; E exponents):
    exponents (E,)             shared: of psi_p
    potential (S,)             "lp" or a name of above
    p, seed (S,)               p is 2 for "quadratic"
    log10_k (S, R)             decades of steps
    divergence (S, R)          from the max-margin solution in the potential's norm: D for "lp",
                               1 - cos for the others
    margin (S, R)              least margin of a sample, over the norm
    target_margin (S,)         that of the max-margin solution
    cross (S, E)               the last divergence, but from the lp solutions of all exponents
    entries (S, d)             |w_i| / max |w_i| in the end, the largest first
    l1_l2 (S,)                 |w|_1 / (sqrt(d) |w|_2): 1 if all entries are alike
    small (S,)                 share of entries below 1% of the largest
"""

from __future__ import annotations

from typing import Any

import numpy as np

from mirrormargin.claims.experiment import Arrays, Experiment, Settings
from mirrormargin.claims.experiments.seeds import list_seeds
from mirrormargin.claims.experiments.separable import draw_rows, follow_flow, make_map

__all__ = ["EXPERIMENT"]

OTHERS = (("weighted 1.5", 1.5), ("weighted 3", 3.0), ("quadratic", 2.0), ("squared 3", 3.0))
NUM_POINTS = 80


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


EXPERIMENT = Experiment(
    name="linear-flow",
    title="mirror descent on separable data with lp and other potentials, over hundreds of decades",
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
    shared=("exponents",),
)
