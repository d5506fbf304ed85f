"""Published models, from files of their layout that the tests write."""

import pickle

import numpy as np
import pytest
import torch
from published_models import write_published
from torch import nn
from torch.nn import functional

from mirrormargin.errors import ModelError
from mirrormargin.training.authors_models import read_authors_model

WIDTH, HEADS, VOCABULARY = 12, 2, 40


def compute(model, ids):
    """The published function, written out: logits and the last block's attention."""
    x = model.emb_static(ids) + model.emb_pos.weight[: ids.shape[1]]
    mask = (ids != 0)[:, None, None, :]
    for block in model.blocks:
        q, k, v = (
            part.unflatten(-1, (HEADS, -1)).transpose(1, 2)
            for part in block.attn.attn_matrix(x).split(WIDTH, dim=2)
        )
        logits = q @ k.mT / (WIDTH / HEADS) ** 0.5
        maps = logits.masked_fill(~mask, -torch.inf).softmax(-1)
        mixed = block.attn.linear((maps @ v).transpose(1, 2).flatten(2))
        x = functional.layer_norm(x + mixed, (WIDTH,), block.ln1.weight)
        hidden = block.mlp.lin2(functional.gelu(block.mlp.lin1(x)))
        x = functional.layer_norm(x + hidden, (WIDTH,), block.ln2.weight)
    return model.lin(x[:, 0])[:, 0], maps


@pytest.fixture
def published(tmp_path):
    path = tmp_path / "1.pt"
    return write_published(path, width=WIDTH, heads=HEADS, vocab_size=VOCABULARY), path


def test_the_models_compute_the_same(published):
    theirs, path = published
    ours = read_authors_model(path, num_heads=HEADS)
    ids = torch.randint(1, VOCABULARY, (5, 9))
    ids[1, 6:] = 0
    with torch.no_grad():
        expected, maps = compute(theirs, ids)
        torch.testing.assert_close(ours.model(ids), expected, rtol=1e-5, atol=1e-6)
        torch.testing.assert_close(ours.model.attention(ids)[:, -1], maps, rtol=1e-5, atol=1e-6)
    assert ours.test_acc == pytest.approx(np.linspace(0.6, 0.8, 4), abs=1e-6)


def test_nothing_that_the_file_names_is_run(published, tmp_path):
    class Evil:
        def __reduce__(self):
            return (open, (str(tmp_path / "touched"), "w"))

    path = tmp_path / "evil.pt"
    torch.save({"model": Evil()}, path)
    with pytest.raises(ModelError, match=r"nothing of it was run"):
        read_authors_model(path)
    assert not (tmp_path / "touched").exists()


@pytest.mark.parametrize(
    ("write", "message"),
    [
        (lambda path: path.write_bytes(b"not a model"), "is damaged"),
        (lambda path: torch.save({"weights": torch.ones(2)}, path), "has no model with the curves"),
        (lambda path: path.write_bytes(pickle.dumps([1])), "paper A"),
        (lambda path: None, "cannot read"),
    ],
)
def test_other_files_are_refused(tmp_path, write, message):
    path = tmp_path / "file.pt"
    write(path)
    with pytest.raises(ModelError, match=message):
        read_authors_model(path)


def test_a_truncated_file_is_refused(published):
    _, path = published
    path.write_bytes(path.read_bytes()[:-2000])
    with pytest.raises(ModelError, match="is damaged"):
        read_authors_model(path)


def test_a_state_dict_of_another_model_names_its_tensors(tmp_path):
    curves = {name: torch.ones(2) for name in ("train_loss", "train_acc", "test_loss", "test_acc")}
    path = tmp_path / "other.pt"
    torch.save({"model": nn.Linear(2, 2).state_dict(), **curves}, path)
    with pytest.raises(ModelError, match=r"not a model of paper A's layout .*bias, weight"):
        read_authors_model(path)
