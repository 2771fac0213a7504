"""DataParallel for any devices, in the four verbs of torch.nn.parallel: scatter, replicate, parallel_apply, gather."""

from collections.abc import Sequence
from contextlib import nullcontext
from typing import Any

import torch
from torch import nn
from torch.nn.parameter import is_lazy
from torch.nn.utils import parametrize

from d2lite.parallel import check_devices, in_replica, one_intra_op_thread, parallel_apply
from d2lite.training.data_parallel_rare_cases import Replica, keep_attributes, make_replica
from d2lite.training.pytree import map_tensors, tensors_in
from d2lite.training.replica_graphs import Graph, as_leaf, isolate, leaves_of, no_saved_tensors_hooks
from d2lite.training.scatter import gather

__all__ = ["DataParallel", "wrap"]

Call = tuple[tuple[Any, ...], dict[str, Any]]  # the arguments of one call, by place and by name


def wrap(module: nn.Module, devices: Sequence[torch.device]) -> nn.Module:
    """Wrap `module` for `devices`: in nn.DataParallel on two or more distinct GPUs, else in d2lite.DataParallel.

    Args:
        module: takes and returns tensors [b, ...]; it is moved to devices[0].
        devices: one device per replica.

    Raises:
        ValueError: if there are no devices.
        TypeError: if `module` is not an nn.Module, or `devices` is a single device.

    Example:
        >>> from d2lite import try_gpus
        >>> net = wrap(nn.Linear(3, 2), try_gpus(2))
        >>> net(torch.zeros(5, 3)).shape
        torch.Size([5, 2])
    """
    _check_module(module)
    check_devices(devices)
    devices = [torch.device(d) for d in devices]
    distinct = len(set(devices)) == len(devices)
    if len(devices) > 1 and distinct and all(d.type == "cuda" for d in devices):
        return nn.DataParallel(module.to(devices[0]), device_ids=devices)
    return DataParallel(module, devices)


class DataParallel(nn.Module):
    """Run `module` on one slice of the minibatch per device; also on CPU cores, where nn.DataParallel cannot.

    As in nn.DataParallel, the parameters live on the first device, are copied to the others at every forward pass,
    and their gradients are summed on the first device. The replicas are made from the module as it is at that moment.
    Gradients reach the parameters through autograd: hooks on parameters run once, with the sum. A minibatch with fewer
    examples than devices uses fewer devices.

    It differs from the module alone in these points:

    - What mixes examples sees one shard only. Batch normalisation uses the statistics of each shard, and keeps the
      running ones of the first.
    - Dropout draws from one generator, in the order in which the threads reach it. The masks differ from run to run.
      `torch.utils.checkpoint` with dropout inside the module restores this generator while other replicas draw from
      it, and gives wrong gradients; around DataParallel it is right, and saves no memory.
    - Hooks on modules run once per replica, with its shard.
    - What a forward pass sets on its modules, or writes into buffers and parameters, is that of the first replica.
      Lists and other objects that it changes are shared by all replicas.
    - Tensors are split along their first dimension. Other arguments, such as lists of numbers, go to each replica.

    Args:
        module: takes and returns tensors [b, ...], alone or in tuples, lists, dicts and dataclasses; it is moved to
            devices[0].
        devices: one device per replica.

    Raises:
        ValueError: if there are no devices; in a forward pass, if tensors differ in the number of examples, or if the
            module does not return one row per example.
        TypeError: if `module` is not an nn.Module, or is compiled by TorchScript, or `devices` is a single device.
        RuntimeError: in a forward pass, if a replica fails or makes layers or parameters, if a layer is still lazy, or
            inside `parametrize.cached()`; in a backward pass, if a loss depends on a tensor that left a replica in
            another way than as an output.

    Example:
        >>> from d2lite import try_gpus
        >>> linear = nn.Linear(3, 2)
        >>> X = torch.rand(5, 3)
        >>> torch.allclose(DataParallel(linear, try_gpus(2))(X).cpu(), linear.cpu()(X))
        True
    """

    def __init__(self, module: nn.Module, devices: Sequence[torch.device]) -> None:
        super().__init__()
        _check_module(module)
        if any(isinstance(m, torch.jit.ScriptModule) for m in module.modules()):
            raise TypeError("module: expected a module in Python, got one of TorchScript. Wrap it before scripting.")
        check_devices(devices)
        self.devices = [torch.device(d) for d in devices]
        self.module = module.to(self.devices[0])

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        devices = self.devices[: max(1, _num_examples((args, kwargs)) or 0)]
        with one_intra_op_thread(devices):
            shards = _scatter((args, kwargs), devices)
            if len(devices) == 1 and devices[0].type != "cpu":  # nothing to replicate, and no threads
                return _gather([_call(self.module, *shards[0])], shards)
            replicas = self._replicate(devices)
            outputs = _apply_replicas(replicas, shards, devices)
            keep_attributes(self.module, replicas[0])
            return _gather(outputs, shards)

    def replicate(self) -> list[nn.Module]:
        """Return one module per device with the current values."""
        return [replica.module for replica in self._replicate(self.devices)]

    def _replicate(self, devices: Sequence[torch.device]) -> list[Replica]:
        if parametrize._cache_enabled:  # its cache is kept by module, and replicas are new modules in every pass
            raise RuntimeError("DataParallel: expected no parametrize.cached() around it, got one. Leave it out.")
        if any(map(is_lazy, [*self.module.parameters(), *self.module.buffers()])):
            raise RuntimeError(
                "module: expected initialised layers, got lazy ones. Call the module once, before it is wrapped."
            )
        isolated = _isolates(devices)
        return [make_replica(self.module, device, copies=i > 0, isolated=isolated) for i, device in enumerate(devices)]


def _check_module(module: Any) -> None:
    """Raise TypeError unless `module` is an nn.Module."""
    if not isinstance(module, nn.Module):
        raise TypeError(f"module: expected an nn.Module, got {type(module).__name__}.")


def _num_examples(call: Call) -> int | None:
    """Return the length of all tensors of the arguments, None if there are none; tensors [] do not count."""
    lengths = {len(tensor) for tensor in tensors_in(*call) if tensor.dim()}
    if len(lengths) > 1:
        raise ValueError(
            f"arguments: expected tensors [b, ...] with one b, got {sorted(lengths)} examples. Put the examples first "
            "(a recurrent state as [b, layers, h]); what all replicas use belongs to the module (register_buffer)."
        )
    return lengths.pop() if lengths else None


def _scatter(call: Call, devices: Sequence[torch.device]) -> list[Call]:
    """Return the arguments of each device's call: its slices of the tensors, and everything else as it is."""

    def slice_of(tensor: torch.Tensor, i: int) -> torch.Tensor:
        return (tensor.tensor_split(len(devices))[i] if tensor.dim() else tensor).to(devices[i])

    return [map_tensors(lambda tensor, i=i: slice_of(tensor, i), call) for i in range(len(devices))]


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


def _apply_replicas(replicas: list[Replica], shards: list[Call], devices: Sequence[torch.device]) -> list[Any]:
    """Return each replica's output for its shard, connected by autograd with the parameters and the shards."""
    modules = [replica.module for replica in replicas]
    if _is_transformed():  # torch.func follows what happens in this thread only
        return [_call(module, *shard) for module, shard in zip(modules, shards, strict=True)]
    if not _isolates(devices):
        return parallel_apply(_call, devices, modules, *zip(*shards, strict=True))
    inner_shards = [map_tensors(as_leaf, shard) for shard in shards]
    with no_saved_tensors_hooks() if in_replica() else nullcontext():  # other threads have none of the caller's hooks
        calls = [map_tensors(_writable, shard) for shard in inner_shards]
        outputs = parallel_apply(_call, devices, modules, *zip(*calls, strict=True))
    graphs = []
    for replica, shard, inner_shard, output in zip(replicas, shards, inner_shards, outputs, strict=True):
        inputs = {id(inner): (inner, outer) for outer, inner in replica.params}
        pairs = zip(tensors_in(*inner_shard), tensors_in(*shard), strict=True)
        inputs |= {id(inner): (inner, outer) for inner, outer in pairs if inner.requires_grad}
        ends = [tensor for tensor in tensors_in(output) if tensor.requires_grad]
        others = [tensor for tensor in leaves_of(ends) if id(tensor) not in inputs]
        if any(tensor._backward_hooks for tensor in others):  # torch has no public question for it
            raise RuntimeError(
                "module: expected parameters with hooks to be used through the module itself, got one that is reached "
                "past it (a function that holds the module, or a tensor that is not registered). The hook would run "
                "once per replica. Use `self` in `forward`, or register the parameter."
            )
        graphs.append(Graph(ends, [*inputs.values(), *((tensor, tensor) for tensor in others)]))
    joined = iter(isolate(graphs, devices))
    return [map_tensors(lambda tensor: next(joined) if tensor.requires_grad else tensor, output) for output in outputs]


def _isolates(devices: Sequence[torch.device]) -> bool:
    """Return whether the replicas get graphs of their own, each with a thread for its backward pass."""
    return torch.is_grad_enabled() and not _is_transformed() and all(device.type == "cpu" for device in devices)


def _is_transformed() -> bool:
    """Return whether a transformation of torch.func is active; torch has no public function for that."""
    return torch._C._are_functorch_transforms_active()


def _writable(tensor: torch.Tensor) -> torch.Tensor:
    return tensor.clone() if tensor.requires_grad else tensor  # a layer may write into its input, but not into a leaf


def _call(net: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    return net(*args, **kwargs)
