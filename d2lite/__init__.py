"""d2lite: multi-GPU training in PyTorch that anyone can see, run and break, with or without GPUs.

Each name is loaded when it is first used: `import d2lite` alone loads neither PyTorch nor a plotting package.
"""

import os
from typing import TYPE_CHECKING

from d2lite._install import missing
from d2lite._version import __version__
from notebook_ranks.shared.lazy_names import lazy_names
from notebook_ranks.shared.own_code import not_own

if TYPE_CHECKING:
    from d2lite import collectives, costs, data, exercises, figures, labs, profiling, training, widgets
    from d2lite._quick import quick
    from d2lite.book import book_module, book_root, copy_book, show_script
    from d2lite.collectives import all_gather, all_reduce, broadcast, reduce, reduce_scatter
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
    from d2lite.exercises import check

    # defined in the labs of the book, which may import d2lite but not the reverse: here only a name is passed on
    from d2lite.labs.chapter_03 import d2l  # type: ignore[import-not-found]
    from d2lite.labs.chapter_11 import check_replicas, check_step  # type: ignore[import-not-found]
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
        replicate,
        scatter,
        sgd_step,
        split_batch,
        train,
        train_batch,
        train_concise,
        wrap,
    )
    from d2lite.transformer import MLP, Transformer
    from d2lite.widgets import Animator, Panel, Predict
    from d2lite.workers import Workers, WorkersError, warn_without_ranks
    from notebook_ranks.shared.format import format_bytes

__all__, __getattr__, __dir__ = lazy_names(__name__, missing)
not_own(os.path.dirname(os.path.abspath(__file__)))
