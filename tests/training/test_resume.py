"""Killed trainings go on to the same bits, whatever was trained and wherever they were."""

from dataclasses import replace
from itertools import pairwise

import pytest
from killed_training import FINISHED, TrainingServer

from mirrormargin.training.building import load_training_data
from mirrormargin.training.config import (
    DataConfig,
    GradualPruning,
    ImageModel,
    L1Penalty,
    OptimizerConfig,
    Powerpropagation,
    Schedule,
    TrainingConfig,
)
from mirrormargin.training.folder import TrainingFolder
from mirrormargin.training.loop import train_model

# Dropout and augmentation draw random numbers; the rate changes in every step.
BASE = TrainingConfig(
    name="digits/tiny",
    data=DataConfig("digits", num_train=200),
    model=ImageModel(4, 16, 1, 2, 32, dropout=0.1),
    optimizer=OptimizerConfig("AdamW", 3e-3, weight_decay=0.01),
    epochs=6,
    batch_size=20,
    schedule="cosine",
    warmup=0.1,
    augment=True,
)
MIRROR = OptimizerConfig("MirrorDescent", 1e-2, p=1.1)
ADAM = OptimizerConfig("MirrorAdam", 3e-3, p=1.1)
TRAININGS = {
    "MirrorDescent": replace(BASE, optimizer=MIRROR, clip=1.0),
    "MirrorDescent-momentum-rms-groups": replace(
        BASE,
        optimizer=replace(
            MIRROR, momentum=0.9, scale="rms", groups=(("blocks.*", {"p": 3.0, "lr": 1e-3}),)
        ),
    ),
    "MirrorAdam": replace(BASE, optimizer=ADAM),
    "AdamW": BASE,
    "AdamW-L1-sum": replace(BASE, sparsifier=L1Penalty(1e-4), reduction="sum", clip=5.0),
    "SNGD": replace(BASE, optimizer=OptimizerConfig("SNGD", 1e-2, momentum=0.9)),
    "Polyak": replace(BASE, optimizer=OptimizerConfig("Polyak", 0.5, max_lr=0.1)),
    "pruning": replace(BASE, sparsifier=GradualPruning(0.9)),
    "schedule": replace(BASE, optimizer=ADAM, sparsifier=Schedule(0.9, every=7)),
    "schedule-regrow": replace(
        BASE, optimizer=replace(ADAM, p=1.5), sparsifier=Schedule(0.8, every=7, regrow=0.2)
    ),
    "schedule-units": replace(
        BASE, optimizer=ADAM, sparsifier=Schedule(0.5, every=7, groups="units")
    ),
    "powers": replace(BASE, sparsifier=Powerpropagation(2.0), paper_protocol=True),
}
RESULTS = ("final.safetensors", "selected.safetensors", "metrics.jsonl")


@pytest.fixture(scope="module")
def server():
    server = TrainingServer()
    yield server
    server.close()


def read_results(folder):
    return {name: (folder / name).read_bytes() for name in RESULTS}


# All go through the same checkpoint; these have the most in it, the others are slow tests.
DEFAULT = ("MirrorDescent-momentum-rms-groups", "pruning")


@pytest.mark.parametrize(
    "name",
    [name if name in DEFAULT else pytest.param(name, marks=pytest.mark.slow) for name in TRAININGS],
)
def test_killed_training_ends_at_the_same_bits(name, server, tmp_path):
    config = TRAININGS[name]
    status, steps = server.train(config, tmp_path / "whole")
    assert (status, steps) == (FINISHED, list(range(1, 61)))
    courses = server.train_with_kills(config, tmp_path / "killed", 3, seed=len(name))
    # Every process but the first one went on where a checkpoint was, and none did all the work.
    for before, after in pairwise(courses):
        assert before[-1] <= after[0] <= before[-1] + 2
    assert courses[-1][-1] == 60
    whole, killed = read_results(tmp_path / "whole"), read_results(tmp_path / "killed")
    for part in RESULTS:
        assert killed[part] == whole[part], part


def test_a_training_that_is_told_to_end_loses_no_step(tmp_path):
    data = load_training_data(BASE)
    train_model(BASE, data, tmp_path / "whole")
    steps = []

    def end_at_17(step, *_):
        steps.append(step)
        if steps == list(range(1, 18)):
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        train_model(BASE, data, tmp_path / "ended", checkpoint_every=1e9, on_step=end_at_17)
    train_model(BASE, data, tmp_path / "ended", on_step=end_at_17)
    assert steps == list(range(1, 61))
    assert read_results(tmp_path / "ended") == read_results(tmp_path / "whole")


@pytest.mark.slow
def test_rows_over_several_steps_survive_kills(server, tmp_path):
    # 400 steps: a row is the mean of two, and a checkpoint may lie between them.
    config = replace(BASE, batch_size=5, epochs=10)
    server.train(config, tmp_path / "whole")
    rows = TrainingFolder(tmp_path / "whole").read_metrics("steps")
    assert [row["step"] for row in rows] == list(range(2, 401, 2))
    server.train_with_kills(config, tmp_path / "killed", 2, seed=1)
    assert read_results(tmp_path / "killed") == read_results(tmp_path / "whole")


def test_killed_training_that_is_over_only_reads(server, tmp_path):
    server.train(BASE, tmp_path)
    before = read_results(tmp_path)
    status, steps = server.train(BASE, tmp_path)
    assert (status, steps) == (FINISHED, [])
    assert read_results(tmp_path) == before
