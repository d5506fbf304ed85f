"""Options of a training in the lab: its steps, and where it starts."""

from __future__ import annotations

from typing import Any

from mirrormargin.cli.options import (
    Once,
    add_exponents,
    add_seed,
    add_threads,
    read_count,
    read_number,
    read_positive,
    read_seeds,
)

__all__ = ["add_start", "add_training"]


def add_training(group: Any) -> None:
    """Exponents, seeds and steps."""
    add_exponents(group, None)
    add_seed(group)
    group.add_argument(
        "--step-rule",
        choices=("normalized", "constant", "polyak"),
        help="how long a step is (default: normalized)",
    )
    group.add_argument(
        "--lr",
        type=read_number,
        nargs="+",
        metavar="RATE",
        help="learning rate, one or one for each p (default: 0.1)",
    )
    group.add_argument(
        "--steps",
        type=read_count,
        nargs="+",
        metavar="N",
        help="how many, one number or one for each p (default: 2000)",
    )
    group.add_argument(
        "--eps", type=read_number, help="added to the norm that normalized steps are divided by"
    )
    group.add_argument(
        "--max-lr", type=read_number, metavar="RATE", help="largest step of Polyak's rule"
    )
    add_threads(group)


def add_start(group: Any) -> None:
    """Initial values, the head, and factors of W."""
    group.add_argument(
        "--init-std",
        type=read_number,
        metavar="STD",
        help="deviation of normal entries at the start (default: 0, start at zero)",
    )
    group.add_argument(
        "--init-seeds",
        type=read_seeds,
        nargs="+",
        action=Once,
        metavar="SEED",
        help="one start for each, as 1 2 3 or 1-10 (default: 0)",
    )
    group.add_argument("--joint", action="store_true", help="train the head too")
    group.add_argument(
        "--decay", type=read_number, metavar="A", help="lr / (k + 1)^A at step k, with --joint"
    )
    group.add_argument(
        "--head-decay", type=read_number, metavar="A", help="the same for the head, with --joint"
    )
    group.add_argument(
        "--parameterization",
        choices=("W", "KQ"),
        help="train W, or K and Q with W = K Q' (default: W)",
    )
    group.add_argument(
        "--rank", type=read_positive, metavar="N", help="columns of K and Q (default: d)"
    )
