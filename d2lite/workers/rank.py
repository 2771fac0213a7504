"""One rank: the process at the other end of a pipe of `Workers`, forked or started by `d2lite.workers.agent`.

The main thread computes; a second one listens to the parent, so that a rank that waits in a collective can still say
where it is, and ends at once when its parent is gone. Nothing is read but what comes through the inherited pipe.
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
from multiprocessing.connection import Connection

import cloudpickle
import torch
import torch.distributed as dist

from d2lite.events import listening
from d2lite.workers.batch_mode import use_batch_mode

__all__ = ["main"]


def main(pipe):
    """Join the group that the notebook describes through `pipe`, then run what it sends until it says to end."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the notebook's interrupt is the notebook's to handle
    signal.pthread_sigmask(signal.SIG_SETMASK, ())
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))  # an abort in C++ leaves no memory image in the learner's folder
    link = _Link(Connection(pipe))
    settings = link.connection.recv()
    sys.path[:] = settings["path"]
    jobs = queue.SimpleQueue()
    threading.Thread(target=_listen, args=(link, jobs), name="listener", daemon=True).start()
    try:
        _join(settings)
    except Exception as error:
        link.send("error", report(error))
        os._exit(1)
    link.send("ready")
    while (job := jobs.get()) is not None:
        _run(job, link)
    dist.destroy_process_group()
    os._exit(0)  # no interpreter shutdown: threads of torch may still be there


class _Link:
    """The pipe to the parent, for both threads of a rank."""

    def __init__(self, connection):
        self.connection, self.lock = connection, threading.Lock()

    def send(self, kind, payload=None):
        with self.lock:
            self.connection.send((kind, payload))


class _Printer(io.TextIOBase):
    """What the rank prints goes to the cell that called, line by line."""

    def __init__(self, link):
        self.link, self.rest = link, ""

    def write(self, text):
        lines = (self.rest + text).split("\n")
        self.rest = lines.pop()
        for line in lines:
            self.link.send("print", line)
        return len(text)

    def end(self):
        if self.rest:
            self.write("\n")


def _join(settings):
    torch.set_num_threads(1)  # one core a rank
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


def _listen(link, jobs):
    """Hand jobs to the main thread and answer "where are you"; leave when the notebook is gone."""
    try:
        while True:
            kind, payload = link.connection.recv()
            if kind == "where":
                link.send("here", _where())
            else:
                jobs.put(payload)
    except (EOFError, OSError):
        os._exit(1)


def _where():
    """Return the main thread's frames within a call as (file, line, function), outermost first; [] between calls."""
    stack = traceback.extract_stack(sys._current_frames()[threading.main_thread().ident])
    ours = (_run.__code__.co_filename, "_run")
    begin = next((i for i, f in enumerate(stack) if (f.filename, f.name) == ours), len(stack))
    return _plain(stack[begin:])


def _run(job, link):
    printer = _Printer(link)
    try:
        with contextlib.redirect_stdout(printer), contextlib.redirect_stderr(printer):
            fn, args = cloudpickle.loads(job)
            with listening(lambda event, **facts: _tell_parent(link, event, facts)):
                result = fn(*args)
                if inspect.isgenerator(result):
                    result = _stream(result, link)
            printer.end()
            link.send("result", cloudpickle.dumps(result))
    except BaseException as error:
        printer.end()
        link.send("error", report(error))


def _tell_parent(link, event, facts):
    """Pass on what rank 0 tells, so that a panel hears it; a Run would be a copy that stands still.

    A point told with `each_rank=True` is passed on from every rank, as a curve of its own.
    """
    if facts.pop("each_rank", False):
        facts["rank"] = dist.get_rank()
    elif dist.get_rank() != 0 or event == "run":
        return
    link.send("event", (event, facts))


def _stream(records, link):
    """Send what a generator yields; return what it returns."""
    while True:
        try:
            link.send("record", cloudpickle.dumps(next(records)))
        except StopIteration as end:
            return end.value


def report(error):
    """Return an error as plain data: its type's name, its text, its frames as (file, line, function)."""
    frames = _plain(traceback.extract_tb(error.__traceback__))
    return {"type": type(error).__name__, "message": str(error), "frames": frames}


def _plain(frames):
    return [(f.filename, f.lineno, f.name) for f in frames]


if __name__ == "__main__":
    main(int(sys.argv[1]))
