r"""Many deltas over one loaded model: the base once, and a few numbers for each task.

    switch from b to a:   w[i_b] = w_0[i_b],   then w[i_a] = round(w_0[i_a] + d_a)

Only the entries concerned are touched, and what they become is computed when a delta is added. For
each number there are an index, the base's value and the task's: 16 bytes in float32.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from mirrormargin.arguments import check_function, check_kind, read_items, show
from mirrormargin.deltas.application import has_deltas
from mirrormargin.deltas.changes import Change, check_shapes, make_changes, write_changes
from mirrormargin.deltas.requests import call_model, count_rows, join_rows, select_rows
from mirrormargin.deltas.space import digest_tensor
from mirrormargin.deltas.sparse_delta import SparseDelta
from mirrormargin.deltas.tensors import find_slots, get_slot, read_slots
from mirrormargin.errors import DeltaError, suggest

__all__ = ["DeltaStore"]


class DeltaStore:
    """Serves many tasks with one model. It is for one thread at a time.

    Args:
        model: The base, alone or wrapped. While the store is used, nobody else writes to it.

    Example:
        >>> base, model = torch.nn.Linear(3, 1), torch.nn.Linear(3, 1)
        >>> store = DeltaStore(base)
        >>> store.add("task", SparseDelta.extract(model, base, keep=2))
        >>> with store.use("task"):
        ...     answers = base(torch.ones(5, 3))
        >>> store.current is None
        True
    """

    def __init__(self, model: nn.Module) -> None:
        self._model = check_kind("model", model, nn.Module, error=DeltaError)
        if has_deltas(model):
            raise DeltaError("a delta is applied to the model: remove it first, then make a store")
        self._slots = find_slots(model)
        self._digests: dict[str, bytes] = {}
        self._changes: dict[str, list[Change]] = {}
        self._seen: dict[str, tuple[int, int]] = {}
        self._current: str | None = None

    @property
    def names(self) -> tuple[str, ...]:
        """Of the tasks, in the order in which they were added."""
        return tuple(self._changes)

    @property
    def current(self) -> str | None:
        """The task that the model is switched to; None is the base."""
        return self._current

    @property
    def num_bytes(self) -> int:
        """What all tasks take in memory beside the model."""
        return sum(one.num_bytes for changes in self._changes.values() for one in changes)

    def add(self, name: str, delta: SparseDelta | str | os.PathLike[str]) -> None:
        """Add a task; the model stays as it is.

        The sha256 of the base is computed once, with the first delta.

        Args:
            name: Of the task.
            delta: The delta, or the path of its file.

        Raises:
            DeltaError: If there is a task of that name, or the delta is one of another base.
        """
        if not isinstance(name, str) or not name:
            raise DeltaError(f"name is {show(name)}: give the name of a task")
        if name in self._changes:
            raise DeltaError(f"there is a task {show(name)} already: remove it first")
        if not isinstance(delta, SparseDelta):
            delta = SparseDelta.load(delta)
        with self.use(None):
            tensors = read_slots(self._slots)
            check_shapes(tensors, delta.contents)
            delta.space.check_base(lambda one: self._digest(one, tensors[one]))
            changes = make_changes(tensors, delta.contents)
            self._changes[name] = changes
            self._note(changes)

    def remove(self, name: str) -> None:
        """Remove a task; the model is switched to the base if it was on it.

        Raises:
            DeltaError: If there is no such task.
        """
        if name is None:
            raise DeltaError("name is None: give the name of a task, for the base stays")
        self._find(name)
        if name == self._current:
            self.switch(None)
        del self._changes[name]

    def switch(self, name: str | None) -> None:
        """Make the model that of a task, or the base again with None.

        Raises:
            DeltaError: If there is no such task, or somebody else has written to the entries
                concerned, has moved the model or has changed its type, or if a tensor cannot be
                written to; the model is then unchanged.
        """
        coming = self._find(name)
        if name == self._current:
            return
        going = self._find(self._current)
        tensors = {one.name: get_slot(self._slots[one.name]) for one in (*going, *coming)}
        touched = {one.name for one in going}
        for change in going:
            self._check(change, tensors[change.name], change.is_written)
        for change in coming:
            if change.name not in touched:
                self._check(change, tensors[change.name], change.is_undone)
        write_changes(tensors, [*(change.inverse() for change in going), *coming])
        self._current = name
        self._note((*going, *coming))

    @contextmanager
    def use(self, name: str | None) -> Iterator[None]:
        """Switch to a task within a ``with``, and back to what was there before."""
        before = self._current
        self.switch(name)
        try:
            yield
        finally:
            self.switch(before)

    @torch.no_grad()
    def run(
        self,
        inputs: Tensor | Mapping[str, Tensor] | list[Any],
        tasks: Sequence[str | None],
        forward: Callable[[Any], Any] | None = None,
    ) -> Any:
        """Answer a batch whose requests are of different tasks.

        Requests of one task are answered together, so that each task costs one switch.

        Args:
            inputs: One row for each request: a tensor, tensors by name, or a list.
            tasks: The task of each request; None is the base.
            forward: From the rows of some requests to their outputs: a tensor, tensors by name or
                a list, with a row for each of them. None calls the model.

        Returns:
            The outputs of all requests, in their order.

        Raises:
            DeltaError: If there is no such task, or not one row for each request.
        """
        names = read_items("tasks", tasks, "the name of a task for each input", error=DeltaError)
        for name in names:
            self._find(name)
        if count_rows("inputs", inputs) != len(names):
            raise DeltaError(
                f"there are {count_rows('inputs', inputs)} inputs and {len(names)} tasks: give a"
                " task for each input"
            )
        if not names:
            raise DeltaError("there are no inputs: give one at least")
        function = partial(call_model, self._model) if forward is None else forward
        check_function("forward", function, "forward(inputs)", error=DeltaError)
        rows: dict[str | None, list[int]] = {}
        for row, name in enumerate(names):
            rows.setdefault(name, []).append(row)
        outputs = []
        order = sorted(rows, key=lambda name: name != self._current)  # the current one first
        with self.use(self._current):
            for name in order:
                self.switch(name)
                outputs.append(function(select_rows(inputs, rows[name])))
                if (count := count_rows("the outputs", outputs[-1])) != len(rows[name]):
                    raise DeltaError(
                        f"forward gave {count} outputs for {len(rows[name])} inputs: return a row"
                        " for each"
                    )
        return join_rows(outputs, [rows[name] for name in order])

    def _find(self, name: str | None) -> list[Change]:
        if name is None:
            return []
        if not isinstance(name, str) or name not in self._changes:
            known = suggest(show(name), self.names) if self._changes else "there are none"
            raise DeltaError(f"there is no task {show(name)}: {known}, or add it first")
        return self._changes[name]

    def _digest(self, name: str, tensor: Tensor) -> bytes:
        if name not in self._digests:
            self._digests[name] = digest_tensor(name, tensor)
            self._seen[name] = _find_version(tensor)
        return self._digests[name]

    def _note(self, changes: Sequence[Change]) -> None:
        for change in changes:
            self._seen[change.name] = _find_version(get_slot(self._slots[change.name]))

    def _check(self, change: Change, tensor: Tensor, has: Callable[[Tensor], bool]) -> None:
        """Raise if somebody else has written to the entries; a glance if nobody wrote at all."""
        is_alike = (tensor.dtype, tensor.device) == (change.after.dtype, change.after.device)
        if is_alike and (self._seen.get(change.name) == _find_version(tensor) or has(tensor)):
            return
        raise DeltaError(
            f"{change.name} is no longer what the store has left: somebody else has written to it,"
            " or has moved the model; load the base and make a new store"
        )

    def __repr__(self) -> str:
        names = ", ".join(self.names[:4]) + (", ..." if len(self.names) > 4 else "")
        return (
            f"DeltaStore({len(self.names)} tasks{': ' if names else ''}{names[:80]},"
            f" current={self._current!r}, {self.num_bytes:,} bytes)"
        )


def _find_version(tensor: Tensor) -> tuple[int, int]:
    return (-1 if tensor.is_inference() else tensor._version), tensor.data_ptr()
