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
        ("inputs must be on unique devices", "torch_cuda"),
        ("Invalid thread pool!", "torch_cpu"),
        ("Unable to handle autograd's threading in combination with fork-based multiprocessing", "torch_cpu"),
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
    "cannot pickle", "cannot pickle '_thread.lock' object", "exits with return code", "return code = -9",
    "exit code 137", "OOMKilled", "terminated with signal", "To launch a multi-GPU training from your notebook",
    "make sure no cells use any CUDA function", "return code = -11", "terminate called after throwing an instance of",
    "return code = -7", "SignalException", "use_libuv was requested but PyTorch was build without libuv support",
    "torchrun: command not found", "torchrun: not found", "'torchrun' is not recognized",
    "Unsupported nproc_per_node value", "Cuda is not available.", "NOTE: Redirects are currently not supported",
    "train_batch_size is not equal to micro_batch_per_gpu", "does not match the version torch was compiled with",
    "mismatches the version that was used to compile", "Ninja is required to load C++ extensions",
    "can't train a model that has been loaded in 8-bit precision on a different device",
    "in 8-bit or 4-bit precision on a different device", "in 8-bit or 4-bit precision on multiple devices",
    "You can't use batches of different size with",
    "cannot import name 'log' from 'torch.distributed.elastic.agent.server.api'", "No module named 'torch._six'",
    "parameters in the parameter fetch queue to be", "still have inflight params",
    "More processors requested than permitted", "Requested node configuration is not available",
    "Invalid generic resource (gres) specification", "OMPI was not built with SLURM's PMI support",
    "has detected an attempt to run as root",
    "which is below the recommended minimum of 5.5.0; this can cause the process to hang",
    "AcceleratorState has already been initialized and cannot be changed",
    "You must initialize the accelerate state by calling either",
    "needs to be a round multiple of the number of processes", "The following values were not passed to",
    "requires you to pass at least one of training or evaluation dataloaders",
    "You shouldn't move a model that is dispatched using accelerate hooks",
    "You can't move a model that has some modules offloaded",
    "Accelerator.__init__() got an unexpected keyword argument",
    "The current process just got forked, after parallelism has already been used",
    "but the number of tasks per node configured in SLURM", "does not match the world size",
    "in your SLURM bash script, but this variable is not supported", "No supported gpu backend found!",
    "GPU available but not used",
    "no_sync context manager is incompatible with gradient partitioning logic of ZeRO stage",
    "Not using the DeepSpeed or dist launchers, attempting to detect MPI environment", "No module named 'mpi4py'",
    "You are using ZeRO-Offload with a client provided optimizer", "launcher 'pdsh' not installed",
    "pdsh: command not found", "Horovod has not been initialized; use hvd.init()", "has not been built",
    "DUE TO TIME LIMIT", "DUE TO PREEMPTION",
    "args.max_steps must be set to a positive value if dataloader does not have a length", "posix_fallocate failed",
    "failed to extend /dev/shm", "Error while creating shared memory segment", "unable to write to file",
    "SHMEM allocation limit is set to the default of 64MB", "is killed by signal: Killed",
    "is killed by signal: Bus error", "workers are out of shared memory", "expected unspecified batch_sampler option",
    "batch_sampler option is mutually exclusive with batch_size", "Trying to resize storage that is not resizable",
    "This DataLoader will create", "excessive worker creation might get DataLoader running slow or even freeze",
    "persistent_workers option needs num_workers > 0",
    "prefetch_factor option could only be specified in multiprocessing",
    "default_collate: batch must contain tensors, numpy arrays, numbers, dicts or lists",
    "Couldn't open shared file mapping", "pthread_create failed", "can't start new thread",
    "Resource temporarily unavailable", "Shared memory manager connection has timed out", "torch_shm_manager",
    "MASTER_ADDR expected, but not set", "MASTER_PORT expected, but not set",
    "The server socket has failed to listen on any local network address", "The server socket has failed to bind to",
    "Unable to find interface for", "Unable to resolve hostname to a (local) address",
    "No backend type associated with device type cpu",
    "process group has NOT been destroyed before we destruct ProcessGroupNCCL", "recvValueWithTimeout failed",
    "Name or service not known", "Temporary failure in name resolution", "gai error",
    "has failed to shutdown the rendezvous", "has failed to send a keep-alive heartbeat to the rendezvous",
    "Error waiting on exit barrier", "must be a dot-separated list of labels, an IPv4 address, or an IPv6 address",
    "which does not belong to the given group", "Invalid usage of tensors with different dtypes",
    "Distributed package doesn't have MPI built in", "is a private function and will be deprecated",
    "unsupported gloo device", "makeDeviceForHostname()", "The client socket has failed to connect to",
    "system error: 10049", "The requested address is not valid in its context",
    "errno: 99 - Cannot assign requested address", "NCCL Error 2", "ncclRemoteError",
    "A call failed possibly due to a network error or a remote process exiting prematurely", "NCCL Error 6",
    "Call to CUDA function failed", "NCCL Error 1", "This usually reflects invalid usage of NCCL library",
    "NCCL Error 5", "ncclInvalidArgument", "invalid argument (run with NCCL_DEBUG=WARN for details)", "NCCL Error 4",
    "ncclInProgress", "NCCL operation in progress", "System call (e.g. socket, malloc) or external library call failed",
    "internal error - please report this issue to the NCCL developers", "NCCL Error 3",
    "NET/IB : Got completion from peer", "NET/IB: Got completion from peer", "with error 12", "with status=12",
    "Message truncated : received", "message truncated : receiving", "bytes instead of",
    "Mismatched collective detected, please check your collective calls at and around rank",
    "Heartbeat monitor timed out", "ProcessGroupNCCL's watchdog got stuck for",
    "without making progress in monitoring enqueued collectives", "Error while attaching to shared memory segment",
    "Mismatched NCCL version detected", "NCCL version mismatch with remote peer",
    "Bootstrap Root : mismatch in info from procs", "Tensor found on device", "but backend constrained to",
    "Input tensor data type is not supported for NCCL process group",
    "An unbatched P2P op (send/recv) was called on this ProcessGroup",
    "is deprecated; use TORCH_NCCL_ASYNC_ERROR_HANDLING", "is deprecated; use TORCH_NCCL_BLOCKING_WAIT",
    "Application timeout caused pair closure", "Process group watchdog thread terminated with exception",
    "Received a dump signal due to a collective timeout from", "Stack trace of the failed collective not found",
    "Cannot use ReduceOp.AVG with Gloo", "Tried to allocate more than 1EB memory",
    "It looks like your LightningModule has parameters that were not used in producing the loss",
    "appears not to match strides of the same param in process 0",
    "grad can be implicitly created only for scalar outputs",
    "only one element tensors can be converted to Python scalars",
    "a Tensor with ... elements cannot be converted to Scalar", "If reserved but unallocated memory is large",
    "CUDA error: out of memory", "Cuda failure 'out of memory'", "Failed to CUDA calloc",
    "Unable to find a valid cuDNN algorithm to run convolution",
    "GET was unable to find an engine to execute this computation", "undefined symbol: iJIT_NotifyEvent",
    "CUDA unknown error - this may be due to an incorrectly set up environment",
    "DefaultCPUAllocator: can't allocate memory", "DefaultCPUAllocator: not enough memory",
    "[Errno 12] Cannot allocate memory", "undefined symbol: _ZN", "libcudart.so.11.0: cannot open shared object file",
    "libcudart.so.12: cannot open shared object file",
    "A module that was compiled using NumPy 1.x cannot be run in NumPy 2", "Numpy is not available",
    "NVIDIA-SMI has failed because it couldn't communicate with the NVIDIA driver",
    "nvidia-container-cli: initialization error", "load library failed: libnvidia-ml.so.1",
    "unmatched '}' in format string", "fbgemm.dll", "or one of its dependencies", "MPS backend out of memory",
    "is not currently implemented for the MPS device", "Insufficient nvidia.com/gpu",
    "Gradient overflow. Skipping step, loss scaler 0 reducing loss scale to", "The loss is NaN with",
    "unscale_() is being called after step()", "but _scale is None", "torch.cuda.amp.GradScaler(args...)",
    "torch.cuda.amp.autocast(args...)", "GradScaler is enabled, but CUDA is not available",
    "User provided device_type of 'cuda', but CUDA is not available. Disabling", "not implemented for 'Half'",
    "not implemented for 'BFloat16'", "not implemented for 'Int'",
    "binary_cross_entropy and torch.nn.BCELoss are unsafe to autocast", "mat1 and mat2 must have the same dtype",
    "Expected query, key, and value to have the same dtype", "and bias type", "torch._dynamo hit config.",
    "torch._dynamo hit config.recompile_limit", "torch._dynamo hit config.cache_size_limit",
    "Not enough SMs to use max_autotune_gemm mode",
    "accessing tensor output of CUDAGraphs that has been overwritten by a subsequent run",
    "Cannot find a working triton installation", "Invalid magic number; corrupt file?",
    "invalid header or archive is corrupted", "Expected state_dict to be dict-like", "CheckpointException ranks",
    "Size mismatch between saved",
    "torch.distributed is disabled, unavailable or uninitialized, assuming the intent is to",
    "A CPU backend must be enabled for async save",
    "FSDP.state_dict_type() and FSDP.set_state_dict_type() are being deprecated",
    "PytorchStreamWriter failed writing file", "unexpected pos", "file write failed",
    "Parent directory ... does not exist", "FSDP parameters should be materialized from meta device before training",
    "does not support containers that do not implement forward", "state has already been lazily initialized for",
    "requires running forward through the root module first", "parameter already managed by another FSDP group",
    "FSDP does not support deepcopy", "doesn't support scalar parameters",
    "Cannot writeback when the parameter shape changes",
    "requires explicit specification of process group or device_mesh",
    "FSDP does not support modules with different device types", "FSDP only supports single device modules",
    "FSDP does not support CPU only execution", "FSDP needs a non-CPU accelerator device",
    "DTensor does not support cross-mesh operation on",
    "in-place operations that require placement changes are not supported",
    "ColwiseParallel currently only support nn.Linear and nn.Embedding!", "is invalid for input of size",
    "It seems like you did not set/select the default device for the current process before the DeviceMesh",
    "Number of microbatches (...) must be greater than or equal to the number of stages",
    "eof (this error originated at tensorpipe", "RPC agent for",
    "RPC has not been initialized. Call torch.distributed.rpc.init_rpc first",
    "TensorPipe RPC backend only supports CPU tensors by default", "RPC ran for more than set timeout",
    "Your session crashed after using all available RAM", "ipykernel_launcher.py: error: unrecognized arguments: -f",
    "colab_kernel_launcher.py: error: unrecognized arguments", "Training hangs in",
    "Initializing distributed: GLOBAL_RANK", "Stuck at", "The job hangs while a checkpoint is saved",
    "will restart worker group", "Training starts again from the beginning", "Only one GPU is used",
    "DDP on several GPUs is slower than one GPU", "Two hosts are slower than one",
    "does not have many workers which may be a bottleneck", "The GPUs wait for data",
    "GPU 0 uses more memory than the others with", "GPU 0 alone is out of memory",
    "GPU memory grows with every step until it is full", "GPU memory is still used after the job has ended",
    "The memory of the host grows while a", "The loss is NaN with several GPUs only",
    "when logging on epoch level in distributed setting", "The loss with DDP is different from the loss on one GPU",
    "The accuracy is lower with several GPUs than with one", " with the dataloaders",
    "The validation score is different on several GPUs", "Every rank gets the same examples of an",
    "The order of the examples is the same in every epoch", "The workers of a",
    "Everything is printed or logged once per GPU", "an autograd kernel was not registered to the Autograd key(s)",
    "Gradients do not pass through", "a package that is installed, under `torchrun`",
    "Cannot flatten integer dtype tensors", "The size of tensor a (", "at non-singleton dimension",
    "torch._dynamo.exc.BackendCompilerFailed: backend='compile_fn' raised",
    "strategies from the DDP family are not supported on the MPS accelerator",
    "assert param.ds_status == ZeroParamStatus.AVAILABLE, param.ds_summary()",
    "In operator() at tensorpipe/common/ibv.h", "Failed to run stage backward", "A long pause between epochs",
    "DDP increases GPU memory", "The connection to the C10d store has failed. See inner exception for details",
    "ncclSystemError: System call (e.g. socket, malloc) or external library call failed or device error",
    "Call to ibv_reg_mr_iova2 failed with error Cannot allocate memory",
    "Process group watchdog thread terminated with exception: CUDA error: an illegal memory access was encountered",
    "makeDeviceForHostname(): unsupported gloo device", "on <module '__main__' (built-in)>",
    "Cannot writeback when the gradient shape changes", "Training freezes", "all processes run on the first GPU",
    "master_addr is only used for static rdzv_backend", "node_rank is only used for static rdzv_backend",
    "gloo::IoException", "inputs must be on unique devices", "Invalid device id", "object has no attribute 'ng'",
    "only when training is resumed", "peer mapping resources exhausted", "CUDA_ERROR_TOO_MANY_PEERS",
    "does not use a scaler, found", "storage has wrong size: expected", "undefined symbol: ncclAlltoAll",
    "You requested 2 GPUs but launched 1 slurm tasks", "but the number of nodes configured in SLURM",
    "Less than two GPU ids were configured", "got an unexpected keyword argument 'command_file'", "had unknown keys",
    "was not reachable via ssh", "setup passwordless ssh", "PDSH_SSH_ARGS_APPEND", "Missing ranks:",
    "Horovod has been shut down", "with the same name as another tensor that is currently being processed",
    "Gradients were computed more than backward_passes_per_step times", "Mismatched data types: One rank had type",
    "Mismatched ALLREDUCE tensor shapes", "ORTE was unable to reliably start one or more daemons",
    "prterun was unable to reliably start one or more daemons", "orted: command not found",
    "PRTE has lost communication with a remote daemon", "unrecognized argument allow-run-as-root",
    "unrecognized argument mca", "Primary job terminated normally, but 1 process returned",
    "mpirun detected that one or more processes exited with non-zero status",
    "The actor is dead because its worker process has died", "Worker unexpectedly exits with a connection error code 2",
    "Task was killed due to the node running low on memory", "DUE TO NODE FAILURE", "DUE TO JOB REQUEUE",
    "To launch a multi-device training from your notebook", "Libraries known to initialize device upon import",
    "leaked semaphore objects to clean up at shutdown", "resource_tracker: There appear to be",
    "leaked semaphores to clean up at shutdown", "returned non-zero exit status 1", "subprocess.CalledProcessError",
    "died with <Signals.SIGKILL: 9>", "died with <Signals.SIGSEGV: 11>", "bad value(s) in fds_to_keep",
    "pickle data was truncated", "Cowardly refusing to serialize",
    "Producer process has been terminated before all shared CUDA tensors released",
    "LOCAL_RANK is not in the environment", "torchelastic is running on a child thread",
    "Lightning can't create new processes if CUDA is already initialized", "got an unexpected keyword argument 'gpus'",
    "can not run on your system since the accelerator is not available", "within local rank has zero length",
    "can't inject a (distributed) sampler", "config values that mismatch TrainingArguments values", "No slot '",
    "not found in hostfile", "Unsupported gpu architecture 'compute_", "requires the dev libaio .so object",
    "sparse_attn requires a torch version", "Invalidate trace cache @ step", "You are using an untested ZeRO Optimizer",
    "CPUAdam param is on", "train_micro_batch_size_per_gpu needs to be provided", "used a DP world size of",
    "Unable to find latest file at", "Tried to launch distributed communication on port",
    "You need to use at least 2 processes to use", "You need to manually pass in", "fp16 mixed precision requires a",
    "bf16 mixed precision requires PyTorch >= 1.10", "FP16 Mixed precision training with AMP",
    "Cannot apply desired operation due to shape mismatches", "Error found while calling",
    "`AcceleratorState` object has no attribute", "with multiple models when using DeepSpeed",
    "which is incompatible with DDP", "is on the meta device, we need a", "offload_folder",
    "on the meta device because they were offloaded", "stage3_gather_16bit_weights_on_model_save",
    "--fsdp_cpu_ram_efficient_loading", "Upcasted low precision parameters in",
    "step creation temporarily disabled, retrying", "Memory required by task is not available",
    "srun: Job step aborted", "Exited with exit code 1", "plm_rsh_agent",
    "unable to find the specified executable file", "gradients are inconsistent between workers",
    "Minimum loss scale reached", "multi_tensor_applier fused unscale kernel is unavailable", "No module named 'amp_C'",
    "cpu_adam.so: cannot open shared object file", "ninja: build stopped: subcommand failed", "sigkill_handler",
    "Killing subprocess", "Permission denied (publickey", "Host key verification failed", "KeyError: 'SLURM_PROCID'",
    "errno: 97", "Address family not supported by protocol", "The client socket cannot be initialized to connect to",
    "No rendezvous handler for env://", "Expected timeout argument to be of type datetime.timedelta",
    "device_id parameter must be a device with", "must be specified on source rank",
    "must be specified on destination rank", "Invalid function argument. Expected parameter",
    "should not be the same as the rank of the current process",
    "API call is not supported in the installed CUDA driver", "Failed to bind NVLink SHARP", "transport/nvls.cc",
    "MNNVL (cliqueSize", "iommu=pt", "amd_iommu=on", "input module must be on the same type of devices",
    "DDPSinkBackward", "forward() missing 1 required positional argument",
    "Broadcast function not implemented for CPU tensors", "Gather function not implemented for CPU tensors",
    "i.is_cuda, inputs", "Error 803", "Unexpected error from cudaGetDeviceCount()",
    "CUBLAS_STATUS_INVALID_VALUE when calling", "Invalid CUDA 'device=", "pass valid CUDA device(s)",
    "Invalid device string", "Expected a cuda device, but got: cpu",
    "Encountered different devices in metric calculation", "unsatisfied condition: cuda>=",
    "use an earlier cuda container", "in pin memory thread for device",
    "argument is set as true but no accelerator is found", "each element in list of batch should be of equal size",
    "FileExistsError: [Errno 17] File exists", "FSDP is switching to use",
    "with no gradients -- returning the total norm", "The module has CPU parameters or buffers when",
    "To support a module with both CPU and GPU params", "unexpectedly has parameters on", "Forward order differs",
    "Both mixed precision and an auto_wrap_policy", "DeviceMesh only support homogeneous hardware",
    "results differ from run to run", "The number of steps per epoch is the same",
    "Default process group is not initialized", "Timeout waiting for key", "tensors are on different GPUs",
    "Expected object of device type cuda but got device type cpu",
    "Expected object of backend CUDA but got backend CPU", "CUDA-capable device(s) is/are busy or unavailable",
    "no CUDA-capable device is detected", "No HIP GPUs are available", "CUDA error: system not yet initialized",
    "cuda runtime error (10)", "Error 101: invalid device ordinal", "cuda runtime error (59)", "socketPollConnect",
    "Failed to execute operation Connect from rank", "Proxy Call to rank", "wandb` starts one run per GPU", "tqdm",
    "zombie processes", "has no speed-up", "shows 100% without progress",
    "exitcode: 2", "can't open file", 'is not in "MIN:MAX" format', "min_nodes must be > 0", "AF_UNIX path too long",
    "RendezvousGracefulExitError", "Using the Trainer with PyTorch requires accelerate",
    "Please run pip install transformers[torch]", "cannot import name 'DTensor' from 'torch.distributed.tensor'",
    "have not registered within the timeout", "Total number of attention heads (",
    "must be divisible by tensor parallel size",
    "only Tensors of floating point and complex dtype can require gradients",
    "FSDP does not support gradients of gradients", "changing the parameters between forward and backward",
    "exit code 139", "exit code 134", "core dumped", "NVRM: Xid", "Must flatten tensors on the same device",
    "NaN only with DDP", "the validation metric differs", "CUDA error: invalid device function",
    "cuda runtime error (48)", "HIP out of memory", "cuda runtime error (2) : out of memory", "returns `False`",
    "or at a barrier",
    "srcIndex < srcSelectDimSize", "t >= 0 && t < n_classes", "unhandled system error, NCCL version",
    "unhandled cuda error, NCCL version", "invalid usage, NCCL version", "internal error, NCCL version",
    "NCCL error in:", "GPU utilization is 0 %", "the loss does not converge with DDP",
    "multi-node training hangs at the start",
    "pytorch allocator cache flushes since last step", "bfloat16 and fp16 modes cannot be simultaneously enabled",
    "zero stage 3 requires an optimizer", "Only train_batch() is accessible", "Num nodes is >1",
    "no GPU resources available", "DeepSpeed ops were compiled and installed", "has `None` as batch size",
    "not found in kwargs. Please specify", "a model and optimizer must be passed together",
    "Only one model is supported when using FSDP2", "Only nested list/tuple/dicts of objects that are valid for",
    "don't match the local rank values of processes", "incompatible devices", "only one link type using NCCL_IB_HCA",
    "the following arguments are required: training_script", "GPUs requested but none are available",
    "OVERFLOW! Rank 0 Skipping step", "DeepSpeed requires the LOCAL_RANK environment variable",
    "NET/Socket : no interface found", "Could not find: libnccl-net.so", "Consider setting `persistent_workers=True`",
    "exitcode  : 1", "error_file: <N/A>", "<NO_OTHER_FAILURES>", "Root Cause (first observed failure)",
    "failed (exitcode: 1) local_rank", "exitcode  : -9", "exitcode  : -11", "exitcode  : -6", "exitcode  : -7",
    "exitcode  : -15",
    "Read -1, expected", "There was an error initializing an OpenFabrics device",
    "the launch timed out and was terminated",
    "Invalid thread pool!", "Unable to handle autograd's threading", "unrecognized arguments: --local_rank=0",
    "unrecognized arguments: --local-rank=0", "TrainFnUtils has not been initialized",
    "cannot be used outside of a Ray Train training function", "is deprecated when running in a function passed to",
    "You have to specify the number of GPUs you would", "num_processes", "is not a valid FSDPOption",
    "We detected accelerator mps on your machine", "know which communication backend to use", "rank -1, world size -1",
    "no support for _allgather_base in MPI", "ProcessGroupMPI does not support reduce_scatter",
    "MMDataParallel only supports single GPU", "'MMDataParallel' object has no attribute",
    "CUDA driver version is insufficient for CUDA runtime version", "cuda runtime error (35)",
    "torch.distributed.DistNetworkError: Unknown error", "Attempted step but _scale is None",
    "did not use scaler.scale(loss or outputs)", "hangs on exit", "hangs at exit", "_convert_frame_assert() missing",
    "'hooks' and 'frame_state'", "enforce fail at inline_container.cc", "file not found: archive/data",
    "Loading a checkpoint for MP=1 but world size is", "Loading a checkpoint for MP=0", "Loading a checkpoint for MP=8",
    "no checkpoint files found in", "does not seem to reference any FSDP parameters",
    "create the optimizer after setting up the model", "hangs on loss.backward()", "hangs in backward",
    "DataParallel out of memory", "Training on Multi-GPUs out of Memory",
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
