"""The real Lightning takes our steps, automatic and manual; callbacks for sparsity and Polyak."""

from __future__ import annotations

from typing import Any

import pytest
import torch

pytest.importorskip("lightning", reason="lightning is not installed: pip install '.[lightning]'")

from lightning.pytorch.callbacks import ModelCheckpoint
from lightning.pytorch.plugins import MixedPrecision
from rank_lightning import NUM_STEPS, PLAN, Net, check_weights, fit, train_alone
from rank_processes import RankServer

import mirrormargin as mm
from mirrormargin.integrations.lightning import PolyakCallback, SparsityCallback

# What Lightning itself says of small machines, and calls in torch that are deprecated.
pytestmark = [
    pytest.mark.filterwarnings("ignore:The '.*' does not have many workers"),
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),
    pytest.mark.filterwarnings("ignore::FutureWarning"),
]

WHOLE_PLAN = {"share": 0.6, "num_steps": NUM_STEPS, **PLAN}


@pytest.mark.parametrize("parts", [1, 2])
@pytest.mark.parametrize("name", ["adam", "normalized"])
def test_a_training_is_that_of_the_plain_loop(name, parts):
    check_weights(fit(Net(name), parts=parts), train_alone(name))


def test_clipping_is_that_of_the_plain_loop():
    check_weights(fit(Net("adam"), gradient_clip_val=0.1), train_alone("adam", clip=0.1))


@pytest.mark.parametrize("by_hand", [None, "without loss"])
def test_a_schedule_removes_what_it_does_in_the_plain_loop(by_hand):
    sparsity = SparsityCallback(0.6, **PLAN)
    net = fit(Net("adam", by_hand), [sparsity])
    check_weights(net, train_alone("adam", WHOLE_PLAN))
    assert sparsity.removed_share == 43 / 72
    optimizer = net.trainer.optimizers[0]
    assert not any("removed" in group for group in optimizer.param_groups)
    assert not optimizer._optimizer_step_post_hooks


def test_parts_of_batches_are_no_steps_of_the_schedule():
    net = fit(Net("adam"), [SparsityCallback(0.6, **PLAN)], parts=2)
    check_weights(net, train_alone("adam", WHOLE_PLAN))


@pytest.mark.filterwarnings("ignore:Be aware that when using `ckpt_path`")
def test_a_training_that_is_resumed_ends_at_the_same_bits(tmp_path):
    saving: Any = ModelCheckpoint(tmp_path, filename="{epoch}", every_n_epochs=1, save_top_k=-1)
    whole = fit(Net("adam"), [SparsityCallback(0.6, **PLAN), saving])
    for epoch in (0, 1):
        sparsity = SparsityCallback(0.6, **PLAN)
        again = fit(Net("adam"), [sparsity], resume=tmp_path / f"epoch={epoch}.ckpt")
        assert sparsity.removed_share == 43 / 72
        for one, other in zip(whole.parameters(), again.parameters(), strict=True):
            assert torch.equal(one, other)
    with pytest.raises(mm.OptimizerError, match=r"share=0\.6, this one 0\.7"):
        fit(Net("adam"), [SparsityCallback(0.7)], resume=tmp_path / "epoch=1.ckpt")


def test_a_training_of_unknown_length_has_to_be_told():
    options = {"max_epochs": -1, "limit_train_batches": 2}
    with pytest.raises(mm.OptimizerError, match="give the callback num_steps"):
        fit(Net("adam"), [SparsityCallback(0.6)], **options)
    sparsity = SparsityCallback(0.6, num_steps=NUM_STEPS + 20, **PLAN)
    with pytest.warns(mm.MirrorMarginWarning, match="ended after 18 of 38 steps"):
        fit(Net("adam"), [sparsity])


def test_callbacks_need_one_mirror_optimizer():
    class Other(Net):
        def configure_optimizers(self):
            return torch.optim.SGD(self.parameters(), 0.1)

    with pytest.raises(mm.OptimizerError, match="has given 0 mirror optimizers"):
        fit(Other("adam"), [SparsityCallback(0.6)])
    with pytest.raises(mm.OptimizerError, match="which alone needs the loss"):
        fit(Net("adam"), [PolyakCallback()])


# -- Polyak's loss


@pytest.mark.parametrize(
    ("parts", "by_hand", "callbacks"),
    [
        (1, None, False),
        (1, None, True),
        (2, None, True),
        (1, "with loss", False),
        (1, "with loss", True),
        (1, "without loss", True),
    ],
)
def test_polyaks_rule_gets_the_loss_of_the_whole_step(parts, by_hand, callbacks):
    given = [PolyakCallback()] if callbacks else []
    net, expected = fit(Net("polyak", by_hand), given, parts), train_alone("polyak")
    check_weights(net, expected)
    assert net.lengths[parts - 1 :: parts] == pytest.approx(expected.lengths, rel=1e-9)
    assert len(set(expected.lengths)) > NUM_STEPS // 2  # not all are cut at max_lr
    assert not net.trainer.optimizers[0]._optimizer_step_pre_hooks


def test_without_the_callback_parts_of_batches_mislead_polyaks_rule():
    with pytest.raises(AssertionError):
        check_weights(fit(Net("polyak"), parts=2), train_alone("polyak"))


def test_a_scaled_loss_is_the_loss():
    """In float16 numbers are close, and those of a loss times 1024 would not be."""
    scaler = torch.amp.GradScaler("cpu", init_scale=1024.0)
    plugin: Any = MixedPrecision("16-mixed", "cpu", scaler)  # pyright: ignore[reportArgumentType]
    net = fit(Net("polyak"), [PolyakCallback()], plugins=[plugin])
    assert net.lengths[:3] == pytest.approx(train_alone("polyak").lengths[:3], rel=0.01)


def test_clipping_of_polyaks_steps_is_warned_of():
    with pytest.warns(mm.MirrorMarginWarning, match=r"gradient_clip_val=1\.0 clips gradients"):
        fit(Net("polyak"), [PolyakCallback()], gradient_clip_val=1.0, limit_train_batches=1)


# -- several processes


@pytest.mark.slow
@pytest.mark.distributed
def test_two_processes_train_what_one_does():
    server = RankServer(["rank_lightning"])
    server.run("rank_lightning:check_training", 2)
    server.close()
