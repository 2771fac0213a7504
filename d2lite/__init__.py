"""d2lite: multi-GPU training in PyTorch that anyone can see, run and break, with or without GPUs.

Each name is loaded when it is first used: `import d2lite` alone loads neither PyTorch nor a plotting package.
"""

import gc
import importlib
from types import ModuleType
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from d2lite._format import format_bytes
    from d2lite._quick import quick
    from d2lite.book import book_module, book_root, copy_book, show_script
    from d2lite.collectives import all_gather, all_reduce, all_reduce_on_ranks, broadcast, reduce, reduce_scatter
    from d2lite.data import load_data_book_text, load_data_fashion_mnist
    from d2lite.devices import (
        MAX_REPLICAS,
        check_devices,
        describe,
        num_cores,
        num_gpus,
        synchronize,
        try_all_gpus,
        try_gpu,
        try_gpus,
    )
    from d2lite.learner_ledger import read_ledger
    from d2lite.meters import Accumulator, Timer
    from d2lite.models import LeNet, SimpleCNN, init_all, lenet, lenet_params, resnet18
    from d2lite.replica_threads import one_intra_op_thread, parallel_apply
    from d2lite.run_events import Diverged, Stopped, emit, listening
    from d2lite.trace import Event, Send, Trace
    from d2lite.training import (
        DataParallel,
        Run,
        evaluate_accuracy,
        evaluate_accuracy_gpus,
        forward_backward,
        sgd_step,
        split_batch,
        train,
        train_batch,
        train_concise,
        wrap,
    )
    from d2lite.training.replicate import replicate
    from d2lite.training.scatter import scatter
    from d2lite.transformer import MLP, Transformer
    from d2lite.workers import Workers, WorkersError

__version__ = "0.1.0"

__all__ = [
    "MAX_REPLICAS",
    "MLP",
    "Accumulator",
    "Animator",
    "CollectiveStepper",
    "DataParallel",
    "Diverged",
    "Event",
    "FaultLab",
    "LeNet",
    "Panel",
    "PartitionExplorer",
    "Predict",
    "Run",
    "ScalingExplorer",
    "Send",
    "SimpleCNN",
    "Stopped",
    "Timer",
    "Trace",
    "Transformer",
    "Whodunit",
    "Workers",
    "WorkersError",
    "all_gather",
    "all_reduce",
    "all_reduce_on_ranks",
    "book_module",
    "book_root",
    "broadcast",
    "check",
    "check_devices",
    "check_replicas",
    "check_step",
    "copy_book",
    "d2l",
    "describe",
    "emit",
    "evaluate_accuracy",
    "evaluate_accuracy_gpus",
    "figures",
    "format_bytes",
    "forward_backward",
    "init_all",
    "lenet",
    "lenet_params",
    "listening",
    "load_data_book_text",
    "load_data_fashion_mnist",
    "num_cores",
    "num_gpus",
    "one_intra_op_thread",
    "parallel_apply",
    "quick",
    "read_ledger",
    "reduce",
    "reduce_scatter",
    "replicate",
    "resnet18",
    "scatter",
    "sgd_step",
    "show_script",
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

# what each module or room gives; all of it is loaded later
_ROOM = {
    "_format": "format_bytes",
    "_quick": "quick",
    "book": "book_module book_root copy_book show_script",
    "bugs": "check_replicas check_step",
    "collectives": "all_gather all_reduce all_reduce_on_ranks broadcast reduce reduce_scatter",
    "data": "load_data_book_text load_data_fashion_mnist",
    "devices": "MAX_REPLICAS check_devices describe num_cores num_gpus synchronize try_all_gpus try_gpu try_gpus",
    "exercises": "check",
    "learner_ledger": "read_ledger",
    "meters": "Accumulator Timer",
    "models": "LeNet SimpleCNN init_all lenet lenet_params resnet18",
    "replica_threads": "one_intra_op_thread parallel_apply",
    "run_events": "Diverged Stopped emit listening",
    "trace": "Event Send Trace",
    "training": (
        "DataParallel Run evaluate_accuracy evaluate_accuracy_gpus forward_backward replicate scatter sgd_step "
        "split_batch train train_batch train_concise wrap"
    ),
    "transformer": "MLP Transformer",
    "widgets": "Animator CollectiveStepper FaultLab Panel PartitionExplorer Predict ScalingExplorer Whodunit",
    "workers": "Workers WorkersError",
}
_WHERE = {name: module for module, names in _ROOM.items() for name in names.split()}
_MODULES = (
    "book bugs collectives costs course d2l data devices exercises figures learner_ledger meters models "
    "pretend_gpus profiling rehearsal replica_threads run_events trace training transformer widgets workers"
).split()


def _load(module: str) -> ModuleType:
    """Import a module, without Python's garbage collector, which takes a sixth of the time of `import torch`."""
    is_on = gc.isenabled()
    gc.disable()
    try:
        return importlib.import_module(f"d2lite.{module}")
    finally:
        if is_on:
            gc.enable()


def __getattr__(name: str) -> Any:
    if name in _WHERE:
        return getattr(_load(_WHERE[name]), name)
    if name in _MODULES:
        return _load(name)
    raise AttributeError(f"module 'd2lite' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *_WHERE, *_MODULES})
