"""The progress line: on a terminal only, and gone in the end."""

import io
from types import SimpleNamespace

import pytest

from mirrormargin.cli import progress as module
from mirrormargin.cli.progress import ERASE, Progress


class Terminal(io.StringIO):
    def isatty(self):
        return True


@pytest.fixture
def shown(monkeypatch):
    """What was written to the terminal since the last call."""
    terminal = Terminal()
    monkeypatch.setattr(module, "sys", SimpleNamespace(stderr=terminal))

    def read():
        text = terminal.getvalue()
        terminal.seek(0)
        terminal.truncate()
        return text

    return read


@pytest.fixture
def clock(monkeypatch):
    """Seconds that pass only when a test says so."""

    class Clock:
        now = 100.0

        def monotonic(self):
            return self.now

    clock = Clock()
    monkeypatch.setattr(module, "time", clock)
    return clock


def test_share_and_time_left_are_shown_and_cleared(shown, clock):
    with Progress(200, "train") as progress:
        progress.update(0, "p = 2")
        assert shown() == f"{ERASE}train    0%  p = 2"
        clock.now += 30
        progress.update(50)
        assert shown() == f"{ERASE}train   25%  1:30 left"
    assert shown() == ERASE


def test_work_that_goes_on_is_timed_from_where_it_was(shown, clock):
    progress = Progress(100, "train")
    progress.update(90)
    clock.now += 3600
    progress.update(95)
    assert shown().endswith("95%  1:00:00 left")


def test_frequent_updates_are_drawn_once(shown, clock):
    progress = Progress(10, "solve")
    for done in range(10):
        progress.update(done)
    assert shown().count(ERASE) == 1


def test_a_line_is_not_longer_than_the_terminal(shown, clock, monkeypatch):
    monkeypatch.setenv("COLUMNS", "20")
    Progress(10, "solve").update(1, "x" * 100)
    assert len(shown().removeprefix(ERASE)) == 19


def test_closing_what_was_never_shown_writes_nothing(shown):
    Progress(10, "solve").close()
    assert shown() == ""


def test_nothing_to_do_is_all_done(shown, clock):
    Progress(0, "solve").update(0)
    assert "100%" in shown()


def test_quiet_shows_nothing(shown):
    with Progress(10, "solve", quiet=True) as progress:
        progress.update(5)
    assert shown() == ""


def test_no_terminal_shows_nothing(capsys):
    with Progress(10, "solve") as progress:
        progress.update(5)
    assert capsys.readouterr().err == ""
