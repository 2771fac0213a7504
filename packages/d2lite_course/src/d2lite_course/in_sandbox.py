"""What runs in the sandbox: find the answers in a submission, run each in processes of its own, pass on the results.

It is given, on its standard input, one JSON object: the notebooks, and for each exercise the name of its function, the
code that observes an answer, and the arguments of the cases. Expected results are not in the sandbox. It prints one
JSON object a line: what it found, what was observed in each case, and why an answer ended. The grader judges.
"""

import contextlib
import ctypes
import importlib.util
import json
import os
import secrets
import select
import shutil
import signal
import sys
import tempfile
import time
import types
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import torch
import torch._dynamo  # an optimizer imports it, and it replaces torch.manual_seed, which `_replaced` watches
import torch.distributed as dist

from d2lite import Transformer, Workers, train  # noqa: F401  # loaded while files can be read: an answer may use them
from d2lite.costs import Link
from d2lite.exercises.as_data import as_data, from_data
from d2lite.exercises.check import is_stub, wrong_parameters
from d2lite.exercises.observed import observed
from d2lite_course.bounds import FILE_BYTES, JOIN_S, MEMORY_BYTES, PROCESSES, SENT_BYTES
from d2lite_course.submitted_code import ExerciseCode, cells_of, code_of
from notebook_ranks.batch_mode import use_batch_mode

__all__ = ["main"]

SHOWN_BYTES = 2_000  # of what it prints
NAMED = {"Link": Link}


def main() -> None:
    """Read a request, and print the results."""
    out = os.dup(1)
    os.dup2(2, 1)  # what libraries print is no result
    request = json.load(sys.stdin)
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    _limit_all(request["alone"])
    torch.set_num_threads(1)
    use_batch_mode()

    def send(**message: Any) -> None:
        os.write(out, (json.dumps(message) + "\n").encode())

    notebooks = {}
    for name, text in request["notebooks"].items():
        try:
            notebooks[name] = cells_of(text)
        except ValueError as error:
            send(notebook=name, wrong=str(error))
    send(read=sorted(notebooks))
    for exercise in request["exercises"]:
        send(exercise=exercise["name"], begins=True)
        code, file = _find_code(notebooks, exercise)
        send(exercise=exercise["name"], code=code.source, notes=code.notes, file=file)
        if code.source:
            for message in _run_answer(exercise, code, out, request["alone"]):
                send(exercise=exercise["name"], **message)
        send(exercise=exercise["name"], done=True)
        if not _cleaned(Path(tempfile.gettempdir())):
            return  # the grader makes a new sandbox for the others


def _limit_all(alone: bool) -> None:
    import resource

    limits = [(resource.RLIMIT_CORE, 0), (resource.RLIMIT_FSIZE, FILE_BYTES), (resource.RLIMIT_NOFILE, 256)]
    if alone:  # else the user's other programs count as well
        limits.append((resource.RLIMIT_NPROC, PROCESSES))
    for which, most in limits:
        with contextlib.suppress(OSError, ValueError):
            resource.setrlimit(which, (most, most))
    with contextlib.suppress(OSError, AttributeError):
        ctypes.CDLL(None).prctl(4, 0)  # PR_SET_DUMPABLE: no process of the same user may look into this one


def _find_code(notebooks: dict[str, Any], exercise: dict[str, Any]) -> tuple[ExerciseCode, str]:
    """Return the code of an exercise, and the notebook that has it: by its name, else the first that has a function."""
    last = ExerciseCode(notes=["there is no notebook that can be read."])
    order = sorted(notebooks, key=lambda name: (Path(name).name != exercise["notebook"], name))
    for name in order:
        code = code_of(notebooks[name], exercise["name"], exercise["function"], exercise["cell"])
        if code.source or name == order[0]:
            last, file = code, name
        if code.source:
            return last, file
    return last, order[0] if order else ""


def _run_answer(exercise: dict[str, Any], code: ExerciseCode, out: int, alone: bool) -> Iterator[dict[str, Any]]:
    """Yield the messages of the processes of an answer, checked, and why they ended."""
    size, folder = exercise["world_size"], Path(tempfile.gettempdir())
    printed = folder / f"printed-{exercise['name']}"
    exercise = {**exercise, "number": exercise["name"].replace(".", "_")}
    (folder / f"submission_{exercise['number']}.py").write_text(code.source, encoding="utf-8")
    (folder / f"observe_{exercise['number']}.py").write_text(exercise["observers"], encoding="utf-8")
    token = secrets.token_hex(16)  # a message without it is not of the code that observes
    pipes = {}
    pids = []
    for rank in range(size):
        reads, writes = os.pipe()
        pid = os.fork()
        if not pid:
            os.setsid()
            os.close(reads)
            os.close(out)
            to = os.open(printed, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
            os.dup2(to, 1)
            os.dup2(to, 2)
            _in_process(exercise, code, rank, writes, folder, token)  # does not return
        os.close(writes)
        pipes[reads] = rank
        pids.append(pid)
    why = ""
    ended: set[int] = set()
    try:
        for sender, message in _messages_of_answer(pipes, exercise["limit_s"] + (JOIN_S if size > 1 else 0), token):
            if sender is None:
                why = message
            elif message.get("ended") is True:
                ended.add(sender)
            elif checked := _as_allowed(message, len(exercise["cases"])):
                yield {"rank": sender, **checked}
    finally:
        by_itself = _end_answer(pids, alone, ended)
        why = why or by_itself
        for reads in pipes:
            with contextlib.suppress(OSError):
                os.close(reads)
    with contextlib.suppress(OSError):
        with printed.open("rb") as file:
            if text := file.read(SHOWN_BYTES).decode(errors="replace"):
                yield {"printed": text}
    if why:
        yield {"why": why}


def _messages_of_answer(pipes: dict[int, int], limit_s: float, token: str) -> Iterator[tuple[int | None, Any]]:
    """Yield (rank, message) until all processes have closed their pipe; (None, why) if that takes too long."""
    until, buffers = time.monotonic() + limit_s, dict.fromkeys(pipes, b"")
    total, open_pipes = dict.fromkeys(pipes, 0), set(pipes)
    while open_pipes:
        ready, _, _ = select.select(list(open_pipes), [], [], max(0.0, until - time.monotonic()))
        if not ready:
            yield None, f"it took longer than {limit_s:g} s."
            return
        for pipe in ready:
            data = os.read(pipe, 2**16)
            total[pipe] += len(data)
            if not data or total[pipe] > SENT_BYTES:
                open_pipes.discard(pipe)
                continue
            *lines, buffers[pipe] = (buffers[pipe] + data).split(b"\n")
            for line in lines:
                try:
                    message = json.loads(line)
                except (ValueError, RecursionError):
                    continue
                if isinstance(message, dict) and message.get("token") == token:
                    yield pipes[pipe], message
                    if message.get("ended") is True:  # what it has started may keep the pipe
                        open_pipes.discard(pipe)


def _cleaned(folder: Path) -> bool:
    """Remove what an answer has left in its folder, and return whether nothing is left."""
    for path in folder.iterdir():
        if path.is_dir() and not path.is_symlink():
            shutil.rmtree(path, ignore_errors=True)
        else:
            path.unlink(missing_ok=True)
    shared = Path("/dev/shm")
    return not any(folder.iterdir()) and (os.getpid() >= 20 or not any(shared.iterdir()))


def _as_allowed(message: dict[str, Any], num_cases: int) -> dict[str, Any]:
    """Return a message of an answer's process, with what it may say and no more."""
    case = message.get("case")
    if type(case) is int and 0 <= case < num_cases and "got" in message:
        return {"case": case, "got": message["got"]}
    return {key: str(message[key])[:1000] for key in ("stub", "unfit") if key in message}


def _end_answer(pids: list[int], alone: bool, ended: set[int]) -> str:
    """End the processes and what they have started; return why one of them ended by itself, or ""."""
    why = ""
    time.sleep(0.02)  # the last ones are just ending
    for rank, pid in enumerate(pids):
        found, status = os.waitpid(pid, os.WNOHANG)
        if found and rank not in ended:
            code = os.waitstatus_to_exitcode(status)
            name = signal.Signals(-code).name if code < 0 else f"exit code {code}"
            why = why or f"its process ended ({name})."
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(pid, signal.SIGKILL)
        if not found:
            with contextlib.suppress(OSError):
                os.kill(pid, signal.SIGKILL)
                os.waitpid(pid, 0)
    if alone and os.getpid() < 20:  # in a process namespace of its own: all others are the answer's
        for _ in range(20):
            others = [int(p.name) for p in Path("/proc").iterdir() if p.name.isdecimal()]
            others = [pid for pid in others if pid not in (1, os.getpid(), os.getppid())]
            if not others:
                break
            for pid in others:
                with contextlib.suppress(OSError):
                    os.kill(pid, signal.SIGKILL)
            with contextlib.suppress(ChildProcessError):
                while os.waitpid(-1, os.WNOHANG)[0]:
                    pass
    return why


def _in_process(exercise: dict[str, Any], code: ExerciseCode, rank: int, writes: int, folder: Path, token: str) -> None:
    """Run in a process of its own: load the answer, call it in all cases, write what was observed, and end."""

    def send(**message: Any) -> None:
        data = (json.dumps({**message, "token": token}) + "\n").encode()
        while data:
            data = data[os.write(writes, data) :]

    try:
        _limit_memory()
        if exercise["world_size"] > 1:
            _join_group(exercise, rank, folder)
        observe = _observer(exercise)
        watched = _functions_of_others()
        try:
            answer = vars(_module(folder / f"submission_{exercise['number']}.py"))[code.function]
        except BaseException as error:
            send(unfit=f"its code raised {type(error).__name__}: {str(error)[:300]}, before the function was called.")
            return
        if unfit := _unfit(exercise, answer):
            send(**unfit)
            return
        for i in range(len(exercise["cases"])):
            args = [from_data(arg, NAMED) for arg in exercise["cases"][i]]
            got = as_data(observed(observe, answer, args))
            if replaced := _replaced(watched):
                send(unfit=f"it replaces {replaced}, which is not its own: that does not count.")
                return
            send(case=i, got=got)
        send(ended=True)
    except BaseException as error:
        print(f"{type(error).__name__}: {error}", file=sys.stderr)
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(0)


def _limit_memory() -> None:
    import resource

    with contextlib.suppress(OSError, ValueError):
        used = next(int(x.split()[1]) for x in Path("/proc/self/status").read_text().splitlines() if x[:7] == "VmData:")
        most = 1024 * used + MEMORY_BYTES
        resource.setrlimit(resource.RLIMIT_DATA, (most, most))


def _join_group(exercise: dict[str, Any], rank: int, folder: Path) -> None:
    size = exercise["world_size"]
    os.environ |= {"RANK": str(rank), "LOCAL_RANK": str(rank), "WORLD_SIZE": str(size), "LOCAL_WORLD_SIZE": str(size)}
    store = dist.FileStore(str(folder / f"group-{exercise['name']}"), size)
    dist.init_process_group("gloo", store=store, rank=rank, world_size=size)


def _functions_of_others() -> dict[str, tuple[dict[str, Any], dict[str, Any]]]:
    """Return {module: (its names, the functions and classes that they stand for)} of what observes an answer uses."""
    names = ["builtins", "json", "math", "operator", "os", "numpy", "torch", "torch.distributed", "torch.nn.functional"]
    names += [name for name in sys.modules if name.startswith(("d2lite.", "notebook_ranks.", "observe_"))]
    places = {name: vars(sys.modules[name]) for name in names if name in sys.modules}
    places["torch.Tensor"] = vars(torch.Tensor)  # type: ignore[assignment]
    return {name: (here, {k: v for k, v in here.items() if callable(v)}) for name, here in places.items()}


def _replaced(watched: dict[str, tuple[dict[str, Any], dict[str, Any]]]) -> str:
    """Return the name of a function of others that is another one now, or ""."""
    for name, (here, before) in watched.items():
        for key, value in before.items():
            if here.get(key) is not value:
                return f"{name}.{key}"
    return ""


def _module(path: Path) -> types.ModuleType:
    """Return the module of a file."""
    spec = importlib.util.spec_from_file_location(path.stem, path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[path.stem] = module
    spec.loader.exec_module(module)
    return module


def _unfit(exercise: dict[str, Any], answer: object) -> dict[str, Any]:
    """Return a message about an answer that cannot be called, or {}."""
    if not callable(answer):
        return {"unfit": f"it is no function, but of the type {type(answer).__name__}."}
    if is_stub(answer):
        return {"stub": True}
    for case in exercise["cases"]:
        num_args = exercise["required"] if exercise["observers"] else len(case)
        if wrong := wrong_parameters(exercise["parameters"], answer, num_args):
            return {"unfit": wrong}
    return {}


def _observer(exercise: dict[str, Any]) -> Callable[..., Any] | None:
    if not exercise["observers"]:
        return None
    path = Path(tempfile.gettempdir()) / f"observe_{exercise['number']}.py"
    found: Callable[..., Any] = _module(path).OBSERVE_OF[exercise["name"]]
    return found
