"""What a training step writes: each gradient and each weight, on which replica, by which line of the step's code.

PyTorch counts how often each tensor was written to. After every line of the step, the recorder reads all counters
again: the tensors whose counter has changed were written by that line, in whichever thread.
"""

import hashlib
import linecache
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch

from d2lite.replica_threads import one_intra_op_thread
from ddp_rehearsal.tolerances import full_float32
from notebook_ranks.shared.checks import instance_of

from .step_case import TrainBatch

__all__ = ["GRADIENT", "WEIGHT", "StepRecord", "Write", "digest", "record_steps"]

GRADIENT, WEIGHT = ("backward", "message"), ("update",)  # the operations that write to a gradient, and to a weight
LENET = ("conv1.weight", "conv1.bias", "conv2.weight", "conv2.bias") + tuple(
    f"linear{i}.{part}" for i in (1, 2) for part in ("weight", "bias")
)


@dataclass(frozen=True, kw_only=True)
class Write:
    """A tensor after it was written to.

    `operation` is "backward" (a gradient as the backward pass leaves it), "message" (a gradient that was written again
    before the update, as an all-reduce does) or "update" (a weight). `line` and `code` are the line of the step's code
    that ran when the tensor changed; 0 and "" if no line was seen. `digest` is a hash of the values: it differs if one
    bit differs. `tensor` is a copy of the values, or None where they are not kept.
    """

    operation: str
    rank: int
    index: int
    name: str
    line: int
    code: str
    digest: bytes
    tensor: torch.Tensor | None


@dataclass(frozen=True)
class StepRecord:
    """One step, counted from 1, on `num_replicas` replicas: everything that it wrote, in order.

    Where a step writes to a tensor several times, only the last write has a digest and values: for a gradient the last
    one before the update.
    """

    step: int
    num_replicas: int
    writes: tuple[Write, ...]

    def last(self, operations: Sequence[str]) -> dict[tuple[int, int], Write]:
        """Return {(rank, index): the last write that is one of these operations}."""
        return {(write.rank, write.index): write for write in self.writes if write.operation in operations}

    @property
    def n_bytes(self) -> int:
        """Bytes of the tensors that are kept."""
        return sum(write.tensor.nbytes for write in self.writes if write.tensor is not None)


def record_steps(
    train_batch: TrainBatch,
    batches: Iterable[tuple[torch.Tensor, torch.Tensor]],
    device_params: Sequence[Sequence[torch.Tensor]],
    devices: Sequence[torch.device],
    lr: float,
    *,
    names: Sequence[str] | None = None,
    tensors: bool = True,
) -> Iterator[StepRecord]:
    """Train on the minibatches, one after the other, and yield what each step has written.

    The recorder sees the lines of `train_batch` and of functions in the same module or notebook, if they run in the
    caller's thread. While a step runs, the tracing of a debugger or of a coverage tool is off, GPUs compute without
    TF32, and cuDNN takes algorithms that repeat their results.

    Args:
        train_batch: train_batch(X, y, device_params, devices, lr).
        batches: minibatches X, y.
        device_params: one list of parameters per device, which are trained.
        devices: one device per replica.
        lr: the learning rate.
        names: the names of the parameters; by default LeNet's if there are 8 of them, else "parameter 0", ...
        tensors: whether to keep copies of the values; without them a record has only digests, and is small.

    Raises:
        TypeError: if train_batch is not a function.
        ValueError: if the number of names differs from the number of parameters. Errors of the step are passed on.
    """
    instance_of("train_batch", train_batch, Callable, hint="Pass its name, uncalled.")  # type: ignore[arg-type]
    number = len(device_params[0])
    if names is None:
        names = LENET if number == len(LENET) else [f"parameter {i}" for i in range(number)]
    if len(names) != number:
        raise ValueError(f"names: expected {number}, one for each parameter of a device, got {len(names)}.")
    digests = {(r, i): digest(param) for r, params in enumerate(device_params) for i, param in enumerate(params)}
    for step, (X, y) in enumerate(batches, start=1):
        recorder = WriteRecorder(device_params, names, tensors, digests)
        with_lines = _Lines(train_batch, recorder.look)
        with full_float32():
            with_lines.run(X, y, device_params, devices, lr)
        yield StepRecord(step, len(device_params), tuple(recorder.end()))


def digest(tensor: torch.Tensor) -> bytes:
    """Return a hash of 8 bytes. Two tensors that differ have the same hash with a probability of 1 in 10**19."""
    data = tensor.detach().cpu().contiguous().view(-1).view(torch.uint8).numpy()
    return hashlib.blake2b(data.data, digest_size=8).digest()


class WriteRecorder:
    """The tensors of all replicas during one step, and the writes to them."""

    def __init__(
        self,
        device_params: Sequence[Sequence[torch.Tensor]],
        names: Sequence[str],
        tensors: bool,
        digests: dict[Any, bytes],
    ) -> None:
        self.digests = digests  # of the weights, from step to step
        self.device_params, self.names, self.tensors = device_params, names, tensors
        self.places = [(rank, i) for rank, params in enumerate(device_params) for i in range(len(params))]
        self.writes: list[Write] = []
        self.begun: set[tuple[int, int]] = set()  # places whose gradient was written in this step
        self.done: set[tuple[int, int]] = set()  # places whose weight was written in this step
        self.seen = {place: self._counts(*place) for place in self.places}

    def _counts(self, rank: int, i: int) -> tuple[Any, int, Any, int]:
        """Return the weight and its gradient, each with its count of writes.

        The objects themselves are returned, because the id of an object that is gone may be given to a new one.
        """
        param = self.device_params[rank][i]
        grad = param.grad
        return param, param._version, grad, 0 if grad is None else grad._version

    def look(self, line: int, code: str) -> None:
        """Record what has changed since the last look as written by this line, except gradients set to zero."""
        changed = []
        for place in self.places:
            param, num_updates, grad, num_writes = counts = self._counts(*place)
            before, self.seen[place] = self.seen[place], counts
            is_new = grad is not None and (grad is not before[2] or num_writes != before[3])
            is_updated = param is not before[0] or num_updates != before[1]
            if is_new or is_updated:
                changed.append((place, grad if is_new and place not in self.done else None, is_updated))
        if not changed:
            return
        # Intra-op threads that spin after the copy would slow the replicas down. Their number is changed once per line:
        # changed once per tensor, a step of LeNet on one device took 7 ms longer (of 69 ms).
        with one_intra_op_thread([torch.device("cpu")]):
            for place, grad, is_updated in changed:
                if grad is not None and grad.any():
                    self._write("message" if place in self.begun else "backward", place, line, code)
                if is_updated:
                    self._write("update", place, line, code)

    def _write(self, operation: str, place: tuple[int, int], line: int, code: str) -> None:
        rank, i = place
        param = self.device_params[rank][i]
        value = param if operation == "update" or param.grad is None else param.grad
        kept = value.detach().clone()
        (self.done if operation == "update" else self.begun).add(place)
        kind = WEIGHT if operation in WEIGHT else GRADIENT
        for j, write in enumerate(self.writes):
            if write.tensor is not None and (write.rank, write.index) == place and write.operation in kind:
                self.writes[j] = replace(write, tensor=None)
        self.writes.append(
            Write(
                operation=operation,
                rank=rank,
                index=i,
                name=self.names[i],
                line=line,
                code=code,
                digest=b"",
                tensor=kept,
            )
        )

    def end(self) -> list[Write]:
        """Return all writes, including writes to weights that no counter has shown, such as writes through `.data`."""
        for rank, i in self.places:
            if (rank, i) not in self.done and digest(self.device_params[rank][i]) != self.digests[rank, i]:
                self._write("update", (rank, i), 0, "")
        for j, write in enumerate(self.writes):
            if write.tensor is not None:
                value = digest(write.tensor)
                if write.operation == "update":
                    self.digests[write.rank, write.index] = value
                self.writes[j] = replace(write, digest=value, tensor=write.tensor if self.tensors else None)
        return self.writes


class _Lines:
    """A function that is traced line by line, together with the other functions of its module or notebook."""

    def __init__(self, function: Callable[..., Any], look: Callable[[int, str], None]) -> None:
        self.function, self.look = function, look
        self.names = getattr(function, "__globals__", None)
        self.stack: list[tuple[int, str]] = []  # the current line of each traced function

    def run(self, *args: Any) -> None:
        before = sys.gettrace()
        sys.settrace(self._called)
        try:
            self.function(*args)
        finally:
            sys.settrace(before)
        self.look(0, "")

    def _called(self, frame: Any, event: str, arg: object) -> Any:
        if frame.f_globals is not self.names:
            return None
        self._note()
        self.stack.append((0, ""))
        return self._line

    def _line(self, frame: Any, event: str, arg: object) -> Any:
        if event in ("line", "return"):
            self._note()
        if event == "line":
            code = linecache.getline(frame.f_code.co_filename, frame.f_lineno, frame.f_globals).strip()
            self.stack[-1] = (frame.f_lineno, code)
        elif event == "return" and self.stack:
            self.stack.pop()
        return self._line

    def _note(self) -> None:
        if self.stack and self.stack[-1][0]:
            self.look(*self.stack[-1])
