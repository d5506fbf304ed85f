"""The folder of a sweep: what is done is what its files say, and a damaged one is named."""

import json
import os
import pathlib
import resource
import signal
from contextlib import contextmanager

import pytest

pytest.importorskip("pyarrow", reason="pyarrow is not installed: mirrormargin[sweep]")

import pyarrow as pa
import pyarrow.parquet as pq
from sweep_tables import same_bits

from mirrormargin.errors import MirrorMarginWarning, RunError, SweepError
from mirrormargin.sweep import (
    LabGrid,
    SweepFolder,
    TrainingGrid,
    plan_sweep,
    read_table,
    resume_sweep,
    run_sweep,
)

GRID = LabGrid(seed="1-12", p=[2.0, 3.0], num_steps=3)
HERE = {"workers": 0, "most": 4}


@pytest.fixture
def folder(tmp_path):
    """A sweep that was stopped after 12 of its 24 runs, then after 16."""
    for stop in (12, 16):
        stop_after(tmp_path / "sweep", stop)
    return tmp_path / "sweep"


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    return run_sweep(GRID, tmp_path_factory.mktemp("whole"), **HERE).read_table()


def stop_after(folder, count):
    def stop(progress):
        if progress.done >= count:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        run_sweep(GRID, folder, progress=stop, **HERE)


def test_an_interrupted_sweep_is_valid_and_resumes_to_the_same_table(folder, whole):
    kept = SweepFolder(folder)
    assert (len(kept.done), kept.size, kept.failed) == (16, 24, 0)
    assert [path.name for path in sorted((folder / "table").iterdir())] == [
        "part-000000.parquet",
        "part-000001.parquet",
    ]
    assert not (folder / "fresh").exists()
    assert same_bits(kept.read_table(), whole.slice(0, 16))
    assert same_bits(resume_sweep(folder, **HERE).read_table(), whole)


def test_what_is_done_is_not_run_again(folder, whole, monkeypatch):
    from mirrormargin.sweep import lab_runs

    computed = []
    real = lab_runs.list_settings

    def note(product, first, stop):
        computed.extend(range(first, stop))
        return real(product, first, stop)

    monkeypatch.setattr(lab_runs, "list_settings", note)
    run_sweep(GRID, folder, **HERE)
    assert computed == list(range(16, 24))
    run_sweep(GRID, folder, **HERE)
    assert len(computed) == 8


def test_a_larger_grid_adds_what_is_new_and_numbers_stay(folder, whole):
    larger = LabGrid(seed="1-15", p=[2.0, 3.0, 4.0], num_steps=3)
    assert plan_sweep(larger, folder).total == 45
    grown = run_sweep(larger, folder, **HERE)
    table = grown.read_table()
    assert same_bits(table.slice(0, 24), whole)
    runs = {(row["seed"], row["p"]) for row in table.select(["seed", "p"]).to_pylist()}
    assert runs == {(seed, p) for seed in range(1, 16) for p in (2.0, 3.0, 4.0)}
    assert table.num_rows == 45


def test_the_folder_of_the_table_is_read_by_others(folder, whole):
    read = pq.read_table(folder / "table").sort_by("run")
    assert same_bits(read, whole.slice(0, 16))
    columns = read_table(folder, ["p", "divergence"])
    assert columns.column_names == ["p", "divergence"]
    with pytest.raises(RunError, match="no column 'diverge': did you mean divergence"):
        read_table(folder, ["diverge"])


def test_many_fresh_files_become_a_part(tmp_path, whole, monkeypatch):
    from mirrormargin.sweep import folder as module

    monkeypatch.setattr(module, "FRESH_FILES", 4)
    seen = []

    def look(progress):
        seen.append([len(list((tmp_path / name).glob("*"))) for name in ("fresh", "table")])

    swept = run_sweep(GRID, tmp_path, progress=look, **HERE)
    assert seen == [[0, 0], [1, 0], [2, 0], [3, 0], [0, 1], [1, 1], [2, 1]]
    assert same_bits(swept.read_table(), whole)


def test_a_kill_between_the_two_steps_of_merging_counts_nothing_twice(tmp_path, whole):
    pid = os.fork()
    if pid == 0:
        pathlib.Path.unlink = lambda path: os.kill(os.getpid(), signal.SIGKILL)
        try:
            run_sweep(GRID, tmp_path, **HERE)
        finally:
            os._exit(1)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == -signal.SIGKILL
    fresh = sorted((tmp_path / "fresh").iterdir())
    assert len(fresh) == 6
    assert pq.read_table(tmp_path / "table").num_rows == 24
    assert same_bits(read_table(tmp_path), whole)
    assert same_bits(resume_sweep(tmp_path, **HERE).read_table(), whole)
    assert not (tmp_path / "fresh").exists()


@pytest.mark.parametrize("kept", [0.0, 0.5, 0.99])
def test_a_truncated_part_is_named_with_its_remedy(folder, whole, kept):
    path = folder / "table" / "part-000000.parquet"
    os.truncate(path, int(kept * path.stat().st_size))
    for use in (lambda: resume_sweep(folder, **HERE), lambda: read_table(folder)):
        with pytest.raises(RunError) as caught:
            use()
        assert str(caught.value).startswith(f"{path} is damaged")
        assert str(caught.value).endswith(
            "restore a copy of it, or remove it, and mirrormargin sweep resume computes its runs"
            " again"
        )
    path.unlink()
    assert len(SweepFolder(folder).done) == 4
    assert same_bits(resume_sweep(folder, **HERE).read_table(), whole)


def test_a_flipped_bit_is_noticed(folder):
    path = folder / "table" / "part-000000.parquet"
    contents = bytearray(path.read_bytes())
    start = contents.find(b"PAR1") + 4
    missed, named = [], []
    for place in range(start, len(contents), max(1, len(contents) // 97)):
        contents[place] ^= 4
        path.write_bytes(contents)
        try:
            missed.append(read_table(folder))
        except RunError as error:
            named.append(str(path) in str(error))
        contents[place] ^= 4
    path.write_bytes(contents)
    right = read_table(folder)
    assert all(named)
    assert len(named) > 50
    assert all(same_bits(table, right) for table in missed)  # statistics, the name of the writer


def test_the_document_is_made_again_from_the_table(folder, whole):
    path = folder / "sweep.json"
    path.write_text(path.read_text()[:-40])
    with pytest.raises(RunError) as caught:
        resume_sweep(folder, **HERE)
    assert f"{path} is damaged" in str(caught.value)
    assert "or remove it: it is made again from the table" in str(caught.value)
    path.unlink()
    assert same_bits(resume_sweep(folder, **HERE).read_table(), whole)
    assert json.loads(path.read_text())["runs"] == "lab"


def test_other_versions_are_told(folder, monkeypatch):
    from mirrormargin.sweep import running

    monkeypatch.setattr(
        running, "list_versions", lambda: SweepFolder(folder).versions | {"numba": "9"}
    )
    with pytest.warns(MirrorMarginWarning, match=r"was begun with numba .*, now 9: new rows may"):
        resume_sweep(folder, **HERE)


def test_files_that_do_not_belong_there_are_named(folder, tmp_path):
    part = folder / "table" / "part-000000.parquet"
    copy = part.with_name("part-000007.parquet")
    copy.write_bytes(part.read_bytes())
    with pytest.raises(RunError, match="holds runs that another file beside it holds too"):
        SweepFolder(folder)
    copy.unlink()
    run_sweep(GRID, tmp_path / "other", **HERE)
    copy.write_bytes((tmp_path / "other" / "table" / "part-000000.parquet").read_bytes())
    with pytest.raises(RunError, match="belongs to another sweep: move it elsewhere"):
        SweepFolder(folder)
    copy.unlink()
    pq.write_table(pa.table({"x": [1]}), copy)
    with pytest.raises(RunError, match="was not written by a sweep: move it elsewhere"):
        SweepFolder(folder)


def test_a_sweep_has_runs_of_one_kind(folder):
    with pytest.raises(SweepError, match="holds a sweep of lab runs, and these are training runs"):
        run_sweep(TrainingGrid("digits/tiny"), folder)
    with pytest.raises(SweepError, match="a sweep has runs of one kind"):
        run_sweep([GRID, TrainingGrid("digits/tiny")], folder)
    with pytest.raises(RunError, match="holds no sweep: begin one with"):
        resume_sweep(folder / "nothing")


@contextmanager
def small_files(most):
    """No file may be larger than that, as on a disk that is nearly full."""
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    handler = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (most, limits[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
        signal.signal(signal.SIGXFSZ, handler)


def test_a_file_that_cannot_be_written_is_named_and_nothing_is_lost(folder, whole):
    size = max(path.stat().st_size for path in (folder / "table").iterdir())
    with small_files(size // 2), pytest.raises(RunError) as caught:
        resume_sweep(folder, **HERE)
    assert f"{folder / 'fresh' / '16.parquet'} cannot be written" in str(caught.value)
    assert len(SweepFolder(folder).done) == 16
    assert same_bits(resume_sweep(folder, **HERE).read_table(), whole)


def test_failed_runs_are_run_again_when_asked(tmp_path, whole, monkeypatch):
    from mirrormargin.sweep import lab_runs

    real = lab_runs.train_attention

    def refuse(problems, p, **options):
        if 3.0 in p:
            raise ArithmeticError("not today")
        return real(problems, p, **options)

    with monkeypatch.context() as patched:
        patched.setattr(lab_runs, "train_attention", refuse)
        swept = run_sweep(GRID, tmp_path, **HERE)
    assert (len(swept.done), swept.failed) == (24, 12)
    assert swept.count_errors() == {"ArithmeticError: not today": 12}
    assert resume_sweep(tmp_path, **HERE).failed == 12
    again = resume_sweep(tmp_path, retry_failed=True, **HERE)
    assert again.failed == 0
    assert same_bits(again.read_table(), whole)


def test_another_writer_is_refused_and_readers_are_not(folder):
    from mirrormargin.sweep import folder as module

    pid = os.fork()
    if pid == 0:  # holds the folder until it is killed
        try:
            with SweepFolder(folder).hold():
                (folder / "held").touch()
                signal.pause()
        finally:
            os._exit(1)
    try:
        while not (folder / "held").exists():
            pass
        with pytest.MonkeyPatch.context() as patched:
            patched.setattr(module, "PATIENCE", 0.0)
            with pytest.raises(RunError, match="another command is writing to"):
                resume_sweep(folder, **HERE)
        assert read_table(folder).num_rows == 16
    finally:
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)
