"""The fair comparison: run, stop, comparison, wrong settings; nothing is left running."""

import threading
import time

import pytest

from d2lite.labs.chapter_09 import Arm, FairComparison, Trial
from d2lite.labs.chapter_09 import fair_comparison as module


@pytest.fixture
def panel():
    made = FairComparison(Arm("A", 24, 0.1), Arm("B", 48, 0.1), num_seeds=2, num_examples=240, num_epochs=1)
    yield made
    made.close()
    assert not [t for t in threading.enumerate() if t.name in ("d2lite-experiment", "d2lite-training")]


def test_it_trains_both_arms_and_compares_them(panel):
    assert "differ in: batch size." in repr(panel) and panel.comparison is None
    panel.run.click()
    trials = panel.wait(60)
    assert len(trials) == 4 and panel.comparison is not None and panel.comparison.num_seeds == (2, 2)
    assert "B: " in panel.summary.value and "against A" in panel.summary.value
    assert "240 examples in 10 steps" in panel.summary.value and "in 5 steps" in panel.summary.value
    assert panel.progress.value == 1.0 and "finished" in panel.status.value
    assert not panel.run.disabled and panel.stop.disabled and len(panel.figure.data[2].x) == 4
    panel.controls["b.lr"].value = 1.0
    assert "The settings have changed since" in panel.summary.value
    assert "no single one is shown to be the cause" in panel.summary.value


def test_the_same_wall_time_and_a_network_that_was_used(panel):
    panel.controls["lock"].value, panel.controls["seconds"].value = "wall time", 0.05
    panel.controls["b.kept"].value = "everything"
    panel.run.click()
    trials = panel.wait(60)
    assert len(trials) == 4 and all(trial.seconds >= 0.05 for trial in trials)
    assert "seconds of training" in panel.figure.layout.xaxis.title.text


def test_the_comparison_is_on_the_seeds_that_both_arms_have(panel):
    for name, seed, accuracy in (("A", 1, 0.5), ("B", 0, 0.9), ("A", 2, 0.6), ("B", 1, 0.65), ("A", 0, 0.8)):
        assert panel.comparison is None
        panel.trials.append(Trial(panel.arms["AB".index(name)], seed, [accuracy]))
        panel._result()
    assert panel.comparison.num_seeds == (2, 2)  # seed 2 of A has no counterpart
    assert panel.comparison.means == pytest.approx((0.65, 0.775)) and panel.comparison.paired_spread is not None


def test_stop_ends_it_soon_and_keeps_what_is_done(panel):
    panel.controls["num_seeds"].value, panel.controls["num_epochs"].value = 20, 20
    panel.run.click()
    panel.run.click()  # the second of two clicks
    time.sleep(0.2)
    panel.stop.click()
    assert len(panel.wait(20)) < 40 and "stopped" in panel.status.value
    assert not panel.run.disabled


def test_settings_that_do_not_fit_are_said_and_start_nothing(panel):
    panel.controls["a.num_gpus"].value, panel.controls["a.batch_size"].value = 4, 32
    panel.num_examples = 33
    panel.run.click()
    with pytest.raises(ValueError, match="expected two examples per device"):
        panel.wait(60)
    assert "ValueError: arm &#x27;A&#x27;" in panel.status.value and not panel.run.disabled


def test_a_failure_is_shown_and_raised(panel, monkeypatch):
    monkeypatch.setattr(module, "run_arms", lambda *args, **kwargs: 1 / 0)
    panel.run.click()
    with pytest.raises(ZeroDivisionError):
        panel.wait(60)
    assert "ZeroDivisionError" in panel.status.value and not panel.run.disabled


def test_a_wait_is_bounded(panel):
    panel.controls["num_seeds"].value, panel.controls["num_epochs"].value = 20, 20
    panel.run.click()
    with pytest.raises(TimeoutError, match="did not end within 0.1 s"):
        panel.wait(0.1)
    panel.wait(20)


def test_names_are_escaped():
    panel = FairComparison(Arm("<b>x"), Arm("y"), num_examples=240)
    assert panel.view.children[2].children[0].children[0].value == "<b>&lt;b&gt;x</b>"
    panel.close()


def test_two_names_are_needed():
    with pytest.raises(ValueError, match="expected an arm with another name than a, got 'x' twice"):
        FairComparison(Arm("x"), Arm("x"))
    with pytest.raises(TypeError, match="a: expected Arm, got 3"):
        FairComparison(3)
    with pytest.raises(ValueError, match="num_seeds: expected a whole number from 2 to 20, got 1"):
        FairComparison(num_seeds=1)
