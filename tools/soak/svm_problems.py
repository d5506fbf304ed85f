"""Random max-margin problems: separable, not separable, and in between."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.random import Generator
from numpy.typing import NDArray

__all__ = ["FAMILIES", "Case", "make_case"]

Array = NDArray[Any]


@dataclass(frozen=True)
class Case:
    """A problem as the solvers take it; ``rhs`` and a boolean selection make its variants."""

    family: str
    tokens: Array
    queries: Array
    selection: Array
    p: float
    tol: float
    rhs: Array | None = None
    solver: str = "one"

    def describe(self) -> str:
        n, T, d = self.tokens.shape
        return (
            f"{self.family} by {self.solver}, n={n}, T={T}, d={d}, p={self.p:.3g}, tol={self.tol:g}"
        )


def make_case(rng: Generator) -> Case:
    """A random problem of a random family, a tenth of them with several selected tokens or rhs."""
    n, T, d = int(rng.integers(1, 9)), int(rng.integers(2, 6)), int(rng.integers(1, 6))
    family = str(rng.choice(list(FAMILIES)))
    X, z, chosen = FAMILIES[family](rng, n, T, d)
    n, T, d = X.shape
    if rng.random() < 0.2:
        X, z = X * 10.0 ** rng.integers(-12, 13), z * 10.0 ** rng.integers(-12, 13)
    if rng.random() < 0.1:
        X, z = X.astype(np.float32).astype(float), z.astype(np.float32).astype(float)
    solvers = ("one", "general", "many", "nuclear", "decoder")
    solver = str(rng.choice(solvers, p=[0.4, 0.25, 0.15, 0.05, 0.15]))
    selection: Array = chosen
    rhs = None
    if solver in ("one", "general") and rng.random() < 0.15:
        if T > 2 and rng.random() < 0.5:
            selection = np.arange(T) == chosen[:, None]
            selection[0, (chosen[0] + 1) % T] = True
        else:
            rhs = (rng.random(n) < 0.6).astype(float)
            rhs[int(rng.integers(n))] = 1.0
    p = 2.0 if solver == "nuclear" else float(np.exp(rng.uniform(np.log(1.05), np.log(20.0))))
    if rng.random() < 0.2:
        p = 2.0
    tol = float(rng.choice([1e-8, 1e-8, 1e-6, 1e-4, 1e-2]))
    return Case(family, X, z, selection, p, tol, rhs, solver)


def _planted(rng: Generator, n: int, T: int, d: int) -> tuple[Array, Array, Array]:
    X, z, W = rng.normal(size=(n, T, d)), rng.normal(size=(n, d)), rng.normal(size=(d, d))
    return X, z, np.einsum("ntd,de,ne->nt", X, W, z).argmax(axis=1)


def _random(rng: Generator, n: int, T: int, d: int) -> tuple[Array, Array, Array]:
    """Near the number of rows that can just be separated."""
    n = max(1, round(2 * d * d / (T - 1) * rng.uniform(0.6, 1.4)))
    X, z = rng.normal(size=(n, T, d)), rng.normal(size=(n, d))
    return X, z, rng.integers(T, size=n)


def _lead(rng: Generator, n: int, T: int, d: int, sign: float) -> tuple[Array, Array, Array]:
    """Tokens on opposite sides of the selected one, and a lead of 1e-4 to 1e-16, or its loss."""
    d, T = max(d, 2), max(T, 3)
    lead = sign * 10.0 ** -rng.uniform(4, 16)
    X, z, chosen = _planted(rng, n, T, d)
    W = rng.normal(size=(d, d))
    for i in range(n):
        g = W @ z[i] / np.linalg.norm(W @ z[i])
        aside = rng.normal(size=d)
        aside -= (aside @ g) * g
        sides = np.resize([1.0, -1.0], T)[:, None] * aside * rng.uniform(0.5, 2.0, size=(T, 1))
        kept = X[i, chosen[i]].copy()
        X[i] = kept + sides - lead * rng.uniform(1.0, 3.0, size=(T, 1)) * g
        X[i, chosen[i]] = kept
    return X, z, chosen


def _narrow(rng: Generator, n: int, T: int, d: int) -> tuple[Array, Array, Array]:
    return _lead(rng, n, T, d, 1.0)


def _missed(rng: Generator, n: int, T: int, d: int) -> tuple[Array, Array, Array]:
    return _lead(rng, n, T, d, -1.0)


def _grid(rng: Generator, n: int, T: int, d: int) -> tuple[Array, Array, Array]:
    """Small integers: exact ties, duplicates and rows of zeros."""
    X = rng.integers(-2, 3, size=(n, T, d)).astype(float)
    z = rng.integers(-2, 3, size=(n, d)).astype(float)
    z[~z.any(axis=1), 0] = 1.0
    return X, z, rng.integers(T, size=n)


def _contradiction(rng: Generator, n: int, T: int, d: int) -> tuple[Array, Array, Array]:
    """Two sequences that ask for opposite rows, exactly or but for one last digit."""
    n = max(n, 2)
    X, z, chosen = _planted(rng, n, T, d)
    X[-1], z[-1] = X[0], z[0] * rng.choice([1.0, 0.5, 3.0])
    chosen[-1] = (chosen[0] + 1) % T
    if rng.random() < 0.5:
        i = (int(rng.integers(n)), int(rng.integers(T)), int(rng.integers(d)))
        X[i] = np.nextafter(X[i], np.inf)
    return X, z, chosen


def _barely(rng: Generator, n: int, T: int, d: int) -> tuple[Array, Array, Array]:
    """Rows around a point of their convex hull that is next to the origin."""
    X, z, chosen = _random(rng, n, max(T, 3), min(max(d, 2), 3))
    z[:] = z[0]
    sizes = 10.0 ** -rng.uniform(8, 15)
    n, T, d = X.shape
    for i in range(n):
        others = np.arange(T) != chosen[i]
        lead = rng.normal(size=(T - 1, d))
        lead[:, 0] = sizes * rng.uniform(-0.02, 1.0, size=T - 1)
        X[i, others] = X[i, chosen[i]] - lead
    return X, z, chosen


FAMILIES = {
    "planted": _planted,
    "random": _random,
    "narrow": _narrow,
    "missed": _missed,
    "grid": _grid,
    "contradiction": _contradiction,
    "barely": _barely,
}
