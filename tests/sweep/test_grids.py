"""Grids: what may be given, how files say it, and errors before anything runs."""

import math
import re
from pathlib import Path

import pytest

from mirrormargin.attention import synthetic
from mirrormargin.errors import SweepError
from mirrormargin.sweep import LabGrid, TrainingGrid, read_grids
from mirrormargin.sweep.lab_grid import CALL, FAST
from mirrormargin.sweep.training_grid import find_config

LAB = """
[lab]
problem = ["unit_sphere", "equal_scores"]
seed = "1-1000"
p = [1.75, 2]
num_tokens = 4
max_lr = inf
record = [1, 10]
"""
TRAINING = """
[[training]]
configuration = "digits/tiny"
optimizer.p = [1.1, 2]
optimizer.lr = 1e-3
seed = "0-4"
[[training]]
configuration = "digits/tiny"
sparsifier = [{kind = "Schedule", share = 0.9}, {kind = "L1Penalty", strength = 1e-5}]
"""


def test_a_lab_grid_is_read_from_toml(tmp_path):
    path = tmp_path / "grid.toml"
    path.write_text(LAB)
    (grid,) = read_grids(path)
    assert grid.size == 2 * 1000 * 2
    settings = grid.products[1].settings(3)
    assert settings["problem"] == "equal_scores"
    assert (settings["seed"], settings["p"], settings["dim"]) == (2, 2.0, 64)
    assert settings["record"] == [1, 10]
    assert math.isinf(settings["max_lr"])


def test_a_training_grid_is_read_from_toml(tmp_path):
    path = tmp_path / "grid.toml"
    path.write_text(TRAINING)
    first, second = read_grids(path)
    assert (first.size, second.size) == (10, 2)
    config, with_test = find_config(first.products[0].settings(9))
    assert (config.optimizer.p, config.optimizer.lr, config.seeds.order) == (2.0, 1e-3, 4)
    assert not with_test
    assert find_config(second.products[0].settings(1))[0].sparsifier.strength == 1e-5


def test_the_grids_of_the_page_are_grids(tmp_path):
    page = Path(__file__).parents[2] / "docs" / "sweeps.md"
    blocks = re.findall(r"^```toml\n(.*?)^```", page.read_text(), flags=re.MULTILINE | re.DOTALL)
    sizes = []
    for block in blocks:
        (tmp_path / "grid.toml").write_text(block)
        sizes += [grid.size for grid in read_grids(tmp_path / "grid.toml")]
    assert sizes == [6000, 20]


def test_a_grid_may_be_python(tmp_path):
    path = tmp_path / "grid.py"
    path.write_text(
        "from mirrormargin.sweep import LabGrid\n"
        "GRID = [LabGrid(p=[1 + 2.0**-k for k in range(3)], seed=range(5))]\n"
    )
    (grid,) = read_grids(path)
    assert grid.size == 15
    path.write_text("GRID = [3]\n")
    with pytest.raises(SweepError, match="set GRID to a LabGrid or a TrainingGrid"):
        read_grids(path)


def test_every_setting_of_every_problem_can_be_swept_and_has_a_column():
    from mirrormargin.sweep.table import find_schema

    pytest.importorskip("pyarrow", reason="pyarrow is not installed: mirrormargin[sweep]")
    columns = {*find_schema("lab").names, "record"}
    for problem in synthetic.GENERATORS:
        (product,) = LabGrid(problem).products
        assert {*product.axes} <= columns
        assert {*CALL, *FAST} - {"seed"} <= {*product.axes}
        numbers = [product.settings(0)[name] for name in ("p", "lr", "num_steps")]
        assert numbers == [2.0, 0.1, 1000]


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"p": 1}, "p is 1: give a number above 1"),
        ({"p": [2, 2.0]}, "p: 2.0 is given with repetitions"),
        ({"lr": [0.1, 0]}, "lr is 0: give a number above 0"),
        ({"step_rule": "fast"}, "step_rule is 'fast': give one of constant, normalized, polyak"),
        ({"seed": "5-2"}, "seed is '5-2': give integers >= 0, or a range such as '1-1000'"),
        ({"seed": range(-1, 3)}, "seed is -1: give an integer of at least 0"),
        ({"seed": []}, "seed: there are no values"),
        ({"lrs": 1}, "unit_sphere has no setting 'lrs' in the lab: did you mean lr?"),
        ({"problem": "unit_spher"}, "there is no problem 'unit_spher': did you mean unit_sphere?"),
        ({"problem": "joint_toy", "seed": 1}, "joint_toy has no setting 'seed' in the lab"),
        ({"record": -1}, "record is -1: give an integer of at least 0"),
        ({"num_steps": 1.5}, "num_steps is 1.5: give an integer"),
    ],
)
def test_a_wrong_lab_setting_is_named_at_once(settings, message):
    with pytest.raises(SweepError) as caught:
        LabGrid(**settings)
    assert message in str(caught.value)


@pytest.mark.parametrize(
    ("name", "settings", "message"),
    [
        ("digits/huge", {}, "there is no configuration 'digits/huge'"),
        ("digits/tiny", {"optimizer.lt": 1}, "did you mean optimizer.lr?"),
        ("digits/tiny", {"epochs": [1, 0]}, "epochs is a whole number, at least 1, got 0"),
        ("digits/tiny", {"epochs": [1, 1]}, "epochs: 1 is given with repetitions"),
        ("digits/tiny", {"seed": 1, "seeds.init": 2}, "seed stands for seeds.init"),
    ],
)
def test_a_wrong_training_setting_is_named_at_once(name, settings, message):
    with pytest.raises(SweepError) as caught:
        TrainingGrid(name, settings)
    assert message in str(caught.value)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("[labs]", "has a table 'labs': did you mean lab?"),
        ("lab = 3", "lab is 3: write a table, [lab]"),
        ("[lab", "is no TOML"),
        ("", "is empty: write a table [lab] or [training]"),
        ("[training]\nseed = 1", "there is no configuration: name one"),
        ("[lab]\np = 0", "grid.toml: p is 0: give a number above 1"),
    ],
)
def test_a_wrong_file_is_named(tmp_path, text, message):
    path = tmp_path / "grid.toml"
    path.write_text(text)
    with pytest.raises(SweepError) as caught:
        read_grids(path)
    assert message in str(caught.value)


def test_a_file_that_is_none_is_named(tmp_path):
    with pytest.raises(SweepError, match="does not exist: give the file of a grid"):
        read_grids(tmp_path / "none.toml")
    with pytest.raises(SweepError, match=r"neither a \.toml nor a \.py file"):
        read_grids(tmp_path)
