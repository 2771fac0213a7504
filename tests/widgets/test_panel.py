"""Panel: the buttons do what is written on them, the runs and the widgets show the same, nothing is left behind."""

import json
import math
import os
import signal
import sys
import threading
import time

import pytest
import torch
from ipywidgets import widgets

from d2lite import Panel, train
from d2lite.data.batch_iterator import BatchIterator
from d2lite.devices import describe, try_gpus
from d2lite.run_events import Diverged, Stopped, emit
from d2lite.training import Run


def num_threads():
    """The number of threads without those of replica_threads.py, which stay for the next step."""
    return sum(not thread.name.startswith("d2lite-core") for thread in threading.enumerate())


@pytest.fixture(autouse=True)
def nothing_left():
    before, streams = num_threads(), (sys.stdout, sys.stderr)
    yield
    assert num_threads() == before
    assert (sys.stdout, sys.stderr) == streams


def toy(num_gpus, batch_size, lr, num_epochs=2, seed=0, animator=None):
    """A training function that learns nothing, quickly."""
    images = torch.zeros(20, 1, 1, 1, dtype=torch.uint8)
    train_iter = BatchIterator(images, torch.zeros(20), 10, "toys", seed=seed)
    for epoch in range(num_epochs):
        for _ in train_iter:
            pass
        animator.add(epoch + 1, lr)


class Gate:
    """A training function that waits at each of its steps until it is let through."""

    def __init__(self):
        self.steps, self.calls, self.at, self.through = 0, 0, threading.Semaphore(0), threading.Semaphore(0)
        self.__name__ = "gate"

    def __call__(self, lr=0.5, animator=None):
        self.calls += 1
        for i in range(100):
            self.at.release()
            assert self.through.acquire(timeout=20)
            self.steps += 1
            animator.add(i, lr)


def drive(panel):
    panel.train.click()
    return panel.wait()


def until(condition, seconds=20):
    """Return the first true value of condition(), or a false one after that time."""
    end = time.monotonic() + seconds
    while not (value := condition()) and time.monotonic() < end:
        time.sleep(0.02)
    return value


def text(html_widget):
    return html_widget.value


def test_it_reads_the_function_and_shows_which_devices_would_train():
    panel = Panel(train, num_gpus=2, lr=0.2, batch_size=256, fixed={"num_examples": 100})
    assert list(panel.controls) == ["num_gpus", "batch_size", "lr", "num_epochs", "seed"]
    assert describe(try_gpus(2)) in text(panel.layout.devices)
    panel.controls["num_gpus"].value = 3
    assert describe(try_gpus(3)) in text(panel.layout.devices)
    assert ("(no GPU here)" in text(panel.layout.devices)) == (try_gpus(3)[0].type == "cpu")
    assert [b.description for b in (panel.train, panel.stop, panel.clear, panel.save)] == [
        "Train", "Stop", "Clear", "Save"
    ]  # fmt: skip
    assert panel.stop.disabled and not panel.train.disabled
    assert panel.wait() is None and "no run yet" in repr(panel)
    panel.close()


def test_it_takes_functions_only():
    with pytest.raises(TypeError, match=r"Write Panel\(train\), not train\(\)"):
        Panel(None)


def test_real_training_in_the_panel():
    panel = Panel(train, num_gpus=2, lr=0.1, batch_size=50, num_epochs=2, fixed={"num_examples": 100})
    run = drive(panel)
    assert panel.runs == [run] and run.status == "finished" and len(run.accuracies) == 2
    assert run.settings["num_examples"] == 100 and run.devices == describe(try_gpus(2))
    (trace,) = panel.layout.curves.figure.data
    assert list(trace.y) == run.accuracies and trace.name == "2 devices · lr 0.1 · batch 50"
    assert list(panel.layout.losses.figure.data[0].y) == run.losses and panel.layout.loss_box.layout.display == "block"
    assert f"{run.seconds_per_epoch:.3g} s" in text(panel.layout.card)
    assert run.dataset in text(panel.layout.table) and f"{run.accuracy:.1%}" in text(panel.layout.table)
    assert text(panel.layout.status).startswith("Finished") and panel.layout.progress.value == 1.0
    assert "2 devices · lr 0.1 · batch 50: test accuracy" in repr(panel)


def test_runs_lie_over_each_other_with_their_own_names():
    panel = Panel(toy, lr=0.5, num_gpus=1, batch_size=32)
    drive(panel)
    drive(panel)
    panel.controls["num_gpus"].value = 2
    drive(panel)
    names = ["1 device · lr 0.5 · batch 32", "1 device · lr 0.5 · batch 32 (2)", "2 devices · lr 0.5 · batch 32"]
    assert [trace.name for trace in panel.layout.curves.figure.data] == names
    assert len({(t.line.color, t.line.dash) for t in panel.layout.curves.figure.data}) == 3
    assert [list(t.y) for t in panel.layout.curves.figure.data] == [[0.5, 0.5]] * 3
    table = text(panel.layout.table)
    assert all(name in table for name in names) and table.count("finished") == 3
    speed_up = panel.runs[1].seconds_per_epoch / panel.runs[2].seconds_per_epoch  # over the newest on one device
    assert f"<td>{speed_up:.2f}×</td>" in table and "<td>1.00×</td>" in table
    assert f">{speed_up:.2f}×<" in text(panel.layout.card)
    assert panel.layout.loss_box.layout.display == "none"  # this function keeps no losses
    panel.clear.click()
    assert panel.runs == [] and len(panel.layout.curves.figure.data) == 0 and "No run yet" in text(panel.layout.table)
    assert text(panel.layout.card) == ""


def test_two_clicks_start_one_run():
    gate = Gate()
    panel = Panel(gate)
    clicks = [threading.Thread(target=panel.train.click) for _ in range(8)]
    for click in clicks:
        click.start()
    for click in clicks:
        click.join()
    gate.at.acquire(timeout=20)
    panel.train.click()
    panel.clear.click()  # not while it trains
    assert gate.calls == 1 and panel.train.disabled and panel.clear.disabled and not panel.stop.disabled
    panel.stop.click()
    gate.through.release(200)
    assert panel.wait().status == "stopped" and gate.calls == 1 and len(panel.runs) == 1
    assert not panel.train.disabled and panel.stop.disabled


def test_stop_ends_within_one_step_and_train_starts_again():
    gate = Gate()
    panel = Panel(gate, lr=0.25)
    panel.train.click()
    for _ in range(3):
        gate.at.acquire(timeout=20)
        gate.through.release()
    gate.at.acquire(timeout=20)
    panel.stop.click()
    gate.through.release()
    run = panel.wait()
    assert gate.steps == 4 and run.status == "stopped"
    assert run.curves["test accuracy"] == {"x": [0, 1, 2], "y": [0.25] * 3}
    assert text(panel.layout.status).startswith("Stopped")
    gate.through.release(200)
    assert drive(panel).status == "finished" and [run.status for run in panel.runs] == ["stopped", "finished"]


def test_progress_while_it_trains():
    gate = Gate()

    def slow(lr=0.5, num_epochs=4, animator=None):
        images = torch.zeros(20, 1, 1, 1, dtype=torch.uint8)
        for _ in range(num_epochs):
            for _ in BatchIterator(images, torch.zeros(20), 10, "toys", seed=0):
                gate.at.release()
                assert gate.through.acquire(timeout=20)

    panel = Panel(slow, num_epochs=4)
    panel.train.click()
    gate.at.acquire(timeout=20)
    end = time.monotonic() + 10
    while "step 1 of 2" not in text(panel.layout.status) and time.monotonic() < end:
        time.sleep(0.02)
    assert text(panel.layout.status).startswith("Epoch 1 of 4 · step 1 of 2")
    assert panel.layout.progress.value == pytest.approx(1 / 8)
    assert "toys" in text(panel.layout.table) and "running" in text(panel.layout.table)
    gate.through.release(100)
    panel.wait()


def test_the_page_receives_at_most_five_messages_per_second():
    def busy(lr=0.5, animator=None):
        end = time.monotonic() + 1.0
        i = 0
        while time.monotonic() < end:
            animator.add(i, lr)
            i += 1

    panel = Panel(busy)
    sent = []
    panel.layout.status.observe(lambda change: sent.append(change.new), "value")
    run = drive(panel)
    assert len(sent) <= 8 and len(run.curves["test accuracy"]["x"]) > 1000
    (trace,) = panel.layout.curves.figure.data
    assert len(trace.x) <= 2000 and trace.x[-1] == run.curves["test accuracy"]["x"][-1]  # the last state


def test_divergence_is_shown_and_is_no_error():
    panel = Panel(train, num_gpus=1, batch_size=50, lr=1e4, num_epochs=3, fixed={"num_examples": 200})
    run = drive(panel)
    assert run.status.startswith("diverged at step ") and run.status.endswith(", lr 10000")
    assert text(panel.layout.status).startswith("Diverged at step") and run.status in text(panel.layout.table)
    assert panel.wait() is run


def test_a_value_that_is_not_a_number_ends_the_run():
    def nan(lr=0.5, animator=None):
        animator.add(1, 0.5)
        animator.add(2, math.nan)

    run = drive(Panel(nan))
    assert run.status == "diverged at point 2, lr 0.5" and run.curves["test accuracy"]["y"][0] == 0.5


def test_an_exception_is_shown_in_plain_words_and_raised_once_by_wait():
    def broken(lr=0.5):
        print("so far so good")
        raise ValueError("expected <three> shards")

    panel = Panel(broken)
    panel.train.click()
    with pytest.raises(ValueError, match="expected <three> shards"):
        panel.wait()
    shown = text(panel.layout.messages)
    assert "ValueError: expected &lt;three&gt; shards" in shown and "raise ValueError" in shown
    assert "so far so good" in shown and text(panel.layout.status).startswith("Failed")
    assert panel.wait().status == "failed: ValueError"
    assert not panel.train.disabled


def test_settings_that_the_function_refuses_are_shown_too():
    panel = Panel(train, num_gpus=4, batch_size=2, fixed={"num_examples": 100})
    panel.train.click()
    with pytest.raises(ValueError, match="Choose fewer devices"):
        panel.wait()
    assert "Choose fewer devices" in text(panel.layout.messages)


def test_an_interrupt_while_waiting_stops_the_run():
    if threading.current_thread() is not threading.main_thread() or os.name == "nt":
        pytest.skip("signals reach the main thread of POSIX systems only")
    gate = Gate()
    gate.through.release(1)
    panel = Panel(gate)
    panel.train.click()

    def interrupt():
        gate.at.acquire(timeout=20)
        waiting.wait(20)
        time.sleep(0.2)
        os.kill(os.getpid(), signal.SIGINT)
        time.sleep(0.3)
        gate.through.release(200)

    waiting = threading.Event()
    other = threading.Thread(target=interrupt)
    other.start()
    with pytest.raises(KeyboardInterrupt):
        waiting.set()
        panel.wait()
    other.join()
    assert not panel.running and panel.runs[0].status == "stopped" and gate.steps <= 3


def test_wait_gives_up_after_its_time():
    gate = Gate()
    panel = Panel(gate)
    panel.train.click()
    assert panel.wait(timeout=0.1) is None and panel.running
    panel.stop.click()
    gate.through.release(200)
    assert panel.wait(timeout=20).status == "stopped"


def test_save_writes_a_run_file(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    panel = Panel(toy, lr=0.5, num_gpus=1, batch_size=32, seed=7)
    panel.save.click()
    assert "Nothing to save" in text(panel.layout.status) and not os.listdir(tmp_path)
    drive(panel)
    panel.save.click()
    (name,) = os.listdir(tmp_path)
    assert name.startswith("d2lite-runs-") and name in text(panel.layout.status)
    saved = json.loads((tmp_path / name).read_text("utf-8"))
    assert saved["function"] == "toy" and saved["runs"][0]["curves"]["test accuracy"]["y"] == [0.5, 0.5]
    assert saved["runs"][0]["seed"] == 7 and saved["runs"][0]["dataset"] == "toys"
    assert panel.save_to(tmp_path / "mine.json").name == "mine.json"


def test_a_save_that_fails_keeps_the_runs_and_shows_why(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    panel = Panel(toy, lr=0.5, num_gpus=1, batch_size=32)
    drive(panel)
    monkeypatch.setattr(os, "replace", lambda *_: (_ for _ in ()).throw(OSError(28, "No space left on device")))
    panel.save.click()
    assert "Not saved: No space left on device" in text(panel.layout.messages)
    assert len(panel.runs) == 1 and not os.listdir(tmp_path)


@pytest.mark.parametrize(
    ("error", "words"),
    [
        (PermissionError(13, "Permission denied"), "Not saved: Permission denied. The runs are kept"),
        (FileNotFoundError(2, "No such file or directory"), "Not saved: No such file or directory. The runs are kept"),
        (ValueError("path: expected a <regular> file"), "Not saved: ValueError: path: expected a &lt;regular&gt; file"),
        (UnicodeEncodeError("utf-8", "\ud800", 0, 1, "surrogates not allowed"), "Not saved: UnicodeEncodeError"),
    ],
)
def test_whatever_save_raises_is_said_in_the_panel(error, words, monkeypatch):
    panel = Panel(toy, lr=0.5, num_gpus=1, batch_size=32)
    drive(panel)
    monkeypatch.setattr("d2lite.widgets.panel.save", lambda *_: (_ for _ in ()).throw(error))
    panel.save.click()
    assert words in text(panel.layout.messages) and text(panel.layout.status) == "Not saved; the runs are kept."
    assert len(panel.runs) == 1
    panel.close()


def test_a_save_never_overwrites_another_run(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(time, "strftime", lambda *_: "20300101-120000")
    panels = [Panel(toy, lr=lr, num_gpus=1, batch_size=32) for lr in (0.25, 0.5)]
    for panel in panels:
        drive(panel)
        panel.save.click()
        panel.close()
    saved = [json.loads(file.read_text("utf-8"))["runs"][0]["settings"]["lr"] for file in tmp_path.iterdir()]
    assert sorted(saved) == [0.25, 0.5]


class Mute(Exception):
    def __str__(self):
        raise RuntimeError("not today")


class Oddly(Diverged):
    def __init__(self):
        pass


@pytest.mark.parametrize(
    ("error", "status"),
    [
        (Mute, "failed: Mute"),
        (Oddly, "failed: AttributeError"),
        (type("<b>T</b>", (Exception,), {}), "failed: <b>T</b>"),
        (GeneratorExit, "failed: GeneratorExit"),
        (KeyboardInterrupt, "failed: KeyboardInterrupt"),
        (SystemExit, "failed: SystemExit"),
        (Stopped, "stopped"),
    ],
)
def test_whatever_the_function_raises_train_is_enabled_again(error, status):
    def raises(lr=0.5):
        raise error

    panel = Panel(raises)
    for _ in range(2):
        panel.train.click()
        if status == "stopped":
            assert panel.wait(20).status == "stopped"
        else:
            with pytest.raises(BaseException) as caught:
                panel.wait(20)
            assert status == f"failed: {type(caught.value).__name__}"
        assert panel.runs[-1].status == status and not panel.train.disabled and panel.stop.disabled
    assert "<b>T" not in text(panel.layout.messages) + text(panel.layout.table)
    panel.close()


def test_a_message_of_any_length_is_cut_for_the_page():
    def raises(lr=0.5):
        print("y" * 10**6)
        raise ValueError("x" * 10**7 + "\n" * 1000)

    panel = Panel(raises)
    panel.train.click()
    with pytest.raises(ValueError) as caught:
        panel.wait(20)
    assert len(str(caught.value)) > 10**7  # whole for those who wait
    shown = text(panel.layout.messages)
    assert len(shown) < 9000 and shown.count("\n") < 80 and "characters more" in shown
    panel.close()


def test_what_cannot_be_drawn_disables_nothing(monkeypatch):
    panel = Panel(toy, lr=0.5, num_gpus=1, batch_size=32)
    monkeypatch.setattr(panel.layout, "draw", lambda runs: runs[0].no_such_curve)
    for _ in range(2):
        panel.train.click()
        panel.wait(20)
        assert not panel.train.disabled and panel.stop.disabled
    assert "This cannot be drawn: AttributeError" in text(panel.layout.messages)
    panel.close()


def test_a_value_that_cannot_be_read_fails_the_run():
    def fn(lr=0.5):
        emit("point", names=["loss"], x=[1], y=[torch.ones((), device="meta")])

    panel = Panel(fn)
    panel.train.click()
    with pytest.raises(RuntimeError, match="meta"):
        panel.wait(20)
    assert panel.runs[0].status == "failed: RuntimeError" and not panel.train.disabled
    panel.close()


class Unprintable:
    def __repr__(self):
        raise RuntimeError("not today")


def test_a_thread_that_cannot_start_and_a_setting_that_cannot_be_shown(monkeypatch):
    panel = Panel(lambda net, lr=0.5: None, fixed={"net": Unprintable()})
    with monkeypatch.context() as patch:
        patch.setattr(threading.Thread, "start", lambda _: (_ for _ in ()).throw(RuntimeError("no more threads")))
        panel.train.click()
    assert "RuntimeError: no more threads" in text(panel.layout.messages) and not panel.train.disabled
    with pytest.raises(RuntimeError, match="no more threads"):
        panel.wait(20)
    assert drive(panel).status == "finished" and "Unprintable" in panel.runs[0].settings["net"]
    panel.close()


@pytest.fixture
def endless():
    """A panel at work whose function emits no event."""
    inside, release = threading.Event(), threading.Event()

    def loop(lr=0.5):
        inside.set()
        while not release.is_set():
            pass

    panel = Panel(loop)
    panel.train.click()
    assert inside.wait(10)
    yield panel
    release.set()
    panel.close()


def test_stop_that_is_not_seen_says_so_after_two_seconds_and_offers_an_interrupt(endless):
    panel, shown = endless, endless.layout.interrupt.layout
    assert shown.display == "none"
    panel.stop.click()
    pressed = time.monotonic()
    assert until(lambda: "Stopping" in text(panel.layout.status)) and shown.display == "none"
    until(lambda: shown.display is None)
    assert 1.5 < time.monotonic() - pressed and "Press Interrupt" in text(panel.layout.messages)
    assert "Not stopped yet, see the reason below: press Interrupt" in text(panel.layout.status)
    panel.interrupt.click()
    assert panel.wait(20).status == "stopped" and shown.display == "none"
    assert text(panel.layout.messages) == "" and not panel.train.disabled
    assert text(panel.layout.status).startswith("Stopped")


def test_close_ends_a_function_without_events(endless, monkeypatch):
    monkeypatch.setattr("d2lite.widgets.background.GRACE_S", 0.2)
    began = time.monotonic()
    endless.close()
    assert time.monotonic() - began < 15 and endless.runs[0].status == "stopped"


def test_close_returns_though_the_function_is_inside_a_wait(monkeypatch):
    monkeypatch.setattr("d2lite.widgets.background.GRACE_S", 0.1)
    inside, release = threading.Event(), threading.Event()

    def waits(lr=0.5):
        inside.set()
        release.wait(30)

    panel = Panel(waits)
    panel.train.click()
    inside.wait(10)
    began = time.monotonic()
    with pytest.warns(RuntimeWarning, match="close: the run has not ended: .* It ends with the kernel"):
        panel.close()
    assert time.monotonic() - began < 15
    release.set()
    assert panel.wait(20).status == "stopped"


def test_what_a_learner_names_is_text_on_the_page():
    def fn(lr="<img src=x onerror=alert(1)>", animator=None):
        print("<b>printed</b>")
        images = torch.zeros(20, 1, 1, 1, dtype=torch.uint8)
        for _ in BatchIterator(images, torch.zeros(20), 10, "<script>data</script>", seed=0):
            pass
        animator.legend = ["<a href='javascript:alert(1)'>%{x}</a>"]
        animator.add(1, 0.5)

    fn.__name__ = "<u>fn</u>"
    panel = Panel(fn, fixed={"lr": "<img src=x onerror=alert(1)>"})
    drive(panel)
    view = panel.layout
    shown = [text(w) for w in (view.devices, view.status, view.messages, view.table)]
    shown += [
        json.dumps(view.curves.figure.to_plotly_json(), default=repr),
        json.dumps(view.losses.figure.to_plotly_json(), default=repr),
    ]
    for markup in ("<img", "<script", "<a ", "<b>printed", "<u>", "%{x}<"):
        assert not any(markup in page for page in shown), markup
    assert "&lt;script&gt;data&lt;/script&gt;" in view.curves.figure.layout.title.text
    assert "&lt;script&gt;data" in text(view.table) and "&lt;b&gt;printed" in text(view.messages)
    panel.close()


def test_of_two_panels_the_later_one_stops_the_earlier_and_both_say_so():
    gates = [Gate(), Gate()]
    earlier, later = (Panel(gate, lr=lr) for gate, lr in zip(gates, (0.25, 0.75), strict=True))
    earlier.train.click()
    assert gates[0].at.acquire(timeout=20)
    later.train.click()
    assert until(lambda: "Waiting for an earlier run" in text(later.layout.status))
    assert not gates[1].at.acquire(blocking=False)
    for gate in gates:
        gate.through.release(200)
    assert (earlier.wait().status, later.wait().status) == ("stopped", "finished")
    assert "another run was started" in text(earlier.layout.status)
    assert later.runs[0].curves["test accuracy"]["y"] == [0.75] * 100


def test_the_status_line_names_a_machine_that_other_programs_use(monkeypatch):
    monkeypatch.setattr(Run, "disturbance", "Other programs used 1.9 of 2 CPU cores.")
    panel = Panel(toy, lr=0.5, num_gpus=1, batch_size=32)
    drive(panel)
    assert text(panel.layout.status).endswith("other programs run")
    panel.close()


def test_without_a_front_end_it_is_text():
    panel = Panel(toy, lr=0.5, num_gpus=1, batch_size=32)
    bundle = panel._repr_mimebundle_()
    assert bundle["text/plain"].startswith("Panel(toy, num_gpus=1, batch_size=32, lr=0.5, num_epochs=2, seed=0)")
    assert "application/vnd.jupyter.widget-view+json" in bundle


def test_the_function_runs_unchanged_without_a_panel():
    run = train(1, 50, 0.1, num_epochs=1, num_examples=100)
    again = drive(Panel(train, num_gpus=1, batch_size=50, lr=0.1, num_epochs=1, fixed={"num_examples": 100}))
    assert again.accuracies == run.accuracies and again.losses == run.losses


def test_a_run_makes_no_new_widgets_and_close_ends_them_all():
    before = len(widgets.widget._instances)
    panel = Panel(toy, lr=0.5, num_gpus=1, batch_size=32)
    drive(panel)
    after_one = len(widgets.widget._instances)
    drive(panel)
    assert len(widgets.widget._instances) == after_one
    panel.close()
    assert len(widgets.widget._instances) <= before + 1
