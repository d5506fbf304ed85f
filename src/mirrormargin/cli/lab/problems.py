r"""The problem that a command of the lab works on: one of its own by name, or a file.

NAME             a synthetic problem, one for each seed
FILE.npz         named arrays
FILE.json        one object with the same keys, arrays as nested lists
"""

from __future__ import annotations

import inspect
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from cyclopts import Parameter

from mirrormargin.errors import ProblemError, suggest

if TYPE_CHECKING:
    import numpy as np
    from cyclopts.completion import CompletionContext

    from mirrormargin.attention import AttentionProblem

__all__ = [
    "GENERATORS",
    "KEYS",
    "SOLVE_KEYS",
    "Problem",
    "Source",
    "load_problems",
    "make_problem",
    "open_source",
    "refuse",
    "require",
]

# The keys of synthetic.GENERATORS, which takes a second to import: too long for a help text.
GENERATORS = (
    "unit_sphere",
    "equal_scores",
    "signal_noise",
    "joint_toy",
    "planar_joint",
    "planar_single",
    "planar_multi",
)
FIRST_SEED = 1
SUFFIXES = (".npz", ".json")
NAMES = ("tokens", "queries", "labels", "head", "loss", "selection", "rhs", "features")

KEYS = f"""\
problems:
  {", ".join(GENERATORS[:5])},
  {", ".join(GENERATORS[5:])}
                         synthetic ones, by name
  FILE.npz or FILE.json  your own: arrays (in JSON nested lists) named
    tokens   (n, T, d)   the tokens of each sequence
    queries  (n, d)      the query of each sequence
    labels   (n,)        +1 or -1
    head     (d,)        the head v
    loss                 optional text: logistic, exponential or correlation
"""
SOLVE_KEYS = """\
    selection  (n,)      index of the selected token, or (n, T) booleans for several;
                         without it, labels and head select the optimal tokens
    rhs  (n,)            optional, 0 where no lead is asked for, 1 elsewhere
  or, for a decoder problem, features (n, d) and labels (n,)
"""


def _complete(context: CompletionContext) -> list[str]:
    """Names of problems, and files that may hold one."""
    typed = context.incomplete
    paths = sorted(Path(typed or ".").parent.glob("*") if "/" in typed else Path().glob("*"))
    files = [f"{path}/" if path.is_dir() else str(path) for path in paths]
    return [*GENERATORS, *(name for name in files if name.endswith(("/", *SUFFIXES)))]


Problem = Annotated[
    str, Parameter(completer=_complete, help="The name of a problem or a file, see below.")
]


@dataclass(frozen=True)
class Source:
    """The arrays of one problem, by key, and the seed if it has one."""

    arrays: Mapping[str, Any]
    seed: int | None = None


def load_problems(
    name: str, seeds: Sequence[int] | None
) -> list[tuple[int | None, AttentionProblem]]:
    """Problems that can be trained, each with its seed or None.

    Args:
        name: What the user typed.
        seeds: As given, None for the default.

    Raises:
        ProblemError: If there is no such problem, or it is not one for training.
    """
    return [(source.seed, make_problem(source.arrays)) for source in open_source(name, seeds)]


def make_problem(arrays: Mapping[str, Any]) -> AttentionProblem:
    """The problem of tokens, queries, labels and head; a selection is ignored."""
    from mirrormargin.attention import AttentionProblem

    refuse(arrays, "a problem to train on", "features")
    require(arrays, "tokens", "queries", "labels", "head")
    names = ("tokens", "queries", "labels", "head")
    return AttentionProblem(*(arrays[name] for name in names), loss=_read_loss(arrays))


def open_source(name: str, seeds: Sequence[int] | None) -> list[Source]:
    """One problem for each seed, or that of a file.

    Raises:
        ProblemError: If there is no such problem, or it has no seed and one was given.
    """
    if name in GENERATORS:
        return _generate(name, seeds)
    path = Path(name)
    if path.suffix not in SUFFIXES:
        if path.exists():
            raise ProblemError(f"{name} is neither an .npz nor a .json file: save it as one")
        raise ProblemError(
            f"there is no problem {name!r} and no such file .npz or .json:"
            f" {suggest(name, GENERATORS)}"
        )
    if seeds is not None:
        raise ProblemError(f"--seed is given, but the problem in {name} has no seed: leave it out")
    arrays = _read_npz(name) if path.suffix == ".npz" else _read_json(name)
    unknown = [key for key in arrays if key not in NAMES]
    if unknown:
        raise ProblemError(
            f"{name} holds {' and '.join(map(repr, unknown))}, but the keys are"
            f" {', '.join(NAMES)}: rename or remove it"
        )
    return [Source(arrays)]


def _generate(generator: str, seeds: Sequence[int] | None) -> list[Source]:
    from mirrormargin.attention import synthetic

    make = synthetic.GENERATORS[generator]
    parameter = inspect.signature(make).parameters.get("seed")
    if parameter is None:
        if seeds is not None:
            raise ProblemError(f"--seed is given, but {generator} has no seed: leave it out")
        return [_unpack(make(), None)]
    if seeds is None:
        seeds = [FIRST_SEED if parameter.default is parameter.empty else parameter.default]
    return [_unpack(make(seed), seed) for seed in seeds]


def _unpack(problem: AttentionProblem, seed: int | None) -> Source:
    arrays = {name: getattr(problem, name) for name in ("tokens", "queries", "labels", "head")}
    return Source({**arrays, "loss": problem.loss_name}, seed)


def _read_npz(path: str) -> dict[str, np.ndarray]:
    from mirrormargin.runs import read_arrays

    try:
        with open(path, "rb") as file:
            if file.read(6) == b"\x93NUMPY":
                raise ProblemError(f"{path} holds a single array: save an .npz with named arrays")
        return read_arrays(path, error=ProblemError)
    except FileNotFoundError:
        raise ProblemError(f"{path} does not exist: give the path of an .npz file") from None
    except OSError as error:
        raise ProblemError(f"{path} cannot be read: {error.strerror}") from error


def _read_json(path: str) -> dict[str, Any]:
    from mirrormargin.runs import parse_json, read_limited

    try:
        content = parse_json(read_limited(Path(path)), finite=True)
    except FileNotFoundError:
        raise ProblemError(f"{path} does not exist: give the path of a .json file") from None
    except (OSError, ValueError) as error:
        raise ProblemError(f"{path} cannot be read as a JSON file: {error}") from error
    if not isinstance(content, dict):
        raise ProblemError(
            f"{path} holds a {type(content).__name__}, not an object: write"
            ' {"tokens": [[[...]]], "queries": [[...]], ...}'
        )
    return {
        key: value if isinstance(value, str) or key not in NAMES else _to_array(path, key, value)
        for key, value in content.items()
    }


def _to_array(path: str, key: str, value: Any) -> np.ndarray:
    import numpy as np

    try:
        array = np.array(value)
    except ValueError:
        raise ProblemError(
            f"{key} in {path} is ragged: give nested lists of equal lengths"
        ) from None
    if array.dtype.kind not in "biuf":
        raise ProblemError(f"{key} in {path} must hold numbers, in nested lists, and nothing else")
    if not np.isfinite(array).all():
        raise ProblemError(f"{key} in {path} holds a number beyond floating point: remove it")
    return array


def _read_loss(arrays: Mapping[str, Any]) -> Any:
    """The text; an .npz file holds it in an array."""
    loss = arrays.get("loss", "logistic")
    return loss.item() if hasattr(loss, "item") and loss.size == 1 else loss


def require(arrays: Mapping[str, Any], *names: str, missing: str | None = None) -> None:
    """Raise unless all of the names are there."""
    absent = [name for name in names if name not in arrays]
    if absent:
        present = ", ".join(arrays) or "nothing"
        raise ProblemError(
            f"the file lacks {missing or ' and '.join(absent)}; it holds {present}: see --help"
            " for the keys"
        )


def refuse(arrays: Mapping[str, Any], problem: str, *names: str) -> None:
    """Raise if one of the names is there."""
    present = [name for name in names if name in arrays]
    if present:
        raise ProblemError(
            f"the file holds {' and '.join(present)}, which {problem} does not have: leave it out"
        )
