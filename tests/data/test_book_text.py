"""The text of chapters 13 and 14: what it holds, and that a seed decides the order of its pieces."""

import re
from pathlib import Path

import pytest
import torch

from d2lite.data import CHARACTERS, decode, encode, load_data_book_text
from tools.write_book_text import TEXT, prose


def test_the_file_is_a_text_of_ascii_of_100_to_200_kb():
    assert Path(TEXT).stat().st_size in range(100_000, 200_000)
    text = TEXT.read_text(encoding="ascii")
    assert set(text) <= set(CHARACTERS) and len(CHARACTERS) == len(set(CHARACTERS)) == 96
    assert "all-reduce" in text and not re.search(r"https?://|!\[|```", text)


def test_prose_keeps_words_and_drops_code_links_and_drawings():
    markdown = (
        "## A **title**\n\nSee [chapter 2](02.ipynb) × $k$.\n\n```python\nx = 1\n```\n![words](a.svg)\n\n| a |\n|---|"
    )
    assert prose(markdown) == "A title\n\nSee chapter 2 x k."


def test_y_is_the_character_that_follows_and_pieces_are_of_the_text():
    text = TEXT.read_text(encoding="ascii")
    train_iter, test_iter = load_data_book_text(batch_size=50, context=32)
    seen = []
    for X, y in train_iter:
        assert X.dtype == y.dtype == torch.int64 and X.shape == y.shape and X.shape[1] == 32
        assert torch.equal(X[:, 1:], y[:, :-1])
        seen += [decode(piece) for piece in X]
    assert len(seen) == train_iter.num_examples and set(seen) <= {text[i : i + 32] for i in range(0, len(text), 32)}
    tested = "".join(decode(X.flatten()) for X, _ in test_iter)
    assert tested in text[-len(text) // 10 - 32 :] and len(tested) > len(text) // 10 - 64


def test_the_seed_decides_the_order_and_each_epoch_has_its_own():
    def order(seed):
        train_iter = load_data_book_text(64, num_examples=200, seed=seed)[0]
        return [torch.cat([X for X, _ in train_iter]) for _ in range(2)]

    one, again, other = order(3), order(3), order(4)
    assert all(map(torch.equal, one, again))
    assert not torch.equal(one[0], one[1]) and not torch.equal(one[0], other[0])
    assert len(one[0]) == 200 and sorted(map(decode, one[0])) == sorted(map(decode, one[1]))


def test_encode_and_decode_are_inverse_and_refuse_other_characters():
    assert decode(encode("a rank\n~")) == "a rank\n~"
    with pytest.raises(ValueError, match="text: expected the 96 characters of ASCII, got 'é'"):
        encode("café")


@pytest.mark.parametrize(
    ("seed", "error"), [(2**44, ValueError), (-1, ValueError), (None, TypeError), (1.5, TypeError)]
)
def test_wrong_seeds_are_refused(seed, error):
    with pytest.raises(error, match="seed: expected a whole number from 0 to"):
        load_data_book_text(8, seed=seed)


@pytest.mark.parametrize("arguments", [{"batch_size": 0}, {"context": 0}, {"num_examples": 10**6}, {"context": 10**6}])
def test_wrong_sizes_are_refused(arguments):
    with pytest.raises(ValueError, match="expected a "):
        load_data_book_text(**{"batch_size": 8} | arguments)
