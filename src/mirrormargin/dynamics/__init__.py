"""How does training get there? Many runs at once, what they pass through, and where they end."""

from mirrormargin.dynamics.basins import basin_statistics, classify_selections
from mirrormargin.dynamics.descent import (
    AttentionRecord,
    NormalInit,
    resume_training,
    train_attention,
    train_joint,
)
from mirrormargin.dynamics.descent.targets import compare_exponents
from mirrormargin.dynamics.flow import mirror_flow
from mirrormargin.dynamics.flow_record import FlowRecord
from mirrormargin.dynamics.paths import (
    RegularizationPath,
    joint_regularization_path,
    regularization_path,
)
from mirrormargin.dynamics.rates import RateFit, RateVerdict, bound_holds, claimed_rate, fit_rate

__all__ = [
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
]
