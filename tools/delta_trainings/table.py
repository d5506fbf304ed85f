"""From the records of trainings to what claims and figures read: a stored record for each task."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from mirrormargin.claims.evidence import STORED, Evidence, store_record
from mirrormargin.environment import describe_environment
from mirrormargin.training import find_configuration
from tools.delta_trainings.trainings import NAMES, TASKS, Records, Trial

__all__ = ["STORE", "make_evidence", "store"]

STORE = Path(__file__).parents[2] / "src" / "mirrormargin" / "claims" / "records"

# What the figures call a method; those of one name are one line.
LABELS = {
    "head": "head alone",
    "full": "AdamW, all weights",
    "center": "centred MirrorAdam",
    "switched": "centred MirrorAdam, then AdamW",
    "lora": "LoRA",
    "bitfit": "BitFit",
    "l1": "AdamW + L1 on changes",
    "adabreg": "AdaBreg",
    "fisher": "Fisher mask",
    "lottery": "LT-SFT",
    "shira-random": "SHiRA, random mask",
    "shira-gradient": "SHiRA, gradient mask",
}
PRUNED = {
    "full": "AdamW, largest changes",
    "center": "centred MirrorAdam, pruned in the end",
    "l1": LABELS["l1"],
    "adabreg": LABELS["adabreg"],
}
DARE = "AdamW, DARE"
KEYS = ("method", "setting", "numbers", "bytes", "score")


def make_evidence(task: str, records: Records) -> Evidence | None:
    """What was scored on a task, of methods with all their seeds; None if there is none."""
    arrays: dict[str, list[Any]] = {key: [] for key in KEYS}
    measure = find_configuration(TASKS[task].configuration).task.measure
    for name in NAMES:
        best = records.find_best(name)
        seeds = TASKS[task].seeds if best is not None else ()
        trials = [Trial.make(task, name, best or {}, seed=n, is_final=True) for n in seeds]
        if not trials or not all(trial.key in records.rows for trial in trials):
            continue
        by_seed = [records.rows[trial.key]["scores"] for trial in trials]
        for row in zip(*by_seed, strict=True):
            arrays["method"].append(_name_line(trials[0], row[0]["label"]))
            arrays["setting"].append(_describe(dict(trials[0].settings)))
            arrays["numbers"].append(round(np.mean([score["numbers"] for score in row])))
            arrays["bytes"].append(float(np.mean([score["bytes"] for score in row])))
            arrays["score"].append([score["test"][measure] for score in row])
    if not arrays["method"]:
        return None
    origin = {
        "kind": STORED,
        "command": f"python -m tools.delta_trainings --tasks sst2 {task} --store",
        "data_sha256": {},
        "versions": describe_environment()["versions"],
    }
    numbers = {key: np.array(values) for key, values in arrays.items()}
    return Evidence(f"deltas-{task}", {"seeds": len(TASKS[task].seeds)}, numbers, origin)


def _name_line(trial: Trial, label: str) -> str:
    if label.startswith("dare"):
        return DARE
    is_pruned = label != "all" and "count" not in dict(trial.settings)
    if is_pruned or (trial.method == "center" and not dict(trial.settings).get("count")):
        return PRUNED[trial.method]
    return LABELS.get(trial.name.rsplit("-", 1)[0], LABELS[trial.method])


def _describe(settings: dict[str, Any]) -> str:
    return ", ".join(f"{name} {value:g}" for name, value in settings.items() if value is not None)


def store(records: Records, folder: Path = STORE) -> list[str]:
    """Write the stored records of all tasks with results, and name them."""
    stored = []
    for task in TASKS:
        evidence = make_evidence(task, records)
        if evidence is not None:
            store_record(folder, evidence)
            stored.append(evidence.experiment)
    return stored
