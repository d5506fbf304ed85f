"""The table of a sweep: one row for each run, the same columns whatever is swept.

What a run has no value for is null. ``status`` is "done" or "failed"; a failed run has ``error``,
one line, and ``traceback`` instead of results. Times are not in the table: it is the same, bit for
bit, whatever computed it and however often that was interrupted.
"""

from __future__ import annotations

import traceback
from collections.abc import Mapping, Sequence
from functools import cache
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from mirrormargin.dynamics.metrics import MEASURES
from mirrormargin.errors import MissingLibraryError

if TYPE_CHECKING:
    import pyarrow as pa  # pyright: ignore[reportMissingImports]

__all__ = [
    "DONE",
    "FAILED",
    "MEASURED",
    "count_failed",
    "describe_failure",
    "find_schema",
    "import_pyarrow",
    "make_table",
]

DONE, FAILED = "done", "failed"
MOST_TRACEBACK = 4_000  # characters, from its end
MOST_LINE = 300

# Of the last W of a lab run, see mirrormargin.dynamics.metrics.
MEASURED = ("divergence", *(name for name in MEASURES if name != "selection"))
# Texts that repeat are kept once, as categories.
_FIRST = (("run", "int64"), ("digest", "string"))
_LAST = (("status", "category"), ("error", "category"), ("traceback", "category"))
_COLUMNS = {
    "lab": (
        ("problem", "category"),
        ("num_sequences", "int64"),
        ("num_tokens", "int64"),
        ("dim", "int64"),
        ("loss", "category"),
        ("optimal_score", "double"),
        ("other_score", "double"),
        ("signal", "double"),
        ("third_score", "double"),
        ("seed", "int64"),
        ("step_rule", "category"),
        ("p", "double"),
        ("lr", "double"),
        ("num_steps", "int64"),
        ("init_std", "double"),
        ("init_seed", "int64"),
        ("parameterization", "category"),
        ("rank", "int64"),
        ("eps", "double"),
        ("max_lr", "double"),
        ("target", "category"),
        ("target_tol", "double"),
        ("steps", "int64"),  # how far it got
        ("end", "category"),  # why it ended there
        *((name, "double") for name in MEASURED),
        ("optimal", "double"),  # share of the selected tokens that are optimal
        ("capped", "int64"),
        ("recorded_steps", "integers"),  # with record: lists along the way
        ("recorded_divergence", "doubles"),
        ("recorded_log_loss_gap", "doubles"),
        ("recorded_norm", "doubles"),
        ("recorded_attention", "doubles"),
    ),
    "training": (
        ("configuration", "category"),
        ("settings", "string"),  # all that differ from the configuration of that name, as JSON
        ("data", "category"),
        ("optimizer", "category"),
        ("p", "double"),
        ("lr", "double"),
        ("step_rule", "category"),
        ("momentum", "double"),
        ("weight_decay", "double"),
        ("batch_size", "int64"),
        ("num_epochs", "int64"),
        ("seed_init", "int64"),
        ("seed_order", "int64"),
        ("seed_dropout", "int64"),
        ("epochs", "int64"),  # how many there were
        ("selected_epoch", "int64"),
        ("train_loss", "double"),
        ("train_accuracy", "double"),
        ("measure", "category"),  # what the task is judged by, in the next columns
        ("validation_last", "double"),
        ("validation_selected", "double"),
        ("test_last", "double"),
        ("test_selected", "double"),
        ("shares", "doubles"),  # of block weights set to zero, and what is left then
        ("validation_pruned", "doubles"),
        ("zeros", "double"),
        ("folder", "string"),  # below that of the sweep
    ),
}


def import_pyarrow() -> Any:
    """The library, with the modules that are used of it.

    Raises:
        MissingLibraryError: (an ImportError) If it is absent.
    """
    try:
        import pyarrow  # pyright: ignore[reportMissingImports]
        import pyarrow.compute  # pyright: ignore[reportMissingImports]
        import pyarrow.ipc  # pyright: ignore[reportMissingImports]
        import pyarrow.parquet  # pyright: ignore[reportMissingImports]
    except ImportError:
        raise MissingLibraryError(
            "pyarrow is not installed, and keeps the table of a sweep: pip install"
            " 'mirrormargin[sweep]'"
        ) from None
    return pyarrow


@cache
def find_schema(kind: str) -> pa.Schema:
    """The columns of lab runs or of trainings."""
    pa = import_pyarrow()
    types = {
        "int64": pa.int64(),
        "double": pa.float64(),
        "string": pa.string(),
        "category": pa.dictionary(pa.int32(), pa.string()),
        "integers": pa.list_(pa.int64()),
        "doubles": pa.list_(pa.float64()),
    }
    columns = (*_FIRST, *_COLUMNS[kind], *_LAST)
    return pa.schema([(name, types[type_]) for name, type_ in columns])


def make_table(kind: str, columns: Mapping[str, Any], count: int) -> pa.Table:
    """A table of so many rows.

    Args:
        kind: "lab" or "training".
        columns: An array or a list for each name, or one value for all rows; what is absent is
            null, and so is None.
        count: How many rows.
    """
    pa = import_pyarrow()
    arrays = []
    for field in find_schema(kind):
        value = columns.get(field.name)
        if value is None:
            arrays.append(pa.nulls(count, field.type))
        elif isinstance(value, (list, np.ndarray)):
            arrays.append(_make_array(value, field.type))
        else:
            arrays.append(_make_array([value] * count, field.type))
    return pa.table(arrays, schema=find_schema(kind))


def _make_array(values: Sequence[Any] | NDArray[Any], type_: Any) -> Any:
    pa = import_pyarrow()
    if pa.types.is_dictionary(type_):
        return pa.array(values, pa.string()).dictionary_encode()
    # A nan of NumPy's is a number here, and not an absent one.
    return pa.array(values, type_, from_pandas=False)


def describe_failure(error: BaseException) -> tuple[str, str]:
    """One line about what a run raised, and the end of its traceback."""
    line = " ".join(f"{type(error).__name__}: {error}".split())
    text = "".join(traceback.format_exception(error))
    text = text if len(text) <= MOST_TRACEBACK else f"...{text[-MOST_TRACEBACK:]}"
    return line[:MOST_LINE], text


def count_failed(table: pa.Table) -> int:
    """How many runs failed."""
    pa = import_pyarrow()
    is_failed = pa.compute.equal(table["status"].cast(pa.string()), FAILED)
    return pa.compute.sum(is_failed).as_py() or 0
