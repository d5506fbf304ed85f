"""The real Accelerate: one process, DDP and FSDP2 train what the plain loop trains."""

from __future__ import annotations

import pytest
import torch

accelerate = pytest.importorskip(
    "accelerate", reason="accelerate is not installed: pip install '.[accelerate]'"
)

import rank_accelerate as by_accelerate  # noqa: E402
from rank_processes import RankServer  # noqa: E402

NAMES = pytest.mark.parametrize("name", by_accelerate.KINDS)


@pytest.fixture(scope="module")
def server():
    server = RankServer(["rank_accelerate"])
    yield server
    server.close()


@pytest.fixture(autouse=True)
def _alone():
    yield
    accelerate.state.AcceleratorState._reset_state(reset_partial_state=True)


@NAMES
@pytest.mark.parametrize("parts", [1, 2])
def test_one_process_is_the_plain_loop_and_resumes(name, parts, tmp_path):
    by_accelerate.check_training(None, "one", name, str(tmp_path), parts)


def _mark(mode, name):
    """Of so many trainings of two processes one is part of every run."""
    marks = () if (mode, name) == ("ddp", "polyak") else (pytest.mark.slow,)
    return pytest.param(mode, name, marks=marks)


@pytest.mark.distributed
@pytest.mark.parametrize(
    ("mode", "name"), [_mark(m, n) for m in ("ddp", "fsdp") for n in by_accelerate.KINDS]
)
def test_two_processes_are_one_with_the_whole_batch(server, mode, name, tmp_path):
    server.run("rank_accelerate:check_training", 2, mode, name, str(tmp_path), 1)


def test_a_prepared_learning_rate_schedule_moves_the_optimizer():
    accelerator = by_accelerate.make_accelerator("one")
    net = by_accelerate.make_net()
    optimizer = by_accelerate.make_optimizer(net, "adam")
    schedule = torch.optim.lr_scheduler.StepLR(optimizer, 1, 0.5)
    net, optimizer, schedule = accelerator.prepare(net, optimizer, schedule)
    for inputs, labels in by_accelerate.draw_batches()[:2]:
        accelerator.backward(torch.nn.functional.cross_entropy(net(inputs), labels))
        optimizer.step()
        schedule.step()
    assert [group["lr"] for group in optimizer.param_groups] == [0.0125, 0.0125]
