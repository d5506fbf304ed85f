"""Official archives, made up in small, and the rows that are made of them."""

import io
import json
import tarfile
import zipfile

import numpy as np
import pytest

from mirrormargin.data import archives
from mirrormargin.data.image_sets import IMAGE_SETS
from mirrormargin.errors import DataError


def write_tar(path, members):
    with tarfile.open(path, "w:gz") as tar:
        for name, contents in members.items():
            member = tarfile.TarInfo(name)
            member.size = len(contents)
            tar.addfile(member, io.BytesIO(contents))
    return path


def write_zip(path, members):
    with zipfile.ZipFile(path, "w") as file:
        for name, contents in members.items():
            file.writestr(name, contents)
    return path


def read(contents):
    return {
        name: [json.loads(line) for line in b"".join(make()).decode().splitlines()]
        for name, make in contents.items()
    }


def make_imdb():
    members = {"aclImdb/README": b"about", "aclImdb/train/unsup/0_0.txt": b"no label"}
    for part in ("train", "test"):
        for side in ("neg", "pos"):
            for number, rating in ((10, 8), (2, 7), (0, 9)):
                text = f"{part} {side} {number} café<br />"
                members[f"aclImdb/{part}/{side}/{number}_{rating}.txt"] = text.encode()
            urls = [f"http://www.imdb.com/title/tt{k:07}/usercomments" for k in range(11)]
            members[f"aclImdb/{part}/urls_{side}.txt"] = "\n".join(urls).encode()
    return members


def test_reviews_come_positive_first_and_by_number(tmp_path):
    rows = read(archives.read_imdb(write_tar(tmp_path / "imdb.tar.gz", make_imdb())))
    assert rows.keys() == {"imdb/imdb_train.jsonl", "imdb/imdb_test.jsonl"}
    train = rows["imdb/imdb_train.jsonl"]
    assert [(row["label"], row["id"]) for row in train] == [
        (1, 0),
        (1, 2),
        (1, 10),
        (0, 0),
        (0, 2),
        (0, 10),
    ]
    assert train[2] == {
        "id": 10,
        "label": 1,
        "rating": 8,
        "movie": "tt0000010",
        "text": "train pos 10 café<br />",
    }
    assert rows["imdb/imdb_test.jsonl"][0]["text"] == "test pos 0 café<br />"


def test_rows_are_written_as_in_the_compact_file(tmp_path):
    contents = archives.read_imdb(write_tar(tmp_path / "imdb.tar.gz", make_imdb()))
    line = next(iter(contents["imdb/imdb_test.jsonl"]()))
    assert line == (
        '{"id": 0, "label": 1, "rating": 9, "movie": "tt0000000",'
        ' "text": "test pos 0 café<br />"}\n'.encode()
    )


@pytest.mark.data
@pytest.mark.slow
def test_the_compact_imdb_goes_through_the_official_layout_unchanged(real_data, tmp_path):
    import hashlib

    from mirrormargin.data.published import LAYOUTS
    from mirrormargin.data.text_files import read_rows

    members = {}
    for part in ("train", "test"):
        films = {"pos": {}, "neg": {}}
        for row in read_rows(real_data / "imdb" / f"imdb_{part}.jsonl.xz"):
            side = "pos" if row["label"] else "neg"
            films[side][row["id"]] = f"http://www.imdb.com/title/{row['movie']}/usercomments"
            name = f"aclImdb/{part}/{side}/{row['id']}_{row['rating']}.txt"
            members[name] = row["text"].encode()
        for side, lines in films.items():
            urls = "\n".join(lines[number] for number in sorted(lines)) + "\n"
            members[f"aclImdb/{part}/urls_{side}.txt"] = urls.encode()
    contents = archives.read_imdb(write_tar(tmp_path / "imdb.tar.gz", members))
    digests = {source.name: source.sha256 for source in LAYOUTS["imdb"][1]}
    for name, make in contents.items():
        assert hashlib.sha256(b"".join(make())).hexdigest() == digests[name]


def test_a_review_without_a_film_is_refused(tmp_path):
    members = make_imdb()
    members["aclImdb/test/urls_neg.txt"] = b"http://www.imdb.com/title/tt0000001/\n"
    contents = archives.read_imdb(write_tar(tmp_path / "imdb.tar.gz", members))
    with pytest.raises(DataError, match="no film for review 2 of test/neg"):
        read(contents)


def test_members_with_other_paths_are_left_alone(tmp_path):
    members = {**make_imdb(), "../../aclImdb/train/pos/5_9.txt": b"x", "/etc/passwd": b"x"}
    rows = read(archives.read_imdb(write_tar(tmp_path / "imdb.tar.gz", members)))
    assert len(rows["imdb/imdb_train.jsonl"]) == 6
    assert [path.name for path in tmp_path.iterdir()] == ["imdb.tar.gz"]


def test_texts_of_wikitext2_are_kept_to_the_byte(tmp_path):
    texts = {part: f" = {part} = \n \n caf\u00e9\u2028 x \n" for part in ("train", "valid", "test")}
    members = {f"wikitext-2/wiki.{part}.tokens": text for part, text in texts.items()}
    contents = archives.read_wikitext2(write_zip(tmp_path / "wikitext-2-v1.zip", members))
    for part, text in texts.items():
        assert b"".join(contents[f"wikitext-2/wiki.{part}.tokens"]()) == text.encode()


def test_an_archive_without_a_text_is_refused(tmp_path):
    path = write_zip(tmp_path / "wikitext-2-v1.zip", {"wikitext-2/wiki.train.tokens": "a \n"})
    with pytest.raises(DataError, match=r"wiki\.test\.tokens: not as expected"):
        list(archives.read_wikitext2(path)["wikitext-2/wiki.test.tokens"]())


def test_sst2_is_read_without_quoting(tmp_path):
    table = 'sentence\tlabel\n"so-called" film \t0\nit \'s "good \t1\n'
    path = write_zip(
        tmp_path / "SST-2.zip", {"SST-2/train.tsv": table, "SST-2/dev.tsv": "sentence\tlabel\n"}
    )
    assert read(archives.read_sst2(path)) == {
        "sst2/sst2_train.jsonl": [
            {"text": '"so-called" film', "label": 0},
            {"text": "it 's \"good", "label": 1},
        ],
        "sst2/sst2_dev.jsonl": [],
    }


def test_pairs_without_a_label_are_left_out(tmp_path):
    lines = [
        json.dumps({"gold_label": label, "sentence1": f"p{n}", "sentence2": f"h{n}", "genre": "x"})
        for n, label in enumerate(("neutral", "-", "entailment"))
    ]
    members = {
        f"multinli_1.0/multinli_1.0_{part}.jsonl": "\n".join(lines) + "\n"
        for part in ("train", "dev_matched")
    }
    rows = read(archives.read_mnli(write_zip(tmp_path / "multinli.zip", members)))
    assert rows["multinli/mnli_train.jsonl"] == [
        {"id": 0, "premise": "p0", "hypothesis": "h0", "label": "neutral"},
        {"id": 1, "premise": "p2", "hypothesis": "h2", "label": "entailment"},
    ]


def test_a_comment_is_toxic_from_one_half_on(tmp_path):
    later = 'id,comment_text,toxicity\n1,"two\nlines",0.5\n2,fine,0.4999\n'
    members = {
        "train.csv": 'id,target,comment_text\n1,0.0,"a, b"\n2,1.0,c\n',
        "test_public_expanded.csv": later,
        "test_private_expanded.csv": later,
    }
    rows = read(archives.read_civil(write_zip(tmp_path / "civil.zip", members)))
    assert rows["civilcomments/civil_train.jsonl"] == [
        {"text": "a, b", "toxic": 0},
        {"text": "c", "toxic": 1},
    ]
    assert rows["civilcomments/civil_test.jsonl"] == [
        {"text": "two\nlines", "toxic": 1},
        {"text": "fine", "toxic": 0},
    ]


def test_batches_of_cifar10_are_read_as_they_are(tmp_path):
    rng = np.random.default_rng(0)
    names = [*(f"data_batch_{n}.bin" for n in range(1, 6)), "test_batch.bin"]
    batches = {name: rng.integers(0, 10, (1200, 3073), np.uint8) for name in names}
    members = {f"cifar-10-batches-bin/{name}": b.tobytes() for name, b in batches.items()}
    contents = archives.read_cifar10(write_tar(tmp_path / "cifar.tar.gz", members))
    paths = []
    for name, make in contents.items():
        paths.append(tmp_path / name.rpartition("/")[2])
        paths[-1].write_bytes(b"".join(make()))
    arrays, _ = IMAGE_SETS["cifar10"].read(paths)
    assert arrays["train/inputs"].shape == (1000, 3, 32, 32)
    record = {row[1:].tobytes(): row[0] for row in batches["test_batch.bin"]}
    for image, label in zip(arrays["test/inputs"], arrays["test/labels"], strict=True):
        assert record[image.tobytes()] == label


def test_a_missing_batch_is_named(tmp_path):
    members = {"cifar-10-batches-bin/data_batch_1.bin": b"x"}
    with pytest.raises(DataError, match=r"there is no data_batch_2.bin"):
        archives.read_cifar10(write_tar(tmp_path / "cifar.tar.gz", members))


def test_a_missing_member_of_a_zip_is_named(tmp_path):
    contents = archives.read_sst2(write_zip(tmp_path / "SST-2.zip", {"other": ""}))
    with pytest.raises(DataError, match=r"SST-2.zip, SST-2/train.tsv"):
        read(contents)


@pytest.mark.parametrize("reader", [archives.read_imdb, archives.read_cifar10])
def test_a_damaged_tar_is_named(tmp_path, reader):
    path = write_tar(tmp_path / "set.tar.gz", make_imdb())
    path.write_bytes(path.read_bytes()[:200])
    with pytest.raises(DataError, match=r"set.tar.gz cannot be read"):
        reader(path)


def test_a_damaged_zip_is_named(tmp_path):
    (tmp_path / "set.zip").write_bytes(b"PK no zip")
    with pytest.raises(DataError, match=r"set.zip cannot be read"):
        read(archives.read_mnli(tmp_path / "set.zip"))
