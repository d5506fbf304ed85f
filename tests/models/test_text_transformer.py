"""Paper A's text classifier: published sizes, padding, the head, initial weights."""

import pytest
import torch

from mirrormargin.errors import ModelError
from mirrormargin.models import TextTransformer

SMALL = {"length": 10, "width": 12, "num_layers": 2, "num_heads": 3}
IDS = torch.tensor([[2, 5, 6, 7, 3, 0, 0], [2, 9, 3, 0, 0, 0, 0]], dtype=torch.int32)


def make_model(num_classes=2, **options):
    torch.manual_seed(0)
    return TextTransformer(20, num_classes, **(SMALL | options)).double().eval()


def test_paper_sizes_have_the_published_shapes_and_no_bias():
    with torch.device("meta"):
        model = TextTransformer(30_522, 2, length=512, width=384, num_layers=3, num_heads=3)
    block = {f"{name}.weight": (384, 384) for name in ("query", "key", "value", "output")}
    block |= {"expand.weight": (1536, 384), "contract.weight": (384, 1536)}
    block |= {"attention_norm.weight": (384,), "mlp_norm.weight": (384,)}
    wanted = {f"blocks.{k}.{name}": shape for k in range(3) for name, shape in block.items()}
    wanted |= {"embedding.weight": (30_522, 384), "position.weight": (512, 384)}
    wanted |= {"head.weight": (1, 384)}
    assert {name: tuple(p.shape) for name, p in model.named_parameters()} == wanted
    assert [layer.num_heads for layer in model.blocks] == [3, 3, 3]


def test_sizes_of_the_paper_are_the_defaults():
    with torch.device("meta"):
        model = TextTransformer(30_522)
    assert sum(p.numel() for p in model.parameters()) == (
        (30_522 + 512) * 384 + 3 * (12 * 384**2 + 2 * 384) + 384
    )
    assert [layer.dropout.threshold for layer in model.blocks] == [51] * 3
    assert [layer.attention_dropout.threshold for layer in model.blocks] == [51] * 3


@pytest.mark.parametrize("num_classes", [2, 3])
def test_head_reads_token_0_of_the_last_block(num_classes):
    model = make_model(num_classes)
    ids = IDS[:1, :5]
    x = model.embedding(ids) + model.position.weight[:5]
    for block in model.blocks:
        x = block(x)
    logits = x[:, 0] @ model.head.weight.T
    wanted = logits[:, 0] if num_classes == 2 else logits
    torch.testing.assert_close(model(ids), wanted, rtol=0, atol=1e-10)


@pytest.mark.parametrize(("num_classes", "shape"), [(2, (2,)), (3, (2, 3))])
def test_two_classes_get_one_logit(num_classes, shape):
    assert make_model(num_classes)(IDS).shape == shape
    assert make_model(num_classes)(IDS[:1]).shape == (1, *shape[1:])


def test_short_cut_equals_the_whole_last_block():
    model = make_model()
    torch.testing.assert_close(model(IDS), model(IDS, whole=True), rtol=0, atol=1e-12)


def test_columns_of_padding_change_nothing():
    model = make_model()
    longer = torch.nn.functional.pad(IDS, (0, 40))
    assert torch.equal(model(longer), model(IDS))
    assert torch.equal(model.attention(longer), model.attention(IDS))
    assert model.attention(longer).shape == (2, 2, 3, 5, 5)


def test_other_texts_of_the_batch_change_nothing():
    model = make_model()
    torch.testing.assert_close(model(IDS)[1:], model(IDS[1:]), rtol=0, atol=1e-12)


def test_attention_is_zero_on_padding_and_sums_to_one():
    maps = make_model().attention(IDS)
    assert bool((maps[1, ..., 3:] == 0).all())
    torch.testing.assert_close(maps.sum(-1), torch.ones(2, 2, 3, 5, dtype=torch.float64))


def test_too_long_a_text_is_refused_with_both_lengths():
    with pytest.raises(ModelError, match=r"11 tokens .* length 10"):
        make_model()(torch.ones(1, 11, dtype=torch.int32))


@pytest.mark.parametrize("change", [{"num_classes": 1}, {"num_layers": 0}, {"num_heads": 5}])
def test_sizes_that_make_no_classifier_are_refused(change):
    with pytest.raises(ModelError):
        make_model(**change)


def test_init_std_is_that_of_every_matrix():
    model = make_model(width=48, hidden=200, length=100, init_std=0.02)
    for name, parameter in model.named_parameters():
        if parameter.ndim == 2:
            spread = 0.02 * 5 / (2 * parameter.numel()) ** 0.5
            assert abs(float(parameter.detach().std()) - 0.02) < spread, name
        else:
            assert bool((parameter == 1).all()), name


def test_without_init_std_weights_are_torch_s_own():
    model = make_model(width=48, length=100)
    assert abs(float(model.position.weight.detach().std()) - 1) < 5 / 9600**0.5
    bound = 48**-0.5
    query = model.blocks[0].query.weight.detach()
    assert float(query.abs().max()) <= bound
    assert abs(float(query.std()) - bound / 3**0.5) < 0.05 * bound


def test_padding_inside_a_text_cuts_nothing_off():
    model = make_model().eval()
    inside = torch.tensor([[2, 5, 0, 7]])
    assert not torch.equal(model(inside), model(torch.tensor([[2, 5, 0, 8]])))
