"""The walks in docs/: their commands run in order and print what the pages show.

A training depends on the CPU in its last digits. So before outputs are compared, every number with
a decimal point or a thousands separator is masked, and so is the number of the best epoch; blanks
that align columns count as one.
"""

import re
import shlex
from pathlib import Path

import pytest

from mirrormargin.cli import main

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "your-own-texts.md"
NUMBER = re.compile(r"\d[\d,]*\.\d+(e[+-]?\d+)?|\d+(,\d{3})+")


def mask(text: str) -> str:
    text = re.sub(r"epoch \d+, best", "epoch #, best", NUMBER.sub("#", text))
    return "\n".join(" ".join(line.split()) for line in text.strip().splitlines())


def run_page(page: Path, capsys) -> list[tuple[str, str]]:
    """What each block of commands prints, with what the page shows."""
    blocks = re.findall(r"^```(\w+)\n(.*?)^```", page.read_text(), flags=re.MULTILINE | re.DOTALL)
    pairs, printed = [], ""
    for language, block in blocks:
        if language == "python":
            exec(compile(block, page.name, "exec"), {})
        elif language == "sh":
            for line in block.splitlines():
                assert main(shlex.split(line)[1:]) == 0, line
            captured = capsys.readouterr()
            assert captured.err == "", block
            printed = captured.out
        else:
            pairs.append((printed, block))
    return pairs


def test_the_walk_on_your_own_texts_prints_what_the_page_shows(tmp_path, monkeypatch, capsys):
    pytest.importorskip("plotly")
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("MIRRORMARGIN_DATA", raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    pairs = run_page(PAGE, capsys)
    assert len(pairs) == 7
    for printed, shown in pairs:
        assert mask(printed) == mask(shown)
    assert (tmp_path / "runs.html").exists()
