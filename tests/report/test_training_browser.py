"""Figures of trainings in a real browser: drawn, quiet, and their texts are text."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from browser_tabs import SIZES, VIEWS, open_quiet_tab, open_tab
from training_arrays import REVIEWS

pytestmark = pytest.mark.browser

TEXTS = "#fig-token-selection .texts"


@pytest.fixture
def tab(browser: Any, training_page: Path) -> Iterator[Any]:
    yield from open_quiet_tab(browser, training_page)


@pytest.mark.parametrize(("size", "scheme"), VIEWS)
def test_every_training_is_drawn_and_nothing_sticks_out(
    browser: Any, training_page: Path, size: str, scheme: str
) -> None:
    tab = open_tab(browser, training_page, size, scheme)
    plots = tab.query_selector_all(".plot")
    assert len(plots) == 44
    for plot in plots:
        ink = ".scatterlayer path, .barlayer path, .heatmaplayer image"
        assert len(plot.query_selector_all(ink)) >= 1
    assert tab.messages == []
    assert [url for url in tab.requests if not url.startswith("data:")] == [training_page.as_uri()]
    widths = tab.evaluate("[document.documentElement.scrollWidth, document.body.scrollWidth]")
    assert max(widths) <= SIZES[size][0]
    word = tab.locator(f"{TEXTS} .word").first.bounding_box()
    assert word["x"] + word["width"] <= SIZES[size][0]
    tab.context.close()


def test_more_pruning_is_to_the_right(tab: Any) -> None:
    left, right = tab.evaluate(
        "document.querySelector('#fig-pruning-imdb .plot')._fullLayout.xaxis.range"
    )
    assert left > right


def test_shades_follow_the_weights_and_the_sentiment_word_is_underlined(tab: Any) -> None:
    cell = tab.locator(f"{TEXTS} tbody td").first
    words = cell.evaluate(
        "(cell) => [...cell.querySelectorAll('.word')].map((word) => [word.textContent,"
        " word.tagName, word.style.getPropertyValue('--weight'),"
        " getComputedStyle(word).backgroundColor])"
    )
    assert [word[0] for word in words] == REVIEWS[0][0].split()
    assert [word[0] for word in words if word[1] == "U"] == ["wonderful"]
    shades = {float(weight): color for _, _, weight, color in words}
    assert shades[0.0].endswith(", 0)")
    assert shades[1.0].startswith("rgb(")


def test_a_token_with_markup_is_text(tab: Any) -> None:
    tab.locator(f"{TEXTS} button").click()
    assert tab.locator(f"{TEXTS} tbody tr:visible").count() == len(REVIEWS)
    words = tab.locator(f"{TEXTS} tbody tr").last.locator("td").first.locator(".word")
    assert words.nth(1).text_content() == "<b>bold</b>&amp;"
    assert tab.locator(f"{TEXTS} b").count() == 0


def test_a_button_shows_all_texts_and_fewer_again(tab: Any) -> None:
    button, rows = tab.locator(f"{TEXTS} button"), tab.locator(f"{TEXTS} tbody tr:visible")
    assert rows.count() == 8
    assert button.inner_text() == f"Show all {len(REVIEWS)}"
    button.click()
    assert rows.count() == len(REVIEWS)
    button.click()
    assert rows.count() == 8


def test_on_a_phone_each_text_names_its_column(browser: Any, training_page: Path) -> None:
    tab = open_tab(browser, training_page, "narrow")
    read = "(cell) => [getComputedStyle(cell).display, getComputedStyle(cell, '::before').content]"
    cell = tab.locator(f"{TEXTS} tbody td").first
    display, content = cell.evaluate(read)
    assert display == "block"
    assert "MirrorDescent p=1.1" in content or "data-column" in content
    tab.context.close()


def test_the_download_has_the_weights_of_tokens(tab: Any) -> None:
    with tab.expect_download() as waiting:
        tab.locator("#fig-token-selection [data-format=csv]").click()
    rows = list(csv.DictReader(io.StringIO(Path(waiting.value.path()).read_text())))
    tokens = [row["x"] for row in rows if row["series"] == "MirrorDescent p=1.1 / text 1"]
    assert tokens == REVIEWS[0][0].split()
