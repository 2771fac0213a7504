"""Cards that a pretend GPU can stand for: name, memory and compute capability.

Sources: NVIDIA's data sheets of the cards for their memory, and NVIDIA's page "CUDA GPU Compute Capability".
"""

import re
from dataclasses import dataclass

__all__ = ["CARDS", "Card", "card_of"]


@dataclass(frozen=True)
class Card:
    """A card: the gigabytes in its name, of 10⁹ bytes each (drivers take a part), and its compute capability."""

    name: str
    gigabytes: int
    capability: tuple[int, int]

    @property
    def n_bytes(self) -> int:
        """The memory in bytes."""
        return self.gigabytes * 10**9


CARDS = {
    "t4": Card("T4", 16, (7, 5)),
    "v100": Card("V100", 16, (7, 0)),
    "a10g": Card("A10G", 24, (8, 6)),
    "rtx4090": Card("RTX 4090", 24, (8, 9)),
    "a100": Card("A100", 80, (8, 0)),
    "a100-40gb": Card("A100 40GB", 40, (8, 0)),
    "h100": Card("H100", 80, (9, 0)),
    "h200": Card("H200", 141, (9, 0)),
}


def card_of(text: str) -> Card:
    """Return the card of a name, or one of so much memory for "24GB". Raises ValueError for any other text.

    Example:
        >>> card_of("T4").n_bytes, card_of("24GB").gigabytes
        (16000000000, 24)
    """
    name = text.strip().lower().replace(" ", "")
    size = re.fullmatch(r"(\d{1,4})gb", name)
    if size and int(size[1]):
        return Card(f"{size[1]} GB", int(size[1]), (8, 0))
    if name not in CARDS:
        raise ValueError(f"card: expected one of {', '.join(CARDS)}, or a size such as 24GB, got {text!r}.")
    return CARDS[name]
