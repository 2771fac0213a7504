"""The process group of a pool, seen from a rank, and the environment variables that torchrun would set there.

Each call begins in this group, whatever the call before did to it. The pool chooses the backend: NCCL where each rank
has a GPU of its own, else gloo.
"""

import datetime
import functools
import inspect
import os
import socket
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist

from notebook_ranks.batch_mode import use_batch_mode

__all__ = ["PoolGroup", "free_port", "torchrun_variables"]

ADDRESS = "127.0.0.1"


class PoolGroup:
    """The group of `world_size` ranks that find each other in the pool's folder, and the variables of rank `rank`.

    The variables are those that torchrun sets, so that libraries which read them find the group. MASTER_PORT is a free
    port of rank 0. Nothing listens there until a program makes a group or a store of its own with it.
    """

    def __init__(self, rank: int, world_size: int, backend: str, timeout_s: float, folder: str) -> None:
        self.rank, self.world_size, self.backend = rank, world_size, backend
        self.timeout, self.folder = datetime.timedelta(seconds=timeout_s), Path(folder)
        self.call = 0  # the number of the last call
        self.group: dist.ProcessGroup | None = None
        self.environment: dict[str, str] = {}
        torch.set_num_threads(1)  # one thread per rank
        if backend == "nccl":
            torch.cuda.set_device(rank)
        else:
            use_batch_mode()
        self._join()
        self._accept_a_second_init()
        self._bound_other_groups()

    def begin(self, call: int) -> None:
        """Begin a call: join a new group if a rank left the group in the last call; set the variables again."""
        if self._left().exists():
            self.leave()
            self.call = call
            self._join()
        self.call = call
        os.environ.update(self.environment)

    def end(self) -> None:
        """End a call: note whether this rank has left the group.

        A file in the pool's folder is the note. No call begins before the last one has ended on all ranks, so that all
        ranks find the same notes.
        """
        if not self._stands():
            self._left().touch()

    def _join(self) -> None:
        store = dist.FileStore(str(self.folder / f"store-{self.call}"), self.world_size)
        store.set_timeout(self.timeout)
        if self.rank == 0:
            store.set("notebook_ranks/port", str(free_port()))
        self.environment = torchrun_variables(self.rank, self.world_size, store.get("notebook_ranks/port").decode())
        os.environ.update(self.environment)
        dist.init_process_group(
            "cpu:gloo,cuda:nccl" if self.backend == "nccl" else self.backend,  # tensors on the CPU can be sent too
            store=store,
            rank=self.rank,
            world_size=self.world_size,
            timeout=self.timeout,
            device_id=torch.device("cuda", self.rank) if self.backend == "nccl" else None,
        )
        self.group = dist.group.WORLD

    def leave(self) -> None:
        """Leave the group."""
        if dist.is_initialized():
            dist.destroy_process_group()
        self.group = None

    def _left(self) -> Path:
        return self.folder / f"left-{self.call}"

    def _stands(self) -> bool:
        return dist.is_initialized() and dist.group.WORLD is self.group

    def _accept_a_second_init(self) -> None:
        """While the pool's group stands, `init_process_group` with arguments that agree with it does nothing.

        torch refuses every second call. Scripts for torchrun begin with one, which is right there.
        """
        init = dist.init_process_group

        @functools.wraps(init)
        def init_process_group(*args: Any, **more: Any) -> None:
            if self._stands():
                self._check(inspect.signature(init).bind(*args, **more).arguments)
            else:
                self._bounded(init, *args, **more)

        for module in (dist, dist.distributed_c10d):
            vars(module)["init_process_group"] = init_process_group

    def _bounded(self, make: Callable[..., Any], *args: Any, **more: Any) -> Any:
        """Make a group whose collectives end after the pool's time-out, unless the call says when."""
        given = inspect.signature(make).bind(*args, **more).arguments
        return make(**given if given.get("timeout") else {**given, "timeout": self.timeout})

    def _bound_other_groups(self) -> None:
        """Let groups that a function makes wait as long as the pool's, and not for PyTorch's 30 minutes."""
        make = dist.new_group

        @functools.wraps(make)
        def new_group(*args: Any, **more: Any) -> Any:
            return self._bounded(make, *args, **more)

        for module in (dist, dist.distributed_c10d, dist.device_mesh):  # the last one has imported it by name
            vars(module)["new_group"] = new_group

    def _check(self, given: dict[str, Any]) -> None:
        """Raise ValueError if arguments of `init_process_group` ask for a different group."""
        device = "cuda" if self.backend == "nccl" else "cpu"
        backends = str(given.get("backend") or self.backend).lower().split(",")
        agrees = {
            "backend": bool({self.backend, f"{device}:{self.backend}"} & set(backends)),
            "rank": given.get("rank", -1) in (-1, self.rank),
            "world_size": given.get("world_size", -1) in (-1, self.world_size),
        }
        for name in agrees:
            if not agrees[name]:
                raise ValueError(
                    f"init_process_group: expected {name} {getattr(self, name)}, got {given[name]}. Each rank of a "
                    f"pool is in its group already: leave out {name}, or the whole call."
                )


def free_port() -> int:
    """Return a TCP port of loopback that nobody uses now."""
    with socket.socket() as probe:
        probe.bind((ADDRESS, 0))
        return int(probe.getsockname()[1])


def torchrun_variables(rank: int, world_size: int, port: str) -> dict[str, str]:
    """Return what torchrun sets for one host without restarts, except for its own store."""
    ranks = {name: str(rank) for name in ("RANK", "LOCAL_RANK", "ROLE_RANK")}
    sizes = {name: str(world_size) for name in ("WORLD_SIZE", "LOCAL_WORLD_SIZE", "ROLE_WORLD_SIZE")}
    host = {"GROUP_RANK": "0", "GROUP_WORLD_SIZE": "1", "ROLE_NAME": "default"}
    restarts = {"TORCHELASTIC_RESTART_COUNT": "0", "TORCHELASTIC_MAX_RESTARTS": "0", "TORCHELASTIC_RUN_ID": "none"}
    return {**ranks, **sizes, **host, **restarts, "MASTER_ADDR": ADDRESS, "MASTER_PORT": port}
