"""Sums, comparisons and parts of deltas."""

import pytest
import torch
from fine_tuned import fine_tune, make_base
from hypothesis import given
from hypothesis import strategies as st
from torch import nn

import mirrormargin as mm

numbers = st.sampled_from([0.0, 0.0, 0.0, 1.0, -1.0, 0.5, -3.0])
rows = st.lists(numbers, min_size=6, max_size=6)


def make(row, base=None):
    base = base or nn.ParameterDict({"a": torch.zeros(2, 2), "b": torch.zeros(2)})
    values = torch.tensor(row)
    model = {"a": base["a"] + values[:4].reshape(2, 2), "b": base["b"] + values[4:]}
    return mm.SparseDelta.extract(model, base, share=1.0)


def to_row(delta):
    dense = delta.to_dense()
    parts = [dense.get("a", torch.zeros(2, 2)).reshape(-1), dense.get("b", torch.zeros(2))]
    return torch.cat(parts).tolist()


@given(rows, rows)
def test_a_sum_and_a_comparison_are_those_of_dense_differences(first, second):
    a, b = make(first), make(second)
    assert to_row(a) == first
    assert to_row(a + b) == [x + y for x, y in zip(first, second, strict=True)]
    assert (a + b).num_values == sum(x + y != 0 for x, y in zip(first, second, strict=True))
    found = a.compare(b)
    shared = [(x, y) for x, y in zip(first, second, strict=True) if x and y]
    assert found.num_values == (a.num_values, b.num_values)
    assert found.num_shared == len(shared)
    assert found.num_conflicts == sum(x * y < 0 for x, y in shared)
    least = min(found.num_values)
    assert found.overlap == (len(shared) / least if least else 0.0)


@given(rows, st.integers(0, 7))
def test_keeping_fewer_is_extracting_fewer(row, count):
    part = make(row).keep(count)
    base = nn.ParameterDict({"a": torch.zeros(2, 2), "b": torch.zeros(2)})
    model = {"a": torch.tensor(row[:4]).reshape(2, 2), "b": torch.tensor(row[4:])}
    expected = mm.SparseDelta.extract(model, base, keep=count)
    assert part.positions.tolist() == expected.positions.tolist()
    assert torch.equal(part.codes, expected.codes)
    assert part.scale == expected.scale


def test_a_sum_is_both_changes():
    base = make_base()
    a, b = (mm.SparseDelta.extract(fine_tune(base, n), base, keep=9) for n in (1, 2))
    (a + b).apply(base)
    changed = {name: one.clone() for name, one in base.state_dict().items()}
    other = make_base()
    a.apply(other)
    b.apply(other)
    for name, one in other.state_dict().items():
        torch.testing.assert_close(changed[name], one, rtol=2e-3, atol=1e-5)


def test_different_bases_are_not_added():
    first, other = make_base(), make_base(seed=3)
    a, b = (mm.SparseDelta.extract(fine_tune(base), base, keep=9) for base in (first, other))
    for call in (lambda: a + b, lambda: a.compare(b)):
        with pytest.raises(mm.DeltaError, match="different bases"):
            call()
    c = mm.SparseDelta.extract(fine_tune(first), first, keep=9, whole=["head.*"])
    with pytest.raises(mm.DeltaError, match=r"head.bias is of shape \(2,\) in one and absent"):
        a + c
    with pytest.raises(TypeError):
        a + 1


def test_two_heads_are_a_conflict_with_a_remedy():
    base = make_base()
    a, b = (
        mm.SparseDelta.extract(fine_tune(base, n), base, keep=9, whole=["head.*"]) for n in (1, 2)
    )
    with pytest.raises(mm.DeltaError, match=r"head.bias .*different contents.*without_whole"):
        a + b
    both = a + b.without_whole()
    assert torch.equal(both.whole["head.weight"], a.whole["head.weight"])
    assert (a + a).whole.keys() == a.whole.keys()


def test_types_of_values_are_promoted():
    base = make_base()
    a = mm.SparseDelta.extract(fine_tune(base, 1), base, keep=9)
    b = mm.SparseDelta.extract(fine_tune(base, 2), base, keep=9, values=torch.bfloat16)
    assert (a + a).codes.dtype == torch.float16
    assert (a + b).codes.dtype == torch.float32


def test_a_sum_beyond_float32_is_refused():
    delta = mm.SparseDelta.extract({"w": torch.tensor([3e38])}, {"w": torch.zeros(1)}, keep=1)
    with pytest.raises(mm.DeltaError, match="beyond float32"):
        delta + delta
