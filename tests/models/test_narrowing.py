"""Parts that are cut out of tensors: answers, sizes, and what files may say of them."""

import copy

import pytest
import torch
from part_models import (
    HUGGING_FACE,
    OURS,
    PARTS,
    SPECIAL,
    WIDTHS,
    answer,
    make,
    randomize,
    zero_parts,
)
from torch import nn

from mirrormargin.errors import ModelError
from mirrormargin.models import LanguageTransformer, PretrainedEncoder, TextTransformer
from mirrormargin.models.block import Block, stack_maps
from mirrormargin.models.narrowing import check_sizes, cut_out, measure_sizes, narrow
from mirrormargin.optim.parts import find_parts

HEADS = (torch.tensor([True, False, True]), torch.tensor([False, False, True]))
UNITS = (torch.arange(20) % 3 == 1, torch.arange(20) != 7)
GONE = {"heads": HEADS, "units": UNITS}
LEFT = {"num_heads": [1, 2], "hidden": [13, 1], "head_width": 4}


def cut(model, kinds=("heads", "units")):
    for kind in kinds:
        cut_out(find_parts(model, kind), GONE[kind])
    return model


@pytest.mark.parametrize("kind", [*PARTS, *OURS])
def test_what_is_left_answers_as_if_the_parts_were_zero(kind):
    kinds = ("units",) if kind == "torch" else ("heads", "units")
    model = randomize(make(kind))
    smaller = cut(copy.deepcopy(model), kinds)
    before = answer(model, kind)
    for one in kinds:
        zero_parts(find_parts(model, one), GONE[one])
    zeroed = answer(model, kind)
    assert not torch.allclose(zeroed, before, rtol=1e-2, atol=1e-2)
    torch.testing.assert_close(answer(smaller, kind), zeroed, rtol=1e-5, atol=1e-5)
    if kind != "torch":
        assert measure_sizes(smaller) == LEFT


@pytest.mark.parametrize("kind", PARTS)
def test_linear_layers_say_their_sizes_and_parameters_what_they_were(kind):
    model = make(kind)
    frozen = dict(model.named_parameters())
    for index, param in enumerate(frozen.values()):
        param.requires_grad_(index % 2 == 0)
    cut(model, ("units",) if kind == "torch" else ("heads", "units"))
    for name, param in model.named_parameters():
        assert param.requires_grad == frozen[name].requires_grad
        assert param.is_contiguous()
    for module in model.modules():
        if isinstance(module, nn.Linear):
            assert (module.out_features, module.in_features) == tuple(module.weight.shape)
            if module.bias is not None:
                assert len(module.bias) == module.out_features


@pytest.mark.parametrize("kind", HUGGING_FACE)
def test_attention_modules_say_how_wide_all_heads_are_together(kind):
    """Versions of transformers differ in whether they look at their tensors or at this."""
    whole, model = make(kind), cut(make(kind))
    before, after = (dict(one.named_modules()) for one in (whole, model))
    for name, module in before.items():
        for attribute in ("all_head_size", "dim"):
            if getattr(module, attribute, None) == 12:
                layer = 0 if ".0." in name else 1
                assert getattr(after[name], attribute) == 4 * LEFT["num_heads"][layer]


@pytest.mark.parametrize("kind", [*HUGGING_FACE, "encoder"])
def test_weights_load_into_a_model_that_was_narrowed_to_their_sizes(kind):
    smaller = cut(randomize(make(kind)))
    other = make(kind).eval()
    narrow(other, measure_sizes(smaller))
    other.load_state_dict(smaller.state_dict())
    assert torch.equal(answer(other, kind), answer(smaller, kind))


@pytest.mark.parametrize("kind", ["text", "language"])
def test_constructors_take_the_sizes_of_each_block(kind):
    smaller = cut(randomize(make(kind)))
    sizes = {**WIDTHS, **LEFT}
    if kind == "text":
        other = TextTransformer(30, 3, length=8, **sizes).eval()
    else:
        other = LanguageTransformer(30, length=8, **sizes).eval()
    other.load_state_dict(smaller.state_dict())
    assert torch.equal(answer(other, kind), answer(smaller, kind))


def test_an_encoder_is_built_from_what_it_says_of_itself():
    smaller = cut(randomize(make("encoder")))
    architecture = {**smaller.architecture, "sizes": measure_sizes(smaller)}
    other = PretrainedEncoder(special=SPECIAL, architecture=architecture).eval()
    other.load_state_dict(smaller.state_dict())
    assert torch.equal(answer(other, "encoder"), answer(smaller, "encoder"))
    assert other.architecture == architecture


@pytest.mark.parametrize("kind", ["text", "image", "encoder"])
def test_maps_of_heads_that_are_gone_are_nan(kind):
    model = cut(randomize(make(kind)))
    inputs = torch.tensor([[1, 5, 6, 7]])
    if kind == "image":
        inputs = torch.zeros(1, 1, 8, 8, dtype=torch.uint8)
    maps = model.attention(inputs)
    assert maps.shape[:3] == (1, 2, 2)  # two heads at most
    assert maps[:, 0, 1].isnan().all()
    left = maps[0, [0, 1, 1], [0, 0, 1]]
    torch.testing.assert_close(left.sum(-1), torch.ones_like(left[..., 0]))


def test_maps_of_equal_layers_are_stacked_as_they_are():
    maps = [torch.rand(2, 3, 4, 4) for _ in range(3)]
    assert torch.equal(stack_maps(maps), torch.stack(maps, dim=1))


@pytest.mark.parametrize(
    "changes",
    [
        {"num_heads": [1, 4]},
        {"num_heads": [0, 3]},
        {"num_heads": [1, 2, 3]},
        {"num_heads": 3},
        {"num_heads": [1, True]},
        {"hidden": [13, 10**15]},
        {"hidden": "13"},
        {"head_width": 5},
        {"more": 1},
    ],
)
def test_sizes_that_no_shrunk_model_has_are_refused(changes):
    with pytest.raises(ModelError, match="restore a copy"):
        narrow(make("Bert"), {**LEFT, **changes})


def test_sizes_that_are_no_sizes_are_refused():
    for sizes in (None, [], "sizes", {}):
        with pytest.raises(ModelError, match="restore a copy"):
            check_sizes(sizes, LEFT)
    assert check_sizes(LEFT, LEFT) is LEFT


def test_blocks_of_impossible_sizes_are_refused():
    with pytest.raises(ModelError, match="num_heads has 3 numbers for 2 blocks"):
        TextTransformer(30, length=8, width=12, num_layers=2, num_heads=[1, 1, 1])
    with pytest.raises(ModelError, match="hidden has 1 numbers for 2 blocks"):
        TextTransformer(30, length=8, width=12, num_layers=2, num_heads=3, hidden=[4])
    for sizes in ((3, 0, 4), (0, 5, 4), (3, 5, 0)):
        with pytest.raises(ModelError, match="give a positive integer"):
            Block(12, sizes[0], sizes[1], head_width=sizes[2])


def test_a_narrow_block_is_the_block_of_its_heads():
    """A head's width is what it was, whatever their number: the scale of the logits stays."""
    torch.manual_seed(0)
    whole = Block(12, 3, 20).eval()
    narrow_one = Block(12, 1, 20, head_width=4).eval()
    state = whole.state_dict()
    for name in ("query", "key", "value"):
        state[f"{name}.weight"] = state[f"{name}.weight"][4:8]
    state["output.weight"] = state["output.weight"][:, 4:8]
    narrow_one.load_state_dict(state)
    x = torch.randn(2, 5, 12)
    torch.testing.assert_close(narrow_one.attention(x)[:, 0], whole.attention(x)[:, 1])
