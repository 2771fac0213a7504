"""Code of others runs in ranks unchanged."""

import os

import pytest
import torch
import torch.distributed as dist

from d2lite.devices import num_gpus
from notebook_ranks.pool import Workers
from tests.by_value import by_value

TIMEOUT_S = 20  # of the pool

pytestmark = [
    pytest.mark.skipif(os.name == "nt", reason="Workers needs Linux or macOS"),
    pytest.mark.skipif(bool(num_gpus()), reason="the ranks of these tests compute on CPUs"),
]


def step(rank, wrap):
    """Train one step on the rank's half of four examples; return all parameters."""
    torch.manual_seed(0)
    net = wrap(torch.nn.Sequential(torch.nn.Linear(3, 5), torch.nn.Tanh(), torch.nn.Linear(5, 2)))
    X = torch.arange(12.0).reshape(4, 3)[slice(None) if rank is None else slice(2 * rank, 2 * rank + 2)]
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    net(X).square().mean().backward()
    optimizer.step()
    return net


@pytest.mark.slow
def test_a_step_of_fsdp_of_the_first_version_equals_one_process(pool):
    def fsdp(step):
        from torch.distributed.fsdp import FullyShardedDataParallel

        net = step(dist.get_rank(), lambda net: FullyShardedDataParallel(net, device_id=torch.device("cpu")))
        with FullyShardedDataParallel.summon_full_params(net):
            return torch.cat([p.detach().flatten() for p in net.parameters()]).clone()

    alone = torch.cat([p.detach().flatten() for p in step(None, lambda net: net).parameters()])
    for found in pool.run(by_value(fsdp), by_value(step)):
        torch.testing.assert_close(found, alone)


@pytest.mark.slow
def test_torch_compile_says_nothing_and_equals_the_net(pool, capfd):
    def compiled():
        net, X = torch.nn.Linear(3, 2), torch.ones(4, 3)
        loss = torch.compile(net, backend="aot_eager_decomp_partition")(X).sum()
        loss.backward()
        return torch.allclose(loss, net(X).sum()), net.bias.grad.tolist()

    capfd.readouterr()
    assert pool.run(by_value(compiled)) == [(True, [4.0, 4.0])] * 2
    assert capfd.readouterr().out == ""


@pytest.mark.slow
def test_torch_says_nothing_about_a_missing_triton(tmp_path, monkeypatch, capfd):
    (tmp_path / "triton").mkdir()
    (tmp_path / "triton" / "__init__.py").write_text("raise ImportError('no triton here')")
    monkeypatch.syspath_prepend(str(tmp_path))

    def counted():
        from torch.utils import flop_counter

        return flop_counter.__name__

    with Workers(1) as fresh:
        assert fresh.run(by_value(counted)) == ["torch.utils.flop_counter"]
    assert capfd.readouterr().out == ""
