"""All trials, in the order in which they are made."""

from __future__ import annotations

from tools.soak.bad_calls import BAD_CALLS
from tools.soak.damage import DAMAGE
from tools.soak.disks import DISKS
from tools.soak.interruptions import INTERRUPTIONS
from tools.soak.shared_folders import SHARED_FOLDERS
from tools.soak.steps import STEPS
from tools.soak.svm import SVM
from tools.soak.trial import Trial

__all__ = ["TRIALS"]

TRIALS: tuple[Trial, ...] = (
    INTERRUPTIONS,
    DAMAGE,
    DISKS,
    BAD_CALLS,
    SVM,
    STEPS,
    SHARED_FOLDERS,
)
