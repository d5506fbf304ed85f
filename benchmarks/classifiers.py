"""How good are lp margins as classifiers, and of how many weights? Next to scikit-learn's own.

Five folds of standardised data. In each, C is chosen among 0.01, 0.1, 1 and 10 by three folds
inside it. ``non-zero`` is the share of weights above 1e-3 of the largest of their class, and
``seconds`` the time of one fit with the chosen C; ``gap`` is the largest proven gap.

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
    "LpMarginClassifier, p = 1.05": LpMarginClassifier(1.05),
    "LpMarginClassifier, p = 1.1": LpMarginClassifier(1.1),
    "LpMarginClassifier, p = 1.5": LpMarginClassifier(1.5),
    "LpMarginClassifier, p = 2": LpMarginClassifier(2.0),
    "LpMarginClassifier, p = 3": LpMarginClassifier(3.0),
    "LinearSVC, l2, hinge": LinearSVC(loss="hinge", **LONG),
    "LinearSVC, l1": LinearSVC(penalty="l1", **LONG),
    "LogisticRegression, l1": OneVsRestClassifier(
        LogisticRegression(l1_ratio=1.0, solver="liblinear", **LONG)
    ),
}


def find_weights(model: Any) -> np.ndarray:
    if isinstance(model, OneVsRestClassifier):
        return np.concatenate([one.coef_ for one in model.estimators_])
    return model.coef_


def measure(model: Any, x: np.ndarray, y: np.ndarray, folds: int) -> dict[str, list[float]]:
    """Accuracy, share of non-zero weights, seconds and gap in each fold."""
    prefix = "estimator__" if isinstance(model, OneVsRestClassifier) else ""
    columns: dict[str, list[float]] = {"accuracy": [], "non-zero": [], "seconds": [], "gap": []}
    for train, test in StratifiedKFold(folds, shuffle=True, random_state=0).split(x, y):
        grid = {f"{type(model).__name__.lower()}__{prefix}C": PRICES}
        search = GridSearchCV(make_pipeline(StandardScaler(), model), grid, cv=3)
        best = clone(search.fit(x[train], y[train]).best_estimator_)
        start = time.perf_counter()
        best.fit(x[train], y[train])
        columns["seconds"].append(time.perf_counter() - start)
        columns["accuracy"].append(best.score(x[test], y[test]))
        sizes = np.abs(find_weights(best[-1]))
        is_needed = sizes > 1e-3 * sizes.max(axis=1, keepdims=True)
        columns["non-zero"].append(float(is_needed.mean()))
        columns["gap"].append(float(np.max(getattr(best[-1], "dual_gap_", np.nan))))
    return columns


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="two folds")
    parser.add_argument("--only", nargs="+", choices=DATA, default=list(DATA))
    arguments = parser.parse_args()
    warnings.filterwarnings("ignore")  # liblinear ends before it converges, now and then
    for name in arguments.only:
        x, y = DATA[name](return_X_y=True)
        print(f"{name}: {len(x)} samples, {x.shape[1]} features, {len(np.unique(y))} classes")
        print(f"  {'':<30} {'accuracy':>14} {'non-zero':>9} {'seconds':>9} {'gap':>8}")
        for label, model in MODELS.items():
            found = measure(model, x, y, 2 if arguments.quick else 5)
            accuracy = f"{np.mean(found['accuracy']):.1%} ± {np.std(found['accuracy']):.1%}"
            gap = "" if np.isnan(found["gap"]).any() else f"{max(found['gap']):.0e}"
            print(
                f"  {label:<30} {accuracy:>14} {np.mean(found['non-zero']):9.1%}"
                f" {np.median(found['seconds']):9.3f} {gap:>8}",
                flush=True,
            )


if __name__ == "__main__":
    main()
