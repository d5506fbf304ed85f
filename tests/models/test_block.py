"""The block: literal twins, shortcuts that change nothing, masks, names."""

import pytest
import torch
from torch.nn import functional

from mirrormargin.errors import ModelError
from mirrormargin.models.block import Block
from mirrormargin.training.sparsity import select_matrices

B, T, WIDTH, HEADS = 3, 5, 12, 3


def make_block(norm_first, dtype=torch.float64, **options):
    torch.manual_seed(0)
    block = Block(WIDTH, HEADS, 20, norm_first=norm_first, bias=norm_first, **options)
    with torch.no_grad():
        for name, parameter in block.named_parameters():
            if "norm" in name:  # so that gains and shifts matter
                parameter.add_(torch.randn_like(parameter), alpha=0.3)
    return block.to(dtype).eval()


def make_inputs():
    generator = torch.Generator().manual_seed(1)
    return torch.randn(B, T, WIDTH, generator=generator, dtype=torch.float64)


MASK = torch.tensor([[1, 1, 1, 1, 1], [1, 1, 1, 0, 0], [1, 0, 0, 0, 0]], dtype=torch.bool)


def norm(layer, x):
    centred = x - x.mean(-1, keepdim=True)
    scaled = centred / (centred.square().mean(-1, keepdim=True) + layer.eps).sqrt()
    scaled = scaled * layer.weight
    return scaled if layer.bias is None else scaled + layer.bias


def attend_slowly(block, x, mask):
    """One sequence, one head, one query at a time."""
    size = WIDTH // HEADS
    out = torch.zeros_like(x)
    maps = torch.zeros(len(x), HEADS, x.shape[1], x.shape[1], dtype=x.dtype)
    for b in range(len(x)):
        seen = [t for t in range(x.shape[1]) if mask is None or mask[b, t]]
        for h in range(HEADS):
            rows = slice(h * size, (h + 1) * size)
            q, k, v = (
                x[b] @ layer.weight[rows].T for layer in (block.query, block.key, block.value)
            )
            for t in range(x.shape[1]):
                logits = torch.stack([q[t] @ k[s] / size**0.5 for s in seen])
                shares = logits.exp() / logits.exp().sum()
                maps[b, h, t, seen] = shares
                out[b, t, rows] = sum(a * v[s] for a, s in zip(shares, seen, strict=True))
    return out, maps


def compute_slowly(block, x, mask):
    def linear(layer, y):
        return y @ layer.weight.T + (0 if layer.bias is None else layer.bias)

    def mlp(y):
        return linear(block.contract, functional.gelu(linear(block.expand, y)))

    if block.norm_first:
        mixed, maps = attend_slowly(block, norm(block.attention_norm, x), mask)
        x = x + linear(block.output, mixed)
        return x + mlp(norm(block.mlp_norm, x)), maps
    mixed, maps = attend_slowly(block, x, mask)
    x = norm(block.attention_norm, x + linear(block.output, mixed))
    return norm(block.mlp_norm, x + mlp(x)), maps


@pytest.mark.parametrize("mask", [None, MASK], ids=["all", "mask"])
@pytest.mark.parametrize("norm_first", [False, True])
def test_block_is_the_formula(norm_first, mask):
    block, x = make_block(norm_first), make_inputs()
    with torch.no_grad():
        wanted, maps = compute_slowly(block, x, mask)
        torch.testing.assert_close(block(x, mask), wanted, rtol=1e-10, atol=1e-10)
        torch.testing.assert_close(block.attention(x, mask), maps, rtol=1e-10, atol=1e-10)


@pytest.mark.parametrize("mask", [None, MASK], ids=["all", "mask"])
@pytest.mark.parametrize("norm_first", [False, True])
def test_first_only_is_the_first_row_with_its_gradients(norm_first, mask):
    block, results = make_block(norm_first), []
    for first_only in (True, False):
        x = make_inputs().requires_grad_()
        row = block(x, mask, first_only=first_only)[:, :1]
        block.zero_grad()
        row.sin().sum().backward()
        results.append([row.detach(), x.grad, *(p.grad.clone() for p in block.parameters())])
    for short, whole in zip(*results, strict=True):
        torch.testing.assert_close(short, whole, rtol=1e-10, atol=1e-12)


@pytest.mark.parametrize("norm_first", [False, True])
def test_attention_rows_are_shares_and_masked_tokens_get_none(norm_first):
    maps = make_block(norm_first).attention(make_inputs(), MASK)
    assert maps.shape == (B, HEADS, T, T)
    torch.testing.assert_close(maps.sum(-1), torch.ones(B, HEADS, T, dtype=torch.float64))
    hidden = ~MASK[:, None, None, :].expand_as(maps)
    assert bool((maps[hidden] == 0).all())
    assert bool((maps[~hidden] > 0).all())


@pytest.mark.parametrize("mask", [None, MASK], ids=["all", "mask"])
def test_fused_attention_equals_the_path_that_forms_the_map(mask):
    x = make_inputs()
    # Training with a rate for attention forms the map; a mask that keeps all is no dropout.
    block = make_block(False, attention_dropout=0.5)
    fused = block(x, mask)
    block.train()
    block.attention_dropout.eval()
    torch.testing.assert_close(block(x, mask), fused, rtol=1e-10, atol=1e-10)


def test_dropout_rates_mean_nothing_in_evaluation():
    x = make_inputs()
    plain = make_block(True)
    dropping = make_block(True, dropout=0.5, attention_dropout=0.5)
    assert torch.equal(dropping(x, MASK), plain(x, MASK))
    dropping.train()
    assert not torch.allclose(dropping(x, MASK), plain(x, MASK))


@pytest.mark.parametrize("norm_first", [False, True])
def test_padding_does_not_reach_the_first_row(norm_first):
    block, x = make_block(norm_first), make_inputs()
    other = x.clone()
    other[~MASK] = 100.0
    torch.testing.assert_close(
        block(other, MASK, first_only=True), block(x, MASK, first_only=True), rtol=0, atol=1e-12
    )
    short = block(x[1:2, :3], first_only=True)
    torch.testing.assert_close(block(x, MASK, first_only=True)[1:2], short, rtol=0, atol=1e-12)


def test_pruning_selects_exactly_the_six_matrices():
    model = torch.nn.Module()
    model.blocks = torch.nn.ModuleList([make_block(True), make_block(False)])
    names = ("query", "key", "value", "output", "expand", "contract")
    assert set(select_matrices(model, "blocks")) == {
        f"blocks.{k}.{name}.weight" for k in (0, 1) for name in names
    }
    assert set(select_matrices(model, "attention")) == {
        f"blocks.{k}.{name}.weight" for k in (0, 1) for name in names[:3]
    }


@pytest.mark.parametrize("heads", [0, 5])
def test_heads_that_do_not_divide_the_width_are_refused(heads):
    with pytest.raises(ModelError, match=f"12 / {heads}"):
        Block(12, heads, 24)
