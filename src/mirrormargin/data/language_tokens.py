r"""Texts for language models as numbers: characters, or pieces of words that are learnt (BPE).

    Characters   every character is a token
    WordPairs    a blank and a word, " the", is taken apart into pieces; an end of line is a token

Pieces of words are learnt by byte-pair encoding (Sennrich et al. 2016), on characters: beginning
with the characters, the pair of neighbours that is most frequent becomes a piece, again and again;
of equally frequent ones, the first in the order of their texts. A word is then taken apart by the
same merges, the oldest one first. So the vocabulary in its order says everything, and does not
depend on the order of the words that it was learnt from.
"""

from __future__ import annotations

import heapq
from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from itertools import pairwise
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from mirrormargin.arguments import check_count
from mirrormargin.errors import DataError

__all__ = [
    "END_OF_LINE",
    "Characters",
    "Tokenizer",
    "WordPairs",
    "count_words",
    "learn_pieces",
    "make_tokenizer",
]

END_OF_LINE = "\n"
UNKNOWN = " <unk>"  # as the texts of WikiText-2 call it, after a blank
Pair = tuple[str, str]


class Tokenizer(Protocol):
    """From a text to numbers of tokens, and back."""

    vocabulary: tuple[str, ...]

    def encode(self, text: str) -> NDArray[np.int64]: ...

    def decode(self, ids: Iterable[int]) -> str: ...


class Characters:
    r"""Every character is a token.

    Example:
        >>> Characters(("\n", "a", "b")).encode("abba").tolist()
        [1, 2, 2, 1]
    """

    def __init__(self, vocabulary: Sequence[str]) -> None:
        self.vocabulary = tuple(vocabulary)
        self._numbers = {piece: number for number, piece in enumerate(self.vocabulary)}

    def encode(self, text: str) -> NDArray[np.int64]:
        """The numbers of all characters.

        Raises:
            DataError: If one is not in the vocabulary.
        """
        unknown = sorted(set(text) - self._numbers.keys())
        if unknown:
            raise DataError(
                f"{', '.join(map(repr, unknown))} does not occur in the text that the model has"
                f" learnt: it knows {''.join(self.vocabulary)!r}"
            )
        return np.fromiter((self._numbers[one] for one in text), np.int64, len(text))

    def decode(self, ids: Iterable[int]) -> str:
        return "".join(self.vocabulary[number] for number in ids)


class WordPairs:
    r"""Words are taken apart by the merges that a vocabulary lists; see the module.

    Lines of blanks are empty lines, and several blanks count as one. A word with a character that
    the vocabulary does not have is ``<unk>``.

    Args:
        vocabulary: As :func:`learn_pieces` gives it.

    Example:
        >>> pairs = WordPairs(("\n", " <unk>", " ", "a", "b", "ab", " ab"))
        >>> pairs.encode("ab bab x\n").tolist()
        [6, 2, 4, 5, 1, 0]
        >>> pairs.decode([6, 2, 4, 5, 0])
        ' ab bab\n'
    """

    def __init__(self, vocabulary: Sequence[str]) -> None:
        self.vocabulary = tuple(vocabulary)
        self._numbers = {piece: number for number, piece in enumerate(self.vocabulary)}
        self._known: dict[str, list[int]] = {}

    def encode(self, text: str) -> NDArray[np.int64]:
        """The numbers of the pieces of all words, and of the ends of lines."""
        ids: list[int] = []
        end = self._numbers[END_OF_LINE]
        for index, line in enumerate(text.split(END_OF_LINE)):
            if index:
                ids.append(end)
            for word in line.split():
                if word not in self._known:
                    self._known[word] = self._part(f" {word}")
                ids += self._known[word]
        return np.array(ids, np.int64)

    def decode(self, ids: Iterable[int]) -> str:
        return "".join(self.vocabulary[number] for number in ids)

    def _part(self, word: str) -> list[int]:
        if word in self._numbers:
            return [self._numbers[word]]
        if any(letter not in self._numbers for letter in word):
            return [self._numbers[UNKNOWN]]
        pieces, missing = list(word), len(self.vocabulary)
        while len(pieces) > 1:
            ranks = [
                self._numbers.get(first + second, missing) for first, second in pairwise(pieces)
            ]
            oldest = min(ranks)
            if oldest == missing:
                break
            index = ranks.index(oldest)
            pieces[index : index + 2] = [pieces[index] + pieces[index + 1]]
        return [self._numbers[piece] for piece in pieces]


def make_tokenizer(kind: str | None, vocabulary: Sequence[str] | None) -> Tokenizer:
    """The tokenizer of a kind, ``characters`` or ``pairs``.

    Raises:
        DataError: If there is no such kind, or no vocabulary.
    """
    kinds: dict[str | None, type[Characters] | type[WordPairs]] = {
        "characters": Characters,
        "pairs": WordPairs,
    }
    if kind not in kinds or vocabulary is None:
        raise DataError(f"a language model reads characters or pairs of a vocabulary, got {kind!r}")
    return kinds[kind](vocabulary)


def count_words(text: str) -> int:
    r"""Words between blanks, and ends of lines, which count as words in published perplexities.

    Example:
        >>> count_words("to be or\nnot to be\n")
        8
    """
    return len(text.split()) + text.count(END_OF_LINE)


def learn_pieces(text: str, vocab_size: int) -> tuple[str, ...]:
    """A vocabulary for :class:`WordPairs`: special tokens, the characters, then merges.

    Args:
        text: To learn from.
        vocab_size: At most so many pieces; fewer if every word is a piece before.

    Raises:
        DataError: If there is no room for all characters.
    """
    counts = Counter(text.split())
    letters = sorted({letter for word in counts for letter in word})
    vocabulary = [END_OF_LINE, UNKNOWN, " ", *letters]
    hint = "one for every character of the text, and three more"
    check_count("vocab_size", vocab_size, least=len(vocabulary), hint=hint, error=DataError)
    counts.pop(UNKNOWN.strip(), None)  # it is one token already
    known = set(vocabulary)
    merges = _Merges({f" {word}": count for word, count in counts.items()})
    while len(vocabulary) < vocab_size and (piece := merges.merge_next()) is not None:
        if piece not in known:  # the same text can come of two pairs, "ab" + "c" and "a" + "bc"
            known.add(piece)
            vocabulary.append(piece)
    return tuple(vocabulary)


class _Merges:
    """Words as lists of pieces, with the counts of all pairs of neighbours."""

    def __init__(self, counts: dict[str, int]) -> None:
        self.words = [list(word) for word in counts]
        self.weights = list(counts.values())
        self.counts: dict[Pair, int] = defaultdict(int)
        self.homes: dict[Pair, set[int]] = defaultdict(set)
        for index in range(len(self.words)):
            self._count(index, self.weights[index])
        self.heap = [(-count, pair) for pair, count in self.counts.items()]
        heapq.heapify(self.heap)

    def merge_next(self) -> str | None:
        """Merge the most frequent pair everywhere; None if there is none."""
        while self.heap:
            count, pair = heapq.heappop(self.heap)
            # Counts change after they were put on the heap; the newest entry of a pair counts.
            if -count == self.counts[pair] > 0:
                self._merge(pair)
                return pair[0] + pair[1]
        return None

    def _merge(self, pair: Pair) -> None:
        changed: set[Pair] = set()
        for index in sorted(self.homes[pair]):
            changed |= self._count(index, -self.weights[index])
            word, merged, k = self.words[index], [], 0
            while k < len(word):
                is_pair = k + 1 < len(word) and (word[k], word[k + 1]) == pair
                merged.append(word[k] + word[k + 1] if is_pair else word[k])
                k += 2 if is_pair else 1
            self.words[index] = merged
            changed |= self._count(index, self.weights[index])
        for one in changed:
            if self.counts[one] > 0:
                heapq.heappush(self.heap, (-self.counts[one], one))

    def _count(self, index: int, weight: int) -> set[Pair]:
        """Add a word's pairs to the counts, or take them away."""
        word = self.words[index]
        pairs = list(pairwise(word))
        for pair in pairs:
            self.counts[pair] += weight
            if weight > 0:
                self.homes[pair].add(index)
            else:
                self.homes[pair].discard(index)
        return set(pairs)
