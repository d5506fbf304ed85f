"""The trial of the optimizers: a sample holds, and wrong steps are seen."""

from __future__ import annotations

import pytest

import mirrormargin as mm
from mirrormargin.optim import plain
from mirrormargin.optim.reference import ReferenceMirrorDescent
from tools.soak.__main__ import make_trial
from tools.soak.steps import STEPS


def test_a_sample_holds():
    counts = make_trial(STEPS, 1, list(range(25)))
    assert counts["wrong"] == 0
    assert counts["held"] > 15


def _count_wrong(monkeypatch: pytest.MonkeyPatch, target: object, name: str, other: object) -> int:
    monkeypatch.setattr(target, name, other)
    return make_trial(STEPS, 1, list(range(25)))["wrong"]


def test_a_step_that_is_a_little_too_long_is_seen(monkeypatch):
    move = plain.move

    def too_long(u, x, lr, decay):
        lr = lr * (1 + 1e-4) if isinstance(lr, float) else lr
        return move(u, x, lr, decay)

    assert _count_wrong(monkeypatch, plain, "move", too_long) > 0


def test_weights_that_are_not_the_image_of_their_dual_are_seen(monkeypatch):
    to_primal = plain.to_primal

    def rounded(dual, potential):
        return to_primal(dual, potential) * (1 + 1e-5)

    assert _count_wrong(monkeypatch, plain, "to_primal", rounded) > 0


def test_a_refused_step_that_changes_weights_is_seen(monkeypatch):
    def admit(self, batches):
        return True

    monkeypatch.setattr(mm.MirrorAdam, "_is_admitted", admit)
    wrong = 0
    for start in range(0, 400, 25):
        wrong += make_trial(STEPS, 1, list(range(start, start + 25)))["wrong"]
        if wrong:
            break
    assert wrong > 0


def test_a_wrong_polyak_step_is_seen(monkeypatch):
    polyak = ReferenceMirrorDescent.polyak

    def longer(self, grads, target):
        return polyak(self, grads, 1.01 * target)

    assert _count_wrong(monkeypatch, ReferenceMirrorDescent, "polyak", longer) > 0
