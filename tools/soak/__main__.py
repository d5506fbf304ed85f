"""Try to break the product, and count: tried, held, refused, wrong.

    python -m tools.soak                      # a sample of every trial, seed 0
    python -m tools.soak --full               # all cases of every trial, about an hour
    python -m tools.soak --seed random        # other cases than last time
    python -m tools.soak svm steps            # these trials only
    python -m tools.soak svm --seed 3 --case 117    # one case again

A case depends on the seed, the trial and its number only. The exit code is 1 if any case is wrong.
"""

from __future__ import annotations

import argparse
import secrets
import sys
import tempfile
import time
import traceback
from collections import Counter
from contextlib import ExitStack
from pathlib import Path
from typing import Any, cast
from zlib import crc32

import numpy as np

from tools.soak.trial import Outcome, SkippedTrial, Trial
from tools.soak.trials import TRIALS

SAMPLE = 0.2  # of the cases of --full
SHOWN = 20  # wrong cases of a trial that are printed


def make_case(trial: Trial, seed: int, number: int, folder: Path) -> Outcome:
    """One case; an error that escapes it is wrong."""
    generator = np.random.default_rng([seed, crc32(trial.name.encode()), number])
    with tempfile.TemporaryDirectory(dir=folder, prefix=f"{number}-") as own:
        try:
            return trial.try_case(generator, Path(own))
        except Exception:
            return Outcome("wrong", traceback.format_exc())


def make_trial(trial: Trial, seed: int, numbers: list[int]) -> Counter[str]:
    """Make these cases of a trial, print the wrong ones, and count the outcomes."""
    counts: Counter[str] = Counter()
    start = shown = time.monotonic()
    with tempfile.TemporaryDirectory(prefix=f"soak-{trial.name}-") as name, ExitStack() as stack:
        folder = Path(name)
        stack.enter_context(cast(Any, trial.session(folder)))
        for done, number in enumerate(numbers, 1):
            outcome = make_case(trial, seed, number, folder)
            counts[outcome.kind] += 1
            if outcome.kind == "wrong" and counts["wrong"] <= SHOWN:
                print(f"{trial.name}: case {number} of seed {seed} is wrong: {outcome.what}")
            if len(numbers) == 1 and outcome.kind != "wrong":
                print(f"{trial.name}: case {number} of seed {seed} {outcome.kind}: {outcome.what}")
            if time.monotonic() - shown > 10:
                shown = time.monotonic()
                print(
                    f"{trial.name}: {done} of {len(numbers)}, {counts['wrong']} wrong,"
                    f" {shown - start:.0f} s",
                    file=sys.stderr,
                    flush=True,
                )
    counts["seconds"] = round(time.monotonic() - start)
    return counts


def main() -> int:
    parser = argparse.ArgumentParser(
        prog="python -m tools.soak",
        description=(__doc__ or "").split("\n\n")[0],
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    names = [trial.name for trial in TRIALS]
    parser.add_argument("trials", nargs="*", metavar="TRIAL", help=f"of {', '.join(names)}")
    parser.add_argument("--full", action="store_true", help="all cases, about an hour on 2 cores")
    parser.add_argument("--seed", default="0", help="a number, or random")
    parser.add_argument("--share", type=float, default=SAMPLE, help="of the cases of --full")
    parser.add_argument("--case", type=int, help="make this case only")
    options = parser.parse_args()
    if unknown := [name for name in options.trials if name not in names]:
        parser.error(f"there is no trial {unknown[0]!r}: choose from {', '.join(names)}")
    if options.seed == "random":
        seed = secrets.randbelow(1 << 31)
    elif options.seed.isdecimal():
        seed = int(options.seed)
    else:
        parser.error(f"--seed is {options.seed!r}: give a number from 0, or random")
    if not 0 < options.share <= 1:
        parser.error(f"--share is {options.share}: give a number above 0 and at most 1")
    print(f"seed {seed}", flush=True)
    rows, number_wrong = [], 0
    for trial in TRIALS:
        if options.trials and trial.name not in options.trials:
            continue
        share = 1.0 if options.full else options.share
        numbers = list(range(max(1, round(share * trial.number))))
        if options.case is not None:
            numbers = [options.case]
        try:
            counts = make_trial(trial, seed, numbers)
        except SkippedTrial as reason:
            rows.append(f"| {trial.title} | skipped: {reason} | | | | |")
            continue
        number_wrong += counts["wrong"]
        cells = [len(numbers), *(counts[k] for k in ("held", "refused", "wrong", "seconds"))]
        rows.append(f"| {trial.title} | " + " | ".join(str(cell) for cell in cells) + " |")
    print("\n| trial | tried | held | refused | wrong | seconds |\n|---|---|---|---|---|---|")
    print("\n".join(rows))
    return int(number_wrong > 0)


if __name__ == "__main__":
    sys.exit(main())
