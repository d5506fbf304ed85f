"""How good are lp margins as classifiers, and of how many weights? Next to scikit-learn's own.

Five folds of standardised data. In each, C is chosen among 0.01, 0.1, 1 and 10 by three folds
inside it. ``non-zero`` is the share of weights above 1e-3 of the largest of their class, ``time``
the CPU time of one fit with the chosen C as a multiple of the first model's, which is fitted in
turn with the others, and ``gap`` the largest proven gap.

    python benchmarks/classifiers.py [--quick] [--only breast-cancer wine digits]
"""

from __future__ import annotations

import argparse
import time
import warnings
from typing import Any

import numpy as np
from sklearn.base import clone
from sklearn.datasets import load_breast_cancer, load_digits, load_wine
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import GridSearchCV, StratifiedKFold
from sklearn.multiclass import OneVsRestClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.svm import LinearSVC

from mirrormargin.integrations.sklearn import LpMarginClassifier

DATA = {"breast-cancer": load_breast_cancer, "wine": load_wine, "digits": load_digits}
PRICES = [0.01, 0.1, 1.0, 10.0]
LONG = {"max_iter": 20_000, "random_state": 0}
MODELS: dict[str, Any] = {
    "LinearSVC, l2, hinge": LinearSVC(loss="hinge", **LONG),
    "LinearSVC, l1": LinearSVC(penalty="l1", **LONG),
    "LogisticRegression, l1": OneVsRestClassifier(
        LogisticRegression(l1_ratio=1.0, solver="liblinear", **LONG)
    ),
    "LpMarginClassifier, p = 1.05": LpMarginClassifier(1.05),
    "LpMarginClassifier, p = 1.1": LpMarginClassifier(1.1),
    "LpMarginClassifier, p = 1.5": LpMarginClassifier(1.5),
    "LpMarginClassifier, p = 2": LpMarginClassifier(2.0),
    "LpMarginClassifier, p = 3": LpMarginClassifier(3.0),
}
FIRST = next(iter(MODELS))
ROUNDS = 3  # of fits in turn, of which the fastest counts


def find_weights(model: Any) -> np.ndarray:
    if isinstance(model, OneVsRestClassifier):
        return np.concatenate([one.coef_ for one in model.estimators_])
    return model.coef_


def choose_price(model: Any, x: np.ndarray, y: np.ndarray) -> Any:
    """A pipeline with the best C."""
    prefix = "estimator__" if isinstance(model, OneVsRestClassifier) else ""
    grid = {f"{type(model).__name__.lower()}__{prefix}C": PRICES}
    search = GridSearchCV(make_pipeline(StandardScaler(), model), grid, cv=3)
    return clone(search.fit(x, y).best_estimator_)


def measure(x: np.ndarray, y: np.ndarray, folds: int) -> dict[str, list[dict[str, float]]]:
    """A row for each model and fold."""
    rows: dict[str, list[dict[str, float]]] = {label: [] for label in MODELS}
    for train, test in StratifiedKFold(folds, shuffle=True, random_state=0).split(x, y):
        chosen = {label: choose_price(model, x[train], y[train]) for label, model in MODELS.items()}
        seconds = dict.fromkeys(MODELS, np.inf)
        for _ in range(ROUNDS):
            for label, model in chosen.items():
                start = time.process_time()
                model.fit(x[train], y[train])
                seconds[label] = min(seconds[label], time.process_time() - start)
        for label, model in chosen.items():
            sizes = np.abs(find_weights(model[-1]))
            is_needed = sizes > 1e-3 * sizes.max(axis=1, keepdims=True)
            rows[label].append(
                {
                    "accuracy": model.score(x[test], y[test]),
                    "non-zero": float(is_needed.mean()),
                    "time": seconds[label] / seconds[FIRST],
                    "gap": float(np.max(getattr(model[-1], "dual_gap_", np.nan))),
                }
            )
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="two folds")
    parser.add_argument("--only", nargs="+", choices=DATA, default=list(DATA))
    arguments = parser.parse_args()
    warnings.filterwarnings("ignore")  # liblinear ends before it converges, now and then
    for name in arguments.only:
        x, y = DATA[name](return_X_y=True)
        print(f"{name}: {len(x)} samples, {x.shape[1]} features, {len(np.unique(y))} classes")
        print(f"  {'':<30} {'accuracy':>14} {'non-zero':>9} {'time':>7} {'gap':>8}")
        for label, rows in measure(x, y, 2 if arguments.quick else 5).items():
            found = {key: np.array([row[key] for row in rows]) for key in rows[0]}
            accuracy = f"{found['accuracy'].mean():.1%} ± {found['accuracy'].std():.1%}"
            gap = "" if np.isnan(found["gap"]).any() else f"{found['gap'].max():.0e}"
            print(
                f"  {label:<30} {accuracy:>14} {found['non-zero'].mean():9.1%}"
                f" {np.median(found['time']):7.1f} {gap:>8}",
                flush=True,
            )


if __name__ == "__main__":
    main()
