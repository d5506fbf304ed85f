"""A training of a second that trackers follow."""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path

from mirrormargin.training import TrainingFolder
from mirrormargin.training.config import DataConfig, ImageModel, OptimizerConfig, TrainingConfig

CONFIG = TrainingConfig(
    name="digits/tiny",
    data=DataConfig("digits", num_train=100),
    model=ImageModel(4, 16, 2, 2, 32, dropout=0.0),
    optimizer=OptimizerConfig("SGD", 0.05),
    epochs=2,
    batch_size=30,
    attention_size=10,
)


def interrupt_at(last):
    """For ``on_step``: end after that step."""

    def end(step, *_):
        if step == last:
            raise KeyboardInterrupt

    return end


# The row of the last step has been told, and its checkpoint is not yet there.
KILLED = """
import os, sys
sys.path.insert(0, {here!r})
from tracked_training import CONFIG
from mirrormargin.data import load_data
from mirrormargin.training import TensorBoardTracker, train_model

def end(step, *_):
    if step == {last}:
        os.kill(os.getpid(), 9)

{imports}
data = load_data("digits", num_train=100)
train_model(CONFIG, data, {folder!r}, checkpoint_every=0.0, trackers=[{tracker}], on_step=end)
"""


def train_until_killed(folder, tracker, last, imports=""):
    """In a process of its own, which is killed in that step."""
    here = str(Path(__file__).parent)
    program = KILLED.format(
        here=here, last=last, imports=imports, folder=str(folder), tracker=tracker
    )
    ended = subprocess.run([sys.executable, "-c", program], timeout=300)
    assert ended.returncode == -signal.SIGKILL


def list_values(folder):
    """Name, step and value of every number in the metrics of a folder."""
    found = []
    for row in TrainingFolder(folder).read_metrics():
        kind, step = row.pop("kind"), row.pop("step")
        row.pop("epoch", None)
        for name, value in row.items():
            layers = value if isinstance(value, list) else [value]
            for layer, one in enumerate(layers):
                more = f"/{layer}" if isinstance(value, list) else ""
                found.append((f"{kind}/{name}{more}", step, one))
    return found
