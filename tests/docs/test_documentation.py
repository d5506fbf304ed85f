"""Every code block of the README and of the pages in docs/ runs as it is written."""

import re
import shlex
from pathlib import Path

import pytest
import torch

from mirrormargin.cli import main

ROOT = Path(__file__).parents[2]
PAGES = ["README.md", *sorted(f"docs/{file.name}" for file in (ROOT / "docs").glob("*.md"))]

# Whose Python reads what its commands wrote, or needs torchrun: see test_walks.py. Or needs other
# libraries: see test_integrations.py.
WALKS = ["docs/theory-walk.md", "docs/many-machines.md", "docs/integrations.md"]


def read_blocks(page: str, language: str) -> list[str]:
    text = (ROOT / page).read_text(encoding="utf-8")
    return re.findall(rf"^```{language}\n(.*?)^```", text, flags=re.MULTILINE | re.DOTALL)


def read_commands(page: str) -> list[list[str]]:
    lines = "".join(read_blocks(page, "sh")).splitlines()
    return [
        words
        for line in lines
        for part in line.split("&&")
        if (words := shlex.split(part, comments=True))
    ]


@pytest.mark.parametrize(
    "page", [page for page in PAGES if read_blocks(page, "python") and page not in WALKS]
)
def test_python_blocks_run(page, tmp_path, monkeypatch, capsys):
    """One after the other in one namespace; a page may assume that the reader has a model."""
    if page == "docs/real-models.md":
        pytest.importorskip("sklearn")
    if page == "docs/sweeps.md":
        pytest.importorskip("pyarrow")
    monkeypatch.chdir(tmp_path)
    layer = torch.nn.TransformerEncoderLayer(16, 2, 32, batch_first=True)
    model = torch.nn.TransformerEncoder(layer, 1, enable_nested_tensor=False)
    model.requires_grad_(True)
    loss = model(torch.randn(2, 5, 16)).square().mean()
    before = [weight.detach().clone() for weight in model.parameters()]
    namespace = {"model": model, "loss": loss, "__name__": page}
    for block in read_blocks(page, "python"):
        exec(compile(block, page, "exec"), namespace)
    if page == "README.md":  # the step was taken
        assert any((a != b).any() for a, b in zip(before, model.parameters(), strict=False))
        assert namespace["solution"].gap < 1e-8
        assert namespace["flow"].log10_k[-1] == pytest.approx(100)
    if page == "docs/real-models.md":
        accuracies = [float(value) for value in capsys.readouterr().out.strip("[]\n").split(",")]
        assert len(accuracies) == 3
        assert accuracies[0] > 30  # of ten classes, with a tenth of the weights
        assert (tmp_path / "runs" / "mine" / "final.safetensors").exists()


def test_the_readme_is_short():
    assert len((ROOT / "README.md").read_text(encoding="utf-8").splitlines()) <= 150


@pytest.mark.parametrize("page", PAGES)
def test_links_lead_somewhere(page):
    text = (ROOT / page).read_text(encoding="utf-8")
    targets = re.findall(r"\]\(([^)#]+)", text)
    missing = [
        target
        for target in targets
        if "://" not in target and not ((ROOT / page).parent / target).exists()
    ]
    assert not missing


@pytest.mark.parametrize("page", [page for page in PAGES if read_commands(page)])
def test_commands_can_be_parsed(page):
    """Make's targets and pip's extras exist, and our own commands have these options."""
    from mirrormargin.cli.app import app
    from mirrormargin.data.__main__ import make_parser

    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    tomllib = pytest.importorskip("tomllib")  # since Python 3.11
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    for words in read_commands(page):
        if words[0] == "torchrun":
            words = ["mirrormargin", *words[words.index("-m") + 2 :]]
        if words[0] == "make":
            assert re.search(rf"^{words[1]}:", makefile, flags=re.MULTILINE), words
        elif words[0] == "pip":
            for extra in re.findall(r"\[(.*?)\]", " ".join(words)):
                assert set(extra.split(",")) <= set(project["optional-dependencies"]), words
        elif words[:3] == ["python", "-m", "mirrormargin.data"]:
            make_parser().parse_args(words[3:])
        else:
            assert words[0] == "mirrormargin", words
            app.parse_args(words[1:], exit_on_error=False, print_error=False)


@pytest.mark.slow
def test_the_commands_of_the_readme_run(tmp_path, monkeypatch, capsys):
    pytest.importorskip("sklearn")
    monkeypatch.chdir(tmp_path)
    ours = [words[1:] for words in read_commands("README.md") if words[0] == "mirrormargin"]
    assert [main(words) for words in ours] == [0, 0, 0]
    assert "reproduced" in capsys.readouterr().out
