"""Options of a training on real data, and the configuration that they ask for.

Each is a short name of a setting (``--lr 0.001`` is ``--set optimizer.lr=0.001``), or says how to
train without any effect on the result.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from mirrormargin.cli.options import read_count, read_number, read_positive
from mirrormargin.errors import TrainingError
from mirrormargin.training.config import OPTIMIZERS
from mirrormargin.training.configurations import CONFIGURATIONS, find_configuration

if TYPE_CHECKING:
    from mirrormargin.training.config import TrainingConfig

__all__ = ["CONFIGURATION_LIST", "add_real_options", "check_kind", "is_real", "read_config"]

MIRROR = ("MirrorDescent", "MirrorAdam", "Polyak")  # those that have a p
ADAPTIVE = ("MirrorAdam", "Adam", "AdamW")  # those that have the same learning rates
# Option -> setting.
SETTINGS = {
    "optimizer": "optimizer.name",
    "lr": "optimizer.lr",
    "p": "optimizer.p",
    "momentum": "optimizer.momentum",
    "weight_decay": "optimizer.weight_decay",
    "epochs": "epochs",
    "batch_size": "batch_size",
    "schedule": "schedule",
    "warmup": "warmup",
    "seed_init": "seeds.init",
    "seed_order": "seeds.order",
    "seed_dropout": "seeds.dropout",
    "stop_accuracy": "stop_accuracy",
    "paper_protocol": "paper_protocol",
    "data": "data.name",
    "length": "data.length",
    "num_train": "data.num_train",
    "text_column": "data.text_column",
    "label_column": "data.label_column",
    "compile": "compile",
    "precision": "precision",
}
SHARED = ("p", "lr", "seed", "threads", "out", "json", "quiet")  # with the lab
OTHERS = (
    "set",
    "data_dir",
    "download",
    "device",
    "tensorboard",
    "checkpoint_every",
    "no_test",
)
REAL_ONLY = (*(name for name in SETTINGS if name not in SHARED), *OTHERS)
LAB_ONLY = (
    "step_rule",
    "steps",
    "eps",
    "max_lr",
    "init_std",
    "init_seeds",
    "joint",
    "decay",
    "head_decay",
    "parameterization",
    "rank",
    "record",
    "keep_path",
    "overwrite",
    "resume",
)
FOLDER_TEXT = """\
A configuration says all that is not given; --p, --lr and --seed then take one value. The folder of
a training, runs/CONFIGURATION-DIGEST without --out, keeps checkpoints: the same command goes on
where a stopped or killed one was, to the same bits, and prints the results of one that has ended.
"""


def _list_configurations() -> str:
    lines = ["configurations, of real data:"]
    sets = dict.fromkeys(name.partition("/")[0] for name in CONFIGURATIONS)
    for data in sets:
        names = [name for name in CONFIGURATIONS if name.startswith(f"{data}/")]
        lines.append(f"  {', '.join(names)}")
    return "\n".join([*lines, "", FOLDER_TEXT])


CONFIGURATION_LIST = _list_configurations()


def is_real(target: str | None) -> bool:
    """Whether that is, or was meant to be, the name of a configuration."""
    if target is None or target.startswith("lab/") or target.endswith((".npz", ".json")):
        return False
    if any(name == target or name.startswith(f"{target}/") for name in CONFIGURATIONS):
        return True
    return target.count("/") == 1 and not Path(target).exists()


def check_kind(arguments: argparse.Namespace, *, real: bool) -> None:
    """Options of the other kind of training would have no effect: they are a mistake.

    Raises:
        TrainingError: If one is given.
    """
    for name in LAB_ONLY if real else REAL_ONLY:
        value = getattr(arguments, name)
        if value is None or value is False:
            continue
        option = f"--{name.replace('_', '-')}"
        if real:
            raise TrainingError(
                f"{option} is for problems of the lab, and {arguments.problem} is a configuration"
                " of real data: leave it out (--set changes any setting, --out resumes)"
            )
        raise TrainingError(
            f"{option} is for configurations of real data, such as imdb/small, and not for"
            f" {arguments.problem or 'a problem of the lab'}: leave it out"
        )


def add_real_options(parser: argparse.ArgumentParser) -> None:
    """All that the lab does not have."""
    group = parser.add_argument_group("real data: what is trained")
    group.add_argument(
        "--set",
        action="append",
        metavar="NAME=VALUE",
        help="any setting, such as optimizer.scale=0.1, model.dropout=0 or"
        """ sparsifier={"kind": "L1Penalty", "strength": 3e-5}; may be repeated""",
    )
    group.add_argument("--optimizer", choices=OPTIMIZERS, help="instead of the configuration's")
    group.add_argument(
        "--momentum", type=read_number, metavar="M", help="of MirrorDescent, SGD and SNGD"
    )
    group.add_argument(
        "--weight-decay",
        type=read_number,
        metavar="RATE",
        help="weight decay; decoupled for AdamW and MirrorAdam",
    )
    group.add_argument("--epochs", type=read_positive, metavar="N", help="passes through the data")
    group.add_argument("--batch-size", type=read_positive, metavar="N", help="examples in a step")
    group.add_argument(
        "--schedule", choices=("constant", "cosine"), help="of the learning rate, after its warmup"
    )
    group.add_argument("--warmup", type=read_number, metavar="SHARE", help="of all steps")
    for name, meaning in (
        ("init", "initial weights"),
        ("order", "the order of the data"),
        ("dropout", "dropout and augmentation"),
    ):
        group.add_argument(
            f"--seed-{name}", type=read_count, metavar="SEED", help=f"of {meaning} alone"
        )
    group.add_argument(
        "--stop-accuracy", type=read_number, metavar="SHARE", help="end at this training accuracy"
    )
    group.add_argument(
        "--paper-protocol", action="store_true", help="evaluate on test data after every epoch"
    )
    group.add_argument("--compile", action="store_true", help="compile the model (torch.compile)")
    group.add_argument(
        "--precision", choices=("float32", "mixed"), help="mixed is bfloat16, on a GPU"
    )
    group = parser.add_argument_group("real data: where it is, how to compute")
    group.add_argument(
        "--data",
        metavar="FILE",
        help="other data: the name of a data set, a file .jsonl, .csv or .tsv of texts, or a folder"
        " with a folder of images for each class",
    )
    group.add_argument("--text-column", metavar="NAME", help="in your file (default: text)")
    group.add_argument("--label-column", metavar="NAME", help="in your file (default: label)")
    group.add_argument("--length", type=read_positive, metavar="N", help="tokens kept of a text")
    group.add_argument(
        "--num-train", type=read_positive, metavar="N", help="examples to learn from"
    )
    group.add_argument(
        "--data-dir", type=Path, metavar="FOLDER", help="where data is (default: MIRRORMARGIN_DATA)"
    )
    group.add_argument("--download", action="store_true", help="fetch data that is absent")
    group.add_argument("--device", choices=("auto", "cpu", "cuda"), help="(default: auto)")
    group.add_argument("--tensorboard", action="store_true", help="write TensorBoard events too")
    group.add_argument(
        "--checkpoint-every",
        type=read_number,
        metavar="SECONDS",
        help="what a killed training loses at most (default: 30)",
    )
    group.add_argument("--no-test", action="store_true", help="leave the test data alone")


def read_config(arguments: argparse.Namespace) -> TrainingConfig:
    """The configuration with all that is given.

    Raises:
        TrainingError: If there is no such configuration or setting, one is given twice, or has no
            such value.
    """
    from mirrormargin.training.settings import override, parse_override

    config = find_configuration(arguments.problem)
    changes = _read_short(arguments)
    if "optimizer.name" in changes and changes["optimizer.name"] != config.optimizer.name:
        is_alike = {arguments.optimizer, config.optimizer.name} <= set(ADAPTIVE)
        given = [text.partition("=")[0] for text in arguments.set or ()]
        if not is_alike and arguments.lr is None and "optimizer.lr" not in given:
            raise TrainingError(
                f"--optimizer {arguments.optimizer} needs a learning rate: add --lr, for that of"
                f" {config.name}, {config.optimizer.lr:g}, is for {config.optimizer.name}"
            )
        # Options of the configuration's own optimizer mean nothing to another one.
        config = override(
            config,
            {
                "optimizer.p": config.optimizer.p if arguments.optimizer in MIRROR else 2.0,
                "optimizer.momentum": 0.0,
                "optimizer.weight_decay": 0.0,
                "optimizer.scale": None,
                "optimizer.step_rule": "constant",
                "optimizer.max_lr": None,
                "optimizer.groups": [],
            },
        )
    for text in arguments.set or ():
        name, value = parse_override(text)
        if name in changes:
            raise TrainingError(f"{name} is given twice: leave out one of the two")
        changes[name] = value
    config = override(config, changes)
    for option in ("text_column", "label_column"):
        if SETTINGS[option] in changes and not Path(config.data.name).is_file():
            raise TrainingError(
                f"--{option.replace('_', '-')} is for a file of your own, but the data is"
                f" {config.data.name}: leave it out, or give --data"
            )
    return config


def _read_short(arguments: argparse.Namespace) -> dict[str, Any]:
    changes: dict[str, Any] = {}
    if arguments.seed is not None:
        seed = _single(arguments.seed, "--seed")
        changes = dict.fromkeys(("seeds.init", "seeds.order", "seeds.dropout"), seed)
    for option, setting in SETTINGS.items():
        value = getattr(arguments, option)
        if value is None or value is False:
            continue
        if option in ("p", "lr"):
            value = _single(value, f"--{option}")
        changes[setting] = _find_path(value) if option == "data" else value
    return changes


def _find_path(data: str) -> str:
    """The whole path of your own data: results are of use wherever they are looked at from."""
    from mirrormargin.data import DATA_SETS

    path = Path(data).expanduser()
    return data if data in DATA_SETS or not path.exists() else str(path.resolve())


def _single(values: Sequence[Any], option: str) -> Any:
    if len(values) > 1:
        raise TrainingError(
            f"{option} is given {len(values)} values, but real data is trained on once at a time:"
            " give one"
        )
    return values[0]
