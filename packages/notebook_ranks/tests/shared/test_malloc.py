"""Freed memory is kept, in the main thread and in others; without d2lite's setting it is not."""

import ctypes
import os
import subprocess
import sys

import pytest

from notebook_ranks.pool import Workers
from notebook_ranks.shared import malloc as _malloc

STEPS = """
import resource
import torch
from d2lite import lenet_params, replicate, try_gpus
from d2lite import train_batch
X, y = torch.rand(512, 1, 28, 28), torch.zeros(512, dtype=torch.long)
devices = try_gpus(1)
params = replicate(lenet_params(), devices)
torch.set_num_threads(1)
for i in range(12):
    if i == 4:
        before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    train_batch(X, y, params, devices, 0.1)
print((resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before) // 8)
"""
FREE = """
import psutil, torch
from notebook_ranks.shared import malloc as _malloc
_malloc.keep()
tensors = [torch.ones(2**20) for _ in range(25)]  # 100 MiB
del tensors
print(psutil.Process().memory_info().rss)
_malloc.give_back()
print(psutil.Process().memory_info().rss)
"""

pytestmark = pytest.mark.skipif(not _malloc.keep(), reason="needs glibc, without D2LITE_KEEP_MEMORY=0")


def printed(code, **settings):
    command = [sys.executable, "-c", code]
    done = subprocess.run(command, env=os.environ | settings, capture_output=True, text=True, timeout=120, check=True)
    return [int(word) for word in done.stdout.split()]


@pytest.mark.slow
def test_a_replica_in_its_own_thread_does_not_allocate_its_pages_again_in_every_step():
    (pages,) = printed(STEPS, MALLOC_ARENA_MAX="1")
    assert pages < 3000  # of 4 KiB; up to 10,000 with a heap for each thread, 20,000 where nothing is kept


@pytest.mark.slow
def test_kept_memory_can_be_given_back():
    kept, given_back = printed(FREE)
    assert given_back < kept - 90e6


@pytest.mark.slow
def test_an_import_leaves_the_process_alone_and_a_run_keeps_its_memory():
    code = """
import psutil, torch
import d2lite
def freed():
    tensors = [torch.ones(2**20) for _ in range(25)]  # 100 MiB
    full = psutil.Process().memory_info().rss
    del tensors
    return full - psutil.Process().memory_info().rss
print(freed())
d2lite.parallel_apply(lambda: None, ["cpu"])
print(freed())
"""
    after_import, after_run = printed(code)
    assert after_import > 90e6 and after_run < 10e6


@pytest.mark.slow
def test_the_setting_can_be_switched_off():
    code = FREE.replace("range(25)", "range(1)").replace("2**20", "7 * 2**20")
    kept, _ = printed(code)
    left_alone, _ = printed(code, D2LITE_KEEP_MEMORY="0")
    assert left_alone < kept - 20e6


def test_the_result_is_false_when_nothing_is_kept(monkeypatch):
    monkeypatch.setenv("D2LITE_KEEP_MEMORY", "0")
    assert _malloc.keep() is False


def test_another_c_library_is_left_alone(monkeypatch):
    monkeypatch.setattr(ctypes, "CDLL", lambda name: object())
    assert _malloc.keep() is False
    _malloc.give_back()


@pytest.mark.slow
def test_ranks_start_without_the_small_caches_and_with_the_users_own_tunables(monkeypatch):
    monkeypatch.delenv("GLIBC_TUNABLES", raising=False)
    ours = _malloc.tunables()["GLIBC_TUNABLES"]
    assert ours == "glibc.malloc.tcache_count=0:glibc.malloc.mxfast=0"
    monkeypatch.setenv("GLIBC_TUNABLES", "glibc.malloc.hugetlb=1")
    assert _malloc.tunables() == {"GLIBC_TUNABLES": f"glibc.malloc.hugetlb=1:{ours}"}
    with Workers(1) as workers:
        assert workers.run(os.getenv, "GLIBC_TUNABLES") == [f"glibc.malloc.hugetlb=1:{ours}"]
    monkeypatch.setenv("D2LITE_KEEP_MEMORY", "0")
    assert _malloc.tunables() == {}
