"""The trial of damaged files: a sample holds, and a product that checks nothing is noticed."""

import pytest

import mirrormargin.training.folder_files
import mirrormargin.training.tensor_files
from tools.soak.__main__ import make_case
from tools.soak.damage import DAMAGE, open_session


@pytest.mark.parametrize("part", ["trainings", "lab", "deltas", "claims"])
def test_damage_is_noticed_or_harmless(part, tmp_path):
    with open_session(tmp_path, parts=(part,)):
        outcomes = [make_case(DAMAGE, 0, number, tmp_path) for number in range(25)]
    assert [one.what for one in outcomes if one.kind == "wrong"] == []
    assert "refused" in {one.kind for one in outcomes}


def test_a_product_that_checks_nothing_is_noticed(tmp_path, monkeypatch):
    def check_nothing(path, document, **options):
        return {key: value for key, value in document.items() if key != "checksum"}

    with open_session(tmp_path, parts=("trainings",)):
        monkeypatch.setattr(mirrormargin.training.folder_files, "check_seal", check_nothing)
        monkeypatch.setattr(
            mirrormargin.training.tensor_files,
            "check_tensors",
            lambda path, tensors, metadata: None,
        )
        outcomes = [make_case(DAMAGE, 0, number, tmp_path) for number in range(40)]
    wrong = [one.what for one in outcomes if one.kind == "wrong"]
    assert any("read as something else" in what for what in wrong)
