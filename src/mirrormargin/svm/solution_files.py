r"""Max-margin solutions as part of a saved run: arrays for the ``.npz``, text for ``run.json``.

The rows of the solution are kept too, so that it can still measure its own residuals:

    <name>.w  .lam  .b  .equality ...    what every solution has
    <name>.delta  .queries  .selection   the rows of an attention SVM
    <name>.matrix                        those of a decoder SVM
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from mirrormargin.svm.attention_svm import AttentionSVM
from mirrormargin.svm.decoder_svm import DecoderSVM
from mirrormargin.svm.interior.constraints import MatrixConstraints, TokenConstraints
from mirrormargin.svm.interior.program import Program, Status

__all__ = ["pack_solution", "unpack_attention", "unpack_decoder"]

ARRAYS = ("w", "lam", "duals", "support")
NUMBERS = ("tol", "gap", "margin")


def pack_solution(
    name: str, solution: AttentionSVM | DecoderSVM
) -> tuple[dict[str, Any], dict[str, NDArray[Any]]]:
    """Text and arrays of a certified solution with a hard margin."""
    program = solution.program
    arrays = {key: getattr(solution, key) for key in ARRAYS}
    arrays |= {key: np.array(getattr(solution, key)) for key in NUMBERS}  # JSON has no inf
    arrays |= {"b": program.b, "equality": program.equality}
    if isinstance(solution, AttentionSVM):
        assert isinstance(program.constraints, TokenConstraints)
        rows = program.constraints
        arrays |= {"delta": rows.delta, "queries": rows.queries, "selection": solution.selection}
    else:
        arrays["matrix"] = program.constraints.matrix
    text = {
        "status": str(solution.status),
        "iterations": int(solution.iterations),
        "method": solution.method,
    }
    return {name: text}, {f"{name}.{key}": value for key, value in arrays.items()}


def unpack_attention(
    name: str, document: dict[str, Any], arrays: dict[str, NDArray[Any]], p: float
) -> AttentionSVM:
    """The solution that :func:`pack_solution` took apart."""
    rows = TokenConstraints(arrays[f"{name}.delta"], arrays[f"{name}.queries"])
    fields = _unpack(name, document, arrays, p, rows)
    return AttentionSVM(selection=arrays[f"{name}.selection"], **fields)


def unpack_decoder(
    name: str, document: dict[str, Any], arrays: dict[str, NDArray[Any]], p: float
) -> DecoderSVM:
    """The same for a decoder."""
    rows = MatrixConstraints(arrays[f"{name}.matrix"])
    return DecoderSVM(**_unpack(name, document, arrays, p, rows))


def _unpack(
    name: str,
    document: dict[str, Any],
    arrays: dict[str, NDArray[Any]],
    p: float,
    rows: TokenConstraints | MatrixConstraints,
) -> dict[str, Any]:
    text = document[name]
    return {
        **{key: arrays[f"{name}.{key}"] for key in ARRAYS},
        **{key: float(arrays[f"{name}.{key}"]) for key in NUMBERS},
        "p": p,
        "program": Program(rows, p, arrays[f"{name}.b"], arrays[f"{name}.equality"]),
        "status": Status(text["status"]),
        "iterations": text["iterations"],
        "method": text["method"],
    }
