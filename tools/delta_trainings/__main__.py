"""Train what is missing; see the package."""

from __future__ import annotations

import argparse
from concurrent.futures import ProcessPoolExecutor

import tools.delta_trainings
from tools.delta_trainings.table import store
from tools.delta_trainings.trainings import NAMES, RECORDS, TASKS, Records, list_missing


def main() -> None:
    parser = argparse.ArgumentParser(
        prog="python -m tools.delta_trainings",
        description=tools.delta_trainings.__doc__,
        formatter_class=argparse.RawTextHelpFormatter,
    )
    parser.add_argument("--tasks", nargs="+", choices=TASKS, default=list(TASKS))
    parser.add_argument("--methods", nargs="+", choices=NAMES, default=list(NAMES))
    parser.add_argument("--workers", type=int, default=1)
    parser.add_argument("--data-dir", default=None)
    parser.add_argument("--list", action="store_true", help="list what can be trained now")
    parser.add_argument(
        "--store", action="store_true", help="write what claims read, and train nothing"
    )
    arguments = parser.parse_args()
    records = Records(RECORDS)
    if arguments.store:
        print("stored", *store(records))
        return
    if arguments.list:
        for trial in list_missing(records, arguments.tasks, arguments.methods):
            print(trial.key)
        return
    from tools.delta_trainings.run import train

    with ProcessPoolExecutor(arguments.workers) as pool:
        while missing := list(list_missing(records, arguments.tasks, arguments.methods)):
            for row in pool.map(train, missing, [arguments.data_dir] * len(missing)):
                records.add(row)
                print(row["key"], row["minutes"], "min", row["scores"], flush=True)


if __name__ == "__main__":
    main()
