"""``mirrormargin report``."""

import json
from pathlib import Path

from mirrormargin.cli import main


def _run(*words: object) -> int:
    return main(["report", *map(str, words)])


def test_the_page_is_written_and_named(claims_folder: Path, tmp_path: Path, capsys) -> None:
    out = tmp_path / "my page.html"
    assert _run(claims_folder, "--out", out, "--title", "Mine") == 0
    assert capsys.readouterr().out.startswith(f"wrote {out} (")
    text = out.read_text()
    assert "<h1>Mine</h1>" in text
    assert "--title Mine" in text


def test_quiet_prints_the_path_alone(claims_folder: Path, tmp_path: Path, capsys) -> None:
    assert _run(claims_folder, "--out", tmp_path / "r.html", "--quiet") == 0
    assert capsys.readouterr().out == f"{tmp_path / 'r.html'}\n"


def test_json_says_what_was_written(page: Path, tmp_path: Path, capsys) -> None:
    from evidence_arrays import EVIDENCE

    from mirrormargin.claims.evidence import Evidence, write_evidence

    write_evidence(tmp_path / "e", Evidence("factors", {}, EVIDENCE["factors"]))
    out, figures = tmp_path / "r.html", tmp_path / "figures"
    assert _run(tmp_path / "e", "--out", out, "--figures", figures, "--json") == 0
    document = json.loads(capsys.readouterr().out)
    assert document == {"page": str(out), "bytes": out.stat().st_size, "figures": str(figures)}
    names = sorted(path.name for path in figures.iterdir())
    assert names == [f"factors.{suffix}" for suffix in ("csv", "json", "pdf", "png", "svg")]
    assert all(path.stat().st_size > 100 for path in figures.iterdir())


def test_a_missing_folder_is_the_users_error(tmp_path: Path, capsys) -> None:
    assert _run(tmp_path / "none", "--out", tmp_path / "r.html") == 2
    assert "is no folder" in capsys.readouterr().err
    assert _run() == 2
    assert "SOURCE is missing" in capsys.readouterr().err


def test_help_has_examples(capsys) -> None:
    assert _run("--help") == 0
    assert "mirrormargin report out --out page.html" in capsys.readouterr().out
