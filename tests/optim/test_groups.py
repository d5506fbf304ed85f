"""Groups that are safe for any model: what takes p, what p = 2, and that both then learn."""

from __future__ import annotations

import warnings

import pytest
import torch
from torch import nn

import mirrormargin as mm


def find_exponents(model: nn.Module, **options) -> dict[str, float]:
    groups = mm.mirror_groups(model, 1.1, **options)
    return {name: group["p"] for group in groups for name, _ in group["params"]}


def list_mirrored(model: nn.Module, **options) -> set[str]:
    return {name for name, p in find_exponents(model, **options).items() if p == 1.1}


def make_encoder() -> nn.Module:
    layer = nn.TransformerEncoderLayer(8, 2, 16, batch_first=True)
    return nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)


def make_bert() -> nn.Module:
    transformers = pytest.importorskip("transformers")
    config = transformers.BertConfig(
        vocab_size=50,
        hidden_size=8,
        num_hidden_layers=2,
        num_attention_heads=2,
        intermediate_size=16,
        max_position_embeddings=12,
    )
    return transformers.BertForMaskedLM(config)


def make_gpt2() -> nn.Module:
    transformers = pytest.importorskip("transformers")
    config = transformers.GPT2Config(vocab_size=50, n_positions=12, n_embd=8, n_layer=2, n_head=2)
    return transformers.GPT2LMHeadModel(config)


def find_loss(model: nn.Module) -> torch.Tensor:
    if isinstance(model, nn.TransformerEncoder):
        return model(torch.ones(2, 3, 8).cumsum(dim=1)).square().mean()
    words = torch.arange(20).reshape(2, 10)
    return model(input_ids=words, labels=words).loss


def test_the_matrices_of_a_torch_encoder_take_p_fused_projections_too():
    model = make_encoder()
    exponents = find_exponents(model)
    assert exponents.keys() == dict(model.named_parameters()).keys()
    for name, p in exponents.items():
        is_matrix = name.endswith("weight") and "norm" not in name
        assert p == (1.1 if is_matrix else 2.0), name


def test_of_bert_the_layers_take_p_but_not_embeddings_norms_biases_and_shared_weights():
    mirrored = list_mirrored(make_bert())
    assert len(mirrored) == 2 * 6 + 1  # query, key, value, output, two of the MLP; the head
    assert all(name.endswith("weight") for name in mirrored)
    assert not any("embeddings" in name or "LayerNorm" in name for name in mirrored)


def test_of_gpt2_the_transposed_linear_layers_take_p():
    mirrored = list_mirrored(make_gpt2())
    assert len(mirrored) == 2 * 4
    assert "transformer.h.0.attn.c_attn.weight" in mirrored
    assert "transformer.wte.weight" not in mirrored  # the head shares it


@pytest.mark.parametrize("make", [make_encoder, make_bert, make_gpt2])
@pytest.mark.parametrize("optimizer", ["MirrorAdam", "MirrorDescent"])
def test_real_models_train_without_a_warning(make, optimizer):
    torch.manual_seed(0)
    model = make()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        steps = getattr(mm, optimizer)(mm.mirror_groups(model, p=1.1), lr=3e-3)
        first = float(find_loss(model).detach())
        for _ in range(30):
            steps.zero_grad()
            loss = find_loss(model)
            loss.backward()
            steps.step()
    assert float(find_loss(model).detach()) < first
    moved = [name for name, p in model.named_parameters() if steps.state.get(p)]
    assert moved or optimizer == "MirrorDescent"  # which keeps nothing of tensors at p = 2


def test_convolutions_recurrent_layers_and_bilinear_forms_are_matrices():
    model = nn.ModuleDict(
        {"conv": nn.Conv2d(3, 4, 2), "rnn": nn.LSTM(3, 4), "form": nn.Bilinear(2, 3, 4)}
    )
    assert list_mirrored(model) == {
        "conv.weight", "rnn.weight_ih_l0", "rnn.weight_hh_l0", "form.weight",
    }  # fmt: skip


class WithTables(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.words = nn.Embedding(7, 4)
        self.position = nn.Parameter(torch.zeros(1, 5, 4))
        self.classes = nn.Parameter(torch.randn(1, 1, 4))
        self.temperature = nn.Parameter(torch.tensor(1.0))
        self.head = nn.Linear(4, 7)


def test_tables_single_tensors_and_zeros_take_p_2():
    model = WithTables()
    assert list_mirrored(model) == {"head.weight"}
    assert list_mirrored(model, embeddings=True) == {"head.weight", "words.weight"}
    model.head.weight = model.words.weight
    assert list_mirrored(model, embeddings=True) == set()
    nn.init.zeros_(model.head.weight)
    assert "starts at zero" in mm.describe_groups(mm.mirror_groups(model))


def test_patterns_take_tensors_out_of_both_groups_whatever_they_are():
    groups = mm.mirror_groups(
        WithTables(),
        1.2,
        patterns={"position": {"p": 1.5}, "head.*": {"p": 3.0, "lr": 0.1}},
        rest={"weight_decay": 0.0},
        weight_decay=0.1,
        embeddings=True,
    )
    found = [({name for name, _ in group["params"]}, group["p"]) for group in groups]
    assert found == [
        ({"position"}, 1.5),
        ({"head.weight", "head.bias"}, 3.0),
        ({"words.weight"}, 1.2),
        ({"classes", "temperature"}, 2.0),
    ]
    assert [group.get("weight_decay") for group in groups] == [None, None, 0.1, 0.0]


def test_frozen_parameters_are_left_out_and_a_model_without_others_is_refused():
    model = make_encoder()
    for name, param in model.named_parameters():
        param.requires_grad_("linear1.weight" in name)
    assert len(find_exponents(model)) == 2
    model.requires_grad_(False)
    with pytest.raises(mm.OptimizerError, match="no parameter to train"):
        mm.mirror_groups(model)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"p": 1.0}, "p"),
        ({"patterns": {"nothing": {}}}, "matches no parameter"),
        ({"patterns": ["*"]}, "patterns"),
        ({"rest": {"p": 3.0}}, "p and params are set here"),
        ({"embeddings": "yes"}, "embeddings"),
        ({"rest": 3}, "rest"),
    ],
)
def test_arguments_that_cannot_be_meant_are_refused(arguments, message):
    with pytest.raises(mm.OptimizerError, match=message):
        mm.mirror_groups(make_encoder(), **arguments)


def test_a_description_names_what_is_where_and_folds_equal_layers():
    groups = mm.mirror_groups(make_encoder(), lr=1e-3)
    text = mm.describe_groups(groups)
    assert text.splitlines()[0] == "p = 1.1, lr = 0.001: 8 tensors, 1,024 values"
    assert "layers.*.self_attn.in_proj_weight" in text
    assert "norm (4): layers.*.norm1.weight, layers.*.norm2.weight" in text
    optimizer = mm.MirrorAdam(groups)
    assert "layers.*.linear1.weight" in mm.describe_groups(optimizer.param_groups)
    assert "2 tensors" in mm.describe_groups([{"params": [torch.ones(2), torch.ones(3)]}])


def train_lora(make_optimizer) -> float:
    """A low-rank change B A of a fixed matrix, with B = 0 at first, learnt from a teacher."""
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(64, 12, generator=generator)
    target = x @ (torch.randn(12, 2, generator=generator) @ torch.randn(2, 8, generator=generator))
    torch.manual_seed(1)
    model = nn.Sequential(nn.Linear(12, 4, bias=False), nn.Linear(4, 8, bias=False))
    nn.init.zeros_(model[1].weight)
    optimizer = make_optimizer(model)
    for _ in range(300):
        optimizer.zero_grad()
        loss = (model(x) - target).square().mean()
        loss.backward()
        optimizer.step()
    return float(loss.detach())


def test_a_lora_pair_trains_to_adamws_loss():
    own = train_lora(lambda model: mm.MirrorAdam(mm.mirror_groups(model, p=1.1), lr=3e-3))
    adamw = train_lora(lambda m: torch.optim.AdamW(m.parameters(), lr=3e-3, weight_decay=0.0))
    assert own < 1.1 * adamw
    with pytest.warns(mm.MirrorMarginWarning, match="parameter 1 of group 0 starts at 0"):
        stalled = train_lora(lambda m: mm.MirrorAdam(m.parameters(), lr=3e-3, p=1.1))
    assert stalled > 2 * own


def test_a_scale_of_initial_sizes_suits_groups_with_biases_of_zero():
    torch.manual_seed(0)
    model = nn.Linear(4, 3)
    nn.init.zeros_(model.bias)
    optimizer = mm.MirrorAdam(mm.mirror_groups(model, p=1.5), lr=1e-2, scale="rms")
    model(torch.ones(2, 4)).sum().backward()
    optimizer.step()
    torch.testing.assert_close(model.bias.detach(), torch.full((3,), -1e-2))


@pytest.mark.parametrize("make", [make_encoder, make_bert, make_gpt2])
def test_options_centre_the_matrices_and_nothing_else(make):
    torch.manual_seed(0)
    model = make()
    before = {name: param.detach().clone() for name, param in model.named_parameters()}
    groups = mm.mirror_groups(model, p=1.1, center=True)
    assert mm.describe_groups(groups).count("centred") == 1
    optimizer = mm.MirrorAdam(groups, lr=0.05)
    for _ in range(10):
        optimizer.zero_grad()
        find_loss(model).backward()
        optimizer.step()
    mirrored = list_mirrored(model)
    for name, param in model.named_parameters():
        state = optimizer.state[param]
        assert ("center" in state) == (name in mirrored), name
        if name in mirrored:
            assert torch.equal(state["center"], before[name])
            image = before[name] + mm.LpPotential(1.1).to_primal(state["dual"])
            torch.testing.assert_close(param.detach(), image)
    saved = {key: set(state) for key, state in optimizer.state_dict()["state"].items()}
    assert sum("center" in keys for keys in saved.values()) == len(mirrored)


def test_embeddings_take_p_if_asked_but_position_tables_do_not():
    class Tables(nn.Module):
        def __init__(self):
            super().__init__()
            self.word_embeddings = nn.Embedding(5, 4)
            self.position_embeddings = nn.Embedding(5, 4)
            self.wpe = nn.Embedding(5, 4)
            self.positive_words = nn.Embedding(5, 4)

    first, second = mm.mirror_groups(Tables(), p=1.1, embeddings=True)
    names = [[name for name, _ in group["params"]] for group in (first, second)]
    assert names == [
        ["word_embeddings.weight", "positive_words.weight"],
        ["position_embeddings.weight", "wpe.weight"],
    ]


def test_a_fused_projection_of_any_module_takes_p():
    class Fused(nn.Module):
        def __init__(self):
            super().__init__()
            self.in_proj_weight = nn.Parameter(torch.ones(6, 2))

    assert [group["p"] for group in mm.mirror_groups(Fused(), p=1.1)] == [1.1]


def test_a_position_table_that_starts_at_zero_moves_as_with_adamw():
    tables = []
    for make in (
        lambda m: mm.MirrorAdam(mm.mirror_groups(m, p=1.1), lr=1e-3),
        lambda m: torch.optim.AdamW(m.parameters(), lr=1e-3, weight_decay=0.0),
    ):
        torch.manual_seed(0)
        model = WithTables()
        optimizer = make(model)
        for _ in range(20):
            optimizer.zero_grad()
            (model.position - 1).square().sum().backward()
            optimizer.step()
        tables.append(model.position.detach())
    torch.testing.assert_close(*tables)


def step_once(params, **options) -> None:
    optimizer = mm.MirrorAdam(params, **options)
    for group in optimizer.param_groups:
        for param in group["params"]:
            param.grad = torch.ones_like(param)
    optimizer.step()


@pytest.mark.parametrize(("p", "warned"), [(1.05, True), (1.4, True), (1.5, False), (3.0, False)])
def test_only_where_the_map_is_flat_a_start_at_zero_is_warned_of(p, warned):
    weights = [nn.Parameter(torch.zeros(3)), nn.Parameter(torch.ones(3))]
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        step_once(weights, p=p)
    assert [str(one.message)[:29] for one in caught] == ["parameter 0 of group 0 starts"] * warned


def test_the_warning_comes_once_names_tensors_and_points_to_the_call():
    model = nn.Linear(2, 2)
    nn.init.zeros_(model.bias)
    optimizer = mm.MirrorAdam(model.named_parameters(), p=1.1)
    model(torch.ones(2)).sum().backward()
    with pytest.warns(mm.MirrorMarginWarning, match="'bias' starts at 0") as caught:
        optimizer.step()
    assert caught[0].filename == __file__
    optimizer.step()


def test_whoever_chooses_p_for_a_group_is_not_warned():
    step_once([{"params": [nn.Parameter(torch.zeros(3))], "p": 1.1}])


def test_the_scale_of_a_tensor_of_zeros_is_not_made_up():
    weight = nn.Parameter(torch.zeros(3))
    with pytest.raises(mm.OptimizerError, match=r'scale="rms" is not known for parameter 0'):
        step_once([{"params": [weight], "p": 1.1}], scale="rms")
    assert not weight.any()
