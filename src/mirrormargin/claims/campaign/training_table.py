r"""From records of trainings to the arrays that claims are examined on.

A story on real data names the methods that it compares and builds its arrays from their final
records: those of the setting that validation data chose, one a seed.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mirrormargin.claims.campaign.grid_search import Method, Records, list_runs
from mirrormargin.claims.evidence import STORED, Evidence

__all__ = [
    "Finals",
    "TrainingTable",
    "describe_methods",
    "find_final_records",
    "find_setting",
    "gather",
    "read_exponents",
]

Arrays = dict[str, NDArray[Any]]
Finals = list[list[dict[str, Any]]]


@dataclass(frozen=True)
class TrainingTable:
    """What a story on real data is made of.

    Attributes:
        methods: Of the sizes that two cores can train.
        build: From the methods whose trainings are done, and their final records, to arrays.
        required: Names of methods without which there is nothing to examine.
        published: Methods of the published sizes, for a GPU.
        extra: Methods that are compared too, through ``build_extra``.
        build_extra: From those of them that are done to more arrays.
    """

    methods: tuple[Method, ...]
    build: Callable[[Sequence[Method], Finals], Arrays]
    required: tuple[str, ...]
    published: tuple[Method, ...] = ()
    extra: tuple[Method, ...] = ()
    build_extra: Callable[[Sequence[Method], Finals], Arrays] = field(
        default=lambda methods, finals: {}
    )

    def list_methods(self, profile: str) -> tuple[Method, ...]:
        """What has to be trained for a profile; nothing for the quick one."""
        if profile == "quick":
            return ()
        return (
            self.published if profile == "paper" and self.published else self.methods + self.extra
        )

    def digest(self) -> str:
        """Changes with the settings of the required methods: a stored table of others is stale."""
        parts = sorted(
            [method.name, list(method.removed), list(method.seeds), setting, config.digest()]
            for method in self.methods
            if method.name in self.required
            for setting, config in method.grid.items()
        )
        return hashlib.sha256(json.dumps(parts).encode()).hexdigest()[:16]

    def make_evidence(self, name: str, records: Records, profile: str = "full") -> Evidence | None:
        """The evidence that records give; None if a required method is not done."""
        is_published = profile == "paper" and self.published
        found, finals = _find_done(self.published if is_published else self.methods, records)
        if not set(self.required) <= {method.name for method in found}:
            return None
        arrays = self.build(found, finals)
        more, more_finals = _find_done(() if is_published else self.extra, records)
        if more:
            arrays |= self.build_extra(more, more_finals)
        used = [record for group in finals + more_finals for record in group]
        patterns = sorted({method.folder.split("/")[0] + "/*" for method in found + more})
        origin = {
            "kind": STORED,
            "command": "; ".join(f"mirrormargin campaign --only '{one}'" for one in patterns),
            "data_sha256": {k: v for record in used for k, v in record["data"]["sha256"].items()},
            "versions": used[0]["environment"]["versions"],
        }
        settings = {
            "digest": self.digest(),
            "configurations": sorted({method.config for method in found + more}),
            "seeds": min(len(group) for group in finals),
        }
        seconds = round(sum(record["seconds"] for record in used), 1)
        return Evidence(name, settings, arrays, origin, seconds)


def _find_done(chosen: Sequence[Method], records: Records) -> tuple[list[Method], Finals]:
    pairs = [(method, find_final_records(method, records)) for method in chosen]
    done = [(method, finals) for method, finals in pairs if finals is not None]
    return [method for method, _ in done], [finals for _, finals in done]


def find_final_records(method: Method, records: Records) -> list[dict[str, Any]] | None:
    """Records of the chosen setting, one a seed; None unless all are there and none failed."""
    runs = list_runs(method, records)
    if not all(run.is_done(records) for run in runs):
        return None
    finals = [records[run.key] for run in runs if run.with_test]
    return finals if finals and not any("failed" in record for record in finals) else None


def describe_methods(methods: Sequence[Method], finals: Finals) -> Arrays:
    """The arrays optimizer, lr and setting, (K,)."""
    return {
        "optimizer": np.array([method.name for method in methods]),
        "lr": np.array([group[0]["config"]["optimizer"]["lr"] for group in finals]),
        "setting": np.array([find_setting(group[0]) for group in finals]),
    }


def find_setting(record: dict[str, Any]) -> str:
    """The name of the setting that a record is of."""
    return record["key"].split("/")[-1].rsplit("-seed", 1)[0]


def read_exponents(finals: Finals) -> NDArray[Any]:
    """p of every method, (K,)."""
    return np.array([group[0]["config"]["optimizer"]["p"] for group in finals])


def gather(finals: Finals, read: Any) -> NDArray[Any]:
    """What is read from every record, (methods, seeds, ...), for the seeds that all have."""
    num_seeds = min(len(group) for group in finals)
    return np.array([[read(record) for record in group[:num_seeds]] for group in finals])
