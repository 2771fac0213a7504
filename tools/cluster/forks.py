"""torchrun on every host of loopback with less memory: agents and workers are forks of one process.

That process imports PyTorch once, and all share its pages. With the CUDA build a new Python takes 0.3 GB for them. What
a fork runs, prints and returns is what a new Python would. Linux only: not all libraries of macOS survive a fork.
"""

import contextlib
import ctypes
import gc
import json
import math
import multiprocessing.util
import os
import runpy
import signal
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

__all__ = ["Program", "main"]

PR_SET_PDEATHSIG = 1  # linux/prctl.h


class Program:
    """The program `number` of the list that a process with `main(folder)` starts; it is used like subprocess.Popen."""

    def __init__(self, starter, folder, number):
        self._starter, self._file = starter, Path(folder, f"program-{number}")

    @property
    def pid(self):
        while (pid := self._read("pid")) is None:
            if self._starter.poll() is not None:
                raise RuntimeError(f"the program did not start: exit code {self._starter.returncode}.")
            time.sleep(0.01)
        return pid

    def poll(self):
        ended = self._starter.poll()  # before the file is read: it is written before the starter ends
        code = self._read("code")
        return ended if code is None else code

    def wait(self, timeout=None):
        return _wait(self, timeout)

    def _read(self, kind):
        with contextlib.suppress(OSError):
            return int(self._file.with_suffix(f".{kind}").read_text())


class _Fork:
    """A fork of this process that becomes `[python, words, ...]`; torchrun uses it like subprocess.Popen."""

    def __init__(self, args, env, stdout=None, stderr=None, leashed=False):
        self.returncode = None
        self.pid = os.fork()
        if self.pid:
            return
        code = 1
        try:
            if leashed:
                ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGTERM)
            _forget_the_parent(env, stdout, stderr)
            code = _run([word for word in args[1:] if word != "-u"])
        finally:
            os._exit(code)

    def poll(self):
        if self.returncode is None:
            pid, status = os.waitpid(self.pid, os.WNOHANG)
            self.returncode = os.waitstatus_to_exitcode(status) if pid else None
        return self.returncode

    def wait(self, timeout=None):
        return _wait(self, timeout)


def _wait(program, timeout):
    deadline = time.monotonic() + (math.inf if timeout is None else timeout)
    while (code := program.poll()) is None:
        if time.monotonic() > deadline:
            raise subprocess.TimeoutExpired("a fork", timeout)
        time.sleep(0.02)
    return code


def _forget_the_parent(env, stdout, stderr):
    """Give this fork what a new process has: a session, signals, an environment, an output, random numbers."""
    os.setsid()
    for number in (signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT):
        signal.signal(number, signal.SIG_DFL)
    signal.signal(signal.SIGINT, signal.default_int_handler)
    for file, descriptor in ((stdout, 1), (stderr, 2)):
        if file:
            os.dup2(file.fileno(), descriptor)
    sys.stdout, sys.stderr = (open(fd, "w", buffering=1, errors="backslashreplace", closefd=False) for fd in (1, 2))
    os.environ.clear()
    os.environ.update(env)
    tempfile.tempdir = None  # it was read from the environment
    sys.modules["numpy"].random.seed()
    multiprocessing.util._finalizer_registry.clear()
    gc.enable()


def _run(words):
    """Run `script arguments` or `-m module arguments` as Python does; return the exit code."""
    code = 1
    try:
        if words[0] == "-m":
            sys.argv, sys.path[0] = words[1:], os.getcwd()
            runpy.run_module(words[1], run_name="__main__", alter_sys=True)
        else:
            sys.argv, sys.path[0] = words, os.path.dirname(os.path.abspath(words[0]))
            runpy.run_path(words[0], run_name="__main__")
        code = 0
    except SystemExit as end:
        code = end.code if isinstance(end.code, int) else int(end.code is not None)
        if isinstance(end.code, str):
            print(end.code, file=sys.stderr)
    except BaseException as error:
        trace = error.__traceback__
        while trace and trace.tb_frame.f_code.co_filename in (__file__, "<frozen runpy>", runpy.__file__):
            trace = trace.tb_next  # a new Python has no such frames
        sys.excepthook(type(error), error.with_traceback(trace), trace)
    threading._shutdown()  # waits for threads that are not daemons
    multiprocessing.util._exit_function()  # ends the workers of a DataLoader
    for stream in (sys.stdout, sys.stderr):
        stream.flush()
    return code


def main(folder):
    """Run what FOLDER/programs.json lists, [[words, environment, file for the output], ...], until all have ended."""
    gc.disable()  # the collector would write to pages that the forks share
    import torch
    from torch.distributed.elastic.multiprocessing.subprocess_handler import SubprocessHandler
    from torch.distributed.launcher import api  # noqa: F401  # imports what torchrun needs

    torch.optim.SGD([torch.zeros(1)])  # the first optimizer imports the compiler, which the workers share, too
    new_process = SubprocessHandler._popen

    def start_worker(self, args, env):
        if args[0] != sys.executable:
            return new_process(self, args, env)
        return _Fork(args, env, self._stdout, self._stderr)

    SubprocessHandler._popen = start_worker
    gc.freeze()
    numbers = {}
    for number, (words, env, output) in enumerate(json.loads(Path(folder, "programs.json").read_text())):
        with open(output, "wb") as file:
            program = _Fork(words, env, file, file, leashed=True)
        numbers[program.pid] = number
        _write(Path(folder, f"program-{number}.pid"), program.pid)
    while numbers:
        pid, status = os.wait()
        _write(Path(folder, f"program-{numbers.pop(pid)}.code"), os.waitstatus_to_exitcode(status))


def _write(path, number):
    """Write a file that is complete as soon as it is there."""
    part = path.with_suffix(".part")
    part.write_text(str(number))
    os.replace(part, path)


if __name__ == "__main__":
    main(sys.argv[1])
