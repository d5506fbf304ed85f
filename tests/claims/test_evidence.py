"""Evidence is found again as it was written; a record says where it comes from."""

import json

import numpy as np
import pytest

from mirrormargin.claims.evidence import (
    Evidence,
    find_digest,
    find_record,
    read_evidence,
    write_evidence,
)
from mirrormargin.errors import RunError

RECORD = {
    "experiment": "imdb",
    "command": "mirrormargin train imdb/small",
    "data_sha256": {"train": "00ff"},
    "versions": {"torch": "2.13.0"},
    "settings": {"seed": 0},
    "arrays": {"p": [1.1, 2.0], "name": ["a", "b"]},
}


def test_written_evidence_is_read_back(tmp_path):
    arrays = {"x": np.arange(6.0).reshape(2, 3), "kind": np.array(["local", "global"])}
    write_evidence(tmp_path, Evidence("paths", {"seed": 3}, arrays, seconds=1.5))
    found = read_evidence(tmp_path)
    assert (found.experiment, found.settings, found.seconds) == ("paths", {"seed": 3}, 1.5)
    assert found.origin == {"kind": "run now"}
    for name, array in arrays.items():
        np.testing.assert_array_equal(found[name], array)


def test_the_digest_changes_with_all_that_shapes_the_numbers():
    digests = {
        find_digest("paths", {"seed": 0}),
        find_digest("paths", {"seed": 1}),
        find_digest("rates", {"seed": 0}),
        find_digest("paths", {"seed": 0, "num_radii": 3}),
    }
    assert len(digests) == 4
    assert find_digest("paths", {"a": 1, "seed": 0}) == find_digest("paths", {"seed": 0, "a": 1})


def test_a_record_is_evidence_with_its_origin(tmp_path):
    (tmp_path / "imdb.json").write_text(json.dumps(RECORD))
    found = find_record("imdb", tmp_path)
    assert found.origin == {
        "kind": "stored record",
        "command": "mirrormargin train imdb/small",
        "data_sha256": {"train": "00ff"},
        "versions": {"torch": "2.13.0"},
    }
    np.testing.assert_array_equal(found["p"], [1.1, 2.0])


def test_no_record_is_none(tmp_path):
    assert find_record("imdb", tmp_path) is None
    assert find_record("no such experiment") is None


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("{", "is damaged"),
        ("[]", "lacks experiment"),
        (json.dumps({**RECORD, "arrays": {"x": [[1], [1, 2]]}}), "damaged|unequal length"),
        (json.dumps({key: RECORD[key] for key in RECORD if key != "command"}), "lacks command"),
    ],
)
def test_a_damaged_record_is_refused(tmp_path, text, message):
    (tmp_path / "imdb.json").write_text(text)
    with pytest.raises(RunError, match=message):
        find_record("imdb", tmp_path)
