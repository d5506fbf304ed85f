"""``mirrormargin predict``: what a trained model says of new texts or images."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from mirrormargin.cli.options import add_report, describe
from mirrormargin.cli.trained import find_weights, load_trained_data, read_training
from mirrormargin.errors import DataError, TrainingError

if TYPE_CHECKING:
    from torch import Tensor, nn

    from mirrormargin.data import DataSet
    from mirrormargin.training.config import TrainingConfig

__all__ = ["add_parser", "run"]

WIDEST = 60  # letters of a text that a line shows
MOST = 5  # tokens that a line shows
SPECIAL = ("[CLS]", "[SEP]")
MORE = """\
inputs:
  a text        in quotes; of a model that compares two texts, both with a tab between
  an image      the path of a file of the size that the model was trained on
"""


def add_parser(commands: Any) -> None:
    parser = commands.add_parser(
        "predict",
        help="ask a model trained on real data about new texts or images",
        description="Print the class that a trained model gives to each input, how sure it is, and"
        " what it attends to.",
        **describe(
            [
                ("predict runs/imdb 'A dull film.' 'What a lovely cast!'", "two texts"),
                ("predict runs/imdb --file reviews.txt --json", "a text a line; - for stdin"),
                ("predict runs/imdb 'Not bad.' --attention", "and where the last block looks"),
                ("predict runs/digits seven.png", "an image"),
                (
                    "predict runs/imdb 'A dull film.' --weights runs/imdb/pruned-0.95.safetensors",
                    "by a pruned model",
                ),
            ],
            more=MORE,
        ),
    )
    parser.add_argument("folder", type=Path, metavar="FOLDER", help="of mirrormargin train")
    parser.add_argument("inputs", nargs="*", metavar="INPUT", help="texts or images, see below")
    parser.add_argument(
        "--file", metavar="FILE", help="more inputs, one a line, empty lines left out; - for stdin"
    )
    parser.add_argument(
        "--weights",
        default="selected",
        metavar="NAME",
        help="selected, the best on validation data; final; or a file that mirrormargin prune wrote"
        " (default: selected)",
    )
    parser.add_argument(
        "--attention",
        action="store_true",
        help=f"show the {MOST} tokens of a text that [CLS] attends to most: last block, mean of"
        " its heads",
    )
    parser.add_argument(
        "--data-dir", type=Path, metavar="FOLDER", help="where data is (default: MIRRORMARGIN_DATA)"
    )
    add_report(parser)
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    """Load the model and what its training read inputs by; print a row for each input."""
    config = read_training(arguments.folder)
    inputs = [*arguments.inputs, *_read_lines(arguments.file)]
    if not inputs:
        raise DataError("there is nothing to predict: give texts or images, or --file FILE")
    weights: str = arguments.weights
    is_own = weights in ("selected", "final")
    find_weights(arguments.folder, weights if is_own else "final")
    if not is_own and not Path(weights).is_file():
        raise TrainingError(
            f"--weights is {weights!r}: give selected, final, or a file of mirrormargin prune"
        )
    from mirrormargin.training.building import load_model
    from mirrormargin.training.evaluation import compute_probabilities

    data = load_trained_data(arguments.folder, config, arguments.data_dir)
    if arguments.attention and data.kind != "text":
        raise TrainingError("--attention shows tokens of texts, and this model reads images")
    rows = _encode(inputs, config, data, arguments.data_dir)
    model = load_model(arguments.folder, data, weights)
    answers = []
    for number, shares in enumerate(compute_probabilities(model, rows).tolist()):
        best = max(range(len(shares)), key=shares.__getitem__)
        answer = {
            "input": inputs[number],
            "class": data.classes[best],
            "probability": round(shares[best], 6),
            "probabilities": dict(
                zip(data.classes, (round(share, 6) for share in shares), strict=True)
            ),
        }
        if arguments.attention:
            answer["attention"] = _look(model, data, rows[number])
        answers.append(answer)
    _print(answers, arguments)
    return 0


def _read_lines(name: str | None) -> list[str]:
    if name is None:
        return []
    try:
        text = sys.stdin.read() if name == "-" else Path(name).read_text(encoding="utf-8-sig")
    except UnicodeDecodeError as error:
        raise DataError(f"{name} is no text in UTF-8: {error.reason}") from error
    except OSError as error:
        raise DataError(f"{name} cannot be read: {error.strerror}") from error
    return [line for line in text.splitlines() if line.strip()]


def _encode(
    inputs: list[str], config: TrainingConfig, data: DataSet, data_dir: Path | None
) -> Tensor:
    from mirrormargin.data import encode_images, encode_texts

    if data.kind == "image":
        return encode_images([Path(name) for name in inputs], data)
    return encode_texts(inputs, data, keep=config.data.keep, data_dir=data_dir)


def _look(model: nn.Module, data: DataSet, row: Tensor) -> list[list[Any]]:
    """Tokens and the attention of [CLS] on them."""
    from mirrormargin.training.token_selection import attend

    assert data.vocabulary is not None
    ids = row[row != 0].tolist()  # [PAD] is 0
    tokens = [data.vocabulary[number] for number in ids]
    weights = attend(model, ids)
    return [[token, round(weight, 6)] for token, weight in zip(tokens, weights, strict=True)]


def _print(answers: list[dict[str, Any]], arguments: argparse.Namespace) -> None:
    from mirrormargin.cli.tables import print_json, print_table

    if arguments.json:
        print_json({"folder": str(arguments.folder), "predictions": answers})
        return
    names = ["class", "probability", *["attends to"] * arguments.attention, "input"]
    rows = []
    for answer in answers:
        text = " ".join(answer["input"].split())
        cells = [answer["class"], f"{answer['probability']:.1%}"]
        if arguments.attention:
            words = [pair for pair in answer["attention"] if pair[0] not in SPECIAL]
            words = sorted(words, key=lambda pair: -pair[1])[:MOST]
            cells.append(" ".join(f"{word} {weight:.2f}" for word, weight in words))
        rows.append([*cells, text if len(text) <= WIDEST else f"{text[: WIDEST - 3].rstrip()}..."])
    print_table(names, rows)
