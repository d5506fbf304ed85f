import csv
import io
import json
from pathlib import Path

import numpy as np

from mirrormargin.figures import Axis, Figure, HeatFrames, Panel, Series, Table
from mirrormargin.report.tables import COLUMNS, describe_figure, format_csv, write_tables

X = np.array([1e-300, 0.1, 1 / 3, 4e300])
Y = np.array([np.pi, np.nan, -0.0, np.inf])
FIGURE = Figure(
    "odd",
    "A title",
    "A caption",
    (
        Panel('a "quoted", title', Axis("x"), Axis("y"), (Series("s, 1", X, Y, Y - 1, Y + 1),)),
        Panel("bars", Axis("", ticks=("p = 2",)), Axis("y"), (Series("b", [0.0], [2.0]),)),  # pyright: ignore
        Panel(
            "map",
            Axis(""),
            Axis(""),
            heat=HeatFrames(np.array([[[0.25, 0.75]]]), ("step 1",), ("row",), ("c1", "c2")),
        ),
    ),
    table=Table(("p",), (("2",),)),
)


def _read(text: str) -> list[dict[str, str]]:
    return list(csv.DictReader(io.StringIO(text)))


def test_csv_gives_back_the_same_bits() -> None:
    rows = _read(format_csv(FIGURE))
    assert list(rows[0]) == list(COLUMNS)
    first = [row for row in rows if row["panel"] == 'a "quoted", title']
    assert [row["series"] for row in first] == ["s, 1"] * 4
    assert [float(row["x"]) for row in first] == X.tolist()
    assert [row["y"] for row in first] == ["3.141592653589793", "", "-0.0", ""]
    assert float(first[0]["low"]) == np.pi - 1
    assert float(first[0]["high"]) == np.pi + 1


def test_csv_names_ticks_and_cells() -> None:
    rows = _read(format_csv(FIGURE))
    assert [row["x"] for row in rows if row["panel"] == "bars"] == ["p = 2"]
    cells = [(row["series"], row["x"], row["y"]) for row in rows if row["panel"] == "map"]
    assert cells == [("step 1 / row", "c1", "0.25"), ("step 1 / row", "c2", "0.75")]


def test_json_is_strict_and_has_every_number() -> None:
    text = json.dumps(describe_figure(FIGURE), allow_nan=False)
    document = json.loads(text)
    assert document["panels"][0]["series"][0]["x"] == X.tolist()
    assert document["panels"][0]["series"][0]["y"] == [np.pi, None, -0.0, None]
    assert document["panels"][2]["heat"]["values"] == [[[0.25, 0.75]]]
    assert document["table"] == [["p"], ["2"]]


def test_files_are_named_after_the_stem(tmp_path: Path) -> None:
    paths = write_tables(FIGURE, tmp_path / "run-p-1.75")
    assert [path.name for path in paths] == ["run-p-1.75.csv", "run-p-1.75.json"]
    assert paths[0].read_text() == format_csv(FIGURE)
