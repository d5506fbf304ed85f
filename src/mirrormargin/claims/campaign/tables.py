r"""Which trainings an experiment is made of, and its evidence once their records are there."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from mirrormargin.claims.campaign import collect, methods
from mirrormargin.claims.campaign.method import Method, Records
from mirrormargin.claims.campaign.records import read_records
from mirrormargin.claims.evidence import STORED, Evidence
from mirrormargin.runs import write_atomically

__all__ = ["TABLES", "Table", "store_tables"]


@dataclass(frozen=True)
class Table:
    """What an experiment on real data is made of.

    Attributes:
        methods: Of the sizes that two cores can train.
        build: From the methods whose trainings are done, and their final records, to arrays.
        required: Names of methods without which there is nothing to examine.
        published: Methods of the published sizes, for a GPU.
        extra: Methods that are compared too, through ``build_extra``.
        build_extra: From those of them that are done to more arrays.
    """

    methods: tuple[Method, ...]
    build: Callable[[Sequence[Method], collect.Finals], collect.Arrays]
    required: tuple[str, ...]
    published: tuple[Method, ...] = ()
    extra: tuple[Method, ...] = ()
    build_extra: Callable[[Sequence[Method], collect.Finals], collect.Arrays] = field(
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


def _find_done(chosen: Sequence[Method], records: Records) -> tuple[list[Method], collect.Finals]:
    pairs = [(method, collect.find_final_records(method, records)) for method in chosen]
    done = [(method, finals) for method, finals in pairs if finals is not None]
    return [method for method, _ in done], [finals for _, finals in done]


def _collect_long(chosen: Sequence[Method], finals: collect.Finals) -> collect.Arrays:
    arrays = collect.collect_exponents(chosen, finals)
    return {
        "long_p": arrays["p"],
        "long_layers": np.repeat(arrays["layers"][:1], arrays["p"].size),
        "long_selected": arrays["selected_test"][:, 0, 0],
        "long_best": arrays["best_test"][:, 0, 0],
        "long_last": arrays["last_test"][:, 0, 0],
        "long_epochs": arrays["epochs"][:, 0, 0],
        "long_train": arrays["train"][:, 0, 0],
    }


_PLAIN = tuple(method.name for method in methods.PLAIN)
_ADAPTIVE = ("MirrorAdam p=1.1", "AdamW")
_PAPER_6 = tuple(method for method in methods.PAPER if method.config == "imdb/paper-6")
_COMPARED = ("SGD", "SNGD", "SNGD per tensor")
_VIT = tuple(m for m in methods.VISION["cifar10/small"] if m.name in ("Adam", "MD p=1.1"))

TABLES: Mapping[str, Table] = {
    "imdb": Table(
        methods.PLAIN,
        collect.collect_exponents,
        _PLAIN,
        published=methods.PAPER,
        extra=methods.LONG,
        build_extra=_collect_long,
    ),
    "imdb-weights": Table(methods.PLAIN, collect.collect_weights, _PLAIN, published=_PAPER_6),
    "token-selection": Table(methods.PLAIN, collect.collect_selection, _PLAIN, published=_PAPER_6),
    "pruning-plain": Table(methods.PLAIN, collect.collect_pruning, _PLAIN),
    "imdb-optimizers": Table(
        (*methods.FRONTIERS["imdb/small"], *methods.SMALL),
        collect.collect_accuracies,
        _ADAPTIVE,
    ),
    "cifar10-vit": Table(
        _VIT, collect.collect_vit, ("Adam", "MD p=1.1"), published=methods.PAPER_VIT
    ),
    **{
        name: Table(
            chosen,
            collect.collect_curves,
            tuple(method.name for method in chosen if method.name in _COMPARED),
        )
        for name, chosen in (
            ("mnli", methods.ENCODERS["mnli-subset/minilm"]),
            ("civil", methods.ENCODERS["civil-subset/minilm"]),
            ("mnist", methods.VISION["mnist/small"]),
            ("cifar10", methods.VISION["cifar10/small"]),
        )
    },
    **{
        f"pruning-{config.split('/')[0]}": Table(
            chosen if config != "imdb/small" else (*chosen, *methods.SMALL),
            collect.collect_pruning,
            tuple(method.name for method in chosen),
        )
        for config, chosen in methods.FRONTIERS.items()
    },
}


def store_tables(records: Path, destination: Path) -> list[str]:
    """Write the evidence of every experiment whose records are there; returns their names."""
    found = read_records(records)
    destination.mkdir(parents=True, exist_ok=True)
    stored = []
    for name, table in TABLES.items():
        evidence = table.make_evidence(name, found)
        if evidence is not None:
            _write(destination / f"{name}.json", evidence)
            stored.append(name)
    return stored


def _write(path: Path, evidence: Evidence) -> None:
    origin = {key: evidence.origin[key] for key in ("command", "data_sha256", "versions")}
    document: dict[str, Any] = {
        "experiment": evidence.experiment,
        **origin,
        "settings": evidence.settings,
        "seconds": evidence.seconds,
    }
    lines = [f"{json.dumps(key)}: {json.dumps(value)}" for key, value in document.items()]
    arrays = ",\n".join(
        f"  {json.dumps(key)}: {json.dumps(value.tolist())}"
        for key, value in evidence.arrays.items()
    )
    text = "{\n" + ",\n".join([*lines, '"arrays": {\n' + arrays + "\n}"]) + "\n}\n"
    write_atomically(path, lambda file: file.write(text.encode()))
