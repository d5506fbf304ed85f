"""Trainings in processes of their own, to be killed at any moment.

A server is started once, imports and compiles everything, and forks a process for each training:
starting one from scratch would take longer than the training. It talks in lines,

    -> {"folder": ..., "config": ...}       what to train
    <- pid <n>, step <k> for each step, end <status>
"""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import time
import traceback
from pathlib import Path

FINISHED, REFUSED = 0, 3


class TrainingServer:
    """Runs one training at a time, at most."""

    def __init__(self) -> None:
        self._process = subprocess.Popen(
            [sys.executable, __file__],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env={**os.environ, "OMP_NUM_THREADS": "1"},
        )

    def train(self, config, folder: Path, kill_at: float | None = None) -> tuple[int, list[int]]:
        """Status of the process, and the steps it went through.

        Args:
            config: What to train.
            folder: Where.
            kill_at: Kill the process once it has done the whole part of so many steps, after
                the rest of it in units of 20 ms: long enough for another step and its checkpoint.
        """
        self._send({"folder": str(folder), "config": config.as_dict()})
        word, pid = self._receive()
        assert word == "pid"
        steps: list[int] = []
        while True:
            word, number = self._receive()
            if word == "end":
                return number, steps
            steps.append(number)
            if kill_at is not None and len(steps) == max(1, int(kill_at)):
                time.sleep(0.02 * (kill_at % 1))
                os.kill(pid, signal.SIGKILL)  # not reaped yet: nobody else has this number

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

    def close(self) -> None:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.close()
        self._process.wait()
        self._process.stdout.close()

    def _send(self, request: dict) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps(request) + "\n")
        self._process.stdin.flush()

    def _receive(self) -> tuple[str, int]:
        assert self._process.stdout is not None
        word, number = self._process.stdout.readline().split()
        return word, int(number)


def serve() -> None:
    import torch

    from mirrormargin.data import load_data
    from mirrormargin.errors import RunError, TrainingError
    from mirrormargin.training.building import build_model, build_optimizer, load_training_data
    from mirrormargin.training.config import OptimizerConfig, TrainingConfig
    from mirrormargin.training.configurations import find_configuration
    from mirrormargin.training.loop import train_model

    torch.set_num_threads(1)
    # One step of each sort, so that no child has to import or compile anything.
    config = find_configuration("digits/tiny")
    data = load_data("digits", num_train=50)
    for name in ("MirrorDescent", "MirrorAdam", "AdamW", "SNGD"):
        model = build_model(config, data)
        model(data.train.inputs[:2]).sum().backward()
        build_optimizer(OptimizerConfig(name, 1e-3), model).step()
    data_sets = {}

    def report(text: str) -> None:
        os.write(1, text.encode() + b"\n")  # whole lines, whoever is killed

    for line in sys.stdin:
        request = json.loads(line)
        config = TrainingConfig.from_dict(request["config"])
        if config.data not in data_sets:
            data_sets[config.data] = load_training_data(config)
        pid = os.fork()
        if pid == 0:
            status = 1
            try:
                report(f"pid {os.getpid()}")
                train_model(
                    config,
                    data_sets[config.data],
                    request["folder"],
                    checkpoint_every=0,
                    on_step=lambda step, num_steps, known: report(f"step {step}"),
                )
                status = FINISHED
            except (RunError, TrainingError):
                traceback.print_exc()
                status = REFUSED
            except BaseException:
                traceback.print_exc()
            finally:
                os._exit(status)
        report(f"end {os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])}")


if __name__ == "__main__":
    serve()
