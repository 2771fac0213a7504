"""The cost model: what links, devices, steps and scaling are predicted to cost, in closed form."""

from d2lite.costs.alpha_beta import COST_FORMULAS, Cluster, Device, Link, all_reduce_seconds, messages_seconds
from d2lite.costs.hardware import DEVICES, LINKS, find_device, find_link
from d2lite.costs.memory import (
    MEMORY_MODELS,
    OPTIMIZER_NUMBERS,
    PRECISIONS,
    MemoryModel,
    MemoryPrediction,
    predict_memory,
    transformer_activations,
)
from d2lite.costs.mesh_search import fastest_mesh, possible_meshes, why_slower
from d2lite.costs.mesh_step import Mesh, MeshStep, predict_mesh_step
from d2lite.costs.partitioning import all_ways, bytes_sent, layers_of, messages, stages
from d2lite.costs.pipeline_schedule import (
    PASS_KINDS,
    Pass,
    check_schedule,
    gpipe,
    needs,
    one_f_one_b,
    parse_passes,
    pass_order,
)
from d2lite.costs.pipeline_search import shortest_step
from d2lite.costs.pipeline_step import bubble_formula, bubble_of, microbatches_held, predict_pipeline
from d2lite.costs.prediction_card import (
    CardVerdict,
    Measured,
    PredictionCard,
    card_from_json,
    card_of_step,
    compare_with_measured,
    measured_from_json,
)
from d2lite.costs.scaling import (
    ScalingPrediction,
    Setup,
    crossover,
    crossover_batch_size,
    predict_scaling,
    strong_scaling,
    weak_scaling,
)
from d2lite.costs.step import (
    DDP_BUCKETS,
    StepPrediction,
    predict_step,
)
from d2lite.costs.stragglers import maximum_of_sample, normal_wait
from d2lite.costs.torch_schedules import TORCH_SCHEDULES, torch_held, torch_schedule
from d2lite.costs.workloads import NETWORKS, Workload, named_workload, workload

__all__ = [
    "COST_FORMULAS",
    "CardVerdict",
    "Cluster",
    "DDP_BUCKETS",
    "DEVICES",
    "Device",
    "LINKS",
    "Link",
    "MEMORY_MODELS",
    "Measured",
    "MemoryModel",
    "MemoryPrediction",
    "Mesh",
    "MeshStep",
    "NETWORKS",
    "OPTIMIZER_NUMBERS",
    "PASS_KINDS",
    "PRECISIONS",
    "Pass",
    "PredictionCard",
    "ScalingPrediction",
    "Setup",
    "StepPrediction",
    "TORCH_SCHEDULES",
    "Workload",
    "all_reduce_seconds",
    "all_ways",
    "bubble_formula",
    "bubble_of",
    "bytes_sent",
    "card_from_json",
    "card_of_step",
    "check_schedule",
    "compare_with_measured",
    "crossover",
    "crossover_batch_size",
    "fastest_mesh",
    "find_device",
    "find_link",
    "gpipe",
    "layers_of",
    "maximum_of_sample",
    "measured_from_json",
    "messages",
    "messages_seconds",
    "microbatches_held",
    "named_workload",
    "needs",
    "normal_wait",
    "one_f_one_b",
    "parse_passes",
    "pass_order",
    "possible_meshes",
    "predict_memory",
    "predict_mesh_step",
    "predict_pipeline",
    "predict_scaling",
    "predict_step",
    "shortest_step",
    "stages",
    "strong_scaling",
    "torch_held",
    "torch_schedule",
    "transformer_activations",
    "weak_scaling",
    "why_slower",
    "workload",
]
