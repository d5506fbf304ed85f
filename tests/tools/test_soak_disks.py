"""The trial of bad disks: a sample holds, and an error that is not ours is noticed."""

import pytest

from tools.soak.__main__ import make_case
from tools.soak.disks import DISKS, open_session
from tools.soak.trial import SkippedTrial

CASES = range(6)


def try_cases(folder, **options):
    try:
        with open_session(folder, names=("solve",), **options):
            yield from [make_case(DISKS, 0, number, folder) for number in CASES]
    except SkippedTrial as reason:
        pytest.skip(str(reason))


def test_bad_disks_are_named_and_lose_nothing(tmp_path):
    assert [one.what for one in try_cases(tmp_path) if one.kind == "wrong"] == []


@pytest.mark.slow
def test_errors_that_are_not_ours_are_noticed(tmp_path):
    spoiled = try_cases(tmp_path, spoil=("soak_spoilers:say_nothing_about_disks",))
    assert any("exit code 1" in one.what for one in spoiled if one.kind == "wrong")
