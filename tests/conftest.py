"""Shared test configuration."""

import os
import signal
import sys
from pathlib import Path

import pytest
import torch
from hypothesis import settings
from threadpoolctl import threadpool_limits

from mirrormargin.errors import MissingNumbaError

HERE = Path(__file__).parent
sys.path[:0] = [str(HERE), str(HERE / "optim"), str(HERE / "integrations")]  # what ranks do, too

# A shell that starts the tests in the background lets them ignore interrupts, which some test.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

# Data lie beside the checkout, or where MIRRORMARGIN_DATA says; tests without them are skipped.
BESIDE = Path(__file__).parents[2] / "shared" / "data"
if "MIRRORMARGIN_DATA" not in os.environ and BESIDE.is_dir():
    os.environ["MIRRORMARGIN_DATA"] = str(BESIDE)

# With this variable the package leaves Numba alone. Here nothing else can import it either, and
# tests that need it are skipped.
WITHOUT_NUMBA = os.environ.get("MIRRORMARGIN_WITHOUT_NUMBA", "0") not in ("", "0")
if WITHOUT_NUMBA:
    sys.modules["numba"] = sys.modules["llvmlite"] = None  # pyright: ignore[reportArgumentType]

WORDS = ("a", "good", "bad", "film", "##s", "the", "plot", "was", "great", "dull", ".", "!", "x")

# Each test process gets one thread, and so does what it starts: the processes share the cores.
if "PYTEST_XDIST_WORKER" in os.environ:
    torch.set_num_threads(1)
    threadpool_limits(1)
    os.environ.setdefault("OMP_NUM_THREADS", "1")


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item):
    try:
        return (yield)
    except ImportError as error:
        is_numba = isinstance(error, MissingNumbaError) or error.name in ("numba", "llvmlite")
        if WITHOUT_NUMBA and is_numba:
            pytest.skip(f"compiled code needs Numba ({error})")
        raise


@pytest.fixture(scope="session")
def find_evidence(tmp_path_factory, request):
    """A function from the name of a story to its evidence, see quick_evidence.py."""
    from quick_evidence import QuickEvidence

    place = tmp_path_factory.getbasetemp()
    if hasattr(request.config, "workerinput"):
        place = place.parent  # that of all processes
    return QuickEvidence(place / "claims")


@pytest.fixture(scope="session")
def real_data():
    """The folder with the real data sets."""
    folder = os.environ.get("MIRRORMARGIN_DATA")
    if not folder or not (Path(folder) / "imdb").is_dir():
        pytest.skip("the data sets are not there: set MIRRORMARGIN_DATA to their folder")
    return Path(folder)


@pytest.fixture
def vocabulary():
    """Word pieces with the special tokens where bert-base-uncased has them."""
    unused = [f"[unused{number}]" for number in range(99)]
    return ("[PAD]", *unused, "[UNK]", "[CLS]", "[SEP]", "[MASK]", *WORDS)


@pytest.fixture
def data_dir(tmp_path, monkeypatch, vocabulary):
    """A data folder that holds nothing but the small vocabulary."""
    import mirrormargin.data.published
    from mirrormargin.data.files import Source

    folder = tmp_path / "data"
    (folder / "wordpiece").mkdir(parents=True)
    (folder / "wordpiece" / "vocab.txt").write_text("\n".join(vocabulary) + "\n", encoding="utf-8")
    source = Source("wordpiece/vocab.txt")
    monkeypatch.setattr(mirrormargin.data.published, "VOCABULARY", source)
    monkeypatch.setenv("MIRRORMARGIN_DATA", str(folder))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return folder


settings.register_profile("project", deadline=None, max_examples=50, derandomize=True)
settings.load_profile("project")
