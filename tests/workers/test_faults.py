import html
import math
import threading

import psutil
import pytest

from benchmarks.leaks import of_a_pool
from d2lite.widgets.fault_lab import FaultLab
from d2lite.workers.faults import FAULTS, SLOW_S, diagnose


def steps(waits=(0.0,) * 5, own=(True,) * 5, total=(True,) * 5):
    return list(zip(waits, own, total, strict=True))


def test_diagnose_names_the_slow_rank():
    late = steps(waits=(0, 0, SLOW_S, 0, 0))
    assert "rank 1 was last in step 3, and the others waited 0.50 s" in diagnose([late, steps(), late])


def test_diagnose_names_the_rank_with_the_nan():
    bad = (True, True, False, False, False)
    assert "rank 2 contributed a gradient that is not finite to step 3" in diagnose(
        [steps(total=bad), steps(total=bad), steps(own=(True, True, False, True, True), total=bad)]
    )


def test_diagnose_of_a_good_run():
    assert diagnose([steps(), steps()]) == "all ranks completed all steps, and none waited long."


@pytest.fixture(scope="module")
def lab():
    before = threading.active_count()
    lab = FaultLab(2, timeout_s=3)
    yield lab
    lab.close()
    assert threading.active_count() == before
    assert not [p for p in psutil.Process().children() if of_a_pool(p.cmdline())]


EXPECTED = {
    "raise": "rank 1 failed: RuntimeError: a bug on one rank only",
    "kill": "rank 1 died (SIGKILL)",
    "stop": "rank 1 was silent for 3 s",
    "slow": "rank 1 was last in step 3",
    "size": "aborted inside PyTorch's C++ code",
    "skip": "rank 1",
    "NaN": "rank 1 contributed a gradient that is not finite to step 3",
}


@pytest.mark.slow
@pytest.mark.parametrize("fault", FAULTS, ids=lambda f: f.split(":")[0])
def test_each_fault_is_named(lab, fault):
    lab.fault.value = fault
    lab.run.click()
    lab.run.click()  # a second click starts nothing
    n = len(lab.results)
    shown, timeout_s, seconds, message = lab.wait()
    assert len(lab.results) == n + 1 and shown == fault and timeout_s == 3
    assert EXPECTED[fault.split(":")[0]] in message
    assert math.isfinite(seconds) and message.splitlines()[0][:40] in html.unescape(lab._message.value)
    assert not lab.run.disabled and lab.stop.disabled


@pytest.mark.slow
def test_stop_ends_a_run(lab):
    lab.fault.value = next(f for f in FAULTS if f.startswith("stop"))
    lab.run.click()
    while "Running" not in lab._message.value:
        threading.Event().wait(0.05)
    lab.stop.click()
    assert lab.wait(5)[3] == "stopped"
