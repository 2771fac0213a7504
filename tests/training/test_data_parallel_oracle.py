"""DataParallel against the module alone, on one device: 300 random modules, and what learners do with modules."""

import copy
import pickle
from collections import OrderedDict, defaultdict, namedtuple
from dataclasses import dataclass
from types import MethodType, SimpleNamespace

import pytest
import torch
import torch.nn.functional as F
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn
from torch.nn.utils import parametrizations, spectral_norm, weight_norm
from torch.utils.checkpoint import checkpoint

from d2lite.training.data_parallel import DataParallel

CPU = torch.device("cpu")
WIDTH = 4
Pair = namedtuple("Pair", "first second")


@dataclass
class Output:
    logits: torch.Tensor
    name: str = "logits"


class Residual(nn.Module):
    def __init__(self, inner):
        super().__init__()
        self.inner = inner

    def forward(self, X):
        return X + self.inner(X)


class Twice(Residual):
    def forward(self, X):
        return self.inner(self.inner(X))


class Checkpointed(Residual):
    def forward(self, X):
        if self.training and any("_u" in name for name, _ in self.inner.named_buffers()):
            return self.inner(X)  # a second pass would change what spectral_norm keeps
        return checkpoint(self.inner, X, use_reentrant=False)


class Sequence(Residual):
    """A layer for sequences, given sequences of length one."""

    def forward(self, X):
        return self.inner(X[:, None])[0][:, 0]


class Attention(Residual):
    def forward(self, X):
        return self.inner(X[:, None], X[:, None], X[:, None])[0][:, 0]


class InLists(nn.Module):
    """Layers in a plain list and a plain dict too."""

    def __init__(self, inner):
        super().__init__()
        self.inner = inner
        self.plain, self.named = [inner], {"deep": ([inner],)}

    def forward(self, X):
        return self.plain[0](X) + self.named["deep"][0][0](X)


class Parameters(nn.Module):
    def __init__(self):
        super().__init__()
        self.list = nn.ParameterList([nn.Parameter(torch.randn(WIDTH)) for _ in range(2)])
        self.register_buffer("scale", torch.randn(WIDTH))

    def forward(self, X):
        return X * self.list[0] * self.scale + self.list[1]


def linear():
    return nn.Linear(WIDTH, WIDTH)


def tied():
    first, second = linear(), linear()
    second.weight = first.weight
    return nn.Sequential(first, nn.Tanh(), second)


def half_frozen():
    layer = linear()
    layer.weight.requires_grad_(False)
    return layer


BLOCKS = [
    linear,
    tied,
    half_frozen,
    Parameters,
    lambda: weight_norm(linear()),
    lambda: parametrizations.weight_norm(linear()),
    lambda: spectral_norm(linear()),
    lambda: parametrizations.spectral_norm(linear()),
    lambda: parametrizations.orthogonal(linear()),
    lambda: nn.LayerNorm(WIDTH),
    lambda: nn.GroupNorm(2, WIDTH),
    lambda: nn.Sequential(nn.Tanh(), nn.PReLU()),
    lambda: nn.LeakyReLU(0.3),
    lambda: Sequence(nn.LSTM(WIDTH, WIDTH, batch_first=True)),
    lambda: Sequence(nn.GRU(WIDTH, WIDTH, batch_first=True)),
    lambda: Attention(nn.MultiheadAttention(WIDTH, 2, batch_first=True)),
    lambda: DataParallel(linear(), [CPU] * 2),
    lambda: nn.BatchNorm1d(WIDTH).eval(),
]
WRAPS = [lambda inner: inner, Residual, Twice, Checkpointed, InLists]


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:.*weight_norm.*is deprecated", "ignore:.*torch.nn.utils.weight_norm")
@settings(max_examples=300)
@given(
    blocks=st.lists(st.tuples(st.sampled_from(BLOCKS), st.sampled_from(WRAPS)), min_size=1, max_size=3),
    k=st.integers(1, 4),
    n=st.integers(1, 7),
    seed=st.integers(0, 99),
    with_input=st.booleans(),
    hooks=st.booleans(),
    way=st.sampled_from(["once", "retain_graph", "two forwards", "accumulate"]),
)
def test_a_random_module(blocks, k, n, seed, with_input, hooks, way):
    def make():
        torch.manual_seed(seed)
        return nn.Sequential(*(wrap(block()) for block, wrap in blocks)).double()

    one, two = make(), DataParallel(make(), [CPU] * k)  # a module with the old weight_norm cannot be copied
    X, other = torch.randn(2, n, WIDTH, dtype=torch.float64)
    assert_equal(*(outcome(net, X, other, with_input, hooks, way) for net in (one, two)))
    for (name, a), b in zip(one.named_buffers(), two.module.buffers(), strict=True):
        torch.testing.assert_close(b, a, rtol=0, atol=1e-9, msg=name)


def outcome(net, X, other, with_input, hooks, way):
    """Return outputs, gradients and how often hooks were called."""
    calls = []
    if hooks:
        for p in net.parameters():
            if p.requires_grad:
                p.register_hook(lambda grad: calls.append(1) or 10 * grad + 1)
    X = X.clone().requires_grad_(with_input)
    output = net(X)
    if way == "two forwards":
        second = net(other)
        if second.requires_grad:
            second.square().sum().backward()
    if output.requires_grad:
        loss = output.square().sum()
        if loss.requires_grad:
            loss.backward(retain_graph=way == "retain_graph")
            if way == "retain_graph":
                loss.backward()
            if way == "accumulate":
                net(X).sum().backward()
    return output.detach(), [X.grad, *(p.grad for p in net.parameters())], len(calls)


def assert_equal(expected, got):
    torch.testing.assert_close(got[0], expected[0], rtol=0, atol=1e-9)
    assert got[2] == expected[2]
    for a, b in zip(expected[1], got[1], strict=True):
        assert (a is None) == (b is None)
        if a is not None:
            torch.testing.assert_close(b, a, rtol=1e-8, atol=1e-8)


def compare(change, make=None, X=None, k=2):
    """Take a step, `change(module)`, and take another one: alone and on k devices. Return both modules."""
    X = torch.randn(5, WIDTH, dtype=torch.float64, generator=torch.Generator().manual_seed(1)) if X is None else X
    found = []
    for wrapped in (False, True):
        torch.manual_seed(0)
        module = (make or (lambda: nn.Sequential(linear(), nn.LeakyReLU(0.1), nn.Dropout(0.0), linear())))().double()
        net = DataParallel(module, [CPU] * k) if wrapped else module
        net(X).sum().backward()
        change(module)
        module.zero_grad()
        output = net(X)
        output.square().sum().backward()
        found.append((output.detach(), [p.grad for p in module.parameters()], 0))
    assert_equal(*found)


def no_dropout(module):
    module[2].p = 1.0 - 1e-12  # everything is dropped


def slope(module):
    module[1].negative_slope = -3.0


def hook(module):
    module[0].register_forward_hook(lambda module, args, output: output * module.weight.sum())


def pre_hook(module):
    module[3].register_forward_pre_hook(lambda module, args: (args[0] + 1,))


def backward_hook(module):
    module[3].register_full_backward_hook(lambda module, grads, outputs: (7 * grads[0],))


def forward_of_the_instance(module):
    module.forward = MethodType(lambda self, X: 2 * self[3](X), module)


def forward_around_the_old_one(module):
    old = module.forward
    module.forward = lambda X: 3 * old(X)


def forward_with_an_unregistered_tensor(module):
    scale = torch.full((WIDTH,), 2.0, dtype=torch.float64, requires_grad=True)
    module[0].forward = lambda X: X * scale
    module.scale_of_the_test = scale


def another_layer(module):
    module[0] = nn.Linear(WIDTH, WIDTH, bias=False).double()
    nn.init.ones_(module[0].weight)


def frozen(module):
    module[0].weight.requires_grad_(False)


def evaluation(module):
    module.eval()


def loaded(module):
    module.load_state_dict({name: value + 1 for name, value in module.state_dict().items()})


@pytest.mark.parametrize(
    "change",
    [
        no_dropout,
        slope,
        hook,
        pre_hook,
        backward_hook,
        forward_of_the_instance,
        forward_around_the_old_one,
        forward_with_an_unregistered_tensor,
        another_layer,
        frozen,
        evaluation,
        loaded,
    ],
)
def test_what_is_changed_between_steps_is_seen(change):
    compare(change)
    compare(change, k=1)


def test_gradients_reach_tensors_past_the_module():
    scale = torch.ones(WIDTH, requires_grad=True)
    net = DataParallel(nn.Identity(), [CPU] * 2)
    net.module.forward = lambda X: X * scale
    X = torch.randn(5, WIDTH)
    net(X).sum().backward()
    torch.testing.assert_close(scale.grad, X.sum(0))
    scale.register_hook(lambda grad: 10 * grad)
    with pytest.raises(RuntimeError, match="expected parameters with hooks to be used through the module itself"):
        net(X)


class TwoHeads(nn.Module):
    """Two outputs, each from a layer of its own."""

    def __init__(self):
        super().__init__()
        self.used, self.unused = linear(), linear()

    def forward(self, X):
        return self.used(X), self.unused(X)


@pytest.mark.parametrize("k", [1, 2])
def test_an_output_that_the_loss_does_not_use_gives_no_gradient(k):
    net = DataParallel(TwoHeads(), [CPU] * k)
    X = torch.randn(4, WIDTH, requires_grad=True)
    net(X)[0].sum().backward()
    assert all(param.grad is not None for param in net.module.used.parameters())
    assert all(param.grad is None for param in net.module.unused.parameters())  # zeros would let weight decay move it
    before = copy.deepcopy(net.module.unused.state_dict())
    torch.optim.SGD(net.parameters(), lr=0.1, weight_decay=0.5).step()
    assert all(torch.equal(value, before[name]) for name, value in net.module.unused.state_dict().items())


class InLongLists(nn.Module):
    """A layer at the end of a list, a tuple and a dict of `n` entries."""

    def __init__(self, n):
        super().__init__()
        self.layer = linear()
        self.list, self.named = [None] * (n - 1) + [self.layer], {i: self.layer if i == n - 1 else i for i in range(n)}
        self.tuple = tuple(self.list)

    def forward(self, X):
        return self.list[-1](X) + self.tuple[-1](X) + self.named[len(self.named) - 1](X)


@pytest.mark.parametrize("n", [4, 1000])
def test_a_layer_in_a_long_list_is_that_of_the_replica(n):
    compare(lambda module: None, lambda: InLongLists(n))
    for replica in DataParallel(InLongLists(n), [CPU] * 2).replicate():
        assert all(layer is replica.layer for layer in (replica.list[-1], replica.tuple[-1], replica.named[n - 1]))


class Wide(nn.Module):
    """Several inputs by place and name, several outputs in every structure."""

    def __init__(self):
        super().__init__()
        self.layer, self.calls = linear(), 0

    def forward(self, X, pair, *, shift, flag=None, scale=None):
        self.calls += 1
        h = self.layer(X) + pair[0] * shift["shift"]
        h = h * scale if scale is not None else h
        labels = h.argmax(1)
        return OrderedDict(a=h, b=(h + 1, [labels]), c=Pair(h * 2, flag), d=Output(h - 1), e=defaultdict(list, x=h))


def test_inputs_and_outputs_of_every_structure():
    torch.manual_seed(0)
    one, (X, Y, Z) = Wide(), torch.randn(3, 5, WIDTH)
    two = DataParallel(copy.deepcopy(one), [CPU] * 3)
    results = [net(X, (Y, "text"), shift={"shift": Z}, flag="yes", scale=torch.tensor(2.0)) for net in (one, two)]
    a, b = results
    assert type(b) is OrderedDict and type(b["c"]) is Pair and type(b["d"]) is Output and type(b["e"]) is defaultdict
    assert b["c"].second == "yes" and b["d"].name == "logits" and b["e"]["missing"] == []
    parts = [(r["a"], *r["b"][:1], r["b"][1][0], r["c"].first, r["d"].logits, r["e"]["x"]) for r in results]
    for expected, got in zip(*parts, strict=True):
        torch.testing.assert_close(got, expected)
    for tensors in parts:
        sum(t.sum() for t in tensors if t.is_floating_point()).backward()
    torch.testing.assert_close(two.module.layer.weight.grad, one.layer.weight.grad)
    assert one.calls == two.module.calls == 1  # what the first replica has counted


def test_a_module_without_tensors():
    net = DataParallel(Parameters(), [CPU] * 2)
    net.module.forward = MethodType(lambda self, n: self.list[0].sum() * n, net.module)
    net(3).backward()
    assert torch.equal(net.module.list[0].grad, torch.full((WIDTH,), 3.0))


@pytest.mark.parametrize(
    ("forward", "args", "message"),
    [
        (
            lambda X: X.sum(),
            1,
            r"expected outputs \[b, ...\] for shards of \[3, 2\] examples, got shapes \[\(\), \(\)\]",
        ),
        (lambda X: X.repeat(2, 1), 1, r"got shapes \[\(6, 4\), \(4, 4\)\]. Return one row per example"),
        (lambda X: (X, len(X)), 1, r"expected tensors, tuples, .* as output, got 3 .int.. Each replica has its own"),
        (lambda X: [X, str(len(X))], 1, r"expected the same value from each replica, got \['3', '2'\]"),
        (lambda X: SimpleNamespace(X=X), 1, r"expected tensors, .* got namespace.* .SimpleNamespace.. Each replica"),
        (lambda X: (X,) * len(X), 1, r"expected the same length from each replica, got \[3, 2\]"),
        (
            lambda X: X if len(X) == 3 else (X,),
            1,
            r"expected the same structure from each replica, got \['Tensor', 'tuple'\]",
        ),
        (lambda X: {str(len(X)): X}, 1, r"expected the same keys from each replica, got \[\['3'\], \['2'\]\]"),
        (
            lambda X, Y: X,
            2,
            r"arguments: expected tensors \[b, ...\] with one b, got \[4, 5\] examples. Put the examples",
        ),
    ],
)
def test_what_would_be_wrong_is_an_error(forward, args, message):
    net = DataParallel(nn.Identity(), [CPU] * 2)
    net.module.forward = forward
    with pytest.raises(ValueError, match=message):
        net(*[torch.randn(5 - i, WIDTH) for i in range(args)])


def test_modules_that_cannot_be_replicated():
    with pytest.raises(RuntimeError, match="expected initialised layers, got lazy ones. Call the module once"):
        DataParallel(nn.LazyLinear(2), [CPU])(torch.randn(2, 3))
    with pytest.warns(FutureWarning), pytest.raises(TypeError, match="expected a module in Python"):
        DataParallel(nn.Sequential(torch.jit.script(linear())), [CPU])


class Leaky(nn.Module):
    """A module that does in its forward pass what `way` says."""

    def __init__(self, way):
        super().__init__()
        self.layer, self.way, self.aux, self.made = linear(), way, [], None

    def forward(self, X):
        h = self.layer(X)
        if self.way == "list":
            self.aux.append(h.square().mean())
        elif self.way == "backward":
            h.sum().backward()
        elif self.way == "layer":
            self.made = linear()
        elif self.way == "parameter":
            self.weight = nn.Parameter(torch.ones(WIDTH))
        elif self.way == "data":
            self.layer.weight.data = self.layer.weight.data / 2
        return h


@pytest.mark.parametrize("k", [1, 2])
@pytest.mark.parametrize(
    ("way", "message"),
    [
        ("list", "expected a loss of what `forward` returns, got one of a tensor"),
        ("backward", "expected a loss of what `forward` returns, got one of a tensor"),
        ("layer", "expected layers and parameters from before the forward pass, got 'made', made by .* Leaky"),
        ("parameter", "expected layers and parameters from before the forward pass, got 'weight'"),
        ("data", "expected parameters in their old memory after `forward`, got one with a new `.data`"),
    ],
)
def test_what_would_be_lost_is_an_error(way, message, k):
    net = DataParallel(Leaky(way), [CPU] * k)
    with pytest.raises(RuntimeError, match=message):
        (net(torch.ones(4, WIDTH)).sum() + sum(net.module.aux)).backward()


def test_a_cache_of_parametrizations_is_refused():
    net = DataParallel(parametrizations.weight_norm(linear()), [CPU])
    with torch.nn.utils.parametrize.cached(), pytest.raises(RuntimeError, match="expected no parametrize.cached"):
        net(torch.ones(4, WIDTH))


def test_writing_into_the_input_buffers_with_gradients_and_traced_modules():
    found = []
    for k in (0, 1, 2):
        torch.manual_seed(0)
        module = nn.Sequential(nn.ReLU(inplace=True), linear(), nn.Tanh()).double()
        module.register_buffer("extra", torch.ones(WIDTH, dtype=torch.float64, requires_grad=True))
        module.forward = MethodType(lambda self, X: self[2](self[1](self[0](X))) * self.extra, module)
        net = DataParallel(module, [CPU] * k) if k else module
        X = torch.linspace(-1, 1, 4 * WIDTH, dtype=torch.float64).view(4, WIDTH).requires_grad_()
        output = net(X * 2)
        output.sum().backward()
        found.append((output.detach(), [X.grad, module.extra.grad, *(p.grad for p in module.parameters())], 0))
    assert_equal(found[0], found[1])
    assert_equal(found[0], found[2])
    traced = torch.fx.symbolic_trace(linear())
    torch.testing.assert_close(DataParallel(traced, [CPU] * 2)(X.float()), traced(X.float()))


def test_replicas_have_parameters():
    seen = []
    net = DataParallel(linear(), [CPU] * 2)
    net.module.register_forward_hook(lambda module, *_: seen.append(isinstance(module.weight, nn.Parameter)))
    net(torch.ones(4, WIDTH))
    assert seen == [True, True]


def test_the_state_of_a_recurrent_layer_is_kept():
    class Stateful(Residual):
        def forward(self, X):
            output, self.state = self.inner(X[:, None], getattr(self, "state", None))
            self.state = tuple(s.detach() for s in self.state)
            return output[:, 0]

    torch.manual_seed(0)
    one = Stateful(nn.LSTM(WIDTH, WIDTH, batch_first=True))
    two = DataParallel(copy.deepcopy(one), [CPU])
    X = torch.randn(3, WIDTH)
    for _ in range(3):
        torch.testing.assert_close(two(X), one(X))


def test_an_adversary():
    """A discriminator is called three times between two updates, and its first output is used last."""
    found = []
    for k in (0, 1, 3):
        torch.manual_seed(0)
        generator, critic = linear().double(), nn.Sequential(linear(), nn.Tanh(), nn.Linear(WIDTH, 1)).double()
        if k:
            generator, critic = (DataParallel(net, [CPU] * k) for net in (generator, critic))
        fake = generator(torch.randn(6, WIDTH, dtype=torch.float64))
        on_fake, on_real = critic(fake), critic(torch.ones(6, WIDTH, dtype=torch.float64))
        (critic(fake.detach()).mean() - on_real.mean()).backward()
        on_fake.mean().backward()
        found.append((on_fake.detach(), [p.grad for net in (generator, critic) for p in net.parameters()], 0))
    assert_equal(found[0], found[1])
    assert_equal(found[0], found[2])


def test_a_graph_is_freed_as_that_of_a_module_is():
    net = DataParallel(linear(), [CPU] * 2)
    loss = net(torch.randn(4, WIDTH)).square().sum()
    loss.backward(retain_graph=True)
    loss.backward()
    with pytest.raises(RuntimeError, match="backward through the graph a second time"):
        loss.backward()
    X = torch.randn(4, WIDTH)
    loss = net(X).square().sum()
    with torch.no_grad():
        net.module.weight.add_(1)
    loss.backward()  # the weight is needed for the gradient of the input only
    loss = net(X.requires_grad_()).square().sum()
    with torch.no_grad():
        net.module.weight.add_(1)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        loss.backward()


def test_activations_are_freed_by_the_backward_pass():
    freed = []

    class Watched(torch.autograd.Function):
        @staticmethod
        def forward(ctx, X):
            ctx.save_for_backward(X.clone())
            return X.clone()

        @staticmethod
        def backward(ctx, grad):
            return grad

    class Module(Residual):
        def forward(self, X):
            h = self.inner(X)
            torch.utils.weak.weakref.finalize(h, freed.append, 1)
            return h.tanh().tanh()

    net = DataParallel(Module(linear()), [CPU] * 2)
    loss = net(torch.randn(4, WIDTH)).sum()
    loss.backward()
    assert len(freed) == 2  # although the loss is still there


def test_checkpoints_and_hooks_on_saved_tensors_around_it():
    found = []
    for k in (0, 2):
        torch.manual_seed(0)
        net = nn.Sequential(linear(), nn.Tanh(), linear()).double()
        wrapped = DataParallel(net, [CPU] * k) if k else net
        X = torch.ones(4, WIDTH, dtype=torch.float64, requires_grad=True)
        output = checkpoint(lambda X, f=wrapped: f(X).tanh(), X, use_reentrant=False)  # noqa: B023
        output.sum().backward()
        with torch.autograd.graph.save_on_cpu():
            wrapped(X).square().sum().backward()
        found.append((output.detach(), [X.grad, *(p.grad for p in net.parameters())], 0))
    assert_equal(*found)


def test_autocast_and_modes():
    torch.manual_seed(0)
    one, X = linear(), torch.randn(5, WIDTH)
    two = DataParallel(copy.deepcopy(one), [CPU] * 2)
    for net in (one, two):
        with torch.autocast("cpu", dtype=torch.bfloat16):
            output = net(X)
        assert output.dtype == torch.bfloat16
        output.float().sum().backward()
    torch.testing.assert_close(two.module.weight.grad, one.weight.grad, rtol=1e-2, atol=1e-2)
    with torch.no_grad():
        assert not two(X).requires_grad
    with torch.inference_mode():
        assert two(X).is_inference()
    two(X.requires_grad_()).sum().backward()
    assert X.grad is not None


def test_functional_call_is_followed_and_transformations_are_refused():
    torch.manual_seed(0)
    one = nn.Sequential(linear(), nn.Tanh(), linear()).double()
    two = DataParallel(copy.deepcopy(one), [CPU] * 2)
    X = torch.randn(5, WIDTH, dtype=torch.float64)
    other = {name: p.detach() + 1 for name, p in one.named_parameters()}
    result = torch.func.functional_call(two, {f"module.{name}": p for name, p in other.items()}, (X,))
    torch.testing.assert_close(result, torch.func.functional_call(one, other, (X,)))

    def loss(params):
        return torch.func.functional_call(two, params, (X,)).square().sum()

    message = "expected no transformation of torch.func around it .* Transform the wrapped network itself: net.module"
    for call in (lambda: torch.func.grad(loss)(dict(two.named_parameters())), lambda: torch.func.jacrev(two)(X)):
        with pytest.raises(RuntimeError, match=message):
            call()


def test_second_derivatives_are_refused():
    net = DataParallel(nn.Sequential(linear(), nn.Tanh(), linear()), [CPU] * 2)
    X = torch.randn(4, WIDTH, requires_grad=True)
    with pytest.raises(RuntimeError, match="expected a backward pass without create_graph=True, .* net.module"):
        torch.autograd.grad(net(X).sum(), X, create_graph=True)


def test_copies_pickles_and_state_dicts():
    two = DataParallel(nn.Sequential(linear(), nn.BatchNorm1d(WIDTH)), [CPU] * 2)
    X = torch.randn(6, WIDTH)
    two(X).sum().backward()
    copies = [copy.deepcopy(two), pickle.loads(pickle.dumps(two)), DataParallel(copy.deepcopy(two.module), [CPU] * 2)]
    copies[2].load_state_dict(two.state_dict())
    for other in copies:
        assert other.devices == two.devices
        torch.testing.assert_close(other.eval()(X), two.eval()(X))
    assert list(two.state_dict())[0] == "module.0.weight"


def test_sparse_gradients_and_embeddings():
    one = nn.Sequential(nn.Embedding(9, WIDTH, sparse=True), nn.Flatten(), nn.Linear(2 * WIDTH, 1)).double()
    two = DataParallel(copy.deepcopy(one), [CPU] * 2)
    X = torch.tensor([[1, 2], [2, 3], [1, 1]])
    for net in (one, two):
        net(X).square().sum().backward()
    assert two.module[0].weight.grad.is_sparse
    torch.testing.assert_close(two.module[0].weight.grad.to_dense(), one[0].weight.grad.to_dense())


def test_what_a_forward_pass_sets_is_kept():
    class Counter(nn.Module):
        def __init__(self):
            super().__init__()
            self.layer = linear()
            self.register_buffer("steps", torch.zeros(()))

        def forward(self, X):
            self.steps = self.steps + 1  # another tensor each time
            self.mean, self.name, self.graph = X.mean().detach(), "done", self.layer(X).sum()
            return self.layer(X)

    net = DataParallel(Counter(), [CPU] * 2)
    X = torch.arange(16.0).view(4, WIDTH)
    for _ in range(3):
        net(X)
    assert net.module.steps == 3 and net.module.name == "done" and net.module.mean == X[:2].mean()
    with pytest.raises(RuntimeError, match="expected a loss of what `forward` returns"):
        (net(X).sum() + net.module.graph).backward()


def test_dropout_differs_from_one_device_and_hooks_on_modules_run_once_per_replica():
    seen = []
    net = DataParallel(nn.Sequential(nn.Dropout(0.5)), [CPU] * 2)
    net.module.register_forward_hook(lambda module, args, output: seen.append(len(output)))
    output = net(torch.ones(8, 64))
    assert sorted(seen) == [4, 4] and set(output.unique().tolist()) == {0.0, 2.0}
    assert not torch.equal(output[:4], output[4:])  # one generator: not the same masks for each shard


def test_the_optimizer_takes_the_same_steps():
    torch.manual_seed(0)
    one = nn.Sequential(linear(), nn.Tanh(), tied()).double()
    two = DataParallel(copy.deepcopy(one), [CPU] * 3)
    for net in (one, two):
        torch.manual_seed(1)
        optimizer = torch.optim.AdamW(net.parameters(), 0.1, weight_decay=0.1)
        for _ in range(5):
            optimizer.zero_grad()
            X = torch.randn(7, WIDTH, dtype=torch.float64)
            F.mse_loss(net(X), X).backward()
            optimizer.step()
    for p, q in zip(one.parameters(), two.parameters(), strict=True):
        torch.testing.assert_close(q, p, rtol=0, atol=1e-9)
