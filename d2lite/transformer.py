"""A small transformer that predicts the next character of a text: embedding, attention, MLP and head on one page."""

import math

import torch
import torch.nn.functional as F
from torch import nn

from notebook_ranks.shared.checks import positive_int

__all__ = ["MLP", "Attention", "Transformer"]


class Embedding(nn.Module):
    """A vector for each character plus one for each place: tokens [b, t] -> [b, t, width]."""

    def __init__(self, num_characters: int, context: int, width: int) -> None:
        super().__init__()
        self.character = nn.Embedding(num_characters, width)
        self.place = nn.Embedding(context, width)

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        places = torch.arange(tokens.shape[1], device=tokens.device)
        return self.character(tokens) + self.place(places)


class Attention(nn.Module):
    """Each place takes a weighted mean over itself and the places before it: [b, t, width] -> [b, t, width]."""

    def __init__(self, width: int, num_heads: int) -> None:
        super().__init__()
        self.num_heads = num_heads
        self.query, self.key, self.value = nn.Linear(width, width), nn.Linear(width, width), nn.Linear(width, width)
        self.out = nn.Linear(width, width)

    def forward(self, X: torch.Tensor) -> torch.Tensor:
        q, k, v = (layer(X).unflatten(-1, (self.num_heads, -1)) for layer in (self.query, self.key, self.value))
        q, k, v = (x.transpose(1, 2) for x in (q, k, v))  # [b, heads, t, width / heads]
        scores = q @ k.transpose(2, 3) / math.sqrt(q.shape[-1])  # [b, heads, t, t]
        later = torch.ones(scores.shape[-2:], dtype=torch.bool, device=X.device).triu(1)
        weights = scores.masked_fill(later, -math.inf).softmax(-1)  # no place sees a later one
        return self.out((weights @ v).transpose(1, 2).flatten(2))


class MLP(nn.Module):
    """Two linear layers, with four times the width between them; each place for itself."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, X: torch.Tensor) -> torch.Tensor:
        return self.down(F.gelu(self.up(X)))


class Block(nn.Module):
    """Attention, then an MLP; each reads normalised values, and its result is added to them (a residual)."""

    def __init__(self, width: int, num_heads: int) -> None:
        super().__init__()
        self.norm1, self.attention = nn.LayerNorm(width), Attention(width, num_heads)
        self.norm2, self.mlp = nn.LayerNorm(width), MLP(width)

    def forward(self, X: torch.Tensor) -> torch.Tensor:
        X = X + self.attention(self.norm1(X))
        return X + self.mlp(self.norm2(X))


class Head(nn.Module):
    """A score for each character at each place: [b, t, width] -> logits [b, t, characters]."""

    def __init__(self, width: int, num_characters: int) -> None:
        super().__init__()
        self.norm, self.linear = nn.LayerNorm(width), nn.Linear(width, num_characters)

    def forward(self, X: torch.Tensor) -> torch.Tensor:
        return self.linear(self.norm(X))


class Transformer(nn.Module):
    """The network of chapter 13: tokens [b, t] -> logits [b, t, characters]; 826,208 parameters by default.

    It is a small GPT-2 (Radford et al. 2019): normalisation comes before attention and MLP. There is no dropout, so the
    same minibatch gives the same gradient on any number of devices.

    Args:
        width: numbers per place; a multiple of `num_heads`, the weighted means per attention.
        num_blocks: how many blocks follow each other.
        context: the largest number of places, t.
        num_characters: how many different tokens there are.
        seed: the same seed gives the same values. PyTorch's global generator is left alone.

    Example:
        >>> net = Transformer(width=32, num_blocks=1)
        >>> net(torch.zeros(2, 10, dtype=torch.int64)).shape
        torch.Size([2, 10, 96])
    """

    def __init__(
        self,
        width: int = 128,
        num_blocks: int = 4,
        num_heads: int = 4,
        context: int = 64,
        num_characters: int = 96,
        seed: int = 0,
    ) -> None:
        super().__init__()
        sizes = {"width": width, "num_blocks": num_blocks, "num_heads": num_heads, "context": context}
        for name, size in (sizes | {"num_characters": num_characters}).items():
            positive_int(name, size)
        if width % num_heads:
            raise ValueError(
                f"width: expected a multiple of num_heads={num_heads}, got {width}. Each head gets width / num_heads "
                "numbers."
            )
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)
            self.embedding = Embedding(num_characters, context, width)
            self.blocks = nn.ModuleList(Block(width, num_heads) for _ in range(num_blocks))
            self.head = Head(width, num_characters)

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        X = self.embedding(tokens)
        for block in self.blocks:
            X = block(X)
        return self.head(X)
