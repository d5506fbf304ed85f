"""All runs of a training: their weights and duals, and the threads that advance them.

Runs are numbered along (problem, p, init). A run computes the same whichever thread takes it, alone
or in a lane beside others, and however its steps are cut into pieces.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from mirrormargin.attention import AttentionProblem
from mirrormargin.attention.compiled import (
    LOSS_CODES,
    Data,
    Memory,
    allocate,
    pack_all,
    round_up,
)
from mirrormargin.attention.compiled_lanes import allocate_lanes
from mirrormargin.dynamics.descent.lane_groups import find_least_group, form_groups
from mirrormargin.dynamics.descent.lane_loop import advance_lanes, allocate_tensors
from mirrormargin.dynamics.descent.record import MODES, RULES, End
from mirrormargin.dynamics.descent.training_loop import NUM_TENSORS, NUMBERS, advance
from mirrormargin.geometry.lanes import LANES
from mirrormargin.geometry.threads import share_out
from mirrormargin.geometry.vector_batches import power_each

__all__ = ["Batch", "make_batch"]

Array = NDArray[np.float64]
Integers = NDArray[np.int64]

PIECE = 0.5  # seconds that pieces of work should take about, between reports of progress
_FLOPS = 2e9  # a second, a low guess


class _Workspace(NamedTuple):
    """What a thread works in: memory of the loop for one run, its tensors, and that for lanes."""

    memory: Memory
    work: Array
    lanes: tuple[Any, ...]


@dataclass
class Batch:
    """J runs. Weights are kept transposed and padded, as the loops want them.

    Attributes:
        problems: The P problems, stacked.
        which: The index of the problem of each run, (J,).
        scores: Those of each run in a joint training, where the loop writes them, (J, n, Tp).
        u, w: Duals and weights of W or K, (J, rows, dp).
        u2, w2: Those of Q or of the head, (J, rows, dp), with no rows if W alone is trained.
        numbers: (J, len(NUMBERS)), see the loop.
        codes: Mode, rule and loss, (3,).
        step: How far each run is, (J,).
        end: Why it has ended, an :class:`End`, (J,).
        shape: (problem, p, init).
    """

    problems: Data
    which: Integers
    scores: Array | None
    u: Array
    w: Array
    u2: Array
    w2: Array
    numbers: Array
    codes: Integers
    step: Integers
    end: Integers
    shape: tuple[int, int, int]

    @property
    def mode(self) -> int:
        return int(self.codes[0])

    @property
    def is_joint(self) -> bool:
        return self.mode == MODES["joint"]

    @property
    def sizes(self) -> tuple[int, int, int]:
        """n, T and d."""
        _, n, d, _ = self.problems.Xt.shape
        return n, self.problems.X.shape[2], d

    @property
    def dim(self) -> int:
        return self.sizes[2]

    @property
    def exponents(self) -> Array:
        """p of each run, (J,)."""
        return self.numbers[:, NUMBERS.index("p")]

    def keep(self, targets: Integers) -> Callable[[], None]:
        """A function that brings runs on their way to these targets back to where they are now."""
        names = ("u", "w", "u2", "w2", "numbers", "step", "end")
        moving = self._find_moving(targets)
        kept = {name: getattr(self, name)[moving] for name in names}

        def restore() -> None:
            for name, value in kept.items():
                getattr(self, name)[moving] = value

        return restore

    def plan_pieces(self, targets: Integers, threads: int) -> Iterator[Integers]:
        """Cut the way to the targets into pieces that take about :data:`PIECE` seconds each.

        A piece takes some runs the whole way as long as there are enough for all threads, then a
        part of the way.
        """
        n, T, d = self.sizes
        flops = 4 * n * round_up(d) * (d + T) + 100 * n * T + 100 * self.w[0].size
        moving = self._find_moving(targets)
        start = self.step.copy()
        ahead = (targets - start)[moving]
        count = max(1, math.ceil(flops * ahead.sum() / threads / _FLOPS / PIECE))
        # Neighbours in lanes have the same exponent, and all lanes should be filled.
        order = moving[np.argsort(self.exponents[moving], kind="stable")]
        size = LANES * threads
        size *= max(1, math.ceil(len(order) / count / size))
        num_parts = max(1, math.ceil(len(order) / size))
        cuts = math.ceil(count / num_parts)
        for first in range(0, max(1, len(order)), size):
            part = order[first : first + size]
            for cut in range(1, cuts + 1):
                piece = start.copy()
                piece[part] += (targets - start)[part] * cut // cuts
                yield piece

    def advance(self, targets: Integers, threads: int) -> None:
        """Take every run that is still running to its target."""
        targets = np.ascontiguousarray(targets)
        moving = self._find_moving(targets)
        least = find_least_group(self.mode, int(self.codes[1]), *self.sizes)
        groups, alone = form_groups(moving, self.exponents[moving], least, threads)
        # Several groups to a call: passing so many arrays takes microseconds.
        shares = np.array_split(groups, min(len(groups), 4 * threads)) if len(groups) else []
        steps = np.stack([self.step, targets], axis=1)
        lane_state = (self.step, targets, self.end, self.numbers, self.which, self.problems)

        def follow(index: int, space: _Workspace) -> None:
            if index < len(shares):
                arrays = (shares[index], self.codes, *lane_state, self.u, self.w)
                advance_lanes.load()(*arrays, *space.lanes, space.memory)
            else:
                job = int(alone[index - len(shares)])
                arrays = (self.codes, steps[job], *self._see(job))
                self.step[job], self.end[job] = advance.load()(*arrays, space.work, space.memory)

        def allocate_all() -> _Workspace:
            n, T, d = self.sizes
            rows = max(self.w.shape[1], self.w2.shape[1], d)
            return _Workspace(
                memory=allocate(n, T, d),
                work=np.zeros((NUM_TENSORS, rows, self.w.shape[2])),
                lanes=(allocate_tensors(d), allocate_lanes(n, T, d)) if shares else (),
            )

        share_out(follow, len(shares) + len(alone), threads, allocate_all)

    def _see(self, job: int) -> tuple[Any, ...]:
        """Numbers, data and tensors of a run: views of what is changed in place, made once."""
        if job not in self._seen:
            data = Data(*(array[self.which[job]] for array in self.problems))
            if self.scores is not None:
                data = data._replace(scores=self.scores[job])
            tensors = (self.u, self.w, self.u2, self.w2)
            self._seen[job] = (self.numbers[job], data, *(tensor[job] for tensor in tensors))
        return self._seen[job]

    @cached_property
    def _seen(self) -> dict[int, tuple[Any, ...]]:
        return {}

    def _find_moving(self, targets: Integers) -> Integers:
        return np.flatnonzero((self.end == End.RUNNING) & (self.step < targets))

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
    packed = pack_all(problems)
    which = np.repeat(np.arange(P, dtype=np.int64), E * count)
    duals = [power_each(tensor, p - 1) for tensor in tensors]
    return Batch(
        problems=packed,
        which=which,
        scores=packed.scores[which] if mode == "joint" else None,
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
