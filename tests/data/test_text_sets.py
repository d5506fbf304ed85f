"""How the named data sets of texts are split, on made-up rows of the same form."""

import json

import pytest

from mirrormargin.data.text_files import read_rows
from mirrormargin.data.text_sets import TEXT_SETS
from mirrormargin.errors import DataError


def write(path, rows):
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    return path


def make_review(number, film, text=None):
    text = text or f"review {number}<br /><br />of {film}"
    return {"id": number, "label": number % 2, "movie": f"tt{film}", "text": text}


@pytest.fixture
def imdb(tmp_path):
    train = [make_review(number, number // 4) for number in range(800)]
    train += [make_review(900 + number, 300 + number, "same words") for number in range(40)]
    train += [make_review(1000, 500, "in both parts")]
    test = [make_review(number, 1000 + number) for number in range(50)]
    test += [make_review(60, 2000, "in both parts")]
    paths = [write(tmp_path / "train.jsonl", train), write(tmp_path / "test.jsonl", test)]
    return train, TEXT_SETS["imdb"].read(paths)


def test_no_film_is_in_training_and_validation(imdb):
    train, (parts, _) = imdb
    films = {row["text"].replace("<br />", " "): row["movie"] for row in train}
    seen = {
        name: {films[text] for text in parts[name].first if text != "same words"}
        for name in ("train", "validation")
    }
    assert seen["train"].isdisjoint(seen["validation"])
    assert 40 < len(parts["validation"].first) < 140


def test_no_text_is_in_two_splits_of_imdb(imdb):
    _, (parts, note) = imdb
    texts = {name: set(part.first) for name, part in parts.items()}
    assert texts["train"].isdisjoint(texts["validation"])
    assert (texts["train"] | texts["validation"]).isdisjoint(texts["test"])
    assert "in both parts" in texts["test"]
    assert "same words" in texts["validation"]
    assert "1 reviews whose text is also in the test" in note


def test_line_breaks_are_blanks(imdb):
    _, (parts, _) = imdb
    assert "review 7  of 1" in {*parts["train"].first, *parts["validation"].first}
    assert not any("<br" in text for part in parts.values() for text in part.first)


def test_texts_of_sst2_are_in_one_split(tmp_path):
    train = [
        {"text": f"{'pP'[number >= 300]}hrase {number % 300}", "label": number % 2}
        for number in range(900)
    ]
    test = [{"text": "phrase 7", "label": 1}, {"text": "other", "label": 0}]
    paths = [write(tmp_path / "train.jsonl", train), write(tmp_path / "dev.jsonl", test)]
    parts, note = TEXT_SETS["sst2"].read(paths)
    texts = {name: {text.lower() for text in part.first} for name, part in parts.items()}
    assert texts["train"].isdisjoint(texts["validation"])
    assert "phrase 7" not in texts["train"] | texts["validation"]
    assert len(parts["train"].first) + len(parts["validation"].first) == 897
    assert 3 <= len(texts["validation"]) <= 40
    assert "3 texts that are also in test" in note


def make_pair(number, **more):
    label = ("entailment", "neutral", "contradiction")[number % 3]
    pair = {"premise": f"premise {number // 3}", "hypothesis": f"hypothesis {number}"}
    return {"id": number, **pair, "label": label, **more}


def test_only_balanced_pairs_of_the_subset_are_read(tmp_path):
    train = [make_pair(number, balanced=number % 5 != 0) for number in range(900)]
    test = [make_pair(number) for number in range(6)]
    paths = [write(tmp_path / "train.jsonl", train), write(tmp_path / "dev.jsonl", test)]
    parts, note = TEXT_SETS["mnli-subset"].read(paths)
    pairs = {*parts["train"].second, *parts["validation"].second}
    assert pairs == {f"hypothesis {number}" for number in range(6, 900) if number % 5 != 0}
    assert set(parts["train"].first).isdisjoint(parts["validation"].first)
    assert parts["test"].labels == [0, 1, 2, 0, 1, 2]
    assert "720 training pairs" in note
    assert "4 pairs whose premise is also in test" in note


def test_the_whole_of_mnli_is_read(tmp_path):
    paths = [
        write(tmp_path / "train.jsonl", [make_pair(number) for number in range(300)]),
        write(tmp_path / "dev.jsonl", [make_pair(number) for number in range(600, 606)]),
    ]
    parts, _ = TEXT_SETS["mnli"].read(paths)
    assert len(parts["train"].first) + len(parts["validation"].first) == 300


def test_comments_are_in_one_split(tmp_path):
    rows = [
        {"text": f"{'cC'[number > 999]}omment {number % 1000}", "toxic": number % 2}
        for number in range(1200)
    ]
    parts, note = TEXT_SETS["civil-subset"].read([write(tmp_path / "rows.jsonl", rows)])
    texts = [text for part in parts.values() for text in part.first]
    assert len({text.lower() for text in texts}) == len(texts)
    assert len(texts) == 1000
    assert all(70 < len(parts[name].first) < 130 for name in ("validation", "test"))
    assert "200 texts that were there twice" in note


def test_official_splits_of_comments_do_not_share_texts(tmp_path):
    texts = {"train": ["a", "b", "c"], "validation": ["b", "d"], "test": ["c", "d", "e"]}
    paths = [
        write(tmp_path / f"{name}.jsonl", [{"text": text, "toxic": 0} for text in part])
        for name, part in texts.items()
    ]
    parts, note = TEXT_SETS["civil"].read(paths)
    assert [parts[name].first for name in texts] == [["a"], ["b"], ["c", "d", "e"]]
    assert "2 training and 1 validation comments" in note


def test_a_line_that_is_not_json_is_named(tmp_path):
    path = tmp_path / "rows.jsonl"
    path.write_text('{"text": "a"}\n{"text": \n', encoding="utf-8")
    with pytest.raises(DataError, match=r"rows.jsonl, line 2: not JSON"):
        read_rows(path)


def test_a_line_that_is_no_object_is_named(tmp_path):
    path = tmp_path / "rows.jsonl"
    path.write_text("[1, 2]\n", encoding="utf-8")
    with pytest.raises(DataError, match=r"line 1: not a JSON object"):
        read_rows(path)


@pytest.mark.parametrize("name", ["rows.jsonl", "rows.jsonl.xz"])
def test_bytes_that_are_no_text_are_refused(tmp_path, name):
    (tmp_path / name).write_bytes(b"\xff\xfe\x00")
    with pytest.raises(DataError, match=name):
        read_rows(tmp_path / name)
