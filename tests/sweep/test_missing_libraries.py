"""Without its library a sweep says at once which extra to install, and writes nothing."""

import sys
from pathlib import Path

import pytest

from mirrormargin.cli import main
from mirrormargin.errors import MissingLibraryError
from mirrormargin.sweep import LabGrid, run_sweep
from mirrormargin.sweep.ray_engine import RayEngine

tomllib = pytest.importorskip("tomllib")  # since Python 3.11


def check_extra(message, extra, library):
    project = Path(__file__).parents[2] / "pyproject.toml"
    extras = tomllib.loads(project.read_text())["project"]["optional-dependencies"]
    assert f"pip install 'mirrormargin[{extra}]'" in message
    assert any(one.startswith(library) for one in extras[extra])


def test_a_missing_pyarrow_is_named_with_its_extra(tmp_path, monkeypatch, capsys):
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    with pytest.raises(MissingLibraryError, match="pyarrow is not installed") as caught:
        run_sweep(LabGrid(num_steps=1), tmp_path / "sweep")
    check_extra(str(caught.value), "sweep", "pyarrow")
    assert not (tmp_path / "sweep").exists()
    (tmp_path / "grid.toml").write_text("[lab]\nnum_steps = 1\n")
    argv = ["sweep", "run", str(tmp_path / "grid.toml"), "--out", str(tmp_path / "sweep")]
    assert main(argv) == 2
    assert capsys.readouterr().err.count("\n") == 1


def test_a_missing_ray_is_named_with_its_extra(monkeypatch):
    monkeypatch.setitem(sys.modules, "ray", None)
    with pytest.raises(MissingLibraryError, match="ray is not installed") as caught:
        RayEngine()
    check_extra(str(caught.value), "ray", "ray")
