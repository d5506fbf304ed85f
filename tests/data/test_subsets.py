"""Subsets from public repositories: exercises, made up in small, and the rows made of them."""

import json

import numpy as np
import pytest

from mirrormargin.data import subsets
from mirrormargin.data.published import LAYOUTS, RECIPES
from mirrormargin.errors import DataError

CHOICES = "Statement: {} Choices:  1. {} 2. {}  3. {}"
TEST = "index\tpremise\thypothesis\tgold_label\tright\n7\tIn the test.\tA  b \tneutral\t99\n"
COLUMNS = "index\tpromptID\tpairID\tgenre\t{}\tsentence1\tsentence2\tlabel1\tgold_label".format(
    "\t".join("abcd")
)


def write_choices(path, rows):
    instances = [
        {"input": CHOICES.format(premise, *choices), "output": [answer]}
        for premise, choices, answer in rows
    ]
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps({"Instances": instances}))


def write_generation(path, rows):
    instances = [
        {"input": f"Statement: {p}\nLabel: {label}.\nGenre: {genre}.", "output": outputs}
        for p, label, genre, outputs in rows
    ]
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps({"Instances": instances}))


@pytest.fixture
def exercises(tmp_path, monkeypatch):
    """All files of mnli-subset, by the names that they are published under."""
    for remote in RECIPES["mnli-subset"].remotes:
        path = tmp_path / remote.name
        path.parent.mkdir(parents=True, exist_ok=True)
        if remote.name.endswith(".tsv"):
            path.write_text(COLUMNS + "\n")
    (tmp_path / "hans/mnli_development_set.txt").write_text(TEST, newline="")
    rows = [("A dog.", "An animal. ", "entailment"), ("In  the TEST", "x", "neutral")]
    rows += [("Same.", "same", "neutral")]
    for part in ("train", "dev"):
        made = {
            str(k): {"text_a": a, "text_b": b, "label": label}
            for k, (a, b, label) in enumerate(rows)
        }
        (tmp_path / f"glue_pretrain/{part}.json").write_text(json.dumps(made))
        rows = [("A cat.", "A dog.", "contradiction")]
    cells = ["1", "2", "3", "travel", *"abcd", "A tree.", "A plant.", "entailment", "entailment"]
    with open(tmp_path / "k-shot/16-13.tsv", "a") as file:
        file.write("\t".join(cells) + "\n")
    for folder in ("instructions", "instructions-expansion"):
        write_choices(
            tmp_path / folder / "task200.json",
            [
                ("a DOG", ("A stone.", "an animal", "Red."), "2"),
                ("See figure 1. It helps.", ("One.", "Two.", "Three."), "1"),
            ],
        )
        write_choices(tmp_path / folder / "task201.json", [("Rain.", ("Wet.", "Dry.", "Oh."), "3")])
        write_choices(tmp_path / folder / "task202.json", [("Rain.", ("Wet.", "Dry.", "Oh."), "2")])
        write_generation(
            tmp_path / folder / "task203.json",
            [
                ("Snow.", "neutral", "slate", ["It is late."]),
                ("Same.", "entailment", "slate", ["Same!"]),
                ("Ice.", "neutral", "slate", ["One.", "Another."]),
            ],
        )
    np.save(tmp_path / "order.npy", np.arange(6, dtype=np.uint16)[::-1])
    monkeypatch.setattr(subsets, "ORDER", tmp_path / "order.npy")
    return [tmp_path / remote.name for remote in RECIPES["mnli-subset"].remotes]


def read(contents):
    return {
        name: [json.loads(line) for line in b"".join(make()).decode().splitlines()]
        for name, make in contents.items()
    }


def test_pairs_are_merged_dropped_and_ordered(exercises):
    files = read(subsets.read_mnli_subset(*exercises))
    rows = files["multinli/mnli_train_subset.jsonl"]
    assert [row["id"] for row in rows] == [0, 1, 2, 3, 4, 5]
    assert [
        (row["premise"], row["hypothesis"], row["label"], row["genre"], row["src"])
        for row in reversed(rows)
    ] == [
        # Equal up to case and punctuation: the first spelling stays, with all its sources.
        ("A dog.", "An animal.", "entailment", None, "glue-pretrain-train+ni-task200"),
        ("A cat.", "A dog.", "contradiction", None, "glue-pretrain-dev"),
        ("A tree.", "A plant.", "entailment", "travel", "lmbff-kshot"),
        ("Rain.", "Oh.", "neutral", None, "ni-task201"),
        ("Rain.", "Dry.", "contradiction", None, "ni-task202"),
        ("Snow.", "It is late.", "neutral", "slate", "ni-task203"),
    ]
    assert files["multinli/mnli_subset_dev_matched.jsonl"] == [
        {"id": 7, "premise": "In the test.", "hypothesis": "A  b ", "label": "neutral"}
    ]


def test_as_many_of_each_label_are_flagged_in_each_kind_of_source():
    kinds = {"glue-pretrain-dev+ni-task200": (5, 3), "ni-task201": (2, 9), "lmbff-kshot": (4, 4)}
    rows = [
        {"src": src, "label": label}
        for src, sizes in kinds.items()
        for label, size in zip(("neutral", "entailment"), sizes, strict=True)
        for _ in range(size)
    ]
    flagged = subsets.flag_balanced(rows)
    assert flagged == subsets.flag_balanced(rows)
    for src, sizes in kinds.items():
        for label in ("neutral", "entailment"):
            chosen = [r["balanced"] for r in flagged if (r["src"], r["label"]) == (src, label)]
            assert sum(chosen) == min(sizes)


@pytest.mark.parametrize("name", ["instructions/task203.json", "glue_pretrain/dev.json"])
@pytest.mark.parametrize("text", ["", "[]", '{"Instances": [{"input": 1}]}', '{"0": {}}'])
def test_a_file_that_is_not_as_expected_is_an_error(exercises, tmp_path, name, text):
    (tmp_path / name).write_text(text)
    with pytest.raises(DataError, match="not as expected"):
        subsets.read_mnli_subset(*exercises)


def test_comments_that_are_labelled_toxic_or_not_are_kept(tmp_path):
    answers = {
        "task322.json": [("Comment: Go away", "Threat"), ("Comment: Only a threat", "Threat")],
        "task326.json": [("Comment: Go away", "Obscene"), ("Comment: Go away", "Non-obscene")],
        "task327.json": [("Comment:  Go away ", "Toxic"), ("Comment: Hello", "Non-toxic")],
        "task1720.json": [("Comment: is kept", "Yes"), ("Hello", "No")],
    }
    paths = [tmp_path / remote.name for remote in RECIPES["civil-subset"].remotes]
    for path in paths:
        path.parent.mkdir(exist_ok=True)
        rows = [{"input": text, "output": [o]} for text, o in answers.get(path.name, [])]
        path.write_text(json.dumps({"Instances": rows}))
    files = read(subsets.read_civil_subset(*paths))
    assert files.keys() == {LAYOUTS["civil-subset"][1][0].name}
    rows = {row["text"]: row for row in files["civilcomments/civilcomments_toxic_subset.jsonl"]}
    assert rows.keys() == {"Go away", "Hello", "Comment: is kept"}
    assert rows["Go away"] == {
        "text": "Go away",
        "toxic": 1,
        "severe_toxicity": None,
        "obscene": None,  # two answers that contradict each other
        "threat": 1,
        "insult": None,
        "identity_attack": None,
        "sexual_explicit": None,
        "src": "ni-task322+ni-task326+ni-task327",
    }
    assert (rows["Hello"]["toxic"], rows["Hello"]["src"]) == (0, "ni-task327+ni-task1720")
    with pytest.raises(DataError, match="not as expected"):
        subsets.read_civil_subset(*paths[1:])


def test_the_kept_order_names_every_pair_once():
    order = np.load(subsets.ORDER)
    assert np.array_equal(np.sort(order), np.arange(41_061))


@pytest.mark.data
@pytest.mark.parametrize("name", ["mnli-subset", "civil-subset"])
def test_both_layouts_of_a_subset_have_the_same_contents(real_data, name):
    import hashlib
    import lzma

    for compact, plain in zip(*LAYOUTS[name], strict=True):
        with lzma.open(real_data / compact.name) as file:
            contents = file.read()
        assert len(contents) == plain.size
        assert hashlib.sha256(contents).hexdigest() == plain.sha256
