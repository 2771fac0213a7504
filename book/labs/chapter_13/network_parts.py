"""What the functions of chapters 13 to 15 need of a network, as types: `d2lite.Transformer` has it, and others may."""

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, Protocol

import torch
from torch import nn

__all__ = ["BlockParts", "Network", "ShardedTransformer", "TransformerParts"]


class Network(Protocol):
    """A network as a step sees it; its parameters have gradients after a backward pass, and ranks may hold parts."""

    def __call__(self, X: torch.Tensor, /) -> torch.Tensor:
        """Compute a forward pass."""

    def parameters(self) -> Iterator[Any]:
        """Yield the parameters."""


class EmbeddingParts(Protocol):
    """A vector for each character plus one for each place; `character` may be cut."""

    character: Any

    @property
    def place(self) -> nn.Embedding:
        """The vectors of the places."""

    def register_forward_hook(self, hook: Any, /) -> Any:
        """Call `hook(embedding, args, X)` after each forward pass; what it returns is the result."""


class BlockParts(Protocol):
    """Attention and an MLP, which may be cut or replaced, each after a normalisation."""

    norm1: Any
    attention: Any
    norm2: Any
    mlp: Any


class Blocks(Protocol):
    """The blocks of a network, one after the other."""

    def __len__(self) -> int: ...

    def __iter__(self) -> Iterator[BlockParts]: ...

    def __getitem__(self, which: slice, /) -> Any: ...


class HeadParts(Protocol):
    """A score for each character at each place; `linear` may be cut."""

    linear: Any

    @property
    def norm(self) -> nn.Module:
        """The normalisation before it."""


class TransformerParts(Network, Protocol):
    """A transformer by its parts: `embedding`, `blocks`, `head`."""

    @property
    def embedding(self) -> EmbeddingParts:
        """The first layer."""

    @property
    def blocks(self) -> Blocks:
        """The layers in the middle."""

    @property
    def head(self) -> HeadParts:
        """The last layer."""


class ShardedTransformer(TransformerParts, Protocol):
    """A transformer of which each rank has a part of every layer; the gradients of `partial` must be added up."""

    partial: list[Any]


if TYPE_CHECKING:  # mypy holds that the book's network has these parts
    from d2lite.transformer import Transformer

    _has_them: TransformerParts = Transformer()
