"""The collectives that a script calls itself: those that put numbers together, and those that it must wait for."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
import torch.distributed as dist

from ddp_rehearsal.fingerprint import first_tensor
from ddp_rehearsal.observations import Place
from ddp_rehearsal.wrapped import wrap

__all__ = ["TOGETHER", "OwnCollectives"]

TOGETHER = "all_reduce reduce all_gather all_gather_into_tensor all_gather_object gather gather_object".split()
OTHERS = (
    "barrier monitored_barrier broadcast broadcast_object_list scatter scatter_object_list all_to_all "
    "all_to_all_single reduce_scatter reduce_scatter_tensor"
).split()
WAITS = "wait synchronize get_future get_future_result is_completed block_current_stream result".split()
MOST_NOTED = 400
FAR = 4  # operations between what was reduced and the loss
TOTALS = (dist.ReduceOp.SUM, dist.ReduceOp.AVG)


class OwnCollectives:
    """What the script's own collectives have done so far; `watch` wraps them.

    `calls` counts them, `not_noted` those after the first MOST_NOTED, and `not_waited` has (tensor, name, place) of the
    tensors that were given to asynchronous ones since something was waited for; while it is there, no other tensor gets
    its memory. Streams of NCCL keep the order of calls, so that whoever waits for the last one has waited for those
    before.
    """

    def __init__(self) -> None:
        self.calls = self.noted = self.not_noted = 0
        self.not_waited: list[tuple[torch.Tensor, str, Place | None]] = []
        self.reduced: tuple[Any, Place | None] | None = None  # the node that made a number which was reduced

    def watch(
        self, note: Callable[..., None], is_watched: Callable[[], bool], place_now: Callable[[], Place | None]
    ) -> None:
        """Wrap the collectives: call `note(name, tensor, **facts)` for the first ones."""

        def put_together(name: str) -> Callable[..., Any]:
            def around(collective: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
                if not is_watched():
                    return collective(*args, **kwargs)
                self.calls += 1
                given = [*args, *kwargs.values()] if "object" not in name else []
                inputs = given[1:] if name.startswith("all_gather") else given  # the first are its outputs
                tensor = first_tensor(inputs, fewest_dims=0)
                with_grad = torch.is_grad_enabled() and any(
                    isinstance(t, torch.Tensor) and t.requires_grad for t in given
                )
                if self.noted < MOST_NOTED:
                    self.noted += 1
                    note(name, tensor, with_grad=with_grad, **_of_reduction(given))
                else:
                    self.not_noted += 1
                work = collective(*args, **kwargs)
                first = next((t for t in given if isinstance(t, torch.Tensor)), None)
                if first is not None and isinstance(work, dist.Work):
                    self.not_waited.append((first, name, place_now()))
                if name == "all_reduce" and with_grad and first is not None and first.numel() == 1:
                    self.reduced = first.grad_fn, place_now()
                return work

            return around

        def count(name: str) -> Callable[..., Any]:
            def around(call: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
                if is_watched():
                    self.calls += 1
                    note(name, None)
                return call(*args, **kwargs)

            return around

        def waited(wait: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
            self.not_waited.clear()
            return wait(*args, **kwargs)

        for name in TOGETHER:
            wrap(dist, name, put_together(name), dist.distributed_c10d)
        for name in OTHERS:
            wrap(dist, name, count(name), dist.distributed_c10d)
        for name in WAITS:
            if hasattr(dist.Work, name):
                wrap(dist.Work, name, waited)
        wrap(torch.cuda, "synchronize", waited)

    def left_open(self, grads: Sequence[torch.Tensor]) -> list[tuple[str, Place | None]]:
        """Return (name, place) of the collectives of these gradients that were not waited for; forget all."""
        addresses = set(map(_address_of_data, grads)) if self.not_waited else set()
        found = [
            (name, place) for tensor, name, place in self.not_waited if _address_of_data(tensor) in addresses - {0}
        ]
        self.not_waited.clear()
        return found

    def factor_of(self, losses: Sequence[object]) -> tuple[float, Place | None] | None:
        """Return (by what a reduced number was multiplied, where it was reduced) if a loss is made of it; else None."""
        if self.reduced is None:
            return None
        (node, place), self.reduced = self.reduced, None
        for loss in losses:
            if isinstance(loss, torch.Tensor) and node is not None:
                factor = _factor_between(loss.grad_fn, node, FAR)
                if factor is not None:
                    return factor, place
        return None


def _factor_between(node: Any, end: Any, far: int) -> float | None:
    """Return the product of the numbers by which the nodes down to `end` multiply; None if they do other things."""
    if node is end:
        return 1.0
    kind = node.name() if node is not None else ""
    if far == 0 or kind not in ("DivBackward0", "MulBackward0", "CloneBackward0"):
        return None
    below = _factor_between(node.next_functions[0][0], end, far - 1)
    if below is None or kind == "CloneBackward0":
        return below
    other = node._saved_other
    if other is None or other.numel() != 1:
        return None
    return below / float(other) if kind == "DivBackward0" else below * float(other)


def _address_of_data(tensor: torch.Tensor) -> int:
    """Return where the values of a tensor begin; 0 for one that has none, or is not strided."""
    with torch._C.DisableTorchFunction():
        return 0 if tensor.layout is not torch.strided or not tensor.numel() else tensor.data_ptr()


def _of_reduction(given: Sequence[Any]) -> Mapping[str, Any]:
    """Return whether a collective adds up, and the ranks of its group if these are not all."""
    group = next((x for x in given if isinstance(x, dist.ProcessGroup)), None)
    op = next((x for x in given if isinstance(x, dist.ReduceOp | dist.ReduceOp.RedOpType)), dist.ReduceOp.SUM)
    ranks = () if group is None or group.size() == dist.get_world_size() else dist.get_process_group_ranks(group)
    return {"adds_up": op in TOTALS, "group": tuple(ranks)}
