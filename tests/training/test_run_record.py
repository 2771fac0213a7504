import errno
import json
import math
import os
import stat
import threading

import pytest
import torch

import d2lite
from d2lite.data.batch_iterator import BatchIterator
from d2lite.devices import describe
from d2lite.run_events import Diverged
from d2lite.training.run_record import Run, as_json, format_setting, legends, save

CPU = torch.device("cpu")


def begin(n=100, batch_size=10, k=2, lr=0.1, num_epochs=3):
    train_iter = BatchIterator(torch.zeros(n, 1, 1, 1), torch.zeros(n), batch_size, "toy", seed=0)
    return Run.begin([CPU] * k, train_iter, lr, num_epochs, seed=0)


def test_one_example_per_device_is_enough():
    assert begin(n=21, batch_size=19, k=2).status == "running"  # the last minibatch has two
    with pytest.raises(ValueError, match="at least 3 examples, one per device, got a minibatch of 2"):
        begin(n=21, batch_size=19, k=3)


def test_a_run_keeps_what_it_is_given_and_derives_the_rest():
    run = begin()
    assert math.isnan(run.accuracy) and run.status == "running"
    for seconds, accuracy in [(2.0, 0.5), (9.0, 0.6), (4.0, 0.7)]:
        run.add_loss(torch.tensor(1.5))
        run.add_epoch(seconds, accuracy)
    assert run.finish() is run and run.status == "finished"
    assert (run.losses, run.accuracy) == ([1.5] * 3, 0.7)
    assert (run.seconds_per_epoch, run.examples_per_s) == (4.0, 25.0)
    assert run.legend == "2 devices · lr 0.1 · batch 10"
    assert "test accuracy 0.700, 4.00 s/epoch, 25 examples/s (2 replicas" in repr(run)
    (saved,) = json.loads(json.dumps(as_json([run])))["runs"]
    assert saved["devices"] == describe([CPU] * 2) and saved["dataset"] == "toy"
    assert saved["settings"] == {"num_gpus": 2, "batch_size": 10, "lr": 0.1, "num_epochs": 3, "seed": 0}
    assert saved["versions"]["torch"] == torch.__version__


@pytest.mark.parametrize("loss", [math.nan, math.inf, torch.tensor(-math.inf)])
def test_a_run_that_diverges_says_where_and_keeps_its_curve(loss):
    run = begin(lr=5)
    run.add_loss(2.0)
    with pytest.raises(Diverged, match=r"diverged at step 2, lr 5: the loss is .*ten times smaller") as caught:
        run.add_loss(loss)
    assert (caught.value.step, caught.value.lr, caught.value.run) == (2, 5, run)
    assert run.losses[0] == 2.0 and run.status == "diverged at step 2, lr 5"


@pytest.mark.parametrize(
    ("settings", "error", "message"),
    [
        ({"lr": 0}, ValueError, "lr: expected a finite number above 0, got 0"),
        ({"lr": math.nan}, ValueError, "lr: expected"),
        ({"lr": "0.1"}, TypeError, "lr: expected"),
        ({"num_epochs": 0}, ValueError, "num_epochs: expected a positive whole number, got 0"),
        ({"n": 101}, ValueError, r"at least 2 examples, one per device, got a minibatch of 1 \(101 examples"),
        ({"batch_size": 1}, ValueError, "batch_size 1: expected every minibatch to hold at least 2"),
    ],
)
def test_begin_refuses_before_anything_is_computed(settings, error, message):
    with pytest.raises(error, match=message):
        begin(**settings)


def test_a_setting_of_any_length_is_cut_in_a_legend():
    runs = [
        Run(settings={"num_gpus": 2, "note": note}, devices="", dataset="", num_examples=1)
        for note in ("a" * 10**6, "b" * 10**6, "b" * 10**6)
    ]
    names = legends(runs)
    assert names[0] == f"2 devices · note {'a' * 37}..." and names[2].endswith("b... (2)")
    assert len(Run(settings={"lr": "x" * 10**6}, devices="", dataset="", num_examples=1).legend) < 50
    assert format_setting(0.1 + 0.2) == "0.3"


def saved_runs(path):
    return len(json.loads(path.read_text("utf-8"), parse_constant=pytest.fail)["runs"])


def test_a_saved_run_names_the_version_of_this_kit(monkeypatch):
    monkeypatch.setattr("notebook_ranks.__version__", "9.9")
    assert as_json([])["versions"]["d2lite"] == d2lite.__version__


def test_save_replaces_the_file_that_is_named_and_keeps_its_permissions(tmp_path):
    path = save([begin()], tmp_path / "runs.json")
    path.chmod(0o640)
    assert save([begin(), begin()], str(path)) == path and saved_runs(path) == 2
    assert stat.S_IMODE(path.stat().st_mode) == 0o640 and os.listdir(tmp_path) == ["runs.json"]


def test_save_follows_a_link(tmp_path):
    (tmp_path / "shared").mkdir()
    link = tmp_path / "runs.json"
    for n in (1, 2):  # to nothing, then to a file
        if not link.is_symlink():
            link.symlink_to("shared/mine.json")
        assert save([begin()] * n, link) == link
        assert link.is_symlink() and saved_runs(tmp_path / "shared" / "mine.json") == n
    assert os.listdir(tmp_path / "shared") == ["mine.json"]


def test_save_knows_the_home_folder(tmp_path, monkeypatch):
    monkeypatch.setenv("HOME", str(tmp_path))
    assert save([begin()], "~/runs.json") == tmp_path / "runs.json" and saved_runs(tmp_path / "runs.json") == 1


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda path: path.mkdir(), "path: expected the name of a file, got .*runs.json, which is no regular file"),
        (lambda path: os.mkfifo(path), "which is no regular file. Choose another name"),
        (lambda path: path.symlink_to("/dev/null"), "got /dev/null, which is no regular file"),
        (lambda path: path.symlink_to("/dev/full"), "got /dev/full, which is no regular file"),
        (lambda path: path.symlink_to("missing/runs.json"), "the folder does not exist: '.*missing'"),
        (lambda path: path.symlink_to(path.name), "symbolic links.*runs.json"),
    ],
    ids=["folder", "pipe", "null", "full", "missing folder", "link to itself"],
)
def test_save_refuses_what_is_no_regular_file_and_leaves_it(tmp_path, make, message):
    path = tmp_path / "runs.json"
    make(path)
    before = path.lstat()
    with pytest.raises(OSError, match=message):
        save([begin()], path)
    assert os.listdir(tmp_path) == ["runs.json"]
    assert (path.lstat().st_ino, path.lstat().st_mode) == (before.st_ino, before.st_mode)
    assert stat.S_ISCHR(os.stat("/dev/null").st_mode)


@pytest.mark.parametrize(("path", "message"), [("", "no regular file"), (".", "no regular file"), ("..", "no regular")])
def test_save_refuses_a_folder(path, message, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(OSError, match=message):
        save([begin()], path)
    assert not os.listdir(tmp_path)


def test_save_refuses_a_read_only_file(tmp_path, monkeypatch):
    path = save([begin()], tmp_path / "runs.json")
    path.chmod(0o444)
    monkeypatch.setattr(os, "access", lambda *args: False)  # as for everyone but root
    with pytest.raises(PermissionError, match="the file is read-only: .*runs.json"):
        save([begin()] * 2, path)
    assert saved_runs(path) == 1


@pytest.mark.parametrize("name", ["runs.json", None])
def test_an_error_names_the_file_and_leaves_nothing_behind(tmp_path, monkeypatch, name):
    def full(*args):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OSError, match=r"No space left on device: '.*runs.*\.json'") as caught:
        save([begin()], name)
    assert caught.value.errno == errno.ENOSPC and caught.value.strerror == "No space left on device"
    assert not os.listdir(tmp_path)


def test_a_name_as_long_as_the_system_allows(tmp_path):
    assert saved_runs(save([begin()], tmp_path / ("r" * 250 + ".json"))) == 1


def test_saves_at_the_same_moment_never_overwrite_each_other(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("time.strftime", lambda *_: "20260101-120000")
    paths, barrier = [], threading.Barrier(8)

    def both():
        barrier.wait()
        for _ in range(5):
            paths.append(save([begin()]))

    threads = [threading.Thread(target=both) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(set(paths)) == 40 == len(os.listdir(tmp_path))
    assert {saved_runs(path) for path in paths} == {1}


class Hostile:
    def __repr__(self):
        raise ZeroDivisionError

    __str__ = __deepcopy__ = __reduce__ = __repr__


def test_save_writes_settings_of_any_kind(tmp_path):
    run = begin()
    run.settings |= {"odd": Hostile(), "lock": threading.Lock(), "name": "\udc80", "deep": [{"x": math.nan}]}
    path = save([run], tmp_path / "runs.json")
    (saved,) = json.loads(path.read_text("utf-8"))["runs"]
    assert saved["settings"]["odd"] == "<Hostile>" and saved["settings"]["lock"].startswith("<unlocked")
    assert saved["settings"]["name"] == "\udc80" and saved["settings"]["deep"] == [{"x": None}]


@pytest.mark.parametrize(
    ("runs", "message"),
    [
        ([1], r"runs\[0\]: expected Run, got 1 \(int\). `train` returns one."),
        ("runs.json", r"runs: expected a list, got 'runs.json' \(str\)"),
        (None, r"runs: expected a list, got None"),
    ],
)
def test_save_refuses_what_is_no_run_and_writes_nothing(runs, message, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(TypeError, match=message):
        save(runs)
    with pytest.raises(TypeError, match=r"runs: expected a list of Run, got a Run. Put it into a list: \[run\]."):
        save(begin())
    assert not list(tmp_path.iterdir())
