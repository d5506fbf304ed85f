"""Heads, hidden units and rows: found in models of all known kinds, and removed whole."""

import pytest
import torch
from part_models import PARTS, answer, make
from torch import nn

import mirrormargin as mm
from mirrormargin.errors import OptimizerError
from mirrormargin.models.block import Block
from mirrormargin.optim.parts import find_parts, find_rows


@pytest.mark.parametrize("kind", PARTS)
def test_every_layer_has_its_heads_and_units(kind):
    torch.manual_seed(0)
    model = make(kind)
    heads, units = find_parts(model, "heads"), find_parts(model, "units")
    assert [layer.num_parts for layer in heads.layers] == [3, 3]
    assert [layer.num_parts for layer in units.layers] == [20, 20]


@pytest.mark.parametrize("parts", ["heads", "units"])
@pytest.mark.parametrize("kind", PARTS)
def test_a_part_without_its_output_column_changes_nothing_more_than_one_that_is_removed(
    kind, parts
):
    """Removed parts are gone from the answers: what their first matrices hold is no matter."""
    torch.manual_seed(0)
    model = make(kind).eval()
    for param in model.parameters():
        nn.init.normal_(param, std=0.3)
    params = [param for param in model.parameters() if param.requires_grad]
    optimizer = mm.MirrorAdam(params, lr=1e-3)
    share = 2 / 3 if parts == "heads" else 0.5
    schedule = mm.SparsitySchedule(optimizer, share, 10, groups=parts, model=model)
    schedule.rank(share)
    assert schedule.removed_share == pytest.approx(share)
    before = answer(model, kind)
    found = schedule.parts
    assert found is not None
    with torch.no_grad():
        for layer, gone in zip(found.layers, found.removed, strict=True):
            for slot in (*layer.slots, *layer.biases):
                place = slot.find_parts(layer.num_parts)
                out = gone[place.clamp(min=0)] & (place >= 0)
                entries = slot.param.movedim(slot.dim, 0)
                assert not entries[out].any()
                if slot.dim == 0:  # first matrices and biases alone
                    entries[out] = torch.randn(entries[out].shape)
    torch.testing.assert_close(answer(model, kind), before, rtol=1e-5, atol=1e-6)


def test_parts_of_the_least_norm_go_first_and_stay_away():
    torch.manual_seed(0)
    model = nn.Sequential(Block(12, 3, 20))
    optimizer = mm.MirrorAdam(mm.mirror_groups(model, p=1.5), lr=1e-2)
    schedule = mm.SparsitySchedule(optimizer, 0.5, 10, groups="units", model=model)
    block = model[0]
    norms = block.expand.weight.square().sum(1) + block.contract.weight.square().sum(0)
    schedule.rank(0.25)
    smallest = norms.argsort()[:5].sort().values
    gone = (block.expand.weight == 0).all(dim=1).nonzero()[:, 0]
    assert torch.equal(gone, smallest)
    inputs = torch.randn(4, 5, 12)
    for _ in range(10):
        optimizer.zero_grad()
        model(inputs).square().mean().backward()
        optimizer.step()
        schedule.step()
        assert not block.expand.weight[gone].any()
        assert not block.contract.weight[:, gone].any()
    assert int((block.expand.weight == 0).all(dim=1).sum()) == 10


def test_rows_are_ranked_together():
    params = [nn.Parameter(torch.ones(4, 2)), nn.Parameter(0.5 * torch.ones(4, 3))]
    optimizer = mm.MirrorDescent(params, lr=0.1)
    mm.SparsitySchedule(optimizer, 0.5, 10, groups="rows").rank(0.5)
    assert params[0].all()
    assert not params[1].any()
    with pytest.raises(OptimizerError, match="has no rows"):
        find_rows([nn.Parameter(torch.ones(3))])


def test_a_model_without_known_parts_and_a_part_without_its_optimizer_are_refused():
    model = nn.Sequential(nn.Linear(3, 3))
    optimizer = mm.MirrorAdam(model.parameters())
    with pytest.raises(OptimizerError, match="has no heads that are known"):
        mm.SparsitySchedule(optimizer, 0.5, 10, groups="heads", model=model)
    model = nn.Sequential(Block(12, 3, 20))
    optimizer = mm.MirrorAdam([model[0].expand.weight])
    with pytest.raises(OptimizerError, match="does not step"):
        mm.SparsitySchedule(optimizer, 0.5, 10, groups="units", model=model)
