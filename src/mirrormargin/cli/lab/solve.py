r"""``mirrormargin lab solve``: the max-margin W of a problem, with its certificate.

A problem in a file has ``selection``, integers (n,) or booleans (n, T), or ``labels`` and ``head``,
which select the optimal tokens as they do in the lab; or ``features`` and ``labels``, a decoder
problem.
"""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from cyclopts import App, Parameter

from mirrormargin.cli.lab.problems import (
    KEYS,
    SOLVE_KEYS,
    Problem,
    make_problem,
    open_source,
    refuse,
    require,
)
from mirrormargin.cli.options import (
    Exponents,
    FileOut,
    Json,
    Number,
    Overwrite,
    Quiet,
    Seeds,
    Threads,
    show_examples,
)
from mirrormargin.cli.terminal import Progress, print_json, say
from mirrormargin.errors import ProblemError, RunError

if TYPE_CHECKING:
    from mirrormargin.svm import MaxMarginSolution

__all__ = ["app", "solve"]

NOT_SOLVED = 1
OUT = (
    "--out writes W (v of a decoder), duals, support, margin, gap and p. In an .npz file with"
    " several solutions each name gets a suffix, such as W_1.5 for an exponent and W_seed2 or"
    " W_1.5_seed2 with seeds; a .json file holds a list of solutions, each with its certificate."
)

app = App(
    name="solve",
    **show_examples(
        (
            ("lab solve problem.npz --p 1.5 2 3", "the max-margin W for three norms"),
            ("lab solve unit_sphere --seed 1-10 --json", "the optimal tokens of ten problems"),
            ("lab solve problem.json --nuclear --out solution.json", "least nuclear norm, kept"),
        ),
        "not separable, margin too small, or not certified",
        f"{KEYS}{SOLVE_KEYS}\n{OUT}",
    ),
)


@app.default
def solve(
    problem: Problem,
    /,
    *,
    p: Annotated[Exponents | None, Parameter(show_default="2")] = None,
    seed: Seeds | None = None,
    C: Annotated[Number | None, Parameter(name="--C", metavar="PRICE")] = None,
    nuclear: bool = False,
    tol: Number | None = None,
    threads: Threads | None = None,
    out: FileOut | None = None,
    overwrite: Overwrite = False,
    json: Json = False,
    quiet: Quiet = False,
) -> int:
    """Find the max-margin W of a problem, with a certificate.

    It is the W of least lp norm that gives every selected token a lead of one.

    Args:
        C: Price of a violated constraint: a soft margin instead of a hard one.
        nuclear: Find the least nuclear norm instead of an lp norm.
        tol: Largest gap. [default: 1e-8; 1e-6 with --nuclear]
        out: Write the solutions to this .npz or .json file.
    """
    if nuclear and (C is not None or p is not None):
        raise ProblemError("--nuclear has neither --p nor --C: leave them out")
    if out is not None:
        _check_out(out, problem, overwrite)
    sources = open_source(problem, seed)
    import mirrormargin.svm  # noqa: F401 (here, so that no solve is charged with it)

    options = {"C": C, "tol": tol, "threads": threads}
    exponents = p or (2.0,)
    solved = []
    with Progress(len(sources) * len(exponents), "solve", quiet) as progress:
        for source in sources:
            for exponent in exponents:
                progress.update(len(solved), f"p = {exponent:g}")
                start = time.perf_counter()
                solution = _solve(source.arrays, None if nuclear else exponent, **options)
                row = _measure(solution, time.perf_counter() - start)
                if source.seed is not None:
                    row = {"seed": source.seed, **row}
                solved.append((solution, row))
    # Before anything is printed: whoever reads may stop reading.
    if out is not None:
        _write(out, problem, solved)
    rows = [row for _, row in solved]
    if json:
        print_json({"problem": problem, "solutions": rows})
    else:
        for solution, row in solved:
            _print(solution, row, quiet)
        if out is not None and not quiet:
            say(f"wrote {out}")
    return 0 if all(row["status"] == "optimal" for row in rows) else NOT_SOLVED


def _check_out(out: Path, problem: str, overwrite: bool) -> None:
    from mirrormargin.runs import check_writable

    check_writable(out)
    if out.suffix not in (".npz", ".json"):
        raise RunError(f"{out} cannot be written: name a file that ends in .npz or .json")
    if out.exists() and not overwrite:
        raise RunError(f"{out} exists already: choose another name, or add --overwrite")
    if out.exists() and Path(problem).exists() and out.samefile(problem):
        raise RunError(f"{out} is the problem itself: choose another name")


def _solve(
    arrays: Any, p: float | None, *, C: float | None, tol: float | None, threads: int | None
) -> Any:
    """Solve what the arrays say, for an exponent, or None for the nuclear norm."""
    from mirrormargin import svm

    gap = tol if tol is not None else (1e-6 if p is None else 1e-8)
    options = {"tol": gap, "threads": threads, "raise_on_failure": False}
    if "features" in arrays:
        if p is None:
            raise ProblemError("--nuclear needs tokens and queries, but the file holds features")
        require(arrays, "features", "labels")
        refuse(arrays, "a decoder problem", "tokens", "queries", "selection", "rhs", "head")
        return svm.solve_decoder_svm(arrays["features"], arrays["labels"], p, C=C, **options)
    require(arrays, "tokens", "queries")
    tokens, queries = arrays["tokens"], arrays["queries"]
    if "selection" in arrays:
        selection = arrays["selection"]
    else:
        require(arrays, "labels", "head", missing="selection, or labels and head")
        selection = make_problem(arrays).optimal_tokens
    if p is None:
        refuse(arrays, "--nuclear", "rhs")
        return svm.solve_nuclear_svm(tokens, queries, selection, **options)
    # Not worth it for a few solves: loading the compiled solver takes longer than they do.
    options |= {"rhs": arrays.get("rhs"), "C": C, "compiled": False}
    return svm.solve_attention_svm(tokens, queries, selection, p, **options)


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
        values = {name: float(getattr(residuals, name)) for name in names}
        row["residuals"] = {k: v if np.isfinite(v) else None for k, v in values.items()}
    else:
        row["margin_bound"] = solution.certificate.bound
        row["proof"] = solution.certificate.proof
        row["identical"] = solution.certificate.identical
    return row


def _print(solution: MaxMarginSolution, row: dict[str, Any], quiet: bool) -> None:
    p = row["p"] if row["p"] == "nuclear" else f"p = {row['p']:g}"
    seed = f"seed {row['seed']}, " if "seed" in row else ""
    method = f"{row['method']}, {row['iterations']} steps, {row['seconds']} s"
    say(f"{seed}{p}: {row['status']} ({method})")
    if quiet:
        return
    certificate = solution.certificate
    if certificate is not None:
        if certificate.identical is not None:
            i, a, t = certificate.identical
            say(f"  sequence {i}: the selected token {a} equals token {t}")
        count = int((certificate.duals != 0).sum())
        if certificate.proof is not None:
            say(
                "  no W gives every selected token a lead: a combination of"
                f" {count} constraints cancels exactly (proved by {certificate.proof})"
            )
        else:
            say(
                "  found no W that gives every selected token a lead, nor a proof that there is"
                f" none: its margin is below {certificate.bound:.1e} of the largest constraint"
            )
        say("  --C PRICE allows violations")
        return
    say(f"  norm            {row['norm']:.10g}")
    say(f"  margin          {solution.margin:.10g}")
    say(f"  support         {row['support']} of {row['constraints']} constraints")
    say(f"  gap             {solution.gap:.1e}  (asked for {solution.tol:.0e})")
    for name, value in row["residuals"].items():
        say(f"  {name:<15} {'-' if value is None else f'{value:.1e}'}")


def _write(out: Path, problem: str, solved: list[tuple[Any, dict[str, Any]]]) -> None:
    import numpy as np

    from mirrormargin.runs import seal, write_atomically

    if out.suffix == ".json":
        solutions = [row | _to_lists(_arrays(solution)) for solution, row in solved]
        report = {"problem": problem, "solutions": solutions}
        text = json.dumps(seal(report), allow_nan=False).encode()
        write_atomically(out, lambda file: file.write(text + b"\n"))
        return
    several_p, several_seeds = (
        len({row.get(key) for _, row in solved}) > 1 for key in ("p", "seed")
    )
    named = {}
    for solution, row in solved:
        suffix = f"_{row['p']!r}".removesuffix(".0") if several_p else ""
        suffix += f"_seed{row['seed']}" if several_seeds else ""
        named |= {name + suffix: value for name, value in _arrays(solution).items()}
    write_atomically(out, lambda file: np.savez_compressed(file, **named))


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


def _to_lists(arrays: dict[str, Any]) -> dict[str, Any]:
    """The arrays among them for JSON, which has no nan: null where there is no solution."""
    import numpy as np

    found = {name: value for name, value in arrays.items() if isinstance(value, np.ndarray)}
    return {
        name: value.tolist() if np.isfinite(value).all() else None for name, value in found.items()
    }
