"""Process groups of pretend GPUs: "nccl" refuses what NCCL refuses, and sends by gloo.

Watchers of collectives such as `notebook_ranks.flight_recorder` only look on. Here a call is refused before anything
is sent, so that it must be replaced.
"""

import contextlib
import functools
import inspect
import os
import socket
from collections.abc import Iterator, Sequence
from typing import Any

import torch
import torch.distributed as dist
from torch import nn

from ddp_rehearsal.pretend_gpus.by_gloo import for_gloo
from ddp_rehearsal.pretend_gpus.devices import CPU, as_device, gpu_of_machine, replace
from ddp_rehearsal.pretend_gpus.nccl import ON_CPU, SPARSE, check_for_nccl, reduced_whole_numbers, reduces_whole_numbers
from ddp_rehearsal.pretend_gpus.nccl_group import PretendNCCLGroup, pretend_blocking_wait, pretend_profiles
from ddp_rehearsal.pretend_gpus.storages import device_of, each_tensor, place
from ddp_rehearsal.pretend_gpus.tensors import following

__all__ = ["pretend_collectives"]

CHECKED = (
    "all_reduce broadcast reduce all_gather all_gather_into_tensor reduce_scatter reduce_scatter_tensor gather scatter "
    "all_to_all all_to_all_single send recv isend irecv "
    "all_gather_single reduce_scatter_single gather_into_tensor gather_single"
).split()
NCCL, CUDA = (2, 28, 9), "13.0"  # versions that are pretended: those of the record of a real GPU
MONITORED = "monitored_barrier is only implemented for GLOO backend."
DUPLICATE = "Duplicate GPU detected: rank {} and rank {} both on CUDA device {}."
_backends: dict[Any, str] = {}  # process group, or None for the default one -> the backend that it was asked for
_managers: list[Any] = []  # the open blocks of coalescing managers
_own_gpus: set[int] = set()  # those that no other rank of this machine uses


def _backend(group: Any) -> str:
    return _backends.get(group, _backends.get(None, "gloo"))


def _sent_by_nccl(devices: Sequence[torch.device], group: Any) -> bool:
    """Return whether NCCL sends: for one GPU among the devices. Raise RuntimeError if another rank uses that GPU."""
    gpus = {device.index for device in devices if device.type == "cuda"}
    if _backend(group) == "nccl" and devices and not gpus:
        raise RuntimeError(ON_CPU)
    if not _backend(group).endswith("nccl"):
        return False
    for gpu in gpus - _own_gpus:
        _claim(gpu)
    return bool(gpus)


def _claim(gpu: int) -> None:
    """Write into the group's store which rank of this machine uses a GPU; the first to do so has it."""
    own, gpu = gpu, gpu_of_machine(gpu)
    rank, machine = dist.get_rank(), f"{socket.gethostname()}/{os.environ.get('GROUP_RANK', '')}"
    store = dist.distributed_c10d._get_default_store()
    first = int(store.compare_set(f"pretend_gpus/{machine}/{gpu}", "", str(rank)))
    if first != rank:
        raise RuntimeError(DUPLICATE.format(first, rank, gpu))
    _own_gpus.add(own)


def _checked_for_nccl(function: Any) -> Any:
    signature = inspect.signature(function)

    @functools.wraps(function)
    def wrapper(*args: Any, **kwargs: Any) -> Any:
        try:
            given = signature.bind(*args, **kwargs).arguments
        except TypeError:  # Python says what is wrong with the call
            return function(*args, **kwargs)
        group = given.get("group")
        n_ranks = dist.get_world_size(group) if dist.is_initialized() else -1  # -1: this rank is not in the group
        by_nccl = _sent_by_nccl([device_of(t) for t in each_tensor([given])], group) and n_ranks > 0
        with torch._C.DisableTorchFunction():  # for gloo they are CPU tensors
            if by_nccl:
                check_for_nccl(function.__name__, given, n_ranks)
                if reduces_whole_numbers(given):
                    return reduced_whole_numbers(function, given, n_ranks)
                return _coalesced(for_gloo(function, given))
            return function(*args, **kwargs)

    return wrapper


def _coalesced(work: Any) -> Any:
    """Return what a collective returned; the block of the coalescing manager that it is in, if any, waits for it."""
    if _managers and isinstance(work, dist.Work):
        _managers[-1].append(work)
    return work


def _without_own(ops: Sequence[Any]) -> list[Any]:
    """Do what a rank sends to itself, to which gloo has no connection, and return the other operations."""
    if any(not isinstance(op, dist.P2POp) for op in ops):  # PyTorch refuses them
        return list(ops)
    own = [op for op in ops if "nccl" in _backend(op.group) and op.peer == dist.get_rank()]
    sent, received = ([op.tensor for op in own if op.op is kind] for kind in (dist.isend, dist.irecv))
    for here, there in zip(sent, received, strict=False):
        there.copy_(here)
    return [op for op in ops if op not in own]


def pretend_collectives() -> None:
    """Let torch.distributed have "nccl", and DistributedDataParallel use it."""
    c10d: Any = dist.distributed_c10d
    init, get_backend, new_group, barrier = c10d.init_process_group, c10d.get_backend, c10d.new_group, c10d.barrier
    monitored_barrier, batch, coalescing = c10d.monitored_barrier, c10d.batch_isend_irecv, c10d._coalescing_manager

    @functools.wraps(init)
    def init_process_group(backend: Any = None, *args: Any, device_id: Any = None, **kwargs: Any) -> None:
        name = str(backend or "cpu:gloo,cuda:nccl")
        if device_id is not None:
            as_device(device_id)  # gloo refuses it, NCCL takes it if it is there
        init("gloo" if "nccl" in name else backend, *args, **kwargs)
        _own_gpus.clear()
        _backends[None] = name

    @functools.wraps(new_group)
    def group_of(ranks: Any = None, timeout: Any = None, backend: Any = None, *args: Any, **kwargs: Any) -> Any:
        kwargs.pop("device_id", None)
        group = new_group(ranks, timeout, "gloo" if backend and "nccl" in str(backend) else backend, *args, **kwargs)
        _backends[group] = str(backend) if backend else _backend(None)
        return group

    @functools.wraps(get_backend)
    def backend_of(group: Any = None) -> str:
        sends = get_backend(group)  # raises ValueError for a group of other ranks
        return _backend(group) if "nccl" in _backend(group) else sends

    @functools.wraps(barrier)
    def barrier_of(group: Any = None, async_op: bool = False, device_ids: Any = None, **kwargs: Any) -> Any:
        group = group or c10d._get_default_group()
        if "nccl" not in _backend(group) or c10d._rank_not_in_group(group):
            return barrier(group, async_op, device_ids, **kwargs)
        options = c10d.BarrierOptions()
        options.asyncOp, options.device = async_op, CPU  # NCCL takes the number of a GPU, gloo does not
        work = group.barrier(opts=options)
        if async_op:
            return work
        work.wait()
        return None

    @functools.wraps(c10d.monitored_barrier)
    def monitored_barrier_of(group: Any = None, *args: Any, **kwargs: Any) -> None:
        if _backend(group) == "nccl":
            raise ValueError(MONITORED)
        monitored_barrier(group, *args, **kwargs)

    @functools.wraps(batch)
    def batch_isend_irecv(ops: Any) -> Any:
        others = _without_own(ops)
        return batch(others) if others or not ops else []

    @contextlib.contextmanager
    def coalescing_manager(group: Any = None, device: Any = None, async_ops: bool = False) -> Iterator[Any]:
        is_nccl = "nccl" in _backend(group)
        with coalescing(group, None if is_nccl else device, async_ops) as manager:  # gloo has none for a device
            _managers.extend([manager] if is_nccl else [])
            try:
                yield manager
            finally:
                del _managers[len(_managers) - is_nccl :]
        if is_nccl and not async_ops:
            manager.wait()

    functions: dict[str, Any] = {
        "init_process_group": init_process_group,
        "new_group": group_of,
        "get_backend": backend_of,
        "barrier": barrier_of,
        "monitored_barrier": monitored_barrier_of,
        "is_nccl_available": lambda: True,
        "batch_isend_irecv": batch_isend_irecv,
        "_coalescing_manager": coalescing_manager,
    }
    collectives = {name: _checked_for_nccl(getattr(dist, name)) for name in CHECKED if hasattr(dist, name)}
    replace({**functions, **collectives}, dist)
    # a mesh makes groups with functions that it has imported
    replace({"init_process_group": init_process_group, "new_group": group_of}, c10d, dist.device_mesh)
    replace({name: collectives[name] for name in ("isend", "irecv")}, c10d)  # P2POp compares its function with these
    replace({"ProcessGroupNCCL": PretendNCCLGroup}, dist, c10d)
    pretend_blocking_wait(lambda: any("nccl" in name for name in _backends.values()))
    pretend_profiles(lambda: set(_backends.values()) == {"nccl"})
    replace({"version": lambda: NCCL}, torch.cuda.nccl)  # communication hooks ask for it
    torch.version.cuda = torch.version.cuda or CUDA
    types: Any = dist.ProcessGroup._device_types
    only_gpus = property(lambda group: [torch.device("cuda")] if _backend(group) == "nccl" else types.fget(group))
    replace({"_device_types": only_gpus}, dist.ProcessGroup)  # where objects and optimizer states are sent from
    _pretend_ddp()


def _pretend_ddp() -> None:
    """DDP that refuses what collectives refuse, and whose hooks see gradients on the device of its parameters."""
    ddp: Any = nn.parallel.DistributedDataParallel
    make, register = ddp.__init__, ddp.register_comm_hook
    signature = inspect.signature(make)

    @functools.wraps(make)
    def make_checked(*args: Any, **kwargs: Any) -> None:
        given = signature.bind(*args, **kwargs).arguments
        module, group = given["module"], given.get("process_group")
        devices = [device_of(param) for param in module.parameters()]
        kinds = {device.type for device in devices}
        names_gpu = given.get("device_ids") or given.get("output_device")
        if len(kinds) == 1 and not (kinds == {"cpu"} and names_gpu):  # else DDP refuses the network itself
            _sent_by_nccl(devices, group)
            sent = module.buffers() if given.get("broadcast_buffers", True) else ()
            if _backend(group) == "nccl" and any(device_of(buffer).type == "cpu" for buffer in sent):
                raise RuntimeError(ON_CPU)
        make(*args, **kwargs)
        if _backend(group).endswith("nccl"):
            for part in module.modules():
                if getattr(part, "sparse", False) is True and isinstance(part, nn.Embedding | nn.EmbeddingBag):
                    part.weight.register_post_accumulate_grad_hook(_refuse_sparse)

    def register_comm_hook(self: Any, state: Any, hook: Any) -> None:
        if not callable(hook):  # PyTorch refuses it
            register(self, state, hook)
        device = next(self.parameters()).device

        def placed(state: Any, bucket: Any) -> Any:
            with following():
                return hook(state, Bucket(bucket, device))

        register(self, state, functools.wraps(hook)(placed))

    ddp.__init__, ddp.register_comm_hook = make_checked, register_comm_hook


def _refuse_sparse(param: torch.Tensor) -> None:
    raise RuntimeError(SPARSE)


class Bucket:
    """DDP's bucket of gradients, whose tensors pretend to be on `device`."""

    def __init__(self, bucket: Any, device: torch.device) -> None:
        self.bucket, self.device = bucket, device

    def buffer(self) -> torch.Tensor:
        """Return all gradients as one tensor."""
        return place(self.bucket.buffer(), self.device)

    def gradients(self) -> list[torch.Tensor]:
        """Return the gradients."""
        return [place(grad, self.device) for grad in self.bucket.gradients()]

    def parameters(self) -> list[torch.Tensor]:
        """Return the parameters."""
        return [place(param, self.device) for param in self.bucket.parameters()]

    def __getattr__(self, name: str) -> Any:
        return getattr(self.bucket, name)
