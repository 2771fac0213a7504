"""d2lite: multi-GPU training in PyTorch that anyone can see, run and break, with or without GPUs."""

import importlib

from d2lite import memory
from d2lite.collectives import all_gather, all_reduce, all_reduce_by, broadcast, reduce, reduce_scatter
from d2lite.concise import init_all, train_concise
from d2lite.data import load_data_fashion_mnist, quick
from d2lite.data_parallel import forward_backward, sgd, train, train_batch
from d2lite.devices import describe, num_cores, num_gpus, synchronize, try_all_gpus, try_gpu, try_gpus
from d2lite.evaluation import evaluate_accuracy, evaluate_accuracy_gpus
from d2lite.meters import Accumulator, Timer
from d2lite.models import LeNet, SimpleCNN, lenet, lenet_params, resnet18
from d2lite.rank_collectives import all_reduce_on_ranks
from d2lite.replicas import DataParallel, wrap
from d2lite.runs import Run
from d2lite.sharding import parallel_apply, replicate, split_batch
from d2lite.trace import Trace
from d2lite.watch import Diverged, Stopped
from d2lite.workers import Workers, WorkersError

__version__ = "0.1.0"

memory.keep()  # before anything is timed

# what shows things needs plotly or ipywidgets: loaded at first use
_SHOWN = {
    "Animator": "d2lite.animator",
    "FaultLab": "d2lite.fault_lab",
    "Panel": "d2lite.panel",
    "ScalingExplorer": "d2lite.scaling_explorer",
    "Stepper": "d2lite.stepper",
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
