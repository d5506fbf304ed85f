"""Checkpoints: tensors and documents come back, optimizers take the same next step."""

import pytest
import torch
from torch import nn

from mirrormargin.errors import TrainingError
from mirrormargin.training.building import build_optimizer, load_training_data
from mirrormargin.training.checkpoint import (
    capture_random_state,
    flatten_optimizer,
    restore_optimizer,
    restore_random_state,
)
from mirrormargin.training.config import (
    OPTIMIZERS,
    DataConfig,
    GradualPruning,
    ImageModel,
    OptimizerConfig,
    TrainingConfig,
)
from mirrormargin.training.folder import TrainingFolder
from mirrormargin.training.loop import train_model
from mirrormargin.training.tensor_files import read_tensors, write_tensors


def test_tensors_and_document_come_back(tmp_path):
    tensors = {
        "float": torch.tensor([1.5, -0.0, float("inf")]),
        "mask": torch.tensor([True, False]),
        "bytes": torch.arange(5, dtype=torch.uint8),
        "turned": torch.arange(6.0, dtype=torch.float64).view(2, 3).T,
        "scalar": torch.tensor(3),
    }
    document = {"a": [1, 2.5, None, "ä"], "b": {"c": True}}
    write_tensors(tmp_path / "x", tensors, document)
    found, read = read_tensors(tmp_path / "x")
    assert read == document
    assert found.keys() == tensors.keys()
    for name, tensor in tensors.items():
        assert found[name].dtype == tensor.dtype
        assert torch.equal(found[name], tensor)


def test_missing_file_is_named(tmp_path):
    with pytest.raises(TrainingError, match=r"nothing\.safetensors does not exist"):
        read_tensors(tmp_path / "nothing.safetensors")


@pytest.mark.parametrize("damage", ["cut", "empty", "noise", "plain"])
def test_damaged_file_is_named(tmp_path, damage):
    path = tmp_path / "x.safetensors"
    write_tensors(path, {"a": torch.ones(100)}, {})
    whole = path.read_bytes()
    if damage == "plain":  # safetensors of someone else, without our document
        from safetensors.torch import save_file

        save_file({"a": torch.ones(2)}, path)
    else:
        path.write_bytes({"cut": whole[:-7], "empty": b"", "noise": b"\xff" * 300}[damage])
    with pytest.raises(TrainingError, match=r"x\.safetensors is damaged"):
        read_tensors(path)


def make_model():
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(6, 5), nn.Tanh(), nn.Linear(5, 3))


def take_steps(model, optimizer, first, count):
    for step in range(first, first + count):
        generator = torch.Generator().manual_seed(step)
        loss = model(torch.randn(8, 6, generator=generator)).square().mean()
        optimizer.zero_grad()
        loss.backward()
        if any(group.get("step_rule") == "polyak" for group in optimizer.param_groups):
            optimizer.step(loss=float(loss.detach()))
        else:
            optimizer.step()


@pytest.mark.parametrize(
    ("name", "momentum"),
    [*((name, 0.0) for name in OPTIMIZERS), ("MirrorDescent", 0.9), ("SGD", 0.9), ("SNGD", 0.9)],
)
def test_restored_optimizer_takes_the_same_steps_to_the_bit(name, momentum, tmp_path):
    options = {"p": 1.1} if name in ("MirrorDescent", "MirrorAdam") else {}
    config = OptimizerConfig(name, 0.01, momentum=momentum, weight_decay=0.01, **options)
    model = make_model()
    optimizer = build_optimizer(config, model)
    take_steps(model, optimizer, 0, 3)
    tensors, rest = flatten_optimizer(optimizer)
    weights = {f"model/{name}": weight for name, weight in model.state_dict().items()}
    write_tensors(tmp_path / "x", tensors | weights, rest)
    take_steps(model, optimizer, 3, 3)

    found, rest = read_tensors(tmp_path / "x")
    other = make_model()
    fresh = build_optimizer(config, other)
    loaded = {n.removeprefix("model/"): w for n, w in found.items() if n.startswith("model/")}
    other.load_state_dict(loaded)
    state = {name: w for name, w in found.items() if not name.startswith("model/")}
    restore_optimizer(fresh, state, rest)
    take_steps(other, fresh, 3, 3)
    for one, two in zip(model.parameters(), other.parameters(), strict=True):
        assert torch.equal(one, two)


def test_random_numbers_go_on_where_they_were():
    with torch.random.fork_rng():
        state = capture_random_state("cpu")
        wanted = torch.randn(5)
        restore_random_state(state, "cpu")
        assert torch.equal(torch.randn(5), wanted)


CONFIG = TrainingConfig(
    name="digits/tiny",
    data=DataConfig("digits", num_train=60),
    model=ImageModel(4, 8, 1, 2, 8, dropout=0.0),
    optimizer=OptimizerConfig("MirrorAdam", 3e-3, p=1.5),
    epochs=2,
    batch_size=20,
    sparsifier=GradualPruning(0.5),
)


@pytest.fixture(scope="module")
def data():
    return load_training_data(CONFIG)


@pytest.fixture
def stopped(data, tmp_path):
    """A training that was stopped in the middle, and its checkpoint."""

    def stop(step, num_steps, known):
        if step == 4:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        train_model(CONFIG, data, tmp_path, on_step=stop)
    folder = TrainingFolder(tmp_path)
    return folder, *folder.read_checkpoint()


def put(*keys, value):
    def change(parts, document):
        inner = document
        for key in keys[:-1]:
            inner = inner[key]
        inner[keys[-1]] = value

    return change


def spoil(part, change):
    def change_all(parts, document):
        parts[part] = {name: change(tensor) for name, tensor in parts[part].items()}

    return change_all


@pytest.mark.parametrize(
    "change",
    [
        put("optimizer", "groups", 0, "p", value=3.0),
        put("optimizer", "groups", 0, "betas", value=[0.5, 0.9]),
        put("position", "step", value=3),
        put("position", "step", value=4.0),
        put("position", "batch", value=-1),
        put("position", "epoch_loss", value=float("nan")),
        put("position", "recent", value=[float("inf")]),
        put("digest", value="0"),
        spoil("model", lambda tensor: torch.full_like(tensor, float("nan"))),
        spoil("optimizer", lambda tensor: tensor.reshape(-1)[:1]),
        spoil("sparsifier", lambda tensor: tensor[:1]),
    ],
    ids=range(11),
)
def test_a_checkpoint_that_this_training_cannot_have_written_is_refused(stopped, data, change):
    folder, parts, document = stopped
    change(parts, document)
    folder.write_checkpoint(parts, document)  # its checksum is right
    with pytest.raises(TrainingError, match="does not fit this training"):
        train_model(CONFIG, data, folder)


def test_a_checkpoint_that_is_written_again_resumes(stopped, data):
    folder, parts, document = stopped
    folder.write_checkpoint(parts, document)
    assert len(train_model(CONFIG, data, folder).epochs) == 2
