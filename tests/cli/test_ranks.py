"""mirrormargin train under torchrun: one voice, restarts, errors that are told by their rank."""

import os
import signal
import time
from pathlib import Path

import pytest
from rank_processes import find_started, start_torchrun

from mirrormargin.cli import main, ranks
from mirrormargin.errors import RankError, TrainingError
from mirrormargin.training.folder import TrainingFolder
from mirrormargin.training.launch import Launch, choose_parallel, find_launch

LAUNCHED = {
    "RANK": "1",
    "WORLD_SIZE": "2",
    "LOCAL_RANK": "1",
    "MASTER_ADDR": "127.0.0.1",
    "MASTER_PORT": "29500",
}
TRAIN = ["-m", "mirrormargin", "train", "digits/tiny", "--epochs", "4", "--no-test"]
# What each rank runs; the second one has a mistake of its own.
SCRIPT = """
import os, sys
from mirrormargin.cli import main

rest = ["--data", "nowhere.csv"] if os.environ["RANK"] == "1" else sys.argv[1:]
sys.exit(main(["train", "digits/tiny", *rest]))
"""
# The second rank of the second attempt comes late.
LATE = """
import os, time
from mirrormargin.training.distributed import join_ranks

is_restarted = os.environ["TORCHELASTIC_RESTART_COUNT"] == "1"
if is_restarted and os.environ["RANK"] == "1":
    time.sleep(2)
with join_ranks("ddp", "cpu") as ranks:
    found = ranks.gather(ranks.rank)
    if not is_restarted:
        os._exit(1)
    if ranks.is_first:
        print("met", found)
"""


def wait_for_step(folder, step):
    """Until there is a checkpoint of so many steps."""
    end = time.monotonic() + 120
    while (TrainingFolder(folder).read_step() or 0) < step:
        assert time.monotonic() < end
        time.sleep(0.005)


@pytest.fixture(scope="module")
def alone(tmp_path_factory):
    """The folder of the training by one process."""
    folder = tmp_path_factory.mktemp("alone") / "run"
    assert main([*TRAIN[2:], "--out", str(folder), "--quiet"]) == 0
    return folder


def check_alike(folder, other):
    """Up to rounding: the bits are compared in tests/training/test_distributed.py."""
    one, two = (TrainingFolder(place).read_summary() for place in (folder, other))
    assert len(one["epochs"]) == len(two["epochs"]) == 4
    for row, same in zip(one["epochs"], two["epochs"], strict=True):
        assert row == pytest.approx(same, abs=1e-3)


@pytest.mark.slow
@pytest.mark.distributed
@pytest.mark.skipif(not Path("/proc/self/task").is_dir(), reason="needs Linux's list of children")
def test_torchrun_starts_again_where_a_killed_rank_left_a_checkpoint(alone, tmp_path):
    # --overwrite must not throw away what the first attempt has done.
    options = ("--checkpoint-every", "0", "--overwrite")
    process = start_torchrun(
        *TRAIN, "--out", str(tmp_path / "run"), *options, options=("--max-restarts=1",)
    )
    wait_for_step(tmp_path / "run", 30)
    os.kill(find_started(process)[1], signal.SIGKILL)
    out, errors = process.communicate()
    assert process.returncode == 0, errors
    assert "resumed at step" in out
    assert out.count("epoch 4/4") == out.count("weights. To use them") == 1  # one voice
    check_alike(tmp_path / "run", alone)


@pytest.mark.slow
@pytest.mark.distributed
def test_ranks_that_are_started_again_forget_where_earlier_ones_were(tmp_path):
    script = tmp_path / "script.py"
    script.write_text(LATE)
    out, errors = start_torchrun(str(script), options=("--max-restarts=1",)).communicate(
        timeout=120
    )
    assert "met [0, 1]" in out, errors


@pytest.mark.slow
@pytest.mark.distributed
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_to_torchrun_leaves_a_checkpoint_of_the_last_step(number, alone, tmp_path):
    process = start_torchrun(*TRAIN, "--out", str(tmp_path), "--checkpoint-every", "0.2")
    wait_for_step(tmp_path, 20)
    process.send_signal(number)
    _, errors = process.communicate()
    assert process.returncode != 0
    step = TrainingFolder(tmp_path).read_step()
    assert f"continues at step {step}" in errors
    assert main([*TRAIN[2:], "--out", str(tmp_path)]) == 0
    check_alike(tmp_path, alone)


@pytest.mark.slow
@pytest.mark.distributed
def test_a_mistake_of_one_rank_is_told_by_that_rank(tmp_path):
    script = tmp_path / "script.py"
    script.write_text(SCRIPT)
    process = start_torchrun(str(script), "--out", str(tmp_path / "run"))
    _, errors = process.communicate(timeout=60)
    assert process.returncode == 1
    assert "mirrormargin, rank 1: error: --data: the file nowhere.csv does not exist\n" in errors
    assert errors.count("mirrormargin: error") == 0


@pytest.mark.slow
@pytest.mark.distributed
def test_a_mistake_of_all_ranks_is_told_once():
    process = start_torchrun(*TRAIN[:3], "digits/tinny")
    _, errors = process.communicate(timeout=60)
    assert process.returncode == 1
    assert errors.count("there is no configuration 'digits/tinny'") == 1


def test_parallel_needs_torchrun(capsys, tmp_path):
    assert main(["train", "digits/tiny", "--parallel", "fsdp", "--out", str(tmp_path / "run")]) == 2
    error = capsys.readouterr().err
    assert error.count("\n") == 1
    assert "torchrun --nproc-per-node 2 -m mirrormargin train" in error
    assert not (tmp_path / "run").exists()


def test_a_misspelt_way_is_corrected(capsys):
    assert main(["train", "digits/tiny", "--parallel", "fspd"]) == 2
    assert 'Did you mean "fsdp"?' in capsys.readouterr().err
    with pytest.raises(TrainingError, match="parallel"):
        choose_parallel("fspd")


def test_torchruns_variables_are_all_needed():
    assert find_launch(LAUNCHED) == Launch(rank=1, count=2, local_rank=1, restarts=0)
    assert find_launch({**LAUNCHED, "TORCHELASTIC_RESTART_COUNT": "2"}).restarts == 2
    assert find_launch({**LAUNCHED, "RANK": "first"}) is None
    for name in LAUNCHED:
        assert find_launch({key: value for key, value in LAUNCHED.items() if key != name}) is None


def test_ddp_is_what_torchrun_gets(monkeypatch):
    assert choose_parallel(None) is None
    for name, value in LAUNCHED.items():
        monkeypatch.setenv(name, value)
    assert [choose_parallel(way) for way in (None, "ddp", "fsdp")] == ["ddp", "ddp", "fsdp"]


def test_another_rank_than_the_first_waits_before_it_speaks(monkeypatch, capsys):
    waited = []
    monkeypatch.setattr(ranks.time, "sleep", waited.append)
    assert ranks.wait_for_first("mirrormargin: error", TrainingError()) == "mirrormargin: error"
    for name, value in LAUNCHED.items():
        monkeypatch.setenv(name, value)
    assert ranks.wait_for_first("x", RankError()) == "x"
    assert waited == []
    assert main(["train", "digits/tinny"]) == 2
    assert capsys.readouterr().err.startswith("mirrormargin, rank 1: error: there is no")
    assert waited == [ranks.PATIENCE]
