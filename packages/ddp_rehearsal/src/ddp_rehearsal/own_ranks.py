"""Ranks that a script starts itself: by `torch.multiprocessing.spawn`, by `Process`, by a launcher in a notebook.

A rehearsal first runs a script on k ranks, as torchrun does. A script that starts its ranks itself, and a script that
is one process with several GPUs (`nn.DataParallel`), is then run again, as one process that sees all GPUs. Each process
that it starts becomes a rank when it joins a process group.
"""

import functools
import inspect
import io
import json
import multiprocessing
import os
import pickle
import subprocess
import sys
from collections.abc import Callable
from multiprocessing.process import BaseProcess
from multiprocessing.reduction import ForkingPickler
from typing import Any

import torch
import torch.distributed as dist
import torch.multiprocessing as mp
from torch import nn

from ddp_rehearsal.observations import MAIN, OF_RANKS, ONE_PROCESS, OTHER, OWN_RANKS, rank_name
from ddp_rehearsal.pretend_gpus.devices import forget_use
from ddp_rehearsal.pretend_gpus.storages import gpus_in_use
from ddp_rehearsal.pretend_gpus.switch import path_at_start
from ddp_rehearsal.rank_process import RankProcess
from ddp_rehearsal.wrapped import wrap
from notebook_ranks.rank_seed import seed_rank
from notebook_ranks.shared.own_code import is_own_code

__all__ = ["follow_own_ranks", "look_for_own_ranks"]

_REQUEST = "DDP_REHEARSAL_REQUEST"  # a variable for programs that the script starts
OF_PYTHON = (".py", "torchrun", "torch.distributed.run", "torch.distributed.launch")  # ends of what starts ranks
OF_SPAWN = sys.modules["torch.multiprocessing.spawn"]  # `torch.multiprocessing.spawn` is its function


def look_for_own_ranks(process: RankProcess) -> None:
    """Begin again, as one process, if the script of this rank of torchrun starts ranks itself or uses several GPUs."""
    of_torchrun_was_read = _note_reading()

    def is_alone() -> bool:
        return not of_torchrun_was_read() and not dist.is_initialized()

    def spawn(*args: Any, **kwargs: Any) -> None:
        process.begin_again(OWN_RANKS)

    def start(begin: Callable[..., None], self: BaseProcess) -> None:
        target = inspect.unwrap(getattr(self, "_target", None) or (lambda: None))
        if is_alone() and is_own_code(getattr(getattr(target, "__code__", None), "co_filename", "<>")):
            process.begin_again(OWN_RANKS)
        begin(self)

    def run_program(begin: Callable[..., None], self: Any, args: Any, *rest: Any, **kwargs: Any) -> None:
        words = [args] if isinstance(args, str) else [os.fspath(word) for word in args]
        if is_alone() and any(isinstance(word, str) and word.endswith(OF_PYTHON) for word in words):
            process.begin_again(OWN_RANKS)
        begin(self, args, *rest, **kwargs)

    def backward(run: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        if is_alone() and len(gpus_in_use()) > 1:
            process.begin_again(ONE_PROCESS)
        return run(*args, **kwargs)

    def make(init: Callable[..., None], self: nn.Module, *args: Any, **kwargs: Any) -> None:
        init(self, *args, **kwargs)
        if is_alone() and len(getattr(self, "device_ids", ())) > 1:
            process.begin_again(ONE_PROCESS)

    for module in (mp, OF_SPAWN):
        vars(module).update(spawn=spawn, start_processes=spawn)
    wrap(BaseProcess, "start", start)
    wrap(subprocess.Popen, "__init__", run_program)
    wrap(torch.autograd, "backward", backward)
    wrap(nn.DataParallel, "__init__", make)


def _note_reading() -> Callable[[], bool]:
    """Return a function that says whether a variable of torchrun was read since, but for copies of all variables."""
    kind: Any = type(os.environ)
    get = kind.__getitem__
    were_read = False
    place, names = None, set[str]()  # where the last names were read; a copy reads others at the same place

    def get_noted(self: Any, name: str) -> str:
        nonlocal were_read, place, names
        frame = sys._getframe(1)
        if place != (here := (id(frame), frame.f_lasti)):
            were_read, place, names = of_torchrun_was_read(), here, set()
        names.add(name)
        value: str = get(self, name)
        return value

    def of_torchrun_was_read() -> bool:
        return were_read or (bool(names) and names <= set(OF_RANKS))

    kind.__getitem__ = get_noted
    return of_torchrun_was_read


def follow_own_ranks(process: RankProcess) -> None:
    """Let each process that the script starts become a rank as soon as it joins a process group."""
    if hasattr(os, "register_at_fork"):
        os.register_at_fork(after_in_child=lambda: _forked(process))
    wrap(dist, "init_process_group", functools.partial(_join, process), dist.distributed_c10d)
    wrap(BaseProcess, "run", functools.partial(_run, process))
    os.environ[_REQUEST] = json.dumps(process.request)  # for programs that the script starts
    _see_errors_of_spawn(process)
    if process.request["pretend"]:
        _fork_in_place_of_spawn()
    else:
        os.environ.update(path_at_start())  # a new process is observed from its import of torch on


def _forked(process: RankProcess) -> None:
    """A fork of the main process has no name yet; a fork of a rank, such as a loader's worker, is not observed."""
    if process.name in ("", MAIN):
        process.name = ""
        process.observer.forked()


def _join(process: RankProcess, join: Callable[..., None], *args: Any, **kwargs: Any) -> None:
    if process.name == "" and process.observer.pid == os.getpid():
        rank, world_size = kwargs.get("rank", -1), kwargs.get("world_size", -1)
        rank = int(os.environ.get("RANK", -1)) if rank < 0 else rank
        world_size = int(os.environ.get("WORLD_SIZE", -1)) if world_size < 0 else world_size
        if rank >= 0 and world_size > 0:
            _become(process, rank, world_size)
    join(*args, **kwargs)
    if process.name in ("", MAIN) and process.observer.pid == os.getpid():
        _become(process, dist.get_rank(), dist.get_world_size())


def _become(process: RankProcess, rank: int, world_size: int) -> None:
    name = rank_name(rank)
    if (process.folder / f"{name}.jsonl").exists():  # another group of the script has this rank already
        process.become(f"{OTHER}{os.getpid()}")
        return
    (process.folder / "world").write_text(str(world_size), encoding="utf-8")
    process.become(name)


def _run(process: RankProcess, run: Callable[..., None], self: BaseProcess) -> None:
    if getattr(self, "is_in_place_of_new", False):
        forget_use()
        seed, number = process.request["seed"], int((getattr(self, "_identity", ()) or (1,))[-1])
        seed_rank(None if seed is None else seed + number - 1)
    _run_as_rank(process, lambda: run(self))


def _run_as_rank(process: RankProcess, run: Callable[[], None]) -> None:
    """Run what a process of the script runs: one that has become a rank never returns, and any error is told."""
    if process.observer.pid != os.getpid():  # it belongs to a rank
        run()
        return
    try:
        run()
    except BaseException as error:
        if process.name == "" and not (isinstance(error, SystemExit) and not error.code):
            process.become(f"{OTHER}{os.getpid()}")
        if process.name:
            process.end(error)
        raise
    if process.name:
        process.end()


def _see_errors_of_spawn(process: RankProcess) -> None:
    """Note the error of a rank of `mp.spawn`, which keeps it from `Process.run`."""
    wrap = OF_SPAWN._wrap

    @functools.wraps(wrap)  # its name, by which it is pickled
    def wrap_rank(fn: Callable[..., Any], i: int, args: Any, error_file: str) -> None:
        wrap(lambda *given: _run_as_rank(process, lambda: fn(*given)), i, args, error_file)

    vars(OF_SPAWN)["_wrap"] = wrap_rank


def _fork_in_place_of_spawn() -> None:
    """Start forks in place of new processes, which would import PyTorch again: there is no CUDA that forbids it."""

    def fork(started: BaseProcess) -> Any:
        from multiprocessing import popen_fork  # Windows has none

        given: Any = started
        target = None if given._target is OF_SPAWN._wrap else given._target
        _Nowhere().dump((target, given._args, given._kwargs))
        given.is_in_place_of_new = True
        return popen_fork.Popen(started)

    for kind in ("SpawnProcess", "ForkServerProcess"):
        if hasattr(multiprocessing.context, kind):
            getattr(multiprocessing.context, kind)._Popen = staticmethod(fork)


class _Nowhere(ForkingPickler):
    """Refuses what a new process cannot get, with Python's own error; nothing is kept."""

    def __init__(self) -> None:
        super().__init__(io.BytesIO(), pickle.HIGHEST_PROTOCOL)

    def reducer_override(self, value: object) -> Any:
        """Leave out tensors, which would be copied, and what only a process that is being started can get."""
        is_left_out = isinstance(value, torch.Tensor) or type(value).__module__.startswith("multiprocessing.")
        return (int, ()) if is_left_out else NotImplemented
