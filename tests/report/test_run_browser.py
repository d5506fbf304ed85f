"""The page of a single run of the lab in a real browser: named lines, signed maps, whole ticks."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from browser_tabs import SIZES, VIEWS, open_tab

import mirrormargin as mm
from mirrormargin.report import write_report

pytestmark = pytest.mark.browser


@pytest.fixture(scope="module")
def record():
    problem = mm.synthetic.unit_sphere(1)
    return mm.train_attention(problem, p=1.75, num_steps=200, lr=0.1, keep_path=True)


@pytest.fixture(scope="module")
def run_page(record, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("run")
    record.save(folder / "mine")
    return write_report([folder], folder / "report.html")


@pytest.mark.parametrize(("size", "scheme"), VIEWS)
def test_a_single_run_is_drawn_and_every_line_has_its_name(
    browser: Any, run_page: Path, size: str, scheme: str
) -> None:
    tab = open_tab(browser, run_page, size, scheme)
    assert len(tab.query_selector_all(".plot")) == 6
    legend = tab.locator("#fig-training-mine .legend button").all_inner_texts()
    assert legend == ["p = 1.75", "proven bound, p = 1.75"]
    names = tab.evaluate(
        "[...document.querySelectorAll('.plot')].flatMap((plot) => plot.data)"
        ".filter((trace) => trace.type === 'scatter').map((trace) => trace.meta)"
    )
    assert set(names) == set(legend)
    widths = tab.evaluate("[document.documentElement.scrollWidth, document.body.scrollWidth]")
    assert max(widths) <= SIZES[size][0]
    assert tab.messages == []
    tab.context.close()


def test_w_and_its_limit_have_the_same_signed_colours(browser: Any, run_page: Path, record) -> None:
    tab = open_tab(browser, run_page)
    read = (
        "[...document.querySelectorAll('#fig-matrices-mine .plot')]"
        ".map((plot) => [plot.data[0].zmin, plot.data[0].zmax, plot.data[0].z])"
    )
    (low, high, trained), (other_low, other_high, _) = tab.evaluate(read)
    assert (low, high) == (other_low, other_high)
    assert low == -high < 0
    norm = (np.abs(record.W[0, 0, 0]) ** 1.75).sum() ** (1 / 1.75)
    np.testing.assert_allclose(trained, record.W[0, 0, 0] / norm, rtol=1e-3, atol=1e-4)
    tab.context.close()
