"""What is said on Windows, which has no ranks, and that the package imports without what Windows lacks."""

import subprocess
import sys
from types import SimpleNamespace

import pytest

from d2lite.workers import Workers, warn_without_ranks
from notebook_ranks import rank_support
from notebook_ranks.rank_support import why_no_ranks

# of these, Windows' Python has none
WITHOUT = """
import os, signal, sys
import torch, ipywidgets, plotly, IPython
for name in "fcntl resource pwd grp termios tty pty syslog readline curses".split():
    sys.modules[name] = None  # importing it raises ModuleNotFoundError
for name in ("fork register_at_fork sched_getaffinity sched_setscheduler SCHED_BATCH killpg setsid getuid geteuid "
             "getpgid waitid WNOHANG fchmod mkfifo getloadavg uname wait4 O_NOFOLLOW O_CLOEXEC O_NONBLOCK").split():
    if hasattr(os, name):
        delattr(os, name)
for name in "SIGKILL SIGSTOP SIGCONT SIGUSR1 SIGUSR2 SIGALRM SIGCHLD SIGHUP SIGQUIT pthread_sigmask setitimer".split():
    if hasattr(signal, name):
        delattr(signal, name)
"""
IN_A_RANK = {  # nothing imports them here
    "ddp_rehearsal.fork_ranks",
    "ddp_rehearsal.own_ranks",
    "ddp_rehearsal.rank_process",
    "ddp_rehearsal.start_process",
    "notebook_ranks.rank",
    "notebook_ranks.rank_starter",
    "notebook_ranks.reaper",
}


@pytest.fixture
def windows(monkeypatch):
    monkeypatch.setattr(rank_support, "os", SimpleNamespace(name="nt"))


def test_ranks_can_start_here(recwarn):
    warn_without_ranks()
    assert why_no_ranks() == "" and not recwarn.list


def test_on_windows_a_chapter_says_so_in_its_first_cell(windows):
    with pytest.warns(UserWarning, match="`Workers`.* will fail here.*use WSL 2.*Colab and Binder") as caught:
        warn_without_ranks()
    assert caught[0].filename == __file__  # the cell's line, and not the package's


def test_on_windows_a_pool_says_what_to_do(windows):
    with pytest.raises(
        OSError, match="Workers needs Linux or macOS: on Windows use WSL 2, or a notebook server elsewhere"
    ):
        Workers(2)


@pytest.mark.slow
def test_the_package_imports_without_what_windows_lacks():
    """All its modules, except those that run in a rank; it was not run on Windows."""
    code = WITHOUT + (
        "import importlib, pkgutil, d2lite, d2lite.labs, ddp_rehearsal, d2lite_course, notebook_ranks\n"
        "for package in (d2lite, d2lite.labs, ddp_rehearsal, d2lite_course, notebook_ranks):\n"
        "    for module in pkgutil.walk_packages(package.__path__, package.__name__ + '.'):\n"
        f"        if module.name not in {IN_A_RANK} and '.at_start' not in module.name:\n"
        "            if not module.name.endswith('__main__'):\n"
        "                importlib.import_module(module.name)\n"
        "import d2lite.__main__\n"
        "print(len(sys.modules), 'd2lite.widgets.panel' in sys.modules)\n"
    )
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=120)
    assert run.returncode == 0, run.stderr
    assert run.stdout.endswith(" True\n")
