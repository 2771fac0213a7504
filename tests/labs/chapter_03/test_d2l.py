"""`from d2lite import d2l`: the names of d2l's multi-GPU lessons, one by one, and in lessons of our own."""

import sys

import nbformat
import pytest
import torch
from nbclient import NotebookClient
from torch import nn
from torch.nn import functional as F

import d2lite
from d2lite import d2l, sgd_step


def test_every_name_is_there_and_what_only_d2l_names_so_is_not_in_the_package_itself():
    assert all(getattr(d2l, name) is not None for name in (*d2l.__all__, "Animator"))
    for name in ("accuracy", "Benchmark", "Residual", "evaluate_accuracy_gpu", "plt", "set_figsize", "sgd"):
        assert not hasattr(d2lite, name)
    with pytest.raises(AttributeError, match="module 'd2lite.labs.chapter_03.d2l' has no attribute 'train_ch13'"):
        d2l.train_ch13  # noqa: B018


def test_sgd_zeroes_the_gradients_and_sgd_step_leaves_them():
    for step, left in ((d2l.sgd, 0.0), (sgd_step, 4.0)):
        param = torch.tensor([1.0], requires_grad=True)
        param.grad = gradient = torch.tensor([4.0])
        step([param], lr=0.1, batch_size=2)
        assert param.item() == pytest.approx(0.8)
        assert param.grad is gradient and gradient.item() == left


def test_a_loop_that_never_discards_gradients_needs_sgd():
    """What a lesson does: backward, then d2l.sgd, over and over. With `sgd_step` old gradients are applied again."""
    ended = {}
    for step in (d2l.sgd, sgd_step):
        w = torch.zeros(1, requires_grad=True)
        for _ in range(20):
            ((w - 3) ** 2).sum().backward()
            step([w], 0.25, 1)
        ended[step] = abs(w.item() - 3)
    assert ended[d2l.sgd] < 1e-4 < ended[sgd_step]


def test_sgd_without_a_gradient_says_where():
    with pytest.raises(ValueError, match="expected a gradient in .grad of each parameter, got None at index 0"):
        d2l.sgd([torch.zeros(1)], 0.1, 1)


@pytest.mark.parametrize("y_hat", [torch.tensor([[0.2, 0.8], [0.7, 0.3], [0.4, 0.6]]), torch.tensor([1, 0, 1])])
def test_accuracy_is_a_count(y_hat):
    right = d2l.accuracy(y_hat, torch.tensor([1, 1, 1]))
    assert right == 2.0 and type(right) is float
    assert d2l.accuracy(y_hat.reshape(3, -1)[:, :1].argmax(1, keepdim=True), torch.zeros(3, dtype=torch.int64)) == 3
    with pytest.raises(ValueError, match="expected as many labels as predictions, got 2 and 3"):
        d2l.accuracy(y_hat, torch.tensor([1, 1]))


def test_evaluate_accuracy_gpu_takes_functions_modules_and_lists():
    X, y = torch.eye(4), torch.tensor([0, 1, 0, 0])
    assert d2l.evaluate_accuracy_gpu(lambda X: X, [(X, y), (X[:1], y[:1])], torch.device("cpu")) == 3 / 5
    assert d2l.evaluate_accuracy_gpu(lambda pair: pair[0] + pair[1], [([X, X], y)]) == 0.5
    net = nn.Sequential(nn.Linear(4, 4), nn.Dropout(0.5))
    net.train()
    d2l.evaluate_accuracy_gpu(net, [(X, y)])
    assert all(layer.training for layer in net.modules())
    with pytest.raises(ValueError, match="expected at least one minibatch"):
        d2l.evaluate_accuracy_gpu(net, [])


@pytest.mark.skipif(torch.cuda.is_available(), reason="there torch's DataParallel has devices")
def test_all_devices_evaluate_what_torch_wraps_without_a_gpu():
    X, y = torch.eye(4), torch.tensor([0, 1, 0, 0])
    net = nn.DataParallel(nn.Identity(), device_ids=d2l.try_gpus(2))
    assert d2l.evaluate_accuracy_gpus(net, [(X, y)]) == d2l.evaluate_accuracy_gpu(net, [(X, y)]) == 0.5


def test_residual_is_the_block_of_the_paper():
    torch.manual_seed(0)
    block, X = d2l.Residual(4, use_1x1conv=True, strides=2).double(), torch.rand(2, 3, 6, 6, dtype=torch.float64)
    Y = block(X)
    inner = F.relu(block.bn1(F.conv2d(X, block.conv1.weight, block.conv1.bias, 2, 1)))
    inner = block.bn2(F.conv2d(inner, block.conv2.weight, block.conv2.bias, 1, 1))
    shortcut = F.conv2d(X, block.conv3.weight, block.conv3.bias, 2)
    torch.testing.assert_close(Y, F.relu(inner + shortcut))
    assert d2l.Residual(3)(torch.rand(2, 3, 6, 6)).shape == (2, 3, 6, 6)


def test_benchmark_prints_its_description_and_seconds(capsys):
    with d2l.Benchmark("two GPUs"):
        pass
    assert capsys.readouterr().out.startswith("two GPUs: 0.")
    with pytest.raises(KeyError), d2l.Benchmark():
        raise KeyError  # is not swallowed


def test_plt_is_matplotlib_and_without_it_the_error_says_so(monkeypatch):
    pyplot = pytest.importorskip("matplotlib.pyplot")
    before = pyplot.rcParams["figure.figsize"]
    assert d2l.plt is pyplot
    d2l.set_figsize((5, 4))
    assert list(pyplot.rcParams["figure.figsize"]) == [5, 4]
    pyplot.rcParams["figure.figsize"] = before
    monkeypatch.setitem(sys.modules, "matplotlib.pyplot", None)
    with pytest.raises(ImportError, match="pip install matplotlib"):
        d2l.plt  # noqa: B018
    d2l.set_figsize()  # nothing to set


# Lessons of our own in the calls of d2l's sections 13.5 and 13.6. Two things are changed in them: the first line was
# `from d2l import torch as d2l`, and the device lists were [torch.device("cuda:0"), torch.device("cuda:1")]. Four
# minibatches are enough here.
START = """%matplotlib inline
import torch
from torch import nn
from torch.nn import functional as F
from d2lite import d2l
from itertools import islice
load = d2l.load_data_fashion_mnist
few = lambda batch_size: [list(islice(batches, 4)) for batches in load(batch_size, num_examples=512)]
d2l.load_data_fashion_mnist = few"""

FROM_SCRATCH = [
    """loss = nn.CrossEntropyLoss(reduction="none")
def get_params(params, device):
    return [p.to(device, copy=True).requires_grad_() for p in params]
def allreduce(data):
    for part in data[1:]:
        data[0][:] += part.to(data[0].device)
    for part in data[1:]:
        part[:] = data[0].to(part.device)
data = [torch.ones((1, 2), device=device) * (i + 1) for i, device in enumerate(d2l.try_gpus(2))]
allreduce(data)
assert [part.tolist() for part in data] == [[[3, 3]], [[3, 3]]]""",
    """batch = torch.arange(20).reshape(4, 5)
devices = d2l.try_gpus(2)
assert [len(part) for part in d2l.scatter(batch, devices)] == [2, 2]  # was: nn.parallel.scatter
X_shards, y_shards = d2l.split_batch(batch, torch.arange(4), devices)""",
    """def train_batch(X, y, device_params, devices, lr):
    X_shards, y_shards = d2l.split_batch(X, y, devices)
    ls = [loss(d2l.lenet(X_shard, params), y_shard).sum()
          for X_shard, y_shard, params in zip(X_shards, y_shards, device_params)]
    for l in ls:
        l.backward()
    with torch.no_grad():
        for i in range(len(device_params[0])):
            allreduce([params[i].grad for params in device_params])
    for params in device_params:
        d2l.sgd(params, lr, X.shape[0])""",
    """def train(num_gpus, batch_size, lr, num_epochs=2):
    train_iter, test_iter = d2l.load_data_fashion_mnist(batch_size)
    devices = d2l.try_gpus(num_gpus)
    device_params = [get_params(d2l.lenet_params(), device) for device in devices]
    animator = d2l.Animator("epoch", "test acc", xlim=[1, num_epochs])
    timer = d2l.Timer()
    for epoch in range(num_epochs):
        timer.start()
        for X, y in train_iter:
            train_batch(X, y, device_params, devices, lr)
            d2l.synchronize(devices)  # was: torch.cuda.synchronize()
        timer.stop()
        animator.add(epoch + 1, (d2l.evaluate_accuracy_gpu(
            lambda x: d2l.lenet(x, device_params[0]), test_iter, devices[0]),))
    print(f"test acc: {animator.Y[0][-1]:.2f}, {timer.avg():.1f} sec/epoch on {str(devices)}")
    return animator.Y[0], device_params
one, [alone] = train(num_gpus=1, batch_size=64, lr=0.1)
two, [first, second] = train(num_gpus=2, batch_size=64, lr=0.1)
assert one == two
assert max((p - q).abs().max().item() for p, q in zip(alone, first)) < 1e-3
assert all(torch.equal(p, q.to(p.device)) for p, q in zip(first, second))""",
]
CONCISE = [
    """def small_resnet(num_classes, in_channels=1):
    net = nn.Sequential(nn.Conv2d(in_channels, 8, 3, stride=2, padding=1), nn.BatchNorm2d(8), nn.ReLU())
    net.add_module("block1", nn.Sequential(d2l.Residual(8), d2l.Residual(8)))
    net.add_module("block2", nn.Sequential(d2l.Residual(16, use_1x1conv=True, strides=2), d2l.Residual(16)))
    net.add_module("pool", nn.AdaptiveAvgPool2d((1, 1)))
    net.add_module("fc", nn.Sequential(nn.Flatten(), nn.Linear(16, num_classes)))
    return net
net, devices = small_resnet(10), d2l.try_all_gpus()""",
    """def train(net, num_gpus, batch_size, lr, num_epochs=1):
    train_iter, test_iter = d2l.load_data_fashion_mnist(batch_size)
    devices = d2l.try_gpus(num_gpus)
    def init_weights(module):
        if type(module) in [nn.Linear, nn.Conv2d]:
            nn.init.normal_(module.weight, std=0.1)
    net.apply(init_weights)
    net = nn.DataParallel(net, device_ids=devices)
    trainer, loss = torch.optim.SGD(net.parameters(), lr), nn.CrossEntropyLoss()
    timer = d2l.Timer()
    animator = d2l.Animator("epoch", "test acc", xlim=[1, num_epochs])
    for epoch in range(num_epochs):
        net.train()
        timer.start()
        for X, y in train_iter:
            trainer.zero_grad()
            X, y = X.to(devices[0]), y.to(devices[0])
            loss(net(X), y).backward()
            trainer.step()
        timer.stop()
        animator.add(epoch + 1, (d2l.evaluate_accuracy_gpu(net, test_iter),))
    assert abs(d2l.evaluate_accuracy_gpus(net, test_iter) - animator.Y[0][-1]) < 1e-3
    print(f"test acc: {animator.Y[0][-1]:.2f}, {timer.avg():.1f} sec/epoch on {str(devices)}")
    return animator.Y[0]
assert train(net, num_gpus=1, batch_size=64, lr=0.2)[-1] >= 0""",
    """with d2l.Benchmark("a matrix product on each device"):
    products = [torch.rand(64, 64, device=device) @ torch.rand(64, 64, device=device) for device in d2l.try_gpus(2)]
    d2l.synchronize(d2l.try_gpus(2))
d2l.set_figsize((2, 2))
d2l.plt.plot([1, 2, 3]);""",
]


@pytest.mark.slow
def test_lessons_in_the_calls_of_sections_13_5_and_13_6(tmp_path):
    """Both in one kernel, for its start takes longest."""
    cells = [nbformat.v4.new_code_cell(source) for source in [START, *FROM_SCRATCH, *CONCISE]]
    notebook = nbformat.v4.new_notebook(cells=cells)
    NotebookClient(notebook, timeout=120, resources={"metadata": {"path": str(tmp_path)}}).execute()
    printed = [
        out.text for cell in cells for out in cell.outputs if out.output_type == "stream" and out.name == "stdout"
    ]
    assert sum("sec/epoch on [device" in text for text in "".join(printed).splitlines(keepends=True)) == 3
    assert any("a matrix product on each device: 0." in text for text in printed)


def test_the_second_argument_of_load_data_is_the_size_as_in_d2l():
    train_iter, test_iter = d2l.load_data_fashion_mnist(4, 96, num_examples=12)
    assert next(iter(train_iter))[0].shape == (4, 1, 96, 96) and test_iter.num_examples == 2
