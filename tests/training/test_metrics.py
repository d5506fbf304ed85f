"""The metrics file: rows in, rows out, cut back to a checkpoint, damage."""

import pytest

from mirrormargin.errors import TrainingError
from mirrormargin.training.folder import TrainingFolder
from mirrormargin.training.metrics import read_rows


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


def test_every_flipped_bit_of_a_row_is_noticed(tmp_path):
    size = write_rows(tmp_path, [1, 2, 3])
    path = tmp_path / "metrics.jsonl"
    whole = path.read_bytes()
    right = TrainingFolder(tmp_path).read_metrics()
    last = whole[:-1].rindex(b"\n") + 1
    for bit in range(8 * size):
        damaged = bytearray(whole)
        damaged[bit // 8] ^= 1 << bit % 8
        path.write_bytes(damaged)
        try:
            found = TrainingFolder(tmp_path).read_metrics()
        except TrainingError:
            continue
        # As if the writer had been killed in the last line; a checkpoint would tell.
        assert bit // 8 >= last
        assert found == right[:2]


def test_a_row_that_was_taken_out_is_noticed(tmp_path):
    write_rows(tmp_path, [1, 2, 3])
    path = tmp_path / "metrics.jsonl"
    lines = path.read_bytes().splitlines(keepends=True)
    for changed in ([lines[0], lines[2]], lines[1:], [lines[1], lines[0], lines[2]]):
        path.write_bytes(b"".join(changed))
        with pytest.raises(TrainingError, match="is damaged in line"):
            TrainingFolder(tmp_path).read_metrics()


def test_rows_that_the_checkpoint_knows_of_must_be_there(tmp_path):
    size = write_rows(tmp_path, [1, 2, 3])
    path = tmp_path / "metrics.jsonl"
    lines = path.read_bytes().splitlines(keepends=True)
    path.write_bytes(b"".join(lines[:2]))
    assert len(read_rows(path)) == 2
    with pytest.raises(TrainingError, match="shorter than its checkpoint"):
        read_rows(path, size)


@pytest.mark.filterwarnings("default")
def test_rows_of_an_earlier_version_are_read_with_a_notice_and_continued(tmp_path):
    path = tmp_path / "metrics.jsonl"
    path.write_text('{"kind": "steps", "step": 1}\n{"kind": "steps", "step": 2}\n')
    with pytest.warns(UserWarning, match="2 rows of .* have no checksum"):
        write_rows(tmp_path, [3, 4], path.stat().st_size)
    with pytest.warns(UserWarning, match="2 rows of .* have no checksum"):
        rows = TrainingFolder(tmp_path).read_metrics()
    assert [row["step"] for row in rows] == [1, 2, 3, 4]
    lines = path.read_bytes().splitlines(keepends=True)
    path.write_bytes(b"".join([*lines[:3], lines[0]]))
    with pytest.raises(TrainingError, match="is damaged in line 4"):
        TrainingFolder(tmp_path).read_metrics()
