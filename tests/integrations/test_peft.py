"""Deltas as SHiRA adapters: the real peft loads what is written, and computes the same."""

import copy
import json
import random
import warnings

import pytest
import torch
from safetensors.torch import load_file, save_file

import mirrormargin as mm
from mirrormargin.integrations.peft import from_shira, to_shira

peft = pytest.importorskip("peft", reason="peft is not installed: pip install '.[huggingface]'")
transformers = pytest.importorskip("transformers")

IDS = torch.randint(0, 50, (6, 11), generator=torch.Generator().manual_seed(0))
HEAD = ["classifier.*"]


def make_bert(seed=0):
    torch.manual_seed(seed)
    config = transformers.BertConfig(
        vocab_size=50, hidden_size=24, num_hidden_layers=2, num_attention_heads=2,
        intermediate_size=40, max_position_embeddings=16, num_labels=3,
    )  # fmt: skip
    return transformers.BertForSequenceClassification(config).eval()


def fine_tune(base, *, only_linear=True, seed=1):
    torch.manual_seed(seed)
    model = copy.deepcopy(base)
    linear = [name for name, one in model.named_modules() if isinstance(one, torch.nn.Linear)]
    with torch.no_grad():
        for name, weight in model.named_parameters():
            layer, _, last = name.rpartition(".")
            is_linear = last == "weight" and layer in linear
            if is_linear or not only_linear or layer == "classifier":
                weight.add_(0.1 * torch.randn_like(weight) ** 3)
    return model


@torch.no_grad()
def answer(model):
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="Sparse invariant checks")
        return model(IDS).logits


def load(folder, base):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return peft.PeftModel.from_pretrained(copy.deepcopy(base), folder).eval()


@pytest.mark.parametrize(
    "options",
    [{"keep": 150}, {"keep": 1}, {"keep": 30, "scope": "tensor"}, {"share": 0.2}],
    ids=["150 of all", "one", "30 of each", "a fifth"],
)
def test_peft_computes_what_the_delta_computes(tmp_path, options):
    base = make_bert()
    delta = mm.SparseDelta.extract(fine_tune(base), base, whole=HEAD, **options)
    r = to_shira(delta, tmp_path, base)
    adapted = load(tmp_path, base)
    before = answer(base)
    delta.apply(base)
    assert (answer(base) - before).abs().max() > 1e-3
    torch.testing.assert_close(answer(adapted), answer(base), rtol=0.0, atol=1e-6)
    assert json.loads((tmp_path / "adapter_config.json").read_text())["r"] == r


def test_a_delta_comes_back_from_its_adapter(tmp_path):
    base = make_bert()
    delta = mm.SparseDelta.extract(fine_tune(base), base, keep=150, whole=HEAD)
    to_shira(delta, tmp_path / "new" / "folder", base)
    back = from_shira(tmp_path / "new" / "folder", base)
    assert back.positions.tolist() == delta.positions.tolist()
    assert torch.equal(back.values, delta.values)
    assert back.whole.keys() == delta.whole.keys()
    assert set(back.space.digests) == set(delta.space.digests)
    assert (back + delta).num_values == 150
    half = from_shira(tmp_path / "new" / "folder", base.state_dict(), values=torch.float16)
    assert half.codes.dtype == torch.float16


def test_an_adapter_of_peft_is_a_delta(tmp_path):
    base = make_bert()
    config = peft.ShiraConfig(
        r=2, target_modules=["query", "value"], modules_to_save=["classifier"]
    )
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        adapted = peft.get_peft_model(copy.deepcopy(base), config).eval()
    with torch.no_grad():
        for name, weight in adapted.named_parameters():
            if "shira_weight" in name or "modules_to_save" in name:
                weight.normal_()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        adapted.save_pretrained(tmp_path)
    delta = from_shira(tmp_path, base)
    assert delta.num_values == 4 * 2 * 48
    delta.apply(base)
    torch.testing.assert_close(answer(base), answer(adapted), rtol=0.0, atol=1e-6)


def test_what_shira_cannot_hold_is_refused_with_a_remedy(tmp_path):
    base = make_bert()

    def refuse(match, **options):
        model = fine_tune(base, only_linear=options.pop("only_linear", True))
        delta = mm.SparseDelta.extract(model, base, **options)
        with pytest.raises(mm.DeltaError, match=match):
            to_shira(delta, tmp_path / "refused", base)
        assert not (tmp_path / "refused").exists()

    refuse("linear layers alone: extract it with whole=", share=1.0, only_linear=False)
    refuse("stored whole and .*a part", keep=9, whole=["classifier.weight"])
    refuse("keep fewer", share=1.0, whole=HEAD)
    refuse("no difference in a linear layer", keep=0, whole=HEAD)


def test_adapters_that_are_none_are_refused(tmp_path):
    base = make_bert()
    with pytest.raises(mm.DeltaError, match="holds no adapter"):
        from_shira(tmp_path, base)
    (tmp_path / "adapter_config.json").write_text('{"peft_type": "LORA"}')
    with pytest.raises(mm.DeltaError, match="of type 'LORA'"):
        from_shira(tmp_path, base)
    (tmp_path / "adapter_config.json").write_text('{"peft_type": "SHIRA"}')
    with pytest.raises(mm.DeltaError, match="does not exist"):
        from_shira(tmp_path, base)


QUERY = "base_model.model.bert.encoder.layer.0.attention.self.query.shira_"


@pytest.mark.parametrize(
    "change",
    [
        lambda one: one.pop(f"{QUERY}indices"),
        lambda one: one[f"{QUERY}indices"].fill_(24),
        lambda one: one[f"{QUERY}indices"].fill_(-1),
        lambda one: one[f"{QUERY}indices"].fill_(3),
        lambda one: one[f"{QUERY}weight"].fill_(float("nan")),
        lambda one: one.update({f"{QUERY}weight": torch.ones(3)}),
        lambda one: one.update({"base_model.model.more.shira_weight": torch.ones(3)}),
        lambda one: one.update({"base_model.model.more.weight": torch.ones(3)}),
    ],
)
def test_damaged_adapters_are_refused(tmp_path, change):
    base = make_bert()
    delta = mm.SparseDelta.extract(fine_tune(base), base, keep=300, whole=HEAD)
    to_shira(delta, tmp_path, base)
    tensors = load_file(tmp_path / "adapter_model.safetensors")
    change(tensors)
    save_file(tensors, tmp_path / "adapter_model.safetensors")
    with pytest.raises(mm.DeltaError, match="is damaged"):
        from_shira(tmp_path, base)


def test_flipped_bits_and_cut_files_end_in_our_error_or_in_a_delta(tmp_path):
    """An adapter has no checksum: damage to a value is not seen, but nothing else breaks."""
    base = make_bert()
    delta = mm.SparseDelta.extract(fine_tune(base), base, keep=300, whole=HEAD)
    to_shira(delta, tmp_path, base)
    path, generator = tmp_path / "adapter_model.safetensors", random.Random(2)
    whole = path.read_bytes()
    for number in range(120):
        damaged = bytearray(whole)
        if number % 2:
            del damaged[generator.randrange(len(whole)) :]
        else:
            bit = generator.randrange(8 * len(whole) if number % 4 else 8 * 4000)
            damaged[bit // 8] ^= 1 << bit % 8
        path.write_bytes(damaged)
        try:
            from_shira(tmp_path, base)
        except mm.DeltaError as error:
            said = str(error)
        else:
            said = ""
        assert "\n" not in said
