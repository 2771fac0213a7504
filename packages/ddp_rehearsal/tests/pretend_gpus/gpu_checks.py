"""What must be true in a process with two pretend GPUs; `test_pretend_gpus.py` runs this file in one."""

import copy
import threading

import pytest
import torch
from torch import nn

import d2lite
from d2lite import training

CUDA = [torch.device("cuda", i) for i in range(2)]
SAME = "Expected all tensors to be on the same device, but found at least two devices"


def test_devices():
    assert d2lite.try_all_gpus() == CUDA and d2lite.num_gpus() == 2
    assert d2lite.describe(d2lite.try_gpus(4)) == "4 replicas share 2 pretend GPU (the CPU computes)"
    with pytest.raises(RuntimeError, match="invalid device ordinal"):
        torch.zeros(1, device="cuda:2")


def test_a_tensor_moves_as_a_copy():
    X = torch.arange(3.0)
    Y = X.to(CUDA[1])
    Y += 1
    assert X.tolist() == [0, 1, 2] and Y.device == CUDA[1] and Y.is_cuda and Y.get_device() == 1
    assert Y.to(CUDA[1]) is Y and Y.to(CUDA[1], copy=True) is not Y
    assert Y.cuda().device == CUDA[0] and Y.cpu().device.type == "cpu"
    assert (Y * 2).device == Y[1:].device == torch.zeros_like(Y).device == Y.view(-1).device == CUDA[1]
    assert Y.to(torch.zeros(1, dtype=torch.int64, device=CUDA[0])).dtype == torch.int64
    assert "device='cuda:1'" in repr(Y)


@pytest.mark.parametrize(
    "mix",
    [
        lambda a, b: a + b,
        lambda a, b: torch.cat([a, b]),
        lambda a, b: a.add_(b),
        lambda a, b: nn.functional.linear(a, b),
        lambda a, b: torch.where(a > 0, a, b),
        lambda a, b: nn.Linear(4, 4)(a),
    ],
)
def test_two_devices_do_not_mix(mix):
    for device in (CUDA[1], torch.device("cpu")):
        with pytest.raises(RuntimeError, match=SAME):
            mix(torch.ones(4, device=CUDA[0]), torch.ones(4, device=device))


OF_A_NUMBER = {  # refused by an NVIDIA H200 if the number is on the CPU
    "binary_cross_entropy": lambda x, n: nn.functional.binary_cross_entropy(x, n),
    "binary_cross_entropy_with_logits": lambda x, n: nn.functional.binary_cross_entropy_with_logits(x, n),
    "complex": torch.complex,
    "igamma": torch.igamma,
    "igammac": torch.igammac,
    "masked_scatter": lambda x, n: x.masked_scatter(n > 0, torch.ones((), device=CUDA[0])),
    "multi_margin_loss": lambda x, n: nn.functional.multi_margin_loss(x.expand(3), n.long()),
    "multilabel_margin_loss": lambda x, n: nn.functional.multilabel_margin_loss(x, n.long()),
    "polar": torch.polar,
    "prelu": nn.functional.prelu,
    "take": lambda x, n: x.take(n.long()),
}


@pytest.mark.parametrize("call", OF_A_NUMBER.values(), ids=OF_A_NUMBER)
def test_a_number_on_the_cpu_is_refused_where_a_gpu_refuses_it(call):
    number = torch.tensor(0.5, device=CUDA[0])
    call(number.clone(), number)
    with pytest.raises(RuntimeError, match=SAME):
        call(number, number.cpu())


def test_a_gradient_of_another_device_is_refused():
    X = torch.ones(2, device=CUDA[0], requires_grad=True)
    with pytest.raises(RuntimeError, match="gradient with device type 'cpu' to a tensor with device type 'cuda'"):
        X.grad = torch.ones(2)


def test_what_may_mix():
    X = torch.arange(4.0, device=CUDA[0])
    assert (X + torch.tensor(1.0)).device == CUDA[0]
    assert X[torch.tensor([0, 2])].tolist() == [0, 2]
    X[torch.tensor([0])] = torch.tensor([7.0], device=CUDA[0])
    Y = torch.zeros(4).copy_(X)
    assert Y.device.type == "cpu" and Y.tolist() == [7, 1, 2, 3]
    with pytest.raises(TypeError, match="can't convert cuda:0 device type tensor to numpy"):
        X.numpy()


def test_modules_gradients_and_optimizers():
    net = nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4), nn.Linear(4, 2)).to(CUDA[1])
    assert {t.device for t in [*net.parameters(), *net.buffers()]} == {CUDA[1]}
    seen = []
    net[0].weight.register_hook(lambda grad: seen.append(grad.device))
    optimizer = torch.optim.Adam(net.parameters())
    net(torch.randn(5, 3, device=CUDA[1])).sum().backward()
    assert net[0].weight.grad.device == CUDA[1] and seen == [CUDA[1]]
    optimizer.step()
    assert copy.deepcopy(net)[0].weight.device == CUDA[1]
    assert nn.Parameter(torch.ones(1, device=CUDA[0])).device == CUDA[0]


def test_a_number_is_a_gpu():
    """A build of PyTorch without CUDA refuses a number where it parses the arguments of `Module.to`."""
    assert nn.Linear(2, 2).to(1).weight.device == torch.ones(2).to(1).device == CUDA[1]
    with pytest.raises(RuntimeError, match="invalid device ordinal"):
        nn.Linear(2, 2).to(2)


def test_a_module_moves_by_each_way_to_name_a_gpu():
    named = torch.zeros(1, device=CUDA[1])
    ways = [
        lambda net: net.to(device=CUDA[1]),
        lambda net: net.to(device="cuda:1", dtype=torch.float64),
        lambda net: net.to(device=1, non_blocking=True),
        lambda net: net.to(named),
        lambda net: net.to(tensor=named),
    ]
    assert {way(nn.Linear(2, 2)).weight.device for way in ways} == {CUDA[1]}
    net = nn.Linear(2, 2).to(device=CUDA[1])
    assert net.to(dtype=torch.float16).weight.device == CUDA[1] and net.weight.dtype == torch.float16
    assert net.to(device="cpu").weight.device.type == "cpu"


def test_packed_sequences_train():
    """Lengths stay on the CPU, sequences are on the GPU."""
    net = nn.GRU(3, 4, num_layers=2, dropout=0.5, bidirectional=True).to(CUDA[1])
    packed = nn.utils.rnn.pack_sequence([torch.ones(n, 3, device=CUDA[1]) for n in (3, 1, 2)], enforce_sorted=False)
    out, state = net(packed)
    padded, lengths = nn.utils.rnn.pad_packed_sequence(out)
    assert padded.device == state.device == packed.data.device == CUDA[1] and lengths.tolist() == [3, 1, 2]
    assert packed.batch_sizes.device == lengths.device == packed.cpu().data.device == torch.device("cpu")
    padded.sum().backward()
    assert {p.grad.device for p in net.parameters()} == {CUDA[1]}


def test_gradients_of_two_devices():
    w, u, v = torch.ones(2, requires_grad=True), torch.ones(1, requires_grad=True), torch.ones(2, device=CUDA[0])
    v.requires_grad_()
    of_w, of_u, of_v = torch.autograd.grad((w.to(CUDA[0]) * v).sum(), [w, u, v], allow_unused=True)
    assert of_w.device.type == "cpu" and of_u is None and of_v.device == CUDA[0]
    edge = torch.autograd.graph.get_gradient_edge
    for outputs, inputs in (([edge(v * 2)], [v]), ([v * 2], [edge(v)])):  # as a pipeline does
        (of_v,) = torch.autograd.grad(outputs, inputs, [torch.ones(2, device=CUDA[0])])
        assert of_v.device == CUDA[0] and of_v.tolist() == [2, 2]
    (w.to(CUDA[0]) * v).sum().backward(inputs=[w, v])
    assert w.grad.device.type == "cpu" and v.grad.device == CUDA[0]
    torch.autograd.backward([(w * 2).sum(), (v * 2).sum()])
    with pytest.raises(RuntimeError, match="invalid gradient at index 1 - expected device cuda:0 but got cpu"):
        torch.autograd.backward([w * 2, v * 2], [torch.ones(2), torch.ones(2)])


def test_assignments_between_devices():
    X, Y = torch.zeros(4, 3), torch.ones(4, 3, device=CUDA[0])
    X[0], X[:, 1], X[1, 2] = Y[0], Y[:, 1], Y.sum()
    X[X > 5] = Y.sum()  # a mask, and one element
    X[Y > 5] = 7.0
    assert X.device.type == "cpu" and X.sum() == 3 + 3 + 12
    X[[0], [1]], Y[Y < 0] = torch.tensor([1.0], device=CUDA[0]), torch.tensor([8.0])  # one element, in a dimension
    Y[0], Y[torch.tensor(1)], Y[X > 5] = X[0], X[1], 8.0
    assert Y.device == CUDA[0] and Y[1, 2] == 8
    assert X.masked_fill(X > 5, Y[0, 0]).device.type == X.fill_(Y[0, 0]).device.type == "cpu"
    Y[None, ..., 0:2] = X[None, ..., 0:2]
    for assign in (lambda: X.__setitem__([0, 1], Y[:2]), lambda: Y.__setitem__(torch.tensor([0, 1]), X[:2])):
        with pytest.raises(RuntimeError, match=SAME):
            assign()
    assert X[torch.tensor(1, device=CUDA[0])].tolist() == X[1].tolist()
    with pytest.raises(RuntimeError, match=r"indices should be either on cpu or .* indexed tensor \(cpu\)"):
        X[torch.tensor([1], device=CUDA[0])]


def test_each_device_has_its_own_random_numbers():
    net = nn.Sequential(nn.Linear(3, 3), nn.Dropout(0.5)).to(CUDA[1])
    torch.manual_seed(0)
    first, of_cpu, of_gpu = torch.rand(3), torch.get_rng_state(), torch.cuda.get_rng_state_all()
    drawn = [net(torch.ones(8, 3, device=CUDA[1])), torch.rand(3, device=CUDA[1]), nn.LSTM(2, 2, device=CUDA[1])]
    assert torch.equal(torch.get_rng_state(), of_cpu)
    assert torch.equal(torch.cuda.get_rng_state(0), of_gpu[0]) and not torch.equal(
        torch.cuda.get_rng_state(1), of_gpu[1]
    )
    assert torch.rand(3, device=CUDA[0]).tolist() == first.tolist()  # from the same seed
    torch.cuda.set_rng_state_all(of_gpu)
    assert torch.equal(net(torch.ones(8, 3, device=CUDA[1])), drawn[0])
    torch.cuda.set_device(1)
    torch.cuda.manual_seed(5)
    assert torch.cuda.initial_seed() == 5 and torch.initial_seed() == 0
    with torch.random.fork_rng(devices=[1]):
        torch.rand(3, device=CUDA[1])
    again = torch.rand(3, device=CUDA[1])
    torch.cuda.manual_seed_all(5)
    assert torch.equal(again, torch.rand(3, device=CUDA[1]))
    torch.cuda.seed_all()
    assert torch.equal(torch.cuda.get_rng_state(0), torch.cuda.get_rng_state(1))
    torch.cuda.seed()
    assert not torch.equal(torch.cuda.get_rng_state(0), torch.cuda.get_rng_state(1))
    torch.cuda.set_rng_state(of_gpu[1])
    assert torch.equal(torch.cuda.get_rng_state(), of_gpu[1])
    torch.cuda.set_device(0)


def test_a_checkpoint_computes_the_same_dropout_again():
    net, X = nn.Sequential(nn.Linear(3, 3), nn.Dropout(0.5)).to(CUDA[0]), torch.ones(8, 3, device=CUDA[0])
    grads = []
    for run in (net, lambda X: torch.utils.checkpoint.checkpoint(net, X, use_reentrant=False)):
        torch.manual_seed(0)
        loss = run(X).sum()
        torch.rand(3, device=CUDA[0])
        grads.append(torch.autograd.grad(loss, net[0].weight)[0])
    assert torch.equal(*grads)


def test_legacy_types():
    X = torch.cuda.HalfTensor([1, 2])
    assert X.device == CUDA[0] and X.dtype == torch.float16 and X.type() == "torch.cuda.HalfTensor"
    assert isinstance(X, torch.cuda.HalfTensor) and not isinstance(X, torch.cuda.FloatTensor)
    assert not isinstance(X.cpu(), torch.cuda.HalfTensor) and X.type(torch.FloatTensor).device.type == "cpu"
    Y = torch.ones(1, device=CUDA[1])
    assert Y.type(torch.cuda.LongTensor).device == Y.type(torch.float64).device == Y.type_as(Y).device == CUDA[1]
    assert nn.Linear(2, 2).type(torch.cuda.DoubleTensor).weight.device == CUDA[0]


@pytest.mark.parametrize(
    ("multiply", "kernel"),
    [
        (lambda X: X @ X, "addmm_cuda"),
        (lambda X: X @ X[0], "addmv_impl_cuda"),
        (lambda X: torch.tensordot(X[0], X[0], 1), "dot"),
        (lambda X: torch.einsum("ij,kj->ik", X, X), "baddbmm_cuda"),
        (lambda X: torch.baddbmm(X[None], X[None], X[None]), "baddbmm_cuda"),
    ],
)
def test_whole_numbers_have_no_kernel_for_products(multiply, kernel):
    X = torch.ones(2, 2, dtype=torch.int64)
    assert multiply(X).dtype == torch.int64
    with pytest.raises(NotImplementedError, match=f"\"{kernel}\" not implemented for 'Long'"):
        multiply(X.to(CUDA[0]))


def test_an_absolute_error_of_two_numbers():
    X, number = torch.ones(2, device=CUDA[0]), torch.tensor(1.0)
    assert nn.functional.l1_loss(X.sum(), number).device == CUDA[0]
    with pytest.raises(RuntimeError, match=SAME):
        nn.functional.l1_loss(X, number)


def test_lists_have_one_device_at_each_position():
    X, Y = torch.ones(2), torch.ones(2, device=CUDA[0])
    assert [t.device.type for t in torch._foreach_add([X, Y], [X, Y])] == ["cpu", "cuda"]
    assert [t.device.type for t in torch.broadcast_tensors(X, Y)] == ["cpu", "cuda"]
    with pytest.raises(RuntimeError, match=SAME):
        torch._foreach_add([X, Y], [Y, X])


def test_lazy_modules():
    X = torch.ones(6, 1, 5, 5, device=CUDA[1])
    layers = [nn.LazyConv2d(4, 3), nn.LazyBatchNorm2d(), nn.Flatten(), nn.LazyLinear(3)]
    net = nn.DataParallel(nn.Sequential(*layers), [CUDA[1]])  # with one device, it moves the network there
    assert nn.parameter.is_lazy(layers[0].weight) and layers[0].weight.device == CUDA[1]
    net(X).sum().backward()
    assert {t.device for p in net.parameters() for t in (p, p.grad)} == {CUDA[1]}
    assert nn.LazyLinear(3, device=CUDA[1])(X).device == CUDA[1]
    with pytest.raises(RuntimeError, match=SAME):
        nn.LazyLinear(3)(X)


def test_an_optimizer_of_parameters_on_two_gpus():
    params = [nn.Parameter(torch.ones(3, device=device)) for device in CUDA]
    optimizer = torch.optim.Adam(params, foreach=True)
    sum(p.sum().cpu() for p in params).backward()
    nn.utils.clip_grad_norm_(params, 1.0)
    optimizer.step()
    assert [p.device for p in params] == CUDA and torch.equal(params[0].cpu(), params[1].cpu())


def test_a_custom_function_follows_the_device_backwards():
    class Double(torch.autograd.Function):
        @staticmethod
        def forward(ctx, X):
            ctx.save_for_backward(X)
            return X * 2

        @staticmethod
        def backward(ctx, grad):
            (X,) = ctx.saved_tensors
            assert grad.device == X.device == CUDA[1]
            return grad * 2 + 0 * X

    X = torch.ones(3, device=CUDA[1], requires_grad=True)
    Double.apply(X).sum().backward()
    assert X.grad.tolist() == [2, 2, 2]


def test_threads_follow_devices_too():
    found = []
    thread = threading.Thread(target=lambda: found.append(torch.ones(1, device="cuda").device))
    thread.start()
    thread.join()
    assert found == CUDA[:1]


@pytest.mark.parametrize("k", [1, 2, 3])
def test_k_devices_equal_one(k):
    """Chapter 2's step, and a wrapped module: nn.DataParallel on two distinct GPUs, else the kit's own."""
    X, y = torch.rand(7, 1, 28, 28, dtype=torch.float64), torch.randint(0, 10, (7,))
    first = d2lite.replicate([p.double() for p in d2lite.lenet_params()], ["cpu"])
    devices = d2lite.try_gpus(k)
    many = d2lite.replicate(first[0], devices)
    for _ in range(3):
        training.train_batch(X, y, first, ["cpu"], 0.1)
        training.train_batch(X, y, many, devices, 0.1)
    for params in many:
        for p, q in zip(params, first[0], strict=True):
            torch.testing.assert_close(p.cpu(), q, rtol=0, atol=1e-9)
    net = d2lite.SimpleCNN().double()
    wrapped = training.wrap(copy.deepcopy(net), devices)
    assert isinstance(wrapped, nn.DataParallel if k == 2 else d2lite.DataParallel)
    for output in (net(X), wrapped(X.to(devices[0])).cpu()):
        nn.functional.cross_entropy(output, y).backward()
    for p, q in zip(wrapped.parameters(), net.parameters(), strict=True):
        torch.testing.assert_close(p.grad.cpu(), q.grad, rtol=0, atol=1e-9)


def test_ranks_of_a_pool_send_from_gpus_and_from_the_cpu():
    with d2lite.Workers(2) as workers:
        assert workers.backend == "nccl"
        for rank, found in enumerate(workers.run(in_a_rank)):
            refused = "No backend type associated with device type cpu"
            assert found == ("cpu:gloo,cuda:nccl", f"cuda:{rank}", 3.0, 3.0, refused, "Duplicate GPU detected")


def in_a_rank():
    import torch.distributed as dist

    sums = []
    for device in ("cuda", "cpu"):
        total = torch.full((2,), 1.0 + dist.get_rank(), device=device)
        dist.all_reduce(total)
        sums.append(total)
    refused = []
    for device in ("cpu", torch.device("cuda", 1 - dist.get_rank())):
        try:
            dist.all_reduce(torch.ones(1, device=device), group=dist.new_group(backend="nccl"))
        except RuntimeError as error:
            refused.append(str(error).split(":")[0])
    dist.barrier(device_ids=[dist.get_rank()])  # gloo would refuse these numbers
    return dist.get_backend(), str(sums[0].device), *(total[0].item() for total in sums), *refused
