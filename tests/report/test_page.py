"""The page as text: whole, closed, escaped, small."""

import json
import re
from html.parser import HTMLParser
from pathlib import Path

import numpy as np
import pytest
from evidence_arrays import make_claims

from mirrormargin.claims.claims_file import RECALLED
from mirrormargin.errors import ReportError
from mirrormargin.figures import Axis, Figure, Panel, Series
from mirrormargin.report.contents import Contents
from mirrormargin.report.page import MAX_BYTES, format_page, name_anchors
from mirrormargin.report.payload import embed_json, format_payload


class _Reader(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.texts: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))

    def handle_data(self, data: str) -> None:
        self.texts.append(data)


@pytest.fixture(scope="module")
def reader(page: Path) -> _Reader:
    reader = _Reader()
    reader.feed(page.read_text())
    return reader


def test_the_page_stays_below_its_limit(page: Path) -> None:
    assert page.stat().st_size < MAX_BYTES


def test_the_page_loads_nothing_and_forbids_to(reader: _Reader) -> None:
    policy = next(
        a["content"] for _, a in reader.tags if a.get("http-equiv") == "Content-Security-Policy"
    )
    assert policy is not None
    assert policy.startswith("default-src 'none'")
    assert "http" not in policy
    for tag, attributes in reader.tags:
        assert "src" not in attributes, tag
        address = attributes.get("href")
        assert address is None or address.startswith(("#", "data:,"))
        assert not [name for name in attributes if name.startswith("on")]


def test_every_link_has_its_anchor_and_anchors_are_unique(reader: _Reader) -> None:
    ids = [attributes["id"] for _, attributes in reader.tags if "id" in attributes]
    assert len(ids) == len(set(ids))
    links = [a["href"][1:] for tag, a in reader.tags if tag == "a" and a.get("href")]  # pyright: ignore
    assert set(links) <= set(ids)
    assert {"claim-A-fig-directions", "fig-directions", "claim-A-tab-1-x-y-z"} <= set(links + ids)


def test_texts_are_shown_and_never_become_markup(page: Path, reader: _Reader) -> None:
    assert "</script><b>" not in page.read_text()
    assert any("</script><b>bold</b> & \"quoted\" 'text'" in text for text in reader.texts)
    assert "b" in {tag for tag, _ in reader.tags}  # of the chips, which have no class
    assert page.read_text().count("<script") == 4


def test_a_recalled_claim_is_never_shown_as_a_published_number(page: Path) -> None:
    rows = re.findall(r'<details class="claim".*?</summary>', page.read_text(), re.DOTALL)
    assert len(rows) == 6
    tagged = [RECALLED in row for row in rows]
    expected = [claim["provenance"] == "recalled" for claim in make_claims()["claims"]]
    assert tagged == expected


def test_a_claim_whose_figure_is_not_there_has_no_link(page: Path) -> None:
    assert "#fig-nothing" not in page.read_text()


def test_the_embedded_numbers_are_those_of_the_figures(page: Path) -> None:
    found = re.search(r'id="data">(.*?)</script>', page.read_text(), re.DOTALL)
    assert found
    figures = {row["name"]: row for row in json.loads(found.group(1))}
    assert set(figures) == {
        "directions", "basins", "trajectories", "attention", "rates", "steps", "weights"
    }  # fmt: skip
    assert len(figures["attention"]["panels"]) == 3


def test_numbers_that_a_log_axis_cannot_show_stay_in_the_page() -> None:
    x, y = np.array([0.0, 1.0, 10.0, np.inf]), np.array([1.0, -2.0, 3.0, 4.0])
    series = Series("a", x, y, y - 5, y + 5)
    figure = Figure("f", "", "", (Panel("", Axis("x", "log"), Axis("y", "log"), (series,)),))
    (row,) = json.loads(format_payload([figure], {"f": "fig-f"}, 10_000))
    kept = row["panels"][0]["series"][0]
    assert (kept["x"], kept["y"]) == ([0, 1, 10, None], [1, -2, 3, 4])
    assert (kept["low"], kept["high"]) == ([-4, -7, -2, -1], [6, 3, 8, 9])


def test_json_in_a_script_cannot_end_it_and_reads_back() -> None:
    value = {"a": "</script><!-- & \u2028 ‖W‖ₚ", "b": [1.5, None]}
    text = embed_json(value)
    assert not set("<>&\u2028") & set(text)
    assert json.loads(text) == value


def test_anchors_are_safe_and_different_for_odd_names() -> None:
    anchors = name_anchors("claim", ["A.b", "A-b", "A b", "ü<>", "A.b"])
    assert len(set(anchors)) == 5
    assert all(re.fullmatch(r"[A-Za-z][A-Za-z0-9-]*", anchor) for anchor in anchors)


def _make_large(count: int, size: int = 5000) -> list[Figure]:
    rng = np.random.default_rng(0)
    x = np.arange(size)
    return [
        Figure(
            f"f{i}",
            "",
            "",
            (Panel("", Axis("x"), Axis("y"), (Series("a", x, rng.random(size)),)),),
        )
        for i in range(count)
    ]


def test_many_large_figures_get_fewer_points_each_until_they_fit() -> None:
    few, many = _make_large(2), _make_large(150)
    for figures in (few, many):
        ids = {figure.name: figure.name for figure in figures}
        text = format_payload(figures, ids, 900_000)
        assert len(text) <= 900_000
        points = [len(row["panels"][0]["series"][0]["y"]) for row in json.loads(text)]
        assert max(points) <= 400
    assert max(points) < 300
    with pytest.raises(ReportError, match="fewer folders"):
        format_payload(many, ids, 10_000)


def test_the_limit_holds_for_the_whole_page() -> None:
    text = format_page(Contents(figures=tuple(_make_large(150))), None, None)
    assert len(text.encode()) < MAX_BYTES


def test_the_same_folder_gives_the_same_page(claims_folder: Path, page: Path) -> None:
    from mirrormargin.report import write_report

    again = write_report(
        [claims_folder], page.with_name("again.html"), command="mirrormargin report out"
    )
    assert again.read_bytes() == page.read_bytes()


def test_the_title_and_the_command_are_on_the_page() -> None:
    text = format_page(Contents(figures=tuple(_make_large(1))), "A < B", "mirrormargin report x")
    assert "<title>A &lt; B</title>" in text
    assert "<code>mirrormargin report x</code>" in text
