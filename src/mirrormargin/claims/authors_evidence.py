r"""Evidence from the models that paper A's authors published, instead of our own trainings.

Two files, for p = 1.1 and for p = 2, are read (:mod:`mirrormargin.training.authors_models`) and
described like trainings of ours: their weights, where they look in short reviews, and how many test
reviews of IMDB they classify rightly. The stories on ``imdb/paper-6`` then judge the published
numbers on the authors' own models.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import torch

from mirrormargin.claims.evidence import RUN_NOW, Evidence
from mirrormargin.claims.story import Story
from mirrormargin.data import DataSet, make_encoder
from mirrormargin.environment import describe_environment
from mirrormargin.errors import ClaimError, DataError
from mirrormargin.models import TextTransformer
from mirrormargin.training.authors_models import AuthorsModel, read_authors_model
from mirrormargin.training.building import load_training_data
from mirrormargin.training.configurations import find_configuration
from mirrormargin.training.evaluation import evaluate
from mirrormargin.training.summary import describe_weights
from mirrormargin.training.token_selection import score_token_selection

__all__ = ["STORIES_ON_MODELS", "describe_models", "make_authors_evidence"]

EXPONENTS = (1.1, 2.0)  # of the two files, in this order
CONFIGURATION = "imdb/paper-6"
NUM_REVIEWS = 1_000  # of the test data; all 25,000 take most of an hour on two cores
STORIES_ON_MODELS = ("imdb-weights", "token-selection")

Records = list[list[dict[str, Any]]]


def describe_models(
    files: Sequence[Path],
    *,
    num_reviews: int = NUM_REVIEWS,
    progress: Callable[[int, int, str], object] | None = None,
) -> Records:
    """What a record says of a training, of both published models.

    Args:
        files: Of p = 1.1 and of p = 2.
        num_reviews: Test reviews to classify. Without IMDB on this machine none is, and there is
            no ``selection`` either.
        progress: Called as ``progress(done, total, text)``.

    Raises:
        ClaimError: If there are not two files.
        ModelError: If one is not a model of that layout.
    """
    if len(files) != len(EXPONENTS):
        raise ClaimError(
            f"{len(files)} published models were given: give two files, of p = 1.1 and of p = 2"
        )
    models = [read_authors_model(path) for path in files]
    try:
        data = load_training_data(find_configuration(CONFIGURATION))
    except DataError:
        data = None
    records = []
    for done, (p, path, found) in enumerate(zip(EXPONENTS, files, models, strict=True)):
        if progress is not None:
            progress(done, len(files), f"the published model of p = {p:g}")
        records.append([_describe(p, path, found, data, num_reviews)])
    return records


def _describe(
    p: float, path: Path, found: AuthorsModel, data: DataSet | None, num_reviews: int
) -> dict[str, Any]:
    record: dict[str, Any] = {
        "config": {"optimizer": {"p": p}},
        "sha256": hashlib.sha256(path.read_bytes()).hexdigest(),
        "weights": describe_weights(found.model) | {"underflowed": 0},
        "num_epochs": len(found.test_acc),
        "stored_accuracy": round(100 * float(found.test_acc[-1]), 2),
    }
    if data is None:
        return record
    encode = make_encoder(data)
    record["test_accuracy"] = round(evaluate(found.model, data.test, num_reviews).accuracy, 2)
    # The score of a model that has learnt nothing is far from 0: to compare with.
    selection = score_token_selection(found.model, encode).as_dict()
    untrained = score_token_selection(_build_untrained(found.model), encode).as_dict()["scaled"]
    return record | {"selection": {**selection, "untrained": untrained}}


def _build_untrained(model: TextTransformer) -> TextTransformer:
    torch.manual_seed(0)
    first = model.blocks[0]
    return TextTransformer(
        model.embedding.num_embeddings,
        length=model.position.num_embeddings,
        width=model.embedding.embedding_dim,
        num_layers=len(model.blocks),
        num_heads=first.num_heads,  # pyright: ignore[reportArgumentType]
        hidden=first.expand.out_features,  # pyright: ignore
    ).eval()


def make_authors_evidence(story: Story, records: Records) -> Evidence | None:
    """The evidence of a story on both models; None where IMDB is needed and absent."""
    assert story.table is not None
    if story.name == "token-selection" and any("selection" not in one for (one,) in records):
        return None
    methods = story.table.published[: len(records)]
    names = {p: one for p, (one,) in zip(EXPONENTS, records, strict=True)}
    origin = {
        "kind": RUN_NOW,
        "command": "mirrormargin reproduce --published FILE FILE",
        "data_sha256": {f"model of p = {p:g}": one["sha256"] for p, one in names.items()},
        "versions": describe_environment()["versions"],
        "accuracy": {
            f"p = {p:g}": {
                key: one[key] for key in ("stored_accuracy", "test_accuracy") if key in one
            }
            for p, one in names.items()
        },
    }
    settings = {"configurations": [CONFIGURATION], "seeds": 1, "published": True}
    return Evidence(story.name, settings, story.table.build(methods, records), origin)
