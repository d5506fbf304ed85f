"""Both ways to solve a small problem: the general solver and the compiled one."""

import pytest

from mirrormargin.geometry.compiler import has_numba
from mirrormargin.svm import attention_svm

BOTH = ("test_attention_svm", "test_random")  # the other files are about the general solver


def pytest_generate_tests(metafunc):
    if metafunc.module.__name__.split(".")[-1] in BOTH:
        metafunc.parametrize("way", ["general", "compiled"], indirect=True)


@pytest.fixture(autouse=True)
def way(request, monkeypatch):
    """The compiled solver is switched off unless the test is to run with it."""
    if getattr(request, "param", "general") == "general":
        monkeypatch.setattr(attention_svm, "fits_kernel", lambda *shape: False)
    elif not has_numba():
        pytest.skip("compiled code needs Numba")
