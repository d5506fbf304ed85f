"""Several ranks train what one process trains, whatever is trained, and however they end."""

import random
from dataclasses import replace

import pytest
import torch
from rank_processes import FAILED, FINISHED, LOST, STOPPED, RankServer

from mirrormargin.errors import TrainingError
from mirrormargin.training.building import load_training_data
from mirrormargin.training.config import (
    DataConfig,
    EncoderModel,
    GradualPruning,
    L1Penalty,
    OptimizerConfig,
    Powerpropagation,
    Schedule,
    TextModel,
    TrainingConfig,
)
from mirrormargin.training.configurations import find_configuration
from mirrormargin.training.distributed import Ranks, check_shared
from mirrormargin.training.folder import TrainingFolder
from mirrormargin.training.loop import train_model
from mirrormargin.training.reviews import REVIEWS

pytestmark = pytest.mark.distributed

# 50 steps of 31 images: neither two nor three ranks can share them evenly.
DIGITS = find_configuration(
    "digits/tiny", {"epochs": 2, "batch_size": 31, "data.num_train": 800, "attention_size": 40}
)
RANDOM = {"model": replace(DIGITS.model, dropout=0.1), "augment": True}
MIRROR = OptimizerConfig("MirrorDescent", 1e-2, p=3.0, momentum=0.9)
SUM = {"reduction": "sum", "clip": 2.0, "sparsifier": L1Penalty(1e-4)}
TRAININGS = {
    "MirrorAdam": DIGITS,
    "MirrorDescent": replace(DIGITS, **RANDOM, optimizer=MIRROR, clip=0.3),
    "AdamW": replace(DIGITS, **RANDOM, **SUM, optimizer=OptimizerConfig("AdamW", 1e-3)),
    # So near to p = 1, biases that start at zero have dual variables and stay zero.
    "pruning": replace(
        DIGITS,
        optimizer=replace(
            DIGITS.optimizer, groups=(("blocks.*norm.bias", {"p": 1.005, "lr": 1e-4}),)
        ),
        sparsifier=GradualPruning(0.9),
        paper_protocol=True,
    ),
    "schedule": replace(
        DIGITS, optimizer=replace(DIGITS.optimizer, p=1.5), sparsifier=Schedule(0.8, every=5)
    ),
}
WITH_NORMS = {
    "SNGD": replace(DIGITS, optimizer=OptimizerConfig("SNGD", 1e-2)),
    "Polyak": replace(DIGITS, optimizer=OptimizerConfig("Polyak", 0.5, p=1.5, max_lr=0.1)),
    "rms": replace(DIGITS, optimizer=replace(MIRROR, scale="rms")),
}
POWERS = replace(DIGITS, sparsifier=Powerpropagation(2.0))
TOLERANCE = {True: 1e-12, False: 1e-6}  # in float64 or not


@pytest.fixture(scope="module")
def server():
    server = RankServer()
    yield server
    server.close()


@pytest.fixture(scope="module")
def find_alone(server, tmp_path_factory):
    """A function to what one process trains, and its folder."""
    known = {}

    def find(config, double):
        key = (config.digest(), double)
        if key not in known:
            folder = tmp_path_factory.mktemp("alone") / "run"
            known[key] = server.train(config, folder, double=double), folder
        return known[key]

    return find


@pytest.fixture(scope="module")
def texts(tmp_path_factory):
    """Texts of different lengths, with dropout of every sort."""
    path = tmp_path_factory.mktemp("texts") / "reviews.csv"
    rows = [
        f"{one.text.replace(',', '')} {'and so on ' * (k % 4)},{one.label}"
        for k, one in enumerate(REVIEWS)
    ]
    path.write_text("\n".join(["text,label", *rows]))
    return TrainingConfig(
        name="imdb/small",
        data=DataConfig(str(path), length=20, vocabulary="words"),
        model=TextModel(16, 2, 2, dropout=0.2),
        optimizer=OptimizerConfig("MirrorAdam", 1e-3, p=1.1),
        epochs=10,
        batch_size=9,
        reduction="sum",
    )


def read_tensors(folder, name="final"):
    return TrainingFolder(folder).read_weights(name)[0]


def measure_difference(folder, other):
    one, two = read_tensors(folder), read_tensors(other)
    assert one.keys() == two.keys()
    return max(float((one[name] - two[name]).abs().max()) for name in one)


def check_alike(server, find_alone, config, folder, parallel, count, double=True):
    alone, home = find_alone(config, double)
    found = server.train(config, folder, parallel, count, double=double)
    assert found.codes == [FINISHED] * count
    assert alone.steps == found.steps == list(range(1, len(alone.steps) + 1))
    assert found.losses == pytest.approx(alone.losses, rel=TOLERANCE[double], abs=0)
    assert found.underflowed == alone.underflowed
    if double:
        assert measure_difference(folder, home) < 1e-12
        # Validation and attention too, and the same epoch is selected.
        assert TrainingFolder(folder).read_metrics() == TrainingFolder(home).read_metrics()
        assert {p.name for p in folder.iterdir()} == {p.name for p in home.iterdir()}
    return found


WAYS = [("ddp", 2), ("ddp", 3), ("fsdp", 2), ("fsdp", 3)]
DEFAULT = [
    ("MirrorAdam", "ddp", 2),
    ("pruning", "fsdp", 2),
]


@pytest.mark.parametrize(
    ("name", "parallel", "count"),
    [
        pytest.param(name, *way, marks=() if (name, *way) in DEFAULT else pytest.mark.slow)
        for name in TRAININGS
        for way in WAYS
    ],
)
def test_ranks_train_what_one_process_trains(name, parallel, count, server, find_alone, tmp_path):
    found = check_alike(server, find_alone, TRAININGS[name], tmp_path / "run", parallel, count)
    assert (found.underflowed > 0) == (name == "pruning")


@pytest.mark.slow
@pytest.mark.parametrize(("parallel", "count"), [("ddp", 2), ("fsdp", 3)])
@pytest.mark.parametrize("name", WITH_NORMS)
def test_norms_are_those_of_whole_tensors(name, parallel, count, server, find_alone, tmp_path):
    check_alike(server, find_alone, WITH_NORMS[name], tmp_path / "run", parallel, count)


@pytest.mark.slow
def test_ddp_takes_powers_of_weights(server, find_alone, tmp_path):
    check_alike(server, find_alone, POWERS, tmp_path / "run", "ddp", 2)


@pytest.mark.parametrize("parallel", ["ddp", pytest.param("fsdp", marks=pytest.mark.slow)])
def test_float32_differs_by_rounding_alone(parallel, server, find_alone, tmp_path):
    check_alike(server, find_alone, DIGITS, tmp_path / "run", parallel, 2, double=False)


@pytest.mark.parametrize("parallel", ["fsdp", pytest.param("ddp", marks=pytest.mark.slow)])
def test_texts_of_all_lengths_are_dropped_from_alike(parallel, server, find_alone, texts, tmp_path):
    check_alike(server, find_alone, texts, tmp_path / "run", parallel, 2)


@pytest.mark.data
@pytest.mark.slow
@pytest.mark.parametrize("parallel", ["ddp", "fsdp"])
def test_a_language_model_is_the_same(parallel, server, find_alone, real_data, tmp_path):
    changes = {"epoch_steps": 20, "epochs": 1, "validation_size": 60, "batch_size": 5}
    config = find_configuration("shakespeare/char", changes)
    check_alike(server, find_alone, config, tmp_path / "run", parallel, 2)


# Two moments in the default run; ten more, with three ranks too.
KILLED = [("ddp", 2), ("fsdp", 2), *WAYS, *WAYS, *WAYS[::2]]


@pytest.mark.parametrize(
    ("seed", "parallel", "count"),
    [
        pytest.param(seed, *way, marks=() if seed < 1 else pytest.mark.slow)
        for seed, way in enumerate(KILLED)
    ],
)
def test_a_killed_rank_ends_the_others_and_costs_nothing(seed, parallel, count, server, tmp_path):
    generator = random.Random(seed)
    config = replace(TRAININGS["MirrorDescent"], epochs=1)
    # DDP adds in another order after its first step; the sum of two numbers has one order.
    has_same_bits = parallel == "fsdp" or count == 2
    options = {"checkpoint_every": 0, "double": not has_same_bits}
    whole, killed = tmp_path / "whole", tmp_path / "killed"
    assert server.train(config, whole, parallel, count, **options).codes == [FINISHED] * count
    rank = generator.randrange(count)
    kill = (rank, generator.uniform(1, 20))
    found = server.train(config, killed, parallel, count, kill=kill, **options)
    assert found.codes == [-9 if one == rank else LOST for one in range(count)]
    again = server.train(config, killed, parallel, count, **options)
    assert again.codes == [FINISHED] * count
    assert 0 <= found.steps[-1] + 1 - again.steps[0] <= 2
    assert (killed / "metrics.jsonl").read_bytes() == (whole / "metrics.jsonl").read_bytes()
    assert measure_difference(killed, whole) <= (0 if has_same_bits else 1e-12)


def test_a_rank_that_raises_ends_the_others(server, tmp_path):
    found = server.train(DIGITS, tmp_path, "ddp", 3, fail=[1, 4])
    assert found.codes == [LOST, FAILED, LOST]
    assert found.steps == [1, 2, 3, 4]


def test_a_training_is_resumed_by_any_number_of_ranks(server, find_alone, tmp_path):
    config = TRAININGS["MirrorDescent"]
    alone, home = find_alone(config, True)
    courses = [
        server.train(config, tmp_path, double=True, interrupt=[0, 9]),
        server.train(config, tmp_path, "fsdp", 2, double=True, interrupt=[1, 21]),  # any rank's
        server.train(config, tmp_path, "ddp", 3, double=True, interrupt=[0, 38]),
        server.train(config, tmp_path, double=True),
    ]
    codes = [code for one in courses for code in one.codes]
    assert codes == [STOPPED] * 6 + [FINISHED]
    assert [step for one in courses for step in one.steps] == alone.steps
    assert measure_difference(tmp_path, home) < 1e-12


def test_fsdp_refuses_powers_of_weights():
    data = load_training_data(POWERS)
    ranks = Ranks("cpu")
    check_shared(POWERS, data, ranks)
    ranks.parallel = "fsdp"
    with pytest.raises(TrainingError, match="Powerpropagation is not supported with fsdp"):
        check_shared(POWERS, data, ranks)


def test_ranks_that_cannot_share_a_training_are_refused():
    data = load_training_data(DIGITS)
    ranks = Ranks("cpu")
    ranks.count = 32
    with pytest.raises(TrainingError, match="batches of 31 cannot be shared by 32 ranks"):
        check_shared(DIGITS, data, ranks)
    ranks.count = 2
    ranks.gather = lambda mine: [mine, ("other", {})]
    with pytest.raises(TrainingError, match="different settings or data"):
        check_shared(DIGITS, data, ranks)


def test_train_model_says_that_it_needs_torchrun(tmp_path):
    with pytest.raises(TrainingError, match="was started alone: start several with torchrun"):
        train_model(DIGITS, folder=tmp_path / "run", parallel="ddp")
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize("count", [1, 2, 3, 5])
def test_every_row_of_a_batch_belongs_to_one_rank(count):
    ranks, sizes, rows = Ranks("cpu"), [], []
    ranks.count = count
    for ranks.rank in range(count):
        own = list(range(31))[ranks.find_rows(31)]
        sizes.append(len(own))
        rows += own
    assert rows == list(range(31))
    assert max(sizes) - min(sizes) <= 1


@pytest.mark.slow
def test_an_encoder_draws_other_masks_and_the_same_ones_again(server, tmp_path, real_data):
    """Its dropout is not ours: ranks drop other entries than one process, from the same seeds."""
    config = TrainingConfig(
        name="mnli-subset/minilm",
        data=DataConfig("mnli-subset", length=48, num_train=40),
        model=EncoderModel(),
        optimizer=OptimizerConfig("AdamW", 1e-4),
        epochs=1,
        batch_size=4,
        validation_size=8,
    )
    runs = [server.train(config, tmp_path / f"{k}", "ddp", 2) for k in range(2)]
    assert runs[0].losses == runs[1].losses
    server.train(config, tmp_path / "ended", "ddp", 2, interrupt=[0, 5])
    server.train(config, tmp_path / "ended", "ddp", 2)
    assert measure_difference(tmp_path / "0", tmp_path / "ended") == 0
    without = replace(config, model=EncoderModel(dropout=0.0))
    alone, shared = (
        server.train(without, tmp_path / f"{way}", way, count)
        for way, count in ((None, 1), ("ddp", 2))
    )
    assert shared.losses == pytest.approx(alone.losses, rel=1e-5)
    assert torch.isfinite(torch.tensor(shared.losses)).all()
