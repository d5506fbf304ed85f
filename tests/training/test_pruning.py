"""Pruning: exact counts, which entries go, and weights that come back."""

import copy
import math

import pytest
import torch
from block_models import make_model, same_bits
from hypothesis import given
from hypothesis import strategies as st
from torch import nn

import mirrormargin as mm
from mirrormargin.errors import TrainingError
from mirrormargin.training.pruning import prune, pruning_curve


def matrices_of(model):
    return [block.weight.detach().clone() for block in model.blocks]


# Few different magnitudes, so that ties and zeros are common.
entries = st.sampled_from([0.0, -0.0, 0.25, -0.25, 0.5, -1.0, 1.0, 3.0])
matrices = st.integers(1, 6).flatmap(
    lambda width: st.lists(
        st.lists(entries, min_size=width, max_size=width), min_size=1, max_size=6
    )
)


@given(st.lists(matrices, min_size=1, max_size=3), st.floats(0, 1), st.booleans())
def test_the_first_of_the_smallest_are_zero_and_nothing_else_changes(given, share, together):
    model = make_model(*given)
    before = matrices_of(model)
    others = [block.bias.detach().clone() for block in model.blocks] + [
        parameter.detach().clone() for parameter in model.head.parameters()
    ]
    count = prune(model, share, ranking="global" if together else "matrix")
    after = matrices_of(model)

    places = [(i, k) for i, w in enumerate(before) for k in range(w.numel())]
    size = lambda place: abs(float(before[place[0]].flatten()[place[1]]))  # noqa: E731
    groups = [places] if together else [[p for p in places if p[0] == i] for i in range(len(given))]
    gone = {p for group in groups for p in sorted(group, key=size)[: round(share * len(group))]}
    for i, k in places:
        expected = 0.0 if (i, k) in gone else before[i].flatten()[k]
        assert after[i].flatten()[k] == expected
    assert count == len({p for p in places if p in gone or size(p) == 0})
    unchanged = [block.bias for block in model.blocks] + list(model.head.parameters())
    assert all(map(torch.equal, others, unchanged))


@given(matrices, st.floats(0, 1))
def test_by_rows_each_loses_as_many_or_one_more(given, share):
    model = make_model(given, given)
    prune(model, share, ranking="row")
    width = len(given[0])
    total = round(share * len(given) * width)
    expected = []
    for i, row in enumerate(given):
        count = total // len(given) + (i < total % len(given))
        gone = sorted(range(width), key=lambda k: abs(row[k]))[:count]
        expected.append([0.0 if k in gone else row[k] for k in range(width)])
    assert all(torch.equal(found, torch.tensor(expected)) for found in matrices_of(model))


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32, torch.float64])
@pytest.mark.parametrize("share", [0, 0.1, 1 / 3, 0.5, 0.9, 0.999, 1])
def test_the_count_is_exact_in_every_number_format(dtype, share):
    torch.manual_seed(0)
    model = make_model(torch.randn(17, 23).tolist(), torch.randn(9, 31).tolist(), dtype=dtype)
    assert not any((w == 0).any() for w in matrices_of(model))
    by_rows = copy.deepcopy(model)
    count = round(share * (17 * 23 + 9 * 31))
    assert prune(model, share) == count
    assert sum(int((w == 0).sum()) for w in matrices_of(model)) == count
    counts = [round(share * 17 * 23), round(share * 9 * 31)]
    assert prune(by_rows, share, ranking="row") == sum(counts)
    assert [int((w == 0).sum()) for w in matrices_of(by_rows)] == counts


def test_magnitudes_of_different_formats_are_compared_exactly():
    model = make_model([[1.0, 3.0]], [[1.0, 2.0]], dtype=torch.float64)
    with torch.no_grad():
        model.blocks[0].weight[0, 0] += 1e-12  # equal in float32, not here
    model.blocks[1].to(torch.float32)
    prune(model, 0.25)
    assert [float(w[0, 0]) for w in matrices_of(model)] == [1 + 1e-12, 0]


def test_global_ranking_takes_from_small_matrices_and_matrix_ranking_from_each():
    small, large = [[0.1, 0.2, 0.3, 0.4]], [[1.0, 2.0, 3.0, 4.0]]
    together, each = make_model(small, large), make_model(small, large)
    assert prune(together, 0.5, ranking="global") == prune(each, 0.5, ranking="matrix") == 4
    assert [int((w == 0).sum()) for w in matrices_of(together)] == [4, 0]
    assert [int((w == 0).sum()) for w in matrices_of(each)] == [2, 2]


def test_of_many_equal_entries_of_a_row_the_first_are_removed():
    model = make_model([[1.0] * 1000, [-1.0] * 1000])
    prune(model, 0.3, ranking="row")
    (weight,) = matrices_of(model)
    assert not weight[:, :300].any()
    assert weight[:, 300:].all()


def test_where_more_is_zero_already_nothing_changes():
    model = make_model([[0.0, -0.0, 0.0, 0.1]])
    assert prune(model, 0.25) == 3
    assert torch.equal(matrices_of(model)[0], torch.tensor([[0.0, 0.0, 0.0, 0.1]]))


@pytest.mark.parametrize("ranking", ["global", "matrix", "row"])
def test_pruning_in_two_steps_is_pruning_once(ranking):
    torch.manual_seed(1)
    once, twice = (make_model(w, w) for w in [torch.randn(20, 20).round(decimals=1).tolist()] * 2)
    prune(once, 0.81, ranking=ranking)
    for share in (0.3, 0.502, 0.523, 0.81):
        prune(twice, share, ranking=ranking)
    assert all(map(torch.equal, matrices_of(once), matrices_of(twice)))


def test_transposed_weights_are_pruned_at_the_right_places():
    model = make_model([[1.0, 2.0], [3.0, 4.0], [5.0, 6.0]])
    model.blocks[0].weight = nn.Parameter(torch.tensor([[1.0, 4.0, 5.0], [2.0, 3.0, 6.0]]).t())
    prune(model, 0.5)
    assert model.blocks[0].weight.tolist() == [[0, 0], [4, 0], [5, 6]]


def test_the_optimizer_takes_pruned_weights_for_what_they_are():
    model = make_model([[0.1, 0.2, 0.3, 0.4]])
    optimizer = mm.MirrorDescent(model.blocks[0].parameters(), lr=0.01, p=1.1)
    weight, bias = model.blocks[0].weight, model.blocks[0].bias
    weight.grad, bias.grad = torch.full((1, 4), 0.1), torch.zeros(1)
    optimizer.step()
    prune(model, 0.5)
    kept = weight.detach().clone()
    weight.grad.zero_()
    optimizer.step()
    assert same_bits(weight.detach(), kept)
    assert weight[0, :2].tolist() == [0, 0]


@pytest.mark.parametrize("share", [-0.1, 1.1, math.nan, math.inf])
def test_a_share_outside_0_to_1_is_refused(share):
    with pytest.raises(
        TrainingError, match=r"share is .*: give a number of at least 0 and at most 1"
    ):
        prune(make_model([[1.0]]), share)


def test_an_unknown_ranking_is_refused():
    with pytest.raises(TrainingError, match="ranking is 'layer': give one of global, matrix, row"):
        prune(make_model([[1.0]]), 0.5, ranking="layer")


def test_nan_is_refused_before_anything_is_pruned():
    model = make_model([[1.0, 2.0]], [[math.nan, 1.0]])
    with pytest.raises(TrainingError, match=r"blocks\.1\.weight holds nan"):
        prune(model, 0.5, ranking="matrix")
    assert model.blocks[0].weight.tolist() == [[1, 2]]


def test_a_curve_prunes_the_given_model_for_each_share():
    torch.manual_seed(2)
    model = make_model(torch.randn(10, 10).tolist())
    seen = pruning_curve(
        model, lambda m: float((m.blocks[0].weight == 0).sum()), [0.9, 0.0, 0.5, 0.07]
    )
    assert seen == [90, 0, 50, 7]
    assert not (model.blocks[0].weight == 0).any()


def test_a_curve_passes_matrices_and_ranking_on():
    model = make_model([[0.1, 0.2]], [[1.0, 2.0]])

    def zeros(m):
        return sum(float((b.weight == 0).sum()) * 10**k for k, b in enumerate(m.blocks))

    assert pruning_curve(model, zeros, [0.5], "blocks", "global") == [2]
    assert pruning_curve(model, zeros, [0.5], "blocks", "matrix") == [11]
    assert pruning_curve(model, zeros, [0.5], r"blocks\.1", "global") == [10]


@pytest.mark.parametrize("error", [ValueError, KeyboardInterrupt, None])
def test_weights_come_back_bit_for_bit(error):
    model = make_model([[0.1, -0.0, 1e-42, 2.0]], [[0.3, 5.0]])
    before = matrices_of(model)

    def evaluate(m):
        with torch.no_grad():
            m.blocks[1].weight.mul_(2)
        if error is not None:
            raise error("stop")
        return 0.0

    if error is None:
        pruning_curve(model, evaluate, [0.5, 0.9])
    else:
        with pytest.raises(error, match="stop"):
            pruning_curve(model, evaluate, [0.5])
    assert all(map(same_bits, before, matrices_of(model)))


def test_a_wrong_share_is_refused_before_anything_is_evaluated():
    calls = []
    with pytest.raises(TrainingError, match=r"share is 1\.5"):
        pruning_curve(make_model([[1.0]]), lambda m: calls.append(m) or 0.0, [0.5, 1.5])
    with pytest.raises(TrainingError, match="ranking"):
        pruning_curve(make_model([[1.0]]), lambda m: calls.append(m) or 0.0, [0.5], ranking="x")
    assert calls == []
