"""Pages in a browser, for tests: what they say and ask for is kept."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

__all__ = ["SIZES", "VIEWS", "open_quiet_tab", "open_tab", "wait_for"]

SIZES = {"wide": (1280, 900), "narrow": (390, 844)}
VIEWS = [
    ("wide", "light"),
    ("narrow", "dark"),
    pytest.param("wide", "dark", marks=pytest.mark.slow),
    pytest.param("narrow", "light", marks=pytest.mark.slow),
]


def open_tab(
    browser: Any, page: Path, size: str = "wide", scheme: str = "light", **more: Any
) -> Any:
    width, height = SIZES[size]
    context = browser.new_context(
        viewport={"width": width, "height": height}, color_scheme=scheme, **more
    )
    tab = context.new_page()
    tab.messages, tab.requests = [], []
    tab.on("console", lambda message: tab.messages.append(message.text))
    tab.on("pageerror", lambda error: tab.messages.append(str(error)))
    tab.on("request", lambda request: tab.requests.append(request.url))
    tab.goto(page.as_uri())
    tab.wait_for_selector("html[data-drawn=all]", timeout=60_000)
    return tab


def open_quiet_tab(browser: Any, page: Path) -> Iterator[Any]:
    """A tab, for a fixture: the page may not have said anything by the time it is closed."""
    tab = open_tab(browser, page)
    yield tab
    assert tab.messages == []
    tab.context.close()


def wait_for(tab: Any, expression: str) -> None:
    """Ask again and again from outside: the page's own policy forbids to wait inside it."""
    for _ in range(600):
        if tab.evaluate(expression):
            return
        tab.wait_for_timeout(50)
    pytest.fail(f"never true: {expression}")
