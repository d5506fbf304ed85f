"""Statistics of weight matrices: closed forms, invariances, which matrices a name stands for."""

import json
import math

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import nn

import mirrormargin as mm
from mirrormargin.errors import TrainingError
from mirrormargin.training.sparsity import (
    count_underflowed,
    measure_sparsity,
    select_matrices,
    summarize_attention_weights,
    underflowed,
)


class Block(nn.Module):
    def __init__(self, width):
        super().__init__()
        for name in ("query", "key", "value", "output"):
            setattr(self, name, nn.Linear(width, width, bias=False))
        self.expand = nn.Linear(width, 2 * width, bias=False)
        self.contract = nn.Linear(2 * width, width, bias=False)
        self.norm = nn.LayerNorm(width)


class Transformer(nn.Module):
    def __init__(self, width=4, depth=2):
        super().__init__()
        self.embedding = nn.Embedding(10, width)
        self.position = nn.Parameter(torch.randn(5, width))
        self.blocks = nn.ModuleList(Block(width) for _ in range(depth))
        self.head = nn.Linear(width, 1, bias=False)


BERT_NAMES = {
    "attention": [
        f"encoder.encoder.layer.{i}.attention.self.{kind}.weight"
        for i in range(2)
        for kind in ("query", "key", "value")
    ],
    "others inside": [
        f"encoder.encoder.layer.{i}.{part}.dense.weight"
        for i in range(2)
        for part in ("attention.output", "intermediate", "output")
    ],
    "outside": [
        "encoder.embeddings.word_embeddings.weight",
        "encoder.embeddings.position_embeddings.weight",
        "encoder.pooler.dense.weight",
        "classifier.weight",
    ],
}
weights = st.lists(
    st.floats(-2, 2, width=32, allow_subnormal=False), min_size=2, max_size=60
).filter(lambda w: any(w))


@given(weights)
def test_statistics_are_those_of_the_formulas(values):
    w = np.abs(np.array(values))
    found = measure_sparsity({"w": torch.tensor(values)}, 0.5, bin_width=0.25, num_bins=4)
    n = len(w)
    ratio = w.sum() / np.sqrt((w**2).sum())
    assert found.entries == n
    assert found.above == (w > 0.5).sum()
    assert found.zeros == (w == 0).sum()
    assert found.largest == w.max()
    assert found.below_hundredth == (w < w.max() * 1e-2).sum()
    assert found.below_thousandth == (w < w.max() * 1e-3).sum()
    assert found.l1_l2 == pytest.approx(ratio / math.sqrt(n), rel=1e-12)
    assert found.hoyer == pytest.approx(
        (math.sqrt(n) - ratio) / (math.sqrt(n) - 1), rel=1e-9, abs=1e-12
    )
    edges = [0, 0.25, 0.5, 0.75, 1]
    for k in range(4):
        assert found.histogram[k] == ((w >= edges[k]) & (w < edges[k + 1])).sum()
    assert found.beyond == (w >= 1).sum()


@given(weights, st.integers(1, 59))
def test_matrices_are_counted_as_one(values, cut):
    w = torch.tensor(values, dtype=torch.float64)
    whole, parts = measure_sparsity({"w": w}), measure_sparsity({"a": w[:cut], "b": w[cut:]})
    for key, value in whole.as_dict().items():
        assert parts.as_dict()[key] == pytest.approx(value, rel=1e-12, abs=1e-12)


@pytest.mark.parametrize("factor", [1e-200, 1e-30, 1e30, 1e200])
def test_indices_do_not_change_with_the_scale(factor):
    w = torch.linspace(-1, 3, 50, dtype=torch.float64)
    one, scaled = measure_sparsity({"w": w}), measure_sparsity({"w": factor * w})
    assert scaled.hoyer == pytest.approx(one.hoyer, rel=1e-12)
    assert scaled.l1_l2 == pytest.approx(one.l1_l2, rel=1e-12)
    assert scaled.below_hundredth == one.below_hundredth


@pytest.mark.parametrize("size", [4, 400])
def test_indices_of_one_entry_and_of_equal_ones(size):
    one = torch.zeros(size)
    one[size // 2] = -0.3
    equal = torch.full((size,), 0.3) * torch.tensor([1.0, -1.0]).repeat(size // 2)
    sparse, flat = measure_sparsity({"w": one}), measure_sparsity({"w": equal})
    assert (sparse.hoyer, sparse.l1_l2) == pytest.approx((1, size**-0.5))
    assert (flat.hoyer, flat.l1_l2) == pytest.approx((0, 1))


def test_an_entry_on_an_edge_is_in_the_bin_to_its_right():
    edges = torch.arange(4, dtype=torch.float64) * 0.005
    found = measure_sparsity({"w": edges}, 0.005, num_bins=3)
    assert found.histogram == (1, 1, 1)
    assert found.beyond == 1
    assert found.above == 2  # the threshold itself is not above it


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float32, torch.float64])
def test_every_number_format_is_measured(dtype):
    w = torch.tensor([[0.5, -0.25], [0.0, 0.125]], dtype=dtype)
    found = measure_sparsity({"w": w.t()})
    assert (found.largest, found.zeros, found.above) == (0.5, 1, 3)
    assert found.l1_l2 == pytest.approx(0.875 / (2 * math.sqrt(0.328125)), rel=1e-12)


@pytest.mark.parametrize(("values", "index"), [([0.0, 0.0], None), ([0.5], 1.0)])
def test_where_an_index_has_no_value_it_is_none(values, index):
    found = measure_sparsity({"w": torch.tensor(values)})
    assert found.hoyer is None
    assert found.l1_l2 == index


def test_statistics_survive_json():
    found = measure_sparsity({"w": torch.randn(30), "none": torch.zeros(0, 3)}, num_bins=3)
    text = json.dumps(found.as_dict(), allow_nan=False)
    assert type(found)(**{**json.loads(text), "histogram": found.histogram}) == found


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
def test_nonfinite_weights_are_refused_by_name(value):
    with pytest.raises(TrainingError, match="broken holds nan or inf"):
        measure_sparsity({"fine": torch.ones(3), "broken": torch.tensor([value, 1.0])})


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"threshold": -1}, "threshold is -1: give a number of at least 0"),
        ({"threshold": math.nan}, "threshold is nan: give a number of at least 0"),
        ({"bin_width": 0}, "bin_width is 0: give a number above 0"),
        ({"num_bins": 0}, "num_bins is 0: give a positive integer"),
    ],
)
def test_senseless_options_are_refused(options, message):
    with pytest.raises(TrainingError, match=message):
        measure_sparsity({"w": torch.ones(3)}, **options)


@pytest.mark.parametrize("matrices", [{}, {"w": torch.zeros(0, 4)}])
def test_nothing_cannot_be_measured(matrices):
    with pytest.raises(TrainingError, match="no entries"):
        measure_sparsity(matrices)


def test_attention_and_blocks_are_found_in_own_models():
    model = Transformer(depth=2)
    attention = [f"blocks.{i}.{kind}.weight" for i in (0, 1) for kind in ("query", "key", "value")]
    assert list(select_matrices(model, "attention")) == attention
    others = [f"blocks.{i}.{k}.weight" for i in (0, 1) for k in ("output", "expand", "contract")]
    assert set(select_matrices(model, "blocks")) == {*attention, *others}
    assert select_matrices(model, "attention")[attention[0]] is model.blocks[0].query.weight


def test_attention_and_blocks_are_found_by_the_names_of_bert():
    state = {name: torch.ones(2, 2) for names in BERT_NAMES.values() for name in names}
    state["encoder.encoder.layer.0.output.LayerNorm.weight"] = torch.ones(2)
    assert list(select_matrices(state, "attention")) == BERT_NAMES["attention"]
    inside = {*BERT_NAMES["attention"], *BERT_NAMES["others inside"]}
    assert set(select_matrices(state, "blocks")) == inside


def test_only_real_matrices_are_chosen_by_a_pattern():
    state = {
        "a": torch.ones(2, 2),
        "b.a": torch.ones(2),
        "c.a": torch.ones(2, 2, 2),
        "d.a": torch.ones(2, 2, dtype=torch.int64),
        "e.a": torch.ones(1, 4),
        "f": torch.ones(2, 2),
    }
    assert list(select_matrices(state, "a$")) == ["a", "e.a"]


def test_a_tied_matrix_is_chosen_once():
    model = nn.ModuleDict({"one": nn.Linear(3, 3), "two": nn.Linear(3, 3)})
    model["two"].weight = model["one"].weight
    assert list(select_matrices(model, "weight")) == ["one.weight"]


def test_a_pattern_without_a_match_is_an_error_that_lists_the_names():
    with pytest.raises(TrainingError, match=r"'keys' matches no matrix.*embedding\.weight.*head"):
        select_matrices(Transformer(), "keys")
    with pytest.raises(TrainingError, match="there are no matrices"):
        select_matrices(nn.LayerNorm(3))


def test_a_malformed_pattern_is_refused():
    with pytest.raises(TrainingError, match="no regular expression"):
        select_matrices(Transformer(), "(")


def test_kinds_are_summarized_apart_and_together():
    model = Transformer(width=4, depth=3)
    with torch.no_grad():
        for block in model.blocks:
            block.key.weight.fill_(0.1)
            block.query.weight.fill_(-0.2)
            block.value.weight.fill_(0.3)
            block.output.weight.fill_(9)
    found = summarize_attention_weights(model, 0.15, num_bins=10)
    assert {kind: f.largest for kind, f in found.items()} == pytest.approx(
        {"key": 0.1, "query": 0.2, "value": 0.3, "all": 0.3}
    )
    assert {kind: f.above for kind, f in found.items()} == {
        "key": 0,
        "query": 48,
        "value": 48,
        "all": 96,
    }
    assert found["all"].entries == 3 * 48
    assert found["all"].beyond == 3 * 48
    assert summarize_attention_weights(model.state_dict(), 0.15, num_bins=10) == found


def test_a_model_without_keys_cannot_be_summarized():
    model = nn.ModuleDict({"query": nn.Linear(3, 3), "value": nn.Linear(3, 3)})
    with pytest.raises(TrainingError, match="matches no matrix"):
        summarize_attention_weights(model)


def test_zero_or_subnormal_weights_with_a_dual_value_have_underflowed():
    dual = torch.tensor([1e-5, 0.0, -1e-5, 0.5, 1e-4])
    weight = torch.tensor([0.0, 0.0, -1e-40, 1e-3, 1e-37])
    assert underflowed(dual, weight) == 2


def test_underflow_is_told_from_weights_that_never_moved():
    model = nn.Linear(3, 1, bias=False)
    nn.init.zeros_(model.weight)
    group = {"params": list(model.parameters()), "p": 1.1}
    optimizer = mm.MirrorDescent([group], lr=1.0)
    model.weight.grad = torch.tensor([[1e-6, 0.0, -0.5]])
    optimizer.step()
    matrices = {"weight": model.weight}
    assert model.weight.tolist() == [[0.0, 0.0, pytest.approx(0.5**10, rel=1e-5)]]
    assert measure_sparsity(matrices).zeros == 2
    assert count_underflowed(optimizer, matrices) == {"weight": 1}


def test_where_no_dual_is_kept_underflow_is_not_counted():
    model = nn.Linear(3, 1, bias=False)
    optimizer = mm.MirrorDescent(model.parameters(), lr=1.0, p=2.0)
    model.weight.grad = torch.ones(1, 3)
    optimizer.step()
    assert count_underflowed(optimizer, {"weight": model.weight, "other": torch.ones(2)}) == {}


def test_a_dual_of_another_shape_is_refused():
    with pytest.raises(TrainingError, match=r"\(2,\).*\(3,\)"):
        underflowed(torch.ones(2), torch.ones(3))
