"""Many runs: a grid of settings, computed here or on a cluster, and one table of results.

    from mirrormargin.sweep import LabGrid, read_table, run_sweep

    run_sweep(LabGrid(p=[1.75, 2, 3], seed=range(1, 1001)), "sweeps/exponents")
    frame = read_table("sweeps/exponents").to_pandas()

What is done is never run again, whatever was killed in between. Names are resolved on first use.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from mirrormargin.sweep.folder import SweepFolder, read_table
    from mirrormargin.sweep.grid_files import read_grids
    from mirrormargin.sweep.lab_grid import LabGrid
    from mirrormargin.sweep.running import (
        SweepPlan,
        SweepProgress,
        plan_sweep,
        resume_sweep,
        run_sweep,
    )
    from mirrormargin.sweep.training_grid import TrainingGrid

_HOMES = {
    "LabGrid": "lab_grid",
    "SweepFolder": "folder",
    "SweepPlan": "running",
    "SweepProgress": "running",
    "TrainingGrid": "training_grid",
    "plan_sweep": "running",
    "read_grids": "grid_files",
    "read_table": "folder",
    "resume_sweep": "running",
    "run_sweep": "running",
}

__all__ = [
    "LabGrid",
    "SweepFolder",
    "SweepPlan",
    "SweepProgress",
    "TrainingGrid",
    "plan_sweep",
    "read_grids",
    "read_table",
    "resume_sweep",
    "run_sweep",
]


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'mirrormargin.sweep' has no attribute {name!r}")
    value = getattr(importlib.import_module(f"mirrormargin.sweep.{_HOMES[name]}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return __all__
