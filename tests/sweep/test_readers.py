"""Pandas and polars read the folder of a table as it is."""

import numpy as np
import pytest

pytest.importorskip("pyarrow", reason="pyarrow is not installed: mirrormargin[sweep]")

from mirrormargin.sweep import LabGrid, run_sweep

GRID = LabGrid(seed="1-20", p=[2.0, 3.0], rank=[None, 2], num_steps=5, record=3)


@pytest.fixture(scope="module")
def swept(tmp_path_factory):
    """A sweep of two parts, half of whose runs fail."""
    folder = tmp_path_factory.mktemp("swept")
    run_sweep(LabGrid(seed="1-4", p=2.0, num_steps=5, record=3), folder, workers=0)
    return run_sweep(GRID, folder, workers=0)


def check(swept, columns):
    rows = swept.read_table()
    assert len(swept.table) == 2
    for name in ("run", "p", "divergence", "norm"):
        expected = rows[name].to_numpy()
        np.testing.assert_array_equal(np.asarray(columns[name], dtype=float), expected)
    assert list(map(str, columns["status"])) == rows["status"].to_pylist()
    assert [*columns["recorded_steps"][0]] == rows["recorded_steps"][0].as_py()


def test_pandas_reads_the_table(swept):
    pandas = pytest.importorskip("pandas", reason="pandas is not installed")
    frame = pandas.read_parquet(swept.path / "table").sort_values("run").reset_index()
    check(swept, frame)
    medians = frame[frame["status"] == "done"].groupby("p")["divergence"].median()
    assert list(medians.index) == [2.0, 3.0]


def test_polars_scans_the_table(swept):
    polars = pytest.importorskip("polars", reason="polars is not installed")
    lazy = polars.scan_parquet(swept.path / "table" / "*.parquet")
    check(swept, lazy.sort("run").collect())
    failed = lazy.filter(polars.col("status") == "failed").select("error").collect()
    assert len(failed) == 40
    assert "W has no factors" in str(failed["error"][0])
