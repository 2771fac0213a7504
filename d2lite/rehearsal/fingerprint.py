"""Fingerprints of tensors: short texts that are equal on two ranks if the tensors are, and a few of their values."""

import hashlib
from collections.abc import Iterator
from typing import Any

import torch

__all__ = ["MOST_ROWS", "MOST_VALUES", "Print", "Sample", "first_tensor", "row_prints", "tensor_print", "tensor_sample"]

Print = tuple[str, tuple[float, ...]]  # digest, a few values
Sample = tuple[float, ...]  # norm, largest absolute value, a few values
MOST_VALUES = 1 << 14  # of a tensor that are read in each step
MOST_ROWS = 4096
NUM_VALUES = 8
NUM_SAMPLED = 16


def tensor_print(tensor: torch.Tensor, complete: bool = True) -> Print:
    """Return (digest, up to 8 values spread over the tensor) of a tensor.

    With `complete=False` the digest of a large tensor is that of every n-th element, at most 16,384 of them: two
    tensors that differ may then have the same digest, and equal ones never have different digests. A sparse tensor is
    not read.
    """
    if tensor.is_sparse:
        return "sparse", ()
    flat = tensor.detach().reshape(-1)
    values = flat[:: max(1, flat.numel() // NUM_VALUES)][:NUM_VALUES] if flat.numel() > NUM_VALUES else flat
    if not complete and flat.numel() > MOST_VALUES:
        flat = flat[:: -(-flat.numel() // MOST_VALUES)]
    if values.is_complex():
        return _digest(_bytes(flat)), ()
    return _digest(_bytes(flat)), tuple((values if values.is_floating_point() else values.double()).tolist())


def tensor_sample(tensor: torch.Tensor) -> Sample:
    """Return (norm, largest absolute value, up to 16 values spread over the tensor); () if it is sparse or empty.

    Two tensors of one shape with samples that are close differ by little, unless the differences leave the norm as it
    is and spare the 16 values.
    """
    if tensor.is_sparse or not tensor.numel():
        return ()
    flat = tensor.detach().reshape(-1)
    flat = torch.view_as_real(flat).reshape(-1) if flat.is_complex() else flat
    flat = flat if flat.is_floating_point() else flat.double()
    norm = torch.linalg.vector_norm(flat, dtype=torch.float64)
    values = flat[:: max(1, flat.numel() // NUM_SAMPLED)][:NUM_SAMPLED].double()
    return float(norm), float(flat.abs().max()), *values.tolist()


def row_prints(tensor: torch.Tensor) -> tuple[str, ...]:
    """Return the digest of each row (each slice of the first dimension) of a tensor, of the first 4096 at most."""
    if tensor.is_sparse or not tensor.numel():
        return ("",) * min(len(tensor), MOST_ROWS)
    tensor = tensor.detach()[:MOST_ROWS]
    return tuple(map(_digest, _bytes(tensor.reshape(-1)).reshape(len(tensor), -1)))


def first_tensor(value: Any, depth: int = 0) -> torch.Tensor | None:
    """Return the first tensor with a dimension in lists, tuples and dicts, which may be nested four deep; else None."""
    return next(_tensors(value, depth), None)


def _tensors(value: Any, depth: int) -> Iterator[torch.Tensor]:
    if isinstance(value, torch.Tensor):
        if value.dim():
            yield value
    elif depth < 4 and isinstance(value, list | tuple | dict):
        for item in value.values() if isinstance(value, dict) else value:
            yield from _tensors(item, depth + 1)


def _bytes(flat: torch.Tensor) -> Any:
    """Return the bytes of a tensor with one dimension."""
    return flat.cpu().contiguous().view(torch.uint8).numpy() if flat.numel() else b""


def _digest(data: Any) -> str:
    return hashlib.blake2b(data, digest_size=8).hexdigest()
