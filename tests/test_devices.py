import pytest
import torch

from d2lite import devices
from d2lite.devices import describe, synchronize, try_all_gpus, try_gpu, try_gpus

CPU = torch.device("cpu")


@pytest.fixture
def gpus(monkeypatch):
    """Return have(n): a machine with n GPUs."""
    monkeypatch.setattr(devices, "_name", lambda d: "NVIDIA H200" if d.type == "cuda" else "CPU")
    return lambda n: monkeypatch.setattr(torch.cuda, "device_count", lambda: n)


def cuda(*indices):
    return [torch.device("cuda", i) for i in indices]


@pytest.mark.parametrize(
    ("present", "k", "expected"),
    [(0, 3, [CPU] * 3), (1, 3, cuda(0, 0, 0)), (2, 3, cuda(0, 1, 0)), (8, 3, cuda(0, 1, 2))],
)
def test_try_gpus_shares_what_there_is(gpus, present, k, expected):
    gpus(present)
    assert try_gpus(k) == expected


def test_try_gpu_and_try_all_gpus(gpus):
    gpus(0)
    assert try_all_gpus() == [CPU] and try_gpu() == CPU
    gpus(2)
    assert try_all_gpus() == cuda(0, 1) and try_gpu(1) == cuda(1)[0] and try_gpu(2) == CPU


@pytest.mark.parametrize("k", [0, -1, 65, 10**9])
def test_try_gpus_refuses_counts(k):
    with pytest.raises(ValueError, match=f"num_gpus: expected a whole number from 1 to 64, got {k}"):
        try_gpus(k)


@pytest.mark.parametrize("k", [True, 2.5, 2.0, "2", None])
def test_try_gpus_refuses_types(k):
    with pytest.raises(TypeError, match="num_gpus: expected a whole number from 1 to 64"):
        try_gpus(k)


@pytest.mark.parametrize(("i", "error"), [(-1, ValueError), (True, TypeError), (0.0, TypeError)])
def test_try_gpu_refuses(i, error):
    with pytest.raises(error, match="i: expected the index of a GPU"):
        try_gpu(i)


@pytest.mark.parametrize(
    ("cores", "k", "expected"),
    [
        (2, 1, "1 replica on 1 CPU core"),
        (2, 2, "2 replicas on 2 CPU cores"),
        (2, 4, "4 replicas share 2 CPU cores"),
        (1, 2, "2 replicas share 1 CPU core"),
    ],
)
def test_describe_cpu(monkeypatch, cores, k, expected):
    monkeypatch.setattr(devices, "num_cores", lambda: cores)
    assert describe([CPU] * k) == expected


@pytest.mark.parametrize(
    ("used", "expected"),
    [
        (cuda(0), "1 replica on 1 NVIDIA H200"),
        (cuda(0, 0, 0, 0), "4 replicas share 1 NVIDIA H200"),
        (cuda(0, 1), "2 replicas on 2 NVIDIA H200"),
        (cuda(0, 1, 0), "3 replicas share 2 NVIDIA H200"),
        ([*cuda(0), CPU], "2 replicas on 1 NVIDIA H200 + 1 CPU"),
    ],
)
def test_describe_gpus(gpus, used, expected):
    gpus(2)
    assert describe(used) == expected


def test_describe_nothing():
    with pytest.raises(ValueError, match="devices: expected at least one device, got none"):
        describe([])


def test_synchronize_waits_once_for_each_gpu(monkeypatch):
    waited = []
    monkeypatch.setattr(torch.cuda, "synchronize", waited.append)
    synchronize([CPU, *cuda(0, 1, 0), "cpu"])
    assert waited == cuda(0, 1)
