"""Digests that a GPU computes: sums over all words of a tensor, each times a factor of its own.

A copy of all weights to the CPU takes longer than a step on a GPU. Here a few kernels read all tensors together, and
8 bytes of each go to the CPU. Whole numbers are added, so that the order of the additions does not matter. One changed
word always changes the sum, since its factor is odd; several leave it as it is in one of about 2⁶⁴ cases.
"""

import functools

import torch
from torch import nn

__all__ = ["joined_sums", "row_sums"]

WORDS = {1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64}  # bytes of an element -> type of a word
MOST_WORDS = 1 << 20  # that are read at a time; they take about 30 bytes each meanwhile
GOLDEN, MIX = 0x9E3779B97F4A7C15 - (1 << 64), 0xBF58476D1CE4E5B9 - (1 << 64)  # of the generator SplitMix64


def joined_sums(joined: torch.Tensor, lengths: tuple[int, ...]) -> list[str]:
    """Return the digest of each part of a tensor of one dimension; the parts have `lengths` elements."""
    words = _words(joined)
    if len(lengths) == 1:
        pieces = zip(range(0, len(words), MOST_WORDS), words.split(MOST_WORDS), strict=False)
        sums = (_mixed(piece, _factors(len(piece), first, words.device)).sum() for first, piece in pieces)
        return [_text(sum(map(int, sums)))]
    width = 2 if joined.is_complex() else 1  # words of an element
    factors, ends = _factors_of_parts(tuple(width * n for n in lengths), words.device)
    totals = [0, *nn.functional.pad(_mixed(words, factors).cumsum(0), (1, 0))[ends].tolist()]
    return [_text(total - before) for before, total in zip(totals, totals[1:], strict=False)]


def row_sums(rows: torch.Tensor) -> list[str]:
    """Return the digest of each row of a tensor of shape (number of rows, elements of a row)."""
    n, length = rows.shape
    words = _words(rows.reshape(-1)).reshape(n, -1)
    factors = _factors(words.shape[1], device=words.device)
    at_a_time = max(1, MOST_WORDS // words.shape[1])
    return [_text(total) for some in words.split(at_a_time) for total in _mixed(some, factors).sum(1).tolist()]


def _words(flat: torch.Tensor) -> torch.Tensor:
    """Return the bits of a tensor of one dimension as whole numbers."""
    flat = torch.view_as_real(flat).reshape(-1) if flat.is_complex() else flat
    return flat.contiguous().view(WORDS[flat.element_size()])


def _mixed(words: torch.Tensor, factors: torch.Tensor) -> torch.Tensor:
    """Return each word times its factor, with the upper half of its bits mixed into the lower half."""
    mixed = words * factors
    return mixed.bitwise_xor_(mixed >> 32)


@functools.lru_cache(maxsize=4)
def _factors(n: int, first: int = 0, device: torch.device | None = None) -> torch.Tensor:
    """Return an odd number of 64 bits for each of `n` places, nearly as SplitMix64 makes them (Steele et al. 2014)."""
    mixed = torch.arange(first + 1, first + n + 1, device=device) * GOLDEN
    mixed = (mixed ^ (mixed >> 30)) * MIX
    return (mixed ^ (mixed >> 27)) | 1


@functools.lru_cache(maxsize=4)
def _factors_of_parts(lengths: tuple[int, ...], device: torch.device) -> tuple[torch.Tensor, torch.Tensor]:
    """Return the factor of each word, and where each part ends; they are the same in each step."""
    longest = _factors(max(lengths), device=device)
    return torch.cat([longest[:n] for n in lengths]), torch.tensor(lengths).cumsum(0).to(device)


def _text(total: int) -> str:
    return f"{total % (1 << 64):016x}"
