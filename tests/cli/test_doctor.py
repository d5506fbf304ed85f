"""``mirrormargin doctor``: a report that also comes out when something is broken."""

import json
import platform

import numba
import pytest
import torch

from mirrormargin.cli import doctor, main
from mirrormargin.optim import devices


@pytest.fixture
def passing(monkeypatch):
    monkeypatch.setattr(doctor, "CHECKS", {"nothing": lambda: None})


def fail():
    raise ArithmeticError("weights differ by 1e+00")


def test_self_test_passes_here(capsys):
    code = main(["doctor", "--json"])
    report = json.loads(capsys.readouterr().out)
    assert {name: check["message"] for name, check in report["self_test"].items()} == {
        "fused step equals the reference": "",
        "p = 2 equals torch.optim.SGD": "",
    }
    assert report["ok"] is True
    assert code == 0


def test_report_names_versions_and_machine(passing, capsys):
    assert main(["doctor", "--json"]) == 0
    report = json.loads(capsys.readouterr().out)
    assert report["versions"]["python"] == platform.python_version()
    assert report["versions"]["torch"] == torch.__version__
    assert report["machine"]["torch_threads"] == torch.get_num_threads()
    assert set(report["machine"]["cpu_features"]) == {"avx2", "fma", "avx512f"}
    assert report["machine"]["kernel_cache"]["writable"] in (True, False)
    assert report["extras"]["scikit-learn"] is True


def test_report_says_which_path_each_device_takes_and_why(passing, monkeypatch, capsys):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    monkeypatch.setattr(torch.backends.mps, "is_available", lambda: False)
    monkeypatch.setattr(devices, "find_triton_failure", lambda device=None: "Triton has gone")
    assert main(["doctor", "--json"]) == 0
    paths = json.loads(capsys.readouterr().out)["paths"]
    assert (
        paths["cpu"]
        == f"compiled (Numba {numba.__version__}) for float32, bfloat16 and float16, else plain"
    )
    assert paths["cuda"] == "not present; would take plain, for Triton has gone"
    assert paths["mps"] == "not present; would take plain, in float32, for there is no kernel"
    monkeypatch.setattr(devices, "find_numba_failure", lambda: "Numba has gone")
    assert main(["doctor"]) == 0
    assert "plain, for Numba has gone" in capsys.readouterr().out


def test_report_names_the_gpu_that_takes_triton(passing, monkeypatch, capsys):
    triton = pytest.importorskip("triton", reason="Triton cannot be imported here")
    monkeypatch.setattr(doctor, "_find_gpu_checks", dict)
    assert main(["doctor", "--json"]) == 0
    named = f"triton {triton.__version__}"
    if not torch.cuda.is_available():
        paths = json.loads(capsys.readouterr().out)["paths"]
        assert paths["cuda"] == f"not present; would take {named}"
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda index: "A GPU")
    monkeypatch.setattr(devices, "find_triton_failure", lambda device=None: None)
    assert main(["doctor", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["paths"]["cuda"] == f"{named} (A GPU)"


def test_kernels_for_gpus_are_tested_where_they_can_run(monkeypatch):
    """``triton_in_interpreter.py`` has the test of that test."""
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    monkeypatch.delenv("TRITON_INTERPRET", raising=False)
    assert doctor._find_gpu_checks() == {}
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(devices, "find_triton_failure", lambda device=None: None)
    assert list(doctor._find_gpu_checks()) == ["Triton step on the GPU equals the reference"]


def test_text_report_ends_with_the_verdicts(passing, capsys):
    assert main(["doctor"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].startswith("mirrormargin")
    assert lines[-1].split()[:2] == ["nothing", "ok"]


def test_failed_check_is_reported_with_exit_code_1(monkeypatch, capsys):
    monkeypatch.setattr(doctor, "CHECKS", {"addition": fail})
    assert main(["doctor"]) == 1
    assert "FAILED: ArithmeticError: weights differ by 1e+00" in capsys.readouterr().out
    assert main(["doctor", "--json"]) == 1
    assert json.loads(capsys.readouterr().out)["ok"] is False


def test_self_test_notices_a_wrong_optimizer(monkeypatch):
    class Slower(torch.optim.SGD):
        def __init__(self, params, lr, p):
            super().__init__(params, lr=lr / 2)

    monkeypatch.setattr("mirrormargin.MirrorDescent", Slower)
    verdict = doctor._judge(doctor._check_p2_is_sgd)
    assert verdict["ok"] is False
    assert "weights differ by" in verdict["message"]


def test_broken_part_of_the_machine_does_not_hide_the_rest(passing, monkeypatch, capsys):
    monkeypatch.setattr(doctor, "_find_cpu_features", fail)
    assert main(["doctor"]) == 0
    out = capsys.readouterr().out
    assert "cpu features    unknown (ArithmeticError: weights differ by 1e+00)" in out
    assert "torch threads" in out


def test_unwritable_cache_comes_with_advice(passing, monkeypatch, tmp_path, capsys):
    blocked = tmp_path / "file"
    blocked.write_text("not a folder")
    monkeypatch.setenv("NUMBA_CACHE_DIR", str(blocked))
    assert main(["doctor"]) == 0
    assert f"{blocked} (not writable: set NUMBA_CACHE_DIR)" in capsys.readouterr().out
