"""Stored records of trainings: their digests are those of their configurations, to this day."""

import json
from pathlib import Path

import pytest

from mirrormargin.training.config import TrainingConfig

RECORDS = Path(__file__).parents[2] / "records"


def list_records():
    for path in sorted(RECORDS.rglob("*.json")):
        record = json.loads(path.read_bytes())
        if "config" in record:
            yield path.relative_to(RECORDS).as_posix(), record


def test_digests_of_all_stored_records_are_those_of_their_configurations():
    if not RECORDS.is_dir():
        pytest.skip("there are no records beside these tests")
    wrong, num_records = [], 0
    for name, record in list_records():
        config = TrainingConfig.from_dict(record["config"])
        num_records += 1
        if config.digest() != record["digest"]:
            wrong.append(name)
    assert wrong == []
    assert num_records >= 289  # 17 hours of machine time, and more to come
