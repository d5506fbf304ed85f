"""Verdicts as Markdown: every claim a row, and nothing in it breaks the table."""

import re

import pytest
from evidence_arrays import make_claims

from mirrormargin.errors import ReportError
from mirrormargin.report import write_report
from mirrormargin.report.contents import Contents
from mirrormargin.report.markdown import format_markdown, write_markdown


def find_rows(text):
    return [line for line in text.splitlines() if line.startswith("| `")]


def test_every_claim_is_a_row_of_four_cells(claims_folder, tmp_path):
    out = write_report([claims_folder], tmp_path / "verdicts.md", command="mirrormargin report x")
    rows = find_rows(out.read_text())
    assert len(rows) == len(make_claims()["claims"])
    assert {len(re.split(r"(?<!\\)\|", row)) for row in rows} == {6}
    assert "`mirrormargin report x`" in out.read_text()


def test_marks_of_markdown_are_text():
    claim = make_claims()["claims"][0] | {"measured": "|W| < 3 * a_b", "verdict": "reproduced"}
    (row,) = find_rows(format_markdown(Contents(claims=(claim,)), "T", None))
    assert r"\|W\| \< 3 \* a\_b" in row


def test_a_verdict_other_than_reproduced_says_why():
    claim = make_claims()["claims"][0] | {"verdict": "not run", "note": "needs training"}
    (row,) = find_rows(format_markdown(Contents(claims=(claim,)), "T", None))
    assert row.endswith("| ○ not run: needs training |")


def test_runs_have_no_verdicts(tmp_path):
    with pytest.raises(ReportError, match="there are no claims"):
        write_markdown(Contents(), tmp_path / "verdicts.md", None, None)
