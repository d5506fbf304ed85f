"""Train attention with mirror descent, and know where that training must end.

Public names are resolved on first use, so that ``import mirrormargin`` stays light.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

__version__ = "0.1.0"

if TYPE_CHECKING:
    from mirrormargin.attention import AttentionProblem, synthetic
    from mirrormargin.deltas import DeltaStore, SparseDelta
    from mirrormargin.dynamics import (
        AttentionRecord,
        FlowRecord,
        NormalInit,
        RateFit,
        RateVerdict,
        RegularizationPath,
        basin_statistics,
        bound_holds,
        claimed_rate,
        classify_selections,
        compare_exponents,
        fit_rate,
        joint_regularization_path,
        mirror_flow,
        regularization_path,
        resume_training,
        train_attention,
        train_joint,
    )
    from mirrormargin.errors import (
        ClaimError,
        DataError,
        DeltaError,
        DivergedError,
        GeometryError,
        MarginBelowError,
        MirrorMarginError,
        MirrorMarginWarning,
        MissingLibraryError,
        MissingNumbaError,
        ModelError,
        NonFiniteGradientError,
        NotNumbersError,
        NotSeparableError,
        OptimizerError,
        ProblemError,
        RankError,
        ReportError,
        RunError,
        SolverError,
        SweepError,
        TrainingError,
        TrainingInterrupted,
    )
    from mirrormargin.geometry import (
        ElasticNetPotential,
        GroupLpPotential,
        HypentropyPotential,
        LpPotential,
        Potential,
        directional_divergence,
    )
    from mirrormargin.optim import (
        MirrorAdam,
        MirrorDescent,
        SparsitySchedule,
        describe_groups,
        mirror_groups,
        param_groups,
    )
    from mirrormargin.svm import (
        is_locally_optimal,
        solve_attention_svm,
        solve_decoder_svm,
        solve_many,
        solve_nuclear_svm,
    )

_HOMES = {
    "attention": ("AttentionProblem", "synthetic"),
    "deltas": ("DeltaStore", "SparseDelta"),
    "dynamics": (
        "AttentionRecord",
        "FlowRecord",
        "NormalInit",
        "RateFit",
        "RateVerdict",
        "RegularizationPath",
        "basin_statistics",
        "bound_holds",
        "claimed_rate",
        "classify_selections",
        "compare_exponents",
        "fit_rate",
        "joint_regularization_path",
        "mirror_flow",
        "regularization_path",
        "resume_training",
        "train_attention",
        "train_joint",
    ),
    "errors": (
        "ClaimError",
        "DataError",
        "DeltaError",
        "DivergedError",
        "GeometryError",
        "MarginBelowError",
        "MirrorMarginError",
        "MirrorMarginWarning",
        "MissingLibraryError",
        "MissingNumbaError",
        "ModelError",
        "NonFiniteGradientError",
        "NotNumbersError",
        "NotSeparableError",
        "OptimizerError",
        "ProblemError",
        "RankError",
        "ReportError",
        "RunError",
        "SolverError",
        "SweepError",
        "TrainingError",
        "TrainingInterrupted",
    ),
    "geometry": (
        "ElasticNetPotential",
        "GroupLpPotential",
        "HypentropyPotential",
        "LpPotential",
        "Potential",
        "directional_divergence",
    ),
    "optim": (
        "MirrorAdam",
        "MirrorDescent",
        "SparsitySchedule",
        "describe_groups",
        "mirror_groups",
        "param_groups",
    ),
    "svm": (
        "is_locally_optimal",
        "solve_attention_svm",
        "solve_decoder_svm",
        "solve_many",
        "solve_nuclear_svm",
    ),
}
_HOME = {name: home for home, names in _HOMES.items() for name in names}

__all__ = [
    "AttentionProblem",
    "AttentionRecord",
    "ClaimError",
    "DataError",
    "DeltaError",
    "DeltaStore",
    "DivergedError",
    "ElasticNetPotential",
    "FlowRecord",
    "GeometryError",
    "GroupLpPotential",
    "HypentropyPotential",
    "LpPotential",
    "MarginBelowError",
    "MirrorAdam",
    "MirrorDescent",
    "MirrorMarginError",
    "MirrorMarginWarning",
    "MissingLibraryError",
    "MissingNumbaError",
    "ModelError",
    "NonFiniteGradientError",
    "NormalInit",
    "NotNumbersError",
    "NotSeparableError",
    "OptimizerError",
    "Potential",
    "ProblemError",
    "RankError",
    "RateFit",
    "RateVerdict",
    "RegularizationPath",
    "ReportError",
    "RunError",
    "SolverError",
    "SparseDelta",
    "SparsitySchedule",
    "SweepError",
    "TrainingError",
    "TrainingInterrupted",
    "basin_statistics",
    "bound_holds",
    "claimed_rate",
    "classify_selections",
    "compare_exponents",
    "describe_groups",
    "directional_divergence",
    "fit_rate",
    "is_locally_optimal",
    "joint_regularization_path",
    "mirror_flow",
    "mirror_groups",
    "param_groups",
    "regularization_path",
    "resume_training",
    "solve_attention_svm",
    "solve_decoder_svm",
    "solve_many",
    "solve_nuclear_svm",
    "synthetic",
    "train_attention",
    "train_joint",
]


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module 'mirrormargin' has no attribute {name!r}")
    value = getattr(importlib.import_module(f"mirrormargin.{_HOME[name]}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    """Public names only: what Python imported to find them is of no use to a reader."""
    return sorted([*__all__, "__version__"])
