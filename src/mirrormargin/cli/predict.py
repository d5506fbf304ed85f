"""``mirrormargin predict``: what a trained model says of new texts or images."""

from __future__ import annotations

import argparse
import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from mirrormargin.cli.options import add_report, describe
from mirrormargin.cli.trained import add_training, find_weights, read_training
from mirrormargin.errors import DataError, TrainingError

if TYPE_CHECKING:
    from torch import Tensor, nn

    from mirrormargin.data import InputForm

__all__ = ["add_parser", "run"]

WIDEST = 60  # letters of a text that a line shows
MOST = 5  # tokens that a line shows
SPECIAL = ("[CLS]", "[SEP]")
MORE = """\
inputs:
  a text        in quotes; of a model that compares two texts, both with a tab between. What is
                longer than the texts of training is cut as they were.
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
                ("predict runs/imdb --lines reviews.txt --json", "a text a line"),
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
    add_training(parser)
    parser.add_argument("inputs", nargs="+", metavar="INPUT", help="texts or images, see below")
    parser.add_argument(
        "--lines",
        action="store_true",
        help="each INPUT is a file of inputs, one a line, empty lines left out; - for stdin",
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
    add_report(parser)
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    """Load the model and how it reads inputs; print a row for each input."""
    read_training(arguments.folder)
    inputs: list[str] = arguments.inputs
    if arguments.lines:
        inputs = [line for name in inputs for line in _read_lines(name)]
    if not inputs:
        raise DataError(f"{', '.join(arguments.inputs)}: there is nothing in it to predict")
    weights: str = arguments.weights
    is_own = weights in ("selected", "final")
    find_weights(arguments.folder, weights if is_own else "final")
    if not is_own and not os.path.isfile(weights):
        raise TrainingError(
            f"--weights is {weights!r}: give selected, final, or a file of mirrormargin prune"
        )
    from mirrormargin.training.building import load_model
    from mirrormargin.training.evaluation import compute_probabilities
    from mirrormargin.training.folder import TrainingFolder

    form = TrainingFolder(arguments.folder).read_inputs()
    if arguments.attention and form.kind != "text":
        raise TrainingError("--attention shows tokens of texts, and this model reads images")
    rows = _encode(inputs, form)
    model = load_model(arguments.folder, form, weights)
    answers = []
    for number, shares in enumerate(compute_probabilities(model, rows).tolist()):
        best = max(range(len(shares)), key=shares.__getitem__)
        answer = {
            "input": inputs[number],
            "class": form.classes[best],
            "probability": round(shares[best], 6),
            "probabilities": dict(
                zip(form.classes, (round(share, 6) for share in shares), strict=True)
            ),
        }
        if arguments.attention:
            answer["attention"] = _look(model, form, rows[number])
        answers.append(answer)
    _print(answers, arguments)
    return 0


def _read_lines(name: str) -> list[str]:
    try:
        if name == "-":
            contents = b"" if sys.stdin is None else sys.stdin.buffer.read()
        else:
            contents = Path(name).read_bytes()
        text = contents.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise DataError(f"{name} is no text in UTF-8: {error.reason}") from error
    except OSError as error:
        raise DataError(f"{name!r} cannot be read: {error.strerror}") from error
    # Not splitlines: texts hold other characters that it takes for ends of lines.
    return [line.rstrip("\r") for line in text.split("\n") if line.strip()]


def _encode(inputs: list[str], form: InputForm) -> Tensor:
    from mirrormargin.data import encode_images, encode_texts

    if form.kind == "image":
        return encode_images([Path(name) for name in inputs], form)
    return encode_texts(inputs, form)


def _look(model: nn.Module, form: InputForm, row: Tensor) -> list[list[Any]]:
    """Tokens and the attention of [CLS] on them."""
    from mirrormargin.training.token_selection import attend

    assert form.vocabulary is not None
    ids = row[row != 0].tolist()  # [PAD] is 0
    tokens = [form.vocabulary[number] for number in ids]
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
        text = "".join(letter if letter.isprintable() else "?" for letter in text)
        cells = [answer["class"], f"{answer['probability']:.1%}"]
        if arguments.attention:
            words = [pair for pair in answer["attention"] if pair[0] not in SPECIAL]
            words = sorted(words, key=lambda pair: -pair[1])[:MOST]
            cells.append(" ".join(f"{word} {weight:.2f}" for word, weight in words))
        rows.append([*cells, _shorten(text)])
    print_table(names, rows)


def _shorten(text: str) -> str:
    """Both ends: a path says most in its last part."""
    half = (WIDEST - 5) // 2
    return text if len(text) <= WIDEST else f"{text[:half].rstrip()} ... {text[-half:].lstrip()}"
