"""How the runs of a record are trained, as ``run.json`` keeps it: checked like any other input."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass

import numpy as np

from mirrormargin.arguments import check_choice, check_count, check_flag, check_number
from mirrormargin.errors import ProblemError

__all__ = ["MODES", "RULES", "TrainingSettings"]

# Names and their codes in the compiled loop. Modes are what is trained: W; K and Q with W = K Q';
# W and the head.
RULES = {"constant": 0, "normalized": 1, "polyak": 2}
MODES = {"W": 0, "KQ": 1, "joint": 2}


@dataclass(frozen=True)
class TrainingSettings:
    """How the runs of a record were trained; one entry for each exponent where it is a tuple."""

    p: tuple[float, ...]
    lr: tuple[float, ...]
    head_lr: tuple[float, ...]
    decay: float
    head_decay: float
    num_steps: tuple[int, ...]
    step_rule: str
    parameterization: str
    rank: int
    eps: float
    max_lr: float
    target: str
    target_tol: float
    keep_path: bool

    def digest(self, losses: Sequence[str]) -> str:
        """A digest of everything that the state of a training depends on.

        Args:
            losses: The loss of each problem.
        """
        text = json.dumps([{**asdict(self), "max_lr": str(self.max_lr)}, list(losses)])
        return hashlib.blake2b(text.encode(), digest_size=16).hexdigest()

    def check(self) -> None:
        """Make sure that a training can have these settings.

        Raises:
            ProblemError: If it cannot.
        """
        for name in ("p", "lr", "head_lr", "num_steps"):
            values = getattr(self, name)
            if not isinstance(values, tuple) or len(values) != len(self.p):
                raise ProblemError(f"{name} is {values!r}: there must be one for each exponent")
        for p in self.p:
            check_number("p", p, above=1.0)
        for lr in (*self.lr, *self.head_lr):
            check_number("lr", lr, above=0.0)
        for count in self.num_steps:
            check_count("num_steps", count, least=0)
        for name in ("decay", "head_decay", "eps"):
            check_number(name, getattr(self, name), least=0.0)
        check_number("max_lr", self.max_lr, above=0.0, most=np.inf)
        check_number("target_tol", self.target_tol, above=0.0, below=1.0)
        check_choice("step_rule", self.step_rule, RULES)
        check_choice("parameterization", self.parameterization, MODES)
        check_choice("target", self.target, ("none", "own", "given"))
        check_count("rank", self.rank)
        check_flag("keep_path", self.keep_path)
