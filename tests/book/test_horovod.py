"""Chapter 6: the forty lines against torch's DDP, each break with its symptom, and real Horovod where it is built."""

import ast
import os
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import nbformat
import pytest
import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch.nn.parallel import DistributedDataParallel

from d2lite import LeNet, load_data_fashion_mnist, try_gpus
from d2lite.workers import Workers, WorkersError

ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(ROOT / "tools"))
import compare_horovod  # noqa: E402

BOOK = ROOT / "book"
SOLUTIONS = BOOK / "solutions" / "06-horovod.ipynb"
CELLS = {c.id: c.source for c in nbformat.read(BOOK / "06-horovod.ipynb", as_version=4).cells if c.cell_type == "code"}
BUILT = (ROOT / ".horovod" / ".d2lite-stamp").exists()
needs_horovod = pytest.mark.skipif(not BUILT, reason="real Horovod is not built here: make horovod")
pytestmark = [pytest.mark.slow, pytest.mark.skipif(os.name == "nt", reason="Workers needs Linux or macOS")]


def run_cells(*names):
    """What the chapter's cells define; their functions travel by value, as from a notebook."""
    namespace = {"__name__": "__main__", "torch": torch, "dist": dist, "F": F, "LeNet": LeNet, "try_gpus": try_gpus}
    namespace["my_device"] = lambda: torch.device("cpu")
    for name in names:
        exec(compile(CELLS[name], f"cell {name}", "exec"), namespace)
    return SimpleNamespace(**namespace)


@pytest.fixture(scope="module")
def cells():
    return run_cells("names", "broadcast", "optimizer", "hvd", "steps")


@pytest.fixture(scope="module")
def pool():
    with Workers(2, timeout_s=20) as pool:
        yield pool


def by_value(fn):
    fn.__module__ = "__main__"
    return fn


def defined_in(name, cells, up_to, **given):
    """What the cell `name` defines before the text `up_to`, on top of `cells`."""
    namespace = {**vars(cells), **given}
    exec(compile(CELLS[name].split(up_to)[0], f"cell {name}", "exec"), namespace)
    return SimpleNamespace(**namespace)


@pytest.mark.slow
def test_allreduce_says_mean_or_sum_and_leaves_its_argument_alone(cells, pool):
    @by_value
    def both(cells):
        mine = torch.tensor([1.0, 10.0]) * (cells.rank() + 1)
        return cells.allreduce(mine).tolist(), cells.allreduce(mine, op="sum").tolist(), mine.tolist(), cells.size()

    results = pool.run(both, cells)
    assert [r[:2] for r in results] == [([1.5, 15.0], [3.0, 30.0])] * 2
    assert [r[2:] for r in results] == [([1.0, 10.0], 2), ([2.0, 20.0], 2)]
    with pytest.raises(ValueError, match="expected 'mean' or 'sum', got 'average'"):
        cells.allreduce(torch.ones(1), op="average")


@pytest.mark.parametrize("root", [0, 1])
def test_broadcast_makes_ranks_equal_buffers_included(cells, pool, root):
    @by_value
    def start(cells, root):
        torch.manual_seed(cells.rank())
        net = torch.nn.Sequential(torch.nn.Linear(3, 4), torch.nn.BatchNorm1d(4))
        net(torch.randn(8, 3))
        mine = {name: tensor.clone() for name, tensor in net.state_dict().items()}
        cells.broadcast_parameters(net.state_dict(), root_rank=root)
        return mine, net.state_dict()

    results = pool.run(start, cells, root)
    assert not torch.equal(results[0][0]["0.weight"], results[1][0]["0.weight"])
    for name, tensor in results[root][0].items():
        assert all(torch.equal(after[name], tensor) for _, after in results), name


@by_value
def gradients(cells, wrap, n, batch_norm):
    """The gradients that one step would use, with our optimizer or with DDP."""
    torch.manual_seed(0)
    middle = [torch.nn.BatchNorm1d(5)] if batch_norm else []
    net = torch.nn.Sequential(torch.nn.Linear(6, 5), *middle, torch.nn.Tanh(), torch.nn.Linear(5, 3)).double()
    generator = torch.Generator().manual_seed(dist.get_rank())
    X = torch.randn(n, 6, generator=generator, dtype=torch.float64)
    y = torch.randint(0, 3, (n,), generator=generator)
    if wrap == "ddp":
        ddp = DistributedDataParallel(net)  # a name for it: without one it is gone before the backward pass
        F.cross_entropy(ddp(X), y).backward()
    else:
        optimizer = cells.DistributedOptimizer(torch.optim.SGD(net.parameters(), lr=0.1), net.named_parameters())
        F.cross_entropy(net(X), y).backward()
        optimizer.synchronize()
        assert not optimizer.handles
    return [p.grad for p in net.parameters()]


@pytest.mark.parametrize("n, batch_norm", [(4, False), (7, True)])
def test_gradients_are_averaged_as_ddp_averages_them(cells, pool, n, batch_norm):
    ours, theirs = pool.run(gradients, cells, "ours", n, batch_norm), pool.run(gradients, cells, "ddp", n, batch_norm)
    for mine, ddp in zip(ours, theirs, strict=True):
        for a, b in zip(mine, ddp, strict=True):
            torch.testing.assert_close(a, b, rtol=0, atol=1e-15)


def train(cells, pool, hvd=None, lr=0.1):
    @by_value
    def on_ranks(cells, hvd):
        return cells.train_steps(hvd, LeNet(seed=hvd.rank()).double(), cells.make_batches(), lr)

    return pool.run(on_ranks, cells, hvd or cells.hvd)


@pytest.fixture(scope="module")
def alone(cells):
    """The weights of one process after the twenty steps."""
    return run_cells("steps", "check-alone").alone


@pytest.fixture(scope="module")
def ours(cells, pool):
    return train(cells, pool)


def distance(a, b):
    return (a - b).abs().max().item()


@pytest.mark.slow
def test_two_ranks_equal_one_process(ours, alone):
    assert distance(*ours) == 0
    assert 0 <= distance(ours[0], alone) < 1e-9


def test_without_the_broadcast_ranks_stay_as_far_apart_as_they_started(cells, pool):
    forgetful = SimpleNamespace(**{**vars(cells.hvd), "broadcast_parameters": by_value(lambda params, root_rank: None)})
    first, second = (torch.cat([p.detach().flatten() for p in LeNet(seed=s).double().parameters()]) for s in (0, 1))
    apart = train(cells, pool, forgetful)
    assert distance(first, second) > 1
    assert distance(apart[0] - apart[1], first - second) < 1e-9


@pytest.mark.slow
def test_averaging_the_parameter_is_silent_and_wrong(cells, pool, alone):
    weights = train(cells, pool, defined_in("wrong-mean", cells, "weights =").wrong)
    assert distance(*weights) > 1e-4 and distance(weights[0], alone) > 1e-4
    assert distance(*weights) < 1  # near enough to hide


def test_another_order_gives_wrong_sums(cells, pool):
    there = defined_in("other-order", cells, "for fix in")
    assert pool.run(there.two_sums, False) == [{"a": 21.0, "b": 12.0}, {"a": 12.0, "b": 21.0}]
    assert pool.run(there.two_sums, True) == [{"a": 3.0, "b": 30.0}] * 2


def test_all_reduces_start_from_the_last_layer_on_and_before_backward_returns(cells, pool):
    @by_value
    def begun(cells):
        net = LeNet()
        optimizer = cells.DistributedOptimizer(torch.optim.SGD(net.parameters(), lr=0.1), net.named_parameters())
        F.cross_entropy(net(torch.rand(8, 1, 28, 28)), torch.zeros(8, dtype=torch.long)).backward()
        names = [optimizer.names[param] for param in optimizer.handles]
        optimizer.step()
        return names

    for names in pool.run(begun, cells):
        assert [int(name.removeprefix("params.")) // 2 for name in names] == [3, 3, 2, 2, 1, 1, 0, 0]


@pytest.fixture(scope="module")
def answer():
    (cell,) = [c.source for c in nbformat.read(SOLUTIONS, as_version=4).cells if c.id == "gap"]
    return cell


def test_the_gap_of_the_chapter_is_checked(cells, pool, capsys, answer):
    given = {**vars(cells), "workers": pool}
    for gap, shown in ((answer, "on both ranks"), (CELLS["gap"], "Not yet")):
        exec(compile(f"{gap}\n\n\n{CELLS['gap-check']}", "cell gap", "exec"), dict(given))
        assert capsys.readouterr().out.count(shown) == 2
    with pytest.raises(AssertionError, match="expected False on both ranks"):
        exec(compile(f"def ranks_agree(net):\n    return True\n\n\n{CELLS['gap-check']}", "", "exec"), dict(given))


def test_ranks_that_agree_are_told_from_those_of_both_faults(cells, pool, answer):
    there = defined_in("wrong-mean", defined_in("forget", cells, "apart = workers"), "weights =")
    namespace = vars(there)
    exec(compile(answer, "cell gap", "exec"), namespace)

    @by_value
    def train_and_ask(cells, hvd):
        net = LeNet(seed=hvd.rank()).double()
        cells.train_steps(hvd, net, cells.make_batches(2), lr=0.1)
        return cells.ranks_agree(net)

    for hvd, expected in ((there.hvd, True), (there.forgetful, False), (there.wrong, False)):
        assert pool.run(train_and_ask, SimpleNamespace(**namespace), hvd) == [expected, expected]


def test_the_whole_training_on_two_ranks_is_that_of_one_process(cells, pool):
    there = defined_in("on-rank", cells, "no such text", num_examples=320)
    runs = pool.run(there.train_on_rank, cells.hvd, 64, 0.1, 1)
    train_iter, _ = load_data_fashion_mnist(128, 320, seed=0)
    net, losses = LeNet(seed=0), []
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    for X, y in train_iter:
        optimizer.zero_grad()
        losses.append(F.cross_entropy(net(X), y))
        losses[-1].backward()
        optimizer.step()
    assert runs[0].losses == runs[1].losses and runs[0].accuracies == runs[1].accuracies
    assert runs[0].losses == pytest.approx([loss.item() for loss in losses], rel=1e-4)
    assert runs[0].settings["batch_size"] == 128


def test_a_second_backward_before_the_step_is_named(cells, pool):
    @by_value
    def twice(cells):
        net = torch.nn.Linear(2, 1)
        cells.DistributedOptimizer(torch.optim.SGD(net.parameters(), lr=0.1), net.named_parameters())
        for _ in range(2):
            net(torch.ones(1, 2)).sum().backward()

    with pytest.raises(WorkersError, match="backward.. was called twice before step"):
        pool.run(twice, cells)


def functions(source):
    return {node.name: ast.dump(node) for node in ast.parse(source).body if isinstance(node, ast.FunctionDef)}


def test_the_script_trains_with_the_functions_of_the_chapter():
    script = functions((BOOK / "scripts" / "horovod_lenet.py").read_text())
    shown = functions(CELLS["steps"])
    assert shown.keys() == {"make_batches", "train_steps"}
    for name, tree in shown.items():
        assert script[name] == tree, name


@needs_horovod
def test_real_horovod_gives_the_same_weights(ours, alone, tmp_path):
    env = os.environ | {"OMP_NUM_THREADS": "1"}
    bin = ROOT / ".horovod" / "bin"
    command = [bin / "horovodrun", "--gloo", "-np", "2", bin / "python", "scripts/horovod_lenet.py", tmp_path / "w.pt"]
    done = subprocess.run([str(c) for c in command], cwd=BOOK, env=env, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "they differ by 0e+00" in done.stdout
    assert "{'a': 3.0, 'b': 30.0}" in done.stdout  # names, not order
    real = torch.load(tmp_path / "w.pt")
    assert distance(real, ours[0]) < 1e-9 and distance(real, alone) < 1e-9


def test_the_comparison_runs_cells_that_the_chapter_has():
    assert [name for name in CELLS if name in compare_horovod.CELLS] == compare_horovod.CELLS


def test_the_rows_of_the_chapter_are_rows_of_the_page():
    table = next(c.source for c in nbformat.read(BOOK / "06-horovod.ipynb", as_version=4).cells if c.id == "table")
    rows = [line for line in table.splitlines() if line.startswith("|")]
    page = [line for line in (BOOK / "horovod-and-ddp.md").read_text("utf-8").splitlines() if line.startswith("|")]
    assert len(rows) > 3 and set(rows) <= set(page)
    assert f"has {len(page) - len(rows)} more rows" in table
