"""The texts of book/messages.md are those that PyTorch gives here; each entry says where its text comes from."""

import json
import mmap
import os
import re
from pathlib import Path

import pytest
import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard, register_fsdp_forward_method
from torch.nn.parallel import DistributedDataParallel

from d2lite import Workers
from tests.book.message_makers import MAKERS, Twice, Unused, contains, message_of, on_two_ranks, step

BOOK = Path(__file__).parents[2] / "book"
PAGE = BOOK / "messages.md"
TORCH = Path(torch.__file__).parent
PARTS = ("Means", "See", "Repair", "Checked")
ASKED = (
    "Can't get attribute ... on <module '__main__'", "Cannot re-initialize CUDA in forked subprocess",
    "SyncBatchNorm expected input tensor to be on GPU", "Expected to have finished reduction in the prior iteration",
    "Watchdog caught collective operation timeout", "Duplicate GPU detected", "Address already in use",
    "Connection closed by peer", "operator torchvision::nms does not exist", "CUDA out of memory",
    "Expected all tensors to be on the same device", "Default process group has not been initialized",
    "trying to initialize the default process group twice", "module.", "Expected to mark a variable ready only once",
    "Detected mismatch between collectives on ranks",
)  # fmt: skip


def entries():
    """{the heading of an entry: {the name of a part: its text}}."""
    found = {}
    for block in re.split(r"^### ", PAGE.read_text(), flags=re.M)[1:]:
        heading, rest = block.split("\n", 1)
        found[heading] = {part: text for part, text in re.findall(r"^- \*\*([^*]+):\*\* (.*)$", rest, flags=re.M)}
    return found


def texts(heading):
    """The literal texts in a heading."""
    return re.findall(r"`([^`]+)`", heading)


ENTRIES = entries()
MADE = [heading for heading, parts in ENTRIES.items() if parts["Checked"].startswith("made by a test")]
WITHOUT_GPU = ("where there is no GPU", "SyncBatchNorm", "Expected a non cpu device")


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("messages")


@pytest.fixture
def alone(folder, request):
    """A process group of one rank, in this process."""
    options = {"init_method": f"file://{folder}/{abs(hash(request.node.name))}", "rank": 0, "world_size": 1}
    dist.init_process_group("gloo", **options)
    yield options
    if dist.is_initialized():
        dist.destroy_process_group()


@pytest.fixture(scope="module")
def two_ranks():
    """All messages of two ranks, in one text."""
    if os.name == "nt":
        pytest.skip("needs ranks")
    with Workers(2, timeout_s=20) as workers:
        return "\n".join(sum(workers.run(on_two_ranks), []))


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("heading", MADE)
def test_a_message_that_can_be_made_here_is_what_the_page_says(heading, request):
    if torch.cuda.is_available() and any(word in heading + ENTRIES[heading]["Checked"] for word in WITHOUT_GPU):
        pytest.skip("needs a machine without a GPU")
    maker = MAKERS[texts(heading)[0]]
    names = maker.__code__.co_varnames[: maker.__code__.co_argcount - len(maker.__defaults__ or ())]
    message = maker(**{name: request.getfixturevalue(name) for name in names})
    assert any(contains(message, text) for text in texts(heading)), message


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize(
    ("make", "options"),
    [
        (Unused, {"find_unused_parameters": True}),
        (lambda: Twice(use_reentrant=False), {}),
        (Twice, {"static_graph": True}),
    ],
    ids=["unused layers", "checkpointed twice", "checkpointed twice, a static graph"],
)
def test_the_repairs_of_ddp_work(make, options, alone):
    net = DistributedDataParallel(make(), **options)
    for _ in range(3):
        step(net)
    assert next(net.parameters()).grad.abs().sum() > 0


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("optimize_ddp", [True, False])
def test_ddp_compiles_with_activation_checkpointing(optimize_ddp, alone):
    net = Twice(use_reentrant=False)
    compiled = torch.compile(DistributedDataParallel(net), backend="aot_eager")
    with torch._dynamo.config.patch(optimize_ddp=optimize_ddp):
        step(compiled)
    assert net.layer.weight.grad.abs().sum() > 0


def test_a_method_beside_forward_gathers_the_parameters_if_it_is_registered(alone):
    class Encoder(nn.Embedding):
        def encode(self, X):
            return self(X) if X.ndim > 1 else nn.functional.embedding(X, self.weight)

    net = fully_shard(Encoder(4, 2), mesh=init_device_mesh("cpu", (1,)))
    assert "got mixed torch.Tensor and DTensor" in message_of(net.encode, torch.arange(4))
    register_fsdp_forward_method(net, "encode")
    assert net.encode(torch.arange(4)).shape == (4, 2)


def test_each_maker_belongs_to_an_entry():
    assert set(MAKERS) == {texts(heading)[0] for heading in MADE}


def library(pattern):
    """The libraries of PyTorch, or of NCCL next to it."""
    return [path for path in (*TORCH.glob("lib/*"), *TORCH.parent.glob("nvidia/nccl/lib/*")) if pattern in path.name]


@pytest.mark.parametrize(
    ("text", "name"),
    [
        (
            "Unexpected bus error encountered in worker. This might be caused by insufficient shared memory (shm)",
            "torch_python",
        ),
        ("op.preamble.length <= op.nbytes", "torch_cpu"),
        ("Detected mismatch between collectives on ranks", "torch_cpu"),
        ("failed to pass monitoredBarrier", "torch_cpu"),
        ("the lagging/dead/mismatched ranks that caused the desync are", "torch_cuda"),
        ("To avoid data inconsistency, we are taking the entire process down", "torch_cuda"),
        ("Observed flight recorder dump signal from another rank", "torch_cuda"),
        ("Operation timed out after", "torch_cuda"),
        ("Aborting process on rank", "torch_cuda"),
        ("Expected all tensors to be on the same device", "torch_cpu"),
        ("CUDA out of memory", "c10_cuda"),
        ("unhandled system error", "nccl.so"),
        ("unable to open shared memory object", "torch_cpu"),
        ("Failed to recv, got 0 bytes", "torch_cpu"),
        ("wait timeout after", "torch_cpu"),
        ("connectFullMesh", "torch_cpu"),
        ("hostname of the client socket cannot be retrieved", "torch_cpu"),
        ("use_libuv was requested but PyTorch was built without libuv support", "torch_cpu"),
        ("device type for generator but found", "torch_cpu"),
        ("Tensors must be contiguous", "torch_cpu"),
        ("Grad strides do not match bucket view strides", "torch_cpu"),
        ("Your training graph has changed in this iteration", "torch_cpu"),
        ("expected scalar type", "torch_cpu"),
        ("device type tensor to numpy", "torch_python"),
        ("No CUDA GPUs are available", "c10_cuda"),
        ("Tensors must be CUDA and dense", "torch_cuda"),
        ("NCCL communicator was aborted", "torch_cuda"),
        ("RNN module weights are not part of single contiguous chunk of memory", "torch_cuda"),
        ("Multiple Ranks are using the same GPU", "nccl.so"),
    ],
)
def test_a_text_that_is_said_to_be_in_a_library_is_there(text, name):
    (heading,) = [heading for heading in ENTRIES if text in texts(heading)]
    assert "library" in ENTRIES[heading]["Checked"]
    files = [path for path in library(name) if path.stat().st_size]
    if not files:
        pytest.skip(f"this build of PyTorch has no {name}")
    for path in files:
        with open(path, "rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as content:
            if content.find(text.encode()) >= 0:
                return
    pytest.fail(f"not in {files}")


def test_a_text_that_is_said_to_be_in_pytorchs_code_is_there():
    found = 0
    for heading, parts in ENTRIES.items():
        for path in re.findall(r"`([\w/]+\.py)`", parts["Checked"]):
            code = re.sub(r'"\s*\n\s*f?"', "", (TORCH / path).read_text())  # strings over several lines
            assert contains(code, texts(heading)[0]), heading
            found += 1
    assert found >= 4


def test_there_are_enough_and_those_that_people_search_for():
    page = PAGE.read_text()
    assert len(ENTRIES) >= 230 and len(ENTRIES) == page.count("\n### ")
    for text in ASKED:
        assert any(text in texts(heading) for heading in ENTRIES), text


POSTED = (
    "has been marked as ready twice", "unrecognized arguments: --local-rank", "Caught RuntimeError in replica",
    "zip argument #1 must support iteration", "Gather got an input of invalid size", "Unexpected key(s) in state_dict",
    "unable to open shared memory object", "ProcessExitedException", "exitcode: -11", "unhandled cuda error",
    "No module named 'd2l'", "Javascript Error: require is not defined", "Kernel died before replying to kernel_info",
    "context has already been set", "Broken pipe", "ranks expects to be", "torch.cuda.OutOfMemoryError",
    "UnpicklingError", "invalid load key", "world_size is not divisible", "RendezvousConnectionError",
    "is killed by signal", "avoid running any instruction using", "retrieving ncclUniqueId", "SIGHUP",
    "received 0 items of ancdata", "Must flatten tensors with uniform", "The kernel appears to have died",
    "inconsistent ... params", "command is available on your system but is not used", "oom-kill event(s)",
    "undefined symbol: ncclCommRegister", "NET/IB : Got completion", "Using RTX 4000 series doesn't support",
    "Could not find real path of /sys/class/pci_bus", "The paging file is too small", "WinError 1455",
    "in another thread when fork() was called", "module 'torch.distributed' has no attribute",
    "Failed to initialize NVML: Unknown Error", "Error 802", "all CUDA-capable devices are busy or unavailable",
    "pidfd_getfd: Operation not permitted", "Cannot allocate memory (12)", "can only test a child process",
    "h5py objects cannot be pickled", "not compatible with an interactive environment", "device_map='auto'",
    "'weight' must be 2-D", "Attempted to flatten multiple dimensions", "arg_mbs but got",
    "Found a higher order op in the graph", "A different number of tensors was saved", "torchinductor",
    "Missing key in checkpoint state_dict", "Check batch related parameters", "ds_opt_adam",
    "has already been reduced", "Gradient computed twice for this partition", "torch.Size([0])",
    "misaligned address", "To enable traceback see", "processes exited with non-zero status",
    "Received 15 death signal", "Received 2 death signal", "FlatParameter requires uniform",
    "Expected at least one parameter", "Connection closed by remote peer", "undefined symbol: __nvJitLink",
    "forward compatibility was attempted on non supported HW", "HIP error: invalid device function",
    "Current loss scale already at minimum", "MetadataIncompleteBuffer", "file not fully covered",
    "should dump", "sendBytes failed", "compiled with different CUDA versions", "its data is not allocated yet",
    "CUDNN_STATUS_NOT_SUPPORTED", "DeepSpeed Zero-3 is not compatible with", "launched 1 slurm tasks",
    "But your machine only has", "Could not find the transformer layer class", "CUDA_HOME does not exist",
    "Error building extension 'fused_adam'", "missing ranks", "not enough slots available",
    "No available node types can fulfill", "no attribute 'is_failed'", "no socket interface found",
    "is neither AF_INET(2) nor AF_INET6(10)", "ibv_reg_mr", "Failed to open libibverbs.so", "libnccl-net.so",
    "Invalid scalar type", "must have the same size", "output tensor size must be equal to world_size times",
    "BroadcastBackward is a view", "Caught KeyError in DataLoader worker process", "num_samples should be",
    "only dense CPU tensors can be pinned", "has fallen off the bus", "Unable to determine the device handle",
    "libcudnn_cnn_infer.so.8", "driver/library version mismatch", "could not select device driver",
    "Your setup doesn't support bf16/gpu", "out of resource: shared memory", "Some tensors share memory",
    "Cannot copy out of meta tensor", "should be materialized on CPU", "Inconsistent compute device",
    "out of bounds for storage of size 0", "Invalid mesh_dim_names", "IOPub data rate exceeded", "CellTimeoutError",
)  # fmt: skip


@pytest.mark.parametrize("text", POSTED)
def test_a_posted_message_is_found_by_one_search_in_a_heading(text):
    assert any(text in heading for heading in ENTRIES)


def headings(path):
    cells = json.loads(path.read_text())["cells"]
    return re.findall(r"^#+ (.*)$", "\n".join("".join(cell["source"]) for cell in cells), flags=re.M)


@pytest.mark.parametrize("heading", ENTRIES)
def test_an_entry_says_what_it_means_where_it_is_shown_and_how_to_repair_it(heading):
    parts = ENTRIES[heading]
    assert tuple(parts) == PARTS and all(parts.values())
    assert re.match(r"made (in a browser )?by a test|the text is in PyTorch's|(the first )?from \[", parts["Checked"])
    shown = re.findall(r"\[(?:appendix to )?chapter (\d+)\]\(([^)]+)\)(?:, \*([^*]+)\*)?", " ".join(parts.values()))
    assert shown
    for number, link, section in shown:
        assert Path(link).name.startswith(f"{int(number):02}-") and (BOOK / link).is_file()
        assert not section or section in headings(BOOK / link), (link, section)


def test_the_other_links_of_the_page_lead_somewhere():
    for link in re.findall(r"\]\(([^)]+)\)", PAGE.read_text()):
        assert link.startswith("https://") or (BOOK / link).is_file(), link
