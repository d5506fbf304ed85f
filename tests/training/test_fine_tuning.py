"""What a fine-tuning has changed, used with a file that anybody may have written."""

from types import SimpleNamespace

import pytest
from fine_tuned import bits, fine_tune, make_base

import mirrormargin as mm
from mirrormargin.errors import TrainingError
from mirrormargin.training import fine_tuning


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """A training of two classes, from the base of these tests."""
    home = SimpleNamespace(
        path=tmp_path, read_inputs=lambda: SimpleNamespace(classes=("no", "yes"))
    )
    monkeypatch.setattr(fine_tuning, "TrainingFolder", lambda folder: home)
    monkeypatch.setattr(fine_tuning, "read_fine_tuning", lambda home: None)
    monkeypatch.setattr(fine_tuning, "load_base", lambda home, inputs: make_base())
    return tmp_path


def extract(**options):
    base = make_base()
    return mm.SparseDelta.extract(fine_tune(base), base, keep=9, **options)


@pytest.mark.parametrize("whole", [["head.*"], None])
def test_a_file_with_the_head_is_applied(folder, whole):
    delta = extract(whole=whole, info={"classes": ["no", "yes"]})
    delta.save(folder / "delta")
    expected = make_base()
    delta.apply(expected)
    assert bits(fine_tuning.apply_delta(folder, folder / "delta")) == bits(expected)


def test_a_file_without_the_head_is_refused(folder):
    extract(whole=["head.*"]).without_whole().save(folder / "delta")
    with pytest.raises(TrainingError, match=r"lacks head\..* answers at random"):
        fine_tuning.apply_delta(folder, folder / "delta")


@pytest.mark.parametrize("classes", [5, "no", {}, ["yes", "no"], [["no"], 3], []])
def test_other_classes_are_refused(folder, classes):
    extract(whole=["head.*"], info={"classes": classes}).save(folder / "delta")
    with pytest.raises(TrainingError, match="of the same task"):
        fine_tuning.apply_delta(folder, folder / "delta")
