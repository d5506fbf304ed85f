"""The contract of every story: documented arrays are those it makes, and its figures can be drawn.

That wrong evidence turns each verdict is in test_lab_verdicts.py and test_real_verdicts.py.
"""

import json

import numpy as np
import pytest
from evidence_arrays import EVIDENCE

from mirrormargin.claims.evidence import find_record
from mirrormargin.claims.registry import CLAIMS, STORIES
from mirrormargin.claims.story import Story
from mirrormargin.report.payload import format_payload

RUN = [name for name, story in STORIES.items() if story.run is not None]
STORED = [name for name, story in STORIES.items() if story.table is not None]


def check_shapes(story, arrays, is_whole):
    """Letters stand for sizes that are the same throughout a story."""
    sizes, axes = {}, story.list_axes()
    texts = {name: text for names, text in story.arrays.items() for name in names.split(", ")}
    if is_whole:
        optional = {name for name, text in texts.items() if "if there are some" in text}
        assert set(axes) - optional <= set(arrays) <= set(axes)
    for name, array in arrays.items():
        assert array.ndim == len(axes[name]), name
        for letter, size in zip(axes[name], array.shape, strict=True):
            assert size == (int(letter) if letter.isdigit() else sizes.setdefault(letter, size))
        if array.dtype.kind == "f" and "nan" not in texts[name]:
            assert np.isfinite(array).all(), name


@pytest.fixture
def find_any(find_evidence):
    """A function to the quick evidence of a story, or to its stored record."""

    def find(name):
        return find_evidence(name) if name in RUN else find_record(name)

    return find


@pytest.mark.parametrize("name", RUN)
def test_a_story_makes_the_arrays_that_it_documents(name, find_evidence):
    check_shapes(STORIES[name], find_evidence(name).arrays, is_whole=True)


@pytest.mark.parametrize("name", STORED)
def test_a_stored_record_has_the_arrays_that_its_story_documents(name):
    record = find_record(name)
    assert record is not None
    check_shapes(STORIES[name], record.arrays, is_whole=True)


@pytest.mark.parametrize("name", EVIDENCE)
def test_arrays_that_other_tests_make_up_are_shaped_as_documented(name):
    check_shapes(STORIES[name], EVIDENCE[name], is_whole=False)


@pytest.mark.parametrize("name", [name for name, story in STORIES.items() if story.draw])
def test_a_story_is_drawn_from_what_it_made(name, find_any):
    for draw in STORIES[name].draw:
        figure = draw(find_any(name))
        assert figure is not None
        assert figure.title
        assert figure.caption
        for panel in figure.panels:
            drawn = [
                one.cut_to_scales(panel.x.scale, panel.y.scale)
                for one in panel.series
                if one.visible
            ]
            finite = sum(int(np.isfinite(one.y).sum()) for one in drawn)
            assert finite > 1 or panel.heat is not None, panel.title
        json.loads(format_payload([figure], {figure.name: "id"}, 10**7))


def test_claims_name_figures_that_some_story_draws(find_any):
    drawn = {draw(find_any(name)).name for name, story in STORIES.items() for draw in story.draw}
    assert {name for claim in CLAIMS for name in claim.figures} == drawn


def test_parts_are_joined_along_the_storys_axis_and_the_rest_is_taken_once():
    story = Story("s", "a story", {"seed": "S", "x, y": "S R: values", "steps": "R"}, ())
    parts = [
        {"seed": np.array([i]), "x": np.full((1, 3), i), "y": np.zeros((1, 3)), "steps": steps}
        for i, steps in enumerate([np.arange(3)] * 2)
    ]
    joined = story.join(parts)
    assert joined["seed"].tolist() == [0, 1]
    assert joined["x"].shape == joined["y"].shape == (2, 3)
    assert joined["steps"].tolist() == [0, 1, 2]


def test_a_claim_knows_its_story_and_is_shown_by_its_figure_unless_it_names_others():
    for name, story in STORIES.items():
        assert {claim.experiment for claim in story.claims} == {name}
        assert all(claim.needs == story.needs for claim in story.claims)
    by_id = {claim.id: claim for claim in CLAIMS}
    assert by_id["A.thm.rate"].figures == ("rates",)
    assert by_id["A.thm.local"].figures == ("basins",)
    assert by_id["A.alg.gd"].figures == ()


def test_evidence_is_kept_by_settings_and_by_the_code_that_made_it(tmp_path):
    paths, rates = STORIES["paths"], STORIES["rates"]
    folders = {
        paths.name_folder(tmp_path, "quick", 0),
        paths.name_folder(tmp_path, "quick", 1),
        paths.name_folder(tmp_path, "full", 0),
        rates.name_folder(tmp_path, "quick", 0),
    }
    assert len(folders) == 4
    names = {path.name for path in STORIES["linear-flow"]._list_sources()}
    assert names == {"linear_flow.py", "separable.py"}
