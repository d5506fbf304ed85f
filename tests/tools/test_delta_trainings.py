"""From the records of fine-tunings to what claims read."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("peft")

from mirrormargin.claims.evidence import find_record
from mirrormargin.claims.stories.deltas import make_story
from tools.delta_trainings.methods import COUNTS
from tools.delta_trainings.table import make_evidence, store
from tools.delta_trainings.trainings import NAMES, TASKS, Records, Trial, list_missing

SIZE = 1_000_000  # numbers of a whole delta


def score(trial: Trial, label: str, numbers: int, accuracy: float) -> dict[str, Any]:
    return {
        "label": label,
        "numbers": numbers,
        "bytes": 4_000 + 3 * numbers,
        **{part: {"accuracy": accuracy, "matthews": accuracy} for part in trial.parts},
    }


def list_scores(trial: Trial) -> list[dict[str, Any]]:
    """What a training of this method stores, the more numbers the better."""
    height = 80.0 + trial.seed + dict(trial.settings).get("lr", 0.0)
    count = dict(trial.settings).get("count", 0)
    if count:
        return [score(trial, str(count), count, height)]
    whole = score(trial, "all", SIZE, height + 3)
    if trial.method not in ("full", "center", "l1", "adabreg"):
        return [whole]
    rows = [score(trial, str(one), one, height - 1000 / one) for one in COUNTS]
    dropped = [score(trial, f"dare {one}", one, 60.0) for one in COUNTS]
    return [*rows, whole, *(dropped if trial.method == "full" else [])]


@pytest.fixture
def records(tmp_path: Path) -> Records:
    """Of every training, one after the other as they become possible."""
    records = Records(tmp_path / "deltas.jsonl")
    while missing := list(list_missing(records, list(TASKS), list(NAMES))):
        for trial in missing:
            records.rows[trial.key] = {"key": trial.key, "scores": list_scores(trial)}
    return records


def test_every_method_has_its_line_and_its_best_setting(records: Records) -> None:
    evidence = make_evidence("sst2", records)
    assert evidence is not None
    points = list(zip(evidence["method"].tolist(), evidence["numbers"].tolist(), strict=True))
    for size in (2_000, 10_000, 50_000):
        for method in ("centred MirrorAdam", "Fisher mask", "LT-SFT", "AdamW, largest changes"):
            assert (method, size) in points
    assert ("AdamW, all weights", SIZE) in points
    assert ("centred MirrorAdam, pruned in the end", 500) in points
    assert ("AdamW, DARE", 10_000) in points
    k = points.index(("Fisher mask", 10_000))
    assert "lr 0.03" in evidence["setting"][k]  # the largest rate has the best score here
    np.testing.assert_allclose(evidence["score"][k], [80.03, 81.03, 82.03])


def test_methods_without_all_their_seeds_are_left_out(records: Records) -> None:
    rows = dict(records.rows)
    for seeds_gone, count in ((("seed=2 ",), 2), (("seed=0 ", "seed=1 ", "seed=2 "), 0)):
        gone = [key for key in rows if "lora-8" in key and any(one in key for one in seeds_gone)]
        records.rows = {key: row for key, row in rows.items() if key not in gone}
        evidence = make_evidence("sst2", records)
        assert evidence is not None
        assert evidence["method"].tolist().count("LoRA") == count  # of ranks 1 and 4, if tuned
    records.rows = {}
    assert make_evidence("sst2", records) is None


def test_what_is_stored_can_be_examined_and_drawn(records: Records, tmp_path: Path) -> None:
    assert store(records, tmp_path) == [f"deltas-{task}" for task in TASKS]
    for task in TASKS:
        evidence = find_record(f"deltas-{task}", tmp_path)
        assert evidence is not None
        story = make_story(task, task)
        assert story.name == evidence.experiment
        (claim,), (draw,) = story.claims, story.draw
        assert claim.examine(evidence).measured
        figure = draw(evidence)
        assert figure is not None
        assert len(figure.panels) == 2
