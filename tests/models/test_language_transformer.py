"""The language model: it sees the past alone, starts by knowing nothing, and continues texts."""

import math

import pytest
import torch
from torch.nn import functional

from mirrormargin.errors import ModelError
from mirrormargin.models import LanguageTransformer
from mirrormargin.models.block import Block


@pytest.fixture
def model():
    torch.manual_seed(0)
    return LanguageTransformer(
        11, length=8, width=16, num_layers=2, num_heads=2, init_std=0.3
    ).eval()


@pytest.mark.parametrize("t", range(7))
def test_future_tokens_do_not_change_past_logits(model, t):
    ids = torch.randint(0, 11, (3, 8))
    others = ids.clone()
    others[:, t + 1 :] = torch.randint(0, 11, (3, 7 - t))
    before, after = model(ids), model(others)
    assert before[:, : t + 1].equal(after[:, : t + 1])
    changed = ids.clone()
    changed[:, t] = (ids[:, t] + 1) % 11
    assert not before[:, t].allclose(model(changed)[:, t])


def test_gradients_of_a_logit_reach_the_past_alone(model):
    reached = []
    model.embedding.register_forward_hook(lambda *known: reached.append(known[-1]))
    logits = model(torch.randint(0, 11, (1, 8)))
    (gradient,) = torch.autograd.grad(logits[0, 4].sum(), reached[0])
    assert (gradient[0, :5].abs().sum(dim=-1) > 0).all()
    assert not gradient[0, 5:].any()


def test_a_shorter_text_has_the_same_logits(model):
    ids = torch.randint(0, 11, (2, 8))
    torch.testing.assert_close(model(ids)[:, :5], model(ids[:, :5]))


def test_untrained_loss_is_that_of_guessing():
    torch.manual_seed(0)
    model = LanguageTransformer(65, length=64).eval()
    ids = torch.randint(0, 65, (20, 65))
    loss = functional.cross_entropy(model(ids[:, :-1]).flatten(0, 1), ids[:, 1:].flatten())
    assert loss.item() == pytest.approx(math.log(65), abs=0.1)


def test_residual_matrices_start_smaller():
    torch.manual_seed(0)
    model = LanguageTransformer(65, length=64)
    block = model.blocks[1]
    assert isinstance(block, Block)
    assert block.expand.weight.std().item() == pytest.approx(0.02, rel=0.02)
    for layer in (block.output, block.contract):
        assert layer.weight.std().item() == pytest.approx(0.02 / math.sqrt(8), rel=0.02)


def test_the_head_is_the_embedding_and_there_are_no_biases(model):
    names = [name for name, _ in model.named_parameters()]
    assert not [name for name in names if "head" in name or "bias" in name]
    assert len(names) == 2 + 2 * 8 + 1


def test_attention_maps_are_lower_triangular_rows_of_shares(model):
    maps = model.attention(torch.randint(0, 11, (2, 8)))
    assert maps.shape == (2, 2, 2, 8, 8)
    torch.testing.assert_close(maps.sum(dim=-1), torch.ones(2, 2, 2, 8))
    assert not maps.triu(1).any()


def test_the_path_of_attention_dropout_is_causal_too():
    torch.manual_seed(0)
    block = Block(16, 2, 32, norm_first=True, is_causal=True, attention_dropout=0.1)
    x = torch.randn(2, 6, 16)
    fused = block.eval()(x)
    block.train()
    block.attention_dropout.eval()  # the path of dropout, which drops nothing
    torch.testing.assert_close(block(x), fused)
    block.attention_dropout.train()
    others = torch.cat([x[:, :3], torch.randn(2, 3, 16)], dim=1)
    results = []
    for inputs in (x, others):
        torch.manual_seed(1)  # the same entries are dropped
        results.append(block(inputs))
    assert results[0][:, :3].equal(results[1][:, :3])
    assert not results[0][:, 3:].allclose(results[1][:, 3:])


def test_too_many_tokens_are_refused(model):
    with pytest.raises(ModelError, match="9 tokens was given to a model of length 8"):
        model(torch.zeros(1, 9, dtype=torch.int64))


def test_the_same_seed_gives_the_same_text(model):
    first, second, other = (
        list(model.generate([1, 2], 30, temperature=0.9, seed=seed)) for seed in (3, 3, 4)
    )
    assert first == second != other
    assert len(first) == 30
    assert set(first) <= set(range(11))


def test_generation_leaves_global_random_numbers_alone(model):
    before = torch.get_rng_state()
    list(model.generate([1], 5))
    assert before.equal(torch.get_rng_state())


def test_temperature_0_takes_the_likeliest_and_a_small_one_nearly_always(model):
    ids = [4, 5]
    for token in model.generate(ids, 20, temperature=0):
        assert token == int(model(torch.tensor([ids[-8:]]))[0, -1].argmax())
        ids.append(token)
    assert list(model.generate([4, 5], 20, temperature=1e-9, seed=1)) == ids[2:]


def test_draws_have_the_probabilities_of_the_model(model):
    draws = [next(model.generate([3], 1, temperature=2.0, seed=seed)) for seed in range(2000)]
    shares = (model(torch.tensor([[3]]))[0, -1] / 2).softmax(0)
    counts = torch.tensor(draws).bincount(minlength=11) / 2000
    assert (counts - shares).abs().max().item() < 0.04


@pytest.mark.parametrize(
    ("ids", "options", "message"),
    [
        ([], {}, "one token at least"),
        ([1], {"num_tokens": 0}, "num_tokens"),
        ([1], {"temperature": -1}, "temperature"),
        ([1], {"temperature": math.nan}, "temperature"),
        ([1], {"seed": -1}, "seed"),
    ],
)
def test_senseless_generation_is_refused(model, ids, options, message):
    with pytest.raises(ModelError, match=message):
        model.generate(ids, **({"num_tokens": 3} | options))
