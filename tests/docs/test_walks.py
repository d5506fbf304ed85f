"""A walk through the docs prints, command by command, what the page says.

The blocks of a page run from top to bottom in one folder: Python in one namespace, and commands as
they are typed. A ``text`` block is what the block before it prints. In the lab numbers agree up to
rounding. A training of a transformer depends on the CPU in its last digits: there every number with
a decimal point or a thousands separator is masked, and so is the number of the best epoch.
"""

import math
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest
from rank_processes import find_free_port

from mirrormargin.cli import main

ROOT = Path(__file__).parents[2]
LAB_WALK, TRAINING_WALK = "docs/theory-walk.md", "docs/your-own-texts.md"
LAUNCHED = "docs/many-machines.md"

CLOSE = 0.02  # of a number, for machines differ in its last digits
TINY = 1e-9  # below, a number is rounding
NUMBER = re.compile(r"(?<![\w.])[-+]?\d[\d,]*\.?\d*(?:e[-+]?\d+)?(?![\w.])")
NOT_COMPARED = re.compile(r"[\d.]+ s\)|[\d,]+ kB")  # what the clock and the page's size are


def read_blocks(page: str) -> list[tuple[str, str]]:
    text = (ROOT / page).read_text(encoding="utf-8")
    return re.findall(r"^```(\w+)\n(.*?)^```", text, flags=re.MULTILINE | re.DOTALL)


def run_blocks(page: str, capsys: pytest.CaptureFixture[str]) -> list[tuple[str, str]]:
    """What each text block says, and what the block before it printed."""
    pairs, printed, namespace = [], "", {"__name__": page}
    for language, block in read_blocks(page):
        if language == "text":
            pairs.append((block, printed))
            continue
        if language == "python":
            exec(compile(block, page, "exec"), namespace)
        else:
            for line in block.splitlines():
                words = shlex.split(line, comments=True)
                assert words[0] == "mirrormargin"
                assert main(words[1:]) == 0, line
        printed = capsys.readouterr().out
    return pairs


def differ(said: str, printed: str) -> str:
    """The first line in which the two differ in more than rounding."""
    first, second = said.rstrip("\n").splitlines(), printed.rstrip("\n").splitlines()
    for one, other in zip(first, second, strict=False):
        a, b = (NOT_COMPARED.sub("", line) for line in (one, other))
        if [*NUMBER.sub("#", a).split()] != [*NUMBER.sub("#", b).split()]:
            return f"{one!r} is now {other!r}"
        for x, y in zip(NUMBER.findall(a), NUMBER.findall(b), strict=True):
            left, right = (float(number.replace(",", "")) for number in (x, y))
            if not math.isclose(left, right, rel_tol=CLOSE, abs_tol=max(TINY, _last_place(x))):
                return f"{one!r} is now {other!r}"
    if len(first) != len(second):
        return f"{len(first)} lines are now {len(second)}"
    return ""


def _last_place(number: str) -> float:
    """What its last digit stands for; 0 of an integer, which must be the same."""
    mantissa, _, exponent = number.partition("e")
    if not exponent and "." not in mantissa:
        return 0.0
    return 1.01 * 10.0 ** (int(exponent or 0) - len(mantissa.partition(".")[2]))


def mask(text: str) -> str:
    text = re.sub(r"\d[\d,]*\.\d+(e[+-]?\d+)?|\d+(,\d{3})+", "#", text)
    text = re.sub(r"epoch \d+, best", "epoch #, best", text)
    return "\n".join(" ".join(line.split()) for line in text.strip().splitlines())


def test_the_walk_through_the_lab_prints_what_the_page_shows(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    pairs = run_blocks(LAB_WALK, capsys)
    assert len(pairs) >= 5
    assert not [text for said, printed in pairs if (text := differ(said, printed))]


@pytest.mark.slow
def test_the_walk_on_your_own_texts_prints_what_the_page_shows(tmp_path, monkeypatch, capsys):
    pytest.importorskip("plotly")
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("MIRRORMARGIN_DATA", raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    pairs = run_blocks(TRAINING_WALK, capsys)
    assert len(pairs) == 7
    for said, printed in pairs:
        assert mask(printed) == mask(said)
    assert (tmp_path / "runs.html").exists()


@pytest.mark.slow
@pytest.mark.distributed
def test_the_loop_of_many_machines_runs_on_two_ranks(tmp_path):
    loop, saving = [block for language, block in read_blocks(LAUNCHED) if language == "python"]
    end = "dist.destroy_process_group()"
    assert loop.count(end) == 1
    (tmp_path / "train.py").write_text(loop.replace(end, f"{saving}\n{end}"), encoding="utf-8")
    launch = [sys.executable, "-m", "torch.distributed.run", "--nproc-per-node=2"]
    launch.append(f"--master-port={find_free_port()}")
    ended = subprocess.run(
        [*launch, str(tmp_path / "train.py")],
        capture_output=True,
        text=True,
        check=False,
        cwd=tmp_path,
    )
    assert ended.returncode == 0, ended.stderr
    assert ended.stdout == "66944 weights\n"  # from rank 0 alone


@pytest.mark.parametrize(
    ("printed", "is_same"),
    [
        ("p = 2: D 4.54e-06, gap 1.3e-12 (7 steps, 0.5 s)", True),
        ("p = 2: D 4.55e-06, gap 9.9e-13 (7 steps, 0.1 s)", True),
        ("p = 2: D 4.94e-06, gap 1.3e-12 (7 steps, 0.5 s)", False),
        ("p = 2: D 4.54e-02, gap 1.3e-12 (7 steps, 0.5 s)", False),
        ("p = 3: D 4.54e-06, gap 1.3e-12 (7 steps, 0.5 s)", False),
        ("q = 2: D 4.54e-06, gap 1.3e-12 (7 steps, 0.5 s)", False),
    ],
)
def test_only_rounding_and_seconds_may_differ(printed, is_same):
    said = "p = 2: D 4.54e-06, gap 1.3e-12 (7 steps, 0.5 s)"
    assert (differ(said, printed) == "") == is_same
