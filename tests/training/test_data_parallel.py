import copy
import gc
import threading

import pytest
import torch
import torch.nn.functional as F
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

from d2lite.models import LeNet, SimpleCNN, resnet18
from d2lite.replica_threads import parallel_apply
from d2lite.training.data_parallel import DataParallel, wrap

CPU = torch.device("cpu")


def shard_by_shard(module, X, y, k):
    """The oracle, what nn.DataParallel does: each shard by a copy of its own, gradients summed on the first."""
    outputs, copies = [], [module, *(copy.deepcopy(module) for _ in range(k - 1))]
    for net, shard in zip(copies, X.tensor_split(k), strict=True):
        outputs.append(net(shard))
    F.cross_entropy(torch.cat(outputs), y).backward()
    grads = [sum(ps) for ps in zip(*([p.grad for p in net.parameters()] for net in copies), strict=True)]
    return torch.cat(outputs).detach(), grads


@settings(max_examples=10)
@given(k=st.integers(1, 8), extra=st.integers(0, 9), seed=st.integers(0, 9))
def test_without_batchnorm_k_devices_equal_one(k, extra, seed):
    torch.manual_seed(seed)
    X, y = torch.rand(k + extra, 1, 28, 28, dtype=torch.float64), torch.randint(0, 10, (k + extra,))
    one = SimpleCNN().double()
    net = DataParallel(copy.deepcopy(one), [CPU] * k)
    expected, got = one(X), net(X)
    torch.testing.assert_close(got, expected, rtol=0, atol=1e-9)
    for output in (expected, got):
        F.cross_entropy(output, y).backward()
    for p, q in zip(net.parameters(), one.parameters(), strict=True):
        torch.testing.assert_close(p.grad, q.grad, rtol=0, atol=1e-9)


@pytest.mark.parametrize("k", [1, 2, pytest.param(3, marks=pytest.mark.slow)])
def test_batchnorm_is_treated_as_nn_data_parallel_does(batch, k):
    X, y = batch(11, torch.float64)
    torch.manual_seed(0)
    oracle = resnet18(10, width=4).double()
    net = DataParallel(copy.deepcopy(oracle), [CPU] * k)
    for _ in range(3):  # running statistics need several steps to tell shards apart
        expected, grads = shard_by_shard(oracle, X, y, k)
        net.zero_grad()
        output = net(X)
        F.cross_entropy(output, y).backward()
        torch.testing.assert_close(output, expected, rtol=0, atol=1e-9)
        for p, grad in zip(net.parameters(), grads, strict=True):
            torch.testing.assert_close(p.grad, grad, rtol=0, atol=1e-9)
        oracle.zero_grad()
    for (name, mine), theirs in zip(net.module.named_buffers(), oracle.buffers(), strict=True):
        torch.testing.assert_close(mine, theirs, rtol=0, atol=1e-9, msg=name)


def test_gradients_accumulate_and_reach_the_input(batch):
    X, _ = batch(5)
    net = DataParallel(LeNet(), [CPU] * 2)
    X.requires_grad_()
    net(X).sum().backward()
    once = net.module.params[0].grad.clone()
    expected = torch.autograd.grad(net.module(X).sum(), X)[0]
    torch.testing.assert_close(X.grad, expected)
    net(X).sum().backward()
    torch.testing.assert_close(net.module.params[0].grad, 2 * once)


def test_copies_follow_the_module(batch):
    X, _ = batch(6)
    net = DataParallel(nn.Sequential(nn.Flatten(), nn.Linear(784, 3), nn.Dropout(0.5)), [CPU] * 3)
    net.eval()
    with torch.no_grad():
        net(X)
        net.module[1].weight.fill_(1.0)
        assert torch.equal(net(X), net.module(X))
        net.module[1] = nn.Linear(784, 4)  # another structure
        assert torch.equal(net(X), net.module(X))
    net.module[1].weight.requires_grad_(False)  # frozen
    net(X).sum().backward()
    assert net.module[1].weight.grad is None and net.module[1].bias.grad is not None
    assert all(not r.training for r in net.replicate())
    net.train()
    assert all(r[2].training for r in net.replicate())


def test_replicas_share_no_storage_and_are_no_state():
    net = DataParallel(LeNet(), [CPU] * 3)
    places = [p.data_ptr() for r in net.replicate() for p in r.parameters()]
    assert len(set(places)) == 24
    assert list(net.state_dict()) == [f"module.params.{i}" for i in range(8)]
    assert len(list(net.parameters())) == 8


def test_replicas_of_a_very_long_module_share_no_storage_either():
    net = DataParallel(nn.ModuleList(nn.Linear(1, 1) for _ in range(1100)), [CPU] * 2)
    places = [p.data_ptr() for r in net.replicate() for p in r.parameters()]
    assert len(set(places)) == len(places) == 4400


def test_a_minibatch_smaller_than_the_devices_uses_fewer(batch):
    X, _ = batch(2)
    net = DataParallel(LeNet(), [CPU] * 4)
    torch.testing.assert_close(net(X), net.module(X))


def test_no_replica_gets_an_empty_shard():
    seen = []

    class Watched(nn.Identity):
        def forward(self, X):
            seen.append(len(X))
            return X

    DataParallel(Watched(), [CPU] * 4)(torch.ones(2, 3))
    assert seen == [1, 1]


def test_both_passes_compute_in_one_thread_a_replica(batch):
    seen = []

    class Spy(nn.Module):
        def __init__(self):
            super().__init__()
            self.w = nn.Parameter(torch.ones(1))

        def forward(self, X):
            h = X.flatten(1).sum(1, keepdim=True) * self.w
            seen.append(("forward", threading.get_ident(), torch.get_num_threads()))
            h.register_hook(lambda g: seen.append(("backward", threading.get_ident(), torch.get_num_threads())))
            return h

    DataParallel(Spy(), [CPU] * 3)(batch(6)[0]).sum().backward()
    for way in ("forward", "backward"):
        threads = [(ident, n) for name, ident, n in seen if name == way]
        assert len(threads) == 3 and all(n == 1 and i != threading.get_ident() for i, n in threads)


def test_errors_name_the_replica_and_the_device(batch):
    net = DataParallel(LeNet(), [CPU] * 2)
    with pytest.raises(RuntimeError, match="replica 0 on cpu failed: .*shape"):
        net(torch.zeros(4, 1, 20, 20))
    with pytest.raises(ValueError, match="module: expected outputs .b, .... for shards of .2, 2. examples, got shapes"):
        DataParallel(nn.LSTM(2, 2), [CPU] * 2)(torch.zeros(4, 2, 2))
    with pytest.raises(TypeError, match="module: expected an nn.Module, got function"):
        DataParallel(lambda X: X, [CPU])
    with pytest.raises(TypeError, match="module: expected an nn.Module, got function"):
        wrap(lambda X: X, [torch.device("cuda", i) for i in range(2)])
    with pytest.raises(ValueError, match="devices: expected at least one device"):
        DataParallel(LeNet(), [])


def test_wrap_takes_ours_where_there_are_not_two_gpus():
    assert isinstance(wrap(LeNet(), [CPU] * 2), DataParallel)
    assert isinstance(wrap(LeNet(), ["cpu"]), DataParallel)


def test_a_training_inside_a_replica_leaves_no_tensors_behind():
    def trained(seed):
        generator = torch.Generator().manual_seed(seed)
        net = DataParallel(nn.Sequential(nn.Linear(13, 17), nn.Sigmoid(), nn.Linear(17, 1)), [CPU, CPU])
        for _ in range(3):  # a sigmoid keeps its output for the backward pass
            net(torch.rand(38, 13, generator=generator)).sum().backward()

    parallel_apply(trained, [CPU, CPU], [0, 1])
    gc.collect()
    assert [tuple(t.shape) for t in gc.get_objects() if type(t) is torch.Tensor and t.shape == (19, 17)] == []
