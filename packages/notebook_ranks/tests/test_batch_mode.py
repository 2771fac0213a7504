"""The ranks' threads are in batch mode; where the system forbids that, they compute all the same."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch.distributed as dist

from notebook_ranks.batch_mode import use_batch_mode
from notebook_ranks.pool import Workers

batch_mode = pytest.mark.skipif(not hasattr(os, "SCHED_BATCH"), reason="batch mode is a feature of Linux")


def policies():
    dist.new_group([0, 1])  # gloo starts threads of its own for each group
    names = {int(path.name): (path / "comm").read_text().strip() for path in Path("/proc/self/task").iterdir()}
    return [os.sched_getscheduler(i) for i, name in names.items() if i == os.getpid() or "gloo" in name]


policies.__module__ = "__main__"  # pickled by value, as a function of a cell is


@pytest.mark.slow
@batch_mode
def test_all_threads_of_gloo_are_in_batch_mode_and_the_notebook_is_not():
    before = os.sched_getscheduler(0)
    with Workers(2) as workers:
        for found in workers.run(policies):
            assert len(found) > 4 and set(found) == {os.SCHED_BATCH}
    assert os.sched_getscheduler(0) == before


@pytest.mark.slow
@batch_mode
def test_threads_started_later_are_in_batch_mode_too():
    code = (
        "import os, threading; from notebook_ranks.batch_mode import use_batch_mode; print(use_batch_mode())\n"
        "thread = threading.Thread(target=lambda: print(os.sched_getscheduler(0) == os.SCHED_BATCH))\n"
        "thread.start(); thread.join()"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=True)
    assert done.stdout.split() == ["True", "True"]


@pytest.mark.parametrize("error", [AttributeError, PermissionError])
def test_a_system_without_batch_mode_is_left_as_it_is(monkeypatch, error):
    def forbid(*_):
        raise error

    monkeypatch.setattr(os, "sched_setscheduler", forbid, raising=False)
    monkeypatch.setattr(os, "SCHED_BATCH", 3, raising=False)
    monkeypatch.setattr(os, "sched_param", int, raising=False)
    assert use_batch_mode() is False
