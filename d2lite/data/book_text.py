"""A text to learn from, character by character: the prose of this kit's own chapters, which comes with the package."""

import functools
from pathlib import Path

import torch

from d2lite.data.batch_iterator import MOST_SEED, BatchIterator
from notebook_ranks.shared.checks import positive_int, whole_number

__all__ = ["CHARACTERS", "decode", "encode", "load_data_book_text"]

CHARACTERS = "\n" + "".join(map(chr, range(32, 127)))  # 96: the new line and what can be printed in ASCII
_FILE = Path(__file__).with_name("book.txt")
_FOR_TRAINING = 0.9  # of the text, from its beginning; the rest is for tests


class _TextIterator(BatchIterator):
    """Minibatches of pieces of a text: the numbers are not scaled, as those of images are."""

    def _as_input(self, examples: torch.Tensor) -> torch.Tensor:
        return examples.long()


def encode(text: str) -> torch.Tensor:
    """Return the numbers, 0 to 95, of the characters of a text, int64 [len(text)]; all must be in CHARACTERS."""
    for character in set(text):
        if character not in CHARACTERS:
            raise ValueError(f"text: expected the {len(CHARACTERS)} characters of ASCII, got {character!r}. Remove it.")
    return torch.tensor([CHARACTERS.index(character) for character in text], dtype=torch.int64)


def decode(tokens: torch.Tensor) -> str:
    """Return the text of numbers that `encode` gives, [n]."""
    return "".join(CHARACTERS[i] for i in tokens.tolist())


@functools.cache
def _tokens() -> torch.Tensor:
    return encode(_FILE.read_text(encoding="ascii")).to(torch.uint8)


def load_data_book_text(
    batch_size: int, context: int = 64, num_examples: int | None = None, seed: int = 0
) -> tuple[BatchIterator, BatchIterator]:
    """Return train_iter, test_iter over minibatches of pieces of the text; `seed` decides the order of each epoch.

    X and y are int64 [b, context]; y[i, t] is the character that follows X[i, t] in the text.

    Args:
        batch_size: pieces per minibatch, of all devices together; the last minibatch of an epoch may be smaller.
        context: the characters of a piece. The pieces do not overlap.
        num_examples: how many pieces to train on; by default all, about 2,600 of 64 characters.

    Example:
        >>> train_iter, test_iter = load_data_book_text(batch_size=2, context=16)
        >>> X, y = next(iter(test_iter))
        >>> X.shape, torch.equal(X[0, 1:], y[0, :-1])
        (torch.Size([2, 16]), True)
    """
    cut = int(len(_tokens()) * _FOR_TRAINING)
    context = positive_int("context", context, len(_tokens()) - cut - 1)
    train, test = _pieces(_tokens()[:cut], context), _pieces(_tokens()[cut:], context)
    n = len(train[0]) if num_examples is None else positive_int("num_examples", num_examples, len(train[0]))
    seed, name = whole_number("seed", seed, 0, MOST_SEED), "the text of this book"
    train_iter = _TextIterator(train[0][:n], train[1][:n], batch_size, name, seed=seed)
    return train_iter, _TextIterator(*test, batch_size, name)


def _pieces(tokens: torch.Tensor, context: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Return pieces of `context` tokens, [n, context], and for each token the one that follows."""
    n = (len(tokens) - 1) // context
    return tokens[: n * context].view(n, context), tokens[1 : n * context + 1].view(n, context).long()
