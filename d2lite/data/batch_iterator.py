"""Iterate over minibatches: the training ones are shuffled anew in every epoch, the test ones are in order."""

import time
from collections.abc import Iterator

import torch
import torch.nn.functional as F

from d2lite.replica_threads import one_intra_op_thread
from d2lite.run_events import emit
from notebook_ranks.shared.checks import positive_int

__all__ = ["MOST_SEED", "BatchIterator"]

MOST_SEED = 2**43 - 1  # torch's generators take 64 bits; an epoch's number takes 20 of them
_CPU = [torch.device("cpu")]


class BatchIterator:
    """Minibatches from uint8 examples [n, ...], images [n, 1, h, w] here, and labels; shuffled if `seed` is given.

    Epoch e has a generator of its own, seeded with (seed, e): neither the number of devices nor other random numbers
    change the order. `dataset` is the name of the data set for curves, `len()` the number of minibatches per epoch.
    """

    def __init__(
        self,
        examples: torch.Tensor,
        labels: torch.Tensor,
        batch_size: int,
        dataset: str,
        resize: int | None = None,
        seed: int | None = None,
    ) -> None:
        self.examples, self.labels, self.batch_size = examples, labels, positive_int("batch_size", batch_size)
        self.dataset, self.resize, self.seed = dataset, resize, seed
        self.epoch = 0

    @property
    def num_examples(self) -> int:
        """The number of examples per epoch."""
        return len(self.labels)

    def __len__(self) -> int:
        return -(-self.num_examples // self.batch_size)

    def smallest(self) -> int:
        """Return the size of the smallest minibatch: the last one, where batch_size does not divide num_examples."""
        return self.num_examples % self.batch_size or self.batch_size

    def __iter__(self) -> Iterator[tuple[torch.Tensor, torch.Tensor]]:
        if self.seed is None:
            for examples, labels in zip(
                self.examples.split(self.batch_size), self.labels.split(self.batch_size), strict=True
            ):
                emit("evaluation")
                yield self._as_input(examples), labels
            return
        epoch, self.epoch = self.epoch, self.epoch + 1
        generator = torch.Generator().manual_seed((self.seed << 20) + epoch)
        order = torch.randperm(self.num_examples, generator=generator)
        start = time.perf_counter()
        for step, index in enumerate(order.split(self.batch_size)):
            emit("minibatch", epoch=epoch, step=step, steps=len(self), dataset=self.dataset)
            with one_intra_op_thread(_CPU):  # a second thread would go on spinning on a core that a replica needs
                X, y = self._as_input(self.examples.index_select(0, index)), self.labels[index]
            yield X, y
        seconds = time.perf_counter() - start
        emit("epoch", epoch=epoch, seconds=seconds, num_examples=self.num_examples)

    def _as_input(self, examples: torch.Tensor) -> torch.Tensor:
        """Return some of the uint8 examples in the form that a network takes."""
        X = examples.float().div_(255)
        if self.resize is not None:
            X = F.interpolate(X, size=(self.resize, self.resize), mode="bilinear", antialias=True)
        return X
