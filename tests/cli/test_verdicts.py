"""The verdicts of claims on a terminal."""

import io
import re

import pytest
from evidence_arrays import make_claims
from rich.console import Console

from mirrormargin.cli.verdicts import print_verdicts

DOCUMENT = make_claims()


class Stream(io.StringIO):
    def __init__(self, encoding):
        super().__init__()
        self._encoding = encoding

    @property
    def encoding(self):
        return self._encoding


def show(document, width, color=False, encoding="utf-8"):
    """What is printed on a terminal of so many columns."""
    stream = Stream(encoding)
    system = "standard" if color else None
    print_verdicts(
        document,
        Console(file=stream, width=width, force_terminal=color, color_system=system, markup=False),
    )
    return stream.getvalue()


@pytest.mark.parametrize("width", [40, 60, 80, 100, 160])
@pytest.mark.parametrize("color", [False, True])
def test_no_line_is_wider_than_the_terminal(width, color):
    text = show(DOCUMENT, width, color)
    plain = re.sub(r"\033\[[\d;]+m", "", text)
    assert max(map(len, plain.splitlines())) <= width
    assert ("\033[32m" in text) == color
    for claim in DOCUMENT["claims"]:
        assert claim["id"].split()[0] in plain


def test_every_verdict_has_its_symbol():
    text = show(DOCUMENT, 140)
    for row in ("✓ reproduced", "≈ reproduced differently", "✗ not reproduced", "○ not run"):
        assert row in text
    counts = "3 reproduced, 1 reproduced differently, 1 not reproduced, 1 not run"
    assert f"6 claims: {counts}" in text


@pytest.mark.parametrize("width", [40, 80, 120])
def test_without_unicode_all_is_ascii_and_fits(width):
    document = make_claims()
    document["claims"][0]["title"] = "‖W‖ₚ ≥ 10⁻³ → ∞ 漢"
    text = show(document, width, encoding="ascii")
    assert text.isascii()
    assert "|W|_p >=" in " ".join(text.split())
    assert max(map(len, text.splitlines())) <= width


def test_a_recalled_claim_says_so():
    words = " ".join(show(DOCUMENT, 200).split())
    assert words.count("recalled") == 2
    assert "rate class, recalled: the statement is known from memory" in words
    assert "O(1 / log k)" in words


def test_why_a_claim_is_not_reproduced_is_said_at_every_width():
    document = {
        "claims": [
            {"id": "x", "paper": "A", "title": "t", "verdict": "not run", "note": "needs data"}
        ]
    }
    assert "    because    needs data\n" in show(document, 80)
    assert "because needs data" in show(document, 140)


def test_an_unknown_verdict_and_no_claims_are_shown_as_they_are():
    document = {"claims": [{"id": "x", "paper": "A", "title": "t", "verdict": "odd"}]}
    assert "? odd" in show(document, 80, True)
    assert show({"claims": []}, 80, True).strip() == "no claims"


def test_control_characters_of_a_document_are_not_sent():
    document = {
        "claims": [
            {"id": "x\x1b[31m", "paper": "A\x07", "title": "\x1b]0;t\x07", "verdict": "\x9b"}
        ]
    }
    for width in (80, 140):
        text = show(document, width)
        assert all(letter.isprintable() or letter == "\n" for letter in text)
