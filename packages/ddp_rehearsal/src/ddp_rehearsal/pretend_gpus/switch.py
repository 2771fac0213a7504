"""Switch the pretence on: in this process, and in the processes that it starts."""

import os
import sys
from pathlib import Path

import torch
import torch.distributed as dist

import notebook_ranks
from ddp_rehearsal.pretend_gpus.backward import pretend_backward
from ddp_rehearsal.pretend_gpus.collectives import pretend_collectives
from ddp_rehearsal.pretend_gpus.devices import number_of_gpus, pretend_devices, visible_gpus
from ddp_rehearsal.pretend_gpus.files import pretend_files
from ddp_rehearsal.pretend_gpus.legacy_types import pretend_legacy_types
from ddp_rehearsal.pretend_gpus.memory import pretend_memory
from ddp_rehearsal.pretend_gpus.modules import pretend_modules
from ddp_rehearsal.pretend_gpus.not_pretended import refuse_the_rest
from ddp_rehearsal.pretend_gpus.optimizers import pretend_optimizers
from ddp_rehearsal.pretend_gpus.random_numbers import pretend_random_numbers
from ddp_rehearsal.pretend_gpus.streams import pretend_streams
from ddp_rehearsal.pretend_gpus.sync_batchnorm import pretend_sync_batchnorm
from ddp_rehearsal.pretend_gpus.tensors import pretend_tensors
from notebook_ranks.shared.checks import positive_int

__all__ = ["path_at_start", "pretend_gpus", "pretend_gpus_environment", "pretend_visible_gpus"]

AT_START = str(Path(__file__).parent / "at_start")  # Python imports `sitecustomize` from here when it starts
ROOTS = list(dict.fromkeys(str(Path(file).parents[n]) for file, n in ((__file__, 2), (notebook_ranks.__file__, 1))))


def pretend_gpus_environment(k: int) -> dict[str, str]:
    """Return environment variables with which a Python process, and all that it starts, has `k` pretend GPUs.

    A process on a machine with real GPUs uses these instead.

    Raises:
        TypeError: if `k` is not a whole number.
        ValueError: if `k` is less than 1.

    Example:
        >>> import os
        >>> env = os.environ | pretend_gpus_environment(2)  # for subprocess.run([..., "train.py"], env=env)
    """
    k = positive_int("k", k, hint="It is the number of GPUs of the machine that is pretended.")
    return {"D2LITE_PRETEND_GPUS": str(k), **path_at_start()}


def path_at_start() -> dict[str, str]:
    """Return PYTHONPATH with which a Python process runs the file in `at_start` before anything else."""
    before = [p for p in os.environ.get("PYTHONPATH", "").split(os.pathsep) if p and p != AT_START]
    return {"PYTHONPATH": os.pathsep.join([AT_START, *before, *(root for root in ROOTS if root not in before)])}


def pretend_gpus(k: int) -> None:
    """Give this process `k` pretend GPUs, to its end, and set its environment so that processes it starts have them.

    Call it before the first tensor is on a GPU, in the main thread. Tensors stay in the CPU's memory and carry the
    device that they would be on; values are computed by the CPU, and what GPUs refuse is refused with PyTorch's error.
    Times are those of the CPU. Not pretended are speed, an end of memory, streams that run side by side, and rounding
    of kernels (autocast is pretended).

    Raises:
        TypeError: if `k` is not a whole number.
        ValueError: if `k` is less than 1.
        RuntimeError: if the machine has real GPUs, if CUDA_VISIBLE_DEVICES names fewer, or if this process has another
            number of pretend GPUs already.

    Example:
        >>> pretend_gpus(2)  # doctest: +SKIP
        >>> torch.ones(3, device="cuda:1").device  # doctest: +SKIP
        device(type='cuda', index=1)
    """
    environment = pretend_gpus_environment(k)
    now = torch.cuda.device_count()
    if now == k and number_of_gpus() == k:
        return
    if now:
        kind = "pretend" if number_of_gpus() else "real"
        raise RuntimeError(f"k: expected a process without GPUs, got one with {now} {kind} GPU(s), k = {k}. {AGAIN}")
    if visible_gpus(k) < k:
        names = os.environ["CUDA_VISIBLE_DEVICES"]
        raise RuntimeError(f"k: expected GPUs that CUDA_VISIBLE_DEVICES names, got k = {k} and {names!r}. Unset it.")
    os.environ.update(environment)
    sys.path.insert(1, AT_START)  # `Workers` gives its ranks this path
    _pretend(k)


AGAIN = "Start a new process for another number; leave the call out where there are real GPUs."


def pretend_visible_gpus() -> None:
    """Give this process as many pretend GPUs as D2LITE_PRETEND_GPUS and CUDA_VISIBLE_DEVICES say.

    The file in `at_start` calls it. Raises ValueError if the variable is not a number.
    """
    text = os.environ.get("D2LITE_PRETEND_GPUS", "0")
    if not text.isdecimal():
        raise ValueError(f"D2LITE_PRETEND_GPUS: expected a number of GPUs, got {text!r}. Set it to 2, or unset it.")
    if visible_gpus(int(text)):
        _pretend(int(text))


def _pretend(k: int) -> None:
    import torch._dynamo  # noqa: F401  # optimizers import it, and it examines the functions of torch.cuda

    torch.set_num_threads(1)  # real GPUs leave the cores alone
    pretend_devices(k)
    pretend_random_numbers()
    pretend_legacy_types()
    pretend_memory()
    pretend_streams()
    pretend_backward()
    pretend_optimizers()
    pretend_modules()
    pretend_sync_batchnorm()
    pretend_files()
    if dist.is_available():
        pretend_collectives()
        from ddp_rehearsal.pretend_gpus.sharded_tensors import pretend_sharded_tensors  # it needs torch.distributed

        pretend_sharded_tensors()
    refuse_the_rest()
    pretend_tensors()
