"""Replicas side by side: one thread per CPU core, or the GPUs' own queues."""

import contextvars
import threading
from collections import deque
from contextlib import contextmanager

import torch

from d2lite.devices import num_cores

__all__ = ["check_devices", "one_intra_op_thread", "parallel_apply"]


def check_devices(devices):
    """Raise ValueError where `devices` is empty, TypeError where it is not a list."""
    if isinstance(devices, (str, torch.device, int)):
        raise TypeError(f"devices: expected a list of devices, got {devices!r}. Try try_gpus(2).")
    if len(devices) == 0:
        raise ValueError("devices: expected at least one device, got none. Try try_gpus(1).")


def parallel_apply(fn, inputs, devices):
    """Return [fn(*inputs[i]) for each replica i], computed side by side.

    On the CPU each core has a thread with one intra-op thread, so that one core stands for one GPU; more replicas than
    cores take turns, so a replica must not wait for another. Grad mode and autocast are the caller's, and the
    caller's thread count comes back afterwards. On GPUs
    the calls are made in turn and return before the GPU has computed. All replicas are waited for; then
    the first one that failed raises RuntimeError with its number and device, the original as its cause.
    """
    check_devices(devices)
    if len(inputs) != len(devices):
        raise ValueError(f"inputs: expected {len(devices)} (one a device), got {len(inputs)}.")
    results, errors = [None] * len(devices), [None] * len(devices)

    def replica(i):
        try:
            results[i] = fn(*inputs[i])
        except Exception as error:
            errors[i] = error

    if all(torch.device(device).type == "cpu" for device in devices):
        _run_in_threads(replica, len(devices))
    else:
        for i in range(len(devices)):
            replica(i)
    for i, error in enumerate(errors):
        if error is not None:
            raise RuntimeError(f"replica {i} on {devices[i]} failed: {type(error).__name__}: {error}") from error
    return results


def _run_in_threads(replica, k):
    """Run replica(0) ... replica(k - 1) in one thread a core, and wait for all, even when interrupted."""
    inherit = _grad_and_autocast()
    num_threads = torch.get_num_threads()
    num_workers = min(k, num_cores())
    waiting = deque(range(k))
    ended = [threading.Event() for _ in range(num_workers)]

    def core(j):
        try:
            torch.set_num_threads(1)
            while True:
                try:
                    i = waiting.popleft()
                except IndexError:
                    return
                with inherit():
                    contextvars.copy_context().run(replica, i)
        finally:
            ended[j].set()

    threads = [
        threading.Thread(target=contextvars.copy_context().run, args=(core, j), name=f"replicas-on-core-{j}")
        for j in range(num_workers)
    ]
    started = []
    try:
        for thread, event in zip(threads, ended, strict=True):
            thread.start()
            started.append((thread, event))
        for event in ended:
            event.wait()
    finally:
        waiting.clear()  # after an interrupt no further replica starts, and one that runs ends with its step
        for thread, event in started:
            event.wait()  # a join that is interrupted may take a running thread for an ended one
            thread.join()
        torch.set_num_threads(num_threads)


@contextmanager
def one_intra_op_thread(devices):
    """On the CPU keep the caller to one intra-op thread inside the block, as its replicas are; on GPUs do nothing.

    The threads of an intra-op pool go on spinning for milliseconds after each operation, on cores that replicas need.
    """
    num_threads = torch.get_num_threads()
    if all(torch.device(device).type == "cpu" for device in devices):
        torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(num_threads)


def _grad_and_autocast():
    """Return a maker of contexts that set the caller's grad mode and CPU autocast in another thread."""
    grad = torch.is_grad_enabled()
    inference = torch.is_inference_mode_enabled()
    autocast, dtype = torch.is_autocast_enabled("cpu"), torch.get_autocast_dtype("cpu")

    @contextmanager
    def inherit():
        with (
            torch.inference_mode(inference),
            torch.set_grad_enabled(grad),
            torch.autocast("cpu", dtype=dtype, enabled=autocast),
        ):
            yield

    return inherit
