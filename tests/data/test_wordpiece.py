"""Word pieces, against the tokenizers library used directly."""

import numpy as np
import pytest

from mirrormargin.data.wordpiece import CHUNK, Pieces, read_vocabulary, tokenize
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
