"""DataParallel for any devices, in the four verbs of torch.nn.parallel: scatter, replicate, parallel_apply, gather.

They are `_scatter`, `_replica`, `_apply` and `_gather` here. On CPU cores each replica has a graph of its own
(`replica_graphs`), so that the backward pass runs on all cores. `data_parallel_rare_cases` is for few networks.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn

from d2lite.devices import check_devices
from d2lite.replica_threads import one_intra_op_thread, parallel_apply
from d2lite.training.data_parallel_rare_cases import check_can_replicate, check_module, in_replica_of, keep_attributes
from d2lite.training.pytree import map_tensors, tensors_in
from d2lite.training.replica_graphs import apply_in_own_graphs, leaf_of
from d2lite.training.scatter import gather

__all__ = ["DataParallel", "wrap"]

Call = tuple[tuple[Any, ...], dict[str, Any]]  # the arguments of one call, by place and by name


def wrap(module: nn.Module, devices: Sequence[torch.device]) -> nn.Module:
    """Wrap `module` for `devices`: in nn.DataParallel on two or more distinct GPUs, else in d2lite.DataParallel.

    `module` takes and returns tensors [b, ...]; it is moved to devices[0].

    Example:
        >>> from d2lite import try_gpus
        >>> net = wrap(nn.Linear(3, 2), try_gpus(2))
        >>> net(torch.zeros(5, 3)).shape
        torch.Size([5, 2])
    """
    check_module(module)
    check_devices(devices)
    devices = [torch.device(d) for d in devices]
    distinct = len(set(devices)) == len(devices)
    if len(devices) > 1 and distinct and all(d.type == "cuda" for d in devices):
        return nn.DataParallel(module.to(devices[0]), device_ids=devices)
    return DataParallel(module, devices)


class DataParallel(nn.Module):
    """Run `module` on one slice of the minibatch per device; also on CPU cores, where nn.DataParallel cannot.

    `devices` has one device per replica. `module` takes and returns tensors [b, ...], alone or in tuples, lists, dicts
    and dataclasses; it is moved to the first device. As in nn.DataParallel, its parameters live there. Each forward
    pass copies them to the other devices, and each backward pass sums their gradients on the first, through autograd:
    hooks on parameters run once, with the sum. A minibatch with fewer examples than devices uses fewer devices.

    It differs from the module alone in these points:

    - Batch normalisation uses the statistics of each shard, and keeps the running ones of the first. Whatever else
      mixes examples sees one shard only.
    - Dropout draws from one generator, in the order in which the threads reach it: masks differ from run to run.
      `torch.utils.checkpoint` with dropout inside the module gives wrong gradients, since it restores this generator
      while other replicas draw from it. Around DataParallel it is right, and saves no memory.
    - Hooks on modules run once per replica, with its shard.
    - After a forward pass the module holds what replica 0 wrote; what the other replicas wrote is lost. Lists and other
      objects that a forward pass changes are shared by all replicas.
    - Tensors are split along their first dimension. Other arguments, such as lists of numbers, go to each replica.

    What would be silently wrong is an error that says what to do: outputs without one row per example, layers that a
    forward pass makes, a loss of a tensor that was not returned, and more.

    Example:
        >>> from d2lite import try_gpus
        >>> linear = nn.Linear(3, 2)
        >>> X = torch.rand(5, 3)
        >>> torch.allclose(DataParallel(linear, try_gpus(2))(X).cpu(), linear.cpu()(X))
        True
    """

    def __init__(self, module: nn.Module, devices: Sequence[torch.device]) -> None:
        super().__init__()
        check_module(module)
        check_devices(devices)
        self.devices = [torch.device(d) for d in devices]
        self.module = module.to(self.devices[0])

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        devices = self.devices[: max(1, _num_examples((args, kwargs)) or 0)]
        with one_intra_op_thread(devices):
            shards = _scatter((args, kwargs), devices)
            if len(devices) == 1 and devices[0].type != "cpu":  # nothing to replicate, and no threads
                return _gather([_call_module(self.module, *shards[0])], shards)
            replicas = self._replicate(devices)
            outputs = _apply(replicas, shards, devices)
            keep_attributes(self.module, replicas[0].new)
            return _gather(outputs, shards)

    def replicate(self) -> list[nn.Module]:
        """Return one module per device with the current values."""
        return [replica.module for replica in self._replicate(self.devices)]

    def _replicate(self, devices: Sequence[torch.device]) -> list["_Replica"]:
        check_can_replicate(self.module)
        own_graph = _have_own_graphs(devices)
        return [_replica(self.module, device, copies=i > 0, own_graph=own_graph) for i, device in enumerate(devices)]


@dataclass
class _Replica:
    """A copy of a module for one forward pass: a module of its own, with tensors on its own device."""

    module: nn.Module
    params: Sequence[tuple[torch.Tensor, torch.Tensor]]  # pairs (copy, its original) of those that require a gradient
    new: dict[int, Any]  # id of an original module, parameter or buffer -> what the replica has in its place


def _scatter(call: Call, devices: Sequence[torch.device]) -> list[Call]:
    """Return the arguments of each device's call: its slices of the tensors, and everything else as it is."""

    def slice_of(tensor: torch.Tensor, i: int) -> torch.Tensor:
        return (tensor.tensor_split(len(devices))[i] if tensor.dim() else tensor).to(devices[i])

    return [map_tensors(lambda tensor, i=i: slice_of(tensor, i), call) for i in range(len(devices))]


def _replica(module: nn.Module, device: torch.device, copies: bool, own_graph: bool) -> _Replica:
    """Return a replica of `module` on `device`, as the module is at this moment.

    With `copies`, parameters and buffers have memory of their own; otherwise they share the module's. With `own_graph`
    they are the leaves of a graph of their own; otherwise autograd connects them with the module's.
    """

    def copy_of(tensor: torch.Tensor) -> torch.Tensor:
        source = tensor.detach() if own_graph else tensor
        copy = source.to(device, copy=True) if copies else source
        return leaf_of(tensor, copy) if own_graph else copy

    originals = [*module.parameters(), *module.buffers()]
    new: dict[int, Any] = {id(tensor): copy_of(tensor) for tensor in originals}
    modules = list(module.modules())
    new |= {id(m): object.__new__(type(m)) for m in modules}
    for original in modules:
        vars(new[id(original)]).update(in_replica_of(original, new))
    return _Replica(new[id(module)], [(new[id(t)], t) for t in originals if t.requires_grad], new)


def _apply(replicas: Sequence[_Replica], shards: Sequence[Call], devices: Sequence[torch.device]) -> list[Any]:
    """Return each replica's output for its shard, connected by autograd with the parameters and the shards."""
    modules = [replica.module for replica in replicas]
    if _have_own_graphs(devices):
        return apply_in_own_graphs(_call_module, modules, [replica.params for replica in replicas], shards, devices)
    return parallel_apply(_call_module, devices, modules, *zip(*shards, strict=True))


def _gather(outputs: list[Any], shards: list[Call]) -> Any:
    """Return the outputs of all replicas as one: a row for each example of the shards."""
    lengths = [_num_examples(shard) for shard in shards]

    def join(*parts: torch.Tensor) -> torch.Tensor:
        if lengths == [None]:  # the module takes no tensors
            return parts[0]
        if [len(part) if part.dim() else None for part in parts] != lengths:
            raise ValueError(
                f"module: expected outputs [b, ...] for shards of {lengths} examples, got shapes "
                f"{[tuple(part.shape) for part in parts]}. Return one row per example, and reduce over the examples "
                "after DataParallel."
            )
        return gather(parts)

    return map_tensors(join, *outputs)


def _num_examples(call: Call) -> int | None:
    """Return the length of all tensors of the arguments, None if there are none; tensors [] do not count."""
    lengths = {len(tensor) for tensor in tensors_in(*call) if tensor.dim()}
    if len(lengths) > 1:
        raise ValueError(
            f"arguments: expected tensors [b, ...] with one b, got {sorted(lengths)} examples. Put the examples first "
            "(a recurrent state as [b, layers, h]); what all replicas use belongs to the module (register_buffer)."
        )
    return lengths.pop() if lengths else None


def _have_own_graphs(devices: Sequence[torch.device]) -> bool:
    """Return whether the replicas get graphs of their own, each with a thread for its backward pass."""
    return torch.is_grad_enabled() and all(device.type == "cpu" for device in devices)


def _call_module(net: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    return net(*args, **kwargs)
