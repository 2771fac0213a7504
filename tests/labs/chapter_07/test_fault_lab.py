"""The fault lab enables its button again, whatever its ranks do."""

import pytest

from d2lite import WorkersError
from d2lite.labs.chapter_07 import fault_lab
from d2lite.labs.chapter_07.fault_lab import FaultLab
from d2lite.run_events import Stopped


class Mute(Exception):
    def __str__(self):
        raise RuntimeError("not today")


class Pool:
    """A pool whose call ends by an exception."""

    timeout_s, error = 5.0, None

    def __init__(self, world_size, timeout_s):
        pass

    def run(self, fn, *args):
        raise self.error

    def stop(self):
        pass

    close = stop


@pytest.mark.parametrize(
    ("error", "words"),
    [
        (Mute(), "Mute: (its __str__ raises RuntimeError)"),
        (ValueError("<b>" + "x" * 10**6), "ValueError: &lt;b&gt;x"),
        (KeyboardInterrupt(), "KeyboardInterrupt: "),
        (SystemExit(), "SystemExit: "),
    ],
)
def test_whatever_ends_the_call_run_is_enabled_again(error, words, monkeypatch):
    monkeypatch.setattr(Pool, "error", error)
    monkeypatch.setattr(fault_lab, "Workers", Pool)
    lab = FaultLab()
    lab.run.click()
    assert lab.wait(20) is not None and not lab.run.disabled and lab.stop.disabled
    assert words in lab._message.value and "<b>x" not in lab._message.value and len(lab._message.value) < 5000
    assert words in lab._table.value and len(lab._table.value) < 2000
    assert lab._table.value in lab._static_picture._bundle()["text/html"] and lab._static_picture._bundle()[
        "text/plain"
    ] == repr(lab)
    lab.close()


def test_the_first_line_is_whole_and_the_state_is_a_card(monkeypatch):
    words = "rank 1 did not answer for 5 s, and " + "the others waited in the same all_reduce for it, " * 4
    monkeypatch.setattr(Pool, "error", WorkersError(words + "\nmore", 1, {}, {}))
    monkeypatch.setattr(fault_lab, "Workers", Pool)
    lab = FaultLab()
    lab.run.click()
    lab.wait(20)
    assert words in lab._table.value and "more" not in lab._table.value
    assert "</span> finished</div>" in lab._message.value and "more</pre>" in lab._message.value
    monkeypatch.setattr(Pool, "error", Stopped())
    lab.run.click()
    lab.wait(20)
    assert "</span> stopped</div>" in lab._message.value
    lab.close()
