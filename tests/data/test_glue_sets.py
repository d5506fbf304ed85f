"""How tasks of GLUE are read and split, on made-up rows of the same form."""

import io
import itertools
import json
import zipfile

import pytest

from mirrormargin.data import archives, published
from mirrormargin.data.text_files import read_cells
from mirrormargin.data.text_sets import TEXT_SETS
from mirrormargin.errors import DataError

MARK = "\N{ZERO WIDTH NO-BREAK SPACE}"  # of files that say they are UTF-8
MRPC = f"{MARK}Quality\t#1 ID\t#2 ID\t#1 String\t#2 String\n"
RTE = "index\tsentence1\tsentence2\tlabel\n"


def write(path, lines, header=""):
    path.write_text(header + "".join(f"{line}\n" for line in lines), encoding="utf-8")
    return path


def write_rows(path, rows):
    return write(path, [json.dumps({"text": text, "label": label}) for text, label in rows])


def list_texts(part):
    return {text.lower() for text in (*part.first, *part.second)}


def test_sentences_of_cola_are_in_one_split(tmp_path):
    train = [f"gj04\t{k % 2}\t\t{'sS'[k >= 300]}entence {k % 300}" for k in range(600)]
    test = ["gj04\t1\t\tsentence 7", 'gj04\t0\t*\ta "quoted one']
    paths = [write(tmp_path / "train.tsv", train), write(tmp_path / "dev.tsv", test)]
    parts, note = TEXT_SETS["cola"].read(paths)
    texts = {name: list_texts(part) for name, part in parts.items()}
    assert texts["train"].isdisjoint(texts["validation"])
    assert texts["test"] == {"sentence 7", 'a "quoted one'}
    assert len(parts["train"].first) + len(parts["validation"].first) == 598
    assert parts["test"].labels == [1, 0]
    assert "training and validation: 2 that are" in note


def test_pairs_of_rte_with_a_text_in_common_are_in_one_split(tmp_path):
    # Three pairs in a chain: the second has its text with the first, its statement with the third.
    train = [
        f"{k}\ttext {k - k % 3 + (k % 3 == 2)}\tstatement {k - k % 3 + (k % 3 > 0)}\tentailment"
        for k in range(600)
    ]
    test = ["0\ttext 0\tother\tnot_entailment", "1\tnew\tstatement 4\tentailment"]
    paths = [write(tmp_path / "train.tsv", train, RTE), write(tmp_path / "dev.tsv", test, RTE)]
    parts, note = TEXT_SETS["rte"].read(paths)
    texts = {name: list_texts(part) for name, part in parts.items()}
    for one, other in itertools.combinations(texts.values(), 2):
        assert one.isdisjoint(other)
    assert 30 < len(parts["validation"].first) < 100
    assert parts["test"].labels == [1, 0]
    assert "4 pairs with a text or a statement" in note


def test_validation_of_mrpc_is_the_official_one_and_later_splits_share_no_sentence(tmp_path):
    files = {
        "train": ["1\t1\t2\ta\tb", "0\t3\t4\tC\td", "1\t5\t6\te\tf"],
        "dev": ["1\t7\t8\tc\tg", "0\t9\t10\th\ti"],
        "test": ["0\t11\t12\tj\tI", "1\t13\t14\tk\tl"],
    }
    paths = [write(tmp_path / f"{name}.tsv", rows, MRPC) for name, rows in files.items()]
    parts, note = TEXT_SETS["mrpc"].read(paths)
    assert parts["train"].first == ["a", "e"]
    assert parts["validation"].second == ["g"]
    assert parts["test"].labels == [0, 1]
    assert "1 of 3 training pairs and 1 of 2 validation pairs" in note


def make_review(number):
    words = [f"w{number}n{k}" for k in range(6)]
    return [" ".join(words[i:j]) for i in range(6) for j in range(i + 1, 7)]


def test_a_phrase_is_on_the_side_of_the_sentence_that_contains_it(tmp_path):
    train = [(text, k % 2) for k in range(200) for text in [*make_review(k), f"W{k}N0 w{k}n1"]]
    train += [("so w300n0", 1), ("very w301n0 indeed", 1), ("all good", 0)]
    test = [("w300n0 w300n1", 1), ("w301n0", 0)]
    paths = [write_rows(tmp_path / "a.jsonl", train), write_rows(tmp_path / "b.jsonl", test)]
    parts, note = TEXT_SETS["sst2-sentences"].read(paths)
    reviews = {
        name: {text.split("n")[0].lower() for text in part.first} for name, part in parts.items()
    }
    assert reviews["train"].isdisjoint(reviews["validation"])
    assert {len(text.split()) for text in parts["validation"].first} == {6}  # whole sentences
    assert len(parts["train"].first) > 3000
    assert 8 < len(parts["validation"].first) < 40
    # Contained in a text of test, or containing one, in whatever letters.
    assert "very w301n0 indeed" not in parts["train"].first
    assert "so w300n0" in parts["train"].first
    assert f"Validation is {len(parts['validation'].first)} whole sentences" in note


def test_a_row_of_another_form_is_named(tmp_path):
    path = write(tmp_path / "rows.tsv", ["a\tb", "c"])
    with pytest.raises(DataError, match=r"rows.tsv, line 2: it has 1 cells, not 2"):
        read_cells(path, 2)


def test_archives_of_glue_become_the_files_of_the_layout(tmp_path):
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as file:
        file.writestr("CoLA/train.tsv", "a\t1\t\tone\n")
        file.writestr("CoLA/dev.tsv", "a\t0\t*\ttwo\n")
    (tmp_path / "CoLA.zip").write_bytes(buffer.getvalue())
    made = {
        name: b"".join(contents())
        for name, contents in archives.read_cola(tmp_path / "CoLA.zip").items()
    }
    assert made == {
        "glue/cola/train.tsv": b"a\t1\t\tone\n",
        "glue/cola/dev.tsv": b"a\t0\t*\ttwo\n",
    }
    assert made.keys() == {source.name for source in published.LAYOUTS["cola"][1]}


def test_ids_say_which_pairs_of_mrpc_are_for_development(tmp_path):
    train = write(tmp_path / "train.txt", ["1\t1\t2\ta\tb", "0\t3\t4\tc\td"], MRPC)
    test = write(tmp_path / "test.txt", ["1\t5\t6\te\tf"], MRPC)
    ids = write(tmp_path / "ids.tsv", ["3\t4"])
    made = {
        name: b"".join(contents())
        for name, contents in archives.read_mrpc(train, test, ids).items()
    }
    for name, contents in made.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_bytes(contents)
    paths = [tmp_path / source.name for source in published.LAYOUTS["mrpc"][1]]
    assert [[row[3] for row in read_cells(path, 5)[1:]] for path in paths] == [["a"], ["c"], ["e"]]


@pytest.mark.data
@pytest.mark.parametrize("name", ["cola", "rte"])
def test_counts_are_those_of_the_compact_files(real_data, name):
    from collections import Counter

    for file, (column, expected) in published.RECIPES[name].counts.items():
        assert isinstance(column, tuple)
        cells = read_cells(real_data / f"{file}.xz", column[1])
        assert Counter(row[column[0]] for row in cells) == expected
