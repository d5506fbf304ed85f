r"""Subsets of MultiNLI and Civil Comments, put together from what public repositories hold.

The whole data sets are large; these parts of them lie in other people's repositories, as results or
as exercises for language models. ``published.txt`` has the files, with repository and commit.

``mnli-subset``   training: pairs of PowerfulPromptFT's "glue_pretrain" and "k-shot" folders, and of
                  Super-NaturalInstructions' tasks 200 to 203 (two versions of it). Equal pairs, up
                  to case and punctuation, are merged; pairs with contradictory labels, and pairs
                  whose premise is also in the test part, are dropped. Test: the matched development
                  part, from the results of "BERTs of a feather" in the HANS repository.
``civil-subset``  comments of Super-NaturalInstructions' tasks 322 to 328 and 1720 to 1725 that are
                  labelled toxic or not; equal texts are merged, contradictory labels become null.

What an exercise is like:

    tasks 200 to 202   Statement: <premise> Choices: 1. <one> 2. <two> 3. <three>  answer: 2
    task 203           Statement: <premise>\nLabel: neutral.\nGenre: travel.       answer: <text>
    tasks 322 to 328   Comment: <text>                                             answer: Toxic
"""

from __future__ import annotations

import json
import random
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from mirrormargin.data.archives import Contents, write_row
from mirrormargin.errors import DataError

__all__ = ["read_civil_subset", "read_mnli_subset"]

ORDER = Path(__file__).with_name("mnli_subset_order.npy")
CHOICES = re.compile(
    r"Statement:\s*(.*?)\s*Choices:\s*1\.\s+(.*?)\s+2\.\s+(.*?)\s+3\.\s+(.*)", re.DOTALL
)
MARKS = re.compile(r"\s[123]\.\s")
GENERATION = re.compile(r"Statement: (.*)\nLabel: (\w+)\.\nGenre: (\w+)\.", re.DOTALL)
LABELS = {200: "entailment", 201: "neutral", 202: "contradiction"}  # what the answer's choice is
# What each task of Civil Comments asks for.
ATTRIBUTES = {
    322: "threat",
    323: "sexual_explicit",
    325: "identity_attack",
    326: "obscene",
    327: "toxic",
    328: "insult",
    1720: "toxic",
    1721: "obscene",
    1722: "threat",
    1723: "sexual_explicit",
    1724: "insult",
    1725: "severe_toxicity",
}
FIELDS = (
    "toxic",
    "severe_toxicity",
    "obscene",
    "threat",
    "insult",
    "identity_attack",
    "sexual_explicit",
)


class Pair(NamedTuple):
    """A premise with a hypothesis, and where they are from."""

    source: str
    premise: str
    hypothesis: str
    label: str
    genre: str | None = None


def read_mnli_subset(results: Path, *exercises: Path) -> Contents:
    """The two files of ``mnli-subset``.

    Args:
        results: Of "BERTs of a feather".
        *exercises: Two of glue_pretrain, five of k-shot, tasks 200 to 203 and, of the second
            version, tasks 200 to 203.

    Raises:
        DataError: If a file is not as expected.
    """
    try:
        tests = [_read_result(line) for line in _read(results).split("\n")[1:] if line]
        kept = merge_pairs(
            list(_list_pairs(exercises)), {_simplify(row["premise"]) for row in tests}
        )
        order = np.load(ORDER, allow_pickle=False)
        rows = flag_balanced([{"id": k, **kept[index]} for k, index in enumerate(order)])
    except (ValueError, KeyError, TypeError, IndexError, AttributeError) as error:
        raise DataError(f"{results.parent}: not as expected: {error!r}") from error
    return {
        "multinli/mnli_train_subset.jsonl": lambda: map(write_row, rows),
        "multinli/mnli_subset_dev_matched.jsonl": lambda: map(write_row, tests),
    }


def _read_result(line: str) -> dict[str, Any]:
    number, premise, hypothesis, label, _ = line.split("\t")
    return {"id": int(number), "premise": premise, "hypothesis": hypothesis, "label": label}


def _list_pairs(paths: tuple[Path, ...]) -> Iterator[Pair]:
    for path, part in zip(paths[:2], ("train", "dev"), strict=True):
        for row in json.loads(_read(path)).values():
            yield Pair(f"glue-pretrain-{part}", row["text_a"], row["text_b"], row["label"])
    for path in paths[2:7]:
        for line in _read(path).split("\n")[1:]:
            if line:
                cells = line.rstrip("\r").split("\t")
                yield Pair("lmbff-kshot", cells[8], cells[9], cells[-1], cells[3])
    for path, task in zip(paths[7:], 2 * (200, 201, 202, 203), strict=True):
        for row in json.loads(_read(path))["Instances"]:
            pair = _read_generation(row) if task == 203 else _read_choice(row, task)
            if pair is not None:
                yield pair


def _read_choice(row: dict[str, Any], task: int) -> Pair | None:
    """The chosen sentence; None where the three choices cannot be told apart for sure."""
    found = CHOICES.fullmatch(row["input"])
    if found is None or len(MARKS.findall(row["input"])) != 3:
        return None
    return Pair(f"ni-task{task}", found[1], found[1 + int(row["output"][0])], LABELS[task])


def _read_generation(row: dict[str, Any]) -> Pair | None:
    """The written sentence; None where there are several."""
    found = GENERATION.fullmatch(row["input"])
    if found is None or len(row["output"]) != 1:
        return None
    return Pair("ni-task203", found[1], row["output"][0], found[2], found[3])


def merge_pairs(pairs: list[Pair], test_premises: set[str]) -> list[dict[str, Any]]:
    """One row for all equal pairs, in the order of their first appearance."""
    groups: dict[tuple[str, str], list[Pair]] = {}
    for pair in pairs:
        key = _simplify(pair.premise), _simplify(pair.hypothesis)
        groups.setdefault(key, []).append(pair)
    return [
        {
            "premise": group[0].premise.strip(),
            "hypothesis": group[0].hypothesis.strip(),
            "label": group[0].label,
            "genre": next((pair.genre for pair in group if pair.genre), None),
            "src": "+".join(sorted({pair.source for pair in group})),
        }
        for (premise, _), group in groups.items()
        if premise not in test_premises and len({pair.label for pair in group}) == 1
    ]


def flag_balanced(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Flag as many rows of each label within each kind of source, drawn with seed 0."""
    groups: dict[str, dict[str, list[int]]] = {}
    for number, row in enumerate(rows):
        kind = next(
            (kind for kind in ("glue-pretrain", "ni-task203", "kshot") if kind in row["src"]), ""
        )
        groups.setdefault(kind, {}).setdefault(row["label"], []).append(number)
    flagged: set[int] = set()
    for labels in groups.values():
        num_each = min(map(len, labels.values()))
        for numbers in labels.values():
            flagged.update(random.Random(0).sample(numbers, num_each))
    return [{**row, "balanced": number in flagged} for number, row in enumerate(rows)]


def read_civil_subset(*tasks: Path) -> Contents:
    """The file of ``civil-subset``, from the tasks of ``ATTRIBUTES`` in their order.

    Raises:
        DataError: If a file is not as expected.
    """
    answers: dict[str, list[tuple[int, str]]] = {}  # by text: tasks and what they say
    try:
        for task, path in zip(ATTRIBUTES, tasks, strict=True):
            for row in json.loads(_read(path))["Instances"]:
                text = re.sub(r"^Comment:\s*", "", row["input"]) if task < 1000 else row["input"]
                answers.setdefault(text.strip(), []).append((task, row["output"][0]))
    except (ValueError, KeyError, TypeError, IndexError, AttributeError) as error:
        raise DataError(f"{tasks[0].parent}: not as expected: {error!r}") from error
    texts = list(answers)
    random.Random(0).shuffle(texts)
    rows = (_describe_comment(text, answers[text]) for text in texts)
    toxic = [row for row in rows if row["toxic"] is not None]
    return {"civilcomments/civilcomments_toxic_subset.jsonl": lambda: map(write_row, toxic)}


def _describe_comment(text: str, answers: list[tuple[int, str]]) -> dict[str, Any]:
    row: dict[str, Any] = {"text": text}
    for field in FIELDS:
        given = [answer for task, answer in answers if ATTRIBUTES[task] == field]
        labels = {int(not answer.startswith("No")) for answer in given}
        row[field] = labels.pop() if len(labels) == 1 else None
    row["src"] = "+".join(f"ni-task{task}" for task in sorted({task for task, _ in answers}))
    return row


def _read(path: Path) -> str:
    try:
        return path.read_bytes().decode("utf-8")
    except OSError as error:
        raise DataError(f"{path} cannot be read: {error.strerror}") from error


def _simplify(text: str) -> str:
    """What two texts share that differ in case, blanks and punctuation only."""
    return re.sub(r"[^a-z0-9]", "", text.lower())
