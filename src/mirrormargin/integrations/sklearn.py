r"""Estimators of scikit-learn on the certified lp max-margin solver.

For two classes, y = +1 and -1, and with the feature s = ``intercept_scaling`` of the intercept
b = s w_0 appended to x,

    min (1/p) (||w||_p^p + |w_0|^p) + C sum_i max(0, 1 - y_i (<w, x_i> + b)),

so that p = 2 is the linear support vector machine of ``LinearSVC(loss="hinge")``, and near p = 1
most entries of w are close to zero. Of more classes each has a problem of its own, against the
rest. Every problem is solved to a proven gap between its objective and the dual's.
"""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mirrormargin.arguments import check_count, check_flag, check_number
from mirrormargin.errors import ProblemError
from mirrormargin.integrations import miss
from mirrormargin.svm import DecoderSVM, Status, solve_decoder_svm

try:
    from sklearn.base import BaseEstimator, ClassifierMixin
    from sklearn.exceptions import ConvergenceWarning
    from sklearn.feature_selection import SelectorMixin
    from sklearn.utils.multiclass import check_classification_targets
    from sklearn.utils.validation import check_is_fitted, validate_data
except ImportError as error:
    raise miss("scikit-learn 1.6", "sklearn") from error

__all__ = ["LpMarginClassifier", "LpMarginSelector"]

Array = NDArray[np.float64]


class LpMarginClassifier(ClassifierMixin, BaseEstimator):
    """A linear classifier whose weights have the least lp norm for their margin.

    Features should have similar scales: put a ``StandardScaler`` before it. A fit takes one core;
    ``n_jobs`` of a search uses more.

    Args:
        p: Exponent of the norm, ``1 < p``: weights are sparse near 1, and spread above 2.
        C: Price of falling short of the margin by one; None for a hard margin, which raises
            :class:`mirrormargin.NotSeparableError`, with a proof, where nothing separates.
        fit_intercept: Whether there is an intercept.
        intercept_scaling: The feature of the intercept, which is penalised like any weight: the
            larger it is, the less the intercept costs.
        tol: Largest relative gap between the objective and its proven lower bound.
        max_iter: Bound on the Newton steps of each problem. Where the gap is still above tol then,
            there is a ``ConvergenceWarning``, and the best weights are kept.

    Attributes:
        classes_: The labels, shape (num_classes,).
        coef_: Weights, a row for each class, or one row for two classes.
        intercept_: As many numbers.
        dual_gap_: The proven relative gap of each problem.
        n_iter_: Newton steps of the problem that took the most.
        n_features_in_: How many features there are.
        feature_names_in_: Their names, if X was a table with names.

    Example:
        >>> X, y = [[0.0, 1.0], [1.0, 3.0], [2.0, 0.0], [3.0, 2.0]], ["low", "low", "high", "high"]
        >>> model = LpMarginClassifier(p=1.1, C=100.0).fit(X, y)
        >>> model.predict([[0.5, 2.0], [2.5, 1.0]]).tolist()
        ['low', 'high']
    """

    def __init__(
        self,
        p: float = 1.5,
        C: float | None = 1.0,
        *,
        fit_intercept: bool = True,
        intercept_scaling: float = 1.0,
        tol: float = 1e-6,
        max_iter: int = 500,
    ) -> None:
        self.p = p
        self.C = C
        self.fit_intercept = fit_intercept
        self.intercept_scaling = intercept_scaling
        self.tol = tol
        self.max_iter = max_iter

    def fit(self, X: Any, y: Any) -> LpMarginClassifier:
        """Solve one problem for each class, or one for two classes.

        Args:
            X: Features, shape (num_samples, num_features).
            y: Labels of any kind, shape (num_samples,).

        Raises:
            ProblemError: (a ValueError) If an option is not allowed.
            NotSeparableError: With ``C=None``, if nothing separates.
        """
        scale = check_number("intercept_scaling", self.intercept_scaling, above=0.0)
        has_intercept = check_flag("fit_intercept", self.fit_intercept)
        X, y = validate_data(self, X, y, dtype=np.float64)
        check_classification_targets(y)
        self.classes_, indices = np.unique(y, return_inverse=True)
        if len(self.classes_) < 2:
            raise ProblemError("y has one class: give samples of at least two classes")
        rows = np.c_[X, np.full(len(X), scale)] if has_intercept else X
        positive = [1] if len(self.classes_) == 2 else range(len(self.classes_))
        solutions = [self._solve(rows, np.where(indices == one, 1, -1)) for one in positive]
        weights = np.array([solution.v for solution in solutions])
        self.coef_ = weights[:, : X.shape[1]]
        self.intercept_ = scale * weights[:, -1] if has_intercept else np.zeros(len(weights))
        self.dual_gap_ = np.array([solution.gap for solution in solutions])
        self.n_iter_ = max(solution.iterations for solution in solutions)
        if any(solution.status is not Status.OPTIMAL for solution in solutions):
            warnings.warn(
                f"no gap below tol={self.tol:g} was proven: it is {self.dual_gap_.max():.1e} after"
                f" {self.n_iter_} iterations. Scale the features, raise max_iter or tol, or take a"
                " smaller C",
                ConvergenceWarning,
                stacklevel=2,
            )
        return self

    def _solve(self, rows: Array, signs: NDArray[np.int_]) -> DecoderSVM:
        solution = solve_decoder_svm(
            rows,
            signs,
            self.p,
            self.tol,
            C=self.C,
            max_iter=self.max_iter,
            threads=1,  # more hardly help matrices of this size, and whole fits run side by side
            raise_on_failure=False,
        )
        if not np.isfinite(solution.v).all():
            solution.check()
        return solution

    def decision_function(self, X: Any) -> Array:
        """<w, x> + b, shape (n,) for two classes, else (n, num_classes)."""
        check_is_fitted(self)
        X = validate_data(self, X, dtype=np.float64, reset=False)
        scores = X @ self.coef_.T + self.intercept_
        return scores[:, 0] if len(self.classes_) == 2 else scores

    def predict(self, X: Any) -> NDArray[Any]:
        """The label of each sample, shape (n,)."""
        scores = self.decision_function(X)
        return self.classes_[(scores > 0).astype(int) if scores.ndim == 1 else scores.argmax(1)]


class LpMarginSelector(SelectorMixin, BaseEstimator):
    """Selects the features that an :class:`LpMarginClassifier` with p near 1 needs.

    The score of a feature is its largest weight |w| over the classes, as a share of the largest
    score of all.

    Args:
        p: Exponent of the norm; the nearer to 1, the fewer features.
        C: Price of falling short of the margin by one; the smaller, the fewer features.
        threshold: Features with a higher score are kept.
        max_features: Keep at most so many, those with the highest scores; None for no limit.
        fit_intercept, intercept_scaling, tol, max_iter: See :class:`LpMarginClassifier`.

    Attributes:
        scores_: Of each feature, from 0 to 1.
        estimator_: The classifier.
        n_iter_: Its Newton steps.
        n_features_in_: How many features there are.
        feature_names_in_: Their names, if X was a table with names.

    Example:
        >>> X, y = [[0.0, 1.0], [1.0, 3.0], [2.0, 0.0], [3.0, 2.0]], [0, 0, 1, 1]
        >>> LpMarginSelector(max_features=1).fit(X, y).get_support().tolist()
        [True, False]
    """

    def __init__(
        self,
        p: float = 1.1,
        C: float | None = 1.0,
        *,
        threshold: float = 1e-3,
        max_features: int | None = None,
        fit_intercept: bool = True,
        intercept_scaling: float = 1.0,
        tol: float = 1e-6,
        max_iter: int = 500,
    ) -> None:
        self.p = p
        self.C = C
        self.threshold = threshold
        self.max_features = max_features
        self.fit_intercept = fit_intercept
        self.intercept_scaling = intercept_scaling
        self.tol = tol
        self.max_iter = max_iter

    def fit(self, X: Any, y: Any) -> LpMarginSelector:
        """Fit the classifier, and score the features.

        Args:
            X: Features, shape (num_samples, num_features).
            y: Labels of any kind, shape (num_samples,).

        Raises:
            ProblemError: (a ValueError) If an option is not allowed.
        """
        check_number("threshold", self.threshold, least=0.0, below=1.0)
        if self.max_features is not None:
            check_count("max_features", self.max_features, hint="or None")
        X, y = validate_data(self, X, y, dtype=np.float64)
        shared = ("p", "C", "fit_intercept", "intercept_scaling", "tol", "max_iter")
        options = {name: getattr(self, name) for name in shared}
        self.estimator_ = LpMarginClassifier(**options).fit(X, y)
        sizes = np.abs(self.estimator_.coef_).max(axis=0)
        self.scores_ = sizes / (sizes.max() or 1.0)
        self.n_iter_ = self.estimator_.n_iter_
        return self

    def _get_support_mask(self) -> Any:
        check_is_fitted(self)
        mask = self.scores_ > self.threshold
        if self.max_features is not None:
            mask[np.argsort(-self.scores_, kind="stable")[self.max_features :]] = False
        return mask

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.target_tags.required = True
        return tags
