"""Agreement of answers with labels, against scikit-learn and closed forms."""

import math

import numpy as np
import pytest
import torch

from mirrormargin.data import Split
from mirrormargin.errors import TrainingError
from mirrormargin.training.evaluation import evaluate
from mirrormargin.training.measures import compute_f1, compute_matthews
from mirrormargin.training.tasks import CLASSIFICATION, CORRELATION, PARAPHRASE, read_task


def draw(num_classes, seed):
    random = np.random.default_rng(seed)
    labels = random.integers(0, num_classes, 200)
    is_known = random.random(200) < 0.6
    return labels, np.where(is_known, labels, random.integers(0, num_classes, 200))


def count(labels, answers, num_classes):
    confusion = np.zeros((num_classes, num_classes), int)
    np.add.at(confusion, (labels, answers), 1)
    return confusion.tolist()


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("num_classes", [2, 3, 5])
def test_matthews_is_that_of_scikit_learn(num_classes, seed):
    metrics = pytest.importorskip("sklearn.metrics")
    labels, answers = draw(num_classes, seed)
    expected = 100 * metrics.matthews_corrcoef(labels, answers)
    assert compute_matthews(count(labels, answers, num_classes)) == pytest.approx(expected)


@pytest.mark.parametrize("seed", range(3))
def test_f1_is_that_of_scikit_learn(seed):
    metrics = pytest.importorskip("sklearn.metrics")
    labels, answers = draw(2, seed)
    expected = 100 * metrics.f1_score(labels, answers)
    assert compute_f1(count(labels, answers, 2)) == pytest.approx(expected)


def test_matthews_of_two_classes_is_the_correlation_of_numbers():
    labels, answers = draw(2, 7)
    expected = 100 * np.corrcoef(labels, answers)[0, 1]
    assert compute_matthews(count(labels, answers, 2)) == pytest.approx(expected)


def test_perfect_opposite_and_constant_answers_have_known_measures():
    assert compute_matthews([[4, 0], [0, 6]]) == 100.0
    assert compute_matthews([[0, 4], [6, 0]]) == -100.0
    assert compute_matthews([[0, 4], [0, 6]]) == 0.0
    assert compute_f1([[4, 0], [0, 6]]) == 100.0
    assert compute_f1([[0, 4], [0, 6]]) == pytest.approx(75.0)
    assert compute_f1([[10, 0], [0, 0]]) == 0.0


def test_f1_of_three_classes_is_refused():
    with pytest.raises(TrainingError, match="two classes, got 3"):
        compute_f1([[1, 0, 0]] * 3)


@pytest.mark.parametrize("has_one_logit", [False, True])
def test_an_evaluation_knows_the_answers_by_class(has_one_logit):
    labels, answers = map(torch.from_numpy, draw(2, 3))
    logits = (2.0 * answers - 1)[:, None] * (torch.ones(1) if has_one_logit else torch.eye(2)[1])
    split = Split(logits, labels)

    class Model(torch.nn.Linear):
        def forward(self, input):
            return input[:, 0] if has_one_logit else input

    found = evaluate(Model(1, 1), split)
    expected = count(labels, answers, 2)
    assert found.confusion == tuple(map(tuple, expected))
    assert found.matthews == compute_matthews(expected)
    loss, accuracy = found
    assert math.isfinite(loss)
    assert accuracy == found.accuracy == 100 * float((labels == answers).double().mean())


def test_tasks_of_glue_are_judged_as_others_do():
    def find(name):
        return read_task({"model": {"kind": "EncoderModel"}, "data": {"name": name}})

    assert find("cola") is CORRELATION
    assert find("mrpc") is PARAPHRASE
    assert find("rte") is find("sst2-sentences") is CLASSIFICATION
    measured = {"accuracy": 70.0, "f1": 82.0, "matthews": 12.5}
    assert CORRELATION.describe(measured) == "matthews 12.50, accuracy 70.00%"
    assert PARAPHRASE.describe(measured) == "accuracy 70.00%, f1 82.00"
    assert CLASSIFICATION.describe(measured) == "70.00%"
