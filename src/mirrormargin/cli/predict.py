"""``mirrormargin predict``: what a trained model says about new texts or images."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from cyclopts import App, Parameter, Token

from mirrormargin.cli.evaluate import Trained, Weights, check_weights, describe_weights
from mirrormargin.cli.options import Json, Quiet, show_examples
from mirrormargin.cli.terminal import print_json, print_table, say
from mirrormargin.errors import DataError, TrainingError, suggest

if TYPE_CHECKING:
    from torch import Tensor, nn

    from mirrormargin.data import InputForm

__all__ = ["app", "predict"]

WIDEST = 60  # letters of a text that a line shows
MOST = 5  # tokens that a line shows
OPTIONS = ("--lines", "--weights", "--attention", "--json", "--quiet", "--help")
SPECIAL = ("[CLS]", "[SEP]")
INPUTS = """\
inputs:
  a text        in quotes; for a model that compares two texts, both with a tab
                between. What is longer than the texts of training is cut as
                they were.
  an image      the path of a file of the size that the model was trained on
  -             standard input, one input a line
"""

app = App(
    name="predict",
    **show_examples(
        (
            ("predict runs/imdb 'A dull film.' 'What a lovely cast!'", "two texts"),
            ("predict runs/imdb --lines reviews.txt --json", "a text a line"),
            ("predict runs/imdb 'Not bad.' --attention", "and where the last block looks"),
            ("predict runs/digits seven.png", "an image"),
            (
                "predict runs/imdb 'A dull film.' --weights runs/imdb/pruned-0.95.safetensors",
                "by a pruned model",
            ),
        ),
        more=INPUTS,
    ),
)


def _read_input(type_: Any, tokens: Sequence[Token]) -> str:
    """A text may begin with a hyphen, and - is standard input; but a single word is an option."""
    text = tokens[0].value
    if text.startswith("-") and text != "-" and not any(map(str.isspace, text)):
        raise ValueError(f"there is no option {text}: {suggest(text, OPTIONS)}")
    return text


@app.default
def predict(
    folder: Trained,
    /,
    *inputs: Annotated[
        str,
        Parameter(name="INPUT", required=True, converter=_read_input, allow_leading_hyphen=True),
    ],
    lines: bool = False,
    weights: Weights = "selected",
    attention: bool = False,
    json: Json = False,
    quiet: Quiet = False,
) -> int:
    """Ask a trained model about new texts or images.

    Prints the class of each input, how sure the model is, and what it attends to.

    Args:
        inputs: Texts or images, see below.
        lines: Each INPUT is a file of inputs, one a line; empty lines are left out.
        attention: Show the 5 tokens of a text that [CLS] attends to most: last block, mean of its
            heads.
    """
    from mirrormargin import training

    trained = training.TrainingFolder(folder)
    trained.read_config()
    asked: list[str] = []
    for one in inputs:
        asked += _read_lines(one) if lines or one == "-" else [one]
    if not asked:
        raise DataError(f"{', '.join(inputs)}: there is nothing in it to predict")
    check_weights(trained, weights)
    from mirrormargin.training.evaluation import compute_probabilities

    form = trained.read_inputs()
    if attention and form.kind != "text":
        raise TrainingError("--attention shows tokens of texts, and this model reads images")
    rows = _encode(asked, form)
    model = training.load_model(folder, form, weights)
    answers = []
    for text, row, shares in zip(
        asked, rows, compute_probabilities(model, rows).tolist(), strict=True
    ):
        best = max(range(len(shares)), key=shares.__getitem__)
        rounded = [round(share, 6) for share in shares]
        answer = {
            "input": text,
            "class": form.classes[best],
            "probability": rounded[best],
            "probabilities": dict(zip(form.classes, rounded, strict=True)),
        }
        if attention:
            answer["attention"] = _look(model, form, row)
        answers.append(answer)
    if json:
        print_json({"folder": str(folder), "weights": weights, "predictions": answers})
    else:
        _print(answers, attention)
        if not quiet:
            say(f"\n{describe_weights(weights)}")
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


def _print(answers: list[dict[str, Any]], attention: bool) -> None:
    rows = []
    for answer in answers:
        cells = [answer["class"], f"{answer['probability']:.1%}"]
        if attention:
            words = [pair for pair in answer["attention"] if pair[0] not in SPECIAL]
            words = sorted(words, key=lambda pair: -pair[1])[:MOST]
            cells.append(" ".join(f"{word} {weight:.2f}" for word, weight in words))
        rows.append([*cells, _shorten(" ".join(answer["input"].split()))])
    print_table(["class", "probability", *["attends to"] * attention, "input"], rows)


def _shorten(text: str) -> str:
    """Both ends: a path says most in its last part."""
    half = (WIDEST - 5) // 2
    return text if len(text) <= WIDEST else f"{text[:half].rstrip()} ... {text[-half:].lstrip()}"
