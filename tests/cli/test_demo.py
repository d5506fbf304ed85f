"""``mirrormargin demo``: all claims that need no data, and a page."""

import json
import shutil

import pytest
from quick_evidence import SHORTER, QuickEvidence, shorten

from mirrormargin.claims import CLAIMS
from mirrormargin.cli import main


@pytest.fixture(scope="module", params=["short", pytest.param("whole", marks=pytest.mark.slow)])
def folder(find_evidence, request, tmp_path_factory):
    """A folder of this process alone, with evidence that all processes share."""
    shorter = SHORTER if request.param == "short" else {}
    with shorten(shorter):
        shared = QuickEvidence(find_evidence.folder, shorter).run_all()
        own = tmp_path_factory.mktemp("demo")
        shutil.copytree(shared / "evidence", own / "evidence")
        yield own


def test_demo_prints_every_verdict_and_the_page(folder, capsys):
    assert main(["demo", "--out", str(folder)]) == 0
    captured = capsys.readouterr()
    page = folder / "report.html"
    assert all(claim.id in captured.out for claim in CLAIMS)
    assert f"The page with all figures: {page.resolve()}" in captured.out
    assert page.stat().st_size < 6_000_000
    assert captured.err == ""


def test_demo_as_json_is_the_document_with_the_page(folder, capsys):
    assert main(["demo", "--out", str(folder), "--json"]) == 0
    report = json.loads(capsys.readouterr().out)
    assert [row["id"] for row in report["claims"]] == [claim.id for claim in CLAIMS]
    assert report["page"] == str(folder / "report.html")


def test_every_figure_that_a_claim_names_is_on_the_page(folder, capsys):
    assert main(["demo", "--out", str(folder), "--json"]) == 0
    rows = json.loads(capsys.readouterr().out)["claims"]
    page = (folder / "report.html").read_text()
    named = {name for row in rows if row["verdict"] != "not run" for name in row["figures"]}
    assert len(named) > 15
    assert not [name for name in named if f'id="fig-{name}"' not in page]


def test_nothing_but_real_data_is_left_open_and_nothing_fails(folder, capsys):
    assert main(["demo", "--out", str(folder), "--json"]) == 0
    rows = json.loads(capsys.readouterr().out)["claims"]
    assert all("needs" in row["note"] for row in rows if row["verdict"] == "not run")
    assert not [
        row["id"] for row in rows if row["verdict"] == "not reproduced" and row["should_hold"]
    ]


def test_quiet_leaves_the_table_and_the_page(folder, capsys):
    assert main(["demo", "--out", str(folder), "--quiet"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == "Paper A"
    assert lines[-1].startswith("The page with all figures")


def test_an_unwritable_folder_is_found_before_the_work(tmp_path, capsys):
    (tmp_path / "file").write_text("")
    assert main(["demo", "--out", str(tmp_path / "file")]) == 2
    assert "cannot be written" in capsys.readouterr().err
