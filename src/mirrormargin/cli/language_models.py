"""What commands say about language models: perplexities, the loss to beat, texts continued.

The loss to beat is that of a model that knows how frequent each token is, and nothing else: the
cross-entropy of the validation data under the frequencies of the training data.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from mirrormargin.cli.terminal import print_json, print_table, say
from mirrormargin.cli.trained_model import describe_weights
from mirrormargin.errors import DataError, TrainingError

if TYPE_CHECKING:
    from mirrormargin.data import DataSet, InputForm, Split

__all__ = [
    "check_text",
    "continue_texts",
    "describe_unlearnt",
    "describe_windows",
    "measure_unigram_loss",
    "print_evaluation",
    "print_perplexities",
    "refuse_class_options",
    "refuse_language_options",
]

UNITS = {"characters": "characters", "pairs": "pieces of words"}


def measure_unigram_loss(data: DataSet) -> float:
    """The loss on validation data of knowing the frequencies of tokens alone."""
    from mirrormargin.data.language_sets import thin_windows

    assert data.vocabulary is not None
    learnt = thin_windows(data.train).labels.flatten()
    counts = learnt.bincount(minlength=len(data.vocabulary))
    # A token that training lacks would cost infinitely much: each is counted once more.
    shares = (counts + 1).double() / float((counts + 1).sum())
    labels = data.validation.labels
    return round(-float(shares.log()[labels[labels >= 0]].mean()), 6)


def describe_unlearnt(summary: dict[str, Any]) -> list[str]:
    """A line if a language model is no better than the frequencies of tokens."""
    unigram, loss = summary["chance"]["loss"], summary["validation"]["selected"]
    if loss < unigram:
        return []
    lr = summary["config"]["optimizer"]["lr"]
    return [
        f"has not learnt: knowing how frequent each token is gives a loss of {unigram:.4f} on"
        f" validation data; try another --lr than {lr:g}, or more --epochs"
    ]


def describe_windows(data: DataSet) -> str:
    """How long the text of each split is."""
    assert data.vocabulary is not None
    assert data.tokenizer is not None
    sizes = {
        "to learn from": len(data.train) + data.shape[0],
        "to validate": _count_tokens(data.validation),
        "to test": _count_tokens(data.test),
    }
    parts = ", ".join(f"{size:,} {what}" for what, size in sizes.items() if size)
    return (
        f"{data.name}: {UNITS[data.tokenizer]}, {parts}; {len(data.vocabulary):,} different ones,"
        f" windows of {data.shape[0]}"
    )


def print_perplexities(summary: dict[str, Any], parts: list[str]) -> None:
    """Perplexities of the selected weights, by token and by word."""
    for name in parts:
        found = summary[name]
        text = f"{name}: perplexity {found['perplexity']:.3f} per token"
        if found["word_perplexity"] is not None:
            text += f", {found['word_perplexity']:.2f} per word of the text (ends of lines too)"
        say(text)


def print_evaluation(
    loss: float, accuracy: float, split: Split, report: dict[str, Any], *, json: bool, where: str
) -> None:
    """Print what ``mirrormargin evaluate`` found about a language model.

    Args:
        loss: Mean over tokens.
        accuracy: In %, of the next token.
        split: What it was evaluated on.
        report: Where the numbers come from, for JSON.
        json: Whether to print JSON.
        where: What it was evaluated on, in words.
    """
    from mirrormargin.training.evaluation import compute_perplexity

    perplexity, tokens = compute_perplexity(loss, split), _count_tokens(split)
    if json:
        print_json(
            {
                **report,
                "tokens": tokens,
                "words": split.num_words,
                "loss": loss,
                "accuracy": accuracy,
                "perplexity": perplexity.per_token,
                "word_perplexity": perplexity.per_word,
            }
        )
        return
    word = "–" if perplexity.per_word is None else f"{perplexity.per_word:.2f}"
    row = [f"{loss:.4f}", f"{perplexity.per_token:.3f}", word, f"{accuracy:.2f}%", f"{tokens:,}"]
    columns = ["loss", "perplexity", "per word", "next token right", "tokens", "data"]
    print_table(columns, [[*row, where]])


def continue_texts(
    folder: Path,
    form: InputForm,
    texts: list[str],
    *,
    weights: str,
    num_tokens: int,
    temperature: float,
    seed: int,
    json: bool,
    quiet: bool,
) -> int:
    """Continue texts by the language model of a folder, and print them as they come.

    Raises:
        DataError: If a text has a character that the model does not know.
        TrainingError: If an option makes no sense.
    """
    from mirrormargin.data.language_tokens import END_OF_LINE, make_tokenizer
    from mirrormargin.models import LanguageTransformer
    from mirrormargin.training import load_model

    if temperature < 0:
        raise TrainingError(f"--temperature is {temperature:g}: give a number >= 0")
    tokenizer = make_tokenizer(form.tokenizer, form.vocabulary)
    beginnings = [tokenizer.encode(text).tolist() for text in texts]
    model = load_model(folder, form, weights)
    assert isinstance(model, LanguageTransformer)
    end = tokenizer.vocabulary.index(END_OF_LINE)
    answers = []
    for text, beginning in zip(texts, beginnings, strict=True):
        # A text that begins with nothing begins a line.
        tokens = model.generate(beginning or [end], num_tokens, temperature=temperature, seed=seed)
        added = []
        if not json:
            _write(text if form.tokenizer == "characters" else tokenizer.decode(beginning).lstrip())
        for number in tokens:
            added.append(tokenizer.decode([number]))
            if not json:
                _write(added[-1])
        if not json:
            _write("\n")
        answers.append({"text": text, "continuation": "".join(added)})
    options = {"tokens": num_tokens, "temperature": temperature, "seed": seed}
    if json:
        print_json({"folder": str(folder), "weights": weights, **options, "continuations": answers})
    elif not quiet:
        say(f"\n{describe_weights(folder, weights)}, temperature {temperature:g}, seed {seed}")
    return 0


def refuse_language_options(given: dict[str, Any]) -> None:
    """Options that do nothing for a model that classifies are mistakes."""
    for option, value in given.items():
        if value is not None:
            raise TrainingError(
                f"{option} is for a language model that continues a text, and this model gives a"
                " class: leave it out"
            )


def refuse_class_options(given: dict[str, Any]) -> None:
    """Options that do nothing for a language model are mistakes."""
    for option, value in given.items():
        if value not in (None, False):
            raise TrainingError(
                f"{option} is for a model that gives a class, and this one continues a text: leave"
                " it out"
            )


def check_text(text: str) -> str:
    """A text of the command line, which may hold bytes that are none.

    Raises:
        DataError: If it is no text in UTF-8.
    """
    try:
        text.encode()
    except UnicodeEncodeError as error:
        raise DataError(f"{text!r} is no text in UTF-8: {error.reason}") from error
    return text


def _write(text: str) -> None:
    """As it is, at once: lines must not be wrapped, and each token shows as soon as it is drawn."""
    from mirrormargin.cli.terminal import printable

    sys.stdout.write(printable(text, sys.stdout))
    sys.stdout.flush()


def _count_tokens(split: Split) -> int:
    return int((split.labels >= 0).sum())
