"""One training on real data, in a folder of its own: watched, and ended where nothing is lost.

Its files are those of a mirrormargin.training.folder.TrainingFolder.
"""

from __future__ import annotations

import hashlib
import shlex
from pathlib import Path
from typing import TYPE_CHECKING, Any

from mirrormargin.cli.interrupts import NotedSignals
from mirrormargin.cli.options import check_writable
from mirrormargin.cli.summary import describe_epoch, print_training
from mirrormargin.cli.terminal import Progress, say, warn
from mirrormargin.errors import TrainingError
from mirrormargin.training.folder import SUMMARY, TrainingFolder

if TYPE_CHECKING:
    from mirrormargin.training.config import TrainingConfig

__all__ = ["find_summary", "train_watched"]


def find_summary(
    folder: TrainingFolder, config: TrainingConfig, *, with_test: bool
) -> dict[str, Any] | None:
    """What is asked for, if it is there."""
    summary = folder.read_summary()
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


def train_watched(
    config: TrainingConfig,
    folder: TrainingFolder,
    *,
    device: str,
    threads: int | None,
    data_dir: Path | None,
    download: bool,
    checkpoint_every: float,
    tensorboard: bool,
    with_test: bool,
    is_default_folder: bool,
    is_quiet: bool,
) -> dict[str, Any]:
    """Train or continue, show progress, evaluate, and write and return the summary.

    Raises:
        KeyboardInterrupt: On SIGINT or SIGTERM, after a checkpoint.
    """
    import torch

    from mirrormargin.training.building import load_training_data
    from mirrormargin.training.loop import train_model
    from mirrormargin.training.summary import summarize_training

    device = _choose_device(device)
    check_writable(folder.path / SUMMARY)
    threads_before = torch.get_num_threads()
    if threads is not None:
        torch.set_num_threads(threads)
    try:
        with Progress(1, "data", is_quiet) as progress:

            def show(done: int, total: int) -> None:
                progress.total = total
                progress.update(done, str(config.data.name))

            data = load_training_data(config, data_dir=data_dir, download=download, progress=show)
        if not is_quiet:
            print_training(config, data, folder.path)
        with Progress(1, "train", is_quiet) as progress:
            signals = NotedSignals()
            watch = _Watch(folder, progress, config.epochs, is_quiet, signals)
            with signals.listen():
                training = train_model(
                    config,
                    data,
                    folder,
                    device=device,
                    checkpoint_every=checkpoint_every,
                    tensorboard=tensorboard,
                    on_step=watch.show_step,
                )
            if signals.have_come:  # after the last step
                raise KeyboardInterrupt
            watch.print_epochs(training.epochs)
            if not is_quiet:
                say()
            progress.update(progress.total, "evaluating")
            summary = summarize_training(training, data, with_test=with_test, device=device)
        folder.write_summary(summary)
        return summary
    except KeyboardInterrupt:
        _explain_interrupt(folder, is_default_folder)
        raise
    finally:
        torch.set_num_threads(threads_before)


def _choose_device(name: str) -> str:
    import torch

    if name == "cuda" and not torch.cuda.is_available():
        raise TrainingError("there is no CUDA device: leave --device out, or give --device cpu")
    if name == "auto":
        return "cuda" if torch.cuda.is_available() else "cpu"
    return name


class _Watch:
    """Shows how far a training is, prints a line for each epoch, and ends it on a signal."""

    def __init__(
        self,
        folder: TrainingFolder,
        progress: Progress,
        epochs: int,
        is_quiet: bool,
        signals: NotedSignals,
    ) -> None:
        self.folder, self.progress, self.epochs = folder, progress, epochs
        self.is_quiet, self.signals = is_quiet, signals
        self._epoch = 0
        self._printed = 0

    def show_step(self, step: int, steps: int, metrics: dict[str, Any]) -> None:
        if self._epoch == 0 and step > 1 and not self.is_quiet:
            self.progress.close()
            say(f"resumed at step {step - 1:,} of {steps:,}")
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
            self.print_epochs(self.folder.read_metrics("epoch"))

    def print_epochs(self, rows: list[dict[str, Any]]) -> None:
        """Those that have not been printed yet."""
        if not self.is_quiet:
            self.progress.close()
            for row in rows[self._printed :]:
                say(describe_epoch(row, self.epochs))
        self._printed = len(rows)


def _explain_interrupt(folder: TrainingFolder, is_default_folder: bool) -> None:
    step = folder.read_step()
    if step is None:
        warn("there is no checkpoint yet")
        return
    again = "" if is_default_folder else f" with --out {shlex.quote(str(folder.path))}"
    warn(f"the same command{again} continues at step {step:,}")
