"""All trials, in the order in which they are made."""

from __future__ import annotations

from tools.soak.bad_calls import BAD_CALLS
from tools.soak.trial import Trial

__all__ = ["TRIALS"]

TRIALS: tuple[Trial, ...] = (BAD_CALLS,)
