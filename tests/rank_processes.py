"""Trainings by several ranks, each a forked process, as torchrun would start them."""

from __future__ import annotations

import importlib
import json
import os
import signal
import socket
import subprocess
import sys
import time
import traceback
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1]))
from tools.soak.processes import ForkingServer, report

FINISHED, STOPPED, LOST, FAILED = 0, 3, 4, 5


@dataclass
class Outcome:
    """How a training by several processes ended.

    Attributes:
        codes: Exit codes by rank.
        steps: Those that rank 0 went through.
        losses: The mean training loss of the epoch so far, after each of these steps.
        underflowed: Of the weights, once the training has ended.
    """

    codes: list[int] = field(default_factory=list)
    steps: list[int] = field(default_factory=list)
    losses: list[float] = field(default_factory=list)
    underflowed: int | None = None


class RankServer(ForkingServer):
    """Starts the ranks of one training, or of one function, at a time."""

    def __init__(self, modules: Sequence[str] = ()) -> None:
        folder = Path(__file__).parent
        super().__init__(path=(folder, folder / "optim", folder / "integrations"))
        self.warm("rank_processes:prepare", list(modules))

    def run(self, function: str, count: int, *arguments: Any) -> list[str]:
        """Call ``module:function(launch, *arguments)`` as each of so many ranks.

        Returns:
            What the first rank reported.
        """
        port = find_free_port()
        ranks = [
            self.start(function, {"rank": rank, "count": count, "port": port}, *arguments)
            for rank in range(count)
        ]
        ended = [self.wait(pid) for pid in ranks]
        assert [one.code for one in ended] == [FINISHED] * count, [one.said for one in ended]
        return ended[0].said

    def train(
        self,
        config: Any,
        folder: Path,
        parallel: str | None = None,
        count: int = 1,
        *,
        kill: tuple[int, float] | None = None,
        **options: Any,
    ) -> Outcome:
        """Train to the end, or to the end of some rank.

        Args:
            config: What to train.
            folder: Where.
            parallel: How; None for one process.
            count: How many ranks.
            kill: A rank, and when it is killed: once rank 0 has done the whole part of so many
                steps, after the rest of it in units of 20 ms.
            options: Of :func:`train` below.
        """
        port = find_free_port()
        ranks = [
            self.start(
                "rank_processes:train",
                config.as_dict(),
                str(folder),
                parallel,
                {"rank": rank, "count": count, "port": port},
                options,
            )
            for rank in range(count)
        ]
        outcome = Outcome()

        def note(text: str) -> None:
            said = json.loads(text)
            if "underflowed" in said:
                outcome.underflowed = said["underflowed"]
                return
            outcome.steps.append(said["step"])
            outcome.losses.append(said["loss"])
            if kill is not None and len(outcome.steps) == max(1, int(kill[1])):
                time.sleep(0.02 * (kill[1] % 1))
                self.interrupt(ranks[kill[0]], signal.SIGKILL)

        for rank, pid in enumerate(ranks):
            outcome.codes.append(self.wait(pid, None if rank else note).code)
        return outcome


def set_environment(launch: dict[str, int]) -> None:
    """As torchrun does."""
    os.environ |= {
        "RANK": str(launch["rank"]),
        "LOCAL_RANK": str(launch["rank"]),
        "WORLD_SIZE": str(launch["count"]),
        "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": str(launch["port"]),
    }


def find_free_port() -> int:
    """A port for the ranks of one training: torchrun takes the same one for all."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return free.getsockname()[1]


def prepare(modules: list[str]) -> None:
    """Import and compile, so that no process has to."""
    if modules:
        for name in modules:
            importlib.import_module(name)
        return
    import torch.distributed.fsdp  # noqa: F401 (with DTensor)
    from killed_training import prepare

    prepare()


def train(
    config: dict[str, Any],
    folder: str,
    parallel: str | None,
    launch: dict[str, int],
    options: dict[str, Any],
) -> int:
    """One rank; the first reports its steps.

    The options: ``double``, the ranks on which ``on_step`` raises and the step in which it does
    (``interrupt``, ``fail``), and ``checkpoint_every``.
    """
    import torch

    from mirrormargin.errors import RankError
    from mirrormargin.training.config import TrainingConfig
    from mirrormargin.training.loop import train_model

    rank = launch["rank"]
    if parallel is not None:
        set_environment(launch)
    if options.get("double"):
        torch.set_default_dtype(torch.float64)

    def on_step(step: int, num_steps: int, known: dict[str, Any]) -> None:
        if rank == 0:
            report(json.dumps({"step": step, "loss": known["train_loss"]}))
        if [rank, step] == options.get("interrupt"):
            raise KeyboardInterrupt
        if [rank, step] == options.get("fail"):
            raise ValueError("this rank fails")

    try:
        training = train_model(
            TrainingConfig.from_dict(config),
            folder=folder,
            parallel=parallel,  # pyright: ignore[reportArgumentType]
            checkpoint_every=options.get("checkpoint_every", 1e9),
            on_step=on_step,
        )
    except KeyboardInterrupt:
        return STOPPED
    except RankError:
        return LOST
    except ValueError as error:
        if "this rank fails" in str(error):
            return FAILED
        traceback.print_exc()
        return 1
    if rank == 0:
        report(json.dumps({"underflowed": training.underflowed}))
    return FINISHED


# -- the real torchrun


def start_torchrun(*arguments: str, options: Sequence[str] = ()) -> Any:
    """Two ranks of a module or a script, by torch's own launcher: its process."""
    launch = ["-m", "torch.distributed.run", "--nproc-per-node=2"]
    launch += [f"--master-port={find_free_port()}", *options]
    return subprocess.Popen(
        [sys.executable, *launch, *arguments],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
    )


def find_started(process: Any) -> dict[int, int]:
    """The processes of the ranks that torchrun has now, by their rank; Linux alone lists them."""
    found = {}
    children = Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split()
    for pid in map(int, children):
        try:
            variables = Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")
        except OSError:  # it has just ended
            continue
        found |= {int(one[5:]): pid for one in variables if one.startswith(b"RANK=")}
    return found
