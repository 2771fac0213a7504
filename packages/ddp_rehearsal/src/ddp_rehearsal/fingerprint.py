"""Fingerprints of tensors: short texts that are equal on two ranks if the tensors are, and a few of their values.

Those of a GPU are made there (`gpu_fingerprint`), and are not those of an equal tensor on the CPU.
"""

import functools
import hashlib
import struct
import zlib
from collections.abc import Iterator, Sequence
from itertools import accumulate, islice, pairwise
from typing import Any

import torch

from ddp_rehearsal.gpu_fingerprint import MOST_WORDS, joined_sums, row_sums

__all__ = [
    "MOST_ROWS",
    "MOST_VALUES",
    "NOT_READ",
    "Print",
    "Sample",
    "first_tensor",
    "row_prints",
    "rows_of_inputs",
    "tensor_digest",
    "tensor_print",
    "tensor_prints",
    "tensor_sample",
    "unpacked",
]

Print = tuple[str, str]  # digest, a few values as `unpacked` reads them
Sample = tuple[float, ...]  # norm, largest absolute value, a few values
NOT_READ = "not read"
MOST_VALUES = 1 << 14  # of a tensor that are read in each step
MOST_JOINED = 1 << 16  # words that are copied in order to be read together
MOST_ROWS = 4096
NUM_VALUES = 8  # of each tensor
DIGITS = 16  # hexadecimal, of a value
NUM_SAMPLED = 16
MOST_TENSORS = 8  # of an input


def tensor_print(tensor: torch.Tensor, complete: bool = True) -> Print:
    """Return (digest, up to 8 values spread over the tensor) of a tensor; see `tensor_prints`."""
    return tensor_prints([tensor], complete)[0]


def tensor_digest(tensor: torch.Tensor) -> str:
    """Return the digest alone of a whole tensor."""
    if not _is_read(tensor):
        return NOT_READ
    return _digests(_resolved(tensor).reshape(-1), (tensor.numel(),))[0]


def tensor_prints(tensors: Sequence[torch.Tensor], complete: bool = True) -> list[Print]:
    """Return (digest, up to 8 values spread over the tensor, as `unpacked` reads them) of each tensor.

    With `complete=False` large tensors are sampled, 16,384 elements at most. Equal tensors always get equal digests;
    different ones may, too. Sparse and nested tensors, and those without values, are not read. Tensors of one type and
    device are read together, since each call of PyTorch takes time.
    """
    found: list[Print] = [(NOT_READ, "")] * len(tensors)
    for numbers in _groups_of_one_kind(tensors):
        flats = [_resolved(tensors[i]).reshape(-1) for i in numbers]
        if not complete:
            flats = [f[:: -(-len(f) // MOST_VALUES)] if len(f) > MOST_VALUES else f for f in flats]
        joined = (flats[0].contiguous() if len(flats) == 1 else torch.cat(flats)).detach()
        lengths = tuple(map(len, flats))
        digests = _digests(joined, lengths)
        values = "" if joined.is_complex() else _some_values(joined, lengths)
        ends = accumulate(DIGITS * min(n, NUM_VALUES) for n in lengths)
        for i, digest, (first, end) in zip(numbers, digests, pairwise([0, *ends]), strict=True):
            found[i] = digest, values[first:end]
    return found


def unpacked(text: str) -> tuple[float, ...]:
    """Return the numbers of a text that has 16 hexadecimal digits for each: its bytes as float64, as in memory here."""
    return struct.unpack(f"{len(text) // DIGITS}d", bytes.fromhex(text))


def _is_read(tensor: torch.Tensor) -> bool:
    return tensor.layout is torch.strided and not tensor.is_meta and not tensor.is_nested


def _resolved(tensor: torch.Tensor) -> torch.Tensor:
    """Return a tensor whose memory holds its values: a conjugate view holds different ones."""
    return tensor.resolve_conj().resolve_neg() if tensor.is_complex() or tensor.is_neg() else tensor


def _groups_of_one_kind(tensors: Sequence[torch.Tensor]) -> list[list[int]]:
    """Return groups of tensors (their numbers) of one type and device, of at most 2¹⁶ or, on a GPU, 2²⁰ words."""
    groups: list[list[int]] = []
    last: dict[Any, tuple[list[int], int]] = {}  # the group that is being filled, and its words
    for i, tensor in enumerate(tensors):
        if _is_read(tensor):
            kind, n = (tensor.device, tensor.dtype), tensor.numel() * (2 if tensor.is_complex() else 1)
            numbers, total = last.get(kind, ([], 0))
            if not numbers or total + n > (MOST_WORDS if tensor.is_cuda else MOST_JOINED):
                numbers, total = [], 0
                groups.append(numbers)
            numbers.append(i)
            last[kind] = numbers, total + n
    return groups


def _digests(joined: torch.Tensor, lengths: tuple[int, ...]) -> list[str]:
    """Return the digest of each part of a tensor of one dimension.

    On the CPU CRC-32 is five times as fast as BLAKE2b. It always differs where one value of 32 bits differs, and in all
    but one of 2³² cases where more do.
    """
    if joined.is_cuda:
        return joined_sums(joined, lengths)
    data, ends = _bytes_of(joined), accumulate(n * joined.element_size() for n in lengths)
    return [f"{zlib.crc32(data[first:end]):08x}" for first, end in pairwise([0, *ends])]


def _bytes_of(flat: torch.Tensor) -> memoryview:
    """Return the bytes of a tensor of one dimension."""
    return flat.contiguous().detach().cpu().view(torch.uint8).numpy().data if flat.numel() else memoryview(b"")


def _some_values(joined: torch.Tensor, lengths: tuple[int, ...]) -> str:
    """Return 8 values of each part of a tensor, or all if a part has fewer, as `unpacked` reads them."""
    return joined[_where_values_stand(lengths, joined.device)].cpu().double().numpy().tobytes().hex()


@functools.lru_cache(maxsize=64)
def _where_values_stand(lengths: tuple[int, ...], device: torch.device) -> torch.Tensor:
    """Return where the values that are read stand; a step asks for the same as the one before."""
    places = []
    for first, n in zip(accumulate(lengths, initial=0), lengths, strict=False):
        step = max(1, n // NUM_VALUES)
        places += [first + step * k for k in range(min(n, NUM_VALUES))]
    return torch.tensor(places, dtype=torch.int64, device=device)


def tensor_sample(tensor: torch.Tensor) -> Sample:
    """Return (norm, largest absolute value, up to 16 values spread over the tensor); () if it is empty or not read.

    Two tensors of one shape with samples that are close differ by little, unless the differences leave the norm as it
    is and spare the 16 values.
    """
    if not _is_read(tensor) or not tensor.numel():
        return ()
    flat = _resolved(tensor).detach().reshape(-1)
    flat = torch.view_as_real(flat).reshape(-1) if flat.is_complex() else flat
    flat = flat if flat.is_floating_point() else flat.double()
    norm = torch.linalg.vector_norm(flat, dtype=torch.float64)
    values = flat[:: max(1, flat.numel() // NUM_SAMPLED)][:NUM_SAMPLED].double()
    return float(norm), float(flat.abs().max()), *values.tolist()


def row_prints(tensor: torch.Tensor) -> tuple[str, ...]:
    """Return the digest of each row (each slice of the first dimension) of a tensor, of the first 4096 at most."""
    if not _is_read(tensor) or not tensor.numel():
        return ("",) * min(len(tensor), MOST_ROWS)
    rows = _resolved(tensor if len(tensor) <= MOST_ROWS else tensor[:MOST_ROWS])
    if rows.is_cuda:
        return tuple(row_sums(rows.reshape(len(rows), -1)))
    data = _bytes_of(rows.reshape(-1))
    n = len(data) // len(rows)  # bytes of a row
    return tuple([hashlib.blake2b(data[i : i + n], digest_size=8).hexdigest() for i in range(0, len(data), n)])


def rows_of_inputs(value: object) -> tuple[str, ...]:
    """Return the digests of the examples in what a network is given, of the first 4096 at most.

    They are the rows of its first tensor with several rows and several values in each: one with fewer may be a time, a
    task or numbers of examples. Without a tensor of two dimensions all rows of whole numbers are read together.
    """
    found = list(islice(_tensors(value, 0), MOST_TENSORS))
    tables = [t for t in found if t.dim() > 1 and t.dtype != torch.bool]
    if tables:
        return row_prints(next((t for t in tables if t.numel() > len(t) > 1), tables[0]))
    numbers = [t for t in found if len(t) == len(found[0]) and not t.is_floating_point()]
    rows = [row_prints(t) for t in numbers or found[:1]]
    return tuple(map("+".join, zip(*rows, strict=True)))


def first_tensor(value: object, fewest_dims: int = 1) -> torch.Tensor | None:
    """Return the first tensor with a dimension in lists, tuples and dicts, which may be nested four deep; else None."""
    return next(_tensors(value, 0, fewest_dims), None)


def _tensors(value: object, depth: int, fewest_dims: int = 1) -> Iterator[torch.Tensor]:
    if isinstance(value, torch.Tensor):
        if value.dim() >= fewest_dims:
            yield value
    elif depth < 4 and isinstance(value, list | tuple | dict):
        for item in value.values() if isinstance(value, dict) else value:
            yield from _tensors(item, depth + 1, fewest_dims)
