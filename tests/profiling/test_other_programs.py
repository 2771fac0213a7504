"""OtherPrograms: what other programs use is counted, what this process and its children use is not."""

import math
import os
import subprocess
import sys
import time

import pytest
import torch

from d2lite.profiling import other_programs
from d2lite.profiling.other_programs import OtherPrograms


def stat(user):
    return f"cpu  {user} 0 0 1000 0 0 0 0 0 0\n"


def test_cores_of_others_are_the_busy_time_less_that_of_this_family(monkeypatch, tmp_path):
    ticks, me = os.sysconf("SC_CLK_TCK"), os.getpid()
    monkeypatch.setattr(other_programs, "_PROC", tmp_path)
    monkeypatch.setattr(other_programs, "num_cores", os.cpu_count)

    def write(total_s, own_s, child_s, stranger_s):
        (tmp_path / "stat").write_text(stat(total_s * ticks))
        for pid, parent, seconds in ((me, 1, own_s), (7, me, child_s), (8, 1, stranger_s)):
            (tmp_path / str(pid)).mkdir(exist_ok=True)
            words = ["S", parent, *[0] * 9, seconds * ticks, 0, 0, 0]
            (tmp_path / str(pid) / "stat").write_text(f"{pid} (a) b (c) " + " ".join(map(str, words)))

    now = [100.0]
    monkeypatch.setattr(other_programs.time, "monotonic", lambda: now[0])
    write(1000, 50, 20, 900)
    others = OtherPrograms()
    now[0] = 110.0
    write(1015, 54, 26, 905)
    assert others.cores() == pytest.approx(0.5)  # 15 s of work in 10 s, of which 4 + 6 were ours


@pytest.mark.parametrize("cores, k, says", [(1.0, 2, True), (0.5, 2, False), (1.0, 1, False), (math.nan, 2, False)])
def test_the_disturbance_of_devices_is_the_one_of_a_run(monkeypatch, cores, k, says):
    monkeypatch.setattr("d2lite.training.run_record.num_cores", lambda: 2)
    monkeypatch.setattr(OtherPrograms, "cores", lambda self: cores)
    words = OtherPrograms().disturbance([torch.device("cpu")] * k)
    told = f"Other programs, this page included, used {cores:.1f} of 2 CPU cores: the seconds are too long."
    assert words == (told if says else "")
    assert OtherPrograms().disturbance([torch.device("cuda", i) for i in range(k)]) == ""


def test_it_is_unknown_where_this_process_may_use_a_part_of_the_cores_only_or_without_proc(monkeypatch, tmp_path):
    monkeypatch.setattr(other_programs, "num_cores", lambda: os.cpu_count() + 1)
    assert math.isnan(OtherPrograms().cores())
    monkeypatch.setattr(other_programs, "num_cores", os.cpu_count)
    monkeypatch.setattr(other_programs, "_PROC", tmp_path / "nothing")
    assert math.isnan(OtherPrograms().cores())


def test_it_is_unknown_where_proc_cannot_be_read_at_first_or_later(monkeypatch):
    def refused():
        raise PermissionError

    monkeypatch.setattr(other_programs, "num_cores", os.cpu_count)
    family_s = other_programs._family_s
    monkeypatch.setattr(other_programs, "_busy_s", lambda: 1000.0)
    monkeypatch.setattr(other_programs, "_family_s", refused)
    at_first = OtherPrograms()
    assert math.isnan(at_first.cores())
    monkeypatch.setattr(other_programs, "_family_s", family_s)
    assert math.isnan(at_first.cores())
    later = OtherPrograms()
    monkeypatch.setattr(other_programs, "_family_s", refused)
    assert math.isnan(later.cores())


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="reads Linux's /proc")
def test_a_child_that_computes_is_not_among_the_others():
    busy = [sys.executable, "-c", "import time; end = time.time() + 1.5\nwhile time.time() < end: pass"]
    before_s = other_programs._family_s()
    child = subprocess.Popen(busy)
    time.sleep(1.0)
    during_s = other_programs._family_s()
    child.wait()
    assert during_s > before_s and other_programs._family_s() >= during_s  # also after it has ended
