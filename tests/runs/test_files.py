"""Locks keep other processes out, and touch nothing else."""

import subprocess
import sys

import pytest

from mirrormargin.errors import RunError
from mirrormargin.runs import hold_lock

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
