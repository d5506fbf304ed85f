"""Files of pruned models: dense or sparse, what comes back, and what is refused."""

import json
import os
import random

import pytest
import torch
from block_models import make_model
from hypothesis import given
from hypothesis import strategies as st
from safetensors import safe_open
from safetensors.torch import load_file, save_file

from mirrormargin.errors import ModelError, RunError, TrainingError
from mirrormargin.training.pruning import prune
from mirrormargin.training.tensor_files import (
    load_pruned,
    measure_file_sizes,
    save_pruned,
    to_torch_sparse,
)


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
