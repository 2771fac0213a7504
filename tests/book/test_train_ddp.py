"""The plain script against the book's loop: the same global minibatches, the same weights, on one rank and on two."""

import importlib.util
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DistributedSampler

from d2lite.training import ddp_step
from tools.cluster import agents, hosts

pytestmark = pytest.mark.skipif(os.name == "nt", reason="needs Linux or macOS")
SCRIPT = Path(__file__).parents[2] / "book" / "scripts" / "train_ddp.py"
BATCH, SAMPLES, LR, CLIP = 80, 430, 0.05, 0.5
# 430 is no multiple of 80, and pieces of 24 of a rank's 80 or 40 samples are uneven
SETTINGS = f"--synthetic {SAMPLES} --batch-size {BATCH} --piece-size 24 --lr {LR} --clip {CLIP} --num-epochs 2".split()


def load_script():
    spec = importlib.util.spec_from_file_location("train_ddp_script", SCRIPT)
    script = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(script)
    return script


@pytest.fixture
def one_rank(monkeypatch):
    """The environment of a rank that is alone; what the script leaves is tidied up."""
    variables = {"RANK": 0, "WORLD_SIZE": 1, "LOCAL_RANK": 0, "MASTER_ADDR": "127.0.0.1"}
    for name, value in (variables | {"MASTER_PORT": hosts.free_port()}).items():
        monkeypatch.setenv(name, str(value))
    yield load_script()
    if dist.is_initialized():
        dist.destroy_process_group()


@pytest.fixture(scope="module")
def two_ranks(tmp_path_factory):
    """The checkpoint of a run on two ranks of one host that nothing interrupted, with a worker for each loader."""
    path = tmp_path_factory.mktemp("two") / "whole.pt"
    torchrun = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2"]
    command = [*torchrun, str(SCRIPT), *SETTINGS, "--num-workers", "1", "--checkpoint", str(path)]
    env = os.environ | ({"CUDA_VISIBLE_DEVICES": ""} if torch.cuda.device_count() < 2 else {})
    done = subprocess.run(command, capture_output=True, text=True, timeout=100, env=env)
    assert done.returncode == 0, done.stderr[-2000:]
    assert "epoch 2: test accuracy" in done.stdout and "on 2 ranks" in done.stdout
    assert [file.name for file in path.parent.iterdir()] == ["whole.pt"]
    return weights(path)


def weights(path):
    return torch.load(path, map_location="cpu", weights_only=True)["net"]


def check_equal(found, expected, atol=2e-5):
    assert found.keys() == expected.keys()
    for name in found:
        torch.testing.assert_close(found[name], expected[name], rtol=0, atol=atol)


def book_loop(script, num_epochs):
    """Chapter 5's step on the global minibatches of the script, without pieces; returns its weights."""
    args = script.parse(SETTINGS)
    dist.init_process_group("gloo")
    dataset = script.make_dataset(args, True)
    sampler = DistributedSampler(dataset, 1, 0, seed=args.seed, drop_last=True)
    torch.manual_seed(args.seed)
    module = script.make_net().to("cuda" if torch.cuda.is_available() else "cpu")
    optimizer = torch.optim.SGD(module.parameters(), lr=LR, momentum=0.9)
    optimizer.register_step_pre_hook(lambda *_: nn.utils.clip_grad_norm_(module.parameters(), CLIP) and None)
    net = DistributedDataParallel(module)
    for epoch in range(num_epochs):
        sampler.set_epoch(epoch)
        order = torch.tensor(list(sampler))
        for chosen in order[: SAMPLES // BATCH * BATCH].split(BATCH):
            ddp_step(net, optimizer, *(tensor[chosen] for tensor in dataset.tensors))
    dist.destroy_process_group()
    return {name: value.cpu() for name, value in module.state_dict().items()}


@pytest.mark.release
def test_one_rank_and_two_equal_the_books_loop_and_a_resumed_run_equals_both(one_rank, two_ranks, tmp_path):
    expected = book_loop(one_rank, num_epochs=2)
    one = [*SETTINGS, "--num-workers", "0"]
    one_rank.main([*one, "--checkpoint", str(tmp_path / "whole.pt")])
    whole = weights(tmp_path / "whole.pt")
    check_equal(whole, expected)
    check_equal(two_ranks, expected)

    start = {name: value.clone() for name, value in book_loop(one_rank, num_epochs=0).items()}
    assert max((start[name] - expected[name]).abs().max() for name in start) > 0.005  # it learned

    stopped = tmp_path / "stopped.pt"
    one_rank.main([*one, "--num-epochs", "1", "--checkpoint", str(stopped)])
    shutil.copy(stopped, tmp_path / "epoch-1.pt")
    one_rank.main([*one, "--checkpoint", str(stopped)])
    check_equal(weights(stopped), whole, atol=0)

    make = hosts.loopback if hosts.why_no_namespaces() else hosts.namespaces
    resumed = tmp_path / "epoch-1.pt"  # one rank has made it; two hosts with a rank each go on
    resume = [str(SCRIPT), *one, "--checkpoint", str(resumed)]
    with make(2) as cluster, agents.Job(cluster, resume) as job:
        assert job.wait(100) == [0, 0], job.said(0) + job.said(1)
        assert "epoch 2" in job.said(0) and "epoch 1" not in job.said(0)
    check_equal(weights(resumed), expected)


def test_the_last_collective_has_no_tensor(one_rank, monkeypatch):
    """A thread of gloo that holds a tensor while the interpreter ends aborts the rank, now and then."""
    calls = []
    for name in ("all_reduce", "broadcast_object_list", "barrier", "destroy_process_group"):
        original = getattr(dist, name)
        monkeypatch.setattr(dist, name, lambda *a, f=original, n=name, **k: (calls.append(n), f(*a, **k))[1])
    one_rank.main(["--synthetic", "300", "--num-workers", "0", "--num-epochs", "1"])
    assert calls[-2:] == ["barrier", "destroy_process_group"] and "all_reduce" in calls


def test_every_sample_is_counted_once(one_rank, monkeypatch):
    args = one_rank.parse(["--synthetic", "11", "--num-workers", "0"])
    dataset, net = one_rank.make_dataset(args, False), one_rank.make_net()
    exact = (net(dataset.tensors[0]).argmax(1) == dataset.tensors[1]).float().mean().item()
    sums = []
    monkeypatch.setattr(dist, "all_reduce", lambda counts: sums.append(counts.clone()))
    monkeypatch.setattr(dist, "get_world_size", lambda: 4)
    for rank in range(4):  # 11 samples on 4 ranks: a sampler that pads would count 12
        monkeypatch.setattr(dist, "get_rank", lambda rank=rank: rank)
        one_rank.evaluate(net, dataset, torch.device("cpu"), args)
    correct, samples = sum(sums).tolist()
    assert samples == 11 and correct / samples == pytest.approx(exact)


def test_bf16_trains_and_a_batch_that_does_not_divide_is_refused(one_rank, monkeypatch, capfd):
    common = ["--synthetic", "400", "--num-workers", "0", "--num-epochs", "1"]
    one_rank.main([*common, "--bf16", "--batch-size", "40"])
    assert float(capfd.readouterr().out.split("accuracy ")[1].split()[0]) > 0.3
    monkeypatch.setattr(dist, "get_world_size", lambda *_: 3)
    with pytest.raises(SystemExit, match="a multiple of 3 ranks, got 256"):
        one_rank.main(common)
