"""Repairs for messages of PyTorch: those that it gives here, and the texts of those that need GPUs."""

import pickle

import pytest
import torch
import torch.distributed as dist
from torch.utils.data import DataLoader, IterableDataset

from ddp_rehearsal.repairs import refusal_of_a_gpu, repair_of


class Numbers(IterableDataset):
    def __iter__(self):
        return iter(range(4))


def twice():
    x = torch.ones(1, requires_grad=True)
    loss = (x * x).sum()
    loss.backward()
    loss.backward()


def in_place():
    x = torch.ones(2, requires_grad=True)
    y = x.exp()
    y += 1
    y.sum().backward()


def one_example():
    torch.nn.BatchNorm1d(2)(torch.ones(1, 2))


@pytest.mark.parametrize(
    ("fails", "word"),
    [
        (lambda: dist.all_reduce(torch.ones(1)), "init_process_group"),
        (lambda: DataLoader(Numbers(), sampler=[0, 1]), "islice"),
        (lambda: DataLoader(Numbers(), shuffle=True), "shuffle in its __iter__"),
        (lambda: DataLoader([1, 2], sampler=[0, 1], shuffle=True), "Leave shuffle out"),
        (lambda: pickle.dumps(lambda: 1), "no lambda"),
        (twice, "forward pass again"),
        (in_place, "broadcast_buffers=False"),
        (one_example, "drop_last=True"),
    ],
)
def test_a_message_of_this_pytorch(fails, word):
    with pytest.raises(Exception) as raised:
        fails()
    assert word in repair_of(f"{raised.type.__name__}: {raised.value}")


@pytest.mark.parametrize(
    ("message", "word"),
    [
        ("'DistributedDataParallel' object has no attribute 'encode'", "model.module.encode"),
        ("'DataParallel' object has no attribute 'fc'", "model.module.fc"),
        ("Expected to mark a variable ready only once. This error is caused by", "use_reentrant=False"),
        ("DistributedDataParallel is not needed when a module doesn't have any parameter that requires", "Leave Distr"),
        ("unscale_() has already been called on this optimizer since the last update().", "once for each update"),
        ("No inf checks were recorded for this optimizer.", "scaler.scale(loss)"),
        ("step() has already been called since the last update().", "scaler.update()"),
        ("Attempting to unscale FP16 gradients.", "float32"),
        ("The server socket has failed to listen on any local network address. EADDRINUSE", "port"),
        ("train.py: error: unrecognized arguments: --local-rank=0", "LOCAL_RANK"),
    ],
)
def test_a_message_that_people_search(message, word):
    assert word in repair_of(f"RuntimeError: {message}")


@pytest.mark.parametrize(
    ("message", "word"),
    [
        ("Expected all tensors to be on the same device, but found at least two devices", "X.to(device)"),
        ("Cannot re-initialize CUDA in forked subprocess.", "num_workers=0"),
        ("Expected a 'cuda' device type for generator but found 'cpu'", "torch.Generator(device='cuda')"),
        ("CUDA out of memory. Tried to allocate", "checkpointing"),
        ("NCCL does not support all_reduce with sparse tensors.", "sparse=False"),
        ("module must have its parameters and buffers on device cuda:0 (device_ids[0])", "model.to('cuda:0')"),
    ],
)
def test_what_a_gpu_refuses(message, word):
    assert word in refusal_of_a_gpu(message) and not repair_of(message)


def test_some_repairs_depend_on_who_raised_it():
    exists, missing = "FileExistsError: [Errno 17] File exists: 'runs'", "FileNotFoundError: [Errno 2] No such file"
    assert not repair_of(exists) and "exist_ok" in repair_of(exists, of_all=False)
    assert not repair_of(missing) and "barrier" in repair_of(missing, of_all=False)
    arguments = "TypeError: main() takes 2 positional arguments but 9 were given"
    assert not repair_of(arguments) and "a tuple" in repair_of(arguments, is_alone=True)
    assert not repair_of("ValueError: some other text") and not refusal_of_a_gpu("some other text")
