"""What goes into linear layers, and what Wanda prunes by it: literal twins, refusals."""

import copy
import math

import pytest
import torch
from block_models import make_model, same_bits
from encoder_checkpoints import KINDS, save_checkpoint
from torch import nn

from mirrormargin.data import Split
from mirrormargin.errors import TrainingError
from mirrormargin.models import LanguageTransformer, PretrainedEncoder, TextTransformer
from mirrormargin.training.input_norms import draw_calibration, measure_inputs
from mirrormargin.training.pruning import prune, pruning_curve
from mirrormargin.training.sparsity import select_matrices


class Perceptron(nn.Module):
    """Two layers in blocks, whose inputs are easy to compute by hand."""

    def __init__(self, dtype=torch.float32):
        super().__init__()
        torch.manual_seed(0)
        self.blocks = nn.ModuleList([nn.Linear(6, 5), nn.Linear(5, 4)]).to(dtype)
        self.head = nn.Linear(4, 2).to(dtype)

    def forward(self, x):
        for layer in self.blocks:
            x = layer(x).relu()
        return self.head(x)


def make_batches(dtype=torch.float32):
    generator = torch.Generator().manual_seed(1)
    shapes = [(7, 6), (2, 3, 6), (1, 6)]
    return [torch.randn(shape, generator=generator).to(dtype) * 3 for shape in shapes]


def find_norms_literally(model, batches):
    """Of both layers, one token after the other."""
    squares = [[0.0] * 6, [0.0] * 5]
    with torch.no_grad():
        for token in (row for batch in batches for row in batch.reshape(-1, 6)):
            for x, sums in zip((token, model.blocks[0](token).relu()), squares, strict=True):
                for j, value in enumerate(x.tolist()):
                    sums[j] += value**2
    return [[math.sqrt(one) for one in sums] for sums in squares]


def prune_literally(weight, norms, share):
    """By rows: the first of them lose one entry more where the number is not whole."""
    num_rows, num_columns = weight.shape
    total = round(share * num_rows * num_columns)
    pruned = weight.tolist()
    for i, row in enumerate(pruned):
        count = total // num_rows + (i < total % num_rows)
        scores = [abs(w) * norm for w, norm in zip(row, norms, strict=True)]
        for j in sorted(range(num_columns), key=lambda j: scores[j])[:count]:
            row[j] = 0.0
    return torch.tensor(pruned, dtype=weight.dtype)


def make_texts(num=9, length=10, padding=0):
    """Texts of different lengths, [CLS] = 101 first."""
    generator = torch.Generator().manual_seed(2)
    ids = torch.randint(104, 119, (num, length), generator=generator, dtype=torch.int32)
    ids[:, 0] = 101
    for row in range(num):
        ids[row, 2 + row % (length - 2) :] = padding
    return Split(ids, torch.zeros(num, dtype=torch.int64))


@pytest.mark.parametrize("share", [0.0, 0.1, 0.35, 0.5, 0.77, 1.0])
def test_wanda_is_its_literal_twin(share):
    model, batches = Perceptron(), make_batches()
    twins = [
        prune_literally(layer.weight.detach(), norms, share)
        for layer, norms in zip(model.blocks, find_norms_literally(model, batches), strict=True)
    ]
    before = copy.deepcopy(model)
    count = prune(model, share, criterion="wanda", calibration=batches)
    assert count == round(share * 30) + round(share * 20)
    assert all(torch.equal(a.weight, b) for a, b in zip(model.blocks, twins, strict=True))
    assert torch.equal(model.head.weight, before.head.weight)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16])
def test_norms_are_those_of_all_tokens(dtype):
    model, batches = Perceptron(dtype), make_batches(dtype)
    model.train()
    found = measure_inputs(model, batches)
    assert list(found) == ["blocks.0.weight", "blocks.1.weight"]
    rtol = 3 * torch.finfo(dtype).eps
    for norms, twin in zip(found.values(), find_norms_literally(model, batches), strict=True):
        assert norms.dtype is torch.float64
        torch.testing.assert_close(norms, torch.tensor(twin).double(), rtol=rtol, atol=1e-6)
    assert model.training
    assert not any(module._forward_hooks for module in model.modules())


def test_batches_may_be_given_as_the_model_takes_them():
    class Two(nn.Module):
        def __init__(self):
            super().__init__()
            self.layer = nn.Linear(3, 2)

        def forward(self, x, scale=1.0):
            return self.layer(x * scale)

    model, x = Two(), torch.ones(4, 3)
    for batches, norm in (
        (x, 2.0),
        ([x, x], math.sqrt(8)),
        ([(x, torch.tensor(2.0))], 4.0),
        ([{"x": x, "scale": 3.0}], 6.0),
        ((one for one in [x]), 2.0),
    ):
        (found,) = measure_inputs(model, batches, "weight").values()
        torch.testing.assert_close(found, torch.full((3,), norm).double())


def test_padding_is_not_counted():
    """Examples go through alone: those without padding, by hand, give the same."""
    torch.manual_seed(0)
    model = TextTransformer(120, length=10, width=8, num_layers=2, num_heads=2)
    split = make_texts()
    found = measure_inputs(model, split)
    by_hand = measure_inputs(model, [row[row != 0][None] for row in split.inputs])
    padded = measure_inputs(model, split.inputs)
    for name, norms in found.items():
        torch.testing.assert_close(norms, by_hand[name], rtol=1e-6, atol=1e-9)
    assert not torch.allclose(found["blocks.0.key.weight"], padded["blocks.0.key.weight"], rtol=0.1)


def test_a_seed_draws_different_examples_of_the_split():
    split = Split(torch.arange(40).view(20, 2), torch.zeros(20, dtype=torch.int64))
    drawn = draw_calibration(split, 5)
    assert [tuple(one.shape) for one in drawn] == [(1, 2)] * 5
    assert all(map(torch.equal, drawn, draw_calibration(split, 5)))
    assert not all(map(torch.equal, drawn, draw_calibration(split, 5, seed=1)))
    everything = torch.cat(draw_calibration(split, 500))
    assert sorted(everything[:, 0].tolist()) == list(range(0, 40, 2))
    with pytest.raises(TrainingError, match="the split is empty"):
        draw_calibration(Split(torch.zeros(0, 2), torch.zeros(0)))
    with pytest.raises(TrainingError, match="size is 0: give a positive integer"):
        draw_calibration(split, 0)


def test_wanda_can_be_ranked_by_matrix_and_together():
    batches = make_batches()
    models = {ranking: Perceptron() for ranking in ("row", "matrix", "global")}
    for ranking, model in models.items():
        assert prune(model, 0.5, ranking=ranking, criterion="wanda", calibration=batches) == 25
    zeros = {
        ranking: [(layer.weight == 0).sum(dim=1).tolist() for layer in model.blocks]
        for ranking, model in models.items()
    }
    assert zeros["row"] == [[3] * 5, [3, 3, 2, 2]]
    assert [sum(one) for one in zeros["matrix"]] == [15, 10]
    assert zeros["matrix"] != zeros["row"]
    assert [sum(one) for one in zeros["global"]] != [15, 10]


def test_a_state_dict_is_pruned_by_norms_that_were_measured():
    model, batches = Perceptron(), make_batches()
    norms = measure_inputs(model, batches)
    state = {name: one.clone() for name, one in model.state_dict().items()}
    prune(state, 0.5, criterion="wanda", calibration=norms)
    prune(model, 0.5, criterion="wanda", calibration=batches)
    assert all(torch.equal(one, state[name]) for name, one in model.state_dict().items())
    with pytest.raises(TrainingError, match="a state dict cannot be run"):
        prune(state, 0.5, criterion="wanda", calibration=batches)


def test_weights_of_inputs_that_are_always_0_go_after_zeros_and_before_others():
    model = make_model([[0.0, 5.0, -3.0, 0.1]])
    model.forward = lambda x: model.blocks[0](x)
    inputs = torch.tensor([[1.0, 0.0, 0.0, 1.0]])
    for share, expected in (
        (0.25, [0.0, 5.0, -3.0, 0.1]),
        (0.5, [0.0, 5.0, 0.0, 0.1]),
        (0.75, [0.0, 0.0, 0.0, 0.1]),
    ):
        prune(model, share, criterion="wanda", calibration=inputs)
        torch.testing.assert_close(model.blocks[0].weight.detach(), torch.tensor([expected]))


def test_a_curve_measures_inputs_once_before_anything_is_pruned():
    model, batches = Perceptron(), make_batches()
    before = copy.deepcopy(model)
    seen = []

    def look(pruned):
        seen.append([layer.weight.detach().clone() for layer in pruned.blocks])
        return 0.0

    pruning_curve(model, look, [0.9, 0.3], criterion="wanda", calibration=iter(batches))
    for share, weights in zip([0.9, 0.3], seen, strict=True):
        other = copy.deepcopy(before)
        prune(other, share, criterion="wanda", calibration=batches)
        assert all(torch.equal(a, b.weight) for a, b in zip(weights, other.blocks, strict=True))
    assert all(map(same_bits, before.state_dict().values(), model.state_dict().values()))


@pytest.mark.parametrize("kind", KINDS)
def test_all_block_matrices_of_encoders_have_inputs(kind, tmp_path):
    transformers = pytest.importorskip("transformers")
    if not hasattr(transformers, f"{kind}Model"):
        pytest.skip(f"transformers {transformers.__version__} has no {kind}")
    from mirrormargin.data.encoder_tokens import parse_tokenizer
    from mirrormargin.models import SpecialTokens
    from mirrormargin.models.checkpoints import read_tokenizer

    path = save_checkpoint(kind, tmp_path)
    own = parse_tokenizer(read_tokenizer(str(path)))
    framing = own.framing
    special = SpecialTokens(
        framing.padding, framing.before[0], framing.between[0], own.has_types, len(own)
    )
    model = PretrainedEncoder(path, special=special)
    ids = torch.full((3, 12), special.padding)
    for row in range(3):
        ids[row, : 4 + row] = torch.tensor([special.first, 5, 6, 7, 8, 9])[: 4 + row]
    found = measure_inputs(model, Split(ids, torch.zeros(3)))
    chosen = select_matrices(model, "blocks")
    assert list(found) == list(chosen)
    assert all(found[name].shape == weight.shape[1:] for name, weight in chosen.items())
    count = prune(model, 0.5, criterion="wanda", calibration=found)
    assert count == sum(round(0.5 * weight.numel()) for weight in chosen.values())


def test_a_language_model_prunes_its_blocks_and_says_why_not_its_embeddings():
    model = LanguageTransformer(11, length=8, width=8, num_layers=1, num_heads=2)
    windows = Split(torch.randint(0, 11, (20, 8)), torch.randint(0, 11, (20, 8)))
    before = model.embedding.weight.detach().clone()
    with pytest.raises(TrainingError, match=r"go through embedding\.weight, position\.weight: onl"):
        prune(model, 0.5, "all", criterion="wanda", calibration=windows)
    assert not any(bool((one == 0).any()) for one in select_matrices(model).values())
    prune(model, 0.5, criterion="wanda", calibration=windows)
    assert all(int((one == 0).sum()) == one.numel() // 2 for one in select_matrices(model).values())
    assert torch.equal(model.embedding.weight, before)


def test_layers_that_nothing_goes_through_are_named():
    model = nn.TransformerEncoderLayer(8, 2, 16, batch_first=True)
    model.unused = nn.Linear(8, 8)
    x = torch.randn(3, 5, 8)
    with pytest.raises(TrainingError, match=r"self_attn\.in_proj_weight, self_attn\.out_p"):
        prune(model, 0.5, "self_attn", criterion="wanda", calibration=x)
    with pytest.raises(TrainingError, match=r"go through unused\.weight: only nn\.Linear"):
        prune(model, 0.5, "unused", criterion="wanda", calibration=x)


def test_the_model_is_as_before_where_it_cannot_be_run():
    model = Perceptron()
    with pytest.raises(RuntimeError):
        measure_inputs(model, [torch.ones(2, 6), torch.ones(2, 7)])
    assert model.training
    assert not any(module._forward_hooks for module in model.modules())
    with pytest.raises(TrainingError, match=r"through blocks\.0\.weight holds nan or inf"):
        measure_inputs(model, [torch.full((2, 6), math.inf)])


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"criterion": "wanda"}, 'criterion="wanda" weighs weights by their inputs: give'),
        ({"calibration": [torch.ones(1, 6)]}, 'calibration is for criterion="wanda"'),
        ({"criterion": "size"}, "criterion is 'size': give one of magnitude, wanda"),
        ({"criterion": "wanda", "calibration": []}, "calibration holds no batches"),
        ({"criterion": "wanda", "calibration": 5}, "calibration is 5: give a split such as"),
        ({"criterion": "wanda", "calibration": {}}, "no norms of the 6 inputs of blocks.0.weight"),
        (
            {"criterion": "wanda", "calibration": {"blocks.0.weight": torch.ones(5)}},
            "no norms of the 6 inputs of blocks.0.weight",
        ),
    ],
)
def test_options_that_make_no_sense_are_refused(options, message):
    model = Perceptron()
    for call in (
        lambda: prune(model, 0.5, **options),
        lambda: pruning_curve(model, lambda _: 0.0, [0.5], **options),
    ):
        with pytest.raises(TrainingError, match=message):
            call()
    assert all(bool(layer.weight.all()) for layer in model.blocks)
