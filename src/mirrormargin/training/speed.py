r"""How much faster is one model than another? Both compute the same batch in turn, round by round.

    speed-up = median over rounds of (seconds of the one / seconds of the other)

A machine that is busy with other things slows both down: their ratio within a round says more than
seconds of different moments.
"""

from __future__ import annotations

import math
import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from mirrormargin.arguments import check_count
from mirrormargin.data import InputForm
from mirrormargin.data.encoder_tokens import parse_tokenizer
from mirrormargin.data.encoding import find_framing
from mirrormargin.errors import TrainingError

__all__ = ["ROUNDS", "SpeedUp", "make_inputs", "measure_speed_up"]

ROUNDS = 15
LENGTH = 128
MOST_BATCH = 1 << 16


@dataclass(frozen=True)
class SpeedUp:
    """What was measured.

    Attributes:
        before: Seconds that the one model took for a batch, median over the rounds.
        after: Those of the other.
        ratio: The median over the rounds of the one's seconds over the other's.
        low: Where the 95% interval of that median begins, by order statistics.
        high: Where it ends.
    """

    before: float
    after: float
    ratio: float
    low: float
    high: float


@torch.no_grad()
def measure_speed_up(
    before: nn.Module,
    after: nn.Module,
    inputs: Tensor,
    *,
    rounds: int = ROUNDS,
    clock: Callable[[], float] = time.perf_counter,
    progress: Callable[[int, int], object] | None = None,
) -> SpeedUp:
    """Time two models on the same batch, in an order that changes from round to round.

    Args:
        before: The one, usually the larger.
        after: The other.
        inputs: The batch, such as :func:`make_inputs` makes one.
        rounds: How often each is timed, in evaluation mode; a round before is not counted.
        clock: In seconds; ``time.process_time`` has those of the CPU, on a busy machine with one
            thread the better measure.
        progress: Called with the rounds that are done, and all of them.
    """
    check_count("rounds", rounds, error=TrainingError)
    models = (before, after)
    modes = [model.training for model in models]
    seconds: tuple[list[float], list[float]] = ([], [])
    try:
        for model in models:
            model.eval()(inputs)
        for number in range(rounds):
            for which in (0, 1) if number % 2 == 0 else (1, 0):
                start = clock()
                models[which](inputs)
                seconds[which].append(clock() - start)
            if progress is not None:
                progress(number + 1, rounds)
    finally:
        for model, mode in zip(models, modes, strict=True):
            model.train(mode)
    ratios = sorted(one / other for one, other in zip(*seconds, strict=True))
    first = _find_first(rounds)
    before_median, after_median, ratio = map(statistics.median, (*seconds, ratios))
    return SpeedUp(before_median, after_median, ratio, ratios[first], ratios[-1 - first])


def _find_first(count: int) -> int:
    """Which of so many sorted numbers begins the 95% interval of their median, from 0.

    As many of them are below the median as heads fall in ``count`` throws of a coin.
    """
    below = total = 0
    while (total + math.comb(count, below)) / 2**count <= 0.025:
        total += math.comb(count, below)
        below += 1
    return max(below - 1, 0)


def make_inputs(form: InputForm, batch: int, length: int | None = None) -> Tensor:
    """A batch of random inputs of a model, each of full length: to be timed, not to be believed.

    Args:
        form: What the model reads.
        batch: How many.
        length: Tokens of a text; None for 128, or as many as the model reads if that is less.

    Raises:
        TrainingError: If the model does not read as many, or reads images.
    """
    check_count("batch", batch, most=MOST_BATCH, error=TrainingError)
    generator = torch.Generator().manual_seed(0)
    if form.kind == "image":
        if length is not None:
            raise TrainingError(f"a length is for texts, but {form.name} has images: leave it out")
        return torch.randint(0, 256, (batch, *form.shape), dtype=torch.uint8, generator=generator)
    longest = form.shape[0]
    length = min(LENGTH, longest) if length is None else length
    hint = "for the model reads no more"
    check_count("length", length, most=longest, hint=hint, error=TrainingError)
    own = form.encoder_tokenizer
    size = len(parse_tokenizer(own)) if own is not None else len(form.vocabulary or ())
    ids = torch.randint(size, (batch, length), generator=generator)
    if form.kind == "language":
        return ids
    framing = find_framing(form)
    # A shorter vocabulary has other numbers than word pieces have, except for the padding.
    first = framing.before[0] if form.vocabulary is None else form.vocabulary.index("[CLS]")
    ids[ids == framing.padding] = first
    ids[:, 0] = first
    return ids.int()
