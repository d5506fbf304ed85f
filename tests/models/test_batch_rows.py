"""Parts of a batch are treated as the whole batch would be."""

import pytest
import torch

from mirrormargin.models import TextTransformer, VisionTransformer
from mirrormargin.models.batch_rows import take_rows
from mirrormargin.models.block import ByteDropout

PARTS = [slice(0, 2), slice(2, 3), slice(3, 7)]


def run_parts(model, inputs):
    """The rows of all parts, each from the same random numbers; and those that come afterwards."""
    found, states = [], []
    for rows in PARTS:
        torch.manual_seed(0)
        with take_rows(inputs, rows) as own:
            found.append(model(own))
        states.append(torch.get_rng_state())
    assert all(torch.equal(state, states[0]) for state in states)
    return torch.cat(found), states[0]


def test_dropout_drops_what_it_drops_of_the_whole():
    x = torch.ones(7, 5, 3)
    rows, after = run_parts(ByteDropout(0.5), x)
    torch.manual_seed(0)
    assert torch.equal(rows, ByteDropout(0.5)(x))
    assert torch.equal(after, torch.get_rng_state())


@pytest.mark.parametrize("kind", ["text", "image"])
def test_models_with_dropout_of_every_sort_see_the_whole_batch(kind):
    sizes = {"width": 16, "num_layers": 2, "num_heads": 2, "hidden": 16, "dropout": 0.3}
    torch.manual_seed(1)
    if kind == "text":
        model = TextTransformer(50, 3, length=12, **sizes).double()
        lengths = torch.tensor([3, 4, 2, 5, 9, 1, 4])  # the longest is in one part only
        inputs = torch.randint(1, 50, (7, 12)) * (torch.arange(12) < lengths[:, None])
    else:
        model = VisionTransformer(
            3, size=4, patch=2, mean=[0.5], std=[0.2], hidden_dropout=0.2, **sizes
        ).double()
        inputs = torch.randint(0, 256, (7, 1, 4, 4), dtype=torch.uint8)
    rows, after = run_parts(model, inputs)
    torch.manual_seed(0)
    assert torch.allclose(rows, model(inputs), rtol=0, atol=1e-13)
    assert torch.equal(after, torch.get_rng_state())


def test_nothing_is_left_of_a_batch_after_an_error():
    inputs = torch.ones(4, 3)
    with pytest.raises(RuntimeError, match="on purpose"), take_rows(inputs, slice(0, 2)):
        raise RuntimeError("on purpose")
    assert ByteDropout(0.5)(torch.ones(3, 2)).shape == (3, 2)
