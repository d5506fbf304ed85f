"""The shorter vocabulary."""

import numpy as np
import pytest

from mirrormargin.data.vocabulary import check_vocab_size, choose_pieces, renumber
from mirrormargin.errors import DataError

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
