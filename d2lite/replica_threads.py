"""Replicas side by side: on CPU cores in one thread per core, on GPUs as asynchronous kernels."""

import contextvars
import functools
import os
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import FIRST_EXCEPTION, Future, ThreadPoolExecutor, wait
from contextlib import AbstractContextManager, contextmanager
from typing import Any

import torch

from d2lite.devices import check_devices, num_cores
from notebook_ranks.shared import malloc as _malloc
from notebook_ranks.shared.format import text_of

__all__ = ["in_replica", "one_intra_op_thread", "parallel_apply"]

_START_S = 10  # seconds for a thread to start; it takes microseconds
_thread = threading.local()  # `is_worker` is set in the threads of `_cores`


def in_replica() -> bool:
    """Return whether the caller runs in the thread of a CPU core: in a replica of `parallel_apply`."""
    return getattr(_thread, "is_worker", False)


def parallel_apply(fn: Callable[..., Any], devices: Sequence[torch.device | str], *columns: Iterable[Any]) -> list[Any]:
    """Return [fn(a[i], b[i], ...) for each replica i] for the `columns` a, b, ..., computed side by side.

    On the CPU each core has a thread with one intra-op thread, so that one core stands for one GPU. With more replicas
    than cores, some start when others have ended: a replica must not wait for another. Grad mode, autocast and context
    variables are the caller's, and the caller's number of intra-op threads is the same afterwards. On GPUs the calls
    are made one after the other in the caller's thread, and return before the GPU has computed.

    Args:
        fn: the function of one replica.
        devices: one device per replica.
        columns: for each argument of `fn` a list with one entry per replica.

    If replicas fail, a RuntimeError names the first one and its device, after all have ended; the original error is its
    cause. A KeyboardInterrupt, Stopped or other BaseException is raised as it was.

    Example:
        >>> from d2lite import try_gpus
        >>> parallel_apply(lambda a, b: a + b, try_gpus(2), [1, 2], [30, 40])
        [31, 42]
    """
    check_devices(devices)
    arguments = _rows(columns, len(devices))
    results: list[Any] = [None] * len(devices)
    errors: list[Exception | None] = [None] * len(devices)

    def replica(i: int) -> None:
        try:
            results[i] = fn(*arguments[i])
        except Exception as error:
            errors[i] = error

    on_cpu = all(torch.device(device).type == "cpu" for device in devices)
    if on_cpu and not in_replica():  # a nested call's replicas run one after the other, in the thread that calls
        _run_on_cores(replica, len(devices))
    else:
        for i in range(len(devices)):
            replica(i)
    for i, error in enumerate(errors):
        if error is not None:
            what = f"{type(error).__name__}: {text_of(error)}"
            raise RuntimeError(f"replica {i} on {devices[i]} failed: {what}") from error
    return results


def _rows(columns: Sequence[Iterable[Any]], k: int) -> list[tuple[Any, ...]]:
    """Return the arguments of each of `k` replicas: entry i of each column for replica i."""
    for column in columns:
        if not isinstance(column, Iterable):
            raise TypeError(
                f"parallel_apply: expected lists after `devices`, one per argument of the function, got {column!r:.80} "
                f"({type(column).__name__}). Pass a list with one entry per device, or use a lambda."
            )
    entries = [list(column) for column in columns]
    if any(len(column) != k for column in entries):
        raise ValueError(
            f"parallel_apply: expected {k} entries in each list after `devices`, one per device, got lists of lengths "
            f"{[len(column) for column in entries]}."
        )
    return list(zip(*entries, strict=True)) if entries else [()] * k


def _run_on_cores(replica: Callable[[int], None], k: int) -> None:
    """Run replica(0) ... replica(k - 1) in the threads of the cores, and wait for all, even when interrupted.

    After an interrupt, or if a replica raises (Stopped, not an Exception), replicas that have not started never do.
    """
    num_threads, modes = torch.get_num_threads(), _grad_and_autocast()
    cores = _cores(num_cores())

    futures: list[Future[None]] = []
    gate = threading.Lock()  # no replica starts before all are submitted: an interrupt would lose sight of it

    def run(i: int) -> None:
        with gate:
            if not futures:  # interrupted while submitting
                return
        if torch.get_num_threads() > 1:  # an earlier replica changed the setting
            torch.set_num_threads(1)
        with modes():
            replica(i)

    try:
        with gate:
            futures = [cores.submit(contextvars.copy_context().run, run, i) for i in range(k)]
        wait(futures, return_when=FIRST_EXCEPTION)
    finally:
        for future in futures:
            future.cancel()
        try:
            wait(futures)
        finally:
            torch.set_num_threads(num_threads)  # threads that start from now on have as many as the caller
    for future in futures:
        if not future.cancelled():
            future.result()


@functools.cache
def _cores(n: int) -> ThreadPoolExecutor:
    """Return the threads that stand for `n` cores, each with one intra-op thread; they are made once."""
    _malloc.keep()  # keep freed memory in the process, before a step is timed: malloc.py says why
    num_threads, barrier = torch.get_num_threads(), threading.Barrier(n)
    cores = ThreadPoolExecutor(n, "d2lite-core", _init_worker, (barrier,))
    try:
        for future in [cores.submit(int) for _ in range(n)]:
            future.result()  # raises if a thread did not start in time: then nothing is kept
        return cores
    finally:
        torch.set_num_threads(num_threads)


def _init_worker(barrier: threading.Barrier) -> None:
    _thread.is_worker = True
    torch.set_num_threads(1)
    barrier.wait(_START_S)  # the setting is also the default of new threads: all set it before the caller restores it


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_cores.cache_clear)  # threads do not survive a fork


@contextmanager
def one_intra_op_thread(devices: Sequence[torch.device | str]) -> Iterator[None]:
    """On the CPU keep the caller to one intra-op thread inside the block, as its replicas are; on GPUs do nothing.

    The threads of an intra-op pool go on spinning for milliseconds after each operation, on cores that replicas need.
    """
    num_threads = torch.get_num_threads()
    if num_threads == 1 or any(torch.device(device).type != "cpu" for device in devices):
        yield
        return
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(num_threads)


def _grad_and_autocast() -> Callable[[], AbstractContextManager[None]]:
    """Return a maker of contexts that set the caller's grad mode and CPU autocast in a different thread."""
    grad = torch.is_grad_enabled()
    inference = torch.is_inference_mode_enabled()
    autocast, dtype = torch.is_autocast_enabled("cpu"), torch.get_autocast_dtype("cpu")

    @contextmanager
    def modes() -> Iterator[None]:
        with (
            torch.inference_mode(inference),
            torch.set_grad_enabled(grad),
            torch.autocast("cpu", dtype=dtype, enabled=autocast),
        ):
            yield

    return modes
