"""Many tasks over one model: each is what it would be alone, and the base stays the base."""

import gc

import pytest
import torch
from fine_tuned import bits, fine_tune, make_base

import mirrormargin as mm

NAMES = ("a", "b", "c")
IDS = torch.randint(0, 7, (9, 5), generator=torch.Generator().manual_seed(0))


def make_store(dtype=torch.float32):
    base = make_base()
    deltas = {
        name: mm.SparseDelta.extract(fine_tune(base, seed), base, keep=15, whole=["head.*"])
        for seed, name in enumerate(NAMES)
    }
    model = base.to(dtype)
    store = mm.DeltaStore(model)
    for name, delta in deltas.items():
        store.add(name, delta)
    return model, store, deltas


def apply_alone(delta, dtype=torch.float32):
    model = make_base().to(dtype)
    delta.apply(model)
    return model


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_every_switch_gives_the_model_of_that_task(dtype):
    model, store, deltas = make_store(dtype)
    before = bits(model)
    alone = {name: bits(apply_alone(delta, dtype)) for name, delta in deltas.items()}
    alone[None] = before
    for name in ("a", "b", "a", None, "c", "c", "b", None):
        store.switch(name)
        assert store.current == name
        assert bits(model) == alone[name]


def test_a_task_is_used_within_a_with():
    model, store, _ = make_store()
    before = bits(model)
    with store.use("a"):
        inner = bits(model)
        with store.use("b"):
            assert store.current == "b"
        assert bits(model) == inner
        with pytest.raises(ZeroDivisionError), store.use("c"):
            raise ZeroDivisionError
        assert store.current == "a"
    assert bits(model) == before


def test_tasks_come_and_go(tmp_path):
    model, store, deltas = make_store()
    deltas["a"].save(tmp_path / "task")
    store.switch("b")
    while_b = bits(model)
    store.add("from a file", tmp_path / "task")
    assert bits(model) == while_b
    assert store.names == ("a", "b", "c", "from a file")
    store.remove("b")
    assert store.current is None
    assert bits(model) == bits(make_base())
    with pytest.raises(mm.DeltaError, match="there is no task 'b'"):
        store.switch("b")
    with pytest.raises(mm.DeltaError, match="there is a task 'a' already"):
        store.add("a", deltas["a"])


def test_the_memory_is_a_few_bytes_a_number():
    _, store, deltas = make_store()
    numbers = sum(delta.num_values for delta in deltas.values())
    heads = sum(one.numel() for delta in deltas.values() for one in delta.whole.values())
    assert store.num_bytes == 16 * numbers + 8 * heads
    assert len(repr(store)) < 120


def test_a_delta_of_another_base_is_refused():
    _, store, _ = make_store()
    other = make_base(seed=4)
    delta = mm.SparseDelta.extract(fine_tune(other), other, keep=5, whole=["head.*"])
    with pytest.raises(mm.DeltaError, match="not the base"):
        store.add("other", delta)
    assert store.names == NAMES


def test_deltas_that_rank_other_tensors_are_of_the_same_base():
    base = make_base()
    store = mm.DeltaStore(base)
    store.add("with head", mm.SparseDelta.extract(fine_tune(base), base, keep=5))
    store.add("head whole", mm.SparseDelta.extract(fine_tune(base), base, keep=5, whole=["head.*"]))
    assert len(store.names) == 2


def test_the_base_is_hashed_once(monkeypatch):
    import mirrormargin.deltas.store as module

    calls = []
    true = module.digest_tensor
    monkeypatch.setattr(module, "digest_tensor", lambda *one: calls.append(one[0]) or true(*one))
    make_store()
    assert len(calls) == len(set(calls)) == 7


@pytest.mark.parametrize("current", [None, "a"])
def test_others_who_write_to_the_model_are_noticed(current):
    model, store, _ = make_store()
    store.switch(current)
    with torch.no_grad():
        model.embedding.weight.add_(1.0)
    before = bits(model)
    with pytest.raises(mm.DeltaError, match=r"no longer what the store has left"):
        store.switch("b")
    assert bits(model) == before
    assert store.current == current


def test_a_switch_that_cannot_be_written_changes_nothing():
    base = make_base()
    deltas = {
        name: mm.SparseDelta.extract(fine_tune(base, seed), base, share=1.0)
        for seed, name in enumerate("ab")
    }
    with torch.inference_mode():
        base.norm.running_mean = base.norm.running_mean.clone()
        base.hidden._parameters["weight"] = base.hidden.weight.detach().clone()
    store = mm.DeltaStore(base)
    for name, delta in deltas.items():
        store.add(name, delta)
    before = bits(base)
    with pytest.raises(mm.DeltaError, match=r"hidden.weight cannot be written to"):
        store.switch("a")
    assert store.current is None
    assert bits(base) == before


def test_writing_the_same_is_no_harm():
    model, store, _ = make_store()
    store.switch("a")
    model.load_state_dict({name: one.clone() for name, one in model.state_dict().items()})
    store.switch("b")


def test_a_model_of_another_type_is_noticed():
    model, store, _ = make_store()
    model.half()
    with pytest.raises(mm.DeltaError, match="make a new store"):
        store.switch("a")


def test_a_store_needs_the_bare_base():
    base = make_base()
    delta = mm.SparseDelta.extract(fine_tune(base), base, keep=5)
    delta.apply(base)
    with pytest.raises(mm.DeltaError, match="remove it first"):
        mm.DeltaStore(base)
    delta.remove(base)
    mm.DeltaStore(base)
    gc.collect()


TASKS = ["a", None, "b", "a", "c", None, "b", "a", "a"]


@pytest.mark.parametrize("kind", ["tensor", "names", "list"])
def test_a_batch_of_several_tasks_is_answered_in_order(kind):
    model, store, _ = make_store()
    expected = []
    for row, name in enumerate(TASKS):
        with store.use(name), torch.no_grad():
            expected.append(model(IDS[row : row + 1])[0])
    expected = torch.cat(expected)
    store.switch("b")
    inputs = {"tensor": IDS, "names": {"ids": IDS}, "list": list(IDS)}[kind]

    def forward(part):
        part = part["ids"] if kind == "names" else torch.stack(part) if kind == "list" else part
        answers = model(part)[0]
        return (
            {"logits": answers} if kind == "names" else list(answers) if kind == "list" else answers
        )

    answers = store.run(inputs, TASKS, forward)
    answers = answers["logits"] if kind == "names" else answers
    answers = torch.stack(answers) if kind == "list" else answers
    torch.testing.assert_close(answers, expected)
    assert store.current == "b"


def test_a_batch_without_forward_calls_the_model():
    base = torch.nn.Linear(3, 2)
    model = torch.nn.Linear(3, 2)
    store = mm.DeltaStore(base)
    store.add("task", mm.SparseDelta.extract(model, base, share=1.0, values=torch.float32))
    inputs = torch.randn(4, 3)
    answers = store.run(inputs, ["task", None, "task", None])
    torch.testing.assert_close(answers[::2], model(inputs[::2]))
    torch.testing.assert_close(answers[1::2], base(inputs[1::2]))
    assert not answers.requires_grad


@pytest.mark.parametrize(
    ("inputs", "tasks", "forward", "message"),
    [
        (IDS, ["a"], None, "9 inputs and 1 tasks"),
        (IDS, ["x"] * 9, None, "no task 'x'"),
        (IDS, "a", None, "tasks is 'a'"),
        (IDS[:0], [], None, "no inputs"),
        (3, ["a"], None, "inputs is 3"),
        ({"a": IDS, "b": IDS[:2]}, ["a"], None, "rows"),
        (IDS, ["a"] * 9, lambda part: part[:3], "3 outputs for 9 inputs"),
        (IDS, ["a"] * 9, 3, "forward is 3"),
        (IDS[:2], ["a", "a"], None, "the outputs are a tuple"),
        (tuple(IDS), ["a"] * 9, torch.stack, "inputs are a tuple"),
        (list(IDS), ["a"] * 9, None, "say with forward"),
        (IDS, ["a", "b"] * 4 + ["c"], lambda part: torch.ones(len(part), len(part)), "shapes"),
    ],
)
def test_batches_that_make_no_sense_are_refused(inputs, tasks, forward, message):
    _, store, _ = make_store()
    with pytest.raises(mm.DeltaError, match=message):
        store.run(inputs, tasks, forward)
    assert store.current is None
