"""``mirrormargin train``: a model on real data, by a configuration such as ``imdb/small``.

An option is either a short name of a setting (``--lr 0.001`` is ``--set optimizer.lr=0.001``) or
says where and how to compute, which does not change the result.
"""

from __future__ import annotations

import math
import shlex
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

from cyclopts import App, Parameter

from mirrormargin.arguments import check_number
from mirrormargin.cli.options import (
    OUTPUT,
    Count,
    DataFolder,
    Download,
    Json,
    Number,
    Quiet,
    Threads,
    show_examples,
)
from mirrormargin.cli.own_data import fit_to_own_data, has_small_batches
from mirrormargin.cli.prune import find_share
from mirrormargin.cli.ranks import is_follower, is_restarted, join_command
from mirrormargin.cli.terminal import print_json, say
from mirrormargin.cli.training_options import (
    COMPUTING,
    DATA,
    LENGTH,
    SettingOptions,
    TrackerName,
    make_trackers,
    read_config,
    read_kept_config,
    refuse_others,
)
from mirrormargin.cli.training_summary import print_summary
from mirrormargin.cli.watched_training import find_summary, print_settings, train_watched
from mirrormargin.errors import MirrorMarginError, TrainingError
from mirrormargin.training.configurations import CONFIGURATIONS
from mirrormargin.training.launch import Parallel
from mirrormargin.training.tasks import LANGUAGE, read_task

if TYPE_CHECKING:
    pass

__all__ = ["app", "train"]

AS_CONFIGURED = SettingOptions()
DEFAULT_FOLDER = "runs/DATA-SIZE-DIGEST"  # as TrainingFolder.choose names it
FOLDER_TEXT = (
    "The configuration has all settings that are not given. The folder of a training,"
    f" {DEFAULT_FOLDER} without --out, keeps checkpoints: the same command resumes a"
    " training that was stopped or killed, to the same bits, and prints the results of one that"
    " has ended. With --out and more --epochs, one that has ended is trained further."
    "\n\nWith --data, and unless you give them, --num-train is all of your data, and --batch-size"
    " and --epochs are chosen for its size."
)


def _list_configurations() -> str:
    lines = ["configurations:"]
    for data in dict.fromkeys(name.partition("/")[0] for name in CONFIGURATIONS):
        names = [name for name in CONFIGURATIONS if name.startswith(f"{data}/")]
        lines.append(f"  {', '.join(names)}")
    return "\n".join([*lines, "", FOLDER_TEXT])


app = App(
    name="train",
    **show_examples(
        (
            ("train digits/tiny", "a small vision transformer, in seconds, nothing to download"),
            ("train imdb/small --p 1.1 --seed 1", "a text transformer; called again, it continues"),
            ("train imdb/small --data reviews.csv --out runs/mine", "the same on your own texts"),
            ("train shakespeare/char --threads 1", "a language model, which continues a text"),
            ("train --resume runs/mine --epochs 20", "and further"),
            ("train imdb/small --optimizer AdamW --show", "the settings, without training"),
        ),
        more=_list_configurations(),
    ),
)


@app.default
def train(
    configuration: Annotated[
        str | None, Parameter(completer=lambda _: list(CONFIGURATIONS))
    ] = None,
    /,
    *,
    seed: Annotated[Count | None, Parameter(group=LENGTH, metavar="SEED")] = None,
    set_: Annotated[
        tuple[str, ...], Parameter(name="--set", metavar="NAME=VALUE", group=LENGTH)
    ] = (),
    settings: SettingOptions = AS_CONFIGURED,
    data_dir: Annotated[DataFolder | None, Parameter(group=DATA)] = None,
    download: Annotated[Download, Parameter(group=DATA)] = False,
    no_test: Annotated[bool, Parameter(group=DATA)] = False,
    device: Annotated[Literal["auto", "cpu", "cuda"], Parameter(group=COMPUTING)] = "auto",
    threads: Annotated[Threads | None, Parameter(group=COMPUTING)] = None,
    parallel: Annotated[
        Parallel | None, Parameter(group=COMPUTING, show_default="ddp under torchrun")
    ] = None,
    checkpoint_every: Annotated[Number, Parameter(group=COMPUTING, metavar="SECONDS")] = 30.0,
    out: Annotated[
        Path | None, Parameter(group=OUTPUT, metavar="FOLDER", show_default=DEFAULT_FOLDER)
    ] = None,
    overwrite: Annotated[bool, Parameter(group=OUTPUT)] = False,
    resume: Annotated[Path | None, Parameter(group=OUTPUT, metavar="FOLDER")] = None,
    tracker: Annotated[tuple[TrackerName, ...], Parameter(group=OUTPUT)] = (),
    tensorboard: Annotated[bool, Parameter(group=OUTPUT)] = False,
    show: Annotated[bool, Parameter(group=OUTPUT)] = False,
    json: Json = False,
    quiet: Quiet = False,
) -> int:
    """Train a transformer on real data, and show what it reached.

    Args:
        configuration: DATA/SIZE, see below; left out with --resume.
        seed: Seed of initial weights, order and dropout.
        set_: Any setting, such as optimizer.scale=0.1, model.dropout=0 or
            sparsifier={"kind": "L1Penalty", "strength": 3e-5}; may be repeated. --show lists all.
        no_test: Do not evaluate on test data.
        device: Where to compute; auto takes a GPU if there is one.
        parallel: Under torchrun, how its processes share the training: ddp has all weights in each
            of them, fsdp a part of every tensor. The result is that of one process.
        checkpoint_every: Time between checkpoints, the most that a killed training loses.
        out: Train in this folder, or continue there.
        overwrite: Replace the training that is in the folder.
        resume: Resume the training in this folder by its own settings; --epochs N trains one that
            has ended further, up to N epochs in all.
        tracker: Tell the metrics to it as well; may be repeated. tensorboard writes events to the
            folder, mlflow and wandb go where these libraries are set to.
        tensorboard: Short for --tracker tensorboard.
        show: Print all settings and train nothing.
    """
    if resume is not None:
        refuse_others(configuration, seed, set_, settings, out, overwrite)
        config, out = read_kept_config(resume, settings.epochs), resume
    elif configuration is None:
        raise TrainingError(
            "CONFIGURATION is missing: give one such as imdb/small, see mirrormargin train --help,"
            " or --resume FOLDER"
        )
    else:
        config, given = read_config(configuration, seed, set_, settings)
        config = fit_to_own_data(config, given, data_dir, download)
    if config.paper_protocol and no_test:
        raise TrainingError(
            "--paper-protocol looks at test data after every epoch, --no-test never: leave out one"
        )
    check_number(
        "--checkpoint-every", checkpoint_every, least=0.0, most=math.inf, error=TrainingError
    )
    if show:
        if not is_follower():
            print_json(config.as_dict()) if json else print_settings(config)
        return 0
    # Before anything is trained, so that a missing library costs nothing.
    trackers = make_trackers((*tracker, "tensorboard") if tensorboard else tracker)
    from mirrormargin.training.folder import TrainingFolder

    folder = TrainingFolder.choose(config) if out is None else TrainingFolder(out)
    with join_command(parallel, device) as ranks:
        is_first = ranks is None or ranks.is_first
        # What a first attempt has trained is resumed, not replaced.
        overwrite = overwrite and not is_restarted()
        summary = None
        if is_first and not overwrite:
            with _blame_summary(folder.path):
                summary = find_summary(folder, config, with_test=not no_test)
        is_done = summary is not None
        if ranks is not None:
            is_done = ranks.broadcast(is_done)
        if not is_done:
            summary = train_watched(
                config,
                folder,
                device=device,
                threads=1 if threads is None and has_small_batches(config) else threads,
                data_dir=data_dir,
                download=download,
                checkpoint_every=checkpoint_every,
                trackers=trackers if is_first else (),
                overwrite=overwrite,
                with_test=not no_test,
                is_default_folder=out is None,
                is_quiet=quiet or json or not is_first,
                ranks=ranks,
            )
    if not summary:
        return 0
    if is_done and not (json or quiet):
        say(f"{folder.path} holds this training already\n")
    if json:
        print_json({"folder": str(folder.path), **summary})
        return 0
    with _blame_summary(folder.path):
        print_summary(summary)
        if not quiet:
            _say_next(folder.path, summary)
    return 0


@contextmanager
def _blame_summary(folder: Path) -> Iterator[None]:
    """Say of a summary that it is damaged where its parts are not what they should be."""
    try:
        yield
    except MirrorMarginError:
        raise
    except (LookupError, TypeError, ValueError, AttributeError, ArithmeticError) as error:
        raise TrainingError(
            f"the summary in {folder} is damaged ({error!r}): remove it, and mirrormargin train"
            " writes it again"
        ) from error


def _say_next(folder: Path, summary: dict[str, Any]) -> None:
    """What can be done with the weights; pruning only where the summary has shown that it can."""
    quoted, found = shlex.quote(str(folder)), find_share(summary)
    is_centred = summary["config"]["optimizer"].get("center", False)
    groups = (summary["config"].get("sparsifier") or {}).get("groups")
    is_grouped = groups in ("heads", "units", "heads+units")
    more = "" if found is None else ", or to prune them"
    more = ", or to keep few changes of the pretrained ones" if is_centred else more
    more = ", or to make it smaller by what has become zero" if is_grouped else more
    say(f"\n{folder} has the weights. To use them{more}:")
    is_language = read_task(summary["config"]) is LANGUAGE
    say(f"  mirrormargin predict {quoted} {'--text TEXT' if is_language else 'INPUT'}")
    if is_grouped:
        say(f"  mirrormargin shrink {quoted}")
    elif is_centred:
        say(f"  mirrormargin delta {quoted} --tolerance 1 --evaluate")
    elif found is not None:
        is_last = summary["selected_epoch"] == len(summary["epochs"])
        which = "" if is_last else " --weights final"
        say(f"  mirrormargin prune {quoted} --share {found[0]:g}{which}")
