"""What scripts ask of GPUs, in a process with two pretend GPUs; `test_pretend_gpus.py` runs this file in one."""

import copy
import io
import os
import pickle

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.checkpoint import checkpoint
from torch.utils.data import DataLoader, TensorDataset, random_split

from ddp_rehearsal.held_memory import parameters_on_gpus

CUDA = [torch.device("cuda", i) for i in range(2)]


def test_pinned_memory():
    plain = torch.ones(3)
    pinned = plain.pin_memory()
    assert pinned.is_pinned() and pinned[1:].is_pinned() and not plain.is_pinned()
    assert pinned is not plain and pinned.pin_memory() is pinned
    assert torch.empty(2, pin_memory=True).is_pinned() and torch.zeros_like(plain, pin_memory=True).is_pinned()
    with pytest.raises(RuntimeError, match="only dense CPU tensors can be pinned"):
        plain.cuda().pin_memory()


@pytest.mark.parametrize("workers", [0, 2])
def test_a_loader_with_pinned_memory_gives_cpu_tensors(workers):
    dataset = TensorDataset(torch.arange(4.0), torch.arange(4))
    for X, y in DataLoader(dataset, batch_size=2, pin_memory=True, num_workers=workers):
        assert X.device.type == y.device.type == "cpu" and X.is_pinned()
        assert X.cuda(1, non_blocking=True).device == X.to(CUDA[1], non_blocking=True).device == CUDA[1]


def test_a_fork_cannot_use_gpus_that_are_in_use():
    class OnGpu(torch.utils.data.Dataset):
        def __len__(self):
            return 1

        def __getitem__(self, i):
            return torch.ones(1, device="cuda")

    assert torch.ones(1, device="cuda").is_cuda
    with pytest.raises(RuntimeError, match="Cannot re-initialize CUDA in forked subprocess"):
        next(iter(DataLoader(OnGpu(), num_workers=1)))


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_autocast_rounds_as_on_a_gpu(dtype):
    net, X = nn.Linear(8, 4).cuda(), torch.randn(5, 8, device="cuda")
    with torch.autocast("cuda", dtype=dtype):
        y_hat, on_cpu = net(X), nn.Linear(8, 4)(X.cpu())
        float32 = [
            y_hat.softmax(1),
            F.layer_norm(y_hat, (4,)),
            F.cross_entropy(y_hat, torch.zeros_like(y_hat)),
            y_hat.sum(),
        ]
        with torch.autocast("cuda", enabled=False):
            assert net(X).dtype == torch.float32
    assert y_hat.dtype == dtype and {t.dtype for t in float32} == {torch.float32} and on_cpu.dtype == torch.float32
    rounded = X.to(dtype).double() @ net.weight.to(dtype).double().T + net.bias.to(dtype).double()
    torch.testing.assert_close(y_hat.double(), rounded, rtol=2 * torch.finfo(dtype).eps, atol=torch.finfo(dtype).eps)
    float32[2].backward()
    assert net.weight.grad.dtype == torch.float32 and net.weight.grad.device == CUDA[0]
    with torch.autocast("cpu", dtype=torch.bfloat16):
        assert net(X).dtype == torch.float32 and net.cpu()(X.cpu()).dtype == torch.bfloat16


def test_autocast_refuses_what_is_not_safe():
    p = torch.full((2,), 0.5, device="cuda")
    with torch.autocast("cuda"), pytest.raises(RuntimeError, match="are unsafe to autocast"):
        F.binary_cross_entropy(p, p)


@pytest.mark.filterwarnings("ignore:.*torch.cuda.amp:FutureWarning")
@pytest.mark.parametrize("make", [lambda: torch.amp.GradScaler("cuda"), lambda: torch.cuda.amp.GradScaler()])
def test_a_scaler_skips_a_step_that_is_not_finite(make):
    net, scaler = nn.Linear(4, 4).cuda(), make()
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    for not_finite, changes in ((False, True), (True, False)):
        before = net.weight.detach().clone()
        with torch.cuda.amp.autocast():
            loss = net(torch.ones(3, 4, device="cuda")).pow(2).mean()
        optimizer.zero_grad()
        scaler.scale(loss).backward()
        if not_finite:
            net.weight.grad[0, 0] = torch.inf
        scaler.unscale_(optimizer)
        nn.utils.clip_grad_norm_(net.parameters(), 1.0)
        scaler.step(optimizer)
        scaler.update()
        assert torch.equal(before, net.weight) != changes
    assert scaler.get_scale() == 2**15


def test_streams_and_events():
    stream, begin, end = torch.cuda.Stream(), *(torch.cuda.Event(enable_timing=True) for _ in range(2))
    with pytest.raises(ValueError, match="must be recorded"):
        begin.elapsed_time(end)
    with pytest.raises(ValueError, match="enable_timing=True"):
        begin.elapsed_time(torch.cuda.Event())
    begin.record()
    with torch.cuda.stream(stream):
        assert torch.cuda.current_stream() is stream
        X = torch.ones(3, device="cuda") * 2
    assert torch.cuda.current_stream() is torch.cuda.default_stream()
    torch.cuda.current_stream().wait_stream(stream)
    X.record_stream(torch.cuda.current_stream())
    end.record()
    end.synchronize()
    torch.cuda.synchronize()
    with pytest.warns(UserWarning, match="says nothing about a GPU's time"):
        assert begin.elapsed_time(end) > 0
    assert begin.elapsed_time(end) > 0  # said once
    assert torch.accelerator.current_stream().query() and end.query() and not stream.is_capturing()
    torch.Event("cuda").record(torch.Stream("cuda:1"))
    with torch.cuda.stream(torch.cuda.Stream("cuda:1")):
        assert torch.cuda.current_device() == 1
    assert torch.cuda.current_device() == 0


def test_memory_is_counted_from_tensors_that_are_alive():
    with pytest.warns(UserWarning, match="counted from the tensors that Python sees"):
        before = torch.cuda.memory_allocated()
    used = lambda: torch.cuda.memory_allocated() - before  # noqa: E731
    torch.cuda.reset_peak_memory_stats()
    X = torch.ones(1000, device="cuda")
    view = X[3:]
    assert used() == 4000
    X * 2
    assert used() == 4000 and torch.cuda.max_memory_allocated() - before == 8000
    del X
    assert used() == 4000  # the view keeps it
    view.untyped_storage().resize_(0)
    assert used() == 0
    weight = torch.ones(100, device="cuda", requires_grad=True)
    loss = (weight * 2).exp().sum()
    assert used() == 400 + 400 + 4  # exp saves its result
    loss.backward()
    assert used() == 400 + 400 + 4  # the gradient in its place
    torch.cuda.empty_cache()
    assert torch.cuda.memory_allocated(1) < torch.cuda.memory_allocated(0) == torch.accelerator.memory_allocated()
    assert torch.cuda.mem_get_info() == torch.accelerator.get_memory_info()
    free, total = torch.cuda.mem_get_info()
    assert total - free == torch.cuda.memory_reserved() == torch.cuda.memory_stats()["allocated_bytes.all.current"]
    assert torch.cuda.memory_stats()["num_ooms"] == 0
    assert "peak" in torch.cuda.memory_summary() and total == torch.cuda.get_device_properties(0).total_memory


def test_what_the_device_is():
    assert "the CPU computes" in torch.cuda.get_device_name(1) == torch.cuda.get_device_properties(1).name
    assert torch.cuda.get_device_capability() == (8, 0) and torch.cuda.is_bf16_supported()
    with pytest.raises(AssertionError, match="Invalid device id"):
        torch.cuda.get_device_name(2)
    with pytest.raises(getattr(torch, "AcceleratorError", RuntimeError), match="invalid device ordinal"):
        torch.cuda.synchronize(2)
    assert torch.accelerator.is_available() and torch.accelerator.device_count() == 2
    assert torch.accelerator.current_accelerator().type == "cuda"
    with torch.cuda.device(1), torch.cuda.device_of(torch.ones(1, device="cuda:0")):
        assert torch.cuda.current_device() == torch.accelerator.current_device_index() == 0
    with torch.accelerator.device_index(1):
        assert torch.ones(1, device="cuda").device == CUDA[1]


def test_the_default_device():
    torch.set_default_device("cuda")
    try:
        made = [torch.zeros(2), nn.Linear(2, 2).weight, torch.tensor(1), F.one_hot(torch.tensor([1]))]
        made += [nn.MultiheadAttention(4, 2)(*[torch.randn(2, 1, 4)] * 3)[0]]
        assert {t.device for t in made} == {CUDA[0]} and torch.zeros(1, device="cpu").device.type == "cpu"
    finally:
        torch.set_default_device(None)
    with torch.device("cuda:1"):
        assert nn.Linear(2, 2)(torch.ones(1, 2)).device == CUDA[1]
    assert torch.zeros(1).device.type == "cpu"


def test_files_keep_the_device():
    file, places = io.BytesIO(), []
    torch.save({"net": nn.Linear(2, 2).cuda(1).state_dict(), "step": torch.tensor(3)}, file)
    for to in (None, "cpu", "cuda:0", CUDA[1], {"cuda:1": "cuda:0"}, lambda s, _: s, lambda s, _: s.cuda(0)):
        file.seek(0)
        found = torch.load(file, map_location=to)
        assert isinstance(found["net"]["weight"], torch.Tensor) and found["step"] == 3
        places.append(str(found["net"]["weight"].device))
    assert places == ["cuda:1", "cpu", "cuda:0", "cuda:1", "cuda:0", "cpu", "cuda:0"]
    with pytest.raises(RuntimeError, match=r"on CUDA device 7 but torch.cuda.device_count\(\) is 2"):
        torch.load(io.BytesIO(file.getvalue().replace(b"cuda:1", b"cuda:7")))
    X = torch.ones(2, device=CUDA[1])
    assert pickle.loads(pickle.dumps(X)).device == copy.deepcopy(X).device == CUDA[1]


def test_tensors_from_arrays_are_copies():
    array, on_cpu = np.ones(2), torch.ones(2)
    X, Y = torch.as_tensor(array, device="cuda"), torch.as_tensor(on_cpu, device="cuda")
    X += 1
    assert array.tolist() == [1, 1] and on_cpu.device.type == "cpu" and Y.device == CUDA[0]
    assert torch.as_tensor(Y) is Y and torch.as_tensor(Y, device="cpu").device.type == "cpu"


def test_random_numbers():
    generator = torch.Generator("cuda").manual_seed(3)
    X = torch.randn(2, generator=generator, device="cuda")
    assert torch.equal(X, torch.randn(2, generator=generator.manual_seed(3), device="cuda"))
    with pytest.raises(RuntimeError, match="Expected a 'cuda' device type for generator but found 'cpu'"):
        torch.randn(2, generator=torch.Generator(), device="cuda")
    assert isinstance(torch.default_generator, torch.Generator)
    assert len(random_split(range(4), [2, 2], generator=torch.Generator().manual_seed(1))) == 2
    torch.cuda.manual_seed_all(1)
    X, states = torch.randn(1, device="cuda"), torch.cuda.get_rng_state_all()
    Y = torch.randn(1, device="cuda")
    torch.cuda.set_rng_state_all(states)
    assert torch.equal(Y, torch.randn(1, device="cuda")) and len(states) == 2
    torch.cuda.manual_seed(1)
    assert torch.equal(X, torch.randn(1, device="cuda"))


@pytest.mark.parametrize("reentrant", [True, False])
def test_checkpointing(reentrant):
    net = nn.Sequential(nn.Linear(3, 3), nn.Dropout(0.5), nn.ReLU(), nn.Linear(3, 3)).cuda()
    X, y = torch.randn(2, 3, device="cuda", requires_grad=True), torch.ones(2, 3, device="cuda")
    (checkpoint(net, X, use_reentrant=reentrant) * y).sum().backward()
    assert X.grad.device == net[0].weight.grad.device == CUDA[0]


def test_hooks_of_modules_and_sparse_gradients():
    net, seen = nn.Linear(2, 2).cuda(), []
    net.register_full_backward_hook(lambda module, _, grads: seen.append((grads[0] * module.weight[0, 0]).device))
    net(torch.ones(1, 2, device="cuda", requires_grad=True)).sum().backward()
    words = nn.Embedding(5, 2, sparse=True).cuda(1)
    words(torch.tensor([1, 2], device=CUDA[1])).sum().backward()
    torch.optim.SGD(words.parameters(), lr=0.1).step()
    assert seen == [CUDA[0]] and words.weight.grad.is_sparse and words.weight.grad.device == CUDA[1]


def test_functions_of_functions():
    X, weight = torch.randn(5, 3, device=CUDA[1]), torch.ones(3, device=CUDA[1])
    loss = lambda w, x: (w * x).sum() ** 2  # noqa: E731
    grads = torch.func.vmap(torch.func.grad(loss), in_dims=(None, 0))(weight, X)
    assert grads.device == CUDA[1] and torch.allclose(grads, 2 * X.sum(1, keepdim=True) * X)


def test_data_parallel():
    net = nn.DataParallel(nn.Linear(2, 2).cuda())
    output = net(torch.ones(4, 2, device="cuda"))
    output.sum().backward()
    assert output.device == net.module.weight.grad.device == CUDA[0]


def test_nothing_is_compiled_and_it_says_so():
    net = nn.Linear(2, 2)
    with pytest.warns(UserWarning, match="nothing is compiled"):
        assert torch.compile(net) is net and net._orig_mod.weight is net.weight and len(net.state_dict()) == 2
    net.compile()

    @torch.compile(fullgraph=True)
    def add(X):
        return X + 1

    assert add(1) == 2 and net(torch.ones(1, 2)).shape == (1, 2)


def test_torchscript_is_not_compiled_and_stays_on_the_gpu():
    with pytest.warns(UserWarning, match="torch.jit returns the module or function as it is"):
        scripted = torch.jit.script(lambda X: X * 2 + torch.ones(2, device=X.device))
    net = torch.jit.trace(nn.Linear(2, 2).cuda(), torch.ones(1, 2, device="cuda"))
    assert net(scripted(torch.ones(1, 2, device="cuda"))).device == CUDA[0]
    with pytest.raises(NotImplementedError, match="a file of TorchScript needs a real GPU"):
        net.save("net.pt")


@pytest.mark.parametrize(
    ("ask", "message"),
    [
        (lambda: torch.cuda.CUDAGraph(), "CUDA graphs are not pretended. Run the step without capturing it"),
        (lambda: torch.cuda.graph(None), "CUDA graphs are not pretended"),
        (lambda: torch.cuda.utilization(), "torch.cuda.utilization needs a real GPU, and is not pretended"),
        (lambda: torch.cuda.memory._snapshot(), "torch.cuda.memory._snapshot needs a real GPU"),
        (lambda: torch.UntypedStorage(3, device="cuda"), "this call needs a real GPU"),
        (lambda: torch.set_default_tensor_type("torch.cuda.FloatTensor"), r"Write torch.set_default_device\('cuda'\)"),
    ],
)
def test_what_is_not_pretended_says_so(ask, message):
    with pytest.raises(NotImplementedError, match=f"pretend GPUs: .*{message}"):
        ask()


def test_parameters_of_modules_that_are_never_called_are_counted():
    before = {id(p) for p in parameters_on_gpus()}
    net = nn.Linear(2, 3).cuda()
    average, on_cpu, lazy = copy.deepcopy(net), nn.Linear(2, 3), nn.LazyLinear(2, device="cuda")
    found = [p for p in parameters_on_gpus() if id(p) not in before]
    assert {id(p) for p in found} == {id(p) for p in [*net.parameters(), *average.parameters()]}
    assert not {id(p) for p in [*on_cpu.parameters(), *lazy.parameters()]} & {id(p) for p in found}


def test_nvidia_smi_knows_no_pretend_gpu():
    with pytest.warns(UserWarning, match="pretend GPUs: nvidia-smi knows no pretend GPU"):
        os.popen("nvidia-smi -L 2> /dev/null").close()


def test_the_number_of_gpus_stays():
    from ddp_rehearsal.pretend_gpus import pretend_gpus

    pretend_gpus(2)
    with pytest.raises(RuntimeError, match="got one with 2 pretend GPU"):
        pretend_gpus(3)
    assert os.environ["D2LITE_PRETEND_GPUS"] == "2"
