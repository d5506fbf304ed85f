"""Claims judged on models of paper A's layout, as a user types it."""

import json

import pytest
from published_models import write_published

from mirrormargin.claims import authors_evidence
from mirrormargin.cli import main


@pytest.fixture
def files(tmp_path):
    paths = [tmp_path / "1.1.pt", tmp_path / "2.pt"]
    for seed, path in enumerate(paths):
        write_published(path, width=12, layers=6, heads=6, vocab_size=30_522, length=512, seed=seed)
    return [str(path) for path in paths]


def run(claims, files, out):
    return main(["reproduce", *claims, "--published", *files, "--out", str(out), "--quiet"])


def test_weights_are_judged_without_any_data(files, tmp_path, monkeypatch, capsys):
    monkeypatch.setenv("MIRRORMARGIN_DATA", str(tmp_path))
    assert run(["A.fig.imdb-weights", "A.tab.attention"], files, tmp_path / "out") == 0
    printed = capsys.readouterr().out
    assert "published model, p = 1.1: IMDB is not here, 80% by its own curve" in printed
    document = json.loads((tmp_path / "out" / "claims.json").read_text())
    weights, attention = document["claims"]
    assert weights["verdict"] == "not reproduced"  # the weights are random
    assert weights["origin"]["kind"] == "run now"
    # At the published size the published numbers are asked for.
    assert any(test["name"] == "entries above 0.06, p = 1.1, K" for test in weights["tests"])
    assert attention["verdict"] == "not run"


@pytest.mark.slow
def test_attention_and_accuracy_are_measured_on_imdb(
    files, tmp_path, monkeypatch, capsys, real_data
):
    monkeypatch.setenv("MIRRORMARGIN_DATA", str(real_data))
    monkeypatch.setattr(authors_evidence.describe_models, "__kwdefaults__", {
        "num_reviews": 40, "progress": None,
    })  # fmt: skip
    assert run(["A.fig.imdb-weights", "A.tab.attention"], files, tmp_path / "out") == 0
    assert "% of test reviews here" in capsys.readouterr().out
    rows = json.loads((tmp_path / "out" / "claims.json").read_text())["claims"]
    assert all(row["verdict"] != "not run" for row in rows)
    accuracy = rows[0]["origin"]["accuracy"]["p = 2"]
    assert 0 <= accuracy["test_accuracy"] <= 100


def test_one_file_is_not_enough(files, tmp_path, capsys):
    command = ["reproduce", "A.fig.imdb-weights", "--published", files[0], "--out", str(tmp_path)]
    assert main(command) == 2
    assert "--published" in capsys.readouterr().err


def test_a_file_of_something_else_is_one_line(files, tmp_path, capsys):
    other = tmp_path / "other.pt"
    other.write_bytes(b"nothing")
    assert run(["A.fig.imdb-weights"], [files[0], str(other)], tmp_path / "out") == 2
    assert capsys.readouterr().err.count("\n") == 1
