"""The loops that a learner reads, and the Run that each of them fills."""

from typing import TYPE_CHECKING

# both at once: each file has its function's name (see lazy_names)
from d2lite.training.replicate import replicate
from d2lite.training.scatter import scatter
from notebook_ranks.shared.lazy_names import lazy_names

if TYPE_CHECKING:
    from d2lite.training.concise import train_concise
    from d2lite.training.data_parallel import DataParallel, wrap
    from d2lite.training.ddp import (
        ddp_step,
        describe_ranks,
        evaluate_accuracy_ranks,
        exit_rank,
        load_checkpoint,
        mean_over_ranks,
        my_device,
        my_shard,
        save_checkpoint,
        train_ddp,
    )
    from d2lite.training.evaluation import (
        accuracy_of,
        evaluate_accuracy,
        evaluate_accuracy_gpus,
        evaluating,
        num_correct,
        replicas_of,
    )
    from d2lite.training.from_scratch import forward_backward, sgd_step, train, train_batch
    from d2lite.training.run_record import Run, as_json, legends, save
    from d2lite.training.scatter import check_batch, gather, split_batch

__all__, __getattr__, __dir__ = lazy_names(__name__)
