"""The trial of the max-margin solvers: a sample holds, and wrong answers are seen."""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction
from typing import Any

import numpy as np
import pytest

from mirrormargin.svm.interior.program import Status
from tools.soak.__main__ import make_trial
from tools.soak.svm import SVM, check_solution, solve
from tools.soak.svm_problems import FAMILIES, Case


def _case(family: str, seed: int, **options: Any) -> Case:
    tokens, queries, chosen = FAMILIES[family](np.random.default_rng(seed), 4, 4, 3)
    return Case(family, tokens, queries, chosen, options.pop("p", 1.7), 1e-8, **options)


def test_a_sample_holds():
    counts = make_trial(SVM, 1, list(range(50)))
    assert counts["wrong"] == 0
    assert counts["held"] > 30


def test_a_solution_that_is_not_optimal_is_seen():
    case = _case("planted", 0)
    solution = solve(case)
    assert check_solution(case, solution) is None
    longer = replace(solution, w=solution.w * (1 + 1e-6))
    assert "own check" in str(check_solution(case, longer))
    turned = replace(solution, w=solution.w + 1e-5 * np.abs(solution.w).max())
    assert check_solution(case, turned) is not None
    assert "lead of W" in str(check_solution(case, replace(solution, w=-solution.w)))


def test_a_false_certificate_is_seen():
    case = _case("planted", 0)
    solution = solve(case)
    doubled = np.array(solution.duals)
    doubled[np.unravel_index(doubled.argmax(), doubled.shape)] *= 2
    assert "gap" in str(check_solution(case, replace(solution, duals=doubled)))


@pytest.mark.parametrize(("family", "seed"), [("contradiction", 3), ("grid", 8)])
def test_a_false_proof_is_seen(family, seed):
    case = _case(family, seed)
    solution = solve(case)
    assert solution.status == "infeasible"
    assert check_solution(case, solution) is None
    certificate = solution.certificate
    assert certificate.proof == "rational numbers"
    index = next(iter(certificate.multipliers))
    other = {**certificate.multipliers, index: Fraction(1, 7)}
    wrong = replace(solution, certificate=replace(certificate, multipliers=other))
    if len(other) > 1:
        assert check_solution(case, wrong) == "the rows do not cancel"
    negative = {**certificate.multipliers, index: Fraction(-1)}
    wrong = replace(solution, certificate=replace(certificate, multipliers=negative))
    assert "negative" in str(check_solution(case, wrong))


def test_what_separates_and_is_called_infeasible_is_seen():
    case = _case("narrow", 1)
    solution = solve(case)
    infeasible = solve(_case("contradiction", 3))
    claimed = replace(solution, status=Status.INFEASIBLE, certificate=infeasible.certificate)
    assert check_solution(case, claimed) is not None


def test_a_bound_that_is_too_low_is_seen():
    from mirrormargin.svm.solution import FarkasCertificate

    case = _case("planted", 0)
    solution = solve(case)
    duals = solution.duals / solution.duals.sum()
    claimed = replace(
        solution, status=Status.MARGIN_BELOW, certificate=FarkasCertificate(duals, 1e-9)
    )
    assert "the bound is" in str(check_solution(case, claimed))


def test_what_the_solver_measured_exactly_passes_its_own_check():
    """Rounding hides about as much of its gap as integers are asked from."""
    assert make_trial(SVM, 0, [2227])["wrong"] == 0
