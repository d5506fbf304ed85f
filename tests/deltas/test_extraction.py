"""Which differences are kept, and how many."""

import copy
import math

import pytest
import torch
from fine_tuned import bits, fine_tune, make_base
from hypothesis import given
from hypothesis import strategies as st
from safetensors.torch import save_file
from torch import nn

import mirrormargin as mm
from mirrormargin.deltas.ranking import select_largest
from mirrormargin.training import save_pruned

BASE = make_base()
MODEL = fine_tune(BASE)


def extract(**options):
    return mm.SparseDelta.extract(MODEL, BASE, **options)


def pair(*rows):
    """A base of zeros, and a model with these weights."""
    base = nn.ParameterDict({f"w{n}": torch.zeros(len(row)) for n, row in enumerate(rows)})
    model = nn.ParameterDict({f"w{n}": torch.tensor(row) for n, row in enumerate(rows)})
    return model, base


@given(st.lists(st.sampled_from([0.0, -0.0, 1.0, -1.0, 2.0, -2.0, 3.0]), max_size=40), st.data())
def test_selection_is_that_of_a_stable_sort(numbers, data):
    values = torch.tensor(numbers)
    count = data.draw(st.integers(0, len(numbers) + 2))
    ordered = sorted(range(len(numbers)), key=lambda i: -abs(numbers[i]))
    expected = sorted(i for i in ordered[:count] if numbers[i] != 0)
    assert select_largest(values, count).tolist() == expected


@pytest.mark.parametrize("keep", [0, 1, 5, 30])
def test_exactly_as_many_as_asked_for_are_kept_and_they_are_the_largest(keep):
    delta = extract(keep=keep, values=torch.float32)
    everything = extract(share=1.0, values=torch.float32)
    assert delta.num_values == keep
    largest = everything.values.abs().sort(descending=True).values[:keep]
    assert torch.equal(delta.values.abs().sort(descending=True).values, largest)


def test_ties_go_to_the_first():
    model, base = pair([1.0, -2.0, 2.0], [2.0, 0.0, -2.0])
    assert mm.SparseDelta.extract(model, base, keep=2).positions.tolist() == [1, 2]
    assert mm.SparseDelta.extract(model, base, keep=3).positions.tolist() == [1, 2, 3]
    assert mm.SparseDelta.extract(model, base, keep=100).positions.tolist() == [0, 1, 2, 3, 5]


def test_each_tensor_by_itself():
    model, base = pair([10.0, 9.0, 8.0], [0.3, 0.0, 0.1], [0.0])
    delta = mm.SparseDelta.extract(model, base, keep=1, scope="tensor")
    assert delta.positions.tolist() == [0, 3]
    delta = mm.SparseDelta.extract(model, base, share=0.67, scope="tensor")
    assert delta.positions.tolist() == [0, 1, 3, 5]


@pytest.mark.parametrize(
    ("share", "count"),
    [(0.0, 0), (1e-3, 0), (1e-2, 1), (0.299, 29), (0.29, 29), (0.57, 57), (1 / 3, 33), (1.0, 100)],
)
def test_a_share_is_a_decimal_and_rounded_down(share, count):
    model, base = pair([1.0] * 100)
    assert mm.SparseDelta.extract(model, base, share=share).num_values == count


def test_models_state_dicts_and_files_give_the_same(tmp_path):
    def untie(model):
        return {
            name: one.clone() for name, one in model.state_dict().items() if name != "output.weight"
        }

    save_file(untie(MODEL), tmp_path / "model.safetensors")
    save_pruned(untie(BASE), tmp_path / "base.safetensors")
    expected = extract(keep=9)
    for model, base in [
        (MODEL.state_dict(), BASE.state_dict()),
        (tmp_path / "model.safetensors", str(tmp_path / "base.safetensors")),
        (MODEL, tmp_path / "base.safetensors"),
    ]:
        delta = mm.SparseDelta.extract(model, base, keep=9)
        assert delta.positions.tolist() == expected.positions.tolist()
        assert delta.space.digests == expected.space.digests
        other = copy.deepcopy(BASE)
        delta.apply(other)


def test_heads_are_stored_whole():
    base = {name: one for name, one in BASE.state_dict().items() if not name.startswith("head")}
    delta = mm.SparseDelta.extract(MODEL, base, keep=3)
    assert sorted(delta.whole) == ["head.bias", "head.weight"]
    assert torch.equal(delta.whole["head.weight"], MODEL.head.weight)
    assert delta.whole["head.weight"].data_ptr() != MODEL.head.weight.data_ptr()
    named = extract(keep=3, whole=["head.*"])
    assert named.space.digests == delta.space.digests
    assert extract(keep=3, whole=("output*",)).whole.keys() == {"embedding.weight"}  # tied


def untie(model):
    untied = copy.deepcopy(model)
    untied.output.weight = nn.Parameter(model.output.weight.detach().clone())
    return untied


@pytest.mark.parametrize("options", [{}, {"whole": ["output*"]}])
def test_a_model_and_a_base_that_tie_otherwise_are_refused(options):
    untied = untie(BASE)
    with torch.no_grad():
        untied.output.weight[0, 0] += 1.0
    for model, base in ((untied, BASE), (BASE, untied)):
        with pytest.raises(mm.DeltaError, match=r"output.weight and embedding.weight share their"):
            mm.SparseDelta.extract(model, base, keep=1, **options)


def test_equal_copies_of_a_tied_weight_are_as_good_as_tied():
    expected = extract(keep=9)
    for model, base in ((untie(MODEL), BASE), (MODEL, untie(BASE))):
        delta = mm.SparseDelta.extract(model, base, keep=9)
        assert delta.positions.tolist() == expected.positions.tolist()
        assert delta.space.tied == expected.space.tied == {"output.weight": "embedding.weight"}
    model, answers = untie(MODEL), []
    evaluate = lambda one: answers.append(torch.equal(one.output.weight, one.embedding.weight)) or 0  # noqa: E731
    mm.SparseDelta.extract(model, BASE, tolerance=0.1, evaluate=evaluate)
    assert all(answers)


def test_what_is_equal_and_not_finite_is_no_difference():
    model, base = pair([1.0, -math.inf, math.inf, math.nan], [0.5])
    with torch.no_grad():
        base["w0"][1:] = model["w0"][1:]
    before = bits(base)
    delta = mm.SparseDelta.extract(model, base, share=1.0)
    assert delta.positions.tolist() == [0, 4]
    delta.apply(base)
    assert bits(base) == bits(model)
    delta.remove(base)
    assert bits(base) == before
    with torch.no_grad():
        base["w0"][2] = -math.inf
    with pytest.raises(mm.DeltaError, match="w0 has nan or inf"):
        mm.SparseDelta.extract(model, base, share=1.0)


def test_integers_are_stored_whole_where_they_changed():
    model = copy.deepcopy(MODEL)
    model.norm.num_batches_tracked.add_(7)
    delta = mm.SparseDelta.extract(model, BASE, keep=3)
    assert delta.whole.keys() == {"norm.num_batches_tracked"}
    base = copy.deepcopy(BASE)
    delta.apply(base)
    assert int(base.norm.num_batches_tracked) == 7
    delta.remove(base)
    assert bits(base) == bits(BASE)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({}, "none of them given"),
        ({"keep": 3, "share": 0.1}, "keep and share given"),
        ({"keep": -1}, "keep is -1"),
        ({"share": 1.5}, "share is 1.5"),
        ({"keep": 3, "evaluate": len}, "evaluate goes with tolerance"),
        ({"tolerance": 0.1}, "evaluate is None"),
        ({"keep": 3, "scope": "layer"}, "give one of global, tensor"),
        ({"keep": 3, "whole": ["heads.*"]}, "matches no tensor"),
        ({"keep": 3, "whole": "head.*"}, "list of patterns"),
        ({"keep": 3, "values": torch.int8}, "give one of torch.float16"),
        ({"keep": 3, "info": {"a": object()}}, "cannot be written as JSON"),
    ],
)
def test_what_makes_no_sense_is_refused(options, message):
    with pytest.raises(mm.DeltaError, match=message):
        extract(**options)


def test_models_that_do_not_belong_together_are_refused(tmp_path):
    other = copy.deepcopy(BASE)
    other.hidden = nn.Linear(3, 4)
    with pytest.raises(mm.DeltaError, match=r"hidden.weight has .*whole=\['hidden.weight'\]"):
        mm.SparseDelta.extract(MODEL, other, keep=3)
    with pytest.raises(mm.DeltaError, match="no tensor in common"):
        mm.SparseDelta.extract(MODEL, nn.Linear(2, 2), keep=3)
    with pytest.raises(mm.DeltaError, match="does not exist"):
        mm.SparseDelta.extract(MODEL, tmp_path / "nowhere", keep=3)
    broken = copy.deepcopy(MODEL)
    broken.hidden.weight.data[0, 0] = math.nan
    with pytest.raises(mm.DeltaError, match=r"hidden.weight has nan or inf"):
        mm.SparseDelta.extract(broken, BASE, keep=3)
    save_pruned({"w": torch.zeros(30, 30)}, tmp_path / "sparse", "sparse")
    with pytest.raises(mm.DeltaError, match="load_pruned"):
        mm.SparseDelta.extract(MODEL, tmp_path / "sparse", keep=3)
    extract(keep=3).save(tmp_path / "delta")
    with pytest.raises(mm.DeltaError, match="holds a delta, not a model"):
        mm.SparseDelta.extract(MODEL, tmp_path / "delta", keep=3)


def test_the_smallest_number_within_a_tolerance_is_found():
    """The score is what is left of the squared difference, so that the right number is known."""
    target = copy.deepcopy(MODEL)
    squares = extract(share=1.0, values=torch.float32).values.square().sort(descending=True).values
    calls = []

    def evaluate(model):
        calls.append(model)
        model.train()
        model.norm.running_mean.add_(1.0)  # as batches in training do
        pairs = zip(model.parameters(), target.parameters(), strict=True)
        return -sum((one - other).square().sum().item() for one, other in pairs)

    before = bits(MODEL)
    tolerance = 1.0001 * float(squares[8:].sum())
    delta = extract(tolerance=tolerance, evaluate=evaluate, values=torch.float32)
    assert delta.num_values == 8  # a candidate: 0, 1, 2, 3, 4, 5, 6, 8, 10, 13, ...
    assert torch.equal(delta.codes, extract(keep=8, values=torch.float32).codes)
    assert len(calls) <= 6
    assert all(one is MODEL for one in calls)
    assert bits(MODEL) == before
    assert not MODEL.training


def test_a_tolerance_of_everything_keeps_nothing():
    delta = extract(tolerance=1.0, evaluate=lambda model: 1.0)
    assert delta.num_values == 0


def test_a_score_that_nothing_reaches_is_an_error():
    scores = iter([1.0, *[0.0] * 20])
    before = bits(MODEL)
    with pytest.raises(mm.DeltaError, match="not even all of them"):
        extract(tolerance=0.1, evaluate=lambda model: next(scores))
    with pytest.raises(mm.DeltaError, match="the score of evaluate is nan"):
        extract(tolerance=0.1, evaluate=lambda model: math.nan)
    with pytest.raises(ZeroDivisionError):
        extract(tolerance=0.1, evaluate=lambda model: 1 / 0)
    assert bits(MODEL) == before
