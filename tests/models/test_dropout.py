"""Dropout from random bytes: rates, means, bits without pattern, gradients."""

import pytest
import torch

from mirrormargin.errors import ModelError
from mirrormargin.models.block import ByteDropout

COUNT = 400_000


def drop(rate, seed=0, shape=(COUNT,)):
    torch.manual_seed(seed)
    return ByteDropout(rate).train()(torch.ones(shape))


@pytest.mark.parametrize("rate", [0.1, 0.2, 0.5, 0.9])
def test_rate_is_the_nearest_multiple_of_a_256th(rate):
    exact = round(256 * rate) / 256
    dropped = float((drop(rate) == 0).double().mean())
    assert abs(dropped - exact) < 5 * (exact * (1 - exact) / COUNT) ** 0.5


@pytest.mark.parametrize("rate", [0.1, 0.2, 0.5, 0.9])
def test_mean_is_kept(rate):
    kept = drop(rate)
    exact = round(256 * rate) / 256
    assert kept.unique().tolist() == pytest.approx([0.0, 1 / (1 - exact)])
    assert abs(float(kept.double().mean()) - 1) < 5 * (exact / (1 - exact) / COUNT) ** 0.5


def test_mask_follows_the_global_seed():
    assert torch.equal(drop(0.3, seed=1), drop(0.3, seed=1))
    assert not torch.equal(drop(0.3, seed=1), drop(0.3, seed=2))


@pytest.mark.parametrize("shape", [(1,), (7,), (8,), (3, 5), (2, 3, 11), (0,)])
def test_any_shape_is_dropped(shape):
    assert drop(0.5, shape=shape).shape == shape


def test_layout_of_the_input_does_not_matter():
    x = torch.randn(40, 30)
    torch.manual_seed(0)
    one = ByteDropout(0.4)(x.T)
    torch.manual_seed(0)
    two = ByteDropout(0.4)(x.T.contiguous())
    assert torch.equal(one, two)


def test_evaluation_and_rate_zero_draw_nothing_and_change_nothing():
    x = torch.randn(5, 3)
    torch.manual_seed(0)
    before = torch.get_rng_state()
    assert ByteDropout(0.5).eval()(x) is x
    assert ByteDropout(0.0).train()(x) is x
    assert torch.equal(torch.get_rng_state(), before)


def test_all_bytes_are_equally_likely():
    # An entry is kept iff its byte is at least the threshold: at each of the 255 thresholds the
    # same draws give the distribution of bytes.
    x = torch.ones(COUNT)
    kept = []
    for threshold in range(1, 256):
        torch.manual_seed(3)
        layer = ByteDropout(threshold / 256)
        assert layer.threshold == threshold
        kept.append(int((layer(x) != 0).sum()))
    counts = torch.tensor([COUNT, *kept, 0]).diff().neg().double()
    assert int(counts.min()) > 0
    chi2 = float(((counts - COUNT / 256) ** 2 / (COUNT / 256)).sum())
    assert 255 - 5 * 510**0.5 < chi2 < 255 + 5 * 510**0.5


def test_the_eight_bytes_of_a_draw_are_unrelated():
    dropped = (drop(0.5, seed=4) == 0).view(-1, 8).double()
    draws = len(dropped)
    each = dropped.mean(0)
    assert bool(((each - 0.5).abs() < 5 * 0.5 / draws**0.5).all())
    centred = dropped - each
    correlation = centred.T @ centred / draws / 0.25
    correlation.fill_diagonal_(0)
    assert float(correlation.abs().max()) < 5 / draws**0.5
    patterns = (dropped.long() * 2 ** torch.arange(8)).sum(1).bincount(minlength=256)
    chi2 = float(((patterns - draws / 256) ** 2 / (draws / 256)).sum())
    assert 255 - 5 * 510**0.5 < chi2 < 255 + 5 * 510**0.5


def test_gradient_is_the_mask():
    x = torch.randn(1000, requires_grad=True)
    torch.manual_seed(0)
    y = ByteDropout(0.25)(x)
    y.sum().backward()
    assert torch.equal(x.grad, (y != 0) * (256 / 192))
    assert torch.equal(y, x * x.grad)


@pytest.mark.parametrize("rate", [-0.1, 1.0, float("nan")])
def test_other_rates_are_refused(rate):
    with pytest.raises(ModelError, match=r"dropout is .*: give a number of at least 0 and below 1"):
        ByteDropout(rate)


def test_a_rate_next_to_one_keeps_something():
    torch.manual_seed(0)
    kept = ByteDropout(0.999).train()(torch.ones(10_000))
    assert 0 < int((kept > 0).sum()) < 200
