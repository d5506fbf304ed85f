"""Attention on the sentiment word: closed forms on a model whose attention is written down."""

import json

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import nn

from mirrormargin.errors import ModelError, TrainingError
from mirrormargin.training.reviews import REVIEWS, Review
from mirrormargin.training.token_selection import attend, score_token_selection

WORDS = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "the", "film", "was", "great", "awful", "long"]
GREAT = Review("The film was great", 1, "great")
AWFUL = Review("Awful the film was", 0, "awful")


def encode(text):
    tokens = ["[CLS]", *(w if w in WORDS else "[UNK]" for w in text.lower().split()), "[SEP]"]
    return [WORDS.index(token) for token in tokens], tokens


class Reader(nn.Module):
    """Attends by token: ``scores`` (layers, heads, words) hold log-weights; other rows differ."""

    def __init__(self, scores, logits=(0.0,) * 10, outputs=lambda total: total):
        super().__init__()
        self.scores = nn.Parameter(torch.tensor(scores, dtype=torch.float64))
        self.register_buffer("logits", torch.tensor(logits))
        self.dropout = nn.Dropout(0.5)
        self.outputs = outputs

    def attention(self, ids):
        assert not self.training
        assert not torch.is_grad_enabled()
        row = self.scores[:, :, ids].movedim(2, 0).softmax(-1)
        maps = torch.full((*row.shape, row.shape[-1]), 1 / row.shape[-1], dtype=row.dtype)
        maps[..., 0, :] = row
        return maps

    def forward(self, ids):
        return self.outputs(self.dropout(self.logits)[ids].sum(dim=1))


def weigh(**weights):
    """Log-weights of all words, 1 where none is given."""
    names = {"cls": "[CLS]", "sep": "[SEP]"}
    given = {names.get(name, name): value for name, value in weights.items()}
    return [float(np.log(given.get(word, 1.0))) for word in WORDS]


def test_heads_that_the_last_block_lacks_do_not_count():
    model = Reader([[weigh(film=2), weigh(great=5)], [weigh(great=3), [np.nan] * len(WORDS)]])
    one = Reader([[weigh(great=3)]])
    ids = encode(GREAT.text)[0]
    with torch.no_grad():
        assert attend(model.eval(), ids) == pytest.approx(attend(one.eval(), ids))


def test_scores_are_those_of_the_formulas():
    # The six weights of "[CLS] the film was great [SEP]" are 2, 1, 3, 1, 5, 8: their sum is 20.
    model = Reader([[weigh(cls=2, film=3, great=5, sep=8)]])
    found = score_token_selection(model, encode, [GREAT])
    assert found.reviews[0].tokens == ("[CLS]", "the", "film", "was", "great", "[SEP]")
    assert found.reviews[0].weights == pytest.approx([0.1, 0.05, 0.15, 0.05, 0.25, 0.4])
    assert found.reviews[0].position == 4
    assert found.scaled == pytest.approx([4 / 7])
    assert found.share == pytest.approx([0.25])
    assert found.is_top_word.tolist() == [True]


def test_the_last_block_counts_and_heads_are_averaged_after_the_softmax():
    first = [weigh(great=95), weigh(great=95)]
    last = [weigh(great=5), weigh(film=5)]  # shares of great: 5/10 and 1/10
    found = score_token_selection(Reader([first, last]), encode, [GREAT])
    assert found.share == pytest.approx([0.3])
    assert found.scaled == pytest.approx([1])


def test_reviews_keep_their_order_and_the_score_is_their_mean():
    model = Reader([[weigh(great=5, awful=3, film=5)]])
    found = score_token_selection(model, encode, [AWFUL, GREAT])
    assert [row.review for row in found.reviews] == [AWFUL, GREAT]
    assert found.scaled == pytest.approx([0.5, 1])
    assert found.share == pytest.approx([3 / 12, 5 / 14])
    assert found.is_top_word.tolist() == [False, False]  # a tie counts against the word
    assert found.score == pytest.approx(0.75)


def test_uniform_attention_selects_nothing():
    found = score_token_selection(Reader([[weigh()]]), encode, [GREAT])
    assert found.scaled.tolist() == [0]
    assert found.share == pytest.approx([1 / 6])
    assert found.is_top_word.tolist() == [False]


@given(
    st.lists(st.floats(0.01, 100), min_size=len(WORDS), max_size=len(WORDS)), st.floats(1.01, 10)
)
def test_more_attention_on_the_word_never_lowers_a_score(weights, factor):
    one = score_token_selection(Reader([[np.log(weights).tolist()]]), encode, [GREAT])
    weights[WORDS.index("great")] *= factor
    more = score_token_selection(Reader([[np.log(weights).tolist()]]), encode, [GREAT])
    assert 0 <= one.scaled[0] <= more.scaled[0] + 1e-12 <= 1 + 2e-12
    assert one.share[0] < more.share[0]
    assert one.is_top_word[0] <= more.is_top_word[0]


def test_reviews_whose_word_the_vocabulary_lacks_are_skipped_and_listed():
    missing = Review("The film was superb", 1, "superb")
    absent = Review("The film was long", 0, "awful")
    twice = Review("Great film the great", 1, "great")
    found = score_token_selection(Reader([[weigh()]]), encode, [missing, GREAT, absent, twice])
    assert [row.review for row in found.reviews] == [GREAT]
    assert found.skipped == (missing, absent, twice)
    with pytest.raises(TrainingError, match="none of the 1 reviews"):
        score_token_selection(Reader([[weigh()]]), encode, [missing])


def test_reviews_longer_than_the_model_takes_are_skipped():
    longer = Review("The film was long was long great", 1, "great")
    found = score_token_selection(Reader([[weigh()]]), encode, [longer, GREAT], longest=6)
    assert [row.review for row in found.reviews] == [GREAT]
    assert found.skipped == (longer,)
    with pytest.raises(TrainingError, match="among its tokens, 5 at most"):
        score_token_selection(Reader([[weigh()]]), encode, [longer, GREAT], longest=5)


def test_padding_changes_nothing():
    def padded(text):
        ids, tokens = encode(text)
        return ids + [0] * 3, tokens + ["[PAD]"] * 3

    model = Reader([[[0.1 * k for k in range(len(WORDS))]]])
    one, two = (score_token_selection(model, e, [GREAT, AWFUL]) for e in (encode, padded))
    assert one.as_dict() == two.as_dict()


@pytest.mark.parametrize(
    "outputs",
    [
        lambda total: total,
        lambda total: total[:, None],
        lambda total: torch.stack([-total, total], dim=1),
    ],
)
def test_predictions_are_compared_with_labels_without_dropout(outputs):
    logits = torch.zeros(len(WORDS))
    logits[WORDS.index("great")], logits[WORDS.index("awful")] = 1.0, -1.0
    model = Reader([[weigh()]], logits.tolist(), outputs)
    wrong = Review("Long the film great", 0, "great")
    found = score_token_selection(model, encode, [GREAT, AWFUL, wrong])
    assert [row.prediction for row in found.reviews] == [1, 0, 1]
    assert found.is_right.tolist() == [True, True, False]


@pytest.mark.parametrize("fails", [False, True])
def test_every_module_gets_its_mode_back(fails):
    model = Reader([[weigh()]])
    model.train()
    model.dropout.eval()
    if fails:
        with pytest.raises(TrainingError, match="none of the 0 reviews"):
            score_token_selection(model, encode, [])
    else:
        score_token_selection(model, encode, [GREAT])
    assert model.training
    assert not model.dropout.training


def test_results_survive_json():
    found = score_token_selection(
        Reader([[weigh(great=2)]]), encode, [GREAT, Review("fine film", 1, "fine")]
    )
    back = json.loads(json.dumps(found.as_dict(), allow_nan=False))
    assert back["score"] == 1
    assert back["reviews"][0]["text"] == GREAT.text
    assert back["reviews"][0]["tokens"][4] == "great"
    assert back["skipped"] == ["fine film"]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda a: a[:, 0], r"shape \(1, 1, 6, 6\)"),
        (lambda a: a[..., :-1], r"expected \(1, layers, heads, 6, 6\)"),
        (lambda a: a * 2, "not shares"),
        (lambda a: a - torch.linspace(-1, 1, 6), "not shares"),  # the sum is still 1
        (lambda a: a * torch.nan, "not shares"),
    ],
)
def test_attention_of_another_form_is_refused(change, message):
    model = Reader([[weigh()]])
    original = model.attention
    model.attention = lambda ids: change(original(ids))
    with pytest.raises(ModelError, match=message):
        score_token_selection(model, encode, [GREAT])


def test_more_than_two_classes_are_refused():
    model = Reader([[weigh()]], outputs=lambda total: torch.zeros(1, 3))
    with pytest.raises(ModelError, match=r"shape \(1, 3\)"):
        score_token_selection(model, encode, [GREAT])


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        (lambda text: (encode(text)[0][1:], encode(text)[1][1:]), r"first token must be \[CLS\]"),
        (lambda text: ([], []), r"first token must be \[CLS\]"),
        (lambda text: (encode(text)[0][1:], encode(text)[1]), "5 ids and 6 tokens"),
    ],
)
def test_texts_encoded_in_another_way_are_refused(wrong, message):
    with pytest.raises(TrainingError, match=message):
        score_token_selection(Reader([[weigh()]]), wrong, [GREAT])


def test_reviews_are_many_short_balanced_and_different():
    assert len(REVIEWS) >= 60
    assert sum(review.label for review in REVIEWS) * 2 == len(REVIEWS)
    assert {review.label for review in REVIEWS} == {0, 1}
    assert len({review.text for review in REVIEWS}) == len(REVIEWS)
    assert len({review.word for review in REVIEWS}) == len(REVIEWS)
    assert all(3 <= len(review.text.split()) <= 8 for review in REVIEWS)


@pytest.mark.parametrize("label", [0, 1])
def test_sentiment_words_occur_once_and_at_varied_places(label):
    places = []
    for review in REVIEWS:
        words = [word.strip(".!?,").lower() for word in review.text.split()]
        assert words.count(review.word) == 1, review
        # Another review's word here would be a second one with a sentiment.
        assert not {r.word for r in REVIEWS if r is not review} & set(words), review
        if review.label == label:
            place = words.index(review.word)
            places.append("start" if place == 0 else "end" if place == len(words) - 1 else "inside")
    assert all(places.count(place) >= 4 for place in ("start", "inside", "end"))


@pytest.mark.data
def test_sentiment_words_are_single_pieces_of_the_vocabulary(real_data):
    tokenizers = pytest.importorskip("tokenizers")
    path = real_data / "wordpiece" / "vocab.txt"
    tokenizer = tokenizers.BertWordPieceTokenizer(str(path), lowercase=True)
    for review in REVIEWS:
        tokens = tokenizer.encode(review.text).tokens
        assert tokens.count(review.word) == 1, (review, tokens)
        assert "[UNK]" not in tokens
