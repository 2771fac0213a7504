"""Functions that make the messages of book/messages.md, without a GPU."""

import copy
import datetime
import io
import multiprocessing
import os
import pickle
import re
import socket
import subprocess
import sys
import traceback

import psutil
import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.pipelining import PipelineStage, ScheduleGPipe
from torch.distributed.tensor import Replicate, Shard, distribute_tensor
from torch.nn.parallel import DistributedDataParallel
from torch.utils.checkpoint import checkpoint, set_checkpoint_debug_enabled
from torch.utils.data import DataLoader, DistributedSampler, default_collate

from d2lite import all_reduce
from notebook_ranks import read_recorder
from tests.by_value import by_value

__all__ = ["MAKERS", "Twice", "Unused", "contains", "message_of", "on_two_ranks", "step"]

MAKERS = {}  # {the first text of an entry: a function that returns the message; it names the fixtures that it needs}


def makes(text):
    """Register a function that makes the message whose first text this is."""

    def register(function):
        MAKERS[text] = function
        return function

    return register


def message_of(function, *args, **options):
    """The message of the error that a call raises, or none."""
    try:
        function(*args, **options)
    except Exception as error:
        return f"{type(error).__name__}: {error}"
    return "no error"


def contains(message, text):
    pattern = ".*".join(re.escape(piece) for piece in text.split("..."))
    return re.search(pattern, message, flags=re.S | re.I) is not None


# those of one call

MAKERS |= {
    "Can't pickle": lambda: message_of(pickle.dumps, lambda: 0),
    "Default process group has not been initialized": lambda: message_of(dist.all_reduce, torch.ones(1)),
    "trying to initialize the default process group twice": lambda alone: message_of(
        dist.init_process_group, "gloo", **alone
    ),
    "port number missing": lambda: message_of(
        dist.init_process_group, "gloo", init_method="tcp://10.0.0.1", rank=0, world_size=2
    ),
    "waiting for clients. ... clients joined": lambda: message_of(
        dist.TCPStore, "127.0.0.1", 0, 2, True, timeout=datetime.timedelta(seconds=0.2)
    ),
    "Unable to find address for": lambda: message_of(dist.ProcessGroupGloo.create_device, interface="nosuch0"),
    "Expected to mark a variable ready only once": lambda alone: message_of(
        step, DistributedDataParallel(Twice(), find_unused_parameters=True)
    ),
    "DistributedDataParallel is not needed when a module doesn't have any parameter": lambda alone: message_of(
        DistributedDataParallel, nn.Flatten()
    ),
    "Expected more than 1 value per channel when training": lambda: message_of(nn.BatchNorm1d(2), torch.ones(1, 2)),
    "Expected a non cpu device": lambda: message_of(nn.parallel.scatter, torch.ones(4), [torch.device("cpu")] * 2),
    "Found no NVIDIA driver on your system": lambda: message_of(torch.ones, 1, device="cuda"),
    "element 0 of tensors does not require grad": lambda: message_of(torch.ones(1).backward),
    "a leaf Variable that requires grad is being used in an in-place operation": lambda: message_of(
        torch.ones(1, requires_grad=True).sub_, 1
    ),
    "rank should be in the interval": lambda: message_of(DistributedSampler, [0], num_replicas=2, rank=2),
    "stack expects each tensor to be equal size": lambda: message_of(default_collate, [torch.ones(1), torch.ones(2)]),
    "is out of range. Valid ranks are": lambda alone: message_of(dist.new_group, [1]),
    "'DistributedDataParallel' object has no attribute": lambda alone: message_of(
        getattr, DistributedDataParallel(nn.Linear(1, 1)), "weight"
    ),
    "device_ids and output_device arguments only work with single-device": lambda alone: message_of(
        DistributedDataParallel, nn.Linear(1, 1), device_ids=[0]
    ),
    "Invalid scalar type": lambda alone: message_of(dist.all_reduce, torch.ones(1, dtype=torch.int16)),
    "invalid tensor size at index": lambda alone: message_of(dist.all_gather_into_tensor, torch.ones(3), torch.ones(2)),
    "num_samples should be a positive integer value": lambda: message_of(DataLoader, [], shuffle=True),
    "in DataLoader worker process": lambda: message_of(list, DataLoader([[0], [0, 0]], batch_size=2, num_workers=1)),
    "Cannot copy out of meta tensor; no data!": lambda: message_of(nn.Linear(1, 1, device="meta").to, "cpu"),
    "chunk expects at least a 1-dimensional tensor": lambda: message_of(torch.ones(()).chunk, 2),
    "Unexpected key(s) in state_dict": lambda: message_of(nn.Flatten().load_state_dict, {"_orig_mod.weight": 0}),
    "size mismatch for": lambda: message_of(nn.Linear(1, 2).load_state_dict, nn.Linear(1, 3).state_dict()),
    "parameter group that doesn't match the size of optimizer's group": lambda: message_of(
        torch.optim.SGD(nn.Linear(1, 1).parameters()).load_state_dict,
        torch.optim.SGD([torch.ones(1, requires_grad=True)]).state_dict(),
    ),
    "only Tensors created explicitly by the user (graph leaves) support the deepcopy protocol": lambda: message_of(
        copy.deepcopy, torch.ones(1, requires_grad=True) * 2
    ),
    "UnpicklingError": lambda: message_of(torch.load, io.BytesIO(b"version https://git-lfs"), weights_only=False),
    "'weight' must be 2-D": lambda: message_of(
        nn.functional.embedding, torch.zeros(2, dtype=torch.int64), torch.ones(4)
    ),
}

# -- starting processes


def script_says(path, *arguments):
    return subprocess.run([sys.executable, *arguments], cwd=path, capture_output=True, text=True, timeout=300).stderr


SPAWN = (
    "import multiprocessing as mp\ndef f(): pass\np = mp.get_context('spawn').Process(target=f)\np.start(); p.join()"
)


@makes("Can't get attribute ... on <module '__main__'")
def cell_function(folder):
    return script_says(folder, "-c", SPAWN)


@makes("An attempt has been made to start a new process before the")
def no_guard(folder):
    (folder / "no_guard.py").write_text(SPAWN)
    return script_says(folder, "no_guard.py")


@makes("Cannot re-initialize CUDA in forked subprocess")
def forked(monkeypatch):
    monkeypatch.setattr(torch.cuda, "_is_in_bad_fork", lambda: True)
    monkeypatch.setattr(torch.cuda, "is_initialized", lambda: False)
    return message_of(torch.cuda._lazy_init)


@makes("ChildFailedError")
def child_failed():
    from torch.distributed.elastic.multiprocessing.errors import ChildFailedError, ProcessFailure

    failure = ProcessFailure(local_rank=1, pid=1, exitcode=1, error_file="none")
    text = "".join(traceback.format_exception_only(ChildFailedError("train.py", {1: failure})))
    assert "Root Cause" in text
    return text


@makes("exitcode: -9")
def killed():
    from torch.distributed.elastic.multiprocessing.errors import ChildFailedError, ProcessFailure

    failure = ProcessFailure(local_rank=1, pid=4321, exitcode=-9, error_file="none")
    assert "Signal 9 (SIGKILL) received by PID 4321" in failure.message
    return re.sub(r"exitcode +: ", "exitcode: ", str(ChildFailedError("train.py", {1: failure})))


@makes("unrecognized arguments: --local-rank")
def older_launcher(folder):
    return script_says(folder, "-c", "import argparse; argparse.ArgumentParser().parse_args()", "--local-rank=0")


@makes("KeyError: 'RANK'")
def no_variable(monkeypatch):
    monkeypatch.delenv("RANK", raising=False)
    return message_of(os.environ.__getitem__, "RANK")


@makes("context has already been set")
def start_method_twice(folder):
    return script_says(folder, "-c", "import multiprocessing as m; [m.set_start_method('spawn') for _ in range(2)]")


@makes("daemonic processes are not allowed to have children")
def child_of_a_daemon(monkeypatch):
    monkeypatch.setitem(multiprocessing.current_process()._config, "daemon", True)
    return message_of(multiprocessing.get_context("spawn").Process(target=print).start)


@makes("Broken pipe")
def nobody_reads():
    read, write = os.pipe()
    os.close(read)
    try:
        return message_of(os.write, write, b"x")
    finally:
        os.close(write)


@makes("EOFError")
def empty_file():
    return message_of(torch.load, io.BytesIO(), weights_only=False)


def failed_with(number, name):
    from torch.distributed.elastic.multiprocessing.errors import ChildFailedError, ProcessFailure

    failure = ProcessFailure(local_rank=1, pid=4321, exitcode=number, error_file="none")
    assert f"Signal {-number} ({name}) received by PID 4321" in failure.message
    return re.sub(r"exitcode +: ", "exitcode: ", str(ChildFailedError("train.py", {1: failure})))


for _number, _name in ((-11, "SIGSEGV"), (-6, "SIGABRT"), (-7, "SIGBUS"), (-15, "SIGTERM")):
    MAKERS[f"exitcode: {_number}"] = lambda number=_number, name=_name: failed_with(number, name)


# -- the process group


@makes("the recorder is off: start Python with TORCH_FR_BUFFER_SIZE above 0")
def recorder_off(monkeypatch):
    monkeypatch.setattr(torch._C._distributed_c10d, "_dump_fr_trace", lambda: pickle.dumps({"entries": []}))
    monkeypatch.setenv("TORCH_FR_BUFFER_SIZE", "0")
    return read_recorder()["missing"]


@makes("not sure which rank is at fault")
def one_rank_waits():
    from notebook_ranks.failures import describe_failure

    waited = {"state": "error", "type": "RuntimeError", "message": "Timed out", "frames": [], "causes": []}
    return describe_failure({0: waited, 1: {"state": "done"}}, 60)[1]


@makes("environment variable RANK expected, but not set")
def no_rank(monkeypatch):
    for name in ("RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT"):
        monkeypatch.delenv(name, raising=False)
    return message_of(dist.init_process_group, "gloo")


@makes("EADDRINUSE")
def port_in_use():
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        message = message_of(dist.TCPStore, "127.0.0.1", taken.getsockname()[1], 1, True)
    assert contains(message, "Address already in use")
    return message


@makes("The client socket has timed out after")
def nobody_serves():
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))  # bound and not listening: connections are refused
        wait = datetime.timedelta(seconds=0.2)
        return message_of(dist.TCPStore, "127.0.0.1", free.getsockname()[1], 1, False, timeout=wait)


@makes("Connection refused")
def nobody_listens():
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return message_of(socket.create_connection, free.getsockname())


@makes("requires at least one CUDA device")
def nccl_without_gpu(folder):
    message = message_of(dist.init_process_group, "nccl", init_method=f"file://{folder}/nccl", rank=0, world_size=1)
    if dist.is_initialized():
        dist.destroy_process_group()
    return message


@makes("No backend type associated with device type")
def no_backend(folder):
    dist.init_process_group("cuda:gloo", init_method=f"file://{folder}/backend", rank=0, world_size=1)
    try:
        return message_of(dist.all_reduce, torch.ones(1))
    finally:
        dist.destroy_process_group()


WITHOUT_DISTRIBUTED = """
import sys, torch
del torch._C._c10d_init  # what a build with USE_DISTRIBUTED=0 does not have
for name in [name for name in sys.modules if name.startswith("torch.distributed")]:
    del sys.modules[name]
import torch.distributed
assert not torch.distributed.is_available()
torch.distributed.ReduceOp
"""


@makes("module 'torch.distributed' has no attribute")
def built_without_distributed(folder):
    return script_says(folder, "-c", WITHOUT_DISTRIBUTED)


# -- two ranks: one pool, and a group of its own for each message


@by_value
def on_two_ranks():
    """Return the messages of this rank; at the end the sockets of rank 1 close, as if it had died."""
    rank, messages = dist.get_rank(), []

    def ddp(group, *layers):
        return DistributedDataParallel(nn.Sequential(*layers), process_group=group)

    def close_sockets():
        for connection in psutil.Process().net_connections("inet"):
            if connection.status == psutil.CONN_ESTABLISHED:
                with socket.socket(fileno=os.dup(connection.fd)) as copy:
                    copy.shutdown(socket.SHUT_RDWR)

    cases = (
        lambda group: rank == 0 and dist.all_reduce(torch.ones(1), group=group),
        lambda group: dist.send(torch.ones(1), 1 - rank, group=group),  # and nobody receives
        lambda group: ddp(group, *[nn.Linear(1, 1) for _ in range(1 + rank)]),
        lambda group: ddp(group, nn.Linear(1, 1 + rank)),
        lambda group: close_sockets() if rank else dist.all_reduce(torch.ones(1)),
    )
    for case in cases:
        group = dist.new_group(timeout=datetime.timedelta(seconds=1.5))  # also for its connections
        try:
            case(group)
        except Exception as error:
            messages.append(str(error))
    return messages


for _text in (
    "Timed out waiting ...ms for recv operation to complete",
    "Timed out waiting ...ms for send operation to complete",
    "Connection closed by peer",
    "DDP expects same model across all ranks",
    "appears not to match sizes of the same param in process 0",
):
    MAKERS[_text] = lambda two_ranks: two_ranks


# -- sharded networks


@makes("got mixed torch.Tensor and DTensor")
def mixed_with_a_sharded_parameter(alone):
    layer = fully_shard(nn.Linear(2, 2), mesh=init_device_mesh("cpu", (1,)))
    return message_of(torch.matmul, layer.weight, torch.ones(2))


@makes("does not have a sharding strategy registered")
def no_rule_for_parts(alone):
    layer = fully_shard(nn.Linear(2, 2), mesh=init_device_mesh("cpu", (1,)))
    return message_of(layer.weight.unfold, 0, 2, 1)


@makes("Cannot flatten unevenly sharded tensor")
def flatten_uneven_parts():
    def view(repair):
        parts = distribute_tensor(torch.ones(2, 9, 3), init_device_mesh("cpu", (8,)), [Shard(1)])
        return (parts.redistribute(placements=[Replicate()]) if repair else parts).view(-1)

    assert in_fake_group(lambda: view(repair=True)) == "no error"
    return in_fake_group(lambda: view(repair=False))


# -- meshes and fake process groups


def in_fake_group(function):
    """The message that a function raises as rank 0 of 8, with nobody else there."""
    dist.init_process_group("fake", rank=0, world_size=8)
    try:
        return message_of(function)
    finally:
        dist.destroy_process_group()


def ddp_in_fake_group():
    net = DistributedDataParallel(nn.Linear(3, 2))  # must live until the backward pass
    net(torch.ones(4, 3)).sum().backward()


MAKERS |= {
    "Mesh should not be bigger than default world size": lambda: in_fake_group(
        lambda: init_device_mesh("cpu", (4, 4)),
    ),
    "Invalid mesh_dim_names": lambda: in_fake_group(
        lambda: init_device_mesh("cpu", (2, 4), mesh_dim_names=("data", "tensor"))["tensor", "data"],
    ),
    "expected the hook result is either a Tensor or a TensorList": lambda: in_fake_group(ddp_in_fake_group),
}


# -- pipelines


@makes("Expecting ... arg_mbs but got")
def too_few_rows(alone):
    schedule, layer = pipeline(4)
    assert torch.equal(schedule.step(torch.ones(4, 2)), layer(torch.ones(4, 2)))  # the repair: one row for each
    return message_of(schedule.step, torch.ones(2, 2))


def pipeline(microbatches):
    """A pipeline of one stage."""
    layer = nn.Linear(2, 2)
    return ScheduleGPipe(PipelineStage(layer, 0, 1, torch.device("cpu")), microbatches), layer


MAKERS["Expected input batch_size (...) to match target batch_size (...)"] = lambda: message_of(
    nn.functional.cross_entropy, torch.zeros(48, 96), torch.zeros(24, dtype=torch.int64)
)


# -- DistributedDataParallel and DataParallel


class Unused(nn.Module):
    def __init__(self):
        super().__init__()
        self.used, self.unused = nn.Linear(1, 1), nn.Linear(1, 1)

    def forward(self, X):
        return self.used(X)


class Twice(nn.Module):
    def __init__(self, use_reentrant=True):
        super().__init__()
        self.layer, self.options = nn.Linear(1, 1), {"use_reentrant": use_reentrant}

    def forward(self, X):
        return checkpoint(self.layer, checkpoint(self.layer, X, **self.options), **self.options)


def step(net):
    net(torch.ones(1, 1, requires_grad=True)).sum().backward()


@makes("Expected to have finished reduction in the prior iteration")
def unused_layer(alone):
    net = DistributedDataParallel(Unused())
    step(net)
    return message_of(step, net)


@makes("Parameter indices which did not receive grad for rank")
def numbers_of_unused(alone):
    message = unused_layer(alone)
    assert "for rank 0: 2 3" in message  # weight and bias of the second layer
    return message


@makes("SyncBatchNorm expected input tensor to be on GPU")
def sync_batch_norm(alone):
    assert contains(message_of(DistributedDataParallel, nn.SyncBatchNorm(2)), "only work with GPU modules")
    return message_of(nn.SyncBatchNorm(2), torch.ones(4, 2))


@makes("shares its memory with")
def one_memory():
    tensor = torch.ones(2)
    return message_of(all_reduce, [tensor, tensor])


# -- devices, files, gradients


@makes("operator torchvision::nms does not exist")
def unmatched_torchvision():
    """Register an operator of a library that is not loaded, as the Python part of a torchvision that does not fit."""
    name = "nms" if "torchvision" not in sys.modules else "not_there"  # nms is there if another test loaded it
    register = torch.library.register_fake(f"torchvision::{name}")
    return message_of(register, lambda *_: None).replace("::not_there", "::nms")


@makes("Missing key(s) in state_dict")
def wrapped_names():
    net = nn.Linear(1, 1)
    return message_of(net.load_state_dict, {f"module.{name}": value for name, value in net.state_dict().items()})


@makes("Attempting to deserialize object on a CUDA device")
def saved_on_gpu(monkeypatch):
    with monkeypatch.context() as patch, io.BytesIO() as file:
        patch.setattr(torch.serialization, "location_tag", lambda *_: "cuda:0")
        torch.save(torch.ones(1), file)
        content = file.getvalue()
    return message_of(torch.load, io.BytesIO(content), weights_only=True)


@makes("Weights only load failed")
def saved_object():
    file = io.BytesIO()
    torch.save(datetime.datetime, file)
    file.seek(0)
    return message_of(torch.load, file)


@makes("PytorchStreamReader failed")
def file_is_cut_off():
    file = io.BytesIO()
    torch.save(torch.ones(1000), file)
    return message_of(torch.load, io.BytesIO(file.getvalue()[:1000]))


@makes("Missing key in checkpoint state_dict")
def not_in_the_checkpoint(folder):
    path = folder / "dcp"
    dcp.save({"saved": torch.ones(2)}, checkpoint_id=path)
    assert list(dcp.FileSystemReader(path).read_metadata().state_dict_metadata) == ["saved"]
    asked = {"saved": torch.zeros(2), "other": torch.zeros(2)}
    dcp.load(asked, checkpoint_id=path, planner=dcp.DefaultLoadPlanner(allow_partial_load=True))
    assert asked["saved"].tolist() == [1, 1]
    try:
        dcp.load(asked, checkpoint_id=path)
    except dcp.api.CheckpointException as error:
        return str(error)


@makes("Recomputed values for the following tensors have different metadata")
def another_path_when_recomputed():
    """The second text of the entry."""

    def run():
        passes = []

        def layer(X):
            passes.append(1)
            return X.sin().cos() if len(passes) == 1 else X.sin()

        checkpoint(layer, torch.ones(2, requires_grad=True), use_reentrant=False).sum().backward()

    with set_checkpoint_debug_enabled(True):
        both = message_of(run)
    assert "operators that ran in the original forward" in both and "operators that ran during recomputation" in both
    return message_of(run)


@makes("modified by an inplace operation")
def changed_in_place():
    twice = torch.ones(2, requires_grad=True) * 2
    loss = twice.square().sum()
    twice += 1
    return message_of(loss.backward)


@makes("Trying to backward through the graph a second time")
def second_backward():
    loss = torch.ones(1, requires_grad=True).square().sum()
    loss.backward()
    return message_of(loss.backward)
