"""The loops that a learner reads, and the Run that each of them fills."""

from d2lite.training.concise import init_all, train_concise
from d2lite.training.data_parallel import DataParallel, wrap
from d2lite.training.ddp import (
    ddp_step,
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
from d2lite.training.model_parallel import ModelParallel, check_stages, describe_stages, train_model_parallel
from d2lite.training.run import Run, as_json, legends, save
from d2lite.training.sharding import check_batch, gather, replicate, scatter, split_batch

__all__ = [
    "DataParallel",
    "ModelParallel",
    "Run",
    "accuracy_of",
    "as_json",
    "check_batch",
    "check_stages",
    "ddp_step",
    "describe_stages",
    "evaluate_accuracy",
    "evaluate_accuracy_gpus",
    "evaluate_accuracy_ranks",
    "evaluating",
    "exit_rank",
    "forward_backward",
    "gather",
    "init_all",
    "legends",
    "load_checkpoint",
    "mean_over_ranks",
    "my_device",
    "my_shard",
    "num_correct",
    "replicas_of",
    "replicate",
    "save",
    "save_checkpoint",
    "scatter",
    "sgd_step",
    "split_batch",
    "train",
    "train_batch",
    "train_concise",
    "train_ddp",
    "train_model_parallel",
    "wrap",
]
