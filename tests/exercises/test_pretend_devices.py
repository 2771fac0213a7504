"""Tensors on one device each: they move with .to, and do not mix."""

import pytest
import torch

from d2lite import all_reduce
from d2lite.exercises import Unfit
from d2lite.exercises.pretend_devices import PretendDevices, PretendTensor, without_device


@pytest.fixture
def log():
    return []


@pytest.fixture
def machine(log):
    return PretendDevices(lambda name, i, result, inputs: log.append((name.strip("_"), i, len(inputs))))


def test_a_tensor_names_its_device_and_shares_its_memory(machine):
    numbers = torch.arange(3.0)
    placed = machine.put(numbers, 2)
    assert placed.device == torch.device("cpu", 2) and placed.data_ptr() == numbers.data_ptr()
    placed += 1
    assert numbers.tolist() == [1, 2, 3] and placed.shape == (3,) and placed.numel() == 3


def test_results_stay_on_the_device(machine, log):
    a = machine.put(torch.ones(4), 1)
    for result in (a + 1, 2 * a, a[1:], a.view(2, 2), torch.zeros_like(a), a.sum(), torch.stack([a, a]), a.split(2)[1]):
        assert isinstance(result, PretendTensor) and result.home == 1
    assert {i for _, i, _ in log} == {1} and ("add", 1, 1) in log


def test_two_devices_do_not_mix(machine):
    a, b = (machine.put(torch.ones(2), i) for i in (0, 1))
    for mix in (lambda: a + b, lambda: a.add_(b), lambda: torch.cat([a, b]), lambda: sum([a, b])):
        with pytest.raises(Unfit, match="has tensors of device 0 and device 1, which GPUs refuse"):
            mix()
    assert (a + b.to(a.device)).home == 0 and (a + b.to(a)).home == 0
    assert a.copy_(b) is a and a.home == 0
    a[:] = b
    assert a.tolist() == [1, 1]


def test_to_copies_to_another_device_only(machine):
    a = machine.put(torch.ones(2), 0)
    assert a.to(a.device) is a and a.to(torch.device("cpu", 0), copy=True) is not a
    moved = a.to("cpu:1")
    moved += 1
    assert (moved.home, a.tolist(), moved.tolist()) == (1, [1, 1], [2, 2])
    assert a.to(torch.float64).dtype == torch.float64 and a.to(torch.float64).home == 0


@pytest.mark.parametrize("move", [lambda t: t.to("cpu"), lambda t: t.to("cuda:0"), lambda t: t.cpu()])
def test_a_device_that_is_none_of_them_is_refused(machine, move):
    with pytest.raises(Unfit, match="which names none of the devices"):
        move(machine.put(torch.ones(2), 0))


def test_the_kits_all_reduce_adds_on_the_first(machine, log):
    tensors = [machine.put(torch.full((3,), float(i)), i) for i in (2, 0, 1)]
    for algorithm in ("naive", "ring"):
        log.clear()
        all_reduce(tensors, "sum", algorithm)
        adders = {i for name, i, n in log if name in ("iadd", "add") and n > 1}
        assert adders == ({2} if algorithm == "naive" else {0, 1, 2})


def test_without_strictness_devices_mix(log):
    machine = PretendDevices(lambda *event: log.append(event), strict=False)
    a, b = (machine.put(torch.ones(2), i) for i in (0, 1))
    assert (a + b).tolist() == [2, 2] and (b + a).home == 1


def test_without_device_gives_plain_tensors(machine):
    a = machine.put(torch.ones(2), 0)
    assert type(without_device(a)) is torch.Tensor and without_device("x") == "x"
    assert type(without_device([a, (a, 1)])[1][0]) is torch.Tensor


def test_a_plain_tensor_that_moves_to_a_pretend_one_keeps_its_own_numbers():
    there = PretendDevices(lambda *_: None).put(torch.tensor([0.0, 1.0, 2.0]), 1)
    for moved in (torch.zeros(3).type_as(there), torch.zeros(3).to(there)):
        assert moved.tolist() == [0.0, 0.0, 0.0] and moved.home == 1
