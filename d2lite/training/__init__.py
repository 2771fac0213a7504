"""The loops that a learner reads, and the Run that each of them fills."""

from d2lite.training.comparison import OPTIMIZERS, Arm, Trial, differences, run_arms, train_arm, train_until_spent
from d2lite.training.concise import train_concise
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
from d2lite.training.learning_rate import RULES, scaled_lr, warm_up
from d2lite.training.model_parallel import ModelParallel, check_stages, describe_stages, train_model_parallel
from d2lite.training.noise_scale import GradientNorms, NoiseScale, gradient_norms, noise_scale
from d2lite.training.replicate import replicate
from d2lite.training.run_record import Run, as_json, legends, save
from d2lite.training.scatter import check_batch, gather, scatter, split_batch
from d2lite.training.sync_batchnorm import (
    SyncBatchNorm,
    convert_sync_batchnorm,
    gradient_over_ranks,
    moments_over_ranks,
    sum_over_ranks,
)
from d2lite.training.warm_start import KEPT, start_net

__all__ = [
    "Arm",
    "DataParallel",
    "GradientNorms",
    "KEPT",
    "ModelParallel",
    "NoiseScale",
    "OPTIMIZERS",
    "RULES",
    "Run",
    "SyncBatchNorm",
    "Trial",
    "accuracy_of",
    "as_json",
    "check_batch",
    "check_stages",
    "convert_sync_batchnorm",
    "ddp_step",
    "describe_stages",
    "differences",
    "evaluate_accuracy",
    "evaluate_accuracy_gpus",
    "evaluate_accuracy_ranks",
    "evaluating",
    "exit_rank",
    "forward_backward",
    "gather",
    "gradient_norms",
    "gradient_over_ranks",
    "legends",
    "load_checkpoint",
    "mean_over_ranks",
    "moments_over_ranks",
    "my_device",
    "my_shard",
    "noise_scale",
    "num_correct",
    "replicas_of",
    "replicate",
    "run_arms",
    "save",
    "save_checkpoint",
    "scaled_lr",
    "scatter",
    "sgd_step",
    "split_batch",
    "start_net",
    "sum_over_ranks",
    "train",
    "train_arm",
    "train_batch",
    "train_concise",
    "train_ddp",
    "train_model_parallel",
    "train_until_spent",
    "warm_up",
    "wrap",
]
