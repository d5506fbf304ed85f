"""How sparse attention maps are: bounds, padding, and one map by hand."""

import math

import pytest
import torch
from torch import nn

from mirrormargin.data import Split
from mirrormargin.errors import ModelError
from mirrormargin.training.attention_spread import measure_attention


class Fixed(nn.Module):
    """Gives the same maps whatever the weights are."""

    def __init__(self, maps):
        super().__init__()
        self.weight = nn.Parameter(torch.zeros(1))
        self.maps = maps

    def attention(self, inputs):
        return self.maps[: len(inputs)]


def make_split(inputs):
    return Split(inputs, torch.zeros(len(inputs), dtype=torch.int64))


def test_even_attention_has_entropy_one_and_a_single_token_zero():
    even, single = torch.full((4, 4), 0.25), torch.eye(4)
    maps = torch.stack([even, single])[None, :, None].expand(3, 2, 5, 4, 4)
    images = make_split(torch.zeros(3, 1, 2, 2))
    found = measure_attention(Fixed(maps), images, 3)
    assert found == {"entropy": [1.0, 0.0], "largest": [0.25, 1.0]}


def test_padding_does_not_count():
    ids = torch.tensor([[1, 2, 0, 0], [1, 2, 3, 4]])
    maps = torch.zeros(2, 1, 1, 4, 4)
    maps[0, :, :, :2, :2] = torch.tensor([[0.5, 0.5], [0.9, 0.1]])
    maps[0, :, :, 2:] = 7.0  # what rows of padding hold means nothing
    maps[1] = 0.25
    found = measure_attention(Fixed(maps), make_split(ids), 100)
    short = (1 - (0.9 * math.log(0.9) + 0.1 * math.log(0.1)) / math.log(2)) / 2
    assert found["entropy"] == pytest.approx([(short + 1) / 2], abs=1e-5)
    assert found["largest"] == pytest.approx([(0.7 + 0.25) / 2], abs=1e-5)


def test_heads_that_a_layer_lacks_do_not_count():
    maps = torch.full((3, 2, 2, 4, 4), 0.25)
    maps[:, 1, 0] = torch.eye(4)
    maps[:, 1, 1] = torch.nan
    found = measure_attention(Fixed(maps), make_split(torch.zeros(3, 1, 2, 2)), 3)
    assert found == {"entropy": [1.0, 0.0], "largest": [0.25, 1.0]}


def test_model_without_maps_is_refused():
    with pytest.raises(ModelError, match="Linear gives no attention maps"):
        measure_attention(nn.Linear(2, 2), make_split(torch.zeros(2, 2)), 2)
