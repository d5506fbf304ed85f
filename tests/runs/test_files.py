"""Locks keep other processes out, and files are whole, whoever is killed while writing them."""

import os
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor

import pytest

from mirrormargin.errors import RunError
from mirrormargin.runs import hold_folder, hold_lock, write_atomically

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="there is no fcntl")

OTHER = """
import sys
from pathlib import Path
from mirrormargin.runs import hold_lock
with hold_lock(Path(sys.argv[1]), wait=False):
    print("held", flush=True)
    sys.stdin.read(1)
"""


def hold_elsewhere(path):
    process = subprocess.Popen(
        [sys.executable, "-c", OTHER, str(path)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert process.stdout.readline() == "held\n"
    return process


def test_what_another_process_holds_is_refused_until_it_ends(tmp_path):
    path = tmp_path / ".lock"
    other = hold_elsewhere(path)
    with pytest.raises(RunError, match="another command is writing"), hold_lock(path, wait=False):
        pass
    other.kill()
    other.communicate()
    with hold_lock(path, wait=False):
        pass


def test_a_lock_is_free_again_after_an_error(tmp_path):
    with pytest.raises(ZeroDivisionError), hold_lock(tmp_path / ".lock", wait=False):
        1 / 0  # noqa: B018
    with hold_lock(tmp_path / ".lock", wait=False):
        pass


def test_a_link_in_place_of_the_lock_is_not_followed(tmp_path):
    target = tmp_path / "precious"
    target.write_text("data")
    (tmp_path / ".lock").symlink_to(target)
    with hold_lock(tmp_path / ".lock", wait=True):
        pass
    assert target.read_text() == "data"


def test_where_no_file_can_be_made_there_is_no_lock(tmp_path):
    with hold_lock(tmp_path / "missing" / ".lock", wait=False):
        pass


def test_a_lock_leaves_no_file(tmp_path):
    for wait in (True, False, 0.1):
        with hold_lock(tmp_path / ".lock", wait=wait):
            assert (tmp_path / ".lock").exists()
        assert list(tmp_path.iterdir()) == []


def test_many_threads_take_turns(tmp_path):
    inside, most = [], []

    def work(number):
        with hold_folder(tmp_path / "run", wait=60):
            inside.append(number)
            most.append(len(inside))
            (tmp_path / "run" / "count").write_text(str(number))
            inside.remove(number)

    with ThreadPoolExecutor(8) as pool:
        list(pool.map(work, range(100)))
    assert most == [1] * 100


def test_a_folder_in_which_nothing_was_written_is_gone(tmp_path):
    with hold_folder(tmp_path / "new" / "run"):
        assert (tmp_path / "new" / "run").is_dir()
    assert list(tmp_path.iterdir()) == []
    with hold_folder(tmp_path / "new" / "run"):
        (tmp_path / "new" / "run" / "file").write_text("")
    assert [path.name for path in (tmp_path / "new" / "run").iterdir()] == ["file"]


KILLED = """
import os, sys
from pathlib import Path
from mirrormargin.runs import write_atomically
def write(file):
    file.write(b"half")
    file.flush()
    print("writing", flush=True)
    sys.stdin.read(1)
write_atomically(Path(sys.argv[1]), write)
"""


def begin_to_write(path):
    process = subprocess.Popen(
        [sys.executable, "-c", KILLED, str(path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )
    assert process.stdout.readline() == b"writing\n"
    return process


def test_files_of_killed_writers_go_and_those_of_others_stay(tmp_path):
    path = tmp_path / "file"
    mine = tmp_path / ".notes.tmp"
    mine.write_text("mine")
    killed, alive = begin_to_write(path), begin_to_write(path)
    killed.kill()
    killed.communicate()
    assert len(list(tmp_path.glob(".file.*.tmp"))) == 2
    write_atomically(tmp_path / "other", lambda file: file.write(b"1"))
    assert len(list(tmp_path.glob(".file.*.tmp"))) == 1
    alive.communicate(b"x")
    assert path.read_bytes() == b"half"
    assert {one.name for one in tmp_path.iterdir()} == {"file", "other", ".notes.tmp"}


def test_a_temporary_name_cannot_be_guessed_and_has_the_usual_mode(tmp_path):
    names = set()

    def note(file):
        names.update(one.name for one in tmp_path.glob(".file.*"))
        file.write(b"1")

    for _ in range(3):
        write_atomically(tmp_path / "file", note)
    assert len(names) == 3
    (tmp_path / "plain").write_text("")
    assert (tmp_path / "file").stat().st_mode == (tmp_path / "plain").stat().st_mode


def test_the_folder_is_synced_after_the_rename(tmp_path, monkeypatch):
    synced = []

    def note(descriptor, fsync=os.fsync):
        synced.append((os.path.isdir(f"/proc/self/fd/{descriptor}"), (tmp_path / "file").exists()))
        fsync(descriptor)

    monkeypatch.setattr("os.fsync", note)
    write_atomically(tmp_path / "file", lambda file: file.write(b"1"))
    assert synced == [(False, False), (True, True)]
