"""The trial of signals: a sample holds, and a training that resumes elsewhere is noticed."""

from functools import partial

import pytest

from tools.soak.__main__ import make_case
from tools.soak.interruptions import INTERRUPTIONS, open_session

CASES = range(4)


def try_cases(folder, **options):
    session = partial(open_session, names=("lab",), **options)
    with session(folder):
        for number in CASES:
            yield make_case(INTERRUPTIONS, 0, number, folder)


def test_interrupted_work_ends_at_the_same_bits(tmp_path):
    assert [one.what for one in try_cases(tmp_path) if one.kind == "wrong"] == []


@pytest.mark.slow
def test_work_that_resumes_elsewhere_is_noticed(tmp_path):
    spoiled = try_cases(tmp_path, spoil=("soak_spoilers:forget_a_bit",))
    assert any("differs" in one.what for one in spoiled if one.kind == "wrong")
