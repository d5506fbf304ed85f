"""Published models, from files of their layout that the tests write with stand-in modules."""

import pickle
import sys
import types

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn import functional

from mirrormargin.errors import ModelError
from mirrormargin.training.authors_models import read_authors_model

WIDTH, LAYERS, HEADS, VOCABULARY, LENGTH = 12, 2, 2, 40, 16


def build_module(seed=0):
    """The published layout: module and attribute names, shapes and the function they compute."""
    tools, source = types.ModuleType("tools"), types.ModuleType("tools.sent_analysis_model")
    for name in ("TransformerClassifier", "Block", "SelfAttention", "FeedForward", "LayerNorm"):
        layer = type(name, (nn.Module,), {"__module__": "tools.sent_analysis_model"})
        setattr(source, name, layer)
    tools.sent_analysis_model = source
    torch.manual_seed(seed)

    def make(name, **parts):
        module = getattr(source, name)()
        for key, value in parts.items():
            setattr(module, key, value)
        return module

    def linear(inside, outside):
        return nn.Linear(inside, outside, bias=False)

    def norm():
        weight = nn.Parameter(1 + 0.1 * torch.randn(WIDTH))
        return make("LayerNorm", weight=weight, bias=None)

    def block():
        attention = make(
            "SelfAttention",
            attn_matrix=linear(WIDTH, 3 * WIDTH),
            linear=linear(WIDTH, WIDTH),
            resid_dropout=nn.Dropout(0.2),
            n_head=HEADS,
            n_embd=WIDTH,
            dropout=0.2,
        )
        mlp = make(
            "FeedForward",
            lin1=linear(WIDTH, 4 * WIDTH),
            gelu=nn.GELU(),
            lin2=linear(4 * WIDTH, WIDTH),
            dropout=nn.Dropout(0.2),
        )
        return make("Block", ln1=norm(), attn=attention, ln2=norm(), mlp=mlp)

    model = make(
        "TransformerClassifier",
        emb_static=nn.Embedding(VOCABULARY, WIDTH),
        emb_pos=nn.Embedding(LENGTH, WIDTH),
        blocks=nn.Sequential(*(block() for _ in range(LAYERS))),
        lin=linear(WIDTH, 1),
    )
    return model, {"tools": tools, "tools.sent_analysis_model": source}


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
def published(tmp_path, monkeypatch):
    model, modules = build_module()
    for name, module in modules.items():
        monkeypatch.setitem(sys.modules, name, module)
    curves = {name: torch.linspace(0.5, 0.9, 4) for name in ("train_loss", "train_acc")}
    curves |= {name: torch.linspace(0.6, 0.8, 4) for name in ("test_loss", "test_acc")}
    path = tmp_path / "1.pt"
    torch.save({"model": model, **curves}, path)
    for name in modules:  # whoever reads the file does not have their code
        monkeypatch.delitem(sys.modules, name)
    return model, path


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
