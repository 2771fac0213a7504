"""How to mend what PyTorch refuses: parts of its messages, each with a repair."""

import re

__all__ = ["OF_ITERABLE", "refusal_of_a_gpu", "repair_of"]

OF_ITERABLE = (
    "An IterableDataset takes no sampler: let each rank, and each worker of its DataLoader, read its own part in "
    "__iter__, for example by itertools.islice(examples, rank, None, world_size), and as many examples on each rank. "
    "Data sets of Hugging Face have split_dataset_by_node."
)

PORT = (
    "Another job has this port: choose a free one, or let torchrun choose it with --standalone, or "
    "--rdzv-backend=c10d --rdzv-endpoint=localhost:0."
)
AT_THE_TOP = "What a started process gets must be defined at the top of a file: no lambda, no inner function."
# {a part of what PyTorch says on GPUs alone: how to mend it}
_REFUSALS = {
    "Expected all tensors to be on the same device": "Move each to the rank's device: X.to(device), y.to(device).",
    "can't convert cuda": "Call .cpu() before .numpy(): X.detach().cpu().numpy().",
    "invalid device ordinal": 'Use the number of the GPU on this host: int(os.environ["LOCAL_RANK"]).',
    "No backend type associated with device type cpu": "NCCL sends what is on GPUs: move it to one first.",
    "CUDA out of memory": "Use smaller minibatches, activation checkpointing, a lower precision, or shard the state.",
    "Duplicate GPU detected": "Call torch.cuda.set_device(local_rank) first, and move tensors to this device.",
    "attempting to assign a gradient with device type": "Move the gradient to the device of its parameter.",
    "should be the same or input should be a MKLDNN": "Move each minibatch to the rank's device, as the network.",
    "re-initialize CUDA in forked subprocess": "A worker of a DataLoader, or another fork, uses a GPU: keep the data "
    "set on the CPU and move each minibatch in the loop; or num_workers=0, or multiprocessing_context='spawn'.",
    "device type for generator but found": "Leave torch.set_default_device out and move tensors yourself, or give the "
    "function a generator of that device: torch.Generator(device='cuda'). A DistributedSampler makes one on the CPU.",
    "indices should be either on": "Move the indices to the device of the tensor, or leave them on the CPU.",
    "cannot pin": "pin_memory=True is for data on the CPU: leave it out for data that is on a GPU.",
    "module must have its parameters and buffers on device": "Move the network to the first of device_ids before "
    "nn.DataParallel is made: model.to('cuda:0').",
    "Tensors must be CUDA and dense": "NCCL sends what is on GPUs: move it to one first.",
    "NCCL does not support all_reduce with sparse": "Make the embedding with sparse=False, or send sparse gradients by "
    "a gloo group.",
    "Tensors must be contiguous": "Call .contiguous() before the collective.",
}
# {a part of any other message: how to mend it}
REPAIRS = {
    "Default process group has not been initialized": "Call torch.distributed.init_process_group() on each rank.",
    "trying to initialize the default process group twice": "Call init_process_group() once in each process.",
    "Expected to mark a variable ready only once": "A parameter gets its gradient twice in one backward pass: with "
    "checkpointing use use_reentrant=False, or static_graph=True; or let the network be called once in each step.",
    "modified by an inplace operation": "If the network is called twice before the backward pass, its buffers are sent "
    "again in between: DistributedDataParallel(..., broadcast_buffers=False), or one call with both inputs.",
    "Trying to backward through the graph a second time": "Compute the forward pass again for each backward pass, or "
    "detach what is used again.",
    "is not needed when a module doesn't have any param": "Leave DistributedDataParallel "
    "out for a network that does not learn, or unfreeze it before.",
    "Attempting to unscale FP16 gradients": "Keep the parameters in float32 with a GradScaler: let autocast round, not "
    ".half().",
    "unscale_() has already been called": "Call scaler.unscale_(optimizer) once for each update.",
    "No inf checks were recorded for this optimizer": "Each optimizer of scaler.step() needs gradients of a loss that "
    "was scaled: scaler.scale(loss).backward().",
    "step() has already been called since the last update()": "Call scaler.update() once after each scaler.step().",
    "expected unspecified sampler option": OF_ITERABLE,
    "expected unspecified shuffle option": "An IterableDataset takes no shuffle: shuffle in its __iter__.",
    "sampler option is mutually exclusive with shuffle": "Leave shuffle out: DistributedSampler shuffles.",
    "EADDRINUSE": PORT,
    "ddress already in use": PORT,
    "Can't pickle": AT_THE_TOP,
    "Can't get local object": AT_THE_TOP,
    "cannot pickle": "Make it in the started process, and pass only what is needed to make it.",
    "unrecognized arguments: --local": 'torchrun sets the variable LOCAL_RANK: int(os.environ["LOCAL_RANK"]).',
    "KeyError: 'LOCAL_RANK'": "Start the script by torchrun, or take the rank from what starts it.",
    "KeyError: 'RANK'": "Start the script by torchrun, or set RANK, WORLD_SIZE, MASTER_ADDR and MASTER_PORT.",
    "Expected more than 1 value per channel when training": "The last minibatch of a rank has one example: "
    "drop_last=True, or SyncBatchNorm.",
}
# the same, if not all ranks raise it
OF_SOME_RANKS = {
    "FileExistsError": "Another rank has made it: os.makedirs(path, exist_ok=True), or let rank 0 alone make it.",
    "FileNotFoundError": "If another rank writes this file, let all wait in torch.distributed.barrier() until it is "
    "written.",
}
# the same, in a script that starts its ranks itself or is one process
OF_ONE_PROCESS = {
    "Expected hidden size": "nn.DataParallel cuts each tensor along its first dimension: pass a state with the batch "
    "first, and transpose it in the forward pass.",
    "positional arguments but": "torch.multiprocessing.spawn calls fn(i, *args): `args` is a tuple, (config,) for one "
    "thing, and the number of the process comes first.",
}
NO_ATTRIBUTE = re.compile(r"'(\w*DataParallel)' object has no attribute '(\w+)'")


def refusal_of_a_gpu(message: str) -> str:
    """Return how to mend what a GPU has refused with this message; "" if it is a different error."""
    return next((repair for part, repair in _REFUSALS.items() if part in message), "")


def repair_of(message: str, of_all: bool = True, is_alone: bool = False) -> str:
    """Return how to mend an error with this type and message; "" if it is not known.

    `of_all` says whether all ranks have raised it, `is_alone` whether the script was not started by torchrun.
    """
    if found := NO_ATTRIBUTE.search(message):
        return f"The network is inside of the wrapper: write model.module.{found[2]}, if the network has it."
    known = REPAIRS | ({} if of_all else OF_SOME_RANKS) | (OF_ONE_PROCESS if is_alone else {})
    return next((repair for part, repair in known.items() if part in message), "")
