"""Short reviews, each with the one word that decides it: where should a classifier look?

Written for this library. 3 to 8 words each; the sentiment word is a single piece of the
bert-base-uncased vocabulary, stands at the start, inside or at the end, and occurs once.
"""

from __future__ import annotations

from typing import NamedTuple

__all__ = ["REVIEWS", "Review"]


class Review(NamedTuple):
    """A review, its label (0 negative, 1 positive) and its sentiment word in lower case."""

    text: str
    label: int
    word: str


POSITIVE = (
    ("Wonderful from the first scene onward.", "wonderful"),
    ("I loved every minute of this.", "loved"),
    ("The camera work is beautiful.", "beautiful"),
    ("My sister found the ending perfect.", "perfect"),
    ("An excellent script carries the actors.", "excellent"),
    ("What a brilliant little thriller!", "brilliant"),
    ("Its soundtrack sounds amazing.", "amazing"),
    ("Two hours of superb acting.", "superb"),
    ("Everyone in our row enjoyed it.", "enjoyed"),
    ("The lead actress gives a fantastic performance.", "fantastic"),
    ("Great dialogue between the two brothers.", "great"),
    ("The director tells a powerful story.", "powerful"),
    ("A charming tale about a lighthouse.", "charming"),
    ("After ten years this sequel feels fresh.", "fresh"),
    ("The puppets looked gorgeous on screen.", "gorgeous"),
    ("Outstanding editing throughout the chase.", "outstanding"),
    ("I recommend this western to anyone.", "recommend"),
    ("Their duet in the rain was lovely.", "lovely"),
    ("Such a delightful cartoon for children.", "delightful"),
    ("The stage sets impressed me.", "impressed"),
    ("A masterpiece of Italian cinema.", "masterpiece"),
    ("The final twist is clever.", "clever"),
    ("Funny lines in nearly every scene.", "funny"),
    ("The old sailor is a memorable character.", "memorable"),
    ("Incredible stunts for a television movie.", "incredible"),
    ("It was the best documentary this year.", "best"),
    ("A sweet story about two neighbors.", "sweet"),
    ("Every costume looks stunning.", "stunning"),
    ("He plays the judge with remarkable skill.", "remarkable"),
    ("The animation remains magnificent today.", "magnificent"),
    ("An entertaining evening at the theater.", "entertaining"),
    ("Hearing her voice is a joy.", "joy"),
)
NEGATIVE = (
    ("Boring from the opening credits on.", "boring"),
    ("I hated the second half.", "hated"),
    ("An awful remake of a television series.", "awful"),
    ("Terrible sound in nearly every scene.", "terrible"),
    ("The jokes about the mayor were stupid.", "stupid"),
    ("My whole family found it dull.", "dull"),
    ("What a waste of film!", "waste"),
    ("The sheriff speaks with a ridiculous accent.", "ridiculous"),
    ("Poor lighting in the tunnel scenes.", "poor"),
    ("The worst western I ever saw.", "worst"),
    ("This musical disappointed me.", "disappointed"),
    ("The dubbing is horrible in this version.", "horrible"),
    ("A weak story about two spies.", "weak"),
    ("Its third act is a mess.", "mess"),
    ("The narrator sounds annoying after ten minutes.", "annoying"),
    ("They made another lame sequel.", "lame"),
    ("Pointless scenes fill the middle hour.", "pointless"),
    ("The big white shark looked fake.", "fake"),
    ("Painful to watch until the credits.", "painful"),
    ("Someone chose ugly colors for the castle.", "ugly"),
    ("As a comedy it failed.", "failed"),
    ("Two hours of cheap effects.", "cheap"),
    ("We saw a predictable ending coming.", "predictable"),
    ("Bad acting by the entire cast.", "bad"),
    ("I regret buying this tape.", "regret"),
    ("Dreadful songs between the kitchen scenes.", "dreadful"),
    ("The screenplay is pathetic.", "pathetic"),
    ("A ghost story that becomes silly.", "silly"),
    ("Miserable dialogue in the hospital scenes.", "miserable"),
    ("Somebody gave the robot dumb lines.", "dumb"),
    ("The speech at the wedding was embarrassing.", "embarrassing"),
    ("Most of this script is garbage.", "garbage"),
)

REVIEWS: tuple[Review, ...] = (
    *(Review(text, 1, word) for text, word in POSITIVE),
    *(Review(text, 0, word) for text, word in NEGATIVE),
)
