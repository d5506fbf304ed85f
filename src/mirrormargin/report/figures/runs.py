"""Figures of run folders: trainings in the lab have their own, others share those of their kind."""

from __future__ import annotations

from collections.abc import Sequence

from mirrormargin.figures import Figure
from mirrormargin.report.figures.flow_runs import build_flows
from mirrormargin.report.figures.model_trainings import build_model_trainings
from mirrormargin.report.figures.path_runs import build_joint_runs, build_path_runs
from mirrormargin.report.figures.training_run import build_training
from mirrormargin.report.sources import FLOW, JOINT_PATH, MODEL, PATH, TRAINING, RunFolder

__all__ = ["build_run_figures"]


def build_run_figures(runs: Sequence[RunFolder]) -> list[Figure]:
    """The figures of some runs, trainings first."""
    models = [run for run in runs if run.kind == MODEL]
    figures = build_model_trainings(models) if models else []
    figures += [one for run in runs if run.kind == TRAINING for one in build_training(run)]
    for kind, build in (
        (FLOW, build_flows),
        (PATH, build_path_runs),
        (JOINT_PATH, build_joint_runs),
    ):
        chosen = [run for run in runs if run.kind == kind]
        if chosen:
            figures.append(build(chosen))
    return figures
