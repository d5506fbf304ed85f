"""Trainings in processes of their own, to be killed at any moment."""

from __future__ import annotations

import random
import signal
import sys
import time
import traceback
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1]))
from tools.soak.processes import ForkingServer, report

FINISHED, REFUSED = 0, 3


class TrainingServer(ForkingServer):
    """Runs one training at a time, at most."""

    def __init__(self) -> None:
        super().__init__(path=(Path(__file__).parent,))
        self.warm("killed_training:prepare")

    def train(self, config, folder: Path, kill_at: float | None = None) -> tuple[int, list[int]]:
        """Status of the process, and the steps it went through.

        Args:
            config: What to train.
            folder: Where.
            kill_at: Kill the process once it has done the whole part of so many steps, after
                the rest of it in units of 20 ms: long enough for another step and its checkpoint.
        """
        pid = self.start("killed_training:train", config.as_dict(), str(folder))
        steps: list[int] = []

        def note(step: str) -> None:
            steps.append(int(step))
            if kill_at is not None and len(steps) == max(1, int(kill_at)):
                time.sleep(0.02 * (kill_at % 1))
                self.interrupt(pid, signal.SIGKILL)

        ended = self.wait(pid, note)
        return ended.code, [int(step) for step in ended.said]

    def train_with_kills(self, config, folder: Path, kills: int, seed: int) -> list[list[int]]:
        """Train to the end, killed so many times; returns the steps that each process did."""
        generator = random.Random(seed)
        courses = []
        for number in range(kills + 1):
            kill_at = generator.uniform(1, 12) if number < kills else None
            status, steps = self.train(config, folder, kill_at)
            assert status == (FINISHED if kill_at is None else -signal.SIGKILL)
            courses.append(steps)
        return courses


def prepare() -> None:
    """One step of each sort, so that no process has to import or compile anything."""
    import torch

    from mirrormargin.data import load_data
    from mirrormargin.training.building import build_model, build_optimizer
    from mirrormargin.training.config import OptimizerConfig
    from mirrormargin.training.configurations import find_configuration

    torch.set_num_threads(1)
    config = find_configuration("digits/tiny")
    data = load_data("digits", num_train=50)
    for name in ("MirrorDescent", "MirrorAdam", "AdamW", "SNGD"):
        model = build_model(config, data)
        model(data.train.inputs[:2]).sum().backward()
        build_optimizer(OptimizerConfig(name, 1e-3), model).step()


def train(config: dict[str, Any], folder: str) -> int:
    """A training that reports each step and saves a checkpoint after it."""
    from mirrormargin.errors import RunError, TrainingError
    from mirrormargin.training.config import TrainingConfig
    from mirrormargin.training.loop import train_model

    try:
        train_model(
            TrainingConfig.from_dict(config),
            folder=folder,
            checkpoint_every=0,
            on_step=lambda step, num_steps, known: report(str(step)),
        )
    except (RunError, TrainingError):
        traceback.print_exc()
        return REFUSED
    return FINISHED
