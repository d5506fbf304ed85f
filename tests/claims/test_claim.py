"""A verdict follows from checks alone."""

import math
from dataclasses import replace

import pytest

from mirrormargin.claims.claim import Check, Verdict, decide


def make_check(kind: str, holds: bool, name: str = "D", value: float | str = 0.5) -> Check:
    return Check(name, kind, "at most 0.1", value, 0.4, 0.6, holds)


def test_all_checks_hold_is_reproduced():
    checks = [make_check("statement", True), make_check("number", True)]
    assert decide(checks) == (Verdict.REPRODUCED, "")


def test_a_missed_number_is_reproduced_differently_and_says_how():
    verdict, note = decide([make_check("statement", True), make_check("number", False)])
    assert verdict == "reproduced differently"
    assert note == "D: 0.5 [0.4, 0.6], expected at most 0.1"


def test_a_missed_statement_is_not_reproduced_whatever_the_numbers_say():
    checks = [make_check("number", True), make_check("statement", False, "selection", "[1, 0]")]
    verdict, note = decide(checks)
    assert verdict == "not reproduced"
    assert note == "selection: [1, 0], expected at most 0.1"


def test_a_missed_statement_that_more_seeds_could_mend_is_undecided():
    lost = make_check("statement", False)
    tried = replace(lost, is_open=True)
    assert decide([tried, make_check("number", False)])[0] == "undecided"
    assert decide([tried, lost])[0] == "not reproduced"


def test_the_note_of_a_failed_claim_leaves_out_missed_numbers():
    _, note = decide([make_check("number", False, "N"), make_check("statement", False, "S")])
    assert "S" in note
    assert "N" not in note


def test_no_checks_are_no_verdict():
    with pytest.raises(ValueError, match="at least one check"):
        decide([])


def test_what_is_not_finite_is_text_in_json():
    document = make_check("statement", False, value=math.nan).to_document()
    assert document["value"] == "nan"
    assert document["low"] == 0.4
