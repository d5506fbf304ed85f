"""One training on real data: started or resumed, shown as it runs, stopped safely, summarized.

Its files are those of a mirrormargin.training.folder.TrainingFolder.
"""

from __future__ import annotations

import hashlib
import json
import shlex
from collections.abc import Sequence
from contextlib import nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Any

from mirrormargin.cli.interrupts import NotedSignals
from mirrormargin.cli.language_models import measure_unigram_loss
from mirrormargin.cli.own_data import describe_data, describe_texts
from mirrormargin.cli.terminal import (
    Progress,
    print_pairs,
    say,
    warn,
)
from mirrormargin.errors import TrainingError
from mirrormargin.training.tasks import LANGUAGE

if TYPE_CHECKING:
    from mirrormargin.data import DataSet
    from mirrormargin.training import TrainingConfig, TrainingFolder
    from mirrormargin.training.distributed import Ranks
    from mirrormargin.training.trackers import Tracker

__all__ = ["choose_device", "find_summary", "print_settings", "train_watched"]

FEW_STEPS = 30


def find_summary(
    folder: TrainingFolder, config: TrainingConfig, *, with_test: bool
) -> dict[str, Any] | None:
    """The summary that the folder holds, if it answers what is asked for."""
    summary = folder.read_summary()
    if summary is None or summary.get("digest") != config.digest():
        return None
    if not _is_unchanged(summary["data"]["sha256"], config):
        return None
    has_all = "test" in summary or not with_test or not summary.get("has_test", True)
    return summary if has_all else None


def _is_unchanged(sha256: dict[str, str], config: TrainingConfig) -> bool:
    """Whether your own file is still the one that was trained on; named data sets do not change."""
    path = Path(config.data.name)
    if path.is_absolute() and path.is_dir():
        return False  # many files: they are compared when they are loaded
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
    trackers: Sequence[Tracker],
    overwrite: bool,
    with_test: bool,
    is_default_folder: bool,
    is_quiet: bool,
    ranks: Ranks | None = None,
) -> dict[str, Any]:
    """Train or continue, show progress, evaluate, and write and return the summary.

    Of several ranks the first does all but the training, and the others return nothing.

    Raises:
        KeyboardInterrupt: On SIGINT or SIGTERM, after a checkpoint.
    """
    import torch

    from mirrormargin.runs import check_writable
    from mirrormargin.training import load_training_data, train_model
    from mirrormargin.training.folder import SUMMARY
    from mirrormargin.training.summary import summarize_training

    is_first = ranks is None or ranks.is_first
    device = choose_device(device) if ranks is None else ranks.device
    if is_first:
        check_writable(folder.path / SUMMARY, make_folders=True)
    threads_before = torch.get_num_threads()
    if threads is not None:
        torch.set_num_threads(threads)
    try:
        with Progress(1, "data", is_quiet) as progress:

            def show(done: int, total: int) -> None:
                progress.total = total
                progress.update(done, str(config.data.name))

            data = load_training_data(config, data_dir=data_dir, download=download, progress=show)
        # Till the summary is there: another command must not begin a training in between.
        with folder.hold() if is_first else nullcontext():
            if overwrite and is_first:
                folder.clear()
            if not is_quiet:
                _print_beginning(config, data, folder, device)
            with Progress(1, "train", is_quiet) as progress:
                signals = NotedSignals(is_patient=ranks is not None)
                watch = _Watch(folder, progress, config, is_quiet, signals)
                with signals.listen():
                    training = train_model(
                        config,
                        data,
                        folder,
                        device=device,
                        checkpoint_every=checkpoint_every,
                        trackers=trackers,
                        parallel=None if ranks is None else ranks.parallel,
                        on_step=watch.show_step if is_first else watch.check_signals,
                    )
                if not is_first:
                    return {}
                if signals.have_come:  # after the last step
                    raise KeyboardInterrupt
                watch.print_epochs(training.epochs)
                if not is_quiet:
                    say()
                progress.update(progress.total, "evaluating")
                summary = summarize_training(training, data, with_test=with_test, device=device)
            summary["chance"] = _measure_chance(data)
            folder.write_summary(summary)
            return summary
    except KeyboardInterrupt:
        if is_first:
            _explain_interrupt(folder, is_default_folder)
        raise
    finally:
        torch.set_num_threads(threads_before)


def _measure_chance(data: DataSet) -> dict[str, Any]:
    """The accuracy in % of always saying the most frequent class of the validation data.

    For a language model, the loss of knowing the frequencies of tokens.
    """
    if data.kind == "language":
        return {"loss": measure_unigram_loss(data)}
    labels = data.validation.labels
    largest = int(labels.bincount().max())
    return {"accuracy": round(100 * largest / len(labels), 4), "examples": len(labels)}


def choose_device(name: str) -> str:
    """The device of a name, which is cuda for auto if there is a GPU."""
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
        config: TrainingConfig,
        is_quiet: bool,
        signals: NotedSignals,
    ) -> None:
        self.folder, self.progress, self.config = folder, progress, config
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
        task = self.config.task
        text = f"epoch {self._epoch}  loss {metrics['train_loss']:.4f}"
        if task is not LANGUAGE:
            text += f"  accuracy {metrics['train_accuracy']:.2f}%"
        best = metrics[f"validation_{task.measure}"]
        if best is not None:
            name = f"{task.measure} " if task.others else ""
            text += f"  best validation {name}{task.format(best)}"
        self.progress.update(step, text)
        self.check_signals()

    def check_signals(self, *_: Any) -> None:
        """End the training if a signal has come."""
        if self.signals.have_come:
            raise KeyboardInterrupt

    def _print_finished(self) -> None:
        if self._epoch > 1:
            self.print_epochs(self.folder.read_metrics("epoch"))

    def print_epochs(self, rows: list[dict[str, Any]]) -> None:
        """Print the epochs that have not been printed yet."""
        if not self.is_quiet:
            self.progress.close()
            for row in rows[self._printed :]:
                say(_describe_epoch(row, self.config))
        self._printed = len(rows)


def _explain_interrupt(folder: TrainingFolder, is_default_folder: bool) -> None:
    step = folder.read_step()
    if step is None:
        warn("there is no checkpoint yet")
        return
    again = "" if is_default_folder else f" with --out {shlex.quote(str(folder.path))}"
    warn(f"the same command{again} continues at step {step:,}")


def print_settings(config: TrainingConfig) -> None:
    """Print every setting by the name that ``--set`` takes."""
    say(config.name)
    print_pairs({key: json.dumps(value) for key, value in config.list_values().items()})


def _print_beginning(
    config: TrainingConfig, data: DataSet, folder: TrainingFolder, device: str
) -> None:
    """A few lines about what is trained; settings at their defaults are left out."""
    model = _list_options(vars(config.model))
    batch = min(config.batch_size, len(data.train))
    steps = config.count_epoch_steps(len(data.train))
    optimizer = {key: value for key, value in vars(config.optimizer).items() if key != "name"}
    rows = {
        "data": describe_data(config, data),
        **describe_texts(config, data),
        "model": f"{type(config.model).__name__} {model}",
        "optimizer": f"{config.optimizer.name} {_list_options(optimizer)}",
        "training": f"{_count(config.epochs, 'epoch')} of {_count(steps, 'step')},"
        f" batches of {batch}, {config.schedule} learning rate, warmup {config.warmup:g}",
        "seeds": _list_options(vars(config.seeds), keep_all=True),
        "folder": str(folder.path),
    }
    if config.trainable is not None:
        rows["trained"] = f"{', '.join(config.trainable)}; everything else is frozen"
    if config.sparsifier is not None:
        options = _list_options(vars(config.sparsifier))
        rows["sparsifier"] = f"{type(config.sparsifier).__name__} {options}"
    if config.precision != "float32":
        rows["precision"] = config.precision
    if config.epochs * steps < FEW_STEPS:
        rows["warning"] = (
            f"only {_count(config.epochs * steps, 'step')} in all: try a smaller --batch-size,"
            " or more --epochs"
        )
    say(config.name)
    print_pairs(rows)
    _say_extended(config, folder)


def _say_extended(config: TrainingConfig, folder: TrainingFolder) -> None:
    """Tell that a training is made longer, and what that means for its learning rate."""
    from mirrormargin.training.config import can_extend

    if folder.status not in ("resumable", "finished"):
        return
    before = folder.read_config()
    if not can_extend(before, config):
        return
    text = f"the training of {_count(before.epochs, 'epoch')} becomes one of {config.epochs}"
    if config.schedule != "constant" or config.warmup > 0:
        text += (
            f"; its learning rate continues as if there had been {config.epochs} from the start,"
            f" so the result is not that of {config.epochs} epochs in one go"
        )
    say(text)


def _count(number: int, what: str) -> str:
    return f"{number:,} {what}" if number == 1 else f"{number:,} {what}s"


def _list_options(options: dict[str, Any], keep_all: bool = False) -> str:
    parts = []
    for key, value in options.items():
        if keep_all or value not in (None, 0, (), "constant"):
            text = f"{value:g}" if isinstance(value, float) else str(value)
            parts.append(f"{key} {text}")
    return ", ".join(parts)


def _describe_epoch(row: dict[str, Any], config: TrainingConfig) -> str:
    """One line."""
    epochs, task = config.epochs, config.task
    parts = [f"epoch {row['epoch']:>{len(str(epochs))}}/{epochs}", f"loss {row['train_loss']:.4f}"]
    if task is not LANGUAGE:
        parts.append(f"accuracy {row['train_accuracy']:.2f}%")
    measured = {name: row[f"validation_{name}"] for name in task.measures}
    parts.append(f"validation {task.describe(measured)}")
    if "test_accuracy" in row:
        parts.append(f"test {row['test_accuracy']:.2f}%")
    return "  ".join(parts)
