"""All runs of a training: their weights and duals, and the threads that advance them.

Runs are numbered along (problem, p, init). A run computes the same whichever thread takes it, and
however its steps are cut into pieces.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mirrormargin.attention import AttentionProblem
from mirrormargin.attention.compiled import LOSS_CODES, Data, Memory, allocate, pack, round_up
from mirrormargin.dynamics.descent.record import MODES, RULES, End
from mirrormargin.dynamics.descent.training_loop import NUM_TENSORS, NUMBERS, advance
from mirrormargin.geometry.threads import share_out
from mirrormargin.geometry.vector_batches import power_each

__all__ = ["Batch", "make_batch"]

Array = NDArray[np.float64]

PIECE = 0.5  # seconds that pieces of work should take about, between reports of progress
_FLOPS = 2e9  # a second, a low guess


@dataclass
class Batch:
    """J runs. Weights are kept transposed and padded, as the loop wants them.

    Attributes:
        data: The problem of each run, J of them.
        u, w: Duals and weights of W or K, (J, rows, dp).
        u2, w2: Those of Q or of the head, (J, rows, dp), with no rows if W alone is trained.
        numbers: (J, len(NUMBERS)), see the loop.
        codes: Mode, rule and loss, (3,).
        step: How far each run is, (J,).
        end: Why it has ended, an :class:`End`, (J,).
        shape: (problem, p, init).
    """

    data: list[Data]
    u: Array
    w: Array
    u2: Array
    w2: Array
    numbers: Array
    codes: NDArray[np.int64]
    step: NDArray[np.int64]
    end: NDArray[np.int64]
    shape: tuple[int, int, int]

    @property
    def mode(self) -> int:
        return int(self.codes[0])

    @property
    def is_joint(self) -> bool:
        return self.mode == MODES["joint"]

    @property
    def dim(self) -> int:
        return self.data[0].Xt.shape[1]

    def keep(self) -> Callable[[], None]:
        """A function that brings the batch back to where it is now."""
        names = ("u", "w", "u2", "w2", "numbers", "step", "end")
        kept = {name: getattr(self, name).copy() for name in names}

        def restore() -> None:
            for name, value in kept.items():
                getattr(self, name)[...] = value

        return restore

    def plan_pieces(self, targets: NDArray[np.int64], threads: int) -> Iterator[Any]:
        """Cut the way to the targets into steps that take about :data:`PIECE` seconds each."""
        n, T, dp = self.data[0].X.shape
        flops = 4 * n * dp * (self.dim + T) + 100 * n * T + 100 * self.w[0].size
        ahead = targets - self.step
        count = max(1, int(np.ceil(flops * ahead.sum() / threads / _FLOPS / PIECE)))
        start = self.step.copy()
        for piece in range(1, count + 1):
            yield start + ahead * piece // count

    def advance(self, targets: NDArray[np.int64], threads: int) -> None:
        """Take every run that is still running to its target."""
        loop = advance.load()
        n, T, _ = self.data[0].X.shape
        rows = max(self.w.shape[1], self.w2.shape[1], self.dim)

        def allocate_all() -> tuple[Memory, Array]:
            return allocate(n, T, self.dim), np.zeros((NUM_TENSORS, rows, self.w.shape[2]))

        # A call takes microseconds, as a few steps of a small problem: what can be is done before.
        todo = np.flatnonzero((self.end == End.RUNNING) & (self.step < targets)).tolist()
        steps = np.stack([self.step, targets], axis=1)

        def follow(index: int, memory: tuple[Memory, Array]) -> None:
            job = todo[index]
            codes, *arrays = self._views[job]
            self.step[job], self.end[job] = loop(codes, steps[job], *arrays, memory[1], memory[0])

        share_out(follow, len(todo), threads, allocate_all)

    @cached_property
    def _views(self) -> list[tuple[Any, ...]]:
        """Codes, numbers, data and tensors of each run; they are changed in place only."""
        columns = (self.numbers, self.data, self.u, self.w, self.u2, self.w2)
        return [(self.codes, *row) for row in zip(*columns, strict=True)]

    def matrices(self) -> Array:
        """W of each run, (problem, p, init, d, d)."""
        if self.mode == MODES["KQ"]:
            K, Q = self.factors()
            return K @ Q.swapaxes(-1, -2)
        return _transpose(self.w, self.dim, self.shape)

    def factors(self) -> tuple[Array, Array]:
        """K and Q of each run, (problem, p, init, d, rank)."""
        return _transpose(self.w, self.dim, self.shape), _transpose(self.w2, self.dim, self.shape)

    def heads(self) -> Array:
        """v of each run, (problem, p, init, d)."""
        return self.w2[:, 0, : self.dim].reshape(*self.shape, -1).copy()


def _transpose(tensors: Array, d: int, shape: tuple[int, ...]) -> Array:
    transposed = tensors[:, :, :d].swapaxes(1, 2)
    return np.ascontiguousarray(transposed).reshape(*shape, *transposed.shape[1:])


def make_batch(
    problems: tuple[AttentionProblem, ...],
    exponents: Array,
    mode: str,
    rule: str,
    first: Array,
    second: Array | None,
    numbers: dict[str, Array | float],
) -> Batch:
    """A batch at its start.

    Args:
        problems: P of them.
        exponents: (E,).
        mode: What is trained, a key of MODES.
        rule: The step rule.
        first: Starts of W or K, (P, E, I, d, rows).
        second: Starts of Q, (P, E, I, d, rank), or of v, (P, E, I, d, 1).
        numbers: Those of NUMBERS that are not 0, scalar or (E,).
    """
    P, E, count, d = first.shape[:4]
    shape = (P, E, count)
    dp = round_up(d)
    J = P * E * count
    tensors = [np.zeros((J, given.shape[-1], dp)) for given in (first,)]
    tensors += [np.zeros((J, 0 if second is None else second.shape[-1], dp))]
    for tensor, given in zip(tensors, (first, second), strict=True):
        if given is not None:
            tensor[:, :, :d] = given.reshape(J, d, -1).swapaxes(1, 2)
    p = np.broadcast_to(exponents[:, None], shape).reshape(J)
    table = np.zeros((J, len(NUMBERS)))
    table[:, NUMBERS.index("p")] = p
    for name, value in numbers.items():
        row = np.broadcast_to(value, E)
        table[:, NUMBERS.index(name)] = np.broadcast_to(row[:, None], shape).reshape(J)
    packed = [pack(problem) for problem in problems]
    data = [copy.copy(packed[run[0]]) for run in np.ndindex(shape)]
    if mode == "joint":  # the loop writes the scores of its head
        data = [one._replace(scores=one.scores.copy()) for one in data]
    duals = [power_each(tensor, p - 1) for tensor in tensors]
    return Batch(
        data=data,
        u=duals[0],
        w=tensors[0],
        u2=duals[1],
        w2=tensors[1],
        numbers=table,
        codes=np.array([MODES[mode], RULES[rule], LOSS_CODES[problems[0].loss_name]]),
        step=np.zeros(J, np.int64),
        end=np.full(J, End.RUNNING, np.int64),
        shape=shape,
    )
