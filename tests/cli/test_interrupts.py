"""SIGINT and SIGTERM: one line, the exit code of the signal, wherever they come."""

import os
import random
import signal
import subprocess
import sys
import time

import pytest

from mirrormargin.cli import interrupts, main
from mirrormargin.errors import RunError

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="signals are those of POSIX")
WORDS = {signal.SIGINT: "interrupted", signal.SIGTERM: "terminated"}
BOTH = pytest.mark.parametrize("number", WORDS, ids=["int", "term"])


def send(number):
    os.kill(os.getpid(), number)
    time.sleep(10)  # it comes at once


@BOTH
def test_a_signal_is_one_line_and_its_exit_code(number, monkeypatch, capsys):
    monkeypatch.setattr("mirrormargin.claims.find_claims", lambda names: send(number))
    before = [signal.getsignal(one) for one in WORDS]
    assert main(["reproduce", "A.alg"]) == 128 + number
    assert capsys.readouterr().err == f"mirrormargin: {WORDS[number]}\n"
    assert [signal.getsignal(one) for one in WORDS] == before


def test_a_keyboard_interrupt_without_a_signal_is_an_interrupt(monkeypatch, capsys):
    def interrupt(names):
        raise KeyboardInterrupt

    monkeypatch.setattr("mirrormargin.claims.find_claims", interrupt)
    assert main(["reproduce", "A.alg"]) == 130
    assert capsys.readouterr().err == "mirrormargin: interrupted\n"


@BOTH
def test_what_an_interrupted_import_raises_does_not_matter(number, monkeypatch, capsys):
    def fail(names):
        try:
            send(number)
        except KeyboardInterrupt:
            raise ImportError("half imported") from None

    monkeypatch.setattr("mirrormargin.claims.find_claims", fail)
    assert main(["reproduce", "A.alg"]) == 128 + number
    assert capsys.readouterr().err == f"mirrormargin: {WORDS[number]}\n"


@BOTH
def test_a_noted_signal_waits_and_a_second_one_does_not(number):
    signals = interrupts.NotedSignals()
    with signals.listen():
        os.kill(os.getpid(), number)
        time.sleep(0.01)
        assert signals.have_come
        with pytest.raises(KeyboardInterrupt):
            send(number)


def test_a_signal_that_is_ignored_stays_ignored():
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        with interrupts.raise_on_signals():
            os.kill(os.getpid(), signal.SIGINT)
            assert not interrupts.is_received()
    finally:
        signal.signal(signal.SIGINT, before)


@BOTH
def test_a_signal_during_imports_leaves_no_traceback(number):
    # As soon as main() is in charge; what Python itself imports before cannot be caught.
    program = (
        "import sys; from mirrormargin.cli import main\n"
        "print('go', flush=True); sys.exit(main(['doctor']))"
    )
    process = subprocess.Popen(
        [sys.executable, "-c", program],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert process.stdout.readline() == "go\n"
    time.sleep(random.Random(int(number)).uniform(0.2, 1.0))
    process.send_signal(number)
    _, errors = process.communicate(timeout=120)
    assert (process.returncode, errors) == (128 + number, f"mirrormargin: {WORDS[number]}\n")


@BOTH
def test_a_signal_while_a_library_is_set_up_raises_nothing_in_it(number, tmp_path):
    """Some abort on an exception that passes through their C code."""
    (tmp_path / "slow_library.py").write_text(
        "import os\n"
        "try:\n"
        f"    os.kill(os.getpid(), {int(number)})\n"
        "    import time; time.sleep(30)\n"
        "except BaseException:\n"
        "    os.abort()\n"
    )
    program = (
        "import sys; from mirrormargin.cli import interrupts\n"
        "print('before')\n"
        "with interrupts.raise_on_signals():\n"
        "    import slow_library"
    )
    path = os.pathsep.join([str(tmp_path), *sys.path])
    process = subprocess.run(
        [sys.executable, "-c", program],
        env={**os.environ, "PYTHONPATH": path},
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert (process.returncode, process.stdout) == (128 + number, "before\n")
    assert process.stderr == f"mirrormargin: {WORDS[number]}\n"


@BOTH
def test_a_signal_that_python_drops_is_raised_again(number, monkeypatch, capsys):
    class Deleted:
        def __del__(self):
            send(number)  # an exception that leaves this is dropped

    def delete(names):
        Deleted()
        time.sleep(10)
        raise AssertionError

    monkeypatch.setattr("mirrormargin.claims.find_claims", delete)
    assert main(["reproduce", "A.alg"]) == 128 + number
    assert capsys.readouterr().err == f"mirrormargin: {WORDS[number]}\n"


@BOTH
def test_an_error_that_a_signal_caused_is_not_told(number, monkeypatch, capsys):
    def fail(names):
        try:
            send(number)
        except KeyboardInterrupt:
            raise RunError("a worker died") from None

    monkeypatch.setattr("mirrormargin.claims.find_claims", fail)
    assert main(["reproduce", "A.alg"]) == 128 + number
    assert capsys.readouterr().err == f"mirrormargin: {WORDS[number]}\n"
