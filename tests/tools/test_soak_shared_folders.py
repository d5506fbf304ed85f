"""The trial of shared folders: a sample holds, and writers without a lock are noticed."""

import numpy as np

from tools.soak import shared_folders
from tools.soak.__main__ import make_case
from tools.soak.shared_folders import SHARED_FOLDERS, open_session


def test_processes_in_one_folder_lose_nothing(tmp_path):
    with open_session(tmp_path, names=("solve",)):
        outcomes = [make_case(SHARED_FOLDERS, 0, number, tmp_path) for number in range(4)]
    assert [one.what for one in outcomes if one.kind == "wrong"] == []


def test_writers_without_a_lock_are_noticed(tmp_path):
    with open_session(tmp_path, names=(), spoil=("soak_spoilers:remove_locks",)):
        outcomes = []
        for number in range(3):
            (tmp_path / str(number)).mkdir()
            generator = np.random.default_rng(number)
            outcomes.append(shared_folders._replace_and_read(generator, tmp_path / str(number)))
    assert "wrong" in {one.kind for one in outcomes}
