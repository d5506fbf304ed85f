"""Compiled functions on disk: never stale, and never needed."""

import ast
import importlib
import re
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("numba", reason="compiled code needs Numba", exc_type=ImportError)
from numba.core import config, types

import mirrormargin
from mirrormargin.geometry.compiler import CompiledFunction

SIGNATURE = types.float64(types.float64)

CALLED = """
from numba import njit

@njit
def shift(x):
    return x + {shift}
"""
# Many statements, so that compiling takes longer than two processes start apart.
SLOW_CALLER = (
    "def make(version):\n    def work(x):\n        _ = version\n"
    + "        x = x * x + 1.0 if x > 0 else x - 2.0\n" * 60
    + "        return x\n    return work\n"
)
CALLER = """
def make(version):
    def work(x):
        _ = version
        return shift(x)
    return work
"""


def make_square(version):
    def square(x):
        _ = version
        return x * x

    return square


@pytest.fixture
def cache(tmp_path, monkeypatch):
    """Numba's folder."""
    folder = tmp_path / "cache"
    monkeypatch.setattr(config, "CACHE_DIR", str(folder))
    return folder


def load(folder, shift):
    """The result of a function in two files, read as by a new process, and whether it was kept."""
    called, caller = folder / "called.py", folder / "caller.py"
    called.write_text(CALLED.format(shift=shift))
    if not caller.exists():  # Numba looks at its date
        caller.write_text(CALLER)
    names = {}
    for path in (called, caller):
        exec(compile(path.read_text(), str(path), "exec"), names)
    function = CompiledFunction(names["make"], SIGNATURE, [str(caller), str(called)]).load()
    return function(1.0), sum(function.stats.cache_hits.values()) == 1


def test_a_change_of_a_file_that_is_called_is_noticed(tmp_path, cache):
    assert load(tmp_path, 1.0) == (2.0, False)
    assert load(tmp_path, 1.0) == (2.0, True)
    assert load(tmp_path, 5.0) == (6.0, False)


def test_a_cache_that_cannot_be_written_changes_nothing(tmp_path, cache, monkeypatch):
    # The folder that was asked for, the one beside the file, and the one of the user.
    for name in ("cache", "__pycache__", "home"):
        (tmp_path / name).write_text("not a folder")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "home"))
    for _ in range(2):
        assert load(tmp_path, 1.0) == (2.0, False)


def test_a_damaged_cache_changes_nothing(tmp_path, cache):
    load(tmp_path, 1.0)
    files = [path for path in cache.rglob("*") if path.is_file()]
    assert files
    for path in files:
        path.write_bytes(b"damaged")
    assert load(tmp_path, 1.0) == (2.0, False)


def test_the_digest_is_that_of_all_sources(tmp_path):
    first, second = tmp_path / "first.py", tmp_path / "second.py"
    first.write_text("a = 1")
    second.write_text("b = 1")
    sources = [str(first), str(second)]
    versions = {CompiledFunction(make_square, SIGNATURE, sources)._version}
    assert {CompiledFunction(make_square, SIGNATURE, sources)._version} == versions
    second.write_text("b = 2")
    versions.add(CompiledFunction(make_square, SIGNATURE, sources)._version)
    first.write_text("a = 2")
    versions.add(CompiledFunction(make_square, SIGNATURE, sources)._version)
    assert len(versions) == 3


def test_a_source_that_is_missing_is_an_error(tmp_path):
    with pytest.raises(FileNotFoundError):
        CompiledFunction(make_square, SIGNATURE, [str(tmp_path / "gone.py")])


# Everything in the package that is compiled, by module.
COMPILED = {
    "geometry.float32_powers": ["_power_kernels"],
    "geometry.float32_norms": ["_largest_kernel", "_power_sum_kernels"],
    "geometry.compiled_vector_batches": ["powers", "norms", "divergences"],
    "optim.compiled": ["_descent_kernels", "_adam_kernels"],
    "optim.compiled_ranking": ["_count_kernel", "_collect_kernel", "_remove_kernel"],
    "svm.compiled.kernel": ["_kernel"],
    "dynamics.descent.lane_loop": ["advance_lanes"],
    "dynamics.descent.training_loop": ["advance"],
}


def test_every_compiled_function_of_the_package_is_in_this_list():
    root = Path(mirrormargin.__file__).parent
    found = {
        ".".join(path.relative_to(root).with_suffix("").parts)
        for path in root.rglob("*.py")
        if re.search(r"= CompiledFunction\(|^@kernel", path.read_text(), re.MULTILINE)
    }
    assert found - {"geometry.compiler"} == set(COMPILED)


@pytest.mark.parametrize(
    ("module", "name"), [(module, name) for module in COMPILED for name in COMPILED[module]]
)
def test_sources_hold_all_compiled_code_that_they_call(module, name):
    """Modules with compiled code, as they import from Numba or from one that does."""
    function = getattr(importlib.import_module(f"mirrormargin.{module}"), name)
    listed = {Path(source) for source in function.sources}
    root = Path(mirrormargin.__file__).parent
    for source in listed - {root / "geometry" / "compiler.py"}:
        for node in ast.walk(ast.parse(source.read_text())):
            if not isinstance(node, ast.ImportFrom) or not (node.module or "").startswith("mirr"):
                continue
            parent = root.parent.joinpath(*node.module.split("."))
            files = [parent.with_suffix(".py"), *(parent / f"{one.name}.py" for one in node.names)]
            for file in files:
                if file.exists() and re.search(r"^SOURCES = ", file.read_text(), re.MULTILINE):
                    assert file in listed, f"{source} calls into {file}"


@pytest.mark.parametrize("path", ["geometry", "optim", "attention", "svm", "dynamics"])
def test_every_module_with_compiled_code_lists_its_sources(path):
    for file in (Path(mirrormargin.__file__).parent / path).rglob("*.py"):
        text = file.read_text()
        if file.name != "compiler.py" and re.search(r"^@(inlined|compiled)$", text, re.M):
            assert re.search(r"^_?SOURCES = ", text, re.M) or "CompiledFunction(" in text, file


def test_a_function_is_compiled_once():
    made = []

    def make(version):
        made.append(version)
        return make_square(version)

    function = CompiledFunction(make, SIGNATURE, [__file__])
    assert function.load() is function.load()
    assert function.load()(3.0) == 9.0
    assert len(made) == 1


TWIN = """
import sys, time
from numba.core import config, types
sys.path.insert(0, sys.argv[1])
config.CACHE_DIR = sys.argv[2]
import caller
from mirrormargin.geometry.compiler import CompiledFunction
function = CompiledFunction(caller.make, types.float64(types.float64), [caller.__file__])
print("ready", flush=True)
sys.stdin.read(1)
print(sum(function.load().stats.cache_hits.values()))
"""


@pytest.mark.skipif(sys.platform == "win32", reason="files are locked elsewhere only")
def test_of_two_processes_one_compiles_and_the_other_waits(tmp_path):
    (tmp_path / "caller.py").write_text("def shift(x):\n    return x\n" + SLOW_CALLER)
    command = [sys.executable, "-c", TWIN, str(tmp_path), str(tmp_path / "cache")]
    twins = [
        subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        for _ in range(2)
    ]
    for twin in twins:
        assert twin.stdout.readline() == "ready\n"
    for twin in twins:
        twin.stdin.write("!")
        twin.stdin.flush()
    assert sorted(twin.communicate()[0].strip() for twin in twins) == ["0", "1"]
