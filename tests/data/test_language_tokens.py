"""Texts as tokens: characters, and pieces of words that are learnt."""

from collections import Counter
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st
from language_texts import make_text

from mirrormargin.data.language_tokens import (
    Characters,
    WordPairs,
    count_words,
    learn_pieces,
    make_tokenizer,
)
from mirrormargin.errors import DataError

TEXT = make_text(400) + "\nbobbing <unk> catdog catdog cats\n"


def learn_slowly(text, vocab_size):
    """The definition: count all pairs again before every merge."""
    words = Counter(text.split())
    vocabulary = ["\n", " <unk>", " ", *sorted({letter for word in words for letter in word})]
    words.pop("<unk>", None)
    parts = {word: [" ", *word] for word in words}
    while len(vocabulary) < vocab_size:
        counts = Counter()
        for word, pieces in parts.items():
            for pair in pairwise(pieces):
                counts[pair] += words[word]
        if not counts:
            break
        best = min(counts, key=lambda pair: (-counts[pair], pair))
        for word, pieces in parts.items():
            merged, k = [], 0
            while k < len(pieces):
                is_pair = tuple(pieces[k : k + 2]) == best
                merged.append("".join(pieces[k : k + 2]) if is_pair else pieces[k])
                k += 2 if is_pair else 1
            parts[word] = merged
        if "".join(best) not in vocabulary:
            vocabulary.append("".join(best))
    return tuple(vocabulary)


@pytest.mark.parametrize("size", [25, 40, 1000])
def test_pieces_are_those_of_the_definition(size):
    assert learn_pieces(TEXT, size) == learn_slowly(TEXT, size)


@given(st.lists(st.text("ab", min_size=1, max_size=6), min_size=1, max_size=12))
def test_pieces_of_any_words_are_those_of_the_definition(words):
    text = " ".join(words)
    assert learn_pieces(text, 20) == learn_slowly(text, 20)


def test_the_order_of_words_does_not_matter():
    words = TEXT.split()
    assert learn_pieces(" ".join(words), 40) == learn_pieces(" ".join(reversed(words)), 40)


@pytest.mark.parametrize("size", [25, 40, 1000])
def test_decoding_gives_the_words_back(size):
    tokenizer = WordPairs(learn_pieces(TEXT, size))
    for text in (TEXT, "the catbob\n\nhears", ""):
        lines = [line.split() for line in tokenizer.decode(tokenizer.encode(text)).split("\n")]
        assert lines == [line.split() for line in text.split("\n")]


def test_more_pieces_make_shorter_texts():
    sizes = [len(WordPairs(learn_pieces(TEXT, size)).encode(TEXT)) for size in (25, 40, 1000)]
    assert sizes == sorted(sizes, reverse=True)
    assert sizes[-1] == count_words(TEXT)  # every word is a piece


def test_a_word_with_an_unknown_character_is_unknown():
    tokenizer = WordPairs(learn_pieces(TEXT, 40))
    assert tokenizer.decode(tokenizer.encode("the zebra sees")) == " the <unk> sees"


def test_a_vocabulary_without_room_for_characters_is_refused():
    with pytest.raises(DataError, match="vocab_size"):
        learn_pieces(TEXT, 5)


def test_characters_go_there_and_back():
    tokenizer = Characters(sorted(set(TEXT)))
    assert tokenizer.decode(tokenizer.encode(TEXT)) == TEXT


def test_an_unknown_character_is_named():
    with pytest.raises(DataError, match="'X', 'é' does not occur in the text"):
        Characters(("a", "b")).encode("aXbé")


def test_an_unknown_tokenizer_is_refused():
    with pytest.raises(DataError, match="characters or pairs"):
        make_tokenizer("letters", ("a",))


def test_ends_of_lines_are_words():
    assert count_words(" \n = Title = \n \n a b c\n") == 6 + 4
