r"""A regularization path as a run folder.

run.json    p, tol, status, starts, the loss, and how the targets were solved
arrays      what the path has for each radius, problem.*, target.*, of a joint path decoder.*
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields
from pathlib import Path
from typing import Any

from mirrormargin.attention import AttentionProblem
from mirrormargin.errors import RunError
from mirrormargin.runs import check_document, read_run, write_run
from mirrormargin.svm.solution_files import (
    pack_solution,
    unpack_attention,
    unpack_decoder,
)

__all__ = ["read_path", "write_path"]

PROBLEM = ("tokens", "queries", "labels", "head")
SOLUTIONS = {"target": unpack_attention, "decoder": unpack_decoder}
OTHERS = {"problem", "p", "tol", "status", "start", *SOLUTIONS}


def write_path(folder: str | Path, kind: str, path: Any, about: Mapping[str, Any] | None) -> None:
    """Write one of the two dataclasses of paths.

    Raises:
        RunError: If it cannot be written.
    """
    names = [field.name for field in fields(path)]
    document = {
        "p": path.p,
        "tol": path.tol,
        "status": str(path.status),
        "start": list(path.start),
        "loss": path.problem.loss_name,
        "about": check_document("about", about),
    }
    arrays = {name: getattr(path, name) for name in names if name not in OTHERS}
    arrays |= {f"problem.{name}": getattr(path.problem, name) for name in PROBLEM}
    for name in SOLUTIONS:
        if name in names:
            text, parts = pack_solution(name, getattr(path, name))
            document |= text
            arrays |= parts
    write_run(folder, kind, document, arrays)


def read_path(folder: str | Path, kind: str, path: type, status: type) -> dict[str, Any]:
    """The fields of a path that :func:`write_path` wrote.

    Args:
        folder: Where.
        kind: Of the run.
        path: The dataclass.
        status: What the text of its status is made to.

    Raises:
        RunError: If there is none, or a damaged one.
    """
    names = [field.name for field in fields(path)]
    document, arrays = read_run(folder, kind)
    try:
        parts = (arrays[f"problem.{name}"] for name in PROBLEM)
        p = document["p"]
        return {
            **{name: arrays[name] for name in names if name not in OTHERS},
            **{
                name: unpack(name, document, arrays, p)
                for name, unpack in SOLUTIONS.items()
                if name in names
            },
            "problem": AttentionProblem(*parts, loss=document["loss"]),
            "p": p,
            "tol": document["tol"],
            "start": tuple(document["start"]),
            "status": status(document["status"]),
        }
    except (KeyError, TypeError, ValueError) as error:
        raise RunError(f"the run in {folder} is damaged: {error!r}") from error
