"""The gradient noise scale: the size of the minibatch up to which more examples make a step clearly better.

McCandlish et al. 2018, "An Empirical Model of Large-Batch Training", arXiv:1812.06162, section 2.2 and appendix A.1.
"""

from collections.abc import Iterable
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import nn

from d2lite.replica_threads import one_intra_op_thread
from notebook_ranks.shared.checks import positive_int

__all__ = ["GradientNorms", "NoiseScale", "gradient_norms", "noise_scale"]


@dataclass(frozen=True)
class GradientNorms:
    """Squared lengths of the gradients of one minibatch.

    `small` is the mean over its shards, which have `num_small` examples each. `big` belongs to the whole minibatch,
    which has `num_big` examples.
    """

    small: float
    big: float
    num_small: int
    num_big: int


@dataclass(frozen=True)
class NoiseScale:
    """`signal` is the squared length of the true gradient, `noise` the sum of the variances of one example's gradient.

    `num_examples` is noise / signal: the minibatch whose noise is as large as its signal. It is infinite if the
    estimate of the signal is not above 0: then the minibatches that were measured show no signal.
    """

    signal: float
    noise: float

    @property
    def num_examples(self) -> float:
        """The gradient noise scale, in examples."""
        return self.noise / self.signal if self.signal > 0 else float("inf")


def gradient_norms(net: nn.Module, X: torch.Tensor, y: torch.Tensor, num_shards: int) -> GradientNorms:
    """Return the squared lengths of the gradients of a minibatch and of its shards.

    Data parallelism computes both in every step: each device has the gradient of its shard, and after the all-reduce
    each has the mean. Here one device computes the shards in turn. `.grad` is left alone; running statistics change,
    as in training.

    Args:
        net: A module with logits [b, classes].
        X, y: The minibatch, on the device of the net: images [b, ...] and labels [b].
        num_shards: 2 or more; shards have the same size.

    Raises:
        ValueError: if there are fewer than two shards, or `num_shards` does not divide the minibatch.
        TypeError: if `num_shards` is not a whole number.
    """
    num_shards = positive_int("num_shards", num_shards)
    if num_shards < 2 or len(y) % num_shards or not len(y):
        raise ValueError(
            f"num_shards: expected 2 or more that divide the {len(y)} examples of the minibatch, got {num_shards}. "
            "Choose another minibatch."
        )
    params = [p for p in net.parameters() if p.requires_grad]
    total, small = [torch.zeros_like(p) for p in params], 0.0
    with one_intra_op_thread([X.device]):
        for X_shard, y_shard in zip(X.chunk(num_shards), y.chunk(num_shards), strict=True):
            grads = torch.autograd.grad(F.cross_entropy(net(X_shard), y_shard), params)
            small += _squared(grads) / num_shards
            for t, grad in zip(total, grads, strict=True):
                t += grad / num_shards
    return GradientNorms(small, _squared(total), len(y) // num_shards, len(y))


def noise_scale(norms: Iterable[GradientNorms]) -> NoiseScale:
    """Return the noise scale from the norms of several minibatches: numerator and denominator are averaged first.

    A gradient over b examples has the expected squared length signal + noise / b. Two sizes give two equations.

    Raises:
        ValueError: if there are no norms, or the two sizes of one are equal.
    """
    signals, noises = [], []
    for n in norms:
        if not 0 < n.num_small < n.num_big:
            raise ValueError(
                f"norms: expected shards with fewer examples than the minibatch, got {n.num_small} of {n.num_big}."
            )
        signals.append((n.num_big * n.big - n.num_small * n.small) / (n.num_big - n.num_small))
        noises.append((n.small - n.big) / (1 / n.num_small - 1 / n.num_big))
    if not signals:
        raise ValueError("norms: expected those of one minibatch or more, got none.")
    return NoiseScale(sum(signals) / len(signals), sum(noises) / len(noises))


def _squared(tensors: Iterable[torch.Tensor]) -> float:
    return float(sum(t.double().pow(2).sum() for t in tensors))
