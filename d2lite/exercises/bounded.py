"""An answer that runs in processes of bounded time, memory and output, which have ended afterwards."""

import contextlib
import io
import os
import sys
from collections.abc import Callable, Generator
from pathlib import Path
from typing import Any, TextIO

import torch.distributed as dist

from d2lite.devices import num_gpus
from d2lite.exercises import specifications
from d2lite.exercises.exercise import Question, WrongSpecification
from d2lite.exercises.judge import NO_PROCESS
from d2lite.exercises.learner_pool import REASON_CHARS, quiet_pool, why_it_ended
from d2lite.exercises.learner_time_limit import TookTooLong, time_limit
from d2lite.exercises.run_cases import CaseResult, run_cases
from notebook_ranks import WorkersError

__all__ = ["run_bounded"]

MEMORY_BYTES = 2 * 2**30  # that an answer may add to its process; LeNet takes some megabytes
FILE_BYTES = 2**27  # of a file that it may write
OUTPUT_LINES, OUTPUT_CHARS = 20, 4_000  # of what it prints


def run_bounded(exercise: Question, answer: Callable[..., Any]) -> tuple[list[tuple[int, CaseResult]], str]:
    """Return the results of all ranks as (rank, result), and why some are missing or ""; the processes have ended."""
    if os.name == "nt" and exercise.world_size == 1:  # no pools: without a bound, and in this process
        return [(0, result) for result in run_cases(exercise, answer)], ""
    seen: list[tuple[int, CaseResult]] = []
    with quiet_pool(exercise.world_size) as workers, _few_lines(exercise.world_size):
        workers.run(specifications.search, list(specifications.__path__))
        workers.run(_imported, exercise)  # the start is not part of the limit
        try:
            with time_limit(exercise.limit_s, workers):
                for rank, result in workers.stream(_with_limits, exercise, answer):
                    if isinstance(result, WrongSpecification):
                        raise result
                    seen.append((rank, result))
        except TookTooLong as error:
            return seen, f"{error}."
        except WorkersError as error:
            return seen, why_it_ended(error)
        except TypeError as error:  # it cannot be pickled
            return seen, f"{NO_PROCESS}: {str(error)[:REASON_CHARS]}"
    return seen, ""


def _imported(exercise: Question) -> None:
    """Run in a rank: import what the exercise needs, by receiving it."""


def _with_limits(
    exercise: Question, answer: Callable[..., Any]
) -> Generator[CaseResult | WrongSpecification, None, None]:
    """Run in a rank: yield the results under limits of the operating system, and at the end a wrong specification."""
    import resource

    with contextlib.suppress(OSError, ValueError):
        resource.setrlimit(resource.RLIMIT_FSIZE, (FILE_BYTES, FILE_BYTES))
        if not num_gpus():  # drivers reserve more than they use
            most = _data_bytes() + MEMORY_BYTES
            resource.setrlimit(resource.RLIMIT_DATA, (most, most))
    try:
        yield from run_cases(exercise, answer, dist.get_rank())
    except WrongSpecification as error:
        yield error


def _data_bytes() -> int:
    """Return what Linux counts against RLIMIT_DATA; raise OSError elsewhere."""
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith("VmData:"):
            return 1024 * int(line.split()[1])
    raise OSError("no VmData")


@contextlib.contextmanager
def _few_lines(world_size: int) -> Generator[None, None, None]:
    """Show at most some lines of what is printed inside the block."""
    few = _FewLines(sys.stdout, "[rank 0] " if world_size == 1 else "")
    try:
        with contextlib.redirect_stdout(few):
            yield
    finally:
        few.end()


class _FewLines(io.TextIOBase):
    """A stream that passes the first lines to another one, without a prefix."""

    def __init__(self, to: TextIO, prefix: str) -> None:
        self._to, self._prefix = to, prefix
        self._lines, self._chars, self._is_cut = OUTPUT_LINES, OUTPUT_CHARS, False

    def write(self, text: str) -> int:
        text = text.removeprefix(self._prefix)
        passed = text[: self._chars] if self._lines > 0 else ""
        if passed:
            self._to.write(passed)
            self._lines -= passed.count("\n") + passed.count("\r")
            self._chars -= len(passed)
        self._is_cut = self._is_cut or len(passed) < len(text)
        return len(text)

    def flush(self) -> None:
        self._to.flush()

    def end(self) -> None:
        """Say that something was left out."""
        if self._is_cut:
            self._to.write("\n... (the rest of what it prints is left out)\n")
