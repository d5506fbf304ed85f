"""Problems by name and from files; what is wrong with one is said in a line."""

import json

import numpy as np
import pytest

import mirrormargin as mm
from mirrormargin.cli.lab.problems import GENERATORS, NAMES, load_problems, open_source
from mirrormargin.errors import ProblemError


def write_npz(path, content):
    np.savez(path, **content)


def write_json(path, content):
    lists = {key: np.asarray(value).tolist() for key, value in content.items()}
    path.write_text(json.dumps(lists))


WRITERS = pytest.mark.parametrize(
    ("suffix", "write"), [("npz", write_npz), ("json", write_json)], ids=["npz", "json"]
)


@pytest.fixture
def content():
    problem = mm.synthetic.unit_sphere(1)
    return {name: getattr(problem, name) for name in ("tokens", "queries", "labels", "head")}


def same(one, other):
    names = ("tokens", "queries", "labels", "head")
    return all(np.array_equal(getattr(one, name), getattr(other, name)) for name in names)


def test_the_lab_is_all_generators_in_their_order():
    assert tuple(mm.synthetic.GENERATORS) == GENERATORS


@WRITERS
def test_a_file_holds_the_problem_to_the_last_bit(tmp_path, content, suffix, write):
    path = tmp_path / f"problem.{suffix}"
    write(path, content | {"loss": "exponential", "selection": [0] * 6})
    [(seed, problem)] = load_problems(str(path), None)
    assert seed is None
    assert problem.loss_name == "exponential"
    assert same(problem, mm.synthetic.unit_sphere(1))


def test_seeds_choose_the_problems_of_the_lab():
    found = load_problems("unit_sphere", [3, 5])
    assert [seed for seed, _ in found] == [3, 5]
    assert all(same(problem, mm.synthetic.unit_sphere(seed)) for seed, problem in found)


@pytest.mark.parametrize(("name", "seed"), [("unit_sphere", 1), ("planar_multi", 0)])
def test_the_default_seed_is_the_generators_own_or_one(name, seed):
    [(found, problem)] = load_problems(name, None)
    assert found == seed
    assert same(problem, mm.synthetic.GENERATORS[name](seed))


def test_every_generator_has_a_problem_by_default():
    for name in GENERATORS:
        [(_, problem)] = load_problems(name, None)
        assert problem.num_tokens >= 2


@pytest.mark.parametrize(
    ("name", "seeds", "message"),
    [
        ("sphere", None, r"no problem 'sphere' .*: did you mean unit_sphere\?"),
        ("lab/unit_sphere", None, r"no problem 'lab/unit_sphere' .*: did you mean unit_sphere\?"),
        ("joint_toy", [1], "--seed is given, but joint_toy has no seed"),
        ("imdb/small", None, r"no problem 'imdb/small' .*: there are unit_sphere, equal_scores, "),
        ("nowhere.npz", None, "nowhere.npz does not exist"),
        ("nowhere.json", None, "nowhere.json does not exist"),
        ("nowhere.npz", [1], "the problem in nowhere.npz has no seed"),
        (".", None, "is neither an .npz nor a .json file"),
    ],
)
def test_an_unknown_problem_comes_with_the_known_ones(name, seeds, message):
    with pytest.raises(ProblemError, match=message):
        open_source(name, seeds)


@WRITERS
def test_unknown_keys_are_named_with_the_known_ones(tmp_path, content, suffix, write):
    path = tmp_path / f"problem.{suffix}"
    write(path, content | {"lables": [1]})
    with pytest.raises(ProblemError, match=f"holds 'lables', but the keys are {', '.join(NAMES)}"):
        open_source(str(path), None)


@WRITERS
def test_missing_and_wrong_parts_are_named(tmp_path, content, suffix, write):
    path = tmp_path / f"problem.{suffix}"
    for change, message in (
        ({"head": None}, "lacks head; it holds tokens, queries, labels"),
        ({"features": np.eye(2)}, "holds features, which a problem to train on does not have"),
        ({"loss": "hinge"}, "loss is 'hinge': give one of logistic"),
        ({"loss": [1, 2]}, r"loss is .*: give one of logistic"),
        ({"labels": [1, 2, 1, 1, 1, 1]}, r"labels\[1\] is 2"),
    ):
        merged = content | change
        write(path, {key: value for key, value in merged.items() if value is not None})
        with pytest.raises(ProblemError, match=message):
            load_problems(str(path), None)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "cannot be read as a JSON file"),
        ("{tokens: 1}", "cannot be read as a JSON file"),
        ("[" * 100_000, "cannot be read as a JSON file"),
        ("[1, 2]", "holds a list, not an object"),
        ('{"head": [1, NaN]}', "it holds NaN, but numbers must be finite"),
        ('{"head": [1, -Infinity]}', "it holds -Infinity"),
        ('{"head": [1, 1e999]}', "head in .* holds a number beyond floating point"),
        ('{"tokens": [[1, 2], [3]]}', "tokens in .* is ragged: give nested lists of equal"),
        ('{"head": [1, null]}', "head in .* must hold numbers"),
        ('{"head": {"a": 1}}', "head in .* must hold numbers"),
        ('{"head": ["a"]}', "head in .* must hold numbers"),
        ('{"head": [100000000000000000000000]}', "head in .* must hold numbers"),
    ],
)
def test_what_is_wrong_with_a_json_file_is_said(tmp_path, text, message):
    path = tmp_path / "problem.json"
    path.write_text(text)
    with pytest.raises(ProblemError, match=message):
        open_source(str(path), None)


def test_bytes_that_are_no_text_are_no_json(tmp_path):
    path = tmp_path / "problem.json"
    path.write_bytes(b"\xff\xfe\xfa")
    with pytest.raises(ProblemError, match="cannot be read as a JSON file"):
        open_source(str(path), None)
