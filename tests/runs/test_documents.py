"""JSON of strangers: strict, limited, and refused in one line."""

import json

import pytest

from mirrormargin.errors import ProblemError, RunError
from mirrormargin.runs import check_document, parse_json, read_json
from mirrormargin.runs.documents import MOST_BYTES


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("[" * 100_000, "nested more than 100 deep"),
        ("[" * 101 + "]" * 101, "nested more than 100 deep"),
        ('{"a": ' * 5000 + "1" + "}" * 5000, "nested more than 100 deep"),
        ("9" * 5000, "4300 digits"),
        ('{"a": 1, "a": 2}', "has 'a' twice"),
        ('{"a": "\\ud800"}', "half of a character"),
        (b"\xff\xfe", "can't decode"),
        ("", "Expecting value"),
    ],
)
def test_what_is_no_honest_json_is_refused(text, message):
    with pytest.raises(ValueError, match=message):
        parse_json(text)


def test_what_is_allowed_is_read():
    assert parse_json('{"a": [1, NaN], "b": "\\ud83d\\ude00"}')["b"] == "\U0001f600"
    assert parse_json("[" * 100 + "]" * 100) is not None
    with pytest.raises(ValueError, match="holds NaN"):
        parse_json("[NaN]", finite=True)


def test_a_file_is_refused_in_one_line(tmp_path):
    path = tmp_path / "a.json"
    for contents in ("[" * 100_000, "[1]", "null", '{"a": ' + "9" * 5000 + "}"):
        path.write_text(contents)
        with pytest.raises(ProblemError, match=r"a\.json is damaged") as raised:
            read_json(path, error=ProblemError)
        assert "\n" not in str(raised.value)
        assert len(str(raised.value)) < 500


def test_no_more_of_a_file_is_read_than_a_document_has(tmp_path):
    path = tmp_path / "a.json"
    with open(path, "wb") as file:
        file.truncate(10 * MOST_BYTES)  # a file of holes, which takes no room
    with pytest.raises(RunError, match="has more than 67,108,864 bytes"):
        read_json(path)


def test_a_document_to_be_written_is_one_that_can_be_read():
    assert check_document("about", None) == {}
    assert check_document("about", {"a": (1, 2)}) == {"a": [1, 2]}
    for wrong in (3, [1], {"a": object()}, {"a": float("nan")}, {"a": "\ud800"}):
        with pytest.raises(RunError, match="about cannot be written as JSON"):
            check_document("about", wrong)
    circle: dict[str, object] = {}
    circle["self"] = circle
    with pytest.raises(RunError, match="about cannot be written as JSON"):
        check_document("about", circle)
    assert json.dumps(check_document("about", {})) == "{}"
