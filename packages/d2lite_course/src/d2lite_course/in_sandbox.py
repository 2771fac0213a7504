"""What runs in the sandbox: find the answers in a submission, run each in processes of its own, pass on the results.

An answer is what the notebook gives to `check`: the statements that it depends on are run, up to the call of `check`,
which keeps what it is given. The first process of the sandbox does this. It reads what an answer's process writes into
a pipe of that process, and only the first process can write to the grader.

It is given, on its standard input, one JSON object: the notebooks, and for each exercise the name of its function, the
code that observes an answer, and the arguments of the cases. Expected results are not in the sandbox. It prints one
JSON object a line: what it found, what was observed in each case, and why an answer ended. The grader judges.
"""

import ast
import asyncio
import contextlib
import ctypes
import inspect
import json
import linecache
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
from typing import IO, Any

import torch
import torch._dynamo  # an optimizer imports it, and it replaces torch.manual_seed, which `_replaced` watches
import torch.distributed as dist

from d2lite import Transformer, Workers, exercises, train  # noqa: F401  # loaded once: an answer may use them
from d2lite.costs import Link
from d2lite.exercises import Score
from d2lite.exercises.as_data import as_data, from_data
from d2lite.exercises.check import is_stub, wrong_parameters
from d2lite.exercises.learner_time_limit import processes_per_core
from d2lite.exercises.observed import observed
from d2lite_course.bounds import FILE_BYTES, JOIN_S, LOAD_S, MEMORY_BYTES, PROCESSES, SENT_BYTES, WHOLE_S
from d2lite_course.refused_calls import refuse_calls
from d2lite_course.submitted_code import ExerciseCode, ReadNotebook, cells_of, code_of
from notebook_ranks.batch_mode import use_batch_mode

__all__ = ["main"]

SHOWN_BYTES = 2_000  # of what it prints
LATE_S = 2.0
NAMED = {"Link": Link}
_SIGNALS = {int(one): one.name for one in signal.Signals}


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
            notebooks[name] = ReadNotebook(cells_of(text))
        except ValueError as error:
            send(notebook=name, wrong=str(error))
    send(read=sorted(notebooks))
    for exercise in request["exercises"]:
        send(exercise=exercise["name"], begins=True)
        code, file = _find_code(notebooks, exercise)
        here = {"file": file, "saved": code.saved, "runs": bool(code.cells)}
        send(exercise=exercise["name"], code=code.source, notes=code.notes, **here)
        if code.cells:
            for message in _run_answer(exercise, code, out):
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
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # an answer may send it
    with contextlib.suppress(OSError, AttributeError):
        libc = ctypes.CDLL(None)
        libc.prctl(1, signal.SIGKILL)  # PR_SET_PDEATHSIG: it ends with the grader
        libc.prctl(4, 0)  # PR_SET_DUMPABLE: no process of the same user may look into this one
    if alone:
        refuse_calls()


def _find_code(notebooks: dict[str, ReadNotebook], exercise: dict[str, Any]) -> tuple[ExerciseCode, str]:
    """Return the code of an exercise, and the notebook that has it: with its check, of its name, or any with code."""
    given = exercise["name"], exercise["function"], exercise["cell"], exercise["whole"]
    found = [(code_of(notebook, *given), name) for name, notebook in notebooks.items()]
    if not found:
        return ExerciseCode(notes=["there is no notebook that can be read."]), ""

    def order(one: tuple[ExerciseCode, str]) -> tuple[bool, bool, bool, bool, str]:
        code, name = one
        is_named = Path(name).name == exercise["notebook"]
        return not code.cells, not code.has_check, not is_named, not code.source, name

    best = min(found, key=order)
    others = [name for code, name in found if code.cells and code.has_check and name != best[1]]
    if others and best[0].has_check:
        best[0].notes.append(f"{', '.join(sorted(others)[:5])} has it as well: {best[1]} is graded.")
    return best


def _run_answer(exercise: dict[str, Any], code: ExerciseCode, out: int) -> Iterator[dict[str, Any]]:
    """Yield the messages of the processes of an answer, checked, and why they ended."""
    size, folder = exercise["world_size"], Path(tempfile.gettempdir())
    for name, text in code.files.items():
        if name.isascii() and name.removesuffix(".py").isidentifier():
            with contextlib.suppress(OSError):
                (folder / name).write_text(text, encoding="utf-8", errors="replace")
    printed = tempfile.TemporaryFile()  # noqa: SIM115  # without a name, so that nothing else can take its place
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
            os.dup2(printed.fileno(), 1)
            os.dup2(printed.fileno(), 2)
            _in_process(exercise, code, rank, writes, folder, token)  # does not return
        os.close(writes)
        pipes[reads] = rank
        pids.append(pid)
    why = ""
    ended: set[int] = set()
    try:
        load_s = WHOLE_S if exercise["whole"] else LOAD_S
        for sender, message in _messages_of_answer(pipes, exercise["limit_s"], token, load_s + JOIN_S * (size > 1)):
            if sender is None:
                why = message
            elif message.get("ended") is True:
                ended.add(sender)
            elif checked := _as_allowed(message, len(exercise["cases"])):
                yield {"rank": sender, **checked}
    finally:
        by_itself = _end_answer(pids, ended)
        why = why or by_itself
        for reads in pipes:
            with contextlib.suppress(OSError):
                os.close(reads)
    if text := _start_of(printed):
        yield {"printed": text}
    if why:
        yield {"why": why}


def _start_of(printed: IO[bytes]) -> str:
    with printed:
        printed.seek(0)
        return printed.read(SHOWN_BYTES).decode(errors="replace")


def _messages_of_answer(
    pipes: dict[int, int], limit_s: float, token: str, load_s: float = 0.0
) -> Iterator[tuple[int | None, Any]]:
    """Yield (rank, message) until all processes have closed their pipe; (None, why) if that takes too long.

    They have `load_s` seconds to say that they are loaded, and then `limit_s` for their cases, on a busy machine up to
    five times as long, as with `check`.
    """
    until, buffers = time.monotonic() + (load_s or limit_s), dict.fromkeys(pipes, b"")
    total, open_pipes, loading = dict.fromkeys(pipes, 0), set(pipes), set(pipes) if load_s else set()
    while open_pipes:
        ready, _, _ = select.select(list(open_pipes), [], [], max(0.0, until - time.monotonic()))
        if not ready or time.monotonic() > until + LATE_S:  # what has come in time may be read a little later
            if loading:
                yield pipes[min(loading)], {"problem": f"its statements took longer than {load_s:g} s here."}
            yield None, f"it took longer than {load_s if loading else limit_s:g} s."
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
                    if pipe in loading and "loaded" in message:
                        loading.discard(pipe)
                        until = until if loading else time.monotonic() + limit_s * processes_per_core()
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
    return not any(folder.iterdir()) and (os.getpid() > 1 or not any(shared.iterdir()))


def _as_allowed(message: dict[str, Any], num_cases: int) -> dict[str, Any]:
    """Return a message of an answer's process, with what it may say and no more."""
    case = message.get("case")
    if type(case) is int and 0 <= case < num_cases and "got" in message:
        return {"case": case, "got": message["got"]}
    return {key: str(message[key])[:1000] for key in ("stub", "unfit", "problem") if key in message}


def _end_answer(pids: list[int], ended: set[int]) -> str:
    """End the processes and what they have started; return why one of them ended by itself, or ""."""
    why = ""
    time.sleep(0.02)  # the last ones are just ending
    for rank, pid in enumerate(pids):
        found, status = os.waitpid(pid, os.WNOHANG)
        if found and rank not in ended:
            code = os.waitstatus_to_exitcode(status)
            name = f"exit code {code}" if code >= 0 else _SIGNALS.get(-code, f"signal {-code}")
            why = why or f"its process ended ({name})."
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(pid, signal.SIGKILL)
        if not found:
            with contextlib.suppress(OSError):
                os.kill(pid, signal.SIGKILL)
                os.waitpid(pid, 0)
    if os.getpid() == 1:  # in a process namespace of its own: all others are the answer's
        for _ in range(50):
            with contextlib.suppress(OSError):
                os.kill(-1, signal.SIGKILL)
            try:
                while os.waitpid(-1, os.WNOHANG)[0]:
                    pass
            except ChildProcessError:
                break
            time.sleep(0.02)
    return why


def _in_process(exercise: dict[str, Any], code: ExerciseCode, rank: int, writes: int, folder: Path, token: str) -> None:
    """Run in a process of its own: load the answer, call it in all cases, write what was observed, and end."""

    def send(**message: Any) -> None:
        data = (json.dumps({**message, "token": token}) + "\n").encode()
        while data:
            data = data[os.write(writes, data) :]

    try:
        _limit_memory()
        if exercise["whole"]:
            os.environ["D2LITE_QUICK"] = "1"  # fewer examples and epochs in the chapters
        if exercise["world_size"] > 1:
            _join_group(exercise, rank, folder)
        observe = _observer(exercise)
        given = _keep_what_check_is_given()
        watched = _functions_of_others()
        made, problem = _run_cells(code, folder)
        answer = given.get(exercise["name"], made.get(code.function, _NOTHING))
        send(loaded=True, **({"problem": problem} if problem else {}))
        if answer is _NOTHING:
            send(unfit=f"check was given nothing: {problem or 'the notebook does not call it.'}")
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


_NOTHING = object()


def _keep_what_check_is_given() -> dict[str, Any]:
    """Put in the place of `check` what keeps its arguments, and return the dictionary that they will be in."""
    given: dict[str, Any] = {}

    def check(exercise: Any, answer: Any) -> Score:
        given[str(getattr(exercise, "name", exercise))] = answer
        return Score(str(exercise), 1, 1)

    vars(exercises)["check"] = check
    return given


def _run_cells(code: ExerciseCode, folder: Path) -> tuple[dict[str, Any], str]:
    """Run the cells of an answer; return the names that they have made, and the first error in words, or ""."""
    module = _new_module("__main__")
    made = vars(module)
    made |= {"check": exercises.check, "display": print}
    sys.path.append(str(folder))
    problem = ""
    for cell in code.cells:
        linecache.cache[cell.name] = (len(cell.text), None, cell.text.splitlines(keepends=True), cell.name)
        for node in cell.nodes:
            try:
                compiled = compile(ast.Module([node], []), cell.name, "exec", flags=code.flags, dont_inherit=True)
                result = eval(compiled, made)
                if inspect.iscoroutine(result):
                    asyncio.run(result)
            except BaseException as error:
                text = f"{type(error).__name__}: {str(error)[:300]}".rstrip(": .")
                problem = problem or f"line {node.lineno} of {cell.name.strip('<>')} raised {text}."
                break
    return made, problem


def _new_module(name: str) -> types.ModuleType:
    module = sys.modules[name] = types.ModuleType(name)
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
    made = vars(_new_module(f"observe_{exercise['name'].replace('.', '_')}"))
    exec(compile(exercise["observers"], "<observers>", "exec"), made)
    found: Callable[..., Any] = made["OBSERVE_OF"][exercise["name"]]
    return found
