r"""What is to be done, cut into tasks of some seconds each, one after the other.

    seconds of a lab run = (steps (4 n d (d + T) + 100 (n T + d^2)) + 6e6) / 1e10

is a guess that is good within a factor of two: it decides how many runs are a task, and how the
time that is left is estimated. Tasks are made as they are asked for, so a billion runs take no
memory.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import accumulate
from statistics import fmean

from mirrormargin.sweep.axes import Product
from mirrormargin.sweep.intervals import Intervals
from mirrormargin.sweep.lab_grid import COLUMNS, count_calls, list_sizes
from mirrormargin.sweep.tasks import Place, Task

__all__ = ["Block", "estimate_cost", "list_blocks", "list_tasks"]

TASK_SECONDS = 10.0  # of one core, about: what a kill may cost
FLOPS = 1e10  # a second
RUN_FLOPS = 6e6  # for the problem, the measures, the target and the row of a run
MOST_RUNS = 1 << 14  # of a task
MOST_NUMBERS = 1 << 23  # in the matrices that a task records


@dataclass(frozen=True)
class Block:
    """Runs ``first <= number < stop`` of a sweep that may share a task, and what one of them costs.

    Attributes:
        product: Index of the product.
        first: The first.
        stop: The one behind the last.
        cost: Of one run: seconds in the lab, 1 for trainings.
        most: Runs of a task.
        width: Runs that are best not separated: those of one problem and start.
    """

    product: int
    first: int
    stop: int
    cost: float
    most: int
    width: int = 1


def list_blocks(kind: str, products: Sequence[Product]) -> Iterator[Block]:
    """All blocks of a sweep, in the order of their runs."""
    offset = 0
    for index, product in enumerate(products):
        if kind == "lab":
            yield from _list_lab_blocks(index, product, offset)
        else:
            yield Block(index, offset, offset + product.size, 1.0, 1)
        offset += product.size


def _list_lab_blocks(index: int, product: Product, offset: int) -> Iterator[Block]:
    calls = count_calls(product)
    length = product.size // calls
    width = 1
    for name in COLUMNS:
        width *= len(product.axes[name])
    for number in range(calls):
        n, T, d = list_sizes(product, number * length)
        settings = product.settings(number * length)
        steps = fmean(product.axes["num_steps"].values)
        flops = steps * (4 * n * d * (d + T) + 100 * (n * T + d * d)) + RUN_FLOPS
        record = settings["record"]
        kept = (len(record) if isinstance(record, list) else record) + 2
        most = min(MOST_RUNS, int(TASK_SECONDS * FLOPS / flops), MOST_NUMBERS // (kept * d * d))
        first = offset + number * length
        yield Block(index, first, first + length, flops / FLOPS, max(1, most), width)


def estimate_cost(blocks: Iterator[Block], done: Intervals) -> tuple[float, float]:
    """What all runs of these blocks cost, and those that are not done yet."""
    total = left = 0.0
    for block in blocks:
        total += block.cost * (block.stop - block.first)
        left += block.cost * sum(b - a for a, b in done.gaps(block.first, block.stop))
    return total, left


def list_tasks(
    kind: str, products: Sequence[Product], done: Intervals, place: Place, most: int | None = None
) -> Iterator[Task]:
    """Tasks of all runs that are not done, in their order.

    Args:
        kind: "lab" or "training".
        products: Of the sweep.
        done: Runs that are not to be computed; it may grow while tasks are taken.
        place: Where to compute.
        most: Runs of a task; None for what takes some seconds.
    """
    documents = [product.to_document() for product in products]
    offsets = list(accumulate((product.size for product in products), initial=0))
    for block in list_blocks(kind, products):
        size = block.most if most is None else min(most, block.most)
        size = max(size - size % block.width, min(size, block.width))
        for begin, end in done.gaps(block.first, block.stop):
            first = begin
            while first < end:
                # Up to the next multiple of the size: what was cut before is cut there again.
                stop = min(end, first + size - (first - block.first) % size)
                yield Task(
                    kind,
                    documents[block.product],
                    offsets[block.product],
                    first,
                    stop,
                    place,
                    block.cost,
                )
                first = stop
