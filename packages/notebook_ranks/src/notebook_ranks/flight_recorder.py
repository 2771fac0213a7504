"""The flight recorder of PyTorch: the last collectives of each rank, with the source lines that called them.

A process keeps its last 2000 collectives, those of gloo included (torch 2.15), and a rank of a pool its last 256;
`TORCH_FR_BUFFER_SIZE` sets a different number. PyTorch gives them to its own process as a pickle. Each rank reads its
own, and sends plain lists and dicts; nothing that comes from elsewhere is unpickled.

Other watchers of collectives stand between a caller and torch.distributed. This one reads what PyTorch has kept by
itself, so that it also tells of a rank that hangs or was aborted, whatever code it runs.
"""

import contextlib
import ctypes
import functools
import os
import pickle
import signal
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from notebook_ranks.shared.notebook import ipython_shell
from notebook_ranks.shared.own_code import is_own_code

__all__ = [
    "Collective",
    "FlightRecord",
    "Frame",
    "file_label",
    "flight_record",
    "read_recorder",
    "send_before_abort",
    "waits_in",
]

DEPTH = 12  # callers of a collective that are kept
ABORT_S = 2  # bounds what a process does between SIGABRT and its end
SIZE_VARIABLES = ("TORCH_FR_BUFFER_SIZE", "TORCH_NCCL_TRACE_BUFFER_SIZE")  # the new name comes first, as in PyTorch
OFF = "the recorder is off: start Python with TORCH_FR_BUFFER_SIZE above 0"
C10D = "distributed_c10d.py"  # the file of torch.distributed that holds the collectives
_TORCH = os.path.join(os.path.dirname(torch.__file__), "")
_DTYPES = {
    "Float": "float32", "Double": "float64", "Half": "float16", "BFloat16": "bfloat16", "Int": "int32", "Long": "int64",
    "Short": "int16", "Byte": "uint8", "Char": "int8", "Bool": "bool",
}  # fmt: skip
Frame = tuple[str, int, str]  # file, line, function


@dataclass(frozen=True)
class Collective:
    """One collective that a rank has called: what it is, and where it was called.

    `number` counts the collectives of the group since the group was made, from 1. `sizes` are the shapes of the tensors
    that must agree on all ranks. `at_s` is the time of the call, in seconds of the machine's clock. `path` is where the
    callers of the call are, (file, line) of each, innermost first: two calls of one helper differ there.
    """

    name: str
    sizes: tuple[tuple[int, ...], ...]
    dtype: str
    group: str
    number: int
    file: str
    line: int
    function: str
    at_s: float = 0.0
    path: tuple[tuple[str, int], ...] = ()

    @property
    def place(self) -> tuple[tuple[str, int], ...]:
        """Where the call is, its callers included."""
        return self.path or ((self.file, self.line),)

    def __str__(self) -> str:
        shapes = ", ".join(str(list(size)) for size in self.sizes)
        return " ".join(filter(None, [f"{self.name} no. {self.number}", shapes and f"of {shapes}", self.dtype]))

    def agrees(self, other: "Collective") -> bool:
        """Return whether both ranks called the same collective, with tensors of the same shapes and type."""
        return (self.name, self.sizes, self.dtype) == (other.name, other.sizes, other.dtype)


@dataclass(frozen=True)
class FlightRecord:
    """What is known of one rank: its last collectives, in order, and where it is now.

    `groups` is {name of a group: its ranks}. `state` is that of the pool's report: "running", "done", "error", "died"
    or "silent", and `exitcode` is that of a process that has ended, None where it is not known. `frames` is the rank's
    stack, outermost first, of (file, line, function). `missing` says why a rank gave no collectives, and `error` is the
    message of the error that it raised.
    """

    rank: int
    collectives: tuple[Collective, ...] = ()
    groups: Mapping[str, tuple[int, ...]] | None = None
    state: str = "running"
    frames: tuple[Frame, ...] = ()
    missing: str = ""
    exitcode: int | None = None
    error: str = ""

    @property
    def waits_in(self) -> str:
        """The function of torch.distributed that the rank is in; "" if it is in none."""
        return waits_in(self.frames)

    def __str__(self) -> str:
        head = f"rank {self.rank} ({self.state})"
        if self.missing:
            return f"{head}: no record, {self.missing}"
        lines = [f"  {c}, group {c.group}, line {c.line} in {c.function}" for c in self.collectives]
        return "\n".join([f"{head}: {len(lines)} collectives", *lines])


def read_recorder(since_ns: int = 0) -> dict[str, Any]:
    """Return this process's recorder as plain data: {"collectives": [...], "groups": {...}} or {"missing": why}.

    This is the one place that calls PyTorch's private functions. Collectives that were called before `since_ns`, in
    nanoseconds of the machine's clock, are left out, and so are sends from one rank to another. A PyTorch without
    the recorder, and one that gives something else, is "missing" with a message.
    """
    try:
        dumps = _dumps()
        entries = [entry for dump in dumps for entry in dump["entries"]]
        entries = [e for e in entries if not e["is_p2p"] and e["time_created_ns"] >= since_ns]
        found = [_facts_of(entry) for entry in sorted(entries, key=lambda e: int(e["time_created_ns"]))]
        groups = _groups()
        is_off = _is_off(dumps)
    except Exception as error:  # whatever a private function does, the rank goes on
        why = f"this PyTorch ({torch.__version__}) has no flight recorder that this kit can read"
        return {"missing": f"{why}: {type(error).__name__}: {error}"}
    return {"missing": OFF} if is_off else {"collectives": found, "groups": groups}


def _is_off(dumps: Sequence[Mapping[str, Any]]) -> bool:
    """Return whether the recorders keep nothing: PyTorch's variables say so, or a group of gloo is not listed.

    Without the variables it depends on PyTorch's version. A recorder that is on lists the groups of gloo.
    """
    import torch.distributed as dist

    if any(dump["entries"] or dump.get("pg_config") for dump in dumps):
        return False
    for name in SIZE_VARIABLES:
        if name in os.environ:
            return os.environ[name].strip() == "0"
    return dist.is_initialized() and "gloo" in str(dist.get_backend_config())


def _dumps() -> list[dict[str, Any]]:
    """Return what the recorders of this process hold: gloo's, and NCCL's in a group that has it.

    PyTorch has two implementations of NCCL's backend, each with a recorder. The second one, "nccl2", came with PyTorch
    2.15, which also has FlightRecorderHook. A recorder of NCCL that cannot be read does not hide the others.
    """
    import torch._C._distributed_c10d as c10d
    import torch.distributed as dist

    found = [_dump(c10d._dump_fr_trace)]
    if dist.is_initialized() and "nccl" in str(dist.get_backend_config()):
        with contextlib.suppress(Exception):
            found.append(_dump(c10d._dump_nccl_trace))  # type: ignore[attr-defined]
        if hasattr(c10d, "FlightRecorderHook"):
            with contextlib.suppress(Exception):
                found.append(_dump(functools.partial(c10d._dump_fr_trace, backend="nccl2")))
    return found


def _dump(read: Callable[[], bytes]) -> dict[str, Any]:
    with _without_the_compiler():
        return dict(pickle.loads(read()))  # from this process itself


@contextlib.contextmanager
def _without_the_compiler() -> Iterator[None]:
    """Keep PyTorch from importing its compiler in this thread, to look for lines of compiled code.

    The import takes two seconds, longer than the pool waits for a record. PyTorch asks whether torch has `_inductor`,
    and torch's own `__getattr__` answers by importing it. In this thread the answer is no for as long as the compiler
    is not imported: then no code is compiled. Other threads, which may begin to compile meanwhile, get torch's answer.
    """
    here = threading.get_ident()
    with _one_reader:
        torch_getattr = vars(torch).get("__getattr__")
        if torch_getattr is None:  # this PyTorch does not import on demand
            yield
            return

        def getattr_of_torch(name: str) -> Any:
            if name == "_inductor" and threading.get_ident() == here:
                raise AttributeError(name)
            return torch_getattr(name)

        vars(torch)["__getattr__"] = getattr_of_torch
        try:
            yield
        finally:
            vars(torch)["__getattr__"] = torch_getattr


_one_reader = threading.RLock()  # otherwise one of two threads could leave its function behind


def _facts_of(entry: Mapping[str, Any]) -> dict[str, Any]:
    """Return one entry of PyTorch's as lists, numbers and texts."""
    name = str(entry["profiling_name"]).rpartition(":")[2]
    # the source of a scatter gives tensors that others do not have, and pieces of an all-to-all may differ in size
    which = {"scatter": "output"}.get(name, "input")
    sizes = [] if name.startswith("all_to_all") else [[int(n) for n in size] for size in entry[f"{which}_sizes"]]
    dtypes = [_DTYPES.get(dtype, str(dtype)) for dtype in entry[f"{which}_dtypes"]]
    frames = [(f["filename"], f["line"], f["name"]) for f in entry.get("frames", ())]
    path = [[file, line] for file, line, _ in frames if not file.startswith(_TORCH)][:DEPTH]
    file, line, function = _caller(frames)
    place = {"file": file, "line": line, "function": function, "at_s": entry["time_created_ns"] / 1e9, "path": path}
    what = {"name": name, "sizes": sizes, "dtype": dtypes[0] if sizes and dtypes else ""}
    return {**what, "group": str(entry["process_group"][0]), "number": int(entry["collective_seq_id"]), **place}


def _caller(frames: Sequence[Frame]) -> Frame:
    """Return the innermost frame that the learner wrote; `frames` begin with the innermost."""
    outside = [frame for frame in frames if not frame[0].startswith(_TORCH)]
    mine = [frame for frame in frames if is_own_code(frame[0])]
    return next(iter(mine or outside or frames), ("", 0, ""))


def _groups() -> dict[str, list[int]]:
    """Return {name of a group: its ranks}, as PyTorch knows them."""
    import torch.distributed as dist

    world = dist.distributed_c10d._world
    return {str(name): sorted(world.pg_group_ranks.get(group, ())) for group, name in list(world.pg_names.items())}


def flight_record(rank: int, plain: Mapping[str, Any] | None, report: Mapping[str, Any]) -> FlightRecord:
    """Return the FlightRecord of what `read_recorder` gave on `rank`; None stands for no answer.

    `report` is the pool's report of the rank, see `failures.describe_failure`.
    """
    state, frames = str(report.get("state", "running")), tuple(map(tuple, report.get("frames") or ()))
    words = {"died": "its process has ended", "silent": "it did not answer: it is stopped, or the machine overloaded"}
    if plain is None:
        plain = {"missing": words.get(state, "it did not answer in time")}
    collectives = [
        Collective(**{**c, "sizes": tuple(map(tuple, c["sizes"])), "path": tuple(map(tuple, c["path"]))})
        for c in plain.get("collectives", ())
    ]
    groups = {name: tuple(ranks) for name, ranks in plain.get("groups", {}).items()}
    missing, error = str(plain.get("missing", "")), str(report.get("message", ""))
    return FlightRecord(
        rank,
        tuple(collectives),
        groups=groups,
        state=state,
        frames=frames,
        missing=missing,
        exitcode=report.get("exitcode"),
        error=error,
    )


def waits_in(frames: Sequence[Frame]) -> str:
    """Return the outermost function of torch.distributed on a stack, such as "all_reduce"; "" if there is none."""
    return next((name for file, _, name in frames if os.path.basename(file) == C10D), "")


def file_label(file: str) -> str:
    """Return "Cell In[3]" for a file name that IPython made up for a cell, else 'File "..."'."""
    shell = ipython_shell()
    name = shell.compile.format_code_name(file) if shell is not None else None
    return " ".join(name) if name else f'File "{file}"'


def send_before_abort(send: Callable[[], None]) -> None:
    """Call `send` when SIGABRT ends this process; gloo ends a process so if it receives more bytes than it expects.

    The signal comes from PyTorch's own thread, which reports an error that nobody caught. Python's signal handlers do
    not run then, since abort() does not return; a C function does. A process that has not ended `ABORT_S` seconds later
    is ended by SIGALRM.
    """
    libc = ctypes.CDLL(None)

    @ctypes.CFUNCTYPE(None, ctypes.c_int)
    def on_abort(_: int) -> None:
        libc.signal(signal.SIGALRM, None)  # SIG_DFL: it ends the process
        libc.alarm(ABORT_S)
        with contextlib.suppress(Exception):
            send()
        libc.alarm(0)

    _handlers.append(on_abort)  # kept for as long as the process lives
    libc.signal(signal.SIGABRT, on_abort)
    os.register_at_fork(after_in_child=lambda: libc.signal(signal.SIGABRT, None))


_handlers: list[Any] = []
