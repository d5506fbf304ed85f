"""``mirrormargin demo`` without a library says at once which extra to install."""

import subprocess
import sys
import time
from pathlib import Path

import pytest
import tomllib

from mirrormargin.cli.reproduce import DEMO_LIBRARIES

ROOT = Path(__file__).parents[2]
# A finder before all others that knows nothing of one library, as if it were not installed.
BLOCKED = """
import importlib.abc, importlib.util, sys
from importlib.machinery import PathFinder

def find_spec(name, path=None, target=None, find=PathFinder.find_spec):
    return None if name.partition(".")[0] == {module!r} else find(name, path, target)

PathFinder.find_spec = find_spec
from mirrormargin.cli import main
sys.exit(main(["demo", "--out", {out!r}]))
"""


@pytest.mark.parametrize(("name", "module"), DEMO_LIBRARIES.items())
def test_a_missing_library_is_told_before_the_work(name, module, tmp_path):
    program = BLOCKED.format(module=module, out=str(tmp_path / "demo"))
    start = time.monotonic()
    result = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, timeout=60
    )
    assert result.returncode == 2
    assert result.stdout == ""
    assert result.stderr.count("\n") == 1
    assert f"the demo needs {name}, which" in result.stderr
    assert "pip install 'mirrormargin[demo]'" in result.stderr
    assert not (tmp_path / "demo").exists()
    assert time.monotonic() - start < 20


def test_the_extras_have_what_the_demo_needs():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    extras = project["optional-dependencies"]
    demo = " ".join([*extras["demo"], *extras["report"]])
    assert all(name in demo for name in ("scikit-learn", "safetensors", "jinja2", "plotly"))
    assert "mirrormargin[demo,encoder,huggingface,report,sklearn,sweep,training]" in extras["all"]
