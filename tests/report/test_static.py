import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from mirrormargin.figures.figure import STYLES, Axis, Figure, HeatFrames, Panel, Series
from mirrormargin.report.static import choose_ticks, write_static

X = np.arange(1.0, 6.0)


def _draw(style: str) -> Figure:
    series = Series("a", X, X**2, X**2 - 1, X**2 + 1, style=style, group="p = 3")
    other = Series("b", X, X, style="line", group="p = 2")
    return Figure("f", "", "", (Panel("one", Axis("step"), Axis("‖W‖ₚ"), (series, other)),))


MAP = HeatFrames(
    np.linspace(0, 1, 30).reshape(5, 2, 3),
    tuple(f"step {i}" for i in range(5)),
    ("r1", "r2"),
    ("1", "2", "3"),
    ((0, 1),),
)


@pytest.mark.parametrize("style", STYLES)
def test_every_style_leaves_ink_of_its_colour(style: str, tmp_path: Path) -> None:
    from PIL import Image

    paths = write_static(_draw(style), tmp_path / "f")
    assert [path.suffix for path in paths] == [".svg", ".pdf", ".png"]
    pixels = np.asarray(Image.open(paths[2]).convert("RGB")).reshape(-1, 3)
    color = np.array([0xD2, 0x4A, 0x0A])  # near p = 3
    assert (np.abs(pixels.astype(int) - color).max(axis=1) < 12).sum() > 100
    assert pixels.shape[0] % 2100 == 0  # seven inches at 300 dpi


@pytest.mark.parametrize("figure", [_draw("line"), _draw("points")], ids=["line", "points"])
def test_the_same_figure_gives_the_same_bytes(figure: Figure, tmp_path: Path) -> None:
    for name in ("one", "two"):
        write_static(figure, tmp_path / name)
    for suffix in ("svg", "pdf", "png"):
        assert (tmp_path / f"one.{suffix}").read_bytes() == (
            tmp_path / f"two.{suffix}"
        ).read_bytes()


def test_a_long_legend_leaves_the_panels_their_place(tmp_path: Path) -> None:
    from PIL import Image

    names = [f"runs/digits-tiny-{number:08d}, MirrorAdam p=1.1" for number in range(40)]
    series = tuple(Series(name, X, X, group="p = 1.1") for name in names)
    heights = []
    for count in (2, 40):
        figure = Figure("f", "", "", (Panel("one", Axis("x"), Axis("y"), series[:count]),))
        with Image.open(write_static(figure, tmp_path / str(count))[2]) as image:
            heights.append(image.height)
    assert heights[1] - heights[0] > 300 * 0.15 * 15


def test_a_map_is_drawn_at_its_first_middle_and_last_frame(tmp_path: Path) -> None:
    import matplotlib as mpl

    panel = Panel("p = 2", Axis("token"), Axis(""), heat=MAP)
    with mpl.rc_context({"svg.fonttype": "none"}):
        (svg, *_) = write_static(Figure("f", "", "", (panel,)), tmp_path / "f")
    text = svg.read_text()
    assert [f"step {i}" in text for i in range(5)] == [True, False, True, False, True]


def test_a_series_that_is_not_visible_is_not_drawn(tmp_path: Path) -> None:
    hidden = Series("secret", X, X, visible=False)
    panel = Panel("one", Axis("x"), Axis("y"), (Series("a", X, X), Series("b", X, X), hidden))
    import matplotlib as mpl

    with mpl.rc_context({"svg.fonttype": "none"}):
        (svg, *_) = write_static(Figure("f", "", "", (panel,)), tmp_path / "f")
    assert "secret" not in svg.read_text()


@pytest.mark.parametrize(
    ("low", "high", "expected"),
    [
        (0.009, 0.9, [0.01, 0.03, 0.1, 0.3]),
        (0.9, 12.0, [1, 3, 10]),
        (0.28, 1.1, [0.5, 1.0]),
        (0.3, 0.47, [0.3, 0.4]),
        (0.409, 0.441, [0.41, 0.42, 0.43, 0.44]),
    ],
)
def test_a_short_log_axis_has_a_few_round_ticks(
    low: float, high: float, expected: list[float]
) -> None:
    ticks = choose_ticks(low, high)
    assert 2 <= len(ticks) <= 7
    assert set(expected) <= set(ticks)
    assert all(low <= tick <= high for tick in ticks)


def test_a_short_log_axis_has_plain_numbers_and_no_small_labels(tmp_path: Path) -> None:
    import matplotlib as mpl

    y = np.linspace(0.28, 0.75, X.size)
    panel = Panel("one", Axis("x"), Axis("y", "log"), (Series("a", X, y),))
    with mpl.rc_context({"svg.fonttype": "none"}):
        (svg, *_) = write_static(Figure("f", "", "", (panel,)), tmp_path / "f")
    text = svg.read_text()
    assert ">0.5</text>" in text
    assert "×" not in text


def _find_texts(figure: Figure, folder: Path) -> dict[str, tuple[float, float]]:
    """Where the texts of a figure are, in points from the left and from the top."""
    import matplotlib as mpl

    with mpl.rc_context({"svg.fonttype": "none"}):
        (svg, *_) = write_static(figure, folder / "f")
    found = re.findall(
        r'<text [^>]*?x="([\d.]+)" y="([\d.]+)"[^>]*>([^<]+)</text>', svg.read_text()
    )
    return {text: (float(x), float(y)) for x, y, text in found}


def test_a_reversed_axis_has_its_marks_from_large_to_small(tmp_path: Path) -> None:
    axis = Axis("left", "log", marks=(50.0, 5.0, 0.2), is_reversed=True)
    series = Series("a", np.array([50.0, 5.0, 0.2]), np.array([1.0, 2.0, 3.0]))
    texts = _find_texts(Figure("f", "", "", (Panel("one", axis, Axis("y"), (series,)),)), tmp_path)
    places = [texts[mark][0] for mark in ("50", "5", "0.2")]
    assert places == sorted(places)


def test_a_wide_panel_has_a_row_to_itself(tmp_path: Path) -> None:
    def make(title: str, **options) -> Panel:
        return Panel(title, Axis("x"), Axis("y"), (Series("a", X, X),), **options)

    panels = (make("one"), make("broad", is_wide=True), make("two"), make("three"))
    texts = _find_texts(Figure("f", "", "", panels), tmp_path)
    (one, broad, two, three) = (texts[name] for name in ("one", "broad", "two", "three"))
    assert one[1] < broad[1] < two[1]
    assert two[1] == three[1]
    assert one[0] == pytest.approx(two[0], abs=1)
    assert three[0] > two[0] + 100


def test_dots_and_notes_lie_over_a_map(tmp_path: Path) -> None:
    heat = HeatFrames(
        np.zeros((1, 2, 3)),
        ("",),
        ("r1", "r2"),
        ("1", "2", "3"),
        row_ticks=((0.5, "both rows"),),
        dots=np.eye(2, 3),
        notes=((1.0, 2.0, "a note"),),
    )
    panel = Panel("map", Axis(""), Axis(""), heat=heat, equal_aspect=True, is_wide=True)
    texts = _find_texts(Figure("f", "", "", (panel,)), tmp_path)
    assert {"both rows", "a note"} <= set(texts)
    assert "r1" not in texts
    assert (tmp_path / "f.svg").read_text().lower().count("#d24a0a") >= 2


def test_drawing_leaves_matplotlibs_settings_alone(tmp_path: Path) -> None:
    import matplotlib as mpl

    before = dict(mpl.rcParams)
    write_static(_draw("line"), tmp_path / "f")
    assert dict(mpl.rcParams) == before


def test_neither_library_is_imported_before_it_is_needed() -> None:
    code = (
        "import sys, mirrormargin.report, mirrormargin.report.page, mirrormargin.report.static;"
        "print([name for name in ('matplotlib', 'plotly') if name in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
