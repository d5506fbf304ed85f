r"""Other ways to make block matrices sparse, to compare mirror descent with.

L1Penalty          gradient <- gradient + strength * sign(w)            (subgradient of the l1 norm)
Powerpropagation   w = theta |theta|^(alpha-1), theta trained           (Schwarz et al., 2021)
GradualPruning     w <- mask * w, the mask shrinking on a cubic course  (Zhu and Gupta, 2017);
                   memoryless, w is masked only where it is ranked, and may come back

A Schedule is not another way, but that of :class:`mirrormargin.SparsitySchedule`. Beside any of
them :func:`soften` has the proximal step of an l1 penalty,

    u <- sign(u) max(|u| - lr * strength, 0),       at p = 2 the soft threshold of w,

which composite mirror descent takes after each of its own (Duchi et al., 2010).
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.utils import parametrize
from torch.optim import Optimizer

from mirrormargin.optim import SparsitySchedule
from mirrormargin.optim.dual_state import find_potential
from mirrormargin.optim.mirror_optimizer import MirrorOptimizer
from mirrormargin.optim.shards import get_local
from mirrormargin.training.config import GradualPruning, L1Penalty, Powerpropagation, Schedule
from mirrormargin.training.distributed import get_whole
from mirrormargin.training.pruning import rank_magnitudes
from mirrormargin.training.sparsity import select_matrices

__all__ = ["Sparsifier", "build_sparsifier", "collect_weights", "soften"]

MASK_EVERY = 20  # steps between two rankings: the share of zeros moves slowly


class Sparsifier:
    """Does nothing; what the training loop calls, and where others differ."""

    def begin(self, optimizer: Optimizer, num_steps: int) -> None:
        """Once there is an optimizer, of a training of so many steps."""

    def after_backward(self) -> None:
        """Between the backward pass and the optimizer's step."""

    def after_step(self, step: int, num_steps: int) -> None:
        """After step number ``step`` (from 1) of ``num_steps``."""

    def tensors(self) -> dict[str, Tensor]:
        """What a checkpoint has to keep."""
        return {}

    def load(self, tensors: dict[str, Tensor]) -> None:
        """Take back what :meth:`tensors` gave."""


def build_sparsifier(
    config: L1Penalty | Powerpropagation | GradualPruning | Schedule | None,
    model: nn.Module,
    weight: float,
) -> Sparsifier:
    """Fit a model with a sparsifier; ``weight`` is that of the mean loss in the one minimised."""
    if isinstance(config, L1Penalty):
        return _L1(config.strength * weight, model)
    if isinstance(config, GradualPruning):
        return _Gradual(config, model)
    if isinstance(config, Schedule):
        return _Scheduled(config, model)
    if isinstance(config, Powerpropagation):
        for name in select_matrices(model, "blocks"):
            module = model.get_submodule(name.removesuffix(".weight"))
            parametrize.register_parametrization(module, "weight", _Power(config.alpha))
    return Sparsifier()


class _L1(Sparsifier):
    def __init__(self, strength: float, model: nn.Module) -> None:
        self.strength = strength
        chosen = select_matrices(model, "blocks").values()
        self.matrices = [matrix for matrix in chosen if matrix.requires_grad]

    @torch.no_grad()
    def after_backward(self) -> None:
        for matrix in self.matrices:
            assert matrix.grad is not None
            matrix.grad.add_(matrix.sign(), alpha=self.strength)


class _Gradual(Sparsifier):
    def __init__(self, config: GradualPruning, model: nn.Module) -> None:
        self.config = config
        self.matrices = select_matrices(model, "blocks")
        self.masks = {
            name: torch.ones_like(m, dtype=torch.bool) for name, m in self.matrices.items()
        }

    @torch.no_grad()
    def after_step(self, step: int, num_steps: int) -> None:
        start, end = self.config.start * num_steps, self.config.end * num_steps
        may_return = self.config.memoryless and step < end
        is_ranked = step >= start and (step % MASK_EVERY == 0 or step == num_steps)
        if is_ranked:
            progress = min((step - start) / (end - start), 1.0)
            self._rank(self.config.share * (1 - (1 - progress) ** 3), may_return)
        if is_ranked or not may_return:
            for name, matrix in self.matrices.items():
                matrix.mul_(self.masks[name])

    def _rank(self, share: float, may_return: bool) -> None:
        """Let the masks keep the largest entries of all matrices together; pruned ones are 0."""
        ranked = rank_magnitudes([get_whole(m) for m in self.matrices.values()], share)
        if ranked.num_smallest:
            for name, matrix in self.matrices.items():
                is_kept = matrix.abs() > ranked.threshold
                self.masks[name] = is_kept if may_return else self.masks[name] & is_kept

    def tensors(self) -> dict[str, Tensor]:
        return dict(self.masks)

    def load(self, tensors: dict[str, Tensor]) -> None:
        self.masks = dict(tensors)


class _Scheduled(Sparsifier):
    """The masks are in the optimizer's state, and are kept with that."""

    def __init__(self, config: Schedule, model: nn.Module) -> None:
        self.config, self.model = config, model

    def begin(self, optimizer: Optimizer, num_steps: int) -> None:
        options: dict[str, Any] = vars(self.config) | {"num_steps": num_steps}
        kinds = (self.config.groups or "").split("+")
        if "heads" in kinds or "units" in kinds:
            options["model"] = self.model
        else:
            matrices = select_matrices(self.model, "blocks").values()
            options["params"] = [matrix for matrix in matrices if matrix.requires_grad]
        self.schedules = [
            SparsitySchedule(optimizer, **options | {"groups": kind or None})  # pyright: ignore
            for kind in kinds
        ]

    def after_step(self, step: int, num_steps: int) -> None:
        for schedule in self.schedules:
            schedule.step()

    def tensors(self) -> dict[str, Tensor]:
        return {"num_calls": torch.tensor(self.schedules[0].num_calls)}

    def load(self, tensors: dict[str, Tensor]) -> None:
        for schedule in self.schedules:
            schedule.num_calls = int(tensors["num_calls"])


@torch.no_grad()
def soften(optimizer: Optimizer, model: nn.Module, strength: float) -> None:
    """Move u of the block matrices towards 0, by the learning rate times ``strength``."""
    chosen = {id(matrix) for matrix in select_matrices(model, "blocks").values()}
    for group in optimizer.param_groups:
        for param in group["params"]:
            if id(param) in chosen:
                _soften(optimizer, group, param, group["lr"] * strength)


def _soften(optimizer: Optimizer, group: dict[str, Any], param: Tensor, amount: float) -> None:
    weight = get_local(param)
    if not isinstance(optimizer, MirrorOptimizer) or group["p"] == 2:
        weight.copy_(_shrink(weight, amount))
        return
    potential, kept = find_potential(group), optimizer.state[param].get("dual")
    dual = _shrink(potential.to_dual(weight) if kept is None else get_local(kept), amount)
    if kept is not None:
        get_local(kept).copy_(dual)
    weight.copy_(potential.to_primal(dual))


def _shrink(values: Tensor, amount: float) -> Tensor:
    return values.sign() * (values.abs() - amount).clamp_min(0)


class _Power(nn.Module):
    def __init__(self, alpha: float) -> None:
        super().__init__()
        self.alpha = alpha

    def forward(self, theta: Tensor) -> Tensor:
        # Below alpha = 2 the power's derivative is infinite at 0, where theta times it is not.
        return theta * theta.abs().clamp_min(torch.finfo(theta.dtype).tiny) ** (self.alpha - 1)

    def right_inverse(self, weight: Tensor) -> Tensor:
        return weight.sign() * weight.abs() ** (1 / self.alpha)


@torch.no_grad()
def collect_weights(model: nn.Module) -> dict[str, Tensor]:
    """A copy of the weights under their plain names, whatever they are computed from."""
    weights = {}
    for name, tensor in model.state_dict().items():
        if ".parametrizations." in name:
            owner, _, rest = name.partition(".parametrizations.")
            plain = rest.split(".")[0]
            name, tensor = f"{owner}.{plain}", getattr(model.get_submodule(owner), plain)
        weights[name] = tensor.detach().clone()
    return weights
