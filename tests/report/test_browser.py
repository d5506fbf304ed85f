"""The page in a real browser: drawn, quiet, offline, and everything on it works."""

from __future__ import annotations

import csv
import io
import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from browser_tabs import SIZES, VIEWS, open_quiet_tab, open_tab, wait_for

pytestmark = pytest.mark.browser


@pytest.fixture
def tab(browser: Any, page: Path) -> Iterator[Any]:
    yield from open_quiet_tab(browser, page)


@pytest.mark.parametrize(("size", "scheme"), VIEWS)
def test_every_figure_is_drawn_nothing_is_asked_for_and_nothing_sticks_out(
    browser: Any, page: Path, size: str, scheme: str
) -> None:
    tab = open_tab(browser, page, size, scheme)
    plots = tab.query_selector_all(".plot")
    assert len(plots) == 23
    for plot in plots:
        box = plot.query_selector("svg.main-svg").bounding_box()
        assert box["width"] > 100
        assert box["height"] > 100
        ink = ".scatterlayer path, .barlayer path, .heatmaplayer image"
        assert len(plot.query_selector_all(ink)) >= 1
    # Plotly makes pictures of heat maps by itself, out of data.
    assert [url for url in tab.requests if not url.startswith("data:")] == [page.as_uri()]
    assert tab.messages == []
    assert tab.evaluate("document.documentElement.dataset.theme") == scheme
    tab.evaluate("document.querySelectorAll('details').forEach((one) => { one.open = true; })")
    widths = tab.evaluate("[document.documentElement.scrollWidth, document.body.scrollWidth]")
    assert max(widths) <= SIZES[size][0]
    assert tab.evaluate("scrollTo(500, 0), scrollX") == 0
    tab.context.close()


@pytest.mark.slow
def test_panels_stack_when_the_window_gets_narrow(tab: Any) -> None:
    def lefts() -> set[int]:
        boxes = [
            p.bounding_box()
            for p in tab.query_selector_all("#fig-directions .plot svg.main-svg:first-child")
        ]
        assert boxes
        assert all(box["x"] + box["width"] <= tab.viewport_size["width"] for box in boxes)
        return {round(box["x"]) for box in boxes}

    assert len(lefts()) == 3
    tab.set_viewport_size({"width": 390, "height": 844})
    wait_for(
        tab, "[...document.querySelectorAll('.plot')].every((p) => p._fullLayout.width <= 390)"
    )
    assert len(lefts()) == 1


def test_the_slider_moves_all_maps(tab: Any) -> None:
    read = "[...document.querySelectorAll('#fig-attention .plot')].map((p) => p.data[0].z)"
    output = tab.locator("#fig-attention output")
    last, label = tab.evaluate(read), output.inner_text()
    slider = tab.locator("#fig-attention input[type=range]")
    slider.focus()
    tab.keyboard.press("Home")
    first = tab.evaluate(read)
    assert output.inner_text() == "step 0"
    assert label != "step 0"
    for one, other in zip(first, last, strict=True):
        assert one != other
    assert first[0][0][0] == pytest.approx(0.2)  # five tokens alike
    tab.keyboard.press("ArrowRight")
    assert output.inner_text() not in ("step 0", label)


@pytest.mark.slow
def test_play_runs_to_the_last_frame(tab: Any) -> None:
    output, button = (
        tab.locator("#fig-attention output"),
        tab.locator("#fig-attention .player button"),
    )
    label = output.inner_text()
    button.click()
    assert button.inner_text() == "Pause"
    assert output.inner_text() != label
    wait_for(tab, "document.querySelector('#fig-attention .player button').textContent === 'Play'")
    assert output.inner_text() == label


def test_links_lead_from_a_claim_to_its_figure_and_back(tab: Any) -> None:
    claim = tab.locator("#claim-A-thm-rate")
    assert not claim.evaluate("(one) => one.open")
    claim.locator("summary").click()
    claim.locator("a[href='#fig-rates']").click()
    assert tab.url.endswith("#fig-rates")
    claim.evaluate("(one) => { one.open = false; }")
    tab.locator("#fig-rates .back a").click()
    assert tab.url.endswith("#claim-A-thm-rate")
    wait_for(tab, "document.getElementById('claim-A-thm-rate').open")


@pytest.mark.slow
def test_a_link_to_a_hidden_claim_shows_it(tab: Any) -> None:
    tab.locator(".chip", has_text="not run").click()
    assert not tab.locator("#claim-A-thm-rate").is_visible()
    tab.locator("#fig-rates .back a").click()
    wait_for(tab, "!document.getElementById('claim-A-thm-rate').hidden")
    assert tab.locator("#claim-A-thm-rate .body").is_visible()


def test_chips_filter_the_claims(tab: Any) -> None:
    def shown() -> int:
        return sum(row.is_visible() for row in tab.query_selector_all("details.claim"))

    assert shown() == 6
    chip = tab.locator(".chip", has_text="not reproduced")
    chip.click()
    assert shown() == 1
    assert chip.get_attribute("aria-pressed") == "true"
    assert tab.locator("#shown").inner_text() == "1 of 6 claims: not reproduced"
    assert tab.locator(".paper:visible").count() == 1
    chip.click()
    assert shown() == 6


def test_the_theme_button_recolours_page_and_figures(tab: Any) -> None:
    read = (
        "[getComputedStyle(document.body).backgroundColor,"
        " [...document.querySelectorAll('#fig-directions .js-line')]"
        ".find((line) => line.style.strokeWidth === '2px').style.stroke,"
        " document.querySelector('#fig-directions .plot .xtick text').style.fill,"
        " getComputedStyle(document.querySelector('#fig-directions .legend i')).borderTopColor]"
    )
    light = tab.evaluate(read)
    tab.locator("#theme").click()
    wait_for(tab, f"JSON.stringify({read}) !== {json.dumps(json.dumps(light))}")
    dark = tab.evaluate(read)
    assert all(one != other for one, other in zip(light, dark, strict=True))
    tab.locator("#theme").click()
    assert tab.evaluate(read) == light


def test_the_legend_hides_and_shows_a_line_in_every_panel(tab: Any) -> None:
    count = "document.querySelectorAll('#fig-directions .scatterlayer .trace').length"
    button = tab.locator("#fig-directions .legend button", has_text="solution at q = 2")
    before = tab.evaluate(count)
    button.click()
    assert tab.evaluate(count) == before - 6  # a line and its band in three panels
    assert button.get_attribute("aria-pressed") == "false"
    button.click()
    assert tab.evaluate(count) == before
    tab.locator("#fig-directions .legend button", has_text="q = 2, for the same tokens").click()
    assert tab.evaluate(count) == before + 6


@pytest.mark.slow
def test_what_the_legend_hides_stays_hidden_in_the_other_theme(tab: Any) -> None:
    count = "document.querySelectorAll('#fig-directions .scatterlayer .trace').length"
    tab.locator("#fig-directions .legend button", has_text="solution at q = 2").click()
    hidden = tab.evaluate(count)
    tab.locator("#theme").click()
    assert tab.evaluate(count) == hidden


@pytest.mark.slow
def test_the_mode_bar_has_four_buttons_and_none_that_sends_anything(tab: Any) -> None:
    titles = tab.evaluate(
        "[...document.querySelectorAll('.plot')].map((plot) =>"
        " [...plot.querySelectorAll('.modebar-btn')].map((one) => one.dataset.title))"
    )
    assert titles
    for one in titles:
        assert sorted(one) == ["Download plot", "Pan", "Reset axes", "Zoom"]
    assert tab.locator(".plotlyjsicon").count() == 0


@pytest.mark.slow
def test_the_theme_that_was_chosen_is_there_again(tab: Any) -> None:
    tab.locator("#theme").click()
    tab.reload()
    tab.wait_for_selector("html[data-drawn=all]")
    assert tab.evaluate("document.documentElement.dataset.theme") == "dark"
    tab.locator("#theme").click()
    tab.reload()
    tab.wait_for_selector("html[data-drawn=all]")
    assert tab.evaluate("document.documentElement.dataset.theme") == "light"


@pytest.mark.slow
def test_without_storage_the_theme_button_still_works(browser: Any, page: Path) -> None:
    context = browser.new_context(color_scheme="light")
    context.add_init_script(
        "Object.defineProperty(window, 'localStorage', { get() { throw new Error('denied'); } });"
    )
    tab = context.new_page()
    errors: list[str] = []
    tab.on("pageerror", lambda error: errors.append(str(error)))
    tab.goto(page.as_uri())
    tab.wait_for_selector("html[data-drawn=all]")
    tab.locator("#theme").click()
    assert tab.evaluate("document.documentElement.dataset.theme") == "dark"
    assert errors == []
    context.close()


@pytest.mark.slow
def test_a_wide_table_scrolls_in_its_box_and_says_so(browser: Any, page: Path) -> None:
    hint = (
        "getComputedStyle(document.querySelector('#claim-A-thm-rate .scroll'), '::before').content"
    )
    for size, cut in (("narrow", True), ("wide", False)):
        tab = open_tab(browser, page, size)
        tab.locator("#claim-A-thm-rate summary").click()
        if cut:
            wait_for(tab, f"{hint}.includes('scroll')")
        box = tab.locator("#claim-A-thm-rate .scroll")
        assert box.evaluate("(one) => one.scrollWidth > one.clientWidth") == cut
        assert ("scroll" in tab.evaluate(hint)) == cut
        style = "(one) => getComputedStyle(one).whiteSpace"
        assert box.locator(".holds").first.evaluate(style) == "nowrap"
        assert tab.messages == []
        tab.context.close()


@pytest.mark.slow
def test_a_point_at_zero_is_in_the_download_but_not_on_a_log_axis(tab: Any) -> None:
    with tab.expect_download() as waiting:
        tab.locator("#fig-directions [data-format=csv]").click()
    rows = list(csv.DictReader(io.StringIO(Path(waiting.value.path()).read_text())))
    zeros = [row for row in rows if row["x"] == "0"]
    assert zeros
    assert all(float(row["y"]) > 0 for row in zeros)
    drawn = tab.evaluate(
        "[...document.querySelectorAll('#fig-directions .plot')]"
        ".flatMap((plot) => plot.data.flatMap((trace) => [...trace.x]))"
    )
    assert all(x is None or x > 0 for x in drawn)
    assert None in drawn


@pytest.mark.slow
def test_hovering_shows_the_number(tab: Any) -> None:
    plot = tab.locator("#fig-basins .plot").first
    plot.scroll_into_view_if_needed()
    bar = plot.locator(".barlayer path").first.bounding_box()
    tab.mouse.move(bar["x"] + bar["width"] / 2, bar["y"] + bar["height"] / 2)
    tab.mouse.move(bar["x"] + bar["width"] / 2 + 1, bar["y"] + bar["height"] / 2)
    tab.wait_for_selector("#fig-basins .hoverlayer text.nums", state="attached")
    assert "share of runs 0.5" in tab.locator("#fig-basins .hoverlayer").first.text_content()


@pytest.mark.slow
def test_the_copy_button_copies_the_command(tab: Any) -> None:
    tab.locator("#claim-B-fig-steps summary").click()
    button = tab.locator("#claim-B-fig-steps .copy")
    button.click()
    wait_for(tab, "document.querySelector('#claim-B-fig-steps .copy').textContent === 'Copied'")
    tab.evaluate("document.body.prepend(document.createElement('textarea'))")
    tab.locator("textarea").focus()
    tab.keyboard.press("Control+V")
    pasted = tab.locator("textarea").input_value()
    assert pasted == "mirrormargin reproduce B.fig.steps --profile quick --seed 0"


@pytest.mark.parametrize("form", ["csv", pytest.param("json", marks=pytest.mark.slow)])
def test_the_numbers_of_a_figure_can_be_downloaded(tab: Any, form: str) -> None:
    with tab.expect_download() as waiting:
        tab.locator(f"#fig-basins [data-format={form}]").click()
    assert waiting.value.suggested_filename == f"basins.{form}"
    text = Path(waiting.value.path()).read_text()
    if form == "csv":
        rows = list(csv.DictReader(io.StringIO(text)))
        points = [(row["series"], row["x"], float(row["y"])) for row in rows]
    else:
        series = json.loads(text)["panels"][0]["series"]
        points = [(one["label"], "p = 1.75", one["y"][0]) for one in series]
    assert ("optimal tokens", "p = 1.75", 0.5) in points


def test_a_statement_with_markup_is_text(tab: Any) -> None:
    tab.locator("#claim-A-fig-directions summary").click()
    text = tab.locator("#claim-A-fig-directions .body p").inner_text()
    assert text.startswith("</script><b>bold</b> & \"quoted\" 'text'")
    assert tab.locator("#claim-A-fig-directions .body b").count() == 0


@pytest.mark.slow
def test_verdicts_are_told_by_symbol_and_word(tab: Any) -> None:
    texts = [re.sub(r"\s+", " ", text) for text in tab.locator(".badge").all_inner_texts()]
    assert set(texts) == {
        "✓ reproduced", "≈ reproduced differently", "✗ not reproduced", "○ not run"
    }  # fmt: skip


def test_everything_can_be_reached_by_keyboard(tab: Any) -> None:
    reached = set()
    for _ in range(40):
        tab.keyboard.press("Tab")
        reached.add(tab.evaluate("document.activeElement.className || document.activeElement.id"))
    assert {"skip", "quiet", "chip", "row"} <= reached


@pytest.mark.slow
def test_reduced_motion_switches_transitions_off(browser: Any, page: Path) -> None:
    tab = open_tab(browser, page, reduced_motion="reduce")
    style = "getComputedStyle(document.documentElement).scrollBehavior"
    assert tab.evaluate(style) == "auto"
    tab.context.close()


@pytest.mark.slow
def test_without_scripts_the_verdicts_can_still_be_read(browser: Any, page: Path) -> None:
    context = browser.new_context(java_script_enabled=False)
    tab = context.new_page()
    tab.goto(page.as_uri())
    tab.locator("#claim-B-fig-steps summary").click()
    assert tab.locator("#claim-B-fig-steps .body").is_visible()
    context.close()
