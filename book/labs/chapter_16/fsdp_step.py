"""One step of a transformer under FSDP alone: its seconds, predicted.

Nothing here is measured. Layers are gathered and gradients are reduced beside the computation, one layer ahead.
"""

from dataclasses import dataclass

from d2lite.costs.alpha_beta import Cluster, Device, Link, all_reduce_seconds, as_cluster
from notebook_ranks.shared.checks import instance_of, positive_int

from ..chapter_13.fsdp_memory import GATHERED, REDUCED, predict_fsdp_memory
from ..chapter_13.memory import MemoryModel
from .mesh_step import Mesh, group_link, microbatches_per_replica
from .predicted_step import PredictedStep

__all__ = ["FsdpStep", "predict_fsdp_step", "tokens_that_hide"]


@dataclass(frozen=True, kw_only=True)
class FsdpStep(PredictedStep):
    """One predicted step under FSDP: its time in seconds, and what a rank holds.

    A rank computes for `compute_s`, and waits for `exposed_s` for layers that are gathered and gradients that are
    reduced: of `communication_s` the part that the computation does not hide.
    """

    num_ranks: int
    compute_s: float
    communication_s: float
    exposed_s: float
    tokens_per_gpu: int
    num_microbatches: int

    @property
    def seconds(self) -> float:
        """The time of the step."""
        return self.compute_s + self.exposed_s


def predict_fsdp_step(
    model: MemoryModel,
    num_ranks: int,
    batch_size: int,
    device: Device,
    cluster: Cluster | Link,
    *,
    replicas: int = 1,
    microbatch: int = 1,
    checkpointing: bool | str = False,
) -> FsdpStep:
    """Return the FsdpStep of one step of training with Adam, with parts in 32 bits and 16 bits to compute with.

    Assumed: one layer is gathered while the one before it computes, and the gradient of a layer is reduced while the
    layers below it compute their own; parameters are gathered in 16 bits, before the forward pass and again before the
    backward pass of each microbatch, and gradients are reduced in 32 bits, once for each microbatch; a ring sends them,
    by all ports of a host. The optimizer's own time and the products inside of attention are left out.

    Args:
        model: The sizes of the transformer.
        num_ranks: How many GPUs there are.
        batch_size: Pieces of text in the minibatch of all ranks, each as long as the model's context.
        device: How fast each rank computes.
        cluster: The links: a Cluster of hosts, or a Link if all ranks are in one host.
        replicas: With more than one, each group of num_ranks / replicas neighbours shards the network, and gradients
            are summed over the groups besides. PyTorch calls this hybrid sharding (HSDP).
        microbatch: Pieces of text that a rank computes with at a time.
        checkpointing: As for `transformer_activations`.

    Raises:
        ValueError: If the minibatch gives no whole number of microbatches to each rank, `replicas` does not divide
            `num_ranks`, or a number is out of range.
        TypeError: If an argument has another type.

    Example:
        >>> from d2lite.costs import Device, Link
        >>> from d2lite.labs.chapter_13 import MEMORY_MODELS
        >>> llama = next(model for model in MEMORY_MODELS if model.name.startswith("Llama 2"))
        >>> step = predict_fsdp_step(llama, 8, 8, Device(4e14), Link(1e-5, 3.5e11))
        >>> round(step.compute_s, 3), round(step.exposed_s, 3)
        (0.414, 0.004)
    """
    num_ranks, replicas = positive_int("num_ranks", num_ranks), positive_int("replicas", replicas)
    if num_ranks % replicas:
        raise ValueError(f"replicas: expected a number that divides the {num_ranks} ranks, got {replicas}.")
    m = microbatches_per_replica(model, Mesh(data=num_ranks), batch_size, microbatch)
    instance_of("device", device, Device)
    cluster, k = as_cluster(cluster), num_ranks // replicas
    mesh = Mesh(data=replicas, tensor=k)  # here: groups that shard are neighbours
    inside, across = group_link(cluster, mesh, k, 1), group_link(cluster, mesh, replicas, k)
    tokens = microbatch * model.context
    per_layer = model.num_params / (model.num_blocks + 1)  # embedding and head together count as one more layer
    gather_s = all_reduce_seconds("ring", k, GATHERED * per_layer, inside) / 2
    reduce_s = all_reduce_seconds("ring", k, REDUCED * per_layer, inside) / 2
    reduce_s += all_reduce_seconds("ring", replicas, REDUCED * per_layer / k, across)
    forward_s = 2 * per_layer * tokens / device.flops_per_s
    backward_s = (3 if checkpointing is True else 2) * forward_s
    layers = model.num_blocks + 1
    pass_s = gather_s + (layers - 1) * max(forward_s, gather_s) + forward_s
    pass_s += gather_s + (layers - 1) * max(backward_s, gather_s + reduce_s) + backward_s + reduce_s
    compute_s = m * layers * (forward_s + backward_s)
    return FsdpStep(
        num_ranks=num_ranks,
        compute_s=compute_s + device.overhead_s,
        communication_s=m * layers * (2 * gather_s + reduce_s),
        exposed_s=m * pass_s - compute_s,
        tokens_per_gpu=m * tokens,
        num_microbatches=m,
        memory=predict_fsdp_memory(model, k, microbatch=microbatch, checkpointing=checkpointing),
        model_flops_per_gpu=6 * model.num_params * m * tokens,
    )


def tokens_that_hide(device: Device, link: Link, k: int = 0, backward: bool = True) -> float:
    """Return how many tokens a rank must compute with at a time so that FSDP's messages take no longer.

    The forward pass computes 2 operations per parameter and token, and gathers 2 bytes per parameter. The backward pass
    computes 4, and gathers 2 bytes and reduces 4: it needs half as many tokens more. Latency is left out, and so is the
    factor (k - 1)/k unless `k` is given. The scaling book (Austin et al. 2025, jax-ml.github.io/scaling-book/training)
    has the rule for gradients of 16 bits.

    Example:
        >>> from d2lite.costs import Device, Link
        >>> tokens_that_hide(Device(4e14), Link(0.0, 5e10))
        12000.0
    """
    instance_of("device", device, Device)
    instance_of("link", link, Link)
    share = (k - 1) / positive_int("k", k) if k else 1.0
    bytes_per_flop = (GATHERED + REDUCED) / 4 if backward else GATHERED / 2
    return share * bytes_per_flop * device.flops_per_s / link.bandwidth_bytes_per_s
