"""Tables, text and the progress bar: plain in a pipe, harmless on a terminal."""

import io
import json
import sys
from types import SimpleNamespace

import pytest

from mirrormargin.cli import terminal
from mirrormargin.cli.terminal import Progress, print_json, print_table, printable, say, warn


class Terminal(io.StringIO):
    encoding = "utf-8"

    def isatty(self):
        return True


@pytest.fixture
def shown(monkeypatch):
    """What was written to a terminal on stderr since the last call."""
    stream = Terminal()
    monkeypatch.setattr(terminal, "sys", SimpleNamespace(stderr=stream, stdout=stream))
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("COLUMNS", "100")

    def read():
        text = stream.getvalue()
        stream.seek(0)
        stream.truncate()
        return text

    return read


@pytest.fixture
def clock(monkeypatch):
    """Seconds that pass only when a test says so; nothing is drawn in between."""

    class Clock:
        now = 100.0

    make_bar = terminal._make_bar

    def make():
        bar = make_bar()
        bar.get_time = lambda: Clock.now
        bar.live.auto_refresh = False
        return bar

    monkeypatch.setattr(terminal, "_make_bar", make)
    return Clock


def draw(progress):
    progress._bar.refresh()


def test_share_and_time_left_are_shown_and_cleared(shown, clock):
    with Progress(200, "train") as progress:
        progress.update(0, "p = 2")
        draw(progress)
        text = shown()
        assert "train" in text
        assert "0%" in text
        assert "p = 2" in text
        for done in (25, 50):
            clock.now += 15
            progress.update(done)
        draw(progress)
        text = shown()
        assert "25%" in text
        assert "01:30" in text
    assert shown().endswith("\x1b[?25h\r\x1b[1A\x1b[2K")  # the cursor is back, the line is gone


def test_work_that_is_resumed_is_timed_from_where_it_was(shown, clock):
    progress = Progress(100, "train")
    progress.update(90)
    for done in (92.5, 95):
        clock.now += 10
        progress.update(done)
    draw(progress)
    assert "00:20" in shown()
    progress.close()


def test_a_bar_that_was_closed_comes_back(shown, clock):
    with Progress(10, "solve") as progress:
        progress.update(1)
        progress.close()
        shown()
        progress.update(2)
        draw(progress)
        assert "20%" in shown()


def test_a_line_is_not_longer_than_the_terminal(shown, clock, monkeypatch):
    monkeypatch.setenv("COLUMNS", "40")
    with Progress(10, "solve") as progress:
        progress.update(1, "x" * 100)
        draw(progress)
        assert shown().count("\n") == 0


def test_closing_what_was_never_shown_writes_nothing(shown):
    Progress(10, "solve").close()
    assert shown() == ""


def test_nothing_to_do_is_all_done(shown, clock):
    with Progress(0, "solve") as progress:
        progress.update(0)
        draw(progress)
        assert "100%" in shown()


def test_quiet_shows_nothing(shown):
    with Progress(10, "solve", quiet=True) as progress:
        progress.update(5)
    assert shown() == ""


def test_no_terminal_shows_nothing(capsys):
    with Progress(10, "solve") as progress:
        progress.update(5)
    assert capsys.readouterr().err == ""


def test_a_table_in_a_pipe_is_aligned_at_any_width(capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "20")
    print_table(["p", "steps", "text"], [["1.75", "40", "a long text " * 20], ["2", "4000", "b"]])
    assert capsys.readouterr().out.splitlines() == [
        "   p  steps  text",
        f"1.75     40  {('a long text ' * 20).strip()}",
        "   2   4000  b",
    ]


def test_a_table_on_a_terminal_fits_and_has_colours_unless_they_are_refused(monkeypatch):
    rows = [["1.75", "a long text " * 20]]
    for refused in (False, True):
        stream = Terminal()
        monkeypatch.setattr(sys, "stdout", stream)
        monkeypatch.setenv("TERM", "xterm-256color")
        monkeypatch.setenv("COLUMNS", "40")
        if refused:
            monkeypatch.setenv("NO_COLOR", "1")
        print_table(["p", "text"], rows)
        text = stream.getvalue()
        assert len(text.splitlines()) > 5
        assert "\x1b[3" not in text  # no colours, at most bold
        assert max(len(line) for line in text.splitlines()[1:]) <= 40


HOSTILE = "ok\x1b]0;title\x07\x1b[31m\x9b\r\x08\ud800\u202e"


def test_text_from_data_sends_no_control_characters(capsys):
    say(HOSTILE)
    warn(HOSTILE)
    print_table(["a", "b"], [[HOSTILE, HOSTILE]])
    print_table(["a", HOSTILE], [["1", "2"]])
    captured = capsys.readouterr()
    for text in (captured.out, captured.err):
        assert "ok?]0;title??[31m???" in text
        assert all(letter.isprintable() or letter == "\n" for letter in text)


def test_text_that_a_stream_cannot_encode_is_replaced():
    stream = io.TextIOWrapper(io.BytesIO(), encoding="ascii")
    assert printable("naïve ‖W‖", stream) == "na?ve ?W?"


def test_json_has_null_where_there_is_no_number(capsys):
    print_json({"a": float("nan"), "b": [float("inf"), 1.5], "c": {"d": HOSTILE[:3]}})
    out = capsys.readouterr().out
    assert json.loads(out) == {"a": None, "b": [None, 1.5], "c": {"d": HOSTILE[:3]}}
    assert all(letter.isprintable() or letter == "\n" for letter in out)
