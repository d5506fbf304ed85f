"""The estimators keep scikit-learn's contract, solve the problem they name, and prove it."""

import pickle

import numpy as np
import pytest

import mirrormargin as mm

WHY = "scikit-learn is not installed: pip install '.[sklearn]'"
sklearn = pytest.importorskip("sklearn", "1.6", reason=WHY)

from sklearn.datasets import load_breast_cancer, load_digits, load_wine  # noqa: E402
from sklearn.exceptions import ConvergenceWarning  # noqa: E402
from sklearn.feature_selection import SelectFromModel  # noqa: E402
from sklearn.model_selection import GridSearchCV, cross_val_score  # noqa: E402
from sklearn.pipeline import make_pipeline  # noqa: E402
from sklearn.preprocessing import StandardScaler  # noqa: E402
from sklearn.svm import LinearSVC  # noqa: E402
from sklearn.utils.estimator_checks import parametrize_with_checks  # noqa: E402

from mirrormargin.integrations.sklearn import LpMarginClassifier, LpMarginSelector  # noqa: E402

CHECKED = [LpMarginClassifier(), LpMarginClassifier(p=1.1), LpMarginSelector(max_features=2)]


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.SkipTestWarning")
@parametrize_with_checks(CHECKED)
def test_the_contract_of_scikit_learn_holds(estimator, check):
    check(estimator)


def load(loader):
    x, y = loader(return_X_y=True)
    return StandardScaler().fit_transform(x), y


def make_mixed_classes(num_classes=2, n=80, d=6):
    rng = np.random.default_rng(0)
    y = rng.integers(num_classes, size=n)
    return rng.normal(size=(n, d)) + np.eye(max(d, num_classes))[y][:, :d], y


def find_objective(model, x, y):
    """By the formula, from the fitted weights of two classes."""
    signs = np.where(y == model.classes_[1], 1, -1)
    weights = np.r_[model.coef_[0], model.intercept_ / model.intercept_scaling]
    shortfalls = np.maximum(0, 1 - signs * (x @ model.coef_[0] + model.intercept_))
    return (np.abs(weights) ** model.p).sum() / model.p + model.C * shortfalls.sum()


@pytest.mark.parametrize("scale", [1.0, 10.0])
@pytest.mark.parametrize("C", [0.1, 2.0])
def test_p2_is_the_linear_support_vector_machine(C, scale):
    x, y = make_mixed_classes()
    ours = LpMarginClassifier(p=2.0, C=C, intercept_scaling=scale, tol=1e-8).fit(x, y)
    other = LinearSVC(
        loss="hinge", C=C, intercept_scaling=scale, tol=1e-10, max_iter=1_000_000, random_state=0
    ).fit(x, y)
    np.testing.assert_allclose(ours.coef_, other.coef_, atol=1e-3)
    np.testing.assert_allclose(ours.intercept_, other.intercept_, atol=1e-3)


@pytest.mark.parametrize("has_intercept", [True, False])
@pytest.mark.parametrize("p", [1.2, 1.5, 3.0])
def test_no_other_weights_have_a_lower_objective_than_is_proven(p, has_intercept):
    cvxpy = pytest.importorskip("cvxpy")
    x, y = make_mixed_classes()
    model = LpMarginClassifier(p, C=0.5, fit_intercept=has_intercept, intercept_scaling=2.0)
    found = find_objective(model.fit(x, y), x, y)
    rows = np.c_[x, np.full(len(x), 2.0)] if has_intercept else x
    w, signs = cvxpy.Variable(rows.shape[1]), np.where(y == 1, 1, -1)
    shortfalls = cvxpy.pos(1 - cvxpy.multiply(signs, rows @ w))
    least = cvxpy.sum(cvxpy.power(cvxpy.abs(w), p)) / p + 0.5 * cvxpy.sum(shortfalls)
    expected = cvxpy.Problem(cvxpy.Minimize(least)).solve(solver="CLARABEL")
    assert model.dual_gap_.shape == (1,)
    assert 0 <= model.dual_gap_[0] <= model.tol
    assert found == pytest.approx(expected, rel=2e-6)
    assert has_intercept == model.intercept_.any()


def test_each_class_has_a_problem_of_its_own_against_the_rest():
    x, y = make_mixed_classes(num_classes=4)
    names = np.array(["north", "east", "south", "west"])[y]
    model = LpMarginClassifier().fit(x, names)
    assert model.coef_.shape == (4, 6)
    assert model.intercept_.shape == model.dual_gap_.shape == (4,)
    for i, name in enumerate(model.classes_):
        alone = LpMarginClassifier().fit(x, names == name)
        np.testing.assert_allclose(model.coef_[i], alone.coef_[0], rtol=1e-6)
        np.testing.assert_allclose(model.decision_function(x)[:, i], alone.decision_function(x))
    best = model.classes_[model.decision_function(x).argmax(axis=1)]
    assert (model.predict(x) == best).all()


def test_a_hard_margin_is_the_largest_or_is_refused_with_a_proof():
    x, y = make_mixed_classes(n=12, d=20)
    model = LpMarginClassifier(p=1.5, C=None, fit_intercept=False).fit(x, y)
    expected = mm.solve_decoder_svm(x, np.where(y == 1, 1, -1), 1.5, tol=model.tol)
    np.testing.assert_allclose(model.coef_[0], expected.v, rtol=1e-6)
    assert (model.predict(x) == y).all()
    with pytest.raises(mm.NotSeparableError):
        LpMarginClassifier(C=None).fit(*make_mixed_classes())


def test_a_gap_that_is_left_is_told_of():
    x, y = make_mixed_classes()
    with pytest.warns(ConvergenceWarning, match="below tol=1e-06 was proven: .* after . iter"):
        model = LpMarginClassifier(max_iter=3).fit(x, y)
    assert model.dual_gap_[0] > model.tol
    assert np.isfinite(model.coef_).all()


@pytest.mark.parametrize("p", [1.05, 1.1, 1.5, 2.0, 3.0])
@pytest.mark.parametrize("loader", [load_wine, load_breast_cancer, load_digits])
def test_real_data_are_solved_at_every_price(loader, p):
    """Warnings, such as that of a gap, are errors."""
    x, y = load(loader)
    for C in (0.01, 1.0, 100.0):
        model = LpMarginClassifier(p, C).fit(x, y)
        assert model.dual_gap_.max() <= model.tol
        assert C < 1 or model.score(x, y) > 0.95


def test_near_one_few_weights_are_needed():
    x, y = load(load_breast_cancer)
    counts = []
    for p in (1.05, 1.5):
        sizes = np.abs(LpMarginClassifier(p, C=0.1).fit(x, y).coef_)
        counts.append((sizes > 1e-3 * sizes.max()).sum())
    assert counts[0] < 0.75 * counts[1]


def test_pipelines_searches_and_pickles_work():
    x, y = load_wine(return_X_y=True)
    pipeline = make_pipeline(StandardScaler(), LpMarginSelector(), LpMarginClassifier())
    grid = {"lpmarginclassifier__p": [1.1, 2.0], "lpmarginselector__max_features": [3, None]}
    search = GridSearchCV(pipeline, grid, cv=3).fit(x, y)
    assert search.best_score_ > 0.93
    again = pickle.loads(pickle.dumps(search))
    assert (again.predict(x) == search.predict(x)).all()
    assert cross_val_score(search.best_estimator_, x, y, cv=3).mean() > 0.93
    chosen = SelectFromModel(LpMarginClassifier(p=1.1), max_features=2).fit(x, y)
    assert chosen.get_support().sum() == 2


def test_a_table_keeps_its_names():
    pandas = pytest.importorskip("pandas", reason="make test-integrations installs pandas")
    x, y = make_mixed_classes()
    table = pandas.DataFrame(x, columns=[*"abcdef"])
    assert LpMarginClassifier().fit(table, y).feature_names_in_.tolist() == [*"abcdef"]
    selector = LpMarginSelector(max_features=2).set_output(transform="pandas").fit(table, y)
    assert selector.transform(table).columns.tolist() == selector.get_feature_names_out().tolist()
    with pytest.raises(ValueError, match="feature names"):
        selector.transform(table.rename(columns={"a": "z"}))


def make_planted(n=150, d=40):
    """Three of the features say the label."""
    rng = np.random.default_rng(1)
    x = rng.normal(size=(n, d))
    return x, np.where(x[:, 3] - x[:, 17] + x[:, 30] > 0, "yes", "no")


def test_the_selector_finds_the_features_that_matter():
    x, y = make_planted()
    selector = LpMarginSelector(max_features=3).fit(x, y)
    assert selector.get_support(indices=True).tolist() == [3, 17, 30]
    assert selector.transform(x).shape == (150, 3)
    assert selector.scores_.max() == 1
    sizes = np.abs(selector.estimator_.coef_[0])
    np.testing.assert_allclose(selector.scores_, sizes / sizes.max())


def test_the_threshold_is_a_share_of_the_largest_weight():
    x, y = make_planted()
    for threshold in (0.0, 1e-3, 0.5):
        selector = LpMarginSelector(p=1.3, threshold=threshold).fit(x, y)
        expected = (
            np.abs(selector.estimator_.coef_[0])
            > threshold * np.abs(selector.estimator_.coef_[0]).max()
        )
        assert (selector.get_support() == expected).all()


def test_of_several_classes_the_one_that_needs_a_feature_most_counts():
    x, y = make_mixed_classes(num_classes=3)
    selector = LpMarginSelector().fit(x, y)
    largest = [max(abs(weight) for weight in column) for column in selector.estimator_.coef_.T]
    np.testing.assert_allclose(selector.scores_, np.array(largest) / max(largest))


def test_of_equal_features_the_first_are_kept():
    selector = LpMarginSelector(max_features=2).fit(*make_planted())
    selector.scores_ = np.ones(40)
    assert selector.get_support(indices=True).tolist() == [0, 1]


@pytest.mark.parametrize(
    ("estimator", "message"),
    [
        (LpMarginClassifier(p=1.0), "p is 1.0: give a number above 1"),
        (LpMarginClassifier(C=-1.0), "C is -1.0"),
        (LpMarginClassifier(tol=0.0), "tol is 0.0"),
        (LpMarginClassifier(max_iter=0), "max_iter is 0"),
        (LpMarginClassifier(intercept_scaling=0.0), "intercept_scaling is 0.0"),
        (LpMarginClassifier(fit_intercept="no"), "fit_intercept is 'no'"),
        (LpMarginSelector(threshold=1.0), "threshold is 1.0"),
        (LpMarginSelector(max_features=0), "max_features is 0: give a positive integer, or None"),
    ],
)
def test_a_wrong_option_is_refused_when_fitting(estimator, message):
    with pytest.raises(mm.ProblemError, match=message):
        estimator.fit(*make_mixed_classes())
