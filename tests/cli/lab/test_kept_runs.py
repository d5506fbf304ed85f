"""Where runs are written: checked first, and nothing lost."""

import json

import pytest

from mirrormargin.cli.lab.kept_runs import Destination, name_run
from mirrormargin.errors import RunError
from mirrormargin.runs import check_writable

ARRAYS = "arrays-0123456789abcdef.npz"


def put_run(folder, kind="mirror flow"):
    folder.mkdir(parents=True, exist_ok=True)
    document = {"kind": kind, "arrays": {"file": ARRAYS}}
    (folder / "run.json").write_text(json.dumps(document))
    (folder / ARRAYS).write_bytes(b"")


class Record:
    """What a curve leaves, with the kind alone."""

    def save(self, folder, about):
        put_run(folder)
        (folder / "about.json").write_text(json.dumps(about))


RECORD = Record()


def open_folder(folder, overwrite=False):
    destination = Destination(folder, "mirror flow", "unit_sphere", overwrite)
    with destination.hold():
        return destination


def follow(destination, seeds, exponents, record=RECORD):
    problems = [(seed, f"problem {seed}") for seed in seeds]
    return destination.follow_each(
        "flow", problems, exponents, lambda problem, p, report: (record, {"of": (problem, p)}), True
    )


def test_one_run_is_the_folder_and_several_have_one_each(tmp_path):
    assert follow(open_folder(tmp_path / "a"), [1], [2.0]) == [{"seed": 1, "of": ("problem 1", 2)}]
    assert (tmp_path / "a" / "run.json").exists()
    rows = follow(open_folder(tmp_path / "b"), [None], [2.0, 3.0])
    assert [row["of"] for row in rows] == [("problem None", 2), ("problem None", 3)]
    assert {path.name for path in (tmp_path / "b").iterdir()} == {"p-2", "p-3"}
    about = json.loads((tmp_path / "b" / "p-3" / "about.json").read_text())
    assert about == {"problem": "unit_sphere", "seed": None}
    assert len(follow(open_folder(None), [1, 2], [2.0])) == 2


def test_a_curve_that_there_is_not_leaves_nothing_and_loses_nothing(tmp_path):
    put_run(tmp_path)
    assert len(follow(open_folder(tmp_path, overwrite=True), [1], [2.0], record=None)) == 1
    assert {path.name for path in tmp_path.iterdir()} == {"run.json", ARRAYS}


def test_names_tell_exponents_and_seeds_apart():
    assert name_run(1.75, 1) == "seed-1-p-1.75"
    assert name_run(2.0, None) == "p-2"
    assert name_run(2.0000000000000004, 3) == "seed-3-p-2.0000000000000004"


def test_checking_leaves_nothing_behind(tmp_path):
    open_folder(tmp_path / "new" / "folder")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("place", [".", "seed-1-p-2"])
def test_a_run_is_replaced_only_if_asked(tmp_path, place):
    put_run(tmp_path / place)
    with pytest.raises(RunError, match="holds a run already: add --overwrite"):
        open_folder(tmp_path)
    open_folder(tmp_path, overwrite=True)
    assert (tmp_path / place / "run.json").exists()


@pytest.mark.parametrize("place", [".", "seed-1-p-2"])
def test_a_run_of_another_kind_is_never_replaced(tmp_path, place):
    put_run(tmp_path / place, "regularization path")
    with pytest.raises(RunError, match="of kind 'regularization path', which"):
        open_folder(tmp_path, overwrite=True)


def test_a_document_that_cannot_be_read_is_never_replaced(tmp_path):
    (tmp_path / "run.json").write_text("{")
    with pytest.raises(RunError, match="of kind 'unknown'"):
        open_folder(tmp_path, overwrite=True)


def test_other_things_in_the_folder_are_never_touched(tmp_path):
    put_run(tmp_path / "figure")  # somebody's own name
    with pytest.raises(RunError, match="holds other things, such as figure"):
        open_folder(tmp_path, overwrite=True)


def test_what_a_killed_process_leaves_is_no_hindrance(tmp_path):
    (tmp_path / ARRAYS).write_bytes(b"")
    (tmp_path / ".run.json.1.tmp").write_bytes(b"")
    open_folder(tmp_path)


def test_runs_that_a_killed_process_has_begun_are_no_hindrance(tmp_path):
    for name in ("seed-1-p-2", "seed-2-p-2"):
        (tmp_path / name).mkdir()
        (tmp_path / name / ".lock").write_text(f"{ARRAYS} None")
        (tmp_path / name / ARRAYS).write_bytes(b"")
    follow(open_folder(tmp_path), [1], [2.0, 3.0])
    assert {path.name for path in tmp_path.iterdir()} == {"seed-1-p-2", "seed-1-p-3"}
    (tmp_path / "seed-9-p-2").mkdir()
    (tmp_path / "seed-9-p-2" / "notes.txt").write_text("mine")
    with pytest.raises(RunError, match="holds other things, such as seed-9-p-2"):
        open_folder(tmp_path, overwrite=True)


def test_old_runs_go_only_in_the_end_and_without_what_was_added(tmp_path):
    for name in ("seed-1-p-2", "seed-2-p-2", "seed-3-p-2"):
        put_run(tmp_path / name)
    (tmp_path / "seed-3-p-2" / "notes.txt").write_text("mine")
    put_run(tmp_path)
    destination = open_folder(tmp_path, overwrite=True)
    assert (tmp_path / "seed-2-p-2" / "run.json").exists()
    follow(destination, [1], [2.0, 3.0])
    left = {str(path.relative_to(tmp_path)) for path in tmp_path.rglob("*") if path.is_file()}
    new = {f"seed-1-p-{p}/{file}" for p in (2, 3) for file in ("run.json", ARRAYS)}
    new |= {f"seed-1-p-{p}/about.json" for p in (2, 3)}
    assert left == {*new, "seed-3-p-2/notes.txt"}


def test_a_place_that_cannot_be_written_is_named(tmp_path):
    file = tmp_path / "file"
    file.write_text("")
    for path in (file / "run.json", file / "deeper" / "run.json", tmp_path):
        with pytest.raises(RunError, match="cannot be written"):
            check_writable(path, make_folders=True)
