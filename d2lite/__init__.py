"""d2lite: multi-GPU training in PyTorch that anyone can see, run and break, with or without GPUs."""

import importlib

from d2lite import _memory as memory
from d2lite.collectives.on_devices import all_gather, all_reduce, all_reduce_by, broadcast, reduce, reduce_scatter
from d2lite.collectives.on_ranks import all_reduce_on_ranks
from d2lite.data.fashion_mnist import load_data_fashion_mnist, quick
from d2lite.devices import describe, num_cores, num_gpus, synchronize, try_all_gpus, try_gpu, try_gpus
from d2lite.events import Diverged, Stopped
from d2lite.meters import Accumulator, Timer
from d2lite.models import LeNet, SimpleCNN, lenet, lenet_params, resnet18
from d2lite.trace import Trace
from d2lite.training.concise import init_all, train_concise
from d2lite.training.data_parallel import DataParallel, wrap
from d2lite.training.evaluation import evaluate_accuracy, evaluate_accuracy_gpus
from d2lite.training.from_scratch import forward_backward, sgd, train, train_batch
from d2lite.training.run import Run
from d2lite.training.sharding import parallel_apply, replicate, split_batch
from d2lite.workers.pool import Workers, WorkersError

__version__ = "0.1.0"

memory.keep()  # before anything is timed

# what shows things needs plotly or ipywidgets: loaded at first use
_SHOWN = {
    "Animator": "d2lite.widgets.animator",
    "FaultLab": "d2lite.widgets.fault_lab",
    "Panel": "d2lite.widgets.panel",
    "ScalingExplorer": "d2lite.widgets.scaling_explorer",
    "Stepper": "d2lite.widgets.collective_stepper",
    "figures": None,
}

__all__ = [
    "Accumulator",
    "Animator",
    "DataParallel",
    "Diverged",
    "FaultLab",
    "LeNet",
    "Panel",
    "Run",
    "ScalingExplorer",
    "SimpleCNN",
    "Stepper",
    "Stopped",
    "Timer",
    "Trace",
    "Workers",
    "WorkersError",
    "all_gather",
    "all_reduce",
    "all_reduce_by",
    "all_reduce_on_ranks",
    "broadcast",
    "describe",
    "evaluate_accuracy",
    "evaluate_accuracy_gpus",
    "figures",
    "forward_backward",
    "init_all",
    "lenet",
    "lenet_params",
    "load_data_fashion_mnist",
    "num_cores",
    "num_gpus",
    "parallel_apply",
    "quick",
    "reduce",
    "reduce_scatter",
    "replicate",
    "resnet18",
    "sgd",
    "split_batch",
    "synchronize",
    "train",
    "train_batch",
    "train_concise",
    "try_all_gpus",
    "try_gpu",
    "try_gpus",
    "wrap",
]


def __getattr__(name):
    if name not in _SHOWN:
        raise AttributeError(f"module 'd2lite' has no attribute {name!r}")
    if _SHOWN[name] is None:
        return importlib.import_module(f"d2lite.{name}")
    return getattr(importlib.import_module(_SHOWN[name]), name)


def __dir__():
    return sorted([*globals(), *_SHOWN])
