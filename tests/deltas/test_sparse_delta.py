"""Applying and removing: the base's bits come back, whatever was added, in every type."""

import copy
import gc

import pytest
import torch
from fine_tuned import bits, fine_tune, make_base
from torch import nn

import mirrormargin as mm

HALF_AND_FULL = [torch.float32, torch.bfloat16, torch.float16]


def extract(model, base, **options):
    return mm.SparseDelta.extract(model, base, **{"keep": 12, "whole": ["head.*"], **options})


@pytest.mark.parametrize("dtype", HALF_AND_FULL)
@pytest.mark.parametrize("values", [torch.float16, torch.bfloat16, torch.float32])
def test_removing_restores_every_bit(dtype, values):
    base = make_base(dtype)
    before = bits(base)
    delta = extract(fine_tune(base), base, values=values)
    delta.apply(base)
    assert bits(base) != before
    delta.remove(base)
    assert bits(base) == before


@pytest.mark.parametrize("dtype", HALF_AND_FULL)
def test_all_differences_in_float32_give_the_model(dtype):
    base = make_base(dtype)
    model = fine_tune(base)
    delta = mm.SparseDelta.extract(model, base, share=1.0, values=torch.float32)
    delta.apply(base)
    for name, one in model.state_dict().items():
        ulp = torch.finfo(dtype).eps if one.is_floating_point() else 0.0
        torch.testing.assert_close(base.state_dict()[name], one, rtol=ulp, atol=1e-7)


def test_an_entry_is_the_rounded_sum_in_float32():
    base = nn.Linear(2, 1, bias=False).to(torch.bfloat16)
    model = copy.deepcopy(base)
    base.weight.data.fill_(1.0)
    model.weight.data = torch.tensor([[1.0, 1.0078125]], dtype=torch.bfloat16)
    delta = mm.SparseDelta.extract(model, base, keep=2)
    assert delta.positions.tolist() == [1]
    assert delta.values.tolist() == [0.0078125]
    delta.apply(base)
    assert torch.equal(base.weight, model.weight)


def test_float64_weights_are_added_to_in_float64():
    base = nn.Linear(3, 3).double()
    model = fine_tune(base)
    delta = mm.SparseDelta.extract(model, base, share=1.0, values=torch.float32)
    before = base.weight.detach().clone()
    delta.apply(base)
    assert torch.equal(base.weight, before + delta.to_dense()["weight"].double())


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_the_base_may_be_served_in_half_precision(dtype):
    base = make_base()
    delta = extract(fine_tune(base), base)
    served = copy.deepcopy(base).to(dtype)
    before = bits(served)
    delta.apply(served)
    delta.remove(served)
    assert bits(served) == before


def test_deltas_nest_and_the_last_is_removed_first():
    base = make_base()
    states, deltas = [bits(base)], []
    for seed in (1, 2, 3):
        deltas.append(extract(fine_tune(make_base(), seed), make_base()))
        deltas[-1].apply(base)
        states.append(bits(base))
    with pytest.raises(mm.DeltaError, match="2 deltas were applied after"):
        deltas[0].remove(base)
    for delta in reversed(deltas):
        assert bits(base) == states.pop()
        delta.remove(base)
    assert bits(base) == states.pop()
    with pytest.raises(mm.DeltaError, match="not applied"):
        deltas[0].remove(base)


def test_one_delta_may_be_applied_twice():
    base = make_base()
    before, delta = bits(base), extract(fine_tune(base), base)
    delta.apply(base)
    delta.apply(base)
    delta.remove(base)
    delta.remove(base)
    assert bits(base) == before


def test_removing_after_somebody_wrote_is_refused():
    base = make_base()
    delta = extract(fine_tune(base), base)
    delta.apply(base)
    with torch.no_grad():
        base.embedding.weight.mul_(1.5)
    after = bits(base)
    with pytest.raises(mm.DeltaError, match=r"embedding.weight has changed since"):
        delta.remove(base)
    assert bits(base) == after
    other = make_base()
    delta.apply(other)
    with pytest.raises(mm.DeltaError, match="has changed since"):
        delta.remove(other.half())


@pytest.mark.parametrize("half", [False, True])
def test_loading_the_base_again_undoes_every_delta(half):
    base = make_base()
    state = copy.deepcopy(base.state_dict())
    deltas = [extract(fine_tune(base, seed), base) for seed in (1, 2)]
    for delta in deltas:
        delta.apply(base)
    (base.half() if half else base).load_state_dict(state)
    before = bits(base)
    mm.DeltaStore(base)
    with pytest.raises(mm.DeltaError, match="not applied"):
        deltas[1].remove(base)
    deltas[0].apply(base)
    deltas[0].remove(base)
    assert bits(base) == before


def test_loading_the_model_between_two_deltas_undoes_the_second():
    base = make_base()
    first, second = (extract(fine_tune(make_base(), seed), make_base()) for seed in (1, 2))
    before = bits(base)
    first.apply(base)
    between = copy.deepcopy(base.state_dict())
    second.apply(base)
    base.load_state_dict(between)
    first.remove(base)
    assert bits(base) == before


def test_a_model_with_another_head_meanwhile_is_refused():
    base = make_base()
    delta = extract(fine_tune(base), base)
    delta.apply(base)
    base.head = nn.Linear(4, 3)
    with pytest.raises(mm.DeltaError, match=r"head\..* has changed since"):
        delta.remove(base)


def test_entries_that_a_delta_leaves_alone_may_change_meanwhile():
    base = make_base()
    delta = mm.SparseDelta.extract(fine_tune(base), base, keep=1)
    (name,) = delta.to_dense()
    delta.apply(base)
    other = next(one for key, one in base.named_parameters() if key != name)
    with torch.no_grad():
        other.zero_()
    delta.remove(base)
    assert not other.any()


def test_a_tied_weight_counts_once_and_is_changed_once():
    base = make_base()
    model = fine_tune(base)
    delta = mm.SparseDelta.extract(model, base, share=1.0, values=torch.float32)
    parameters = {id(one): one.numel() for one in base.parameters()}
    buffers = base.norm.running_mean.numel() + base.norm.running_var.numel()
    assert delta.space.size == sum(parameters.values()) + buffers
    delta.apply(base)
    torch.testing.assert_close(base.output.weight, model.embedding.weight)
    assert base.output.weight is base.embedding.weight


def test_a_model_that_ties_otherwise_is_refused():
    base = make_base()
    delta = extract(fine_tune(base), base)
    untied = copy.deepcopy(base)
    untied.output.weight = nn.Parameter(base.output.weight.detach().clone())
    with pytest.raises(mm.DeltaError, match="share their memory where the delta was extracted"):
        delta.apply(untied)
    before = bits(base)
    for options in ({"keep": 1}, {"share": 1.0}, {"keep": 1, "whole": ["output*", "embedding*"]}):
        both = mm.SparseDelta.extract(fine_tune(untied), untied, **options)
        with pytest.raises(mm.DeltaError, match="share their memory in this model"):
            both.apply(base)
    assert bits(base) == before


@pytest.mark.parametrize("wrap", ["compile", "parallel", "both"])
def test_wrapped_models_are_the_models_in_them(wrap):
    base = make_base()
    model, before = fine_tune(base), bits(base)
    wrapped = base if wrap == "compile" else nn.DataParallel(base)
    wrapped = wrapped if wrap == "parallel" else torch.compile(wrapped, backend="eager")
    delta = extract(model, wrapped)
    assert list(delta.space.shapes) == list(extract(model, base).space.shapes)
    delta.apply(wrapped)
    delta.remove(base)
    assert bits(base) == before


def test_weights_that_are_not_contiguous_are_changed_in_place():
    base = nn.Linear(3, 5)
    base.weight = nn.Parameter(torch.randn(3, 5).t())
    model = fine_tune(base)
    before = bits(base)
    delta = mm.SparseDelta.extract(model, base, share=1.0, values=torch.float32)
    delta.apply(base)
    torch.testing.assert_close(base.weight, model.weight)
    assert not base.weight.is_contiguous()
    delta.remove(base)
    assert bits(base) == before


def test_an_optimizer_notices_a_delta():
    """MirrorAdam keeps u, and finds it again where somebody wrote to the weights."""
    base = make_base()
    optimizer = mm.MirrorAdam(mm.mirror_groups(base, p=1.1), lr=0.0)

    def step():
        for weight in base.parameters():
            weight.grad = torch.zeros_like(weight)
        optimizer.step()

    step()
    delta = extract(fine_tune(base), base)
    version = base.embedding.weight._version
    delta.apply(base)
    assert base.embedding.weight._version > version
    changed = bits(base)
    step()
    assert bits(base) == changed


def test_another_base_is_refused_and_left_alone():
    base = make_base()
    delta = extract(fine_tune(base), base)
    other = make_base(seed=5)
    before = bits(other)
    with pytest.raises(mm.DeltaError, match="not the base of this delta"):
        delta.apply(other)
    assert bits(other) == before
    delta.apply(other, check=False)
    delta.remove(other)
    assert bits(other) == before


def test_an_untrained_head_is_no_part_of_the_base():
    base = make_base()
    delta = extract(fine_tune(base), base)
    with torch.no_grad():
        base.head.weight.normal_()
    delta.apply(base)
    assert torch.equal(base.head.weight, delta.whole["head.weight"])


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda model: setattr(model, "head", nn.Linear(4, 3)), "head.bias has shape"),
        (lambda model: setattr(model, "hidden", nn.Linear(4, 5)), "hidden.bias has shape"),
        (lambda model: delattr(model, "head"), "no tensor 'head.bias'.*without_whole"),
        (lambda model: delattr(model, "hidden"), "no tensor 'hidden.bias'"),
    ],
)
def test_other_shapes_are_refused(change, message):
    base = make_base()
    delta = extract(fine_tune(base), base)
    change(base)
    before = bits(base)
    with pytest.raises(mm.DeltaError, match=message):
        delta.apply(base)
    assert bits(base) == before


def test_a_sum_beyond_the_weights_type_is_refused():
    base = nn.Linear(1, 1, bias=False)
    base.weight.data.fill_(60_000.0)
    model = copy.deepcopy(base)
    model.weight.data.fill_(120_000.0)
    delta = mm.SparseDelta.extract(model, base, keep=1)
    with pytest.raises(mm.DeltaError, match=r"beyond torch\.float16"):
        delta.apply(base.half())


def freeze(model, name):
    """Make a tensor of a model one that nobody can write to."""
    module, _, last = name.rpartition(".")
    with torch.inference_mode():
        frozen = model.get_parameter(name).detach().clone()
    model.get_submodule(module)._parameters[last] = frozen


def test_a_delta_that_cannot_be_written_changes_nothing():
    base = make_base()
    delta = extract(fine_tune(base), base, share=1.0, keep=None)
    freeze(base, "hidden.weight")
    before = bits(base)
    with pytest.raises(mm.DeltaError, match=r"hidden.weight cannot be written to \(Inplace"):
        delta.apply(base)
    assert bits(base) == before
    with pytest.raises(mm.DeltaError, match="not applied"):
        delta.remove(base)
    mm.DeltaStore(base)


def test_a_delta_that_cannot_be_removed_stays():
    base = make_base()
    delta = extract(fine_tune(base), base, share=1.0, keep=None)
    delta.apply(base)
    freeze(base, "hidden.weight")
    after = bits(base)
    with pytest.raises(mm.DeltaError, match=r"hidden.weight cannot be written to"):
        delta.remove(base)
    assert bits(base) == after
    with pytest.raises(mm.DeltaError, match="is applied"):
        mm.DeltaStore(base)


def test_a_model_that_is_gone_is_forgotten():
    from mirrormargin.deltas.application import _applied

    base = make_base()
    delta = extract(fine_tune(base), base)
    gc.collect()
    before = len(_applied)
    delta.apply(base)
    assert len(_applied) == before + 1
    del base
    gc.collect()
    assert len(_applied) == before


def test_the_repr_is_short():
    base = make_base()
    text = repr(extract(fine_tune(base), base))
    assert text.startswith("SparseDelta(12 of 64 values, in ")
    assert text.endswith(" of 7 tensors, float16, whole: head.bias, head.weight)")
    assert len(repr(extract(fine_tune(base), base).space)) < 60
