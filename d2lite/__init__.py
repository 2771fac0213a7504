"""d2lite: multi-GPU training in PyTorch that anyone can see, run and break, with or without GPUs."""

import importlib

from d2lite.collectives import all_reduce
from d2lite.concise import init_all, train_concise
from d2lite.data import load_data_fashion_mnist, quick
from d2lite.data_parallel import forward_backward, sgd, train, train_batch
from d2lite.devices import describe, num_cores, num_gpus, synchronize, try_all_gpus, try_gpu, try_gpus
from d2lite.evaluation import evaluate_accuracy, evaluate_accuracy_gpus
from d2lite.meters import Accumulator, Timer
from d2lite.models import LeNet, SimpleCNN, lenet, lenet_params, resnet18
from d2lite.replicas import DataParallel, wrap
from d2lite.runs import Run
from d2lite.sharding import parallel_apply, replicate, split_batch
from d2lite.watch import Diverged, Stopped

__version__ = "0.1.0"

# what shows things needs plotly or ipywidgets: loaded at first use
_SHOWN = {"Animator": "d2lite.animator", "Panel": "d2lite.panel", "figures": None}

__all__ = [
    "Accumulator",
    "Animator",
    "DataParallel",
    "Diverged",
    "LeNet",
    "Panel",
    "Run",
    "SimpleCNN",
    "Stopped",
    "Timer",
    "all_reduce",
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
