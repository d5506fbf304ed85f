"""``mirrormargin predict``: what does a trained model say about new texts or images?

A language model continues texts instead of naming a class.
"""

from __future__ import annotations

import os
import shlex
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from cyclopts import App, Group, Parameter, Token

from mirrormargin.cli.language_models import (
    check_text,
    continue_texts,
    refuse_class_options,
    refuse_language_options,
)
from mirrormargin.cli.options import Count, Json, Number, Positive, Quiet, show_examples
from mirrormargin.cli.terminal import print_json, print_table, say, warn
from mirrormargin.cli.trained_model import (
    DeltaFile,
    Trained,
    Weights,
    describe_weights,
    find_weights,
    load_asked,
)
from mirrormargin.errors import DataError, TrainingError, suggest

if TYPE_CHECKING:
    from torch import Tensor, nn

    from mirrormargin.data import InputForm

__all__ = ["app", "predict"]

WIDEST = 60  # letters of a text that a line shows
MOST = 5  # tokens that a line shows
OPTIONS = (
    *(
        "--lines",
        "--text-column",
        "--weights",
        "--delta",
        "--attention",
        "--json",
        "--quiet",
        "--help",
    ),
    *("--text", "--tokens", "--temperature", "--seed"),
)
LANGUAGE = Group("Language models", sort_key=50)
Numbered = tuple[int | None, str]  # an input, and its row if it is from a table
INPUTS = """\
inputs:
  a text        in quotes; for a model that compares two texts, both with a tab
                between. What is longer than the texts of training is cut as
                they were.
  a file        .csv, .tsv or .jsonl, plain or with .gz or .xz: the texts of its
                --text-column; any other file: a text a line
  an image      the path of a file of the size that the model was trained on
  -             standard input, one input a line
A language model continues a text: give its beginning with --text.
"""

app = App(
    name="predict",
    **show_examples(
        (
            ("predict runs/imdb 'A dull film.' 'What a lovely cast!'", "two texts"),
            ("predict runs/imdb new.csv --json", "the texts of a file"),
            ("predict runs/imdb --lines reviews.txt", "a text a line"),
            ("predict runs/imdb 'Not bad.' --attention", "and where the last block looks"),
            ("predict runs/digits seven.png", "an image"),
            ("predict runs/shakespeare --text 'ROMEO:' --seed 1", "a text, continued"),
            (
                "predict runs/imdb 'A dull film.' --weights runs/imdb/pruned-0.95.safetensors",
                "by a pruned model",
            ),
            ("predict runs/sst2 'Not bad.' --delta task.safetensors", "the base and a delta"),
        ),
        more=INPUTS,
    ),
)


def _read_input(type_: Any, tokens: Sequence[Token]) -> str:
    """A text may begin with a hyphen, and - is standard input; but a single word is an option."""
    text = tokens[0].value
    if text.startswith("-") and text != "-" and not any(map(str.isspace, text)):
        raise ValueError(f"there is no option {text}: {suggest(text, OPTIONS, most=1)}")
    return text


@app.default
def predict(
    folder: Trained,
    /,
    *inputs: Annotated[
        str,
        Parameter(name="INPUT", converter=_read_input, allow_leading_hyphen=True),
    ],
    lines: bool = False,
    text_column: Annotated[str | None, Parameter(metavar="NAME")] = None,
    weights: Weights = "selected",
    delta: DeltaFile | None = None,
    attention: bool = False,
    text: Annotated[str | None, Parameter(group=LANGUAGE, allow_leading_hyphen=True)] = None,
    tokens: Annotated[Positive | None, Parameter(group=LANGUAGE)] = None,
    temperature: Annotated[Number | None, Parameter(group=LANGUAGE)] = None,
    seed: Annotated[Count | None, Parameter(group=LANGUAGE, metavar="SEED")] = None,
    json: Json = False,
    quiet: Quiet = False,
) -> int:
    """Ask a trained model about new texts or images, or let a language model continue a text.

    Prints the class of each input, how sure the model is, and what it attends to.

    Args:
        inputs: Texts or images, see below.
        lines: Each INPUT is a file of inputs, one a line; empty lines are left out.
        text_column: Column of the texts in a file. [default: as in training]
        attention: Show the 5 tokens of a text that [CLS] attends to most: last block, mean of its
            heads.
        text: What the text begins with.
        tokens: How many tokens are added. [default: 300]
        temperature: Below 1, likely tokens become likelier; 0 takes the likeliest. [default: 1]
        seed: Of what is drawn: the same seed gives the same text. [default: 0]
    """
    from mirrormargin import training

    trained = training.TrainingFolder(folder)
    column = text_column or trained.read_config().data.text_column
    weights = find_weights(trained, weights)
    from mirrormargin.data.encoding import name_tokens
    from mirrormargin.training.evaluation import compute_probabilities

    form = trained.read_inputs()
    if form.kind == "language":
        refuse_class_options(
            {
                "--lines": lines,
                "--text-column": text_column,
                "--delta": delta,
                "--attention": attention,
            }
        )
        if not inputs and text is None:
            raise DataError("there is no text to continue: give its beginning, --text 'ROMEO:'")
        return continue_texts(
            folder,
            form,
            [check_text(one) for one in (*inputs, text) if one is not None],
            weights=weights,
            num_tokens=300 if tokens is None else tokens,
            temperature=1.0 if temperature is None else temperature,
            seed=0 if seed is None else seed,
            json=json,
            quiet=quiet,
        )
    refuse_language_options(
        {"--text": text, "--tokens": tokens, "--temperature": temperature, "--seed": seed}
    )
    if not inputs:
        raise DataError("INPUT is missing: give texts, images or files, see --help")
    found: list[Numbered] = []
    for one in inputs:
        if lines or one == "-":
            found += _read_lines(one)
        else:
            found += [(None, one)] if form.kind == "image" else _read_texts(one, column)
    numbers = [number for number, text in found if text]
    asked = [text for _, text in found if text]
    if len(asked) < len(found):
        warn(f"left out: {len(found) - len(asked):,} without a text")
    if not asked:
        raise DataError(f"{', '.join(inputs)}: there is nothing in it to predict")
    if attention and form.kind != "text":
        raise TrainingError("--attention shows tokens of texts, and this model reads images")
    rows = _encode(asked, form)
    cut = _find_cut(asked, rows, form) if form.kind == "text" else set()
    if cut and not quiet:
        which = "1 input was" if len(cut) == 1 else f"{len(cut):,} inputs were"
        warn(f"{which} cut at {form.shape[0]} tokens")
    model = load_asked(trained, form, weights, delta)
    answers = []
    for index, (number, text, row, shares) in enumerate(
        zip(numbers, asked, rows, compute_probabilities(model, rows).tolist(), strict=True)
    ):
        best = max(range(len(shares)), key=shares.__getitem__)
        rounded = [round(share, 6) for share in shares]
        answer = {
            "input": text,
            "class": form.classes[best],
            "probability": rounded[best],
            "probabilities": dict(zip(form.classes, rounded, strict=True)),
        }
        if number is not None:
            answer = {"row": number, **answer}
        if form.kind == "text":
            answer["unknown"] = _has_no_known_word(row, form)
            answer["cut"] = index in cut
        if attention:
            answer["attention"] = _look(model, form, row)
        answers.append(answer)
    if json:
        used = weights if delta is None else str(delta)
        print_json({"folder": str(folder), "weights": used, "predictions": answers})
    else:
        special = set(name_tokens(sorted(_find_special(form)), form)) if attention else None
        _print(answers, special)
        if not quiet:
            _say_unknown(answers)
            say(f"\n{describe_weights(folder, weights, delta)}")
    return 0


def _find_cut(texts: list[str], rows: Tensor, form: InputForm) -> set[int]:
    """Which of the texts were cut; only those that fill their row may have been."""
    from mirrormargin.data.encoding import find_cut, find_framing

    padding = find_framing(form).padding
    full = [index for index, last in enumerate(rows[:, -1].tolist()) if last != padding]
    is_cut = find_cut([texts[index] for index in full], form) if full else []
    return {index for index, one in zip(full, is_cut, strict=True) if one}


def _read_texts(text: str, column: str) -> list[Numbered]:
    """A text, or those of a file if it is the name of one, with the numbers of their rows.

    Raises:
        DataError: If it is a folder, looks like the name of a file that does not exist, or the file
            cannot be read.
    """
    from mirrormargin.data.text_files import find_format, number_unlabelled_texts

    is_file = os.path.isfile(text)
    if os.path.isdir(text):
        raise DataError(
            f"{text!r} is a folder: give the files in it, or pass it as a text through standard"
            f" input, echo {shlex.quote(text)} | mirrormargin predict FOLDER -"
        )
    is_name = find_format(text) is not None and not any(map(str.isspace, text))
    if is_name and not is_file:
        raise DataError(
            f"{text!r} looks like the name of a file, but there is none: check the path, or pass it"
            " as a text through standard input,"
            f" echo {shlex.quote(text)} | mirrormargin predict FOLDER -"
        )
    if not is_file:
        return [(None, text)]
    if find_format(text) is not None:
        return list(number_unlabelled_texts(Path(text), column))
    warn(f"{text} is a file: each of its lines is read as a text")
    return _read_lines(text)


def _has_no_known_word(row: Tensor, form: InputForm) -> bool:
    """Whether nothing in a text was in the vocabulary."""
    from mirrormargin.data.encoding import find_unknown

    known = set(_list_tokens(row, form)) - _find_special(form)
    return known <= {find_unknown(form)}


def _list_tokens(row: Tensor, form: InputForm) -> list[int]:
    """The tokens of a row, up to its padding."""
    from mirrormargin.data.encoding import find_framing

    return row[row != find_framing(form).padding].tolist()


def _find_special(form: InputForm) -> set[int]:
    """The numbers of what is put around texts."""
    from mirrormargin.data.encoding import find_framing

    if form.vocabulary is not None:  # its numbers may be those of a shorter vocabulary
        return {form.vocabulary.index(token) for token in ("[CLS]", "[SEP]")}
    framing = find_framing(form)
    return {*framing.before, *framing.between, *framing.after}


def _say_unknown(answers: list[dict[str, Any]]) -> None:
    count = sum(answer.get("unknown", False) for answer in answers)
    if count:
        which = "1 input has" if count == 1 else f"{count:,} inputs have"
        say(f"\n{which} only words that the model does not know: the answer says nothing about it")


def _read_lines(name: str) -> list[Numbered]:
    """The lines of a file; empty ones are left out, as --help says."""
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
    return [(None, line.rstrip("\r")) for line in text.split("\n") if line.strip()]


def _encode(inputs: list[str], form: InputForm) -> Tensor:
    from mirrormargin.data import encode_images, encode_texts

    if form.kind == "image":
        return encode_images([Path(name) for name in inputs], form)
    return encode_texts(inputs, form)


def _look(model: nn.Module, form: InputForm, row: Tensor) -> list[list[Any]]:
    """Tokens and the attention of [CLS] on them."""
    from mirrormargin.data.encoding import name_tokens
    from mirrormargin.training.token_selection import attend

    ids = _list_tokens(row, form)
    tokens = name_tokens(ids, form)
    weights = attend(model, ids)
    return [[token, round(weight, 6)] for token, weight in zip(tokens, weights, strict=True)]


def _print(answers: list[dict[str, Any]], special: set[str] | None) -> None:
    """A line for each input.

    Args:
        answers: One for each input.
        special: Tokens to leave out of those that an input attends to; None shows none of them.
    """
    rows = []
    for answer in answers:
        cells = [answer["class"], f"{answer['probability']:.1%}"]
        if special is not None:
            words = [pair for pair in answer["attention"] if pair[0] not in special]
            words = sorted(words, key=lambda pair: -pair[1])[:MOST]
            cells.append(" ".join(f"{word} {weight:.2f}" for word, weight in words))
        rows.append([*cells, _shorten(" ".join(answer["input"].split()))])
    print_table(["class", "probability", *["attends to"] * (special is not None), "input"], rows)


def _shorten(text: str) -> str:
    """Both ends of the text, for a path says most in its last part."""
    half = (WIDEST - 5) // 2
    return text if len(text) <= WIDEST else f"{text[:half].rstrip()} ... {text[-half:].lstrip()}"
