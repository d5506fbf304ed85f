"""Mirror descent step by step: thousands of runs in compiled code, and their records."""

from mirrormargin.dynamics.descent.plan import NormalInit
from mirrormargin.dynamics.descent.record import AttentionRecord
from mirrormargin.dynamics.descent.train_attention import resume_training, train_attention
from mirrormargin.dynamics.descent.train_joint import train_joint

__all__ = [
    "AttentionRecord",
    "NormalInit",
    "resume_training",
    "train_attention",
    "train_joint",
]
