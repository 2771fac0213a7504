"""One rank: the process at the other end of a pipe of `Workers`, forked or started by `d2lite.workers.agent`.

The main thread computes. A second thread receives the parent's messages, so that a rank that waits in a collective can
still report its frames, and ends immediately when its parent is gone. A rank reads nothing but its inherited pipe.
"""

import contextlib
import datetime
import inspect
import io
import os
import queue
import resource
import signal
import sys
import threading
import traceback
from collections.abc import Generator, Iterable
from multiprocessing.connection import Connection
from typing import Any

import cloudpickle
import torch
import torch.distributed as dist

from d2lite.events import listening
from d2lite.workers.batch_mode import use_batch_mode
from d2lite.workers.failures import Frame, Report

__all__ = ["main"]

Jobs = queue.SimpleQueue[bytes | None]


def main(pipe: int) -> None:
    """Join the group that the notebook describes through `pipe`; then run its jobs until it sends None."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # only the notebook handles an interrupt of the notebook
    signal.pthread_sigmask(signal.SIG_SETMASK, ())
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))  # an abort in C++ leaves no core file in the learner's folder
    link = _Link(Connection(pipe))
    settings = link.connection.recv()
    sys.path[:] = settings["path"]
    jobs: Jobs = queue.SimpleQueue()
    threading.Thread(target=_receive, args=(link, jobs), name="receiver", daemon=True).start()
    try:
        _join_group(settings)
    except Exception as error:
        link.send("error", error_report(error))
        os._exit(1)
    link.send("ready")
    while (job := jobs.get()) is not None:
        _run(job, link)
    dist.destroy_process_group()
    os._exit(0)  # no interpreter shutdown: threads of torch may still run


class _Link:
    """The pipe to the parent, for both threads of a rank."""

    def __init__(self, connection: Connection) -> None:
        self.connection, self.lock = connection, threading.Lock()

    def send(self, kind: str, payload: Any = None) -> None:
        with self.lock:
            self.connection.send((kind, payload))


class _Printer(io.TextIOBase):
    """A stream that sends what the rank prints to the calling cell, line by line."""

    def __init__(self, link: _Link) -> None:
        self.link, self.rest = link, ""

    def write(self, text: str) -> int:
        lines = (self.rest + text).split("\n")
        self.rest = lines.pop()
        for line in lines:
            self.link.send("print", line)
        return len(text)

    def end(self) -> None:
        if self.rest:
            self.write("\n")


def _join_group(settings: dict[str, Any]) -> None:
    torch.set_num_threads(1)  # one core per rank
    device_id = None
    if settings["backend"] == "nccl":
        device_id = torch.device("cuda", settings["rank"])
        torch.cuda.set_device(device_id)
    else:
        use_batch_mode()
    dist.init_process_group(
        settings["backend"],
        init_method=f"file://{settings['folder']}/store",
        rank=settings["rank"],
        world_size=settings["world_size"],
        timeout=datetime.timedelta(seconds=settings["timeout_s"]),
        device_id=device_id,
    )


def _receive(link: _Link, jobs: Jobs) -> None:
    """Pass jobs to the main thread, and answer requests for its frames; exit when the notebook is gone."""
    try:
        while True:
            kind, payload = link.connection.recv()
            if kind == "frames":
                link.send("frames", _main_thread_frames())
            else:
                jobs.put(payload)
    except (EOFError, OSError):
        os._exit(1)


def _main_thread_frames() -> list[Frame]:
    """Return the main thread's frames within a call, outermost first; [] between calls."""
    stack = traceback.extract_stack(sys._current_frames()[threading.main_thread().ident or 0])
    ours = (_run.__code__.co_filename, "_run")
    begin = next((i for i, f in enumerate(stack) if (f.filename, f.name) == ours), len(stack))
    return _as_tuples(stack[begin:])


def _run(job: bytes, link: _Link) -> None:
    printer = _Printer(link)
    try:
        with contextlib.redirect_stdout(printer), contextlib.redirect_stderr(printer):
            fn, args = cloudpickle.loads(job)
            with listening(lambda event, **facts: _forward_event(link, event, facts)):
                result = fn(*args)
                if inspect.isgenerator(result):
                    result = _stream(result, link)
            printer.end()
            link.send("result", cloudpickle.dumps(result))
    except BaseException as error:
        printer.end()
        link.send("error", error_report(error))


def _forward_event(link: _Link, event: str, facts: dict[str, Any]) -> None:
    """Send the events of rank 0 to the notebook, for its panel. A "run" stays here: its copy would not change.

    An event that was emitted with `each_rank=True` is sent by every rank, with its `rank`.
    """
    if facts.pop("each_rank", False):
        facts["rank"] = dist.get_rank()
    elif dist.get_rank() != 0 or event == "run":
        return
    link.send("event", (event, facts))


def _stream(items: Generator[Any, Any, Any], link: _Link) -> Any:
    """Send what a generator yields; return what it returns."""
    while True:
        try:
            link.send("item", cloudpickle.dumps(next(items)))
        except StopIteration as end:
            return end.value


def error_report(error: BaseException) -> Report:
    """Return an error as plain data: the name of its type, its message, its frames."""
    frames = _as_tuples(traceback.extract_tb(error.__traceback__))
    return {"type": type(error).__name__, "message": str(error), "frames": frames}


def _as_tuples(frames: Iterable[traceback.FrameSummary]) -> list[Frame]:
    return [(f.filename, f.lineno or 0, f.name) for f in frames]


if __name__ == "__main__":
    main(int(sys.argv[1]))
