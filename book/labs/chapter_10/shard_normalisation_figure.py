"""What normalisation makes of values, with the statistics of all of them and with those of each shard."""

import torch

from d2lite.figures.figure import Figure
from d2lite.figures.figure_layout import add_key, layout
from d2lite.figures.palette import GREY, PALETTE

__all__ = ["shard_normalisation_figure"]


def shard_normalisation_figure(values: torch.Tensor, replicas: int, label: str = "value") -> Figure:
    """Return a figure of the normalised values on one device, and on replicas that each have a shard of the values.

    Args:
        values: a minibatch of numbers [b].
        replicas: the number of shards; at most b of them are used.
        label: what the values are, with their unit.

    Raises:
        ValueError: if there are no values, or no replicas.
    """
    if values.dim() != 1 or not len(values):
        raise ValueError(f"values: expected at least one number, [b], got {list(values.shape)}.")
    if replicas < 1:
        raise ValueError(f"replicas: expected 1 or more, got {replicas}.")
    shards = values.tensor_split(min(replicas, len(values)))
    whole, split = _normalised(values), torch.cat([_normalised(shard) for shard in shards])
    order, num_first = values.argsort(), len(shards[0])
    first, others = order[order < num_first], order[order >= num_first]
    gap = float((split - whole).abs().max())
    title = f"{len(values)} examples, number of replicas: {replicas}. The values differ by up to {gap:.2f}"
    figure = Figure(layout=layout(label, "normalised value", title, bottom=56))
    curves = (
        ("one device", order, whole, "lines", GREY, "circle"),
        ("the other replicas", others, split, "markers", PALETTE[1], "square"),
        ("the first replica", first, split, "lines+markers", PALETTE[0], "circle"),
    )
    for name, at, y, mode, colour, symbol in curves:
        figure.add_scatter(
            x=values[at].tolist(),
            y=y[at].tolist(),
            name=name,
            mode=mode,
            line={"color": colour, "width": 3 if mode == "lines" else 2},
            marker={"color": colour, "symbol": symbol, "size": 8},
        )
    add_key(
        figure,
        [("—" if mode == "lines" else "●■"[symbol == "square"], c, name) for name, _, _, mode, c, symbol in curves],
    )
    return figure


def _normalised(values: torch.Tensor) -> torch.Tensor:
    return (values - values.mean()) / (values.var(correction=0) + 1e-5).sqrt()
