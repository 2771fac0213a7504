"""Digests that a GPU computes: sums over all words of a tensor, so that 8 bytes of each tensor go to the CPU.

Each word is multiplied by a factor of its place, mixed, and multiplied again. Each of the three is undone by another
one (a factor is odd), so that different words stay different, and one changed word always changes the sum. Whole
numbers are added: the order of the additions does not matter. Mixing brings the upper half of the bits into the lower
half; without it small whole numbers in float64, whose lower bits are all 0, would leave most bits of a sum at 0.
"""

import functools

import torch
from torch import nn

__all__ = ["MOST_WORDS", "joined_sums", "row_sums"]

WORDS = {1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64}  # bytes of an element -> type of a word
MOST_WORDS = 1 << 20  # that are read at a time; they take about 40 bytes each meanwhile
GOLDEN, MIX = 0x9E3779B97F4A7C15 - (1 << 64), 0xBF58476D1CE4E5B9 - (1 << 64)  # of SplitMix64 (Steele et al. 2014)


def joined_sums(joined: torch.Tensor, lengths: tuple[int, ...]) -> list[str]:
    """Return the digest of each part of a tensor of one dimension; the parts have `lengths` elements.

    Several parts have at most MOST_WORDS words together. A single one may have more.
    """
    if len(lengths) == 1:
        return row_sums(joined.reshape(1, -1))
    words = _whole_words(joined)
    width = 2 if joined.is_complex() else 1  # words of an element
    table = _odd_numbers(words.device)
    factors = torch.cat([table[: width * n] for n in lengths])
    sums = nn.functional.pad(_mixed(words, factors).cumsum(0), (1, 0))[_ends(lengths, words.device) * width]
    totals = [0, *sums.tolist()]
    return [_hexadecimal(total - before) for before, total in zip(totals, totals[1:], strict=False)]


def row_sums(rows: torch.Tensor) -> list[str]:
    """Return the digest of each row of a tensor of shape (number of rows, elements of a row)."""
    words = _whole_words(rows.reshape(-1)).reshape(len(rows), -1)
    length = min(words.shape[1], MOST_WORDS)
    totals = [0] * len(rows)
    for number, piece in enumerate(words.split(max(1, length), dim=1)):
        factors = _odd_numbers(words.device)[: piece.shape[1]]
        some = piece.split(max(1, MOST_WORDS // max(1, length)))
        sums = [total for rows_of_piece in some for total in _mixed(rows_of_piece, factors).sum(1).tolist()]
        # an odd number for each piece, so that two pieces that change places change the digest
        totals = [total + (2 * number + 1) * of_piece for total, of_piece in zip(totals, sums, strict=True)]
    return [_hexadecimal(total) for total in totals]


def _whole_words(flat: torch.Tensor) -> torch.Tensor:
    """Return the bits of a tensor of one dimension as whole numbers."""
    flat = torch.view_as_real(flat).reshape(-1) if flat.is_complex() else flat
    return flat.contiguous().view(WORDS[flat.element_size()])


def _mixed(words: torch.Tensor, factors: torch.Tensor) -> torch.Tensor:
    mixed = words * factors
    mixed ^= (mixed >> 32) & 0xFFFFFFFF  # without the sign, which PyTorch shifts in
    return mixed.mul_(factors)


@functools.lru_cache(maxsize=8)
def _odd_numbers(device: torch.device) -> torch.Tensor:
    """Return odd numbers of 64 bits for MOST_WORDS places (8 MB), which look drawn at random."""
    mixed = torch.arange(1, MOST_WORDS + 1, device=device) * GOLDEN
    mixed = (mixed ^ (mixed >> 30)) * MIX
    return (mixed ^ (mixed >> 27)) | 1


@functools.lru_cache(maxsize=64)
def _ends(lengths: tuple[int, ...], device: torch.device) -> torch.Tensor:
    """Return where each part ends; a step asks for the same as the one before."""
    return torch.tensor(lengths).cumsum(0).to(device)


def _hexadecimal(total: int) -> str:
    return f"{total % (1 << 64):016x}"
