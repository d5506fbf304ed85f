"""The metrics file: rows in, rows out, cut back to a checkpoint, damage."""

import pytest

from mirrormargin.errors import TrainingError
from mirrormargin.training.folder import TrainingFolder


def write_rows(folder, steps, size=0):
    with TrainingFolder(folder).open_metrics(size) as metrics:
        for step in steps:
            metrics.write("steps", step, {"train_loss": step / 3})
        return metrics.flush()


def test_rows_are_read_as_written(tmp_path):
    write_rows(tmp_path, [1, 2])
    assert TrainingFolder(tmp_path).read_metrics() == [
        {"kind": "steps", "step": 1, "train_loss": 1 / 3},
        {"kind": "steps", "step": 2, "train_loss": 2 / 3},
    ]


def test_flush_gives_the_size_that_rows_after_it_are_cut_off_at(tmp_path):
    size = write_rows(tmp_path, [1, 2])
    assert size == (tmp_path / "metrics.jsonl").stat().st_size
    write_rows(tmp_path, [3, 4, 5], size)
    write_rows(tmp_path, [30], size)
    assert [row["step"] for row in TrainingFolder(tmp_path).read_metrics()] == [1, 2, 30]


def test_a_new_training_starts_an_empty_file(tmp_path):
    write_rows(tmp_path, [1, 2])
    write_rows(tmp_path, [7])
    assert [row["step"] for row in TrainingFolder(tmp_path).read_metrics()] == [7]


def test_last_line_that_was_cut_off_is_left_out(tmp_path):
    size = write_rows(tmp_path, [1, 2])
    with open(tmp_path / "metrics.jsonl", "rb+") as file:
        file.truncate(size - 5)
    assert [row["step"] for row in TrainingFolder(tmp_path).read_metrics()] == [1]


def test_damage_elsewhere_is_named(tmp_path):
    write_rows(tmp_path, [1, 2, 3])
    lines = (tmp_path / "metrics.jsonl").read_text().splitlines()
    (tmp_path / "metrics.jsonl").write_text("\n".join([lines[0], lines[1][:9], lines[2]]))
    with pytest.raises(TrainingError, match="line 2"):
        TrainingFolder(tmp_path).read_metrics()


def test_a_file_shorter_than_its_checkpoint_is_refused(tmp_path):
    (tmp_path / "metrics.jsonl").write_text("{}\n")
    with pytest.raises(TrainingError, match="shorter than its checkpoint"):
        TrainingFolder(tmp_path).open_metrics(100)
