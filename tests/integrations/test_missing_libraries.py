"""An integration without its library says at once which extra to install."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

tomllib = pytest.importorskip("tomllib")  # since Python 3.11

ROOT = Path(__file__).parents[2]
# A finder before all others that knows nothing of some libraries, as if they were not installed.
PROGRAM = """
from importlib.machinery import PathFinder

def find_spec(name, path=None, target=None, find=PathFinder.find_spec):
    return None if name.partition(".")[0] in {hidden!r} else find(name, path, target)

PathFinder.find_spec = find_spec
try:
    import mirrormargin.integrations.{module}
except ImportError as error:
    print(type(error).__name__, error)
"""


@pytest.mark.parametrize(
    ("module", "hidden", "library", "extra"),
    [
        ("huggingface", ["transformers"], "transformers", "huggingface"),
        ("lightning", ["lightning", "pytorch_lightning"], "lightning", "lightning"),
        ("mlflow", ["mlflow"], "mlflow", "mlflow"),
        ("optax", ["optax"], "optax", "optax"),
        ("optax", ["jax"], "optax", "optax"),
        ("optuna", ["optuna"], "optuna", "optuna"),
        ("sklearn", ["sklearn"], "scikit-learn", "sklearn"),
        ("wandb", ["wandb"], "wandb", "wandb"),
    ],
)
def test_a_missing_library_is_named_with_its_extra(module, hidden, library, extra):
    program = PROGRAM.format(module=module, hidden=hidden)
    ended = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True, timeout=100
    )
    assert ended.stdout.startswith(f"MissingLibraryError {library}")
    assert f"pip install 'mirrormargin[{extra}]'" in ended.stdout
    assert ended.stdout.count("\n") == 1
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    extras = " ".join(project["optional-dependencies"][extra])
    assert library in extras
