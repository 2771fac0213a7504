"""Synchronised BatchNorm against torch's BatchNorm on the whole minibatch, on real ranks, with uneven shards."""

import ast
import copy
import inspect
import os

import pytest
import torch
import torch.distributed as dist
from torch import nn

from d2lite.devices import num_gpus
from d2lite.exercises.learner_pool import quiet_pool
from d2lite.labs.chapter_10 import sync_batchnorm
from d2lite.labs.chapter_10.sync_batchnorm import (
    SyncBatchNorm,
    convert_sync_batchnorm,
    moments_over_ranks,
    sum_over_ranks,
)
from d2lite.models import resnet18
from d2lite.training.data_parallel import DataParallel
from d2lite.workers import Workers
from tests.book.test_book import BOOK, Untyped, code_cells, plain
from tests.by_value import by_value

CHAPTER = BOOK / "10-batch-normalisation.ipynb"
ON_RANKS = pytest.mark.skipif(os.name == "nt", reason="Workers needs Linux or macOS")
SIZES = {"even": [4, 4, 4], "uneven": [5, 1, 3], "an empty shard": [7, 0, 4]}
SHAPES = {"features": (3,), "images": (3, 5, 4), "volumes": (3, 2, 3, 2)}


@pytest.fixture(scope="module")
def workers():
    with quiet_pool(3, timeout_s=20) as pool:
        yield pool


@pytest.fixture(scope="module")
def two_workers():
    with quiet_pool(2, timeout_s=20) as pool:
        yield pool


def batches(sizes, shape, steps=3, dtype=torch.float64):
    """Whole minibatches and gradients of the outputs; each channel has another mean and another spread."""
    generator = torch.Generator().manual_seed(len(shape) + sum(sizes))
    for _ in range(steps):
        X = torch.randn(sum(sizes), *shape, generator=generator, dtype=torch.float64).transpose(0, 1)
        X = torch.stack([(i + 1) * x + 10 * i for i, x in enumerate(X)], 1)
        yield X.to(dtype), torch.randn(X.shape, generator=generator, dtype=torch.float64).to(dtype)


def trained(net, inputs):
    """The outputs, the gradients of X and of the parameters of every step, and the buffers at the end."""
    found = {"outputs": [], "X": [], "params": []}
    for X, grad in inputs:
        X = X.clone().requires_grad_()
        net.zero_grad()
        output = net(X)
        output.backward(grad)
        found["outputs"].append(output.detach())
        found["X"].append(X.grad)
        found["params"].append([p.grad for p in net.parameters()])
    return found | {"buffers": list(net.buffers())}


@by_value
def on_this_rank(net, inputs, sizes):
    rank = dist.get_rank()
    return trained(net, [(X.split(sizes)[rank], grad.split(sizes)[rank]) for X, grad in inputs])


def with_values(layer):
    """The layer in 64-bit numbers, with a scale and a shift for each channel."""
    layer = layer.double()
    for param, first in zip(layer.parameters(), (0.5, -1.0), strict=False):
        nn.init.constant_(param, first).data += torch.arange(len(param))
    return layer


def assert_equal(shards, whole):
    for name in ("outputs", "X"):
        for step, expected in enumerate(whole[name]):
            together = torch.cat([shard[name][step] for shard in shards])
            torch.testing.assert_close(together, expected, rtol=0, atol=1e-10)
    for step, expected in enumerate(whole["params"]):
        for i, grad in enumerate(expected):
            total = sum(shard["params"][step][i] for shard in shards)
            torch.testing.assert_close(total, grad, rtol=0, atol=1e-10)
    for shard in shards:  # on every rank
        torch.testing.assert_close(shard["buffers"], whole["buffers"], rtol=0, atol=1e-10)
        assert all(torch.equal(a, b) for a, b in zip(shard["buffers"], shards[0]["buffers"], strict=True))


@ON_RANKS
@pytest.mark.parametrize("shape", SHAPES.values(), ids=list(SHAPES))
@pytest.mark.parametrize("sizes", SIZES.values(), ids=list(SIZES))
def test_ranks_equal_batchnorm_on_the_whole_minibatch(workers, sizes, shape):
    kind = {1: nn.BatchNorm1d, 3: nn.BatchNorm2d, 4: nn.BatchNorm3d}[len(shape)]
    net, inputs = with_values(kind(3)), list(batches(sizes, shape))
    synchronised = convert_sync_batchnorm(copy.deepcopy(net))
    assert_equal(workers.run(on_this_rank, synchronised, inputs, sizes), trained(net, inputs))


@ON_RANKS
@pytest.mark.parametrize(
    "options", [{"momentum": None}, {"affine": False}, {"track_running_stats": False}, {"eps": 0.1, "momentum": 0.9}]
)
def test_options_are_those_of_batchnorm(workers, options):
    net, inputs = with_values(nn.BatchNorm2d(3, **options)), list(batches([5, 1, 3], (3, 2, 2)))
    synchronised = with_values(SyncBatchNorm(3, **options))
    assert_equal(workers.run(on_this_rank, synchronised, inputs, [5, 1, 3]), trained(net, inputs))


@ON_RANKS
@pytest.mark.parametrize("bias", [True, False])
def test_a_layer_without_a_shift_is_converted(workers, bias):
    if "bias" not in inspect.signature(nn.BatchNorm2d).parameters:
        pytest.skip("BatchNorm of this PyTorch has no option bias")
    net, inputs = with_values(nn.BatchNorm2d(3, bias=bias)), list(batches([5, 1, 3], (3, 2, 2)))
    synchronised = convert_sync_batchnorm(copy.deepcopy(net))
    assert (synchronised.bias is not None) == bias and list(synchronised.state_dict()) == list(net.state_dict())
    assert_equal(workers.run(on_this_rank, synchronised, inputs, [5, 1, 3]), trained(net, inputs))


@by_value
def count_all_reduces(net, X):
    sent, all_reduce = [], dist.all_reduce

    def watched(tensor, *args, **kwargs):
        sent.append(tensor.numel())
        return all_reduce(tensor, *args, **kwargs)

    dist.all_reduce = watched
    try:
        net(X.clone().requires_grad_()).sum().backward()
        training = list(sent)
        net(X).sum().backward()  # X needs no gradient: nothing to send
        net.eval()(X)
    finally:
        dist.all_reduce = all_reduce
    return training, sent[len(training) :]


@ON_RANKS
def test_there_are_three_all_reduces_and_none_in_evaluation(workers):
    found = workers.run(count_all_reduces, SyncBatchNorm(3), torch.rand(4, 3, 2, 2))
    assert found == [([1 + 3, 3, 2 * 3], [1 + 3, 3])] * 3


@by_value
def ddp_steps(net, inputs, sizes):
    from torch.nn.parallel import DistributedDataParallel

    rank = dist.get_rank()
    ddp = DistributedDataParallel(net)
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    for X, y in inputs:
        X_shard, y_shard = X.split(sizes)[rank], y.split(sizes)[rank]
        optimizer.zero_grad()
        loss = nn.functional.cross_entropy(ddp(X_shard), y_shard, reduction="sum") * dist.get_world_size() / len(X)
        loss.backward()
        optimizer.step()
    return net.state_dict()


@ON_RANKS
def test_a_network_in_ddp_equals_one_device(workers):
    generator = torch.Generator().manual_seed(0)
    inputs = [(torch.rand(9, 1, 8, 8, generator=generator).double(), torch.arange(9) % 5) for _ in range(3)]
    torch.manual_seed(0)
    net = resnet18(5, width=2).double()
    found = workers.run(ddp_steps, convert_sync_batchnorm(copy.deepcopy(net)), inputs, [5, 1, 3])
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    for X, y in inputs:
        optimizer.zero_grad()
        nn.functional.cross_entropy(net(X), y).backward()
        optimizer.step()
    for state in found:
        assert state.keys() == net.state_dict().keys()
        torch.testing.assert_close(dict(state), dict(net.state_dict()), rtol=0, atol=1e-9)


@by_value
def in_pairs(X):
    groups = [dist.new_group([0, 1]), dist.new_group([2])]
    group = groups[dist.get_rank() // 2]
    n, mean, _ = moments_over_ranks(X[dist.get_rank()], group)
    layer = SyncBatchNorm(1, process_group=group)
    layer(X[dist.get_rank()])
    return n.item(), mean.item(), layer.running_mean.item()


@ON_RANKS
def test_a_process_group_shares_its_own_statistics(workers):
    X = torch.tensor([[[0.0], [2.0]], [[4.0], [6.0]], [[10.0], [20.0]]])
    expected = [(4, 3, pytest.approx(0.3)), (4, 3, pytest.approx(0.3)), (2, 15, pytest.approx(1.5))]
    assert workers.run(in_pairs, X) == expected


@by_value
def too_few(sizes):
    try:
        SyncBatchNorm(2)(torch.ones(sizes[dist.get_rank()], 2))
    except ValueError as error:  # raised here, the ranks would start again
        return str(error)


@ON_RANKS
@pytest.mark.parametrize(("sizes", "got"), [([1, 0, 0], 1), ([0, 0, 0], 0)])
def test_all_ranks_refuse_fewer_than_two_values(workers, sizes, got):
    message = f"X: expected two or more values per channel on all ranks together, got {got}."
    assert workers.run(too_few, sizes) == [message] * 3


# torch's own SyncBatchNorm: its kernels exist on GPUs only. Here these five stand for them, so that the rest of it
# runs: what it sends, in which order it merges, and what it keeps.


def _over(X):
    return [d for d in range(X.dim()) if d != 1]


def _like(v, X):
    return v.view(1, -1, *[1] * (X.dim() - 2))


def _stats(X, eps):
    var, mean = torch.var_mean(X, _over(X), correction=0)
    return mean, (var + eps).rsqrt()


def _gather_stats(X, means, invstds, running_mean, running_var, momentum, eps, counts):
    n, variances = counts.sum(), invstds**-2 - eps
    mean = (means * counts[:, None]).sum(0) / n
    var = ((variances + (means - mean) ** 2) * counts[:, None]).sum(0) / n
    running_mean.lerp_(mean, momentum)
    running_var.lerp_(var * n / (n - 1), momentum)
    return mean, (var + eps).rsqrt()


def _elementwise(X, weight, bias, mean, invstd, eps):
    return (X - _like(mean, X)) * _like(invstd * weight, X) + _like(bias, X)


def _backward_reduce(grad, X, mean, invstd, weight, *wanted):
    sum_dy, sum_dy_xmu = grad.sum(_over(X)), (grad * (X - _like(mean, X))).sum(_over(X))
    return sum_dy, sum_dy_xmu, sum_dy_xmu * invstd, sum_dy


def _backward_elementwise(grad, X, mean, invstd, weight, sum_dy, sum_dy_xmu, counts):
    n = counts.sum()
    inner = grad - _like(sum_dy / n, X) - (X - _like(mean, X)) * _like(invstd**2 * sum_dy_xmu / n, X)
    return inner * _like(invstd * weight, X)


STAND_INS = {
    "batch_norm_stats": _stats,
    "batch_norm_gather_stats_with_counts": _gather_stats,
    "batch_norm_elemt": _elementwise,
    "batch_norm_backward_reduce": _backward_reduce,
    "batch_norm_backward_elemt": _backward_elementwise,
}


@by_value
def torchs_own(layer, inputs, sizes, stand_ins):
    from torch.nn.modules._functions import SyncBatchNorm as OfTorch

    kept = {name: getattr(torch, name) for name in stand_ins}
    for name, function in stand_ins.items():
        setattr(torch, name, function)
    try:
        net = nn.Module()
        net.layer = layer

        def forward(X):
            group, buffers = dist.group.WORLD, (layer.running_mean, layer.running_var)
            return OfTorch.apply(X, layer.weight, layer.bias, *buffers, layer.eps, 0.1, group, dist.get_world_size())

        net.forward, rank = forward, dist.get_rank()
        found = trained(net, [(X.split(sizes)[rank], grad.split(sizes)[rank]) for X, grad in inputs])
        return found | {"buffers": [layer.running_mean, layer.running_var]}
    finally:
        for name, function in kept.items():
            setattr(torch, name, function)


@ON_RANKS
@pytest.mark.parametrize("sizes", [SIZES["even"], SIZES["uneven"]], ids=["even", "uneven"])
def test_it_equals_torchs_own_on_ranks_with_kernels_that_stand_in(workers, sizes):
    from torch.nn.modules import _functions

    assert all(hasattr(torch, name) for name in STAND_INS) and hasattr(_functions, "SyncBatchNorm")
    inputs = list(batches(sizes, (3, 5, 4)))
    stand_ins = {name: by_value(function) for name, function in STAND_INS.items()}
    theirs = workers.run(torchs_own, with_values(nn.SyncBatchNorm(3)), inputs, sizes, stand_ins)
    ours = workers.run(on_this_rank, with_values(SyncBatchNorm(3)), inputs, sizes)
    for their, our in zip(theirs, ours, strict=True):
        our["buffers"] = our["buffers"][:2]
        torch.testing.assert_close(our, their, rtol=0, atol=1e-9)


@by_value
def both_on_gpus(inputs, sizes):
    found = []
    for layer in (nn.SyncBatchNorm(3), SyncBatchNorm(3)):
        torch.manual_seed(0)
        rank, device = dist.get_rank(), torch.device("cuda", dist.get_rank())
        shards = [(X.split(sizes)[rank].to(device), grad.split(sizes)[rank].to(device)) for X, grad in inputs]
        found.append(trained(layer.to(device), shards))
    torch.testing.assert_close(*found, rtol=1e-4, atol=1e-4)


@ON_RANKS
@pytest.mark.skipif(num_gpus() < 2, reason="torch's SyncBatchNorm needs a GPU for each rank")
def test_it_equals_torchs_own_on_gpus():
    with Workers(2, timeout_s=20) as two:
        two.run(both_on_gpus, list(batches([5, 3], (3, 5, 4), dtype=torch.float32)), [5, 3])


def test_without_a_process_group_it_is_batchnorm():
    inputs = list(batches([9], (3, 2, 2)))
    ours, torchs = trained(with_values(SyncBatchNorm(3)), inputs), trained(with_values(nn.BatchNorm2d(3)), inputs)
    torch.testing.assert_close(ours, torchs, rtol=0, atol=1e-10)
    sums = torch.ones(3)
    assert sum_over_ranks(sums) is sums and sums.tolist() == [1, 1, 1]


@pytest.mark.parametrize("track_running_stats", [True, False])
def test_in_evaluation_it_is_batchnorm(track_running_stats):
    net = nn.BatchNorm2d(3, track_running_stats=track_running_stats)
    net(torch.rand(4, 3, 2, 2))
    same = convert_sync_batchnorm(copy.deepcopy(net)).eval()
    X, before = torch.rand(5, 3, 2, 2), [b.clone() for b in net.buffers()]
    assert torch.equal(same(X), net.eval()(X))
    assert all(torch.equal(a, b) for a, b in zip(same.buffers(), before, strict=True))


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
def test_outputs_and_gradients_have_the_type_of_the_inputs(dtype):
    X = torch.rand(8, 3, 2, 2).to(dtype).requires_grad_()
    Y = SyncBatchNorm(3)(X)
    Y.float().square().sum().backward()
    assert Y.dtype == X.grad.dtype == dtype


@pytest.mark.parametrize("mean", [0.0, 1000.0])
def test_a_gradient_that_almost_cancels_keeps_its_digits(mean):
    """The gradient of the sum of squares is almost 0: what is left of it must not be rounding."""
    X = mean + torch.randn(64, 3, generator=torch.Generator().manual_seed(0))
    same = nn.BatchNorm1d(3, affine=False).double()
    grad = same(X.double()).float()
    right, mine = X.double().requires_grad_(), X.clone().requires_grad_()
    same(right).backward(grad.double())
    SyncBatchNorm(3, affine=False)(mine).backward(grad)
    assert right.grad.abs().max() < 1e-4 * grad.abs().max()
    torch.testing.assert_close(mine.grad.double(), right.grad, rtol=1e-4, atol=1e-9)


def test_a_large_mean_costs_no_digits_and_would_in_32_bits():
    X = 1000 + 0.1 * torch.randn(4096, 1, generator=torch.Generator().manual_seed(0))
    true = X.double().var(correction=0).item()
    _, _, var = moments_over_ranks(X)
    assert var.item() == pytest.approx(true, rel=1e-6)
    naive = (X.square().mean() - X.mean().square()).item()
    assert abs(naive - true) > true  # 1,000,000 has 20 bits before the point; 24 are kept
    Y = SyncBatchNorm(1)(X)
    assert Y.var(correction=0).item() == pytest.approx(true / (true + 1e-5), rel=1e-3)


FAR = {"a thousand": 1e3, "ten million": 1e7, "minus ten million": -1e7}


@by_value
def far_step(layer, X, grad):
    X_shard, grad_shard = (whole.tensor_split(dist.get_world_size())[dist.get_rank()] for whole in (X, grad))
    n, mean, var = moments_over_ranks(X_shard)
    return trained(layer, [(X_shard, grad_shard)]) | {"var": var}


@ON_RANKS
@pytest.mark.parametrize("mean", FAR.values(), ids=list(FAR))
@pytest.mark.parametrize("world_size", [2, 3])
def test_a_mean_of_many_deviations_costs_no_digits_on_ranks(workers, two_workers, world_size, mean):
    """Against one device whose values are moved to 0: this changes no normalised value, and no digit is lost there."""
    generator = torch.Generator().manual_seed(0)
    X = mean + torch.randn(64, 3, generator=generator, dtype=torch.float64)
    grad = torch.randn(64, 3, generator=generator, dtype=torch.float64)
    moved, torchs = (trained(nn.BatchNorm1d(3).double(), [(given, grad)]) for given in (X - mean, X))
    pool = {2: two_workers, 3: workers}[world_size]
    found = pool.run(far_step, SyncBatchNorm(3).double(), X, grad)
    for name in ("outputs", "X"):
        together = torch.cat([shard[name][0] for shard in found])
        torch.testing.assert_close(together, moved[name][0], rtol=0, atol=1e-8)
        torch.testing.assert_close(together, torchs[name][0], rtol=0, atol=1e-8)
    for shard in found:
        torch.testing.assert_close(shard["var"], (X - mean).var(0, correction=0), rtol=1e-8, atol=0)
        torch.testing.assert_close(shard["buffers"], torchs["buffers"], rtol=1e-8, atol=0)


def test_values_that_are_all_equal_have_no_negative_variance():
    for value in (0.1, 1e7 + 0.1):
        X = torch.full((7, 2), value, dtype=torch.float64)
        _, _, var = moments_over_ranks(X)
        assert (var >= 0).all() and (var < 1e-15).all() and SyncBatchNorm(2).double()(X).isfinite().all()


@pytest.mark.parametrize("dtype", [torch.int64, torch.uint8, torch.bool, torch.complex64])
@pytest.mark.parametrize("training", [True, False])
def test_numbers_that_are_not_floating_point_are_refused_as_torch_does(dtype, training):
    X = torch.ones(4, 2).to(dtype)
    with pytest.raises(TypeError, match=f"X: expected floating-point numbers, got {dtype}. Convert them: X.float()"):
        SyncBatchNorm(2).train(training)(X)
    with pytest.raises(NotImplementedError):
        nn.BatchNorm1d(2).train(training)(X)


def test_a_second_derivative_is_refused():
    X = torch.rand(4, 2, requires_grad=True)
    (grad,) = torch.autograd.grad(SyncBatchNorm(2)(X).square().sum(), X, create_graph=True)
    with pytest.raises(RuntimeError, match="once_differentiable"):
        grad.sum().backward()


@pytest.mark.parametrize("shape", [(4,), (4, 2), (4, 2, 3, 3), (3,)])
def test_other_shapes_are_refused(shape):
    with pytest.raises(ValueError, match=r"X: expected \[b, 3, \.\.\.\], got \["):
        SyncBatchNorm(3)(torch.rand(shape))
    with pytest.raises(ValueError, match="X: expected two or more values per channel on all ranks together, got 1"):
        SyncBatchNorm(3)(torch.rand(1, 3))


def test_replicas_in_threads_are_refused():
    net = DataParallel(SyncBatchNorm(3), [torch.device("cpu")] * 2)
    with pytest.raises(RuntimeError, match="expected one process per device, got a replica of DataParallel"):
        net(torch.rand(4, 3))
    net.eval()(torch.rand(4, 3))
    replica = SyncBatchNorm(3)._replicate_for_data_parallel()
    with pytest.raises(RuntimeError, match="got a replica of DataParallel"):
        replica(torch.rand(4, 3))


def test_convert_keeps_parameters_buffers_and_modes():
    net = nn.Sequential(nn.Conv2d(1, 3, 3), nn.BatchNorm2d(3, eps=0.5, momentum=None), nn.SyncBatchNorm(3))
    net[1].eval()
    net.append(net[1])  # one layer with two names
    tensors = [*net.parameters(), *net.buffers()]
    keys, training = list(net.state_dict()), [m.training for m in net.modules()]
    same = convert_sync_batchnorm(net)
    assert same is net and [type(layer) for layer in net] == [nn.Conv2d, *[SyncBatchNorm] * 3]
    assert all(a is b for a, b in zip([*net.parameters(), *net.buffers()], tensors, strict=True))
    assert list(net.state_dict()) == keys and [m.training for m in net.modules()] == training
    assert net[1] is net[3] and net[1].eps == 0.5 and net[1].momentum is None
    before = list(net)
    assert all(a is b for a, b in zip(convert_sync_batchnorm(net), before, strict=True))  # nothing left to do


def test_convert_returns_a_layer_that_is_the_network():
    layer = nn.BatchNorm1d(2, affine=False, track_running_stats=False)
    same = convert_sync_batchnorm(layer)
    assert type(same) is SyncBatchNorm and not same.affine and same.running_mean is None
    linear = nn.Linear(1, 1)
    assert convert_sync_batchnorm(linear) is linear


def test_convert_refuses_what_it_cannot_convert():
    with pytest.raises(TypeError, match="net: expected an nn.Module, got int"):
        convert_sync_batchnorm(3)
    with pytest.raises(ValueError, match="net: expected initialised layers, got 0. Call the network once, first."):
        convert_sync_batchnorm(nn.Sequential(nn.LazyBatchNorm1d()))


def test_the_class_that_chapter_10_shows_is_the_one_that_runs():
    (shown,) = [n for cell in code_cells(CHAPTER) for n in classes(cell.source) if n.name == "Normalise"]
    (kept,) = [n for n in classes(inspect.getsource(sync_batchnorm)) if n.name == "Normalise"]
    assert ast.dump(shown) == ast.dump(kept)


def classes(source):
    """The classes at the top of some code, without types and docstrings; a method keeps its first decorator only."""
    found = []
    for node in ast.parse(plain(source)).body:
        if isinstance(node, ast.ClassDef):
            node.body = [Untyped().visit(n) for n in node.body if not isinstance(n, ast.Expr)]
            for method in node.body:
                method.decorator_list = method.decorator_list[:1]
            found.append(node)
    return found
