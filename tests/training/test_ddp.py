"""DDP on real ranks against one process and against the threads; nothing counted twice; a resumed run goes on."""

import os
import subprocess
import sys
from types import SimpleNamespace

import pytest
import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn

from d2lite.data.fashion_mnist import load_data_fashion_mnist
from d2lite.devices import describe, try_gpus
from d2lite.models import LeNet, lenet, lenet_params
from d2lite.run_events import listening
from d2lite.training.ddp import (
    describe_ranks,
    evaluate_accuracy_ranks,
    load_checkpoint,
    my_shard,
    save_checkpoint,
    train_ddp,
)
from d2lite.training.evaluation import evaluate_accuracy
from d2lite.training.from_scratch import train, train_batch
from d2lite.training.replicate import replicate
from d2lite.workers import Workers, WorkersError

pytestmark = pytest.mark.skipif(os.name == "nt", reason="Workers needs Linux or macOS")
CPU = torch.device("cpu")


@pytest.fixture(scope="module")
def pools():
    with pytest.warns() if (os.cpu_count() or 1) < 4 else _nothing():
        four = Workers(4, timeout_s=20)
    with Workers(2, timeout_s=20) as two, four:
        yield {2: two, 4: four}


class _nothing:
    def __enter__(self):
        return self

    def __exit__(self, *error):
        pass


def by_value(fn):
    fn.__module__ = "__main__"
    return fn


@by_value
def twenty_steps(sizes, seed):
    """DDP in float64 on this rank's shards; returns the parameters of this rank."""
    from torch.nn.parallel import DistributedDataParallel

    net = DistributedDataParallel(LeNet().double())
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    generator = torch.Generator().manual_seed(seed)
    for n in sizes:
        X = torch.rand(n, 1, 28, 28, generator=generator, dtype=torch.float64)
        y = torch.randint(0, 10, (n,), generator=generator)
        X_shard, y_shard = my_shard(X, y)
        optimizer.zero_grad()
        loss = F.cross_entropy(net(X_shard), y_shard, reduction="sum") / n
        (loss * dist.get_world_size()).backward()
        optimizer.step()
    return [p.detach() for p in net.module.params]


@pytest.mark.parametrize("k", [2, pytest.param(4, marks=pytest.mark.slow)])
def test_ranks_equal_one_process_and_the_threads_of_chapter_2(pools, k):
    sizes = [23] * 10 + [8, 9] * 5  # uneven shards
    generator = torch.Generator().manual_seed(3)
    batches = [
        (
            torch.rand(n, 1, 28, 28, generator=generator, dtype=torch.float64),
            torch.randint(0, 10, (n,), generator=generator),
        )
        for n in sizes
    ]
    start = [p.double() for p in lenet_params()]
    alone = [p.clone().requires_grad_() for p in start]
    optimizer = torch.optim.SGD(alone, lr=0.1)
    threads = replicate(start, [CPU] * k)
    for X, y in batches:
        optimizer.zero_grad()
        F.cross_entropy(lenet(X, alone), y).backward()
        optimizer.step()
        train_batch(X, y, threads, [CPU] * k, lr=0.1)
    ranks = pools[k].run(twenty_steps, sizes, 3)
    for params in ranks:
        assert all(torch.equal(p, q) for p, q in zip(params, ranks[0], strict=True))
    for p, q, r in zip(ranks[0], alone, threads[0], strict=True):
        torch.testing.assert_close(p, q.detach(), rtol=0, atol=1e-9)
        torch.testing.assert_close(p, r.detach(), rtol=0, atol=1e-9)


def test_train_ddp_gives_the_curve_of_train(pools):
    one = train(1, 64, 0.05, num_epochs=1, num_examples=330)
    for k in (2, 4):
        runs = pools[k].run(train_ddp, 64, 0.05, 1, 330)
        assert runs[0].losses == pytest.approx(one.losses, rel=1e-4)
        assert runs[0].losses == runs[1].losses and runs[0].accuracies == runs[1].accuracies
        assert runs[0].settings["num_gpus"] == k and runs[0].status == "finished"


@by_value
def label_of_a_run(here):
    os.environ["LOCAL_WORLD_SIZE"] = here
    return train_ddp(64, 0.05, 1, 128).devices


def test_the_label_of_a_run_says_how_many_ranks_are_on_other_machines(pools, monkeypatch):
    assert pools[2].run(label_of_a_run, "2") == [describe(try_gpus(2))] * 2
    assert pools[2].run(label_of_a_run, "1") == [f"{describe(try_gpus(1))}, 1 on other machines"] * 2
    monkeypatch.setattr(dist, "get_world_size", lambda: 512)  # more than one machine may have
    monkeypatch.setenv("LOCAL_WORLD_SIZE", "8")
    assert describe_ranks() == f"{describe(try_gpus(8))}, 504 on other machines"


@by_value
def a_step_on_a_slow_network():
    """One step; the mean of the losses arrives only while it is waited for, as it may on a slow network."""
    from torch.nn.parallel import DistributedDataParallel

    from d2lite.training import ddp

    class Arrives:
        def __init__(self, mean):
            self.mean = mean

        def wait(self):
            dist.all_reduce(self.mean)

    def mean_over_ranks(loss):
        mean = loss.detach() / dist.get_world_size()
        return mean, Arrives(mean)

    usual, ddp.mean_over_ranks = ddp.mean_over_ranks, mean_over_ranks
    try:
        net = DistributedDataParallel(LeNet())
        X = torch.rand(5, 1, 28, 28, generator=torch.Generator().manual_seed(1))
        return ddp.ddp_step(net, torch.optim.SGD(net.parameters(), lr=0.1), X, torch.arange(5)).item()
    finally:
        ddp.mean_over_ranks = usual


def test_a_step_returns_the_loss_of_the_whole_minibatch_however_late_the_others_arrive(pools):
    X = torch.rand(5, 1, 28, 28, generator=torch.Generator().manual_seed(1))
    expected = F.cross_entropy(LeNet()(X), torch.arange(5)).item()
    assert pools[2].run(a_step_on_a_slow_network) == pytest.approx([expected] * 2, rel=1e-5)


@pytest.mark.parametrize("n", [1, 3, 101])
def test_every_example_is_counted_once(pools, n):
    @by_value
    def evaluate(n):
        _, test_iter = load_data_fashion_mnist(17, 606)
        X, y = test_iter.examples[:n].float() / 255, test_iter.labels[:n]
        data = list(zip(X.split(17), y.split(17), strict=True))
        shards = [my_shard(X, y)[1].tolist() for X, y in data]
        return evaluate_accuracy_ranks(LeNet(), data), sum(shards, [])

    _, test_iter = load_data_fashion_mnist(17, 606)
    X, y = test_iter.examples[:n].float() / 255, test_iter.labels[:n]
    expected = evaluate_accuracy(LeNet(), [(X, y)])
    answers = pools[4].run(evaluate, n)
    assert [a for a, _ in answers] == [expected] * 4
    assert sorted(sum((labels for _, labels in answers), [])) == sorted(y.tolist())


@by_value
def saved_with_momentum(path):
    """Save on a slow disk, and load into a new network and optimizer: is the file there, are both as they were?"""
    import time
    from types import SimpleNamespace

    from torch import nn

    from d2lite.training import ddp

    def made():
        net = nn.Linear(2, 2)
        return net, torch.optim.SGD(net.parameters(), lr=0.1, momentum=0.9)

    def slowly(src, dst, replace=os.replace):
        time.sleep(0.5)
        replace(src, dst)

    run = SimpleNamespace(losses=[1.0], accuracies=[0.5], seconds=[2.0], settings={"lr": 1, "batch_size": 2, "seed": 3})
    net, optimizer = made()
    net(torch.ones(1, 2)).sum().backward()
    optimizer.step()
    usual, os.replace = os.replace, slowly
    try:
        ddp.save_checkpoint(path, net, optimizer, run)
    finally:
        os.replace = usual
    is_there = os.path.exists(path)
    again, momentum = made()
    ddp.load_checkpoint(path, again, momentum, run)
    kept = [torch.equal(a, b) for a, b in zip(again.parameters(), net.parameters(), strict=True)]
    buffers = [state["momentum_buffer"].tolist() for state in momentum.state_dict()["state"].values()]
    return is_there, dist.get_rank() > 0 or all(kept), buffers


def test_all_ranks_find_a_checkpoint_once_it_is_saved_with_the_state_of_the_optimizer(pools, tmp_path):
    found = pools[2].run(saved_with_momentum, str(tmp_path / "checkpoint.pt"))
    assert found == [(True, True, [[[1.0, 1.0]] * 2, [1.0, 1.0]])] * 2


def test_a_resumed_run_has_the_curve_of_an_uninterrupted_one(pools, tmp_path):
    path = str(tmp_path / "checkpoint.pt")
    whole = pools[2].run(train_ddp, 64, 0.05, 3, 320)[0]
    pools[2].run(train_ddp, 64, 0.05, 1, 320, 0, path)
    resumed = pools[2].run(train_ddp, 64, 0.05, 3, 320, 0, path)[0]
    assert resumed.losses == whole.losses and resumed.accuracies == whole.accuracies
    assert os.listdir(tmp_path) == ["checkpoint.pt"]
    assert sorted(torch.load(path, weights_only=True)["net"]) == [f"params.{i}" for i in range(8)]


def test_a_checkpoint_of_other_settings_is_refused(pools, tmp_path):
    path = str(tmp_path / "checkpoint.pt")
    pools[2].run(train_ddp, 64, 0.05, 1, 128, 0, path)
    with pytest.raises(WorkersError, match="expected lr=0.1, got 0.05. Resume with the settings"):
        pools[2].run(train_ddp, 64, 0.1, 2, 128, 0, path)


@pytest.fixture
def alone(monkeypatch):
    """This process is rank 0, and no other rank is waited for."""
    monkeypatch.setattr(dist, "get_rank", lambda: 0)
    monkeypatch.setattr(dist, "barrier", lambda: None)


def network_and_run(value, **settings):
    """A network full of `value`, its optimizer, and the record of a run whose losses are `value`."""
    net = nn.Linear(2, 2)
    for param in net.parameters():
        nn.init.constant_(param, value)
    run = SimpleNamespace(losses=[value], accuracies=[0.5], seconds=[1.0])
    run.settings = {"lr": 0.1, "batch_size": 64, "seed": 0} | settings
    return net, torch.optim.SGD(net.parameters(), lr=0.1), run


def killed(*args):
    raise KeyboardInterrupt


def killed_in_the_middle_of_the_file(state, file, save=torch.save):
    save(state, file)
    os.truncate(file, os.path.getsize(file) // 2)
    raise KeyboardInterrupt


@pytest.mark.parametrize(
    ("module", "name", "instead"), [(os, "replace", killed), (torch, "save", killed_in_the_middle_of_the_file)]
)
def test_a_job_that_is_killed_while_it_saves_keeps_the_checkpoint_before(
    alone, monkeypatch, tmp_path, module, name, instead
):
    path = str(tmp_path / "checkpoint.pt")
    save_checkpoint(path, *network_and_run(1.0))
    monkeypatch.setattr(module, name, instead)
    with pytest.raises(KeyboardInterrupt):
        save_checkpoint(path, *network_and_run(2.0))
    net, optimizer, run = network_and_run(3.0)
    assert load_checkpoint(path, net, optimizer, run) == 1 and run.losses == [1.0]
    assert all((param == 1.0).all() for param in net.parameters())


@pytest.mark.parametrize(("name", "other"), [("lr", 0.2), ("batch_size", 32), ("seed", 1)])
def test_a_checkpoint_is_refused_if_one_setting_differs(alone, tmp_path, name, other):
    path = str(tmp_path / "checkpoint.pt")
    save_checkpoint(path, *network_and_run(1.0))
    net, optimizer, run = network_and_run(3.0, **{name: other})
    with pytest.raises(ValueError, match=f"expected {name}={other}, got "):
        load_checkpoint(path, net, optimizer, run)
    assert run.losses == [3.0] and all((param == 3.0).all() for param in net.parameters())


def test_a_checkpoint_brings_back_all_that_the_run_has_kept(alone, tmp_path):
    path = str(tmp_path / "checkpoint.pt")
    net, optimizer, run = network_and_run(1.0)
    run.losses, run.accuracies, run.seconds = [2.0, 1.5, 1.25, 1.0], [0.25, 0.5], [7.0, 8.0]
    save_checkpoint(path, net, optimizer, run)
    *_, again = given = network_and_run(3.0)
    assert load_checkpoint(path, *given) == 2  # epochs, not steps
    assert (again.losses, again.accuracies, again.seconds) == (run.losses, run.accuracies, run.seconds)


def test_a_panel_gets_the_accuracy_of_each_epoch_at_its_number(pools):
    points = []

    def listener(event, **facts):
        if event == "point":
            points.append((facts["names"], facts["x"], facts["y"]))

    with listening(listener):
        run = pools[2].run(train_ddp, 64, 0.05, 2, 128)[0]
    first, second = run.accuracies
    assert points == [(["test accuracy"], [1], [first]), (["test accuracy"], [2], [second])]


@by_value
def modes_of_evaluation():
    """In which mode a network is evaluated, and in which it is left."""

    class Watched(nn.Linear):
        def forward(self, X):
            modes.append(self.training)
            return super().forward(X)

    modes, net = [], nn.Sequential(Watched(2, 2), nn.Dropout())
    net[1].eval()  # a frozen layer
    evaluate_accuracy_ranks(net, [(torch.ones(4, 2), torch.zeros(4))])
    return modes, [layer.training for layer in net.modules()]


def test_ranks_evaluate_a_network_in_evaluation_mode_and_leave_it_as_it_was(pools):
    assert pools[2].run(modes_of_evaluation) == [([False], [True, True, False])] * 2


@by_value
def seconds_by_a_clock_that_evaluation_moves():
    """The seconds of two epochs, where each step of training takes one, and each of evaluation a thousand."""
    from d2lite import meters

    class Slow(nn.Module):
        def __init__(self):
            super().__init__()
            self.layer = nn.Linear(28 * 28, 10)

        def forward(self, X):
            clock.now += 1 if self.training else 1000
            return self.layer(X.flatten(1))

    clock, usual = SimpleNamespace(now=0.0), meters.time
    meters.time = SimpleNamespace(perf_counter=lambda: clock.now)
    try:
        return train_ddp(64, 0.05, 2, 192, make_net=Slow).seconds, clock.now
    finally:
        meters.time = usual


def test_the_seconds_of_an_epoch_are_those_of_training_alone(pools):
    for seconds, now in pools[2].run(seconds_by_a_clock_that_evaluation_moves):
        assert seconds == [3.0, 3.0] and now > 2000  # 3 steps an epoch; the test set was read twice


def test_no_checkpoint_is_written_without_a_path(monkeypatch):
    monkeypatch.setattr(torch, "save", lambda *args: pytest.fail("saved"))
    save_checkpoint(None, None, None, None)


@pytest.mark.slow
def test_settings_out_of_range_are_told_as_by_train(pools):
    with pytest.raises(WorkersError, match="ValueError: lr: expected a finite number above 0, got 0"):
        pools[2].run(train_ddp, 64, 0, 1, 128)
    with pytest.raises(WorkersError, match="Diverged: diverged at step"):
        pools[2].run(train_ddp, 64, 1e6, 2, 320)


@pytest.mark.slow
def test_torchrun_runs_the_same_function():
    command = [sys.executable, "-m", "torch.distributed.run", "--nproc-per-node=2", "--master-port=0"]
    options = ["--batch-size=64", "--lr=0.05", "--num-epochs=1", "--num-examples=330"]
    out = subprocess.run(
        [*command, "--standalone", "-m", "d2lite.training.ddp", *options],
        capture_output=True,
        text=True,
        timeout=120,
        env=os.environ | {"OMP_NUM_THREADS": "1"},
    )
    assert out.returncode == 0, out.stderr[-2000:]
    one = train(1, 64, 0.05, num_epochs=1, num_examples=330)
    assert out.stdout.startswith("2 devices · lr 0.05 · batch 64: test accuracy ")
    assert float(out.stdout.split("test accuracy ")[1][:5]) == pytest.approx(one.accuracy, abs=0.05)


@pytest.mark.slow
def test_without_torchrun_it_says_how_to_start():
    out = subprocess.run([sys.executable, "-m", "d2lite.training.ddp"], capture_output=True, text=True, timeout=60)
    assert out.returncode == 2 and "expected to be started by torchrun" in out.stderr


@pytest.mark.slow
def test_ddp_warns_of_nothing(capsys):
    with Workers(2) as fresh:  # torch warns once a process
        fresh.run(train_ddp, 64, 0.1, 1, 256)
    assert "Warning" not in capsys.readouterr().out
