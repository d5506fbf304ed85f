"""``mirrormargin train <data set>/<size>``: one training on real data, in a folder of its own.

Its files are those of a mirrormargin.training.folder.TrainingFolder.
"""

from __future__ import annotations

import argparse
import hashlib
import shlex
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from mirrormargin.cli.progress import Progress
from mirrormargin.cli.real_options import read_config
from mirrormargin.cli.real_table import describe_epoch, describe_settings, print_summary
from mirrormargin.cli.signals import Signals
from mirrormargin.cli.tables import print_json
from mirrormargin.errors import TrainingError
from mirrormargin.training.folder import SUMMARY, TrainingFolder

if TYPE_CHECKING:
    from mirrormargin.data import DataSet
    from mirrormargin.training.config import TrainingConfig
    from mirrormargin.training.loop import Training

__all__ = ["train_real"]

CHECKPOINT_EVERY = 30.0


def train_real(arguments: argparse.Namespace) -> int:
    """Train, or go on, or look at what is done; then print what came out."""
    config = read_config(arguments)
    if config.paper_protocol and arguments.no_test:
        raise TrainingError(
            "--paper-protocol looks at test data after every epoch, --no-test never: leave out one"
        )
    folder: Path = arguments.out or TrainingFolder.choose(config).path
    summary = _find_summary(folder, config, with_test=not arguments.no_test)
    if summary is None:
        summary = _train(arguments, config, folder)
    elif not (arguments.json or arguments.quiet):
        print(f"{folder} holds this training already\n")
    if arguments.json:
        print_json({"folder": str(folder), **summary})
        return 0
    print_summary(summary)
    if not arguments.quiet:
        place = shlex.quote(str(folder))
        print(f"\n{folder} has the weights; to remove most of them, or to use them:")
        print(f"  mirrormargin prune {place} --share 0.95")
        print(f"  mirrormargin predict {place} INPUT")
    return 0


def _find_summary(
    folder: Path, config: TrainingConfig, *, with_test: bool
) -> dict[str, Any] | None:
    """What is asked for, if it is there."""
    summary = TrainingFolder(folder).read_summary()
    if summary is None or summary.get("digest") != config.digest():
        return None
    if not _is_unchanged(summary["data"]["sha256"], config):
        return None
    return summary if "test" in summary or not with_test else None


def _is_unchanged(sha256: dict[str, str], config: TrainingConfig) -> bool:
    """Whether your own file is still the one that was trained on; named data sets do not change."""
    path = Path(config.data.name)
    if path.is_absolute() and path.is_dir():
        return False  # many files: loading them tells
    if not path.is_file():
        return True
    return hashlib.sha256(path.read_bytes()).hexdigest() in sha256.values()


def _train(arguments: argparse.Namespace, config: TrainingConfig, folder: Path) -> dict[str, Any]:
    import torch

    from mirrormargin.cli.destination import check_writable
    from mirrormargin.training.building import load_training_data
    from mirrormargin.training.loop import train_model

    device = _choose_device(arguments.device)
    check_writable(folder / SUMMARY)
    threads = torch.get_num_threads()
    if arguments.threads is not None:
        torch.set_num_threads(arguments.threads)
    is_quiet = arguments.quiet or arguments.json
    try:
        with Progress(1, "data", is_quiet) as progress:

            def show(done: int, total: int) -> None:
                progress.total = total
                progress.update(done, str(config.data.name))

            data = load_training_data(
                config,
                data_dir=arguments.data_dir,
                download=arguments.download,
                progress=show,
            )
        if not is_quiet:
            print(describe_settings(config, data, folder), flush=True)
        every = arguments.checkpoint_every
        with Progress(1, "train", is_quiet) as progress:
            signals = Signals()
            watch = _Watch(folder, progress, config.epochs, is_quiet, signals)
            with signals.listen():
                training = train_model(
                    config,
                    data,
                    folder,
                    device=device,
                    checkpoint_every=CHECKPOINT_EVERY if every is None else every,
                    tensorboard=arguments.tensorboard,
                    on_step=watch.show_step,
                )
            if signals.have_come:  # after the last step
                raise KeyboardInterrupt
            watch.print_epochs(training.epochs)
            progress.update(progress.total, "evaluating")
            return _summarize(training, data, folder, arguments, device)
    except KeyboardInterrupt:
        _explain_interrupt(folder, arguments.out is None)
        raise
    finally:
        torch.set_num_threads(threads)


def _choose_device(name: str | None) -> str:
    import torch

    if name == "cuda" and not torch.cuda.is_available():
        raise TrainingError("there is no CUDA device: leave --device out, or give --device cpu")
    if name in (None, "auto"):
        return "cuda" if torch.cuda.is_available() else "cpu"
    return name


class _Watch:
    """Shows how far a training is, prints a line for each epoch, and ends it on a signal."""

    def __init__(
        self, folder: Path, progress: Progress, epochs: int, is_quiet: bool, signals: Signals
    ) -> None:
        self.folder, self.progress, self.epochs = folder, progress, epochs
        self.is_quiet, self.signals = is_quiet, signals
        self._epoch = 0
        self._printed = 0

    def show_step(self, step: int, steps: int, metrics: dict[str, Any]) -> None:
        if self._epoch == 0 and step > 1 and not self.is_quiet:
            print(f"resumed at step {step - 1:,} of {steps:,}", flush=True)
        if metrics["epoch"] != self._epoch:
            self._epoch = metrics["epoch"]
            self._print_finished()
        self.progress.total = steps
        text = f"epoch {self._epoch}  loss {metrics['train_loss']:.4f}"
        text += f"  accuracy {metrics['train_accuracy']:.2f}%"
        if metrics["validation_accuracy"] is not None:
            text += f"  best validation {metrics['validation_accuracy']:.2f}%"
        self.progress.update(step, text)
        if self.signals.have_come:
            raise KeyboardInterrupt

    def _print_finished(self) -> None:
        if self._epoch > 1:
            self.print_epochs(TrainingFolder(self.folder).read_metrics("epoch"))

    def print_epochs(self, rows: list[dict[str, Any]]) -> None:
        """Those that have not been printed yet."""
        if not self.is_quiet:
            self.progress.close()
            for row in rows[self._printed :]:
                print(describe_epoch(row, self.epochs), flush=True)
        self._printed = len(rows)


def _summarize(
    training: Training,
    data: DataSet,
    folder: Path,
    arguments: argparse.Namespace,
    device: str,
) -> dict[str, Any]:
    from mirrormargin.training.summary import summarize_training

    summary = summarize_training(
        training,
        data,
        with_test=not arguments.no_test,
        device=device,
    )
    TrainingFolder(folder).write_summary(summary)
    return summary


def _explain_interrupt(folder: Path, is_default: bool) -> None:
    step = TrainingFolder(folder).read_step()
    if step is None:
        print("mirrormargin: there is no checkpoint yet", file=sys.stderr)
        return
    again = "the same command" + ("" if is_default else f" with --out {folder}")
    print(f"mirrormargin: {again} goes on at step {step:,}", file=sys.stderr)
