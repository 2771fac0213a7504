"""What needs a GPU; one is enough, replicas share it. Needs pytest alone: `python -m pytest --noconftest tests/gpu`."""

import pytest
import torch
from torch import nn

from d2lite import (
    DataParallel,
    SimpleCNN,
    Timer,
    all_reduce,
    evaluate_accuracy,
    evaluate_accuracy_gpus,
    init_all,
    lenet_params,
    num_gpus,
    replicate,
    resnet18,
    split_batch,
    train,
    train_batch,
    train_concise,
    try_gpus,
    wrap,
)
from ddp_rehearsal.tolerances import full_float32

if not num_gpus():
    pytest.skip("no CUDA GPU here: torch.cuda.device_count() is 0", allow_module_level=True)

two_gpus = pytest.mark.skipif(num_gpus() < 2, reason=f"needs two GPUs, {num_gpus()} here")
DEVICE = torch.device("cuda", 0)


@pytest.fixture(autouse=True)
def exact_float32():
    """Without TF32, whose rounding would hide a wrong sum."""
    with full_float32():
        yield


def make_batch(n, dtype=torch.float64, seed=0):
    generator = torch.Generator().manual_seed(seed)
    X = torch.rand(n, 1, 28, 28, generator=generator, dtype=dtype)
    return X, torch.randint(0, 10, (n,), generator=generator)


def after_steps(devices, dtype, batches, lr=0.1):
    device_params = replicate([p.to(dtype) for p in lenet_params(0)], devices)
    losses = [float(train_batch(X, y, device_params, devices, lr)) for X, y in batches]
    return losses, [[p.detach().cpu() for p in params] for params in device_params]


@pytest.mark.parametrize("k", [2, 3, 4, 8])
@pytest.mark.parametrize(("dtype", "close"), [(torch.float64, 1e-9), (torch.float32, 1e-4)])
def test_replicas_that_share_a_gpu_equal_one(k, dtype, close):
    batches = [make_batch(n, dtype, seed) for seed, n in enumerate((37, 64, 11))]  # uneven shards
    losses, (expected,) = after_steps([DEVICE], dtype, batches)
    shared_losses, replicas = after_steps([DEVICE] * k, dtype, batches)
    assert shared_losses == pytest.approx(losses, rel=close)
    for params in replicas:
        for param, same, want in zip(params, replicas[0], expected, strict=True):
            assert torch.equal(param, same)  # every replica took the same step
            torch.testing.assert_close(param, want, rtol=close, atol=close)


def test_a_gpu_equals_the_cpu():
    batches = [make_batch(37), make_batch(64, seed=1)]
    losses, ((*expected,),) = after_steps([torch.device("cpu")], torch.float64, batches)
    gpu_losses, ((*params,),) = after_steps([DEVICE], torch.float64, batches)
    assert gpu_losses == pytest.approx(losses, rel=1e-9)
    torch.testing.assert_close(params, expected, rtol=1e-9, atol=1e-9)


def test_replicas_share_no_storage():
    source = [p.to(DEVICE) for p in lenet_params(0)]
    everything = [source, *replicate(source, [DEVICE] * 3)]
    places = [p.untyped_storage().data_ptr() for params in everything for p in params]
    assert len(set(places)) == len(places)
    net = DataParallel(SimpleCNN(), [DEVICE] * 3)
    places = [p.untyped_storage().data_ptr() for replica in net.replicate() for p in replica.parameters()]
    assert len(set(places)) == len(places)
    with pytest.raises(ValueError, match="shares its memory"):
        all_reduce([source[0], source[0].to(DEVICE)])


def test_timer_waits_for_the_gpu():
    A = torch.rand(4096, 4096, device=DEVICE)
    start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    A @ A
    timer = Timer([DEVICE])
    start.record()
    for _ in range(50):
        A @ A
    end.record()
    seconds = timer.stop()
    assert end.query(), "the clock was read before the GPU was done"
    assert seconds >= 0.95 * start.elapsed_time(end) / 1e3


@pytest.mark.parametrize("k", [1, 2, 3, 7])
def test_evaluate_accuracy_gpus_is_exact(k):
    net = wrap(SimpleCNN(), [DEVICE] * k)
    data = [make_batch(n, torch.float32, seed) for seed, n in enumerate((64, 64, 7, 2))]
    want = sum(int((net.module(X.to(DEVICE)).argmax(1).cpu() == y).sum()) for X, y in data) / 137
    assert evaluate_accuracy_gpus(net, data) == want == evaluate_accuracy(net.module, data)
    assert evaluate_accuracy_gpus(net, data, split_batch) == want


@pytest.mark.parametrize("k", [2, 3])
def test_data_parallel_on_one_gpu_equals_one_device(k):
    alone = init_all(SimpleCNN().to(DEVICE).double())
    net = DataParallel(init_all(SimpleCNN().double()), [DEVICE] * k)
    X, y = make_batch(37)
    X = X.to(DEVICE)
    outputs = []
    for module in (alone, net):
        outputs.append(module(X.requires_grad_()))
        nn.functional.cross_entropy(outputs[-1], y.to(DEVICE)).backward()
    torch.testing.assert_close(outputs[1], outputs[0], rtol=1e-9, atol=1e-9)
    for mine, want in zip(net.module.parameters(), alone.parameters(), strict=True):
        torch.testing.assert_close(mine.grad, want.grad, rtol=1e-9, atol=1e-9)


def test_running_statistics_are_those_of_the_first_shard():
    X, _ = make_batch(10, torch.float32)
    alone, net = (init_all(resnet18(10, width=4)) for _ in range(2))
    alone.to(DEVICE)(X.to(DEVICE)[:5])
    DataParallel(net, [DEVICE] * 2)(X)
    for mine, want in zip(net.buffers(), alone.buffers(), strict=True):
        torch.testing.assert_close(mine, want)


def test_train_with_replicas_that_share_a_gpu():
    one, two = (train(k, 64, 0.1, num_epochs=2, num_examples=640) for k in (1, 2))
    assert two.losses[:8] == pytest.approx(one.losses[:8], rel=1e-3)  # from step to step the rounding grows
    assert two.losses == pytest.approx(one.losses, rel=0.1)
    names = {torch.cuda.get_device_name(device) for device in try_gpus(2)}
    assert all(name in two.devices for name in names) and one.devices.startswith("1 replica on")


def test_train_concise_in_bf16():
    gpu = pytest.importorskip("benchmarks.gpu")
    net = gpu.Bf16(resnet18(10, width=8))
    run = train_concise(net, 1, 64, 0.1, num_epochs=3, num_examples=1920)
    assert run.status == "finished" and sum(run.losses[-10:]) < 0.7 * sum(run.losses[:10])
    assert all(p.dtype == torch.float32 and p.device == DEVICE for p in net.parameters())
    conv = net.net[3].conv1.weight  # init_all keeps the layout
    assert conv.is_contiguous(memory_format=torch.channels_last)
    logits = net(torch.rand(5, 1, 28, 28, device=DEVICE))
    assert logits.dtype == torch.float32 and logits.shape == (5, 10)


def test_train_concise_runs_again_from_the_same_start():
    net = SimpleCNN()
    first, second = (train_concise(net, 1, 64, 0.05, num_epochs=1, num_examples=640) for _ in range(2))
    assert second.losses == pytest.approx(first.losses, rel=1e-3)


def test_the_benchmark_runs_on_the_card():
    gpu = pytest.importorskip("benchmarks.gpu")
    rows = gpu.rows(512, width=8, epochs=1, n=1, workers=0, compiled=False)
    assert all(row.ours and not row.skipped for row in rows)


@two_gpus
def test_two_gpus_take_torchs_own_data_parallel():
    net = wrap(SimpleCNN(), try_gpus(2))
    assert isinstance(net, nn.DataParallel)
    data = [make_batch(n, torch.float32, seed) for seed, n in enumerate((64, 7, 1))]
    assert evaluate_accuracy_gpus(net, data) == evaluate_accuracy(net.module, data)
    one, two = (train_concise(SimpleCNN(), k, 64, 0.05, num_epochs=1, num_examples=640) for k in (1, 2))
    assert two.losses == pytest.approx(one.losses, rel=1e-3)


@two_gpus
def test_two_gpus_equal_one():
    batches = [make_batch(n, torch.float64, seed) for seed, n in enumerate((37, 64))]
    losses, (expected,) = after_steps([DEVICE], torch.float64, batches)
    both_losses, replicas = after_steps(try_gpus(2), torch.float64, batches)
    assert both_losses == pytest.approx(losses, rel=1e-9)
    for params in replicas:
        torch.testing.assert_close(params, expected, rtol=1e-9, atol=1e-9)


def test_a_gpu_computes_the_sums_that_the_same_code_computes_on_the_cpu():
    fingerprint = pytest.importorskip("ddp_rehearsal.fingerprint")
    sums = pytest.importorskip("ddp_rehearsal.gpu_fingerprint")
    generator = torch.Generator().manual_seed(0)
    kinds = (torch.float32, torch.bfloat16, torch.float64, torch.int64, torch.bool, torch.complex64)
    tensors = [torch.rand(n, 3, generator=generator).mul(9).to(dtype) for dtype in kinds for n in (0, 1, 40, 9000)]
    tensors.append(torch.rand(3_000_000, generator=generator))
    for complete in (True, False):
        on_gpu = fingerprint.tensor_prints([t.to(DEVICE) for t in tensors], complete)
        for tensor, (digest, values) in zip(tensors, on_gpu, strict=True):
            flat = tensor.reshape(-1)
            if not complete and len(flat) > fingerprint.MOST_VALUES:
                flat = flat[:: -(-len(flat) // fingerprint.MOST_VALUES)]
            assert digest == sums.joined_sums(flat, (len(flat),))[0]
            assert values == fingerprint.tensor_print(tensor, complete)[1]
    X = torch.rand(300, 5, 7, generator=generator)
    assert fingerprint.row_prints(X.to(DEVICE)) == tuple(sums.row_sums(X.reshape(300, -1)))
