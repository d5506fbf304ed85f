"""Texts cut and framed, against the truncation of the tokenizers library."""

import numpy as np
import pytest

from mirrormargin.data.framing import BLOCK, check_framing, choose_width, frame
from mirrormargin.data.wordpiece import CLS, SEP, Pieces
from mirrormargin.errors import DataError


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
    with pytest.raises(DataError, match="length="):
        check_framing(length, "head")


def test_an_unknown_keep_is_refused():
    with pytest.raises(DataError, match="'head' and 'ends'"):
        check_framing(128, "tail")
