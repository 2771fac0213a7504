"""The optimizer of chapter 6 with a clock: what each backward pass computes, and when each all-reduce is sent."""

from typing import Any

import torch

from d2lite.profiling import Recorder

__all__ = ["recorded"]


def recorded(optimizer_class: Any) -> Any:
    """Return a subclass of chapter 6's DistributedOptimizer that takes a Recorder as its third argument.

    Each all-reduce is recorded from its start, in the hook, to its end, and the time between two hooks as "backward".
    """

    class RecordedOptimizer(optimizer_class):
        def __init__(self, optimizer: Any, named_parameters: Any, recorder: Recorder) -> None:
            super().__init__(optimizer, named_parameters)
            self.recorder, self.noted = recorder, []

        def send(self, param: torch.Tensor) -> None:
            start = self.recorder.lap("backward", f"before {self.names[param]}")
            super().send(param)

            def note(future: Any) -> None:
                self.recorder.add("all_reduce", self.names[param], start, self.recorder.mark(), param.grad.nbytes)

            self.noted.append(self.handles[param].get_future().then(note))

        def synchronize(self) -> None:
            torch.futures.wait_all(self.noted)
            self.noted.clear()
            super().synchronize()

    return RecordedOptimizer
