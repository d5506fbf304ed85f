r"""``mirrormargin solve``: the max-margin W of a problem in a file, with its certificate.

The file is an ``.npz`` with ``tokens`` (n, T, d), ``queries`` (n, d) and either ``selection``,
integers (n,) or booleans (n, T), or ``labels`` (n,) and ``head`` (d,), which select the optimal
tokens; ``rhs`` (n,) of zeros and ones is optional. With ``features`` (n, d) and ``labels`` (n,)
instead it is a decoder problem.
"""

from __future__ import annotations

import argparse
import json
import time
import zipfile
import zlib
from pathlib import Path
from typing import TYPE_CHECKING, Any

from mirrormargin.errors import ProblemError

if TYPE_CHECKING:
    import numpy as np

    from mirrormargin.svm import MaxMarginSolution

__all__ = ["add_parser", "run"]

NOT_SOLVED = 1

KEYS = """\
keys of the .npz file:
  tokens     (n, T, d)   the tokens of each sequence
  queries    (n, d)      the query of each sequence
  selection  (n,)        index of the selected token, or (n, T) booleans for several;
                         without it, labels (n,) and head (d,) select the optimal tokens
  rhs        (n,)        optional, 0 where no lead is asked for, 1 elsewhere
or, for a decoder problem:
  features   (n, d)      one vector for each sample
  labels     (n,)        +1 or -1

--out writes W (v of a decoder), duals, support, margin, gap and p; with several exponents each
name gets the suffix _p, such as W_1.5.

exit code: 0 certified, 1 not separable or not certified, 2 wrong input
"""


def add_parser(commands: Any) -> None:
    parser = commands.add_parser(
        "solve",
        help="find the max-margin W of a problem.npz and print its certificate",
        description="Find the W of least lp norm that gives every selected token a lead of one.",
        epilog=KEYS,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("problem", help="an .npz file, see below")
    parser.add_argument(
        "--p", type=float, nargs="+", default=[2.0], help="exponents of the norm (default: 2)"
    )
    parser.add_argument(
        "--tol", type=float, default=None, help="largest gap (default: 1e-8; 1e-6 if --nuclear)"
    )
    parser.add_argument("--C", type=float, default=None, help="soft margin (default: hard)")
    parser.add_argument(
        "--nuclear", action="store_true", help="least nuclear norm instead of an lp norm"
    )
    parser.add_argument("--threads", type=int, default=None, help="cores for linear algebra")
    parser.add_argument("--out", type=Path, help="write the solutions to this .npz file")
    parser.add_argument("--json", action="store_true", help="print one JSON object instead")
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    """Solve for each exponent, print the certificates, and write the solutions if asked."""
    if arguments.nuclear and (arguments.C is not None or arguments.p != [2.0]):
        raise ProblemError("--nuclear has neither --p nor --C: leave them out")
    if len(set(arguments.p)) < len(arguments.p):
        raise ProblemError(f"--p has {arguments.p}, with repetitions: give each exponent once")
    arrays = _load(arguments.problem)
    import mirrormargin.svm  # noqa: F401 (here, so that no solve is charged with it)

    rows, saved = [], {}
    for p in arguments.p:
        start = time.perf_counter()
        solution = _solve(arrays, p, arguments)
        rows.append(_measure(solution, time.perf_counter() - start))
        suffix = "" if len(arguments.p) == 1 else f"_{p!r}".removesuffix(".0")
        saved |= {name + suffix: value for name, value in _arrays(solution).items()}
        if not arguments.json:
            _print(solution, rows[-1])
    if arguments.out is not None:
        import numpy as np

        from mirrormargin.runs import write_atomically

        write_atomically(arguments.out, lambda file: np.savez_compressed(file, **saved))
    if arguments.json:
        print(json.dumps({"problem": str(arguments.problem), "solutions": rows}, indent=2))
    elif arguments.out is not None:
        print(f"wrote {arguments.out}")
    return 0 if all(row["status"] == "optimal" for row in rows) else NOT_SOLVED


def _load(path: str) -> dict[str, np.ndarray]:
    import numpy as np

    try:
        loaded = np.load(path, allow_pickle=False)
        if isinstance(loaded, np.ndarray):
            raise ProblemError(f"{path} holds a single array: save an .npz with named arrays")
        with loaded as file:
            return {name: file[name] for name in file.files}
    except FileNotFoundError:
        raise ProblemError(f"{path} does not exist: give the path of an .npz file") from None
    except ProblemError:
        raise
    except (OSError, ValueError, EOFError, zipfile.BadZipFile, zlib.error) as error:
        raise ProblemError(f"{path} cannot be read as an .npz file: {error}") from error


def _solve(arrays: dict[str, np.ndarray], p: float, arguments: argparse.Namespace) -> Any:
    from mirrormargin import svm
    from mirrormargin.attention import AttentionProblem

    tol = arguments.tol if arguments.tol is not None else (1e-6 if arguments.nuclear else 1e-8)
    options = {"tol": tol, "threads": arguments.threads, "raise_on_failure": False}
    if "features" in arrays:
        if arguments.nuclear:
            raise ProblemError("--nuclear needs tokens and queries, but the file holds features")
        _require(arrays, "features", "labels")
        _refuse(arrays, "a decoder problem", "tokens", "queries", "selection", "rhs")
        return svm.solve_decoder_svm(
            arrays["features"], arrays["labels"], p, C=arguments.C, **options
        )
    _require(arrays, "tokens", "queries")
    tokens, queries = arrays["tokens"], arrays["queries"]
    if "selection" in arrays:
        selection = arrays["selection"]
    else:
        _require(arrays, "labels", "head", missing="selection, or labels and head")
        problem = AttentionProblem(tokens, queries, arrays["labels"], arrays["head"])
        selection = problem.optimal_tokens
    if arguments.nuclear:
        _refuse(arrays, "--nuclear", "rhs")
        return svm.solve_nuclear_svm(tokens, queries, selection, **options)
    # Not worth it for a few solves: loading the compiled solver takes longer than they do.
    options |= {"rhs": arrays.get("rhs"), "C": arguments.C, "compiled": False}
    return svm.solve_attention_svm(tokens, queries, selection, p, **options)


def _require(arrays: dict[str, np.ndarray], *names: str, missing: str | None = None) -> None:
    absent = [name for name in names if name not in arrays]
    if absent:
        present = ", ".join(arrays) or "nothing"
        raise ProblemError(
            f"the file lacks {missing or ' and '.join(absent)}; it holds {present}: see"
            " mirrormargin solve --help for the keys"
        )


def _refuse(arrays: dict[str, np.ndarray], problem: str, *names: str) -> None:
    present = [name for name in names if name in arrays]
    if present:
        raise ProblemError(
            f"the file holds {' and '.join(present)}, which {problem} does not have: leave it out"
        )


def _measure(solution: MaxMarginSolution, seconds: float) -> dict[str, Any]:
    import numpy as np

    residuals = solution.residuals()
    row: dict[str, Any] = {
        "p": getattr(solution, "p", "nuclear"),
        "status": str(solution.status),
        "margin": solution.margin if np.isfinite(solution.margin) else None,
        "norm": 1 / solution.margin if solution.margin else None,
        "gap": solution.gap if np.isfinite(solution.gap) else None,
        "support": int(solution.support.sum()),
        "constraints": int(solution.lam.size),
        "iterations": solution.iterations,
        "method": solution.method,
        "seconds": round(seconds, 4),
    }
    if solution.certificate is None:
        names = ("primal", "dual", "stationarity", "complementarity", "rounding")
        row["residuals"] = {name: getattr(residuals, name) for name in names}
    else:
        row["margin_bound"] = solution.certificate.bound
        row["identical"] = solution.certificate.identical
    return row


def _print(solution: MaxMarginSolution, row: dict[str, Any]) -> None:
    p = row["p"] if row["p"] == "nuclear" else f"p = {row['p']:g}"
    print(f"{p}: {row['status']} ({row['method']}, {row['iterations']} steps, {row['seconds']} s)")
    certificate = solution.certificate
    if certificate is not None:
        if certificate.identical is not None:
            i, a, t = certificate.identical
            print(f"  sequence {i}: the selected token {a} equals token {t}")
        count = int((certificate.duals != 0).sum())
        print(
            f"  {count} constraints cancel: no margin above {certificate.bound:.1e} of the largest"
        )
        return
    print(f"  norm            {row['norm']:.10g}")
    print(f"  margin          {solution.margin:.10g}")
    print(f"  support         {row['support']} of {row['constraints']} constraints")
    print(f"  gap             {solution.gap:.1e}  (asked for {solution.tol:.0e})")
    for name, value in row["residuals"].items():
        print(f"  {name:<15} {value:.1e}")


def _arrays(solution: Any) -> dict[str, Any]:
    name = "v" if hasattr(solution, "v") else "W"
    return {
        name: getattr(solution, name),
        "duals": solution.duals,
        "support": solution.support,
        "margin": solution.margin,
        "gap": solution.gap,
        "p": getattr(solution, "p", float("nan")),
    }
