"""Timing of two models: what is called, how often, and on which inputs."""

import pytest
import torch
from torch import nn

from mirrormargin.data import InputForm
from mirrormargin.errors import MirrorMarginError, TrainingError
from mirrormargin.training.speed import make_inputs, measure_speed_up

WORDS = ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "film", "good", "bad")
TEXT = InputForm(
    name="mine", kind="text", classes=("a", "b"), shape=(16,), vocabulary=WORDS, wordpieces=WORDS
)
IMAGE = InputForm(name="digits", kind="image", classes=("a", "b"), shape=(1, 8, 8))
LANGUAGE = InputForm(
    name="book", kind="language", classes=(), shape=(200,), vocabulary=("a", "b", "c")
)


class Noting(nn.Module):
    def __init__(self, name, calls, clock=None, seconds=0.0):
        super().__init__()
        self.name, self.calls, self.clock, self.seconds = name, calls, clock, seconds

    def forward(self, inputs):
        assert not self.training
        assert not torch.is_grad_enabled()
        self.calls.append(self.name)
        if self.clock is not None:
            self.clock[0] += self.seconds
        return inputs


def test_models_take_turns_and_their_modes_stay():
    calls, done = [], []
    one, other = Noting("one", calls), Noting("other", calls)
    other.eval()
    measure_speed_up(one, other, torch.ones(1), rounds=3, progress=lambda *now: done.append(now))
    assert calls == ["one", "other", "one", "other", "other", "one", "one", "other"]
    assert done == [(1, 3), (2, 3), (3, 3)]
    assert (one.training, other.training) == (True, False)


def test_the_ratio_is_that_of_the_seconds():
    clock = [0.0]
    one, other = Noting("one", [], clock, 0.5), Noting("other", [], clock, 0.125)
    found = measure_speed_up(one, other, torch.ones(1), rounds=4, clock=lambda: clock[0])
    assert (found.before, found.after, found.ratio) == (0.5, 0.125, 4.0)
    assert (found.low, found.high) == (4.0, 4.0)


@pytest.mark.parametrize("rounds", [1, 5, 6, 9, 15, 40])
def test_the_interval_of_the_median_is_that_of_order_statistics(rounds):
    """That of the benchmarks, from the quantiles of the binomial distribution."""
    from scipy.stats import binom

    clock = [0.0]
    one, other = Noting("one", [], clock, 0.5), Noting("other", [], clock, 0.125)

    def slow_down(done, total):
        one.seconds = 0.5 + done

    options = {"rounds": rounds, "progress": slow_down, "clock": lambda: clock[0]}
    found = measure_speed_up(one, other, torch.ones(1), **options)
    ratios = [(0.5 + done) / 0.125 for done in range(rounds)]
    first = max(int(binom.ppf(0.025, rounds, 0.5)) - 1, 0)
    assert (found.low, found.high) == (ratios[first], ratios[rounds - 1 - first])


def test_texts_are_full_and_begin_as_they_should():
    ids = make_inputs(TEXT, 5)
    assert ids.shape == (5, 16)
    assert ids.dtype is torch.int32
    assert (ids[:, 0] == 2).all()
    assert (ids != 0).all()
    assert int(ids.max()) < len(WORDS)
    assert make_inputs(TEXT, 5, 3).shape == (5, 3)


def test_images_and_windows_are_those_that_models_read():
    assert make_inputs(IMAGE, 3).shape == (3, 1, 8, 8)
    assert make_inputs(IMAGE, 3).dtype is torch.uint8
    assert make_inputs(LANGUAGE, 3).shape == (3, 128)
    assert make_inputs(LANGUAGE, 3, 200).dtype is torch.int64


@pytest.mark.parametrize(
    ("form", "arguments", "message"),
    [
        (TEXT, (5, 17), "length is 17: give an integer from 1 to 16, for the model reads no more"),
        (TEXT, (5, 0), "length is 0"),
        (TEXT, (0,), "batch is 0"),
        (IMAGE, (5, 16), "a length is for texts, but digits has images"),
    ],
)
def test_inputs_that_no_model_reads_are_refused(form, arguments, message):
    with pytest.raises(TrainingError, match=message):
        make_inputs(form, *arguments)
    with pytest.raises(MirrorMarginError, match="rounds is 0"):
        measure_speed_up(nn.Identity(), nn.Identity(), torch.ones(1), rounds=0)
