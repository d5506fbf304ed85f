"""Messages: what to do about a name that nobody knows."""

import pytest

from mirrormargin.errors import suggest

RULES = ["constant", "normalized", "polyak"]


@pytest.mark.parametrize(
    ("name", "options", "hint"),
    [
        ("polyac", {}, "did you mean polyak?"),
        ("POLYAK", {"otherwise": ""}, "did you mean polyak?"),
        ("fast", {}, "there are constant, normalized, polyak"),
        ("fast", {"otherwise": "see the docs"}, "see the docs"),
        ("fast", {"otherwise": ""}, ""),
        ("norm", {}, "there are constant, normalized, polyak"),
        ("norm", {"cutoff": 0.4}, "did you mean normalized?"),
    ],
)
def test_a_near_name_is_suggested_or_all_are_listed(name, options, hint):
    assert suggest(name, RULES, **options) == hint


def test_several_near_names_are_joined_up_to_a_limit():
    known = ["A.thm.rate", "A.thm.path", "A.thm.rates", "A.thm.late"]
    assert suggest("A.thm.rat", known, most=2) == "did you mean A.thm.rate or A.thm.rates?"
    assert suggest("A.thm.rat", known, most=1) == "did you mean A.thm.rate?"
