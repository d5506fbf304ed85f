"""The tables that claims rest on: of today's settings, and made of the records beside them."""

from pathlib import Path

import numpy as np
import pytest

from mirrormargin.claims.campaign.records import read_records
from mirrormargin.claims.evidence import find_record
from mirrormargin.claims.registry import STORIES

RECORDS = Path(__file__).parents[3] / "records"
TABLES = {name: story.table for name, story in STORIES.items() if story.table is not None}


@pytest.mark.parametrize("name", TABLES)
def test_a_stored_table_is_what_the_records_give(name):
    stored, made = find_record(name), TABLES[name].make_evidence(name, read_records(RECORDS))
    assert (stored is None) == (made is None), "mirrormargin campaign --store makes them again"
    if stored is None or made is None:
        return
    assert stored.settings["digest"] == TABLES[name].digest()
    assert stored.arrays.keys() == made.arrays.keys()
    for key, values in made.arrays.items():
        np.testing.assert_array_equal(stored[key], values, err_msg=key)
