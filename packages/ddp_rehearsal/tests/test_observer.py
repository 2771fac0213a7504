"""The observer alone: what it notes reaches its file, late or soon, and never from another process."""

import errno
import os
import threading

import pytest
import torch
from torch import nn

from ddp_rehearsal import observer as module
from ddp_rehearsal.observations import DataSet, Forward, NotObserved, Scheduled, as_line, read_observations
from ddp_rehearsal.observer import Observer


@pytest.fixture
def observer(tmp_path):
    observer = Observer(20, lambda: None)
    observer.open(tmp_path / "rank-0.jsonl")
    with observer.file:
        yield observer


class FullDisk:
    """A file that takes nothing, then three bytes, then all."""

    def __init__(self, file):
        self.file, self.times = file, 0

    def write(self, data):
        self.times += 1
        if self.times == 1:
            raise OSError(errno.ENOSPC, "no space")
        return self.file.write(data[:3] if self.times == 2 else data)


def names(tmp_path):
    return [one.name for one in read_observations(tmp_path, {0: "rank-0"})[0].noted]


def test_a_forward_pass_is_written_with_what_follows_it(observer, tmp_path):
    observer.note(Forward, model=0, name="a", rows=())
    assert names(tmp_path) == []
    observer.note(Scheduled, name="b")
    assert names(tmp_path) == ["a", "b"]
    observer.note(Forward, model=0, name="c", rows=())
    observer.write()  # as the next pulse does
    observer.write()  # nothing waits
    assert names(tmp_path) == ["a", "b", "c"]


def test_a_full_disk_stops_nothing_and_loses_nothing(observer, tmp_path, capsys):
    observer.file = FullDisk(observer.file)
    observer.note(Scheduled, name="a")
    assert "not observed: OSError" in capsys.readouterr().err
    observer.note(Scheduled, name="b")
    assert names(tmp_path) == []  # a line that was cut
    observer.note(Scheduled, name="c")
    assert names(tmp_path) == ["a", "b", "c"]


def test_a_signal_of_the_script_while_the_observer_writes_stops_nothing(observer, tmp_path, monkeypatch):
    def line(one):
        if one.name == "a":
            observer.note(Scheduled, name="in the handler")  # as one that saves a checkpoint
        return as_line(one)

    monkeypatch.setattr(module, "LOCK_S", 0.01)
    monkeypatch.setattr(module, "as_line", line)
    observer.note(Scheduled, name="a")
    observer.note(Scheduled, name="b")
    assert names(tmp_path) == ["a", "in the handler", "b"]


def test_what_one_thread_notes_and_another_one_writes_are_all_there(observer, tmp_path):
    ended = threading.Event()

    def pulse():
        while not ended.is_set():
            observer.write()

    thread = threading.Thread(target=pulse)
    thread.start()
    for i in range(300):
        observer.note(Forward, model=0, name=f"{i}", rows=())
    ended.set()
    thread.join(20)
    observer.write()
    assert names(tmp_path) == [f"{i}" for i in range(300)]


def test_another_process_writes_nothing_and_waits_for_nothing(observer, tmp_path, monkeypatch):
    monkeypatch.setattr(os, "getpid", lambda: observer.pid + 1)  # as in a child that the script has forked
    with observer.writing:  # while a thread of the rank was about to write
        observer.end("returned")
    assert (tmp_path / "rank-0.jsonl").read_text() == ""


def test_what_is_kept_is_measured_at_a_network_that_learns(observer):
    observer._begin_to_measure(nn.Linear(2, 2).requires_grad_(False))  # a teacher
    assert observer.measures is None
    observer._begin_to_measure(nn.Linear(2, 2))
    observer.measures.__exit__(None, None, None)


def test_an_optimizer_stays_unscaled_until_its_update(observer):
    first, second = (torch.optim.SGD(nn.Linear(2, 1).parameters(), lr=0.1) for _ in "ab")
    for optimizer in (first, second):
        observer._unscale(lambda *_: None, None, optimizer)
    observer._backward(lambda: None)
    assert len(observer.unscaled) == 4
    observer._before_update(first, (), {})
    observer._after_update(first, (), {})
    assert observer.unscaled == {id(p) for p in second.param_groups[0]["params"]}
    observer._clear(lambda _: None, second)
    assert observer.unscaled == set()


def test_passes_are_counted_from_0_in_a_join_and_after_it(observer):
    for around in (observer._may_end_earlier, observer._join_ends):
        observer._backward(lambda: None)
        around(lambda *_: None, None)
    assert (observer.passes, observer.joins, observer._calls()) == (0, 2, 2)


def test_a_measurement_ends_where_torch_func_refuses_hooks(observer):
    net = nn.Linear(2, 1)
    observer._begin_to_measure(net)
    with torch.autograd.graph.saved_tensors_hooks(lambda x: x, lambda x: x):
        pass  # hooks of the script's own, which it has taken off again
    observer._without_hooks(lambda: None)
    assert torch.func.grad(lambda x: (x * x).sum())(torch.ones(2)).tolist() == [2, 2]
    assert observer.measures is None and observer.activations == -1 and observer.measured


def test_examples_are_not_read_for_long(observer, tmp_path, monkeypatch):
    monkeypatch.setattr(module, "READING_S", 0.0)
    observer.data_sets = {0: [(torch.ones(2), 1)] * 3}
    observer._read_data_sets()
    assert not read_observations(tmp_path, {0: "rank-0"})[0].of(DataSet)
    monkeypatch.setattr(module, "READING_S", 60.0)
    observer._read_data_sets()
    assert len(read_observations(tmp_path, {0: "rank-0"})[0].of(DataSet)) == 1


def test_collectives_that_were_not_looked_at_are_told(observer, tmp_path):
    observer.own_collectives.not_noted = 12
    observer.end("exit")
    (missed,) = read_observations(tmp_path, {0: "rank-0"})[0].of(NotObserved)
    assert missed.error == "its last 12 collectives were not looked at."
