r"""A sparsity by name: during training the smallest weights are removed, an exact share of them.

    share(t) = share * (1 - (1 - s)^3),    s = (t - start) / (end - start), in shares of num_steps

The course is that of gradual magnitude pruning (Zhu and Gupta, 2017, arXiv 1710.01878); meanwhile
the weights move in the geometry of their optimizer. At a ranking floor(share(t) * N) of the N
weights are removed; between two rankings, and after the last one, the mask is fixed.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from fnmatch import fnmatchcase
from typing import Any, Literal

import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from mirrormargin.arguments import (
    check_choice,
    check_count,
    check_kind,
    check_number,
    read_items,
    show,
)
from mirrormargin.errors import OptimizerError
from mirrormargin.optim.masks import MASK, REMOVED, Removed
from mirrormargin.optim.mirror_optimizer import MirrorOptimizer
from mirrormargin.optim.parts import Parts, read_parts
from mirrormargin.optim.patterns import Pattern
from mirrormargin.optim.ranking import rank_smallest
from mirrormargin.optim.removal import FIRST, Member, remove_compiled
from mirrormargin.optim.shards import add_up_all, get_local

__all__ = ["SparsitySchedule", "find_mirror_optimizer"]

ROUNDING = 1e-9  # 0.29 * 100 is 28.999999999999996


class SparsitySchedule:
    """Removes a rising share of an optimizer's weights, to the exact number that was asked for.

    It is used like a schedule of the learning rate: :meth:`step` after each step of the optimizer.

        optimizer = mm.MirrorAdam(mm.mirror_groups(model, p=1.5), lr=1e-2)
        schedule = mm.SparsitySchedule(optimizer, share=0.95, num_steps=len(batches) * epochs)
        for batch in batches:
            ...
            optimizer.step()
            schedule.step()
            optimizer.zero_grad()
        schedule.finalize()

    Masks are part of the optimizer's state, and so of its checkpoints. Removed weights are exactly
    0, or at their centre, after every step. A removed weight that someone writes to keeps what was
    written, and takes part in the next ranking.

    Args:
        optimizer: A :class:`MirrorAdam` or :class:`MirrorDescent`, or what Accelerate or Lightning
            have wrapped one in.
        share: Of the weights that are removed in the end.
        num_steps: Of the whole training: :meth:`step` is called so often.
        start: Share of the steps after which weights begin to be removed.
        end: Share of the steps after which the last ones are removed.
        params: Which tensors: parameters, or shell-style patterns on names (of an optimizer that
            knows them). None for those that :func:`mirror_groups` found to be matrices; of an
            optimizer without such groups, all tensors of two or more dimensions.
        scope: ``"global"`` ranks all tensors together, ``"tensor"`` each by itself.
        pattern: Such as ``"2:4"``: of 4 neighbours in a row at most 2 are left. ``share`` is then
            the share that the pattern removes, 0.5 here.
        groups: ``"rows"`` removes whole rows of matrices, ``"heads"`` and ``"units"`` attention
            heads and hidden units of ``model``, ranked by the norm of all weights that belong to
            one; or :class:`Parts`. ``share`` is then that of rows, heads or units.
        model: In which to look for heads or units.
        every: Steps between two rankings.
        removed: What becomes of the u of a removed weight: it is ``"forgotten"``, and the weight
            stands still, or it goes on behind the weight, which may return, and is ``"clipped"`` to
            the smallest weight left, ``"decayed"`` by half at every ranking, or ``"kept"``.
        regrow: Share of the weights that are left which change places at a ranking with removed
            ones of the largest gradients, falling to 0 at ``end`` (RigL, Evci et al. 2020). The
            gradients have to be there in :meth:`step`.

    Raises:
        OptimizerError: If an option cannot be used, or there is nothing to remove.

    Example:
        >>> import mirrormargin as mm
        >>> weight = nn.Parameter(torch.tensor([[3.0, -0.1, 2.0, 0.2]]))
        >>> optimizer = mm.MirrorAdam([weight], lr=0.0)
        >>> schedule = SparsitySchedule(optimizer, share=0.5, num_steps=1, end=1.0)
        >>> weight.sum().backward(); _ = optimizer.step(); schedule.step()
        >>> weight.tolist()
        [[3.0, 0.0, 2.0, 0.0]]
    """

    def __init__(
        self,
        optimizer: Optimizer,
        share: float,
        num_steps: int,
        start: float = 0.0,
        end: float = 0.7,
        *,
        params: Iterable[Tensor | str] | None = None,
        scope: Literal["global", "tensor"] = "global",
        pattern: str | None = None,
        groups: Literal["rows", "heads", "units"] | Parts | None = None,
        model: nn.Module | None = None,
        every: int = 20,
        removed: Removed = "forgotten",
        regrow: float = 0.0,
    ) -> None:
        optimizer = find_mirror_optimizer(optimizer)
        number = {"least": 0.0, "error": OptimizerError}
        self.share = check_number("share", share, below=1.0, **number)
        self.num_steps = check_count("num_steps", num_steps, error=OptimizerError)
        self.start = check_number("start", start, below=1.0, **number)
        self.end = check_number("end", end, above=self.start, most=1.0, error=OptimizerError)
        self.every = check_count("every", every, error=OptimizerError)
        self.regrow = check_number("regrow", regrow, most=1.0, **number)
        check_choice("scope", scope, ("global", "tensor"), error=OptimizerError)
        check_choice("removed", removed, REMOVED, error=OptimizerError)
        self.optimizer, self.scope = optimizer, scope
        self.pattern = None if pattern is None else Pattern.read(pattern, self.share)
        self.removed = removed
        self.num_calls = 0
        self._members = _choose_members(optimizer, params)
        self.parts = None
        if model is not None:
            hint = "in which to look for heads or units"
            check_kind("model", model, nn.Module, hint, error=OptimizerError)
        if groups is not None:
            self.parts = read_parts(groups, model, [member.param for member in self._members])
            self._members = self.parts.join(optimizer)
        self._refuse_combinations(removed)
        if self.pattern is not None:
            self.pattern.check([member.param for member in self._members])
        for member in self._members:
            own = member.group.setdefault("removed", None)
            if own not in (None, removed):
                raise OptimizerError(
                    f"removed={removed!r}, but the group of these weights has removed={own!r} from"
                    " another schedule: give both the same"
                )
            member.group["removed"] = removed
        # torch's distributed checkpoints load what a fresh state has, so masks have to be there.
        # Pinned by ``test_distributed_checkpoints_hold_masks``.
        self._hook = optimizer.register_state_dict_pre_hook(self._open_masks)
        self._is_resumed = False

    def _open_masks(self, _: Optimizer) -> None:
        for member in self._members:
            if member.state:
                member.open_mask()

    def _refuse_combinations(self, removed: str) -> None:
        if self.regrow and removed != "forgotten":
            raise OptimizerError(
                f"regrow brings back forgotten weights, but removed={removed!r}: use one of them"
            )
        for member in self._members:
            own = member.group["potential"]
            if own is not None and not own.is_separable and removed != "forgotten":
                raise OptimizerError(
                    f"{own!r} couples weights, and one whose u goes on would act on those left:"
                    " use removed='forgotten'"
                )
        if self.parts is None:
            return
        for name, value in (("pattern", self.pattern), ("regrow", self.regrow or None)):
            if value is not None:
                raise OptimizerError(f"groups and {name} do not go together: leave one out")
        if removed != "forgotten":
            raise OptimizerError("groups forget what they remove: use removed='forgotten'")
        if any(member.group["center"] for member in self._members):
            raise OptimizerError("groups remove weights, and center=True keeps them: leave one out")

    def share_at(self, step: int) -> float:
        """The share of the weights that is removed at a ranking after so many steps."""
        step = check_count("step", step, least=0, error=OptimizerError)
        first, last = self._find_course()
        progress = 1.0 if step >= last else max(0.0, (step - first) / (last - first))
        return self.share * (1 - (1 - progress) ** 3) if step < last else self.share

    def _find_course(self) -> tuple[float, int]:
        return self.start * self.num_steps, max(1, math.ceil(self.end * self.num_steps))

    @property
    def is_over(self) -> bool:
        """Whether the last ranking has been."""
        return self.num_calls >= self._find_course()[1]

    @torch.no_grad()
    def step(self) -> None:
        """Count a step of the optimizer; every so often rank the weights and remove some.

        Raises:
            OptimizerError: If ``regrow`` needs a gradient that is not there.
        """
        if self._is_resumed:
            self._check_masks()
        self.num_calls += 1
        first, last = self._find_course()
        if self.num_calls > last:
            return
        is_due = self.num_calls > first and self.num_calls % self.every == 0
        if is_due or self.num_calls == last:
            self.rank(self.share_at(self.num_calls))

    @torch.no_grad()
    def rank(self, share: float) -> None:
        """Remove this share of the weights now; :meth:`step` calls it."""
        share = check_number("share", share, least=0.0, most=1.0, error=OptimizerError)
        self._check_members()
        if self.parts is not None:
            self.parts.remove(share)
        elif self.scope == "global":
            self._rank_together(self._members, share)
        else:
            for member in self._members:
                self._rank_together([member], share)

    def _check_members(self) -> None:
        """Raise unless the optimizer still steps them; groups that were loaded learn of them."""
        known = {id(param) for group in self.optimizer.param_groups for param in group["params"]}
        for member in self._members:
            if id(member.param) not in known:
                raise OptimizerError(
                    "the optimizer has other parameters than when the schedule was made: make it"
                    " after they are replaced, as by Accelerate's prepare with FSDP2"
                )
            member.group["removed"] = self.removed

    def _check_masks(self) -> None:
        """Raise if weights were removed before a checkpoint, and it is not known which."""
        self._is_resumed = False
        first, last = self._find_course()
        first_ranking = min(last, (math.floor(first) // self.every + 1) * self.every)
        is_known = any(MASK in member.state for member in self._members)
        if self.num_calls >= first_ranking and not is_known:
            raise OptimizerError(
                f"the schedule continues after step {self.num_calls}, and the optimizer does not"
                " know what was removed: load its checkpoint as well, and make the schedule before"
                " one of torch.distributed is loaded"
            )

    def _rank_together(self, members: Sequence[Member], share: float) -> None:
        params = [member.param for member in members]
        count = math.floor(share * sum(param.numel() for param in params) + ROUNDING)
        if not self.regrow and self.pattern is None and remove_compiled(members, count):
            return
        is_wide = any(param.dtype is torch.float64 for param in params)
        dtype = torch.float64 if is_wide else torch.float32
        exchanged = self._count_exchanged(members, count)

        def score(i: int) -> Tensor:
            own = members[i].score(dtype)
            return own if self.pattern is None else self.pattern.restrict(own)

        found = rank_smallest(score, params, count + exchanged)
        smallest = found.smallest
        if exchanged:
            smallest = self._bring_back(members, smallest, exchanged, dtype)
        for member, its in zip(members, smallest, strict=True):
            member.remove(its, found.threshold)

    def _count_exchanged(self, members: Sequence[Member], count: int) -> int:
        """How many weights change places: none in the end, and no more than are removed already."""
        if not self.regrow:
            return 0
        first, last = self._find_course()
        left = sum(member.param.numel() for member in members) - count
        wanted = self.regrow * max(0.0, (last - self.num_calls) / max(last - first, 1)) * left
        return min(math.floor(wanted), _count_removed(members))

    def _bring_back(
        self,
        members: Sequence[Member],
        smallest: Sequence[Tensor],
        count: int,
        dtype: torch.dtype,
    ) -> list[Tensor]:
        """Without those of the weights removed before whose gradients are the largest."""
        for member in members:
            if member.param.grad is None:
                raise OptimizerError(
                    "regrow needs the gradients of all tensors: call step() of the schedule before"
                    " zero_grad()"
                )

        def score(i: int) -> Tensor:
            size = get_local(members[i].param.grad).to(dtype).abs()
            return torch.where(members[i].open_mask(), FIRST, size)

        params = [member.param for member in members]
        others = sum(param.numel() for param in params) - count
        left = rank_smallest(score, params, others).smallest
        return [own & its for own, its in zip(smallest, left, strict=True)]

    @property
    def removed_share(self) -> float:
        """The share of the weights that is removed now; where ranks share them, ask on all."""
        if self.parts is not None:
            return self.parts.removed_share
        total = sum(member.param.numel() for member in self._members)
        if not total:  # finalized
            return 0.0
        return _count_removed(self._members) / total

    @torch.no_grad()
    def finalize(self) -> None:
        """End the schedule: what is left is a plain optimizer of weights some of which are 0.

        If training goes on, they move again.
        """
        self._hook.remove()
        for member in self._members:
            member.release()
            member.group.pop("removed", None)
        self._members = []

    def state_dict(self) -> dict[str, Any]:
        """How far the schedule is; the masks are in the optimizer's state."""
        return {"num_calls": self.num_calls, "share": self.share, "num_steps": self.num_steps}

    def load_state_dict(self, state_dict: Mapping[str, Any]) -> None:
        """Go on where another schedule of the same course was.

        Raises:
            OptimizerError: If it was of another course.
        """
        hint = "as state_dict() of a schedule returned"
        check_kind("state_dict", state_dict, Mapping, hint, error=OptimizerError)
        for name in ("share", "num_steps"):
            if state_dict.get(name) != getattr(self, name):
                raise OptimizerError(
                    f"the saved schedule has {name}={show(state_dict.get(name))}, this one"
                    f" {getattr(self, name)}: build it as the saved one was"
                )
        num_calls = state_dict.get("num_calls")
        self.num_calls = check_count("num_calls", num_calls, least=0, error=OptimizerError)
        self._is_resumed = True


def find_mirror_optimizer(optimizer: Any) -> MirrorOptimizer:
    """The optimizer itself, or the one inside what Accelerate or Lightning wraps around it."""
    inner = getattr(optimizer, "optimizer", None)
    hint = "a MirrorAdam or MirrorDescent (at p = 2 they are AdamW and SGD)"
    found = inner if isinstance(inner, MirrorOptimizer) else optimizer
    return check_kind("optimizer", found, MirrorOptimizer, hint, error=OptimizerError)


def _count_removed(members: Sequence[Member]) -> int:
    counts = [(~member.open_mask()).sum() for member in members]
    return int(add_up_all(counts, [member.param for member in members]))


def _choose_members(
    optimizer: MirrorOptimizer, params: Iterable[Tensor | str] | None
) -> list[Member]:
    everything = [
        (Member(optimizer, number, param), name)
        for number, group in enumerate(optimizer.param_groups)
        for param, name in zip(
            group["params"], group.get("param_names", [""] * len(group["params"])), strict=True
        )
    ]
    if params is None:
        marked = [member for member, _ in everything if member.group.get("is_matrices")]
        chosen = marked or [member for member, _ in everything if member.param.ndim >= 2]
    else:
        chosen = _pick(everything, params)
    if not chosen:
        raise OptimizerError(
            "there is nothing to remove: the optimizer has no tensor of two dimensions; name some"
            " with params"
        )
    return chosen


def _pick(everything: Sequence[tuple[Member, str]], params: Iterable[Tensor | str]) -> list[Member]:
    """The members that are named, by themselves or by a pattern on their names."""
    allowed = "parameters or patterns on their names"
    chosen: dict[int, Member] = {}
    for one in read_items("params", params, allowed, error=OptimizerError):
        if isinstance(one, str):
            found = [member for member, name in everything if fnmatchcase(name, one)]
        else:
            found = [member for member, _ in everything if member.param is one]
        if not found:
            names = [name for _, name in everything if name]
            hint = f"names look like {', '.join(names[:3])}" if names else "it knows no names"
            raise OptimizerError(
                f"params has {show(one)}, which is nothing that the optimizer steps: {hint}"
            )
        chosen |= {id(member.param): member for member in found}
    return list(chosen.values())
