"""Smaller models: what adds nothing is found, the weakest go first, answers are those of zeros."""

import math
from dataclasses import replace

import pytest
import torch
from part_models import OURS, PARTS, answer, make, randomize, zero_parts
from torch import nn
from torch.nn import functional

import mirrormargin as mm
from mirrormargin.data import load_data
from mirrormargin.errors import ModelError, OptimizerError
from mirrormargin.models.block import Block
from mirrormargin.optim.parts import find_parts
from mirrormargin.training.building import build_model
from mirrormargin.training.config import Schedule
from mirrormargin.training.configurations import find_configuration
from mirrormargin.training.loop import train_model
from mirrormargin.training.shrinking import find_zero_parts, shrink


def mark(changes):
    """Masks of what is gone."""
    masks = [torch.zeros(one.before, dtype=torch.bool) for one in changes]
    for mask, one in zip(masks, changes, strict=True):
        mask[list(one.removed)] = True
    return masks


def count(model):
    return sum(param.numel() for param in model.parameters())


@pytest.mark.parametrize("scope", ["global", "layer"])
@pytest.mark.parametrize("kind", [*PARTS, *OURS])
def test_the_smaller_model_answers_as_the_whole_one_with_zeros(kind, scope):
    model = randomize(make(kind))
    before = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    heads = None if kind == "torch" else 0.5
    shrunk = shrink(model, heads, 0.4, scope=scope)
    assert all(tensor.equal(before[name]) for name, tensor in model.state_dict().items())
    assert shrunk.num_removed("units") == 16
    assert shrunk.num_removed("heads") == (0 if heads is None else 2 if scope == "layer" else 3)
    assert (shrunk.parameters_before, shrunk.parameters_after) == (
        count(model),
        count(shrunk.model),
    )
    whole = answer(model, kind)
    for one, changes in (("heads", shrunk.heads), ("units", shrunk.units)):
        if changes:
            zero_parts(find_parts(model, one), mark(changes))
    expected = answer(model, kind)
    assert not torch.allclose(expected, whole, rtol=1e-2, atol=1e-2)
    torch.testing.assert_close(answer(shrunk.model, kind), expected, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("kind", [*PARTS, *OURS])
def test_what_is_zero_and_nothing_else_is_removed(kind):
    model = randomize(make(kind))
    assert shrink(model).parameters_after == count(model)
    gone = {"units": [torch.arange(20) < 5, torch.arange(20) == 3]}
    if kind != "torch":
        gone["heads"] = [torch.tensor([False, True, True]), torch.tensor([True, False, False])]
    for one, marks in gone.items():
        zero_parts(find_parts(model, one), marks)
    shrunk = shrink(model)
    for one, marks in gone.items():
        assert all(map(torch.equal, mark(getattr(shrunk, one)), marks))
    expected = answer(model, kind)
    torch.testing.assert_close(answer(shrunk.model, kind), expected, rtol=1e-5, atol=1e-5)
    assert shrink(shrunk.model).parameters_after == shrunk.parameters_after


def find_zeros(model, kind):
    (layer,) = find_parts(model, kind).layers
    return find_zero_parts(layer, kind).nonzero()[:, 0].tolist()


@torch.no_grad()
def test_a_unit_is_zero_if_its_column_is_or_what_is_behind_it():
    block = randomize(Block(12, 3, 6, bias=True))
    block.contract.weight[:, 0] = 0  # whatever its row is
    block.expand.weight[1] = 0  # but gelu(bias) is not 0: a constant
    block.expand.weight[2] = 0
    block.expand.bias[2] = 0
    block.expand.bias[3] = 0
    assert find_zeros(block, "units") == [0, 2]
    x = torch.randn(2, 5, 12)
    shrunk = shrink(block)
    torch.testing.assert_close(shrunk.model(x), block(x), rtol=1e-5, atol=1e-6)
    assert shrunk.units[0].removed == (0, 2)


@torch.no_grad()
def test_a_dead_unit_of_relu_is_zero_and_one_of_an_unknown_activation_is_not():
    layer = randomize(nn.TransformerEncoderLayer(12, 3, 6, dropout=0.0, batch_first=True))
    layer.linear1.weight[:3] = 0
    layer.linear1.bias[:3] = torch.tensor([-1.0, 0.0, 1.0])
    assert find_zeros(layer, "units") == [0, 1]
    layer.activation = functional.sigmoid
    assert find_zeros(layer, "units") == []
    layer.activation = None
    assert find_zeros(layer, "units") == []


@torch.no_grad()
def test_a_gated_unit_is_zero_if_either_side_is():
    model = randomize(make("ModernBert"))
    fused, output = model.layers[0].mlp.Wi.weight, model.layers[0].mlp.Wo.weight
    fused[4] = 0  # what is activated
    fused[20 + 5] = 0  # the gate
    output[:, 6] = 0
    layer = find_parts(model, "units").layers[0]
    assert find_zero_parts(layer, "units").nonzero()[:, 0].tolist() == [4, 5, 6]
    shrunk = shrink(model)
    torch.testing.assert_close(
        answer(shrunk.model, "ModernBert"), answer(model, "ModernBert"), rtol=1e-5, atol=1e-5
    )
    assert shrunk.num_removed("units") == 3


@torch.no_grad()
def test_a_head_is_zero_if_each_of_its_dimensions_is():
    model = randomize(make("Bert"))
    attention = model.encoder.layer[0].attention
    value, output = attention.self.value, attention.output.dense
    value.weight[0:2], value.bias[0:2] = 0, 0
    output.weight[:, 2:4] = 0  # head 0: half of the values, and the columns of the rest
    value.weight[4:8] = 0  # head 1 has biases: a constant
    attention.self.query.weight[8:12] = 0  # head 2 attends to all alike, which is not nothing
    layer = find_parts(model, "heads").layers[0]
    assert find_zero_parts(layer, "heads").tolist() == [True, False, False]
    shrunk = shrink(model)
    torch.testing.assert_close(
        answer(shrunk.model, "Bert"), answer(model, "Bert"), rtol=1e-5, atol=1e-5
    )
    assert [one.removed for one in shrunk.heads] == [(0,), ()]


@pytest.mark.parametrize("kind", ["text", "Bert", "ModernBert"])
def test_a_layer_of_zeros_keeps_one_of_each(kind):
    model = randomize(make(kind))
    for one, size in (("heads", 3), ("units", 20)):
        zero_parts(find_parts(model, one), [torch.ones(size, dtype=torch.bool)] * 2)
    shrunk = shrink(model)
    assert [layer.after for layer in (*shrunk.heads, *shrunk.units)] == [1, 1, 1, 1]
    assert {layer.removed[0] for layer in (*shrunk.heads, *shrunk.units)} == {1}
    torch.testing.assert_close(
        answer(shrunk.model, kind), answer(model, kind), rtol=1e-5, atol=1e-5
    )


@pytest.mark.parametrize("kind", ["heads", "units"])
def test_the_weakest_are_those_of_the_least_norm(kind):
    model = randomize(make("Bert"))
    layers = find_parts(model, kind).layers
    norms = torch.stack([layer.score() for layer in layers])
    for share, total in ((0.5, norms.numel()), (0.34, norms.numel())):
        shrunk = shrink(model, **{kind: share})
        removed = torch.stack(mark(getattr(shrunk, kind)))
        assert int(removed.sum()) == math.floor(share * total)
        # But for the best of each layer, which stay.
        best = norms == norms.amax(dim=1, keepdim=True)
        assert norms[removed].max() < norms[~removed & ~best].min()
        alone = shrink(model, **{kind: share}, scope="layer")
        for own, gone in zip(norms, mark(getattr(alone, kind)), strict=True):
            assert int(gone.sum()) == math.floor(share * len(own))
            assert own[gone].max() < own[~gone].min()


@torch.no_grad()
def test_zeros_go_before_weak_ones_and_of_equal_ones_the_last():
    block = Block(4, 2, 6)
    for param in block.parameters():
        param.fill_(1.0)
    block.contract.weight[:, 1] = 0
    block.expand.weight[1] = 9.0  # a large norm, and yet nothing
    block.expand.weight[0] = 0.5
    assert shrink(block, units=2 / 6).units[0].removed == (0, 1)
    assert shrink(block, units=3 / 6).units[0].removed == (0, 1, 5)


def test_an_integer_says_how_many_stay():
    model = randomize(make("text"))
    shrunk = shrink(model, heads=4, units=30)
    assert sum(layer.after for layer in shrunk.heads) == 4
    assert sum(layer.after for layer in shrunk.units) == 30
    shrunk = shrink(model, heads=1, units=7, scope="layer")
    assert [layer.after for layer in (*shrunk.heads, *shrunk.units)] == [1, 1, 7, 7]
    assert repr(shrunk) == (
        f"Shrinking(4 heads and 26 units removed, {count(model):,} -> {count(shrunk.model):,}"
        " parameters)"
    )


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"heads": 1.0}, "heads is 1"),
        ({"units": -0.1}, "units is -0.1"),
        ({"units": "half"}, "the share that goes, or an integer for how many stay"),
        ({"units": True}, "units is True"),
        ({"units": 41}, "units is 41: give an integer from 2 to 40, which stay"),
        ({"heads": 1}, "heads is 1: give an integer from 2 to 6"),
        ({"heads": 0, "scope": "layer"}, "heads is 0: give an integer from 1 to 3"),
        ({"heads": 0.9}, "which leaves 1 of 6, but each of 2 layers keeps .*: give at most 0.6666"),
        ({"scope": "tensor"}, "scope is 'tensor'"),
    ],
)
def test_what_cannot_be_removed_is_refused(options, message):
    with pytest.raises(ModelError, match=message):
        shrink(make("text"), **options)


def test_the_largest_share_that_is_named_can_be_removed():
    shrunk = shrink(randomize(make("text")), heads=0.6667, units=38 / 40)
    assert [layer.after for layer in (*shrunk.heads, *shrunk.units)] == [1, 1, 1, 1]


@torch.no_grad()
def test_models_that_cannot_be_shrunk_are_refused():
    with pytest.raises(OptimizerError, match="has no units that are known"):
        shrink(nn.Linear(3, 3))
    with pytest.raises(ModelError, match="heads of torch's MultiheadAttention cannot be cut out"):
        shrink(make("torch"), heads=0.5)
    with pytest.raises(ModelError, match="give a Module"):
        shrink("model")  # pyright: ignore
    model = make("text")
    model.blocks[1].expand.weight[3, 3] = torch.nan
    with pytest.raises(ModelError, match=r"blocks\.1 holds nan or inf"):
        shrink(model)


def test_the_smaller_model_trains():
    torch.manual_seed(0)
    smaller = shrink(randomize(make("text")), 0.5, 0.5).model  # without dropout
    optimizer = mm.MirrorAdam(mm.mirror_groups(smaller, p=1.5), lr=1e-2)
    ids = torch.randint(3, 30, (8, 5))
    losses = []
    for _ in range(20):
        optimizer.zero_grad()
        loss = functional.cross_entropy(smaller(ids), torch.arange(8) % 3)
        loss.backward()
        optimizer.step()
        losses.append(float(loss.detach()))
    assert losses[-1] < losses[0]


@pytest.mark.parametrize("groups", ["heads", "units"])
def test_what_a_schedule_has_removed_is_exactly_what_is_cut_out(groups, tmp_path):
    data = load_data("digits", num_train=100)
    config = replace(
        find_configuration("digits/tiny"),
        epochs=8,
        batch_size=20,
        sparsifier=Schedule(0.5, groups=groups, every=5),
    )
    training = train_model(config, data, tmp_path)
    model = build_model(config, data).eval()
    model.load_state_dict(training.final)
    parts = find_parts(model, groups)
    zero = [layer.score() == 0 for layer in parts.layers]
    assert int(torch.cat(zero).sum()) == parts.num_parts // 2
    shrunk = shrink(model)
    kept = [its.clone() for its in zero]
    for its in kept:  # a layer of zeros keeps its first
        its[0] &= not bool(its.all())
    assert all(map(torch.equal, mark(getattr(shrunk, groups)), kept))
    assert shrunk.num_removed("heads" if groups == "units" else "units") == 0
    inputs = data.validation.inputs[:50]
    with torch.no_grad():
        torch.testing.assert_close(shrunk.model(inputs), model(inputs), rtol=1e-5, atol=1e-5)
