"""Weights and checkpoints: what is read is what was written, or an error."""

import random

import pytest
import torch
from safetensors.torch import save_file

from mirrormargin.errors import TrainingError
from mirrormargin.training.tensor_files import read_document, read_tensors, write_tensors

TENSORS = {
    "weight": torch.linspace(-1, 1, 30).reshape(5, 6),
    "half": torch.ones(3, dtype=torch.bfloat16),
    "steps": torch.tensor(7),
    "mask": torch.tensor([True, False]),
    "none": torch.empty(0, 4),
}
DOCUMENT = {"position": {"step": 7}, "names": ["ä", "b"]}


@pytest.fixture
def path(tmp_path):
    write_tensors(tmp_path / "file", TENSORS, DOCUMENT)
    return tmp_path / "file"


def test_all_types_and_shapes_come_back(path):
    tensors, document = read_tensors(path)
    assert document == DOCUMENT == read_document(path)
    assert tensors.keys() == TENSORS.keys()
    for name, tensor in TENSORS.items():
        assert tensors[name].dtype == tensor.dtype
        assert torch.equal(tensors[name], tensor)


def test_every_flipped_bit_is_noticed_or_harmless(path):
    whole, refused = path.read_bytes(), 0
    for bit in random.Random(1).sample(range(8 * len(whole)), 600):
        damaged = bytearray(whole)
        damaged[bit // 8] ^= 1 << bit % 8
        path.write_bytes(damaged)
        try:
            tensors, document = read_tensors(path)
        except TrainingError:
            refused += 1
            continue
        assert document == DOCUMENT
        assert all(torch.equal(tensors[name], TENSORS[name]) for name in TENSORS)
    assert refused > 500


def test_a_file_that_was_cut_off_is_refused(path):
    whole = path.read_bytes()
    for size in random.Random(0).sample(range(len(whole)), 60):
        path.write_bytes(whole[:size])
        with pytest.raises(TrainingError, match="damaged"):
            read_tensors(path)


def test_a_file_of_an_earlier_version_is_read_with_a_notice(tmp_path):
    save_file({"w": torch.ones(2)}, tmp_path / "old", {"document": "[1]"})
    with pytest.warns(UserWarning, match="has no checksum"):
        tensors, document = read_tensors(tmp_path / "old")
    assert document == [1]
    assert torch.equal(tensors["w"], torch.ones(2))
