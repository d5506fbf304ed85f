"""Texts with shaded words: what is refused, and what becomes of them in files."""

import csv
import io
import json

import pytest
from evidence_arrays import make_claims

from mirrormargin.errors import ReportError
from mirrormargin.figures import Figure
from mirrormargin.figures.highlights import HighlightedText, HighlightedTexts
from mirrormargin.report.contents import Contents
from mirrormargin.report.markdown import format_markdown
from mirrormargin.report.page import format_page
from mirrormargin.report.tables import describe_figure, format_csv

SHORT = HighlightedText(("[CLS]", "so", "bad", "##ly|", "[SEP]"), (1.0, 0.0, 0.5, 0.25, 0.9), 2, 1)
OTHER = HighlightedText(("[CLS]", "so", "bad", "##ly|", "[SEP]"), (0.0, 1.0, 0.5, 0.25, 0.9), 2)
TEXTS = HighlightedTexts("Attention", ("p = 1.1", "p = 2"), ((SHORT, OTHER),))
FIGURE = Figure("texts", "Where it looks", "", (), texts=TEXTS)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: HighlightedText(("a", "b"), (1.0,)), "2 tokens and 1 weights"),
        (lambda: HighlightedText(("a",), (1.5,)), "not all from 0 to 1"),
        (lambda: HighlightedText(("a",), (float("nan"),)), "not all from 0 to 1"),
        (lambda: HighlightedText(("a",), (1.0,), marked=1), "token 1 of 'a' is to be marked"),
        (lambda: HighlightedTexts("", ("p = 2",), ((SHORT, OTHER),)), "has not 1 columns"),
    ],
)
def test_texts_that_do_not_fit_together_are_refused(make, message: str) -> None:
    with pytest.raises(ReportError, match=message):
        make()


def test_the_top_word_is_no_special_token() -> None:
    assert (SHORT.find_top(), OTHER.find_top()) == ("bad", "so")
    assert HighlightedText(("[CLS]", "[SEP]"), (1.0, 0.0)).find_top() == ""


def test_pieces_of_words_are_put_together() -> None:
    assert SHORT.join_words() == "so badly|"


def test_markdown_has_a_table_of_top_words_after_the_verdicts() -> None:
    claims = tuple(make_claims()["claims"][:1])
    text = format_markdown(Contents(claims=claims, figures=(FIGURE,)), "T", None)
    assert text.index("## Paper A") < text.index("## Where it looks")
    assert "| text | p = 1.1 | p = 2 |\n|---|---|---|\n| so badly\\| | bad | so |" in text


def test_csv_and_json_have_every_token() -> None:
    rows = list(csv.DictReader(io.StringIO(format_csv(FIGURE))))
    assert len(rows) == 10
    assert (rows[2]["panel"], rows[2]["series"]) == ("Attention", "p = 1.1 / text 1")
    assert (rows[2]["x"], rows[2]["y"]) == ("bad", "0.5")
    texts = json.loads(json.dumps(describe_figure(FIGURE), allow_nan=False))["texts"]
    assert texts["columns"] == ["p = 1.1", "p = 2"]
    assert texts["rows"][0][0] == {
        "tokens": list(SHORT.tokens),
        "weights": list(SHORT.weights),
        "marked": 2,
        "right": 1,
    }
    assert texts["rows"][0][1]["right"] is None


def test_only_a_figure_with_texts_has_room_for_them_on_the_page() -> None:
    bare = Figure("bare", "No texts", "", ())
    assert format_page(Contents(figures=(FIGURE, bare)), None, None).count('class="texts"') == 1
