"""Texts as rows of numbers: word pieces, special tokens and width, shorter vocabularies."""

import numpy as np
import pytest

from mirrormargin.data.tokens import (
    BLOCK,
    CHUNK,
    CLS,
    SEP,
    Pieces,
    check_framing,
    check_vocab_size,
    choose_pieces,
    choose_width,
    frame,
    read_vocabulary,
    renumber,
    tokenize,
)
from mirrormargin.errors import DataError


def get_texts(pieces):
    return [
        pieces.ids[start:stop].tolist()
        for start, stop in zip(pieces.starts[:-1], pieces.starts[1:], strict=True)
    ]


def test_words_are_taken_apart_into_the_longest_pieces(vocabulary):
    pieces = tokenize(["A GOOD films!", "", "zebra"], vocabulary)
    words = [[vocabulary[number] for number in text] for text in get_texts(pieces)]
    assert words == [["a", "good", "film", "##s", "!"], [], ["[UNK]"]]
    assert pieces.lengths.tolist() == [5, 0, 1]


def test_no_text_at_all_gives_no_pieces(vocabulary):
    pieces = tokenize([], vocabulary)
    assert len(pieces) == 0
    assert len(pieces.ids) == 0


def test_progress_counts_up_to_all_texts(vocabulary):
    seen = []
    tokenize(["a film"] * (CHUNK + 3), vocabulary, lambda *numbers: seen.append(numbers))
    assert seen == [(CHUNK, CHUNK + 3), (CHUNK + 3, CHUNK + 3)]


def test_taken_texts_are_those_of_the_whole():
    pieces = Pieces(np.arange(6, dtype=np.uint16), np.array([0, 1, 1, 4, 6]))
    assert get_texts(pieces.take(1, 3)) == [[], [1, 2, 3]]


def test_a_file_that_is_another_vocabulary_is_refused(tmp_path):
    path = tmp_path / "vocab.txt"
    path.write_text("[PAD]\nthe\n", encoding="utf-8")
    with pytest.raises(DataError, match=r"\[UNK\] is not in line 101"):
        read_vocabulary(path)


@pytest.mark.data
def test_pieces_are_those_of_the_tokenizers_library(real_data):
    tokenizers = pytest.importorskip("tokenizers")
    path = real_data / "wordpiece" / "vocab.txt"
    vocabulary = read_vocabulary(path)
    assert len(vocabulary) == 30_522
    oracle = tokenizers.BertWordPieceTokenizer(str(path), lowercase=True)
    texts = [
        "Bromwell High is a cartoon comedy.<br /><br />It ran at the same time...",
        "Café naïve, 10/10!! \t\n unbelievableness \u4e2d\u6587 \U0001f600 don't",
        "",
    ]
    expected = [oracle.encode(text, add_special_tokens=False).ids for text in texts]
    assert get_texts(tokenize(texts, vocabulary)) == expected


def make_pieces(lengths, first=1000):
    ids = [np.arange(first, first + length) for length in lengths]
    return Pieces(np.concatenate(ids).astype(np.uint16), np.concatenate([[0], np.cumsum(lengths)]))


def strip(row):
    return row[row > 0].tolist()


def test_head_keeps_the_first_pieces():
    rows = frame(make_pieces([10, 2]), None, 6, "head")
    assert rows.dtype == np.int32
    assert rows.tolist() == [
        [CLS, 1000, 1001, 1002, 1003, SEP],
        [CLS, 1000, 1001, SEP, 0, 0],
    ]


@pytest.mark.parametrize(
    ("width", "kept"), [(6, [0, 1, 8, 9]), (7, [0, 1, 2, 8, 9]), (12, list(range(10)))]
)
def test_ends_keeps_the_first_half_and_the_last_half(width, kept):
    rows = frame(make_pieces([10]), None, width, "ends")
    assert strip(rows[0]) == [CLS, *(1000 + place for place in kept), SEP]


def test_an_empty_text_is_its_special_tokens():
    assert frame(make_pieces([0, 3]), None, 6, "ends")[0].tolist() == [CLS, SEP, 0, 0, 0, 0]


def test_pairs_are_cut_as_the_tokenizers_library_cuts_them(vocabulary):
    tokenizers = pytest.importorskip("tokenizers")
    from tokenizers.processors import BertProcessing

    numbers = {token: number for number, token in enumerate(vocabulary)}
    oracle = tokenizers.Tokenizer(tokenizers.models.WordPiece(numbers, unk_token="[UNK]"))
    oracle.pre_tokenizer = tokenizers.pre_tokenizers.BertPreTokenizer()
    oracle.post_processor = BertProcessing(("[SEP]", SEP), ("[CLS]", CLS))
    x, a = numbers["x"], numbers["a"]
    lengths = [(m, n) for m in range(12) for n in range(12)]
    first = Pieces(
        np.full(sum(m for m, _ in lengths), x, np.uint16), np.cumsum([0, *(m for m, _ in lengths)])
    )
    second = Pieces(
        np.full(sum(n for _, n in lengths), a, np.uint16), np.cumsum([0, *(n for _, n in lengths)])
    )
    for width in (8, 9, 14):
        oracle.enable_truncation(width, strategy="longest_first")
        rows = frame(first, second, width, "head")
        for (m, n), row in zip(lengths, rows, strict=True):
            expected = oracle.encode(" ".join("x" * m), " ".join("a" * n)).ids
            assert strip(row) == expected, (m, n, width)


def test_ends_of_pairs_are_the_ends_of_each():
    rows = frame(make_pieces([6]), make_pieces([2], 2000), 9, "ends")
    assert strip(rows[0]) == [CLS, 1000, 1001, 1004, 1005, SEP, 2000, 2001, SEP]


def test_blocks_do_not_show():
    lengths = np.random.default_rng(0).integers(0, 9, BLOCK + 7)
    rows = frame(make_pieces(lengths), make_pieces(lengths[::-1], 2000), 12, "ends")
    for number in (0, BLOCK - 1, BLOCK, BLOCK + 6):
        alone = frame(
            make_pieces([lengths[number]]), make_pieces([lengths[::-1][number]], 2000), 12, "ends"
        )
        assert rows[number].tolist() == alone[0].tolist()


def test_width_is_that_of_the_longest_text_up_to_512():
    assert choose_width([(make_pieces([3, 9]), None), (make_pieces([4]), None)]) == 11
    assert choose_width([(make_pieces([3]), make_pieces([4]))]) == 10
    assert choose_width([(make_pieces([5000]), None)]) == 512


@pytest.mark.parametrize("length", [4, -1, 12.0, "128"])
def test_a_length_that_is_none_is_refused(length):
    with pytest.raises(DataError, match="length is "):
        check_framing(length, "head")


def test_an_unknown_keep_is_refused():
    with pytest.raises(DataError, match="give one of head, ends"):
        check_framing(128, "tail")


ROWS = np.array([[101, 110, 112, 112, 102, 0], [101, 112, 111, 110, 105, 102]], np.int32)


def test_special_tokens_come_first_then_the_most_frequent_then_lower_numbers():
    assert choose_pieces(ROWS, 7, 120).tolist() == [0, 100, 101, 102, 112, 110, 105]


def test_it_is_no_longer_than_there_are_pieces():
    assert choose_pieces(ROWS, 50, 120).tolist() == [0, 100, 101, 102, 112, 110, 105, 111]


def test_other_pieces_become_unknown():
    pieces = choose_pieces(ROWS, 6, 120)
    expected = [[2, 5, 4, 4, 3, 0], [2, 4, 1, 5, 1, 3]]
    assert renumber(ROWS, pieces, 120).tolist() == expected


@pytest.mark.parametrize("vocab_size", [4, 0, -1, 10.0])
def test_a_size_without_room_for_words_is_refused(vocab_size):
    with pytest.raises(DataError, match="vocab_size"):
        check_vocab_size(vocab_size)
