"""One rank: the process at the other end of a pipe, which answers with its stack also while it computes.

It is forked or started by `notebook_ranks.rank_starter`.

The main thread computes. A second thread receives the parent's messages, so that a rank that waits in a collective can
still report its frames, and ends immediately when its parent is gone. A rank reads nothing but its inherited pipe.
"""

import inspect
import logging
import os
import queue
import resource
import signal
import sys
import threading
import time
import traceback
from collections.abc import Generator
from typing import Any

import cloudpickle

from notebook_ranks.events import listening
from notebook_ranks.failures import Report
from notebook_ranks.flight_recorder import Frame, read_recorder, send_before_abort
from notebook_ranks.output import Output
from notebook_ranks.own_modules import OwnModules
from notebook_ranks.pipe import RankEnd
from notebook_ranks.process_group import PoolGroup
from notebook_ranks.shared import malloc as _malloc
from notebook_ranks.shared.format import text_of

__all__ = ["error_report", "main", "main_thread_stack"]

MOST_FRAMES, MOST_CAUSES = 10_000, 10  # the most that a report contains
Jobs = queue.SimpleQueue[tuple[int, bytes | None]]  # the number of the call, and what to run
Reply = tuple[str, Any]  # kind, payload


def main(pipe: int) -> None:
    """Join the group that the notebook describes through `pipe`; then run its jobs until it sends None."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # only the notebook handles an interrupt of the notebook
    signal.pthread_sigmask(signal.SIG_SETMASK, ())
    _malloc.keep()  # before a step is timed
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))  # an abort in C++ leaves no core file in the learner's folder
    # torch.compile warns of a missing triton, which matters on GPUs alone; builds for CPUs lack it
    logging.getLogger("torch.utils.flop_counter").setLevel(logging.ERROR)
    link = _Link(pipe)
    settings = link.pipe.receive()
    link.rank = settings["rank"]
    sys.path[:] = settings.pop("path")
    jobs: Jobs = queue.SimpleQueue()
    threading.Thread(target=_receive, args=(link, jobs), name="receiver", daemon=True).start()
    link.send("joining")
    try:
        group = PoolGroup(**settings)
    except Exception as error:
        link.send("error", error_report(error))
        os._exit(1)
    output = Output(link.send, open(os.path.join(group.folder, f"rank-{group.rank}.txt"), "rb+"))
    os.register_at_fork(after_in_child=output.leave_to_child)
    modules, me = OwnModules(), os.getpid()
    send_before_abort(link.send_records)
    link.send("ready", me)
    while (job := jobs.get())[1] is not None:
        link.call, link.began_ns = job[0], time.time_ns()
        output.begin()
        modules.forget_changed()
        answer = _run(job[1], link, group)
        if os.getpid() != me:  # the function forked, and this is the child, which is not a rank
            os._exit(0)
        output.end()
        modules.note(link.began_ns)
        group.end()
        link.send(*answer)
    group.leave()
    os._exit(0)  # no interpreter shutdown: threads of torch may still run


class _Link:
    """The pipe to the parent, for all threads of a rank; `call` is the number that goes with each message."""

    def __init__(self, pipe: int) -> None:
        self.pipe, self.call, self.rank, self.began_ns = RankEnd(pipe), 0, 0, 0

    def send(self, kind: str, payload: object = None) -> None:
        self.pipe.send((self.call, kind, payload))

    def send_records(self) -> None:
        """Send what the flight recorder has kept of this call."""
        self.send("records", read_recorder(self.began_ns))


def _receive(link: _Link, jobs: Jobs) -> None:
    """Pass jobs to the main thread, and answer requests for its frames; exit when the notebook is gone."""
    try:
        while True:
            kind, call, payload = link.pipe.receive()
            if kind == "frames":
                link.send("frames", _main_thread_frames())
            elif kind == "records":
                link.send_records()
            else:
                jobs.put((call, payload))
    except (EOFError, OSError):
        os._exit(1)


def _main_thread_frames() -> list[Frame]:
    """Return the main thread's frames within a call, outermost first; [] between calls."""
    stack, ours = main_thread_stack(), (_run.__code__.co_filename, "_run")
    begin = next((i for i, (file, _, name) in enumerate(stack) if (file, name) == ours), len(stack))
    return stack[begin:]


def main_thread_stack() -> list[Frame]:
    """Return the frames of this process's main thread, outermost first; any thread may ask."""
    frame, stack = sys._current_frames().get(threading.main_thread().ident or 0), list[Frame]()
    while frame is not None:
        stack.append((frame.f_code.co_filename, frame.f_lineno or 0, frame.f_code.co_name))
        frame = frame.f_back
    return stack[::-1]


def _run(job: bytes, link: _Link, group: PoolGroup) -> Reply:
    """Run a job; return ("result", its pickled result) or ("error", the report)."""
    try:
        group.begin(link.call)
        fn, args = cloudpickle.loads(job)
        with listening(lambda event, **facts: _forward_event(link, event, facts)):
            result = fn(*args)
            if inspect.isgenerator(result):
                result = _stream(result, link)
        return "result", cloudpickle.dumps(result)
    except BaseException as error:
        return "error", error_report(error)


def _forward_event(link: _Link, event: str, facts: dict[str, Any]) -> None:
    """Send the events of rank 0 to the notebook, for its panel. A "run" stays here: its copy would not change.

    An event that was emitted with `each_rank=True` is sent by every rank, with its `rank`.
    """
    if facts.pop("each_rank", False):
        facts["rank"] = link.rank
    elif link.rank != 0 or event == "run":
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
    """Return an error as plain data: the name of its type, its message, its frames, and the same of its causes.

    "causes" begins with the nearest; its "direct" says whether it is a `__cause__` or a `__context__`. Nothing of the
    error itself reaches the notebook, and what its class does when it is asked for a text cannot spoil the report.
    """
    report, seen = _one_report(error), {id(error)}
    causes: list[Report] = []
    while len(causes) < MOST_CAUSES:
        direct = error.__cause__ is not None
        above = error.__cause__ if direct or error.__suppress_context__ else error.__context__
        if above is None or id(above) in seen:
            break
        seen.add(id(above))
        causes.append({**_one_report(above), "direct": direct})
        error = above
    return {**report, "causes": causes}


def _one_report(error: BaseException) -> Report:
    message = "\n".join([text_of(error), *map(text_of, getattr(error, "__notes__", ()))])
    frames = [(f.filename, f.lineno or 0, f.name) for f in traceback.extract_tb(error.__traceback__)]
    return {"type": text_of(type(error).__name__), "message": message, "frames": frames[-MOST_FRAMES:]}


if __name__ == "__main__":
    main(int(sys.argv[1]))
