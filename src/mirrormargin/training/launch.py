"""How several processes were started to train together: what torchrun wrote into the environment.

This module needs no torch, so that a command line can be checked before it is imported.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal, get_args

from mirrormargin.arguments import check_choice
from mirrormargin.errors import TrainingError

__all__ = ["Launch", "Parallel", "choose_parallel", "find_launch"]

Parallel = Literal["ddp", "fsdp"]
NEEDED = ("RANK", "WORLD_SIZE", "LOCAL_RANK", "MASTER_ADDR", "MASTER_PORT")


@dataclass(frozen=True)
class Launch:
    """One of several processes.

    Attributes:
        rank: Its number; 0 is the one that talks and writes.
        count: How many there are.
        local_rank: Its number on its machine.
        restarts: How often torchrun has started all of them again.
    """

    rank: int
    count: int
    local_rank: int
    restarts: int


def find_launch(environment: Mapping[str, str] = os.environ) -> Launch | None:
    """What torchrun says; None for a process that was started alone."""
    if not all(environment.get(name) for name in NEEDED):
        return None
    try:
        rank, count, local_rank = (int(environment[name]) for name in NEEDED[:3])
        return Launch(
            rank, count, local_rank, int(environment.get("TORCHELASTIC_RESTART_COUNT", 0))
        )
    except ValueError:
        return None


def choose_parallel(parallel: str | None) -> Parallel | None:
    """How to train: as it is asked for, with ddp under torchrun, and else in one process.

    Raises:
        TrainingError: If several processes are asked for, but this one was started alone.
    """
    is_launched = find_launch() is not None
    if parallel is None:
        return "ddp" if is_launched else None
    check_choice("parallel", parallel, get_args(Parallel), error=TrainingError)
    if not is_launched:
        raise TrainingError(
            f"parallel is {parallel!r}, but this process was started alone: start several with"
            " torchrun --nproc-per-node 2 -m mirrormargin train ..., or leave it out"
        )
    return parallel  # pyright: ignore[reportReturnType]
