"""The real Trainer of transformers takes our steps: groups, sparsity, Polyak's loss, deltas."""

from __future__ import annotations

import copy

import pytest
import torch

transformers = pytest.importorskip(
    "transformers", reason="transformers is not installed: pip install '.[huggingface]'"
)
pytest.importorskip("accelerate")
pytest.importorskip("transformers.trainer_optimizer", reason="this transformers has no factories")

import rank_huggingface as by_trainer  # noqa: E402
from rank_huggingface import NUM_STEPS, POLYAK, Net, check_weights, make_trainer  # noqa: E402
from rank_processes import RankServer  # noqa: E402

import mirrormargin as mm  # noqa: E402
from mirrormargin.integrations.huggingface import (  # noqa: E402
    DeltaCallback,
    PolyakCallback,
    SparsityCallback,
    mirror_defaults,
    mirror_optimizer,
)

ADAM = {"lr": 0.02, "p": 1.3}
PLAN = {"every": 3}


def train_sparsely(folder, resume=None, share=0.6, **options):
    sparsity = SparsityCallback(share, **PLAN)
    trainer = make_trainer(folder, mirror_optimizer(**ADAM), [sparsity], **options)
    trainer.train(resume_from_checkpoint=resume)
    return trainer, sparsity


def test_the_trainer_builds_our_groups(tmp_path):
    given = mirror_optimizer(p=1.2, lr=0.1, groups={"rest": {"weight_decay": 0.5}}, eps=1e-6)
    trainer = make_trainer(tmp_path, given, learning_rate=7.0, weight_decay=7.0)
    for _ in range(2):  # a second model, as of a search over hyper-parameters
        matrices, rest = trainer.create_optimizer().param_groups
        assert (matrices["p"], rest["p"]) == (1.2, 2.0)
        assert matrices["param_names"] == ["first.weight", "second.weight"]
        assert (matrices["weight_decay"], rest["weight_decay"]) == (0.0, 0.5)
        assert (matrices["lr"], rest["eps"]) == (0.1, 1e-6)
        trainer.optimizer = None


@pytest.mark.parametrize("parts", [1, 3])
def test_a_training_is_that_of_the_plain_loop(tmp_path, parts):
    trainer = make_trainer(tmp_path, mirror_optimizer(**ADAM), parts=parts)
    trainer.train()
    check_weights(trainer.model, by_trainer.train_alone(mm.MirrorAdam, lr=0.02)[0])


def test_an_optimizer_may_be_given_as_it_is(tmp_path):
    net = Net()
    optimizer = mm.MirrorAdam(mm.mirror_groups(net, p=1.3), lr=0.02)
    arguments = transformers.TrainingArguments(
        str(tmp_path), max_steps=NUM_STEPS, per_device_train_batch_size=by_trainer.NUM_ROWS,
        save_strategy="no", **by_trainer.QUIET, **mirror_defaults(),
    )  # fmt: skip
    trainer = transformers.Trainer(
        model=net, args=arguments, train_dataset=by_trainer.ROWS, optimizers=(optimizer, None)
    )
    trainer.train()
    check_weights(net, by_trainer.train_alone(mm.MirrorAdam, lr=0.02)[0])


def test_a_schedule_removes_what_it_does_in_the_plain_loop(tmp_path):
    trainer, sparsity = train_sparsely(tmp_path)
    plan = {"share": 0.6, "num_steps": NUM_STEPS, **PLAN}
    check_weights(trainer.model, by_trainer.train_alone(mm.MirrorAdam, plan, lr=0.02)[0])
    assert sparsity.removed_share == 43 / 72
    assert not any("removed" in group for group in trainer.optimizer.param_groups)


@pytest.mark.parametrize("restores", [False, True])
def test_a_training_that_is_resumed_ends_at_the_same_bits(tmp_path, restores):
    options = {"save_strategy": "steps", "save_steps": 5, "parts": 2}
    whole, _ = train_sparsely(tmp_path / "whole", **options)
    for step in (5, 10):  # before and after the last ranking
        options["restore_callback_states_from_checkpoint"] = restores
        again, _ = train_sparsely(
            tmp_path / "again", tmp_path / "whole" / f"checkpoint-{step}", **options
        )
        for one, other in zip(whole.model.parameters(), again.model.parameters(), strict=True):
            assert torch.equal(one, other)


def test_a_second_training_begins_at_its_beginning(tmp_path):
    trainer, sparsity = train_sparsely(tmp_path)
    trainer.train()
    assert sparsity.removed_share == 43 / 72
    assert sparsity.schedule is not None
    assert sparsity.schedule.num_calls == NUM_STEPS


def test_a_checkpoint_of_another_share_is_refused_and_one_of_none_is_taken(tmp_path):
    options = {"save_strategy": "steps", "save_steps": 5}
    train_sparsely(tmp_path / "some", **options)
    with pytest.raises(mm.OptimizerError, match=r"share=0\.6, this one 0\.7"):
        train_sparsely(tmp_path / "other", tmp_path / "some" / "checkpoint-5", share=0.7)
    make_trainer(tmp_path / "dense", mirror_optimizer(**ADAM), **options).train()
    _, sparsity = train_sparsely(
        tmp_path / "sparse", tmp_path / "dense" / "checkpoint-5", **options
    )
    assert sparsity.removed_share == 43 / 72


def test_options_that_no_checkpoint_can_hold_are_refused():
    with pytest.raises(mm.OptimizerError, match="name tensors by patterns"):
        SparsityCallback(0.5, params=[torch.zeros(2)])


@pytest.mark.filterwarnings("ignore::UserWarning:transformers")
def test_heads_are_found_in_the_model_of_the_trainer(tmp_path):
    sizes = {"hidden_size": 16, "num_attention_heads": 4, "intermediate_size": 16}
    config = transformers.BertConfig(vocab_size=9, num_hidden_layers=2, **sizes)
    net = transformers.BertForSequenceClassification(config)
    rows = [{"input_ids": torch.arange(4) + k % 5, "labels": k % 2} for k in range(8)]
    sparsity = SparsityCallback(0.5, groups="heads")
    trainer = make_trainer(tmp_path, mirror_optimizer(**ADAM), [sparsity], net=net, max_steps=2)
    trainer.train_dataset = rows
    trainer.train()
    assert sparsity.removed_share == 0.5


@pytest.mark.filterwarnings("ignore:load_best_model_at_end=True has brought back")
def test_an_early_end_and_an_early_best_model_are_told(tmp_path):
    class Stop(transformers.TrainerCallback):
        def on_step_end(self, args, state, control, **_):
            control.should_training_stop = state.global_step == 4

    stop, sparsity = Stop(), SparsityCallback(0.6, **PLAN)
    trainer = make_trainer(tmp_path, mirror_optimizer(**ADAM), [sparsity, stop])
    with pytest.warns(mm.MirrorMarginWarning, match="ended after 4 of 12 steps"):
        trainer.train()
    sparsity = SparsityCallback(0.6, **PLAN)
    every = {"eval_strategy": "steps", "eval_steps": 4, "save_strategy": "steps", "save_steps": 4}
    best = {"metric_for_best_model": "eval_loss", "greater_is_better": True}
    trainer = make_trainer(
        tmp_path, mirror_optimizer(**ADAM), [sparsity], load_best_model_at_end=True, **every, **best
    )
    with pytest.warns(mm.MirrorMarginWarning, match=r"weights of step 4, of which at most"):
        trainer.train()


# -- Polyak's loss


def train_by_polyak(folder, parts=1, **options):
    steps = by_trainer.Steps()
    given = mirror_optimizer(mm.MirrorDescent, 1.3, **POLYAK)
    trainer = make_trainer(folder, given, [steps], parts=parts, **options)
    trainer.add_callback(PolyakCallback(trainer))
    return trainer, steps.lengths


@pytest.mark.parametrize("parts", [1, 3])
def test_polyaks_rule_gets_the_loss_of_the_whole_step(tmp_path, parts):
    trainer, lengths = train_by_polyak(tmp_path, parts)
    trainer.train()
    net, expected = by_trainer.train_alone(mm.MirrorDescent, **POLYAK)
    check_weights(trainer.model, net)
    assert lengths == pytest.approx(expected, rel=1e-9)
    assert len(set(lengths)) > NUM_STEPS // 2  # not all are cut at max_lr


def test_a_loss_of_ones_own_is_the_one_that_counts(tmp_path):
    def double(outputs, labels, num_items_in_batch=None):
        return 2 * torch.nn.functional.cross_entropy(outputs["logits"], labels)

    trainer, lengths = train_by_polyak(tmp_path, max_steps=1)
    trainer.compute_loss_func = double
    trainer.train()
    _, expected = by_trainer.train_alone(mm.MirrorDescent, **POLYAK)
    # 2 L / ||2 g||^2 at p = 2; other p are near it.
    assert lengths == pytest.approx([expected[0] / 2], rel=0.2)


def test_a_training_leaves_no_hook_behind(tmp_path):
    trainer, _ = train_by_polyak(tmp_path, max_steps=1)
    for _ in range(2):
        trainer.train()
    assert not trainer.optimizer.optimizer._optimizer_step_pre_hooks


def test_polyaks_rule_alone_is_told_losses(tmp_path):
    trainer = make_trainer(tmp_path, mirror_optimizer(**ADAM))
    trainer.add_callback(PolyakCallback(trainer))
    with pytest.raises(mm.OptimizerError, match="which alone needs the loss"):
        trainer.train()


# -- what the Trainer does by default


def test_the_defaults_leave_steps_as_they_are(tmp_path):
    trainer, _ = train_by_polyak(tmp_path, max_steps=2)
    assert trainer.args.max_grad_norm == 0
    trainer.train()
    assert [group["lr"] for group in trainer.optimizer.param_groups] == [POLYAK["lr"]] * 2


@pytest.mark.filterwarnings("ignore:max_grad_norm=0.01 clips gradients")
@pytest.mark.parametrize(("rule", "change"), [("constant", 1), ("normalized", 0), ("polyak", -1)])
def test_clipping_changes_steps_as_the_docs_say(tmp_path, rule, change):
    """By a factor of c at p = 2, where a gradient of norm G is clipped to c G."""
    options = {"constant": {}, "normalized": {"step_rule": "normalized"}, "polyak": POLYAK}[rule]
    options = {"lr": 0.1, **options} | ({"max_lr": None} if rule == "polyak" else {})
    given = mirror_optimizer(mm.MirrorDescent, 2.0, **options)
    moves = []
    for limit in (0.0, 0.01):
        net = Net()
        trainer = make_trainer(tmp_path, given, net=net, max_grad_norm=limit, max_steps=1)
        if rule == "polyak":
            trainer.add_callback(PolyakCallback(trainer))
        trainer.train()
        changes = [a - b for a, b in zip(net.parameters(), Net().parameters(), strict=True)]
        moves.append(torch.cat([one.detach().flatten() for one in changes]).norm())
    net, (inputs, labels) = Net(), by_trainer.draw_rows()
    net(inputs, labels)["loss"].backward()
    c = 0.01 / torch.cat([param.grad.flatten() for param in net.parameters()]).norm()
    assert float(moves[1] / moves[0]) == pytest.approx(float(c) ** change, rel=1e-3)


def test_clipping_of_polyaks_steps_is_warned_of(tmp_path):
    trainer, _ = train_by_polyak(tmp_path, max_grad_norm=1.0, max_steps=1)
    with pytest.warns(mm.MirrorMarginWarning, match=r"max_grad_norm=1\.0 clips gradients"):
        trainer.train()


# -- deltas


def train_with_delta(folder, base, net, **options):
    delta = DeltaCallback(base, **options)
    trainer = make_trainer(folder, mirror_optimizer(**ADAM), [delta], net=net, max_steps=2)
    trainer.train()
    return delta


def test_the_changes_of_a_training_are_written(tmp_path):
    base, net = Net(), Net()
    before = copy.deepcopy(base.state_dict())
    written = train_with_delta(tmp_path, base, net, keep=20)
    expected = mm.SparseDelta.extract(net, before, keep=20)
    found = mm.SparseDelta.load(tmp_path / "delta.safetensors")
    assert written.delta is not None
    for one in (found, written.delta):
        assert one.positions.tolist() == expected.positions.tolist()
        assert torch.equal(one.values, expected.values)
    path = tmp_path / "new" / "task.safetensors"
    train_with_delta(tmp_path, base, net, path=path, tolerance=1.0, evaluate=lambda model: 0.0)
    assert mm.SparseDelta.load(path).num_values == 0


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"keep": -1}, "keep is -1"),
        ({"tolerance": 0.1}, "evaluate"),
        ({"keep": 1, "scope": "row"}, "scope is 'row'"),
        ({"keep": 1, "base": {"other": torch.zeros(2)}}, "other"),
    ],
)
def test_what_is_wrong_with_a_delta_is_told_before_the_first_step(tmp_path, options, message):
    net = Net()
    options = dict(options)
    with pytest.raises(mm.DeltaError, match=message):
        train_with_delta(tmp_path, options.pop("base", Net()), net, **options)
    for own, start in zip(net.parameters(), Net().parameters(), strict=True):
        assert torch.equal(own, start)


# -- several processes


@pytest.mark.slow
@pytest.mark.distributed
def test_two_processes_train_what_one_does(tmp_path):
    server = RankServer(["rank_huggingface"])
    server.run("rank_huggingface:check_training", 2, str(tmp_path))
    server.close()
