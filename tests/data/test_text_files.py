"""Texts of one's own: what is read, and what is refused with the line that is wrong."""

import gzip
import json
import lzma

import pytest

from mirrormargin.cli import main
from mirrormargin.data import load_data
from mirrormargin.data.text_files import read_own_texts
from mirrormargin.errors import DataError

ROWS = [
    {"text": f"the film was {word} {'x ' * number}", "label": word}
    for number in range(20)
    for word in ("good", "dull")
]


def write_jsonl(path, rows):
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    return path


def test_jsonl_becomes_a_data_set(data_dir, tmp_path):
    data = load_data(write_jsonl(tmp_path / "reviews.jsonl", ROWS), length=8)
    assert data.kind == "text"
    assert data.classes == ("dull", "good")
    assert [len(split) for split in (data.train, data.validation, data.test)] == [32, 4, 4]
    assert data.vocabulary is not None
    for split in (data.train, data.validation, data.test):
        for row, label in zip(split.inputs, split.labels, strict=True):
            words = [data.vocabulary[number] for number in row]
            assert words[:5] == ["[CLS]", "the", "film", "was", data.classes[label]]
    assert set(data.sha256) == {"reviews.jsonl", "wordpiece/vocab.txt"}


def test_csv_and_jsonl_give_the_same_tensors(data_dir, tmp_path):
    table = "".join(f'{row["label"]},"{row["text"]}"\r\n' for row in ROWS)
    (tmp_path / "reviews.csv").write_text(
        "verdict,what\r\n" + table, encoding="utf-8-sig", newline=""
    )
    csv = load_data(tmp_path / "reviews.csv", text_column="what", label_column="verdict")
    jsonl = load_data(write_jsonl(tmp_path / "reviews.jsonl", ROWS))
    assert csv.train.inputs.equal(jsonl.train.inputs)
    assert csv.test.labels.equal(jsonl.test.labels)


def test_columns_are_part_of_what_is_kept(data_dir, tmp_path):
    rows = [{**row, "title": "a bad plot", "other": str(i % 2)} for i, row in enumerate(ROWS)]
    for number, row in enumerate(rows):
        row["title"] += " x" * number
    path = write_jsonl(tmp_path / "reviews.jsonl", rows)
    by_text, by_title = load_data(path), load_data(path, text_column="title")
    assert not by_text.train.inputs.equal(by_title.train.inputs)


def test_a_training_knows_its_columns(data_dir, tmp_path, capsys):
    from mirrormargin.training.building import load_model

    rows = [{**row, "what": f"{row['text']} again"} for row in ROWS]
    path = write_jsonl(tmp_path / "reviews.jsonl", rows)
    argv = ["train", "sst2/small", "--data", str(path), "--batch-size", "8", "--epochs", "1"]
    argv += ["--out", str(tmp_path / "run"), "--json"]
    assert main([*argv, "--text-column", "what"]) == 0
    assert """ 'data.text_column="what"' """ in json.loads(capsys.readouterr().out)["command"]
    load_model(tmp_path / "run")
    assert main(argv) == 2
    assert "holds another training (different: data.text_column" in capsys.readouterr().err


def test_a_row_with_more_fields_than_columns_is_refused(tmp_path):
    path = tmp_path / "own.CSV"
    path.write_text("text,label\nfine,good\nfine, really,good\n", encoding="utf-8")
    with pytest.raises(DataError, match=r"line 3: there are more fields than the 2 columns"):
        read_own_texts(path, "text", "label")


def test_equal_texts_with_different_labels_are_counted(tmp_path):
    path = write_jsonl(tmp_path / "own.jsonl", [*ROWS, {**ROWS[0], "label": "dull"}, ROWS[1]])
    note = read_own_texts(path, "text", "label").note
    assert "Dropped: 2 repeated" in note
    assert "1 of them with another label" in note


def test_rows_of_tabs_are_read(tmp_path):
    lines = [f"film {number}\t{number % 2}" for number in range(8)]
    (tmp_path / "own.tsv").write_text("text\tlabel\n" + "\n".join(lines), encoding="utf-8")
    own = read_own_texts(tmp_path / "own.tsv", "text", "label")
    parts, classes = own.splits, own.classes
    assert classes == ("0", "1")
    assert sum(len(part.first) for part in parts.values()) == 8


def test_what_is_there_twice_counts_once(tmp_path):
    path = write_jsonl(
        tmp_path / "own.jsonl", [*ROWS, *({**row, "text": row["text"].upper()} for row in ROWS)]
    )
    own = read_own_texts(path, "text", "label")
    assert sum(len(part.first) for part in own.splits.values()) == 40
    assert own.dropped == {"repeated": 40}
    assert own.note.endswith("Dropped: 40 repeated.")


@pytest.mark.parametrize(
    ("bad", "message"),
    [
        (
            {"text": "a film"},
            r"line 3: there is no 'label', only 'text'; name the column with --label-column",
        ),
        ({"text": 7, "label": "good"}, r"line 3: 'text' is 7, not a text"),
        ({"text": "a film", "label": None}, r"line 3: 'label' is None; give the name or number"),
        ({"text": "a film", "label": 0.5}, r"line 3: 'label' is 0.5; give"),
    ],
)
def test_a_bad_row_is_named_by_its_line(tmp_path, bad, message):
    path = write_jsonl(tmp_path / "own.jsonl", [*ROWS[:2], bad])
    with pytest.raises(DataError, match=message):
        read_own_texts(path, "text", "label")


def test_a_line_that_is_not_json_is_named(tmp_path):
    path = write_jsonl(tmp_path / "own.jsonl", ROWS[:4])
    path.write_text(path.read_text() + "{'text': 1}\n")
    with pytest.raises(DataError, match=r"own.jsonl, line 5: not JSON"):
        read_own_texts(path, "text", "label")


def test_a_missing_column_of_a_table_is_named(tmp_path):
    (tmp_path / "own.csv").write_text("review,label\ngood film,1\n")
    with pytest.raises(DataError, match="there is no 'text', only 'review', 'label'"):
        read_own_texts(tmp_path / "own.csv", "text", "label")


def test_a_short_row_of_a_table_is_refused(tmp_path):
    (tmp_path / "own.csv").write_text("text,label\ngood film,1\nbad film\n")
    with pytest.raises(DataError, match="line 3: 'label' is None"):
        read_own_texts(tmp_path / "own.csv", "text", "label")


def test_a_table_with_an_open_quote_is_refused(tmp_path):
    (tmp_path / "own.csv").write_text('text,label\ngood film,1\n"bad film,0\n')
    with pytest.raises(DataError, match="after line 2: unexpected end of data"):
        read_own_texts(tmp_path / "own.csv", "text", "label")


@pytest.mark.parametrize("name", ["own.csv", "own.jsonl"])
def test_a_file_that_is_not_utf8_is_refused(tmp_path, name):
    (tmp_path / name).write_bytes("text,label\ncafé,1\n".encode("latin-1"))
    with pytest.raises(DataError, match="not UTF-8"):
        read_own_texts(tmp_path / name, "text", "label")


@pytest.mark.parametrize("name", ["own.csv", "own.jsonl"])
def test_an_empty_file_is_refused(tmp_path, name):
    (tmp_path / name).write_bytes(b"")
    with pytest.raises(DataError, match=r"has 0 classes \(no rows\)"):
        read_own_texts(tmp_path / name, "text", "label")


@pytest.mark.parametrize("ending", [".gz", ".xz"])
@pytest.mark.parametrize("form", [".csv", ".tsv", ".jsonl"])
def test_a_compressed_file_is_read_as_the_plain_one(tmp_path, form, ending):
    plain = tmp_path / f"own{form}"
    if form == ".jsonl":
        write_jsonl(plain, ROWS)
    else:
        tab = "\t" if form == ".tsv" else ","
        lines = [f"text{tab}label", *(f"{row['text']}{tab}{row['label']}" for row in ROWS)]
        plain.write_text("\n".join(lines) + "\n")
    packed = tmp_path / f"own{form}{ending}"
    pack = gzip.compress if ending == ".gz" else lzma.compress
    packed.write_bytes(pack(plain.read_bytes()))
    assert read_own_texts(packed, "text", "label").splits == (
        read_own_texts(plain, "text", "label").splits
    )
    packed.write_bytes(pack(plain.read_bytes())[:-9])
    with pytest.raises(DataError, match="is damaged"):
        read_own_texts(packed, "text", "label")


def test_rows_without_a_text_are_dropped_and_counted(tmp_path):
    empty = [{"text": text, "label": "good"} for text in ("", "  ", None)]
    own = read_own_texts(write_jsonl(tmp_path / "own.jsonl", [*ROWS, *empty]), "text", "label")
    assert own.dropped == {"empty": 3}
    assert own.note.endswith("Dropped: 3 empty.")
    assert sum(len(part.first) for part in own.splits.values()) == len(ROWS)


def test_a_test_file_is_all_for_test_and_nothing_of_it_is_learnt(tmp_path):
    path = write_jsonl(tmp_path / "own.jsonl", ROWS)
    new = [{"text": "a new film", "label": ROWS[0]["label"]}]
    test = write_jsonl(tmp_path / "held.jsonl", [*ROWS[:3], *new])
    own = read_own_texts(path, "text", "label", test)
    assert own.splits["test"].first == [row["text"] for row in [*ROWS[:3], *new]]
    assert own.dropped == {"in held.jsonl too": 3}
    rest = own.splits["train"].first + own.splits["validation"].first
    assert sorted(rest) == sorted(row["text"] for row in ROWS[3:])
    write_jsonl(test, [{"text": "a film", "label": "other"}])
    with pytest.raises(DataError, match=r"has the class 'other', which .* does not have"):
        read_own_texts(path, "text", "label", test)


def test_the_words_of_a_file_are_a_vocabulary(tmp_path, monkeypatch):
    """Nothing has to be fetched, and words that are not learnt from are unknown."""
    monkeypatch.setenv("MIRRORMARGIN_DATA", str(tmp_path / "nowhere"))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    path = write_jsonl(tmp_path / "own.jsonl", ROWS)
    with pytest.raises(DataError, match="needs the vocabulary"):
        load_data(path)
    data = load_data(path, vocabulary="words", vocab_size=1000)
    assert data.vocabulary[:4] == ("[PAD]", "[UNK]", "[CLS]", "[SEP]")
    words = set(" ".join(row["text"] for row in ROWS).lower().split())
    assert set(data.vocabulary[4:]) <= words
    assert not (data.train.inputs == 1).any()  # [UNK]
    assert int(data.token_counts.max()) <= data.shape[0]
    with pytest.raises(DataError, match="a vocabulary of words is for a file of texts"):
        load_data("imdb", vocabulary="words")
