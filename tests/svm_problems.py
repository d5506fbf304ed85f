"""Attention SVMs with known answers, hostile random ones, and CVXPY's answer to any of them."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import NamedTuple

import cvxpy
import numpy as np
from numpy.random import Generator

from mirrormargin.attention import synthetic

# |W|_p of unit_sphere(seed=1) with its optimal tokens, to 1e-7.
PUBLISHED = {1.1: 10.353696734, 1.5: 4.856112942, 1.75: 3.459492115, 2: 2.660156915, 3: 1.417868952}


class Problem(NamedTuple):
    """Passes to the solver as ``solve_attention_svm(*problem, p)``."""

    tokens: np.ndarray
    queries: np.ndarray
    selection: np.ndarray


def rows_of(problem: Problem) -> np.ndarray:
    """The matrix A, by the definition: a row ``vec((x_ia - x_it) z_i')`` for each other token."""
    X, z, selection = problem
    return np.array(
        [
            np.outer(X[i, a] - X[i, t], z[i]).ravel()
            for i, a in enumerate(selection)
            for t in range(X.shape[1])
            if t != a
        ]
    )


def norm(w, p: float) -> float:
    return float((np.abs(w) ** p).sum() ** (1 / p))


def farthest(gap: float, p: float) -> float:
    """How far a feasible W may be from the best one, ``|W - W_mm|_p / |W_mm|_p``, at this gap.

    Both and so their mean are feasible; Clarkson's inequality (p >= 2) or the 2-uniform convexity
    of the lp norm (p <= 2) bounds their distance by what the mean can be shorter.
    """
    if p >= 2:
        return 2 * (((1 + gap) ** p - 1) / 2) ** (1 / p)
    return 2 * (((1 + gap) ** 2 - 1) / (2 * (p - 1))) ** 0.5


def one_constraint(seed: int, p: float, d: int = 4) -> tuple[Problem, np.ndarray]:
    """Two tokens, and the W in closed form: ``sign(a) |a|^(q-1) / sum |a|^q``."""
    rng = np.random.default_rng(seed)
    problem = Problem(rng.normal(size=(1, 2, d)), rng.normal(size=(1, d)), np.array([1]))
    return problem, lone_row(rows_of(problem)[0], p).reshape(d, d)


def orthogonal(seed: int, p: float, n: int = 3, width: int = 3) -> tuple[Problem, np.ndarray]:
    """Rows that share no coordinate, of sizes 1/4 to 4: each part of W solves its row alone."""
    rng = np.random.default_rng(seed)
    d = n * width
    X, z = np.zeros((n, 2, d)), np.zeros((n, d))
    for i in range(n):
        part = slice(i * width, (i + 1) * width)
        z[i, part] = 4.0 ** (i - 1) * rng.normal(size=width)
        X[i, :, part] = rng.normal(size=(2, width))
    problem = Problem(X, z, rng.integers(2, size=n))
    return problem, sum(lone_row(a, p) for a in rows_of(problem)).reshape(d, d)


def lone_row(a: np.ndarray, p: float) -> np.ndarray:
    """argmin |w|_p  s.t.  <w, a> >= 1; only the row's size is brought to one first."""
    q = p / (p - 1)
    largest = np.abs(a).max()
    a = a / largest
    return np.sign(a) * np.abs(a) ** (q - 1) / (np.abs(a) ** q).sum() / largest


def published() -> Problem:
    problem = synthetic.unit_sphere(seed=1)
    return Problem(problem.tokens, problem.queries, problem.optimal_tokens)


def planted(rng: Generator | int, n: int = 4, T: int = 4, d: int = 4) -> Problem:
    """Gaussian tokens and queries; a random W selects, so that it separates."""
    rng = np.random.default_rng(rng)
    X, z = rng.normal(size=(n, T, d)), rng.normal(size=(n, d))
    return Problem(X, z, _attended(X, rng.normal(size=(d, d)), z))


def overdetermined(seed: int, n: int = 30, T: int = 4, d: int = 3) -> Problem:
    """Far more rows of random signs than unknowns: nothing separates them."""
    rng = np.random.default_rng(seed)
    return Problem(rng.normal(size=(n, T, d)), rng.normal(size=(n, d)), rng.integers(T, size=n))


def several_selected(seed: int, n: int = 4, T: int = 5, d: int = 6) -> Problem:
    """One to three selected tokens in each sequence, as booleans (n, T)."""
    X, z, first = planted(seed, n, T, d)
    selection = np.arange(T) == first[:, None]
    selection[0, (first[0] + 1) % T] = True
    selection[1, (first[1] + np.array([1, 3])) % T] = True
    return Problem(X, z, selection)


def narrow(rng: Generator | int, lead: float, n: int = 4, T: int = 4, d: int = 4) -> Problem:
    """The planted W gives leads between 1 and 3 times ``lead``, and not much more is possible.

    In each sequence tokens lie on opposite sides of the selected one.
    """
    rng = np.random.default_rng(rng)
    X, z, selection = planted(rng, n, T, d)
    W = rng.normal(size=(d, d))
    for i in range(n):
        g = np.array([_dot(row, z[i]) for row in W])
        g /= math.sqrt(_dot(g, g))
        aside = rng.normal(size=d)
        aside -= _dot(aside, g) * g
        sides = np.resize([1.0, -1.0], T)[:, None] * aside * rng.uniform(0.5, 2.0, size=(T, 1))
        kept = X[i, selection[i]].copy()
        X[i] = kept + sides - lead * rng.uniform(1.0, 3.0, size=(T, 1)) * g
        X[i, selection[i]] = kept
    return Problem(X, z, selection)


def _dot(a: np.ndarray, b: np.ndarray) -> float:
    """The same bits on every CPU, which BLAS does not have: with no lead they decide."""
    return math.fsum(a * b)


def random_problem(seed: int) -> Problem:
    """One of the families below, the seed's remainder says which."""
    return list(FAMILIES.values())[seed % len(FAMILIES)](np.random.default_rng(seed))


def random_exponent(seed: int) -> float:
    """Between 1.05 and 20, uniform in the logarithm."""
    return float(np.exp(np.random.default_rng([seed, 1]).uniform(np.log(1.05), np.log(20))))


def _attended(X: np.ndarray, W: np.ndarray, z: np.ndarray) -> np.ndarray:
    return np.einsum("ntd,de,ne->nt", X, W, z).argmax(axis=1)


def _sizes(rng: Generator) -> tuple[int, int, int]:
    return int(rng.integers(1, 9)), int(rng.integers(2, 9)), int(rng.integers(2, 11))


def _any_selection(rng: Generator) -> Problem:
    n, T, d = _sizes(rng)
    X, z, _ = planted(rng, n, T, d)
    return Problem(X, z, rng.integers(T, size=n))


def _planted(rng: Generator) -> Problem:
    return planted(rng, *_sizes(rng))


def _duplicated(rng: Generator) -> Problem:
    """Tokens that occur twice, the selected one only by chance, and sequences that do."""
    X, z, selection = planted(rng, *_sizes(rng))
    n, T, _ = X.shape
    for i in range(n):
        one, other = rng.integers(T, size=2)
        if selection[i] not in (one, other) or rng.random() < 0.05:
            X[i, one] = X[i, other]
    again = rng.integers(n, size=n)
    return Problem(X[again], z[again], selection[again])


def _scaled(rng: Generator) -> Problem:
    X, z, selection = planted(rng, *_sizes(rng))
    return Problem(X * 10 ** rng.uniform(-6, 6), z * 10 ** rng.uniform(-6, 6), selection)


def _narrow(rng: Generator) -> Problem:
    return narrow(rng, 10 ** rng.uniform(-6, -1), *_sizes(rng))


def _uneven_rows(rng: Generator) -> Problem:
    """Row norms from 1e-3 to 1e3, between sequences or within them."""
    X, z, selection = planted(rng, *_sizes(rng))
    n, T, _ = X.shape
    if rng.random() < 0.5:
        return Problem(X, z * 10 ** rng.uniform(-3, 3, size=(n, 1)), selection)
    kept = X[np.arange(n), selection][:, None]
    return Problem(kept + (X - kept) * 10 ** rng.uniform(-3, 3, size=(n, T, 1)), z, selection)


def _low_rank(rng: Generator) -> Problem:
    n, T, d = _sizes(rng)
    rank = max(1, d // 2)
    X = rng.normal(size=(n, T, rank)) @ rng.normal(size=(rank, d))
    z = rng.normal(size=(n, d))
    return Problem(X, z, _attended(X, rng.normal(size=(d, d)), z))


def _two_tokens(rng: Generator) -> Problem:
    return planted(rng, int(rng.integers(1, 30)), 2, int(rng.integers(2, 11)))


def _tall(rng: Generator) -> Problem:
    return planted(rng, int(rng.integers(10, 40)), int(rng.integers(2, 9)), int(rng.integers(2, 5)))


def _anisotropic(rng: Generator) -> Problem:
    n, T, d = _sizes(rng)
    X, z = rng.normal(size=(n, T, d)) * np.logspace(0, -2, d), rng.normal(size=(n, d))
    return Problem(X, z, _attended(X, rng.normal(size=(d, d)), z))


def _sparse(rng: Generator) -> Problem:
    n, T, d = _sizes(rng)
    X = rng.normal(size=(n, T, d)) * (rng.random((n, T, d)) < 0.4)
    z = rng.normal(size=(n, d)) * (rng.random((n, d)) < 0.6)
    z[:, 0] += 0.1 * ~z.any(axis=1)
    return Problem(X, z, _attended(X, rng.normal(size=(d, d)), z))


FAMILIES: dict[str, Callable[[Generator], Problem]] = {
    "any selection": _any_selection,
    "planted": _planted,
    "duplicated": _duplicated,
    "scaled": _scaled,
    "narrow": _narrow,
    "uneven rows": _uneven_rows,
    "low rank": _low_rank,
    "two tokens": _two_tokens,
    "tall": _tall,
    "anisotropic": _anisotropic,
    "sparse": _sparse,
}


def solve_by_cvxpy(
    A: np.ndarray, b: np.ndarray, p: float, equality=None, C: float | None = None
) -> tuple[float, np.ndarray]:
    """(least |w|_p, w) of a hard margin, (least objective, w) of a soft one, by Clarabel."""
    equality = np.zeros(len(A), bool) if equality is None else equality
    w = cvxpy.Variable(A.shape[1])
    if C is None:
        objective, xi = cvxpy.pnorm(w, p, approx=False), 0.0
    else:
        xi = cvxpy.Variable(int((~equality).sum()), nonneg=True)
        objective = cvxpy.sum(cvxpy.power(cvxpy.abs(w), p, approx=False)) / p + C * cvxpy.sum(xi)
    constraints = [A[~equality] @ w >= b[~equality] - xi]
    if equality.any():
        constraints.append(A[equality] @ w == b[equality])
    value = cvxpy.Problem(cvxpy.Minimize(objective), constraints).solve("CLARABEL")
    return float(value), w.value
