import html
import math
import threading
import time

import psutil
import pytest

from benchmarks.leaks import of_a_pool
from d2lite.labs.chapter_07.fault_lab import FaultLab
from d2lite.labs.chapter_07.faults import CAUSES, FAULTS, first_not_finite


def test_the_first_gradient_that_is_not_finite_is_found():
    good, bad = [True] * 4, [True, True, False, True]
    assert first_not_finite([good, good]) is None and first_not_finite([]) is None
    assert first_not_finite([good, [*good[:3], False], bad]) == (2, 2)  # the earliest step


def test_the_fault_lab_offers_faults_of_the_job():
    assert set(FAULTS.values()) - set(CAUSES) == {"raise", "skip", "nan"}


@pytest.fixture(scope="module")
def lab():
    before, pools = threading.active_count(), set(psutil.Process().children())  # other tests may keep a pool open
    lab = FaultLab(2, timeout_s=3)
    yield lab
    lab.close()
    assert threading.active_count() == before
    assert not [p for p in set(psutil.Process().children()) - pools if of_a_pool(p.cmdline())]


EXPECTED = {
    "raise": "rank 1 failed: RuntimeError: a bug on one rank only",
    "kill": "rank 1 died (SIGKILL)",
    "stop": "rank 1 was silent for 3 s",
    "slow": "rank 1 came last to 10 of 49 collectives, up to 0.",
    "size": "rank 1 called all_reduce no. ",
    "skip": "not sure which rank is at fault: rank 1 took fewer steps than rank 0: it went on to all_reduce no. ",
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
    assert message.startswith(EXPECTED[fault.split(":")[0]])
    assert math.isfinite(seconds) and message.splitlines()[0][:40] in html.unescape(lab._message.value)
    assert not lab.run.disabled and lab.stop.disabled


@pytest.mark.slow
def test_stop_ends_a_run(lab):
    lab.fault.value = next(f for f in FAULTS if f.startswith("stop"))
    lab.run.click()
    end = time.monotonic() + 60
    while "A rank has the fault" not in lab._message.value:
        assert time.monotonic() < end, lab._message.value
        time.sleep(0.05)
    lab.stop.click()
    assert lab.wait(5)[3] == "stopped"
