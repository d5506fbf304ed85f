"""A disk that is full: the file is named with the remedy, and resuming makes the same table."""

import re
import shutil
import subprocess

import pytest

pytest.importorskip("pyarrow", reason="pyarrow is not installed: mirrormargin[sweep]")

from sweep_tables import same_bits

from mirrormargin.errors import RunError
from mirrormargin.sweep import LabGrid, SweepFolder, resume_sweep, run_sweep

GRID = LabGrid(seed="1-40", p=[2.0, 3.0], num_steps=3)
HERE = {"workers": 0, "most": 4}
LARGE = "16m"


@pytest.fixture
def disk(tmp_path):
    """A small one of its own."""
    path = tmp_path / "disk"
    path.mkdir()
    mount = shutil.which("mount")
    command = [str(mount), "-t", "tmpfs", "-o", f"size={LARGE}", "tmpfs", str(path)]
    if mount is None or subprocess.run(command, capture_output=True).returncode:
        pytest.skip("no file system can be mounted here")
    yield path
    subprocess.run(["umount", str(path)], check=True)


def resize(disk, size):
    subprocess.run(["mount", "-o", f"remount,size={size}", str(disk)], check=True)


@pytest.mark.parametrize("size", ["4k", "36k", "150k", "250k"])
def test_a_full_disk_is_told_and_loses_nothing(disk, tmp_path, size):
    whole = run_sweep(GRID, tmp_path / "whole", **HERE).read_table()
    resize(disk, size)
    with pytest.raises(RunError) as caught:
        run_sweep(GRID, disk / "sweep", **HERE)
    assert re.match(rf"{disk}/sweep/.+: No space left on device", str(caught.value))
    if "/fresh/" in str(caught.value):
        assert "make room, and mirrormargin sweep resume computes the rest" in str(caught.value)
    resize(disk, LARGE)
    if SweepFolder(disk / "sweep").exists:
        kept = SweepFolder(disk / "sweep").read_table()
        assert same_bits(kept, whole.take(kept["run"]))
        found = resume_sweep(disk / "sweep", **HERE)
    else:
        found = run_sweep(GRID, disk / "sweep", **HERE)
    assert same_bits(found.read_table(), whole)


def test_a_disk_without_room_for_merging_keeps_the_rows_where_they_are(disk, tmp_path):
    whole = run_sweep(GRID, tmp_path / "whole", **HERE).read_table()

    def fill(progress):
        if progress.done == 80:
            used = shutil.disk_usage(disk).used
            resize(disk, used)

    with pytest.raises(RunError, match=r"part-000000\.parquet cannot be written: No space left"):
        run_sweep(GRID, disk / "sweep", progress=fill, **HERE)
    kept = SweepFolder(disk / "sweep")
    assert (len(kept.done), len(kept.fresh), kept.table) == (80, 20, [])
    assert same_bits(kept.read_table(), whole)
    resize(disk, LARGE)
    assert same_bits(resume_sweep(disk / "sweep", **HERE).read_table(), whole)
