"""Pruning: exact counts, which entries go, weights that come back, and files."""

import json
import math
import os
import random

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from safetensors import safe_open
from safetensors.torch import load_file, save_file
from torch import nn

import mirrormargin as mm
from mirrormargin.errors import ModelError, RunError, TrainingError
from mirrormargin.training.pruning import prune, pruning_curve
from mirrormargin.training.tensor_files import (
    load_pruned,
    measure_file_sizes,
    save_pruned,
    to_torch_sparse,
)


def make_model(*matrices, dtype=torch.float32):
    """A model with these matrices, each in a block."""
    model = nn.Module()
    blocks = []
    for matrix in matrices:
        rows = torch.tensor(matrix, dtype=dtype)
        block = nn.Linear(rows.shape[1], rows.shape[0])
        block.weight = nn.Parameter(rows)
        blocks.append(block)
    model.blocks = nn.ModuleList(blocks)
    model.head = nn.Linear(2, 2)
    return model


def matrices_of(model):
    return [block.weight.detach().clone() for block in model.blocks]


def same_bits(a, b):
    return a.dtype is b.dtype and torch.equal(a.view(torch.uint8), b.view(torch.uint8))


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


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32, torch.float64])
@pytest.mark.parametrize("share", [0, 0.1, 1 / 3, 0.5, 0.9, 0.999, 1])
def test_the_count_is_exact_in_every_number_format(dtype, share):
    torch.manual_seed(0)
    model = make_model(torch.randn(17, 23).tolist(), torch.randn(9, 31).tolist(), dtype=dtype)
    assert not any((w == 0).any() for w in matrices_of(model))
    count = round(share * (17 * 23 + 9 * 31))
    assert prune(model, share) == count
    assert sum(int((w == 0).sum()) for w in matrices_of(model)) == count


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


def test_where_more_is_zero_already_nothing_changes():
    model = make_model([[0.0, -0.0, 0.0, 0.1]])
    assert prune(model, 0.25) == 3
    assert torch.equal(matrices_of(model)[0], torch.tensor([[0.0, 0.0, 0.0, 0.1]]))


def test_pruning_in_two_steps_is_pruning_once():
    torch.manual_seed(1)
    once, twice = (make_model(w, w) for w in [torch.randn(20, 20).round(decimals=1).tolist()] * 2)
    prune(once, 0.8)
    for share in (0.3, 0.5, 0.8):
        prune(twice, share)
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
    with pytest.raises(TrainingError, match="ranking is 'layer': give one of global, matrix"):
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


def random_state(seed=0):
    torch.manual_seed(seed)

    def sparse(*shape, share, dtype=torch.float32):
        return (torch.randn(*shape) * (torch.rand(*shape) > share)).to(dtype) + 0.0

    return {
        "narrow": sparse(30, 200, share=0.9),
        "wide": sparse(7, 300, share=0.9),
        "dense": torch.randn(20, 20),
        "half": sparse(40, 40, share=0.9, dtype=torch.bfloat16),
        "double": sparse(40, 40, share=0.9, dtype=torch.float64),
        "transposed": sparse(30, 50, share=0.9).t(),
        "zero": torch.zeros(60, 60),
        "empty": torch.zeros(0, 5),
        "no columns": torch.zeros(5, 0),
        "bias": torch.zeros(100),
        "count": torch.tensor(3),
        "ids": torch.zeros(1, 512, dtype=torch.int64),
    }


@pytest.mark.parametrize("format", ["safetensors", "sparse"])
def test_every_tensor_comes_back_from_a_file(tmp_path, format):
    state = random_state()
    size = save_pruned(state, tmp_path / "model", format)
    assert size == (tmp_path / "model").stat().st_size
    back = load_pruned(str(tmp_path / "model"))
    assert back.keys() == state.keys()
    for name, tensor in state.items():
        assert back[name].dtype is tensor.dtype, name
        assert torch.equal(back[name], tensor), name


@given(st.integers(0, 8), st.integers(0, 300), st.floats(0, 1), st.integers(0, 1000))
def test_any_matrix_comes_back_from_a_sparse_file(tmp_path_factory, height, width, share, seed):
    generator = torch.Generator().manual_seed(seed)
    w = torch.randn(height, width, generator=generator)
    w = w * (torch.rand(height, width, generator=generator) >= share)
    path = tmp_path_factory.getbasetemp() / "any.safetensors"
    save_pruned({"w": w}, path, "sparse")
    assert torch.equal(load_pruned(path)["w"], w)


def test_a_pruned_model_loads_into_another(tmp_path):
    torch.manual_seed(3)
    one, two = (make_model(torch.randn(40, 40).tolist()) for _ in range(2))
    prune(one, 0.9)
    save_pruned(one.state_dict(), tmp_path / "model", "sparse")
    two.load_state_dict(load_pruned(tmp_path / "model"))
    assert all(torch.equal(a, b) for a, b in zip(one.parameters(), two.parameters(), strict=True))


def test_indices_take_the_smallest_type_that_fits(tmp_path):
    state = {f"{n}": torch.zeros(3, n) for n in (256, 257, 65536, 65537)}
    for tensor in state.values():
        tensor[1, -1] = 2.0
    save_pruned(state, tmp_path / "model", "sparse")
    with safe_open(tmp_path / "model", framework="pt") as file:
        types = [file.get_tensor(f"{name}:columns").dtype for name in state]
        assert json.loads(file.metadata()["shapes"]) == {n: list(t.shape) for n, t in state.items()}
        assert "row by row" in file.metadata()["description"]
    assert types == [torch.uint8, torch.uint16, torch.uint16, torch.uint32]
    assert all(torch.equal(load_pruned(tmp_path / "model")[n], t) for n, t in state.items())


def test_only_matrices_that_get_smaller_are_stored_sparse(tmp_path):
    save_pruned(random_state(), tmp_path / "model", "sparse")
    with safe_open(tmp_path / "model", framework="pt") as file:
        sparse = json.loads(file.metadata()["shapes"])
    assert set(sparse) == {"narrow", "wide", "half", "double", "transposed", "zero"}


def test_sizes_are_those_of_the_files_and_of_the_formula(tmp_path):
    model = make_model(torch.randn(400, 400).tolist())
    prune(model, 0.9)
    state = {"w": model.blocks[0].weight}
    sizes = measure_file_sizes(state)
    assert sizes.dense == save_pruned(state, tmp_path / "dense")
    assert sizes.sparse == save_pruned(state, tmp_path / "sparse", "sparse")
    assert 0 < sizes.dense - 4 * 400 * 400 < 1000  # bytes of the header
    assert 0 < sizes.sparse - ((4 + 2) * 16000 + 2 * 401) < 1000  # 16,000 entries are left


def test_other_tools_read_the_dense_file(tmp_path):
    state = random_state()
    save_pruned(state, tmp_path / "model.safetensors")
    back = load_file(tmp_path / "model.safetensors")
    assert all(torch.equal(back[name], tensor) for name, tensor in state.items())
    with safe_open(tmp_path / "model.safetensors", framework="pt") as file:
        assert file.metadata()["format"] == "pt"


@pytest.mark.parametrize("format", ["safetensors", "sparse"])
def test_tied_weights_are_written_under_both_names(tmp_path, format):
    w = torch.randn(4, 4)
    save_pruned({"a": w, "b": w, "c": w[:2]}, tmp_path / "model", format)
    back = load_pruned(tmp_path / "model")
    assert all(torch.equal(back[name], t) for name, t in {"a": w, "b": w, "c": w[:2]}.items())


def test_a_write_that_fails_leaves_the_old_file(tmp_path, monkeypatch):
    path = tmp_path / "model"
    save_pruned({"w": torch.ones(2, 2)}, path)

    def refuse(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "replace", refuse)
    with pytest.raises(RunError, match="No space left"):
        save_pruned({"w": torch.zeros(2, 2)}, path, "sparse")
    monkeypatch.undo()
    assert torch.equal(load_pruned(path)["w"], torch.ones(2, 2))
    assert [file.name for file in tmp_path.iterdir()] == ["model"]


def test_an_unknown_format_is_refused(tmp_path):
    with pytest.raises(TrainingError, match="format is 'npz': give one of safetensors, sparse"):
        save_pruned({"w": torch.ones(2, 2)}, tmp_path / "model", "npz")
    assert list(tmp_path.iterdir()) == []


def test_names_that_collide_with_parts_are_refused(tmp_path):
    with pytest.raises(TrainingError, match="rename it"):
        save_pruned({"w": torch.zeros(9, 9), "w:rows": torch.ones(3)}, tmp_path / "m", "sparse")


def test_files_that_are_absent_or_cut_are_refused(tmp_path):
    with pytest.raises(ModelError, match="nowhere cannot be read"):
        load_pruned(tmp_path / "nowhere")
    path = tmp_path / "model"
    save_pruned(random_state(), path, "sparse")
    path.write_bytes(path.read_bytes()[:-100])
    with pytest.raises(ModelError, match="model cannot be read"):
        load_pruned(path)


@pytest.mark.parametrize(
    "change",
    [
        lambda parts: parts.pop("w:rows"),
        lambda parts: parts.update({"w:columns": parts["w:columns"] + 9}),
        lambda parts: parts.update({"w:columns": parts["w:columns"][:-1]}),
        lambda parts: parts.update({"w:values": parts["w:values"][:-1]}),
        lambda parts: parts.update({"w:rows": parts["w:rows"][:-1]}),
        lambda parts: parts.update({"w:rows": parts["w:rows"].flip(0)}),
        lambda parts: parts.update({"w:rows": torch.tensor([0, 3, 1, 2, 2])}),
        lambda parts: parts.update({"w:rows": torch.tensor([1, 1, 2, 3, 3])}),
        lambda parts: parts.update({"w:rows": torch.tensor([0, 1, 2])}),
    ],
)
def test_parts_that_do_not_fit_together_are_refused(tmp_path, change):
    path = tmp_path / "model"
    w = torch.zeros(4, 9)
    w[0, 8] = w[2, 1] = 1
    save_pruned({"w": w}, path, "sparse")
    with safe_open(path, framework="pt") as file:
        parts, metadata = load_file(path), file.metadata()
    change(parts)
    # As if somebody else had written it: no checksum says what is wrong.
    texts = {key: text for key, text in metadata.items() if not key.startswith("checksum")}
    save_file(parts, path, texts)
    with pytest.raises(ModelError, match="damaged, its matrices do not fit together"):
        load_pruned(path)


def test_torch_sparse_matrices_multiply_like_the_dense_ones():
    state = random_state()
    converted = to_torch_sparse(state)
    changed = {name for name, tensor in converted.items() if tensor.layout is torch.sparse_csr}
    assert {"narrow", "wide", "double", "transposed", "zero"} <= changed
    assert not changed & {"dense", "bias", "count", "ids"}
    for name in changed:
        assert torch.equal(converted[name].to_dense(), state[name]), name
    x = torch.randn(200, 3)
    torch.testing.assert_close(converted["narrow"] @ x, state["narrow"] @ x)
    assert converted["dense"] is state["dense"]


def test_the_share_of_zeros_decides_what_becomes_torch_sparse():
    state = {"w": torch.tensor([[0.0, 0.0, 1.0, 2.0]])}
    assert to_torch_sparse(state, 0.5)["w"].layout is torch.sparse_csr
    assert to_torch_sparse(state, 0.51)["w"].layout is torch.strided
    with pytest.raises(
        TrainingError, match="min_zeros is 2: give a number of at least 0 and at most 1"
    ):
        to_torch_sparse(state, 2)


def test_torch_sparse_tensors_are_not_written(tmp_path):
    state = to_torch_sparse({"w": torch.zeros(3, 3)})
    with pytest.raises(TrainingError, match="give it dense"):
        save_pruned(state, tmp_path / "model")


@pytest.mark.parametrize("format", ["safetensors", "sparse"])
def test_no_changed_bit_gives_another_model(tmp_path, format):
    """Whatever bit flips: the same tensors, or an error."""
    path = tmp_path / "model"
    torch.manual_seed(0)
    w = torch.randn(6, 9)
    w[w.abs() < 1] = 0
    save_pruned({"w": w, "b": torch.randn(4).bfloat16()}, path, format)
    whole, right = path.read_bytes(), load_pruned(path)
    refused = 0
    for bit in random.Random(1).sample(range(8 * len(whole)), 400):
        damaged = bytearray(whole)
        damaged[bit // 8] ^= 1 << bit % 8
        path.write_bytes(damaged)
        try:
            found = load_pruned(path)
        except ModelError:
            refused += 1
            continue
        assert found.keys() == right.keys()
        assert all(torch.equal(found[name], right[name]) for name in right), bit
    assert refused > 330


def test_equal_tensors_are_equal_files(tmp_path):
    for number in range(4):
        save_pruned({"w": torch.ones(3, 3)}, tmp_path / str(number))
    assert len({(tmp_path / str(number)).read_bytes() for number in range(4)}) == 1
