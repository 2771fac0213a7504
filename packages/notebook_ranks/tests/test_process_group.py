"""The group of a pool: found by code for torchrun, and there again after a call that left it."""

import datetime
import os
import re

import pytest
import torch
import torch.distributed as dist

from d2lite.devices import num_gpus
from notebook_ranks.pool import WorkersError
from tests.by_value import by_value

TIMEOUT_S = 20  # of the pool

pytestmark = [
    pytest.mark.skipif(os.name == "nt", reason="Workers needs Linux or macOS"),
    pytest.mark.skipif(bool(num_gpus()), reason="the ranks of these tests compute on CPUs"),
]


@by_value
def add_ranks():
    total = torch.tensor([dist.get_rank() + 1.0])
    dist.all_reduce(total)
    return total.item(), os.getpid()


@by_value
def leave_the_group():
    dist.barrier()
    dist.destroy_process_group()


def test_calls_that_leave_the_group_one_after_the_other_each_find_a_new_one(pool):
    for _ in range(3):
        pool.run(leave_the_group)
    (total, _), _ = pool.run(add_ranks)
    assert total == 3.0


def test_a_collective_in_vain_ends_after_the_time_out_of_the_pool(pool):
    def time_out():
        return dist.group.WORLD._get_backend(torch.device("cpu")).options._timeout.total_seconds()

    assert pool.run(by_value(time_out)) == [TIMEOUT_S] * 2


def timeout_of(group):
    return group._get_backend(torch.device("cpu")).options._timeout.total_seconds()


def test_groups_that_a_function_makes_have_the_time_out_of_the_pool(pool):
    def time_outs():
        mesh = dist.init_device_mesh("cpu", (2, 1), mesh_dim_names=("data", "model"))
        own = dist.new_group([0, 1], datetime.timedelta(seconds=7))
        halves, _ = dist.new_subgroups(1)
        groups = [dist.new_group([0, 1]), dist.new_group(backend="gloo"), halves, mesh["model"].get_group(), own]
        return [timeout_of(group) for group in groups]

    assert pool.run(by_value(time_outs)) == [[TIMEOUT_S] * 4 + [7]] * 2


def test_a_group_made_anew_has_the_time_out_of_the_pool(pool):
    def anew():
        dist.destroy_process_group()
        dist.init_process_group("gloo")
        return timeout_of(dist.group.WORLD)

    assert pool.run(by_value(anew)) == [TIMEOUT_S] * 2


@pytest.mark.slow
def test_the_variables_of_torchrun_are_set(pool):
    def variables():
        return {name: os.environ.get(name) for name in names}

    ranks, sizes = ["RANK", "LOCAL_RANK", "ROLE_RANK"], ["WORLD_SIZE", "LOCAL_WORLD_SIZE", "ROLE_WORLD_SIZE"]
    names = [*ranks, *sizes, "GROUP_RANK", "GROUP_WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT"]
    found = pool.run(by_value(variables))
    for rank in (0, 1):
        assert [found[rank][name] for name in ranks] == [str(rank)] * 3
        assert [found[rank][name] for name in sizes] == ["2"] * 3
        assert (found[rank]["GROUP_RANK"], found[rank]["GROUP_WORLD_SIZE"]) == ("0", "1")
        assert found[rank]["MASTER_ADDR"] == "127.0.0.1"
    assert found[0]["MASTER_PORT"] == found[1]["MASTER_PORT"]
    assert "RANK" not in os.environ


def test_a_store_of_one_s_own_can_use_the_master_s_port(pool):
    def exchange():
        rank, port = int(os.environ["RANK"]), int(os.environ["MASTER_PORT"])
        store = dist.TCPStore(os.environ["MASTER_ADDR"], port, 2, is_master=rank == 0)
        store.set(str(rank), f"from {rank}")
        other = store.get(str(1 - rank)).decode()
        dist.barrier()  # rank 0 serves until both have read
        return other

    assert pool.run(by_value(exchange)) == ["from 1", "from 0"]


@pytest.mark.parametrize(
    "given",
    [
        {},
        {"backend": "gloo"},
        {"backend": "cpu:gloo,cuda:nccl"},
        {"backend": "GLOO", "world_size": 2, "init_method": "env://"},
        {"rank": -1, "world_size": -1},
    ],
    ids=str,
)
def test_a_second_init_that_agrees_is_accepted(pool, given):
    assert pool.run(by_value(init_twice), given) == [True, True]


def init_twice(given):
    before = dist.group.WORLD
    dist.init_process_group(**given)
    dist.distributed_c10d.init_process_group(**{**given, "rank": dist.get_rank()})
    return dist.group.WORLD is before


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"backend": "nccl"}, "expected backend gloo, got nccl"),
        ({"world_size": 4}, "expected world_size 2, got 4"),
        ({"rank": 3, "world_size": 2}, r"expected rank \d, got 3"),
    ],
    ids=["backend", "world_size", "rank"],
)
def test_a_second_init_that_disagrees_says_what_to_leave_out(pool, given, message):
    def refused(given):
        try:
            dist.init_process_group(**given)
        except ValueError as error:
            return str(error)

    name = "rank" if "rank" in given else next(iter(given))
    for text in pool.run(by_value(refused), given):
        assert re.match(f"init_process_group: {message}.*leave out {name}, or the whole call.$", text), text


TUTORIAL = """
import os
import torch
import torch.distributed as dist
import torch.nn as nn
import torch.optim as optim

from torch.nn.parallel import DistributedDataParallel as DDP

def setup(rank, world_size):
    os.environ["MASTER_ADDR"] = "localhost"
    os.environ["MASTER_PORT"] = "12355"

    # initialize the process group
    dist.init_process_group("gloo", rank=rank, world_size=world_size)


def cleanup():
    dist.destroy_process_group()


class ToyModel(nn.Module):
    def __init__(self):
        super(ToyModel, self).__init__()
        self.net1 = nn.Linear(10, 10)
        self.relu = nn.ReLU()
        self.net2 = nn.Linear(10, 5)

    def forward(self, x):
        return self.net2(self.relu(self.net1(x)))


def demo_basic(rank, world_size):
    print(f"Running basic DDP example on rank {rank}.")
    setup(rank, world_size)

    # on CPUs: the tutorial moves the model to GPU `rank` here
    model = ToyModel()
    ddp_model = DDP(model)

    loss_fn = nn.MSELoss()
    optimizer = optim.SGD(ddp_model.parameters(), lr=0.001)

    optimizer.zero_grad()
    outputs = ddp_model(torch.randn(20, 10))
    labels = torch.randn(20, 5)
    loss_fn(outputs, labels).backward()
    optimizer.step()

    cleanup()
    print(f"Finished running basic DDP example on rank {rank}.")
    return [p.tolist() for p in model.parameters()]
"""


def test_the_function_of_pytorch_s_ddp_tutorial_runs_and_the_next_calls_have_a_group(pool, capsys):
    cell = {"__name__": "__main__"}
    exec(TUTORIAL, cell)
    demo_basic = cell["demo_basic"]
    pids = pool.run(os.getpid)
    port = pool.run(by_value(lambda: os.environ["MASTER_PORT"]))
    for _ in range(2):
        mine, other = pool.run(by_value(lambda: demo_basic(dist.get_rank(), dist.get_world_size())))
        assert mine == other
        assert pool.run(add_ranks) == [(3.0, pids[0]), (3.0, pids[1])]
    assert pool.run(by_value(lambda: os.environ["MASTER_PORT"])) != ["12355"] * 2 and port != ["12355"] * 2
    assert capsys.readouterr().out.count("Finished running basic DDP example on rank 1.") == 2


@pytest.mark.parametrize("leaving", [[0], [1], [0, 1]], ids=str)
def test_whoever_leaves_the_group_the_next_call_has_one(pool, leaving):
    def leave(leaving):
        if dist.get_rank() in leaving:
            dist.destroy_process_group()

    pids = pool.run(os.getpid)
    pool.run(by_value(leave), leaving)
    assert pool.run(add_ranks) == [(3.0, pids[0]), (3.0, pids[1])]


def test_a_group_of_one_s_own_lasts_for_one_call(pool):
    def own_group():
        rank = dist.get_rank()
        dist.destroy_process_group()
        dist.init_process_group("gloo", rank=1 - rank, world_size=2)  # env://, with the variables that are set
        total = torch.tensor([dist.get_rank() + 1.0])
        dist.all_reduce(total)
        return dist.get_rank(), total.item()

    assert pool.run(by_value(own_group)) == [(1, 3.0), (0, 3.0)]
    assert pool.run(by_value(dist_rank)) == [0, 1]
    assert pool.run(add_ranks)[0][0] == 3.0


def dist_rank():
    return dist.get_rank()


@pytest.mark.slow
def test_an_error_after_leaving_is_named_and_the_next_call_works(pool):
    def leave_and_reduce():
        dist.destroy_process_group()
        dist.all_reduce(torch.ones(1))

    with pytest.raises(WorkersError, match="Default process group has not been initialized"):
        pool.run(by_value(leave_and_reduce))
    assert pool.run(add_ranks)[0][0] == 3.0
