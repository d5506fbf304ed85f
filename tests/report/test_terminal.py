import re

import pytest
from evidence_arrays import make_claims

from mirrormargin.report import format_verdicts

DOCUMENT = make_claims()


@pytest.mark.parametrize("width", [40, 60, 80, 100, 160])
@pytest.mark.parametrize("color", [False, True])
def test_no_line_is_wider_than_the_terminal(width: int, color: bool) -> None:
    text = format_verdicts(DOCUMENT, width, color, unicode=True)
    plain = re.sub(r"\033\[\d+m", "", text)
    assert max(map(len, plain.splitlines())) <= width
    assert ("\033[" in text) == color
    for claim in DOCUMENT["claims"]:
        assert claim["id"].split()[0] in plain


def test_every_verdict_has_its_symbol() -> None:
    text = format_verdicts(DOCUMENT, 140, False, unicode=True)
    for row in ("✓ reproduced", "≈ reproduced differently", "✗ not reproduced", "○ not run"):
        assert row in text
    counts = "3 reproduced, 1 reproduced differently, 1 not reproduced, 1 not run"
    assert f"6 claims: {counts}" in text


@pytest.mark.parametrize("width", [40, 80, 120])
def test_without_unicode_all_is_ascii_and_fits(width: int) -> None:
    document = make_claims()
    document["claims"][0]["title"] = "‖W‖ₚ ≥ 10⁻³ → ∞ 漢"
    text = format_verdicts(document, width, False, unicode=False)
    assert text.isascii()
    assert "|W|_p >=" in " ".join(text.split())
    assert max(map(len, text.splitlines())) <= width


def test_a_recalled_claim_says_so() -> None:
    words = " ".join(format_verdicts(DOCUMENT, 200, False, unicode=True).split())
    assert words.count("recalled") == 2
    assert "rate class, recalled: the statement is known from memory" in words
    assert "O(1 / log k)" in words


def test_an_unknown_verdict_and_no_claims_are_shown_as_they_are() -> None:
    document = {"claims": [{"id": "x", "paper": "A", "title": "t", "verdict": "odd"}]}
    assert "? odd" in format_verdicts(document, 80, True, unicode=True)
    assert format_verdicts({"claims": []}, 80, True).strip() == "no claims"
