"""One step of a transformer on a mesh of ranks: pipeline, data and tensor parallelism together, predicted.

Nothing here is measured. The time is a sum of four terms, each in closed form with its source at the line.
"""

from collections import Counter
from dataclasses import dataclass, replace
from functools import partial
from math import lcm

from d2lite.costs.alpha_beta import Cluster, Device, Link, all_reduce_seconds, as_cluster, lower_bound_n_bytes
from notebook_ranks.shared.checks import instance_of, positive_int, true_or_false, whole_number

from ..chapter_13.memory import LOSS_N_BYTES, MemoryModel, predict_memory, transformer_activations
from .predicted_step import PredictedStep

__all__ = ["Mesh", "MeshStep", "bubble_parts", "group_link", "microbatches_per_replica", "predict_mesh_step"]

_N_BYTES = 2  # of a 16-bit number


@dataclass(frozen=True)
class Mesh:
    """Ranks in three dimensions: stages of a pipeline, replicas (data), and parts of each layer (tensor).

    Ranks are numbered row by row, as in `init_device_mesh("cpu", mesh.shape)`: ranks of a tensor group are neighbours,
    then comes data, then pipe. Raises ValueError for a number below 1, and TypeError for what is no whole number.

    Example:
        >>> mesh = Mesh(pipe=2, data=4, tensor=8)
        >>> print(mesh, "=", mesh.num_ranks)
        2 x 4 x 8 = 64
    """

    pipe: int = 1
    data: int = 1
    tensor: int = 1

    def __post_init__(self) -> None:
        for name in ("pipe", "data", "tensor"):
            positive_int(name, getattr(self, name))

    @property
    def shape(self) -> tuple[int, int, int]:
        """(pipe, data, tensor)."""
        return self.pipe, self.data, self.tensor

    @property
    def num_ranks(self) -> int:
        """How many ranks the mesh has."""
        return self.pipe * self.data * self.tensor

    def __str__(self) -> str:
        return " x ".join(map(str, self.shape))


@dataclass(frozen=True, kw_only=True)
class MeshStep(PredictedStep):
    """One predicted step on a mesh: its time in seconds, in four terms, and what one rank sends and holds.

    A rank computes for `compute_s`. It waits for `tensor_s` in the all-reduces of tensor parallelism, for `bubble_s`
    while the pipeline fills and empties, and for `data_s` in the all-reduce of gradients; with ZeRO stage 1 this is a
    reduce-scatter of gradients and an all-gather of parameters. `sent_n_bytes` has the bytes that a rank in the middle
    of the mesh sends in a step, by dimension: "tensor", "pipe", "data". `links` has the link that each dimension uses;
    where a group uses several ports to the network, its bandwidth counts all of them. A replica has `num_microbatches`
    of `microbatch` pieces of text.
    """

    mesh: Mesh
    compute_s: float
    tensor_s: float
    bubble_s: float
    data_s: float
    microbatch: int
    num_microbatches: int
    stages_per_rank: int
    sent_n_bytes: dict[str, float]
    links: dict[str, Link]

    @property
    def seconds(self) -> float:
        """The time of the step: the sum of the four terms."""
        return self.compute_s + self.tensor_s + self.bubble_s + self.data_s


def predict_mesh_step(
    model: MemoryModel,
    mesh: Mesh,
    batch_size: int,
    device: Device,
    cluster: Cluster | Link,
    *,
    microbatch: int = 1,
    stages_per_rank: int = 1,
    overlap: bool = True,
    stage: int = 1,
    checkpointing: bool = False,
    keep_scores: bool = False,
    precision: str = "mixed",
) -> MeshStep:
    """Return the MeshStep of one step of training with Adam in mixed precision, on all ranks of a mesh.

    Assumed: all ranks compute equally long (blocks, embedding and output head are divided evenly among the stages);
    each GPU has a port of its own to the network, as in hosts with 8 H100 and 8 network cards, and a group with several
    ranks in each host uses all of their ports, up to the speed inside of a host; sums are rings; tensor parallelism
    comes with sequence parallelism, which divides all activations and sends as many bytes as the all-reduces; numbers
    and gradients that are sent have 16 bits; messages between stages run beside the computation; the schedule is 1F1B,
    interleaved if `stages_per_rank` is above 1. The optimizer's own time and the products inside of attention are left
    out.

    Args:
        model: The sizes of the transformer.
        mesh: The ranks.
        batch_size: Pieces of text in the minibatch of all ranks, each as long as the model's context.
        device: How fast each rank computes.
        cluster: The links: a Cluster of hosts, or a Link if all ranks are in one host. Groups that lie in one host
            each use the link inside of it, others the link from host to host. Messages between stages use the link from
            host to host if there are several hosts.
        microbatch: Pieces of text that go through a stage at a time.
        stages_per_rank: Stages of the pipeline on each rank.
        overlap: Whether gradients are summed during the backward pass of the last microbatch, or after it.
        stage: The stage of ZeRO, 0 or 1: 1 divides the optimizer's state among the replicas, and parameters are
            gathered after the update, beside no computation. The other stages send at each microbatch, which is not
            counted here.
        checkpointing: Whether the backward pass computes the activations of a block again, from the block's input.
            All-reduces that come a second time with it are not counted.
        keep_scores: Whether a block keeps the weights of its attention, which FlashAttention does not; see
            `transformer_activations`.
        precision: "mixed" or "mixed, gradients in 32 bits", of what a rank holds; numbers that are sent have 16 bits.

    Raises:
        ValueError: If the minibatch gives no whole number of microbatches to each replica, the heads cannot be divided
            by `mesh.tensor`, there are more stages than layers (blocks, embedding, head), several stages per rank have
            fewer microbatches than the pipeline has ranks, or a number is out of range.
        TypeError: If an argument has another type.

    Example:
        >>> sizes = {"width": 2048, "num_blocks": 24, "num_heads": 16, "context": 1024, "num_characters": 50_000}
        >>> model = MemoryModel("small", num_params=1e9, source="", **sizes)
        >>> step = predict_mesh_step(model, Mesh(tensor=4), 8, Device(1e14), Link(5e-6, 1e11))
        >>> step.num_microbatches, round(step.compute_s, 3), round(step.tensor_s, 3), f"{step.tflops_per_gpu:.0f}"
        (8, 0.123, 0.071, '63')
    """
    m = microbatches_per_replica(model, mesh, batch_size, microbatch, stages_per_rank)
    instance_of("device", device, Device)
    cluster = as_cluster(cluster)
    true_or_false("overlap", overlap)
    whole_number("stage", stage, 0, 1, "Stages 2 and 3 send at each microbatch, which is not counted here.")
    p, d, k = mesh.shape
    blocks, params = model.num_blocks / p, model.num_params / (p * k)
    links = {"tensor": group_link(cluster, mesh, k, 1), "data": group_link(cluster, mesh, d, k)}
    # a message from one rank to one other leaves through one port
    links["pipe"] = cluster.between if cluster.host(mesh.num_ranks - 1) > 0 else cluster.inside
    model_flops = 6 * model.num_params * batch_size * model.context / mesh.num_ranks  # forward 2, backward 4
    again = 4 / 3 if true_or_false("checkpointing", checkpointing) else 1.0  # a second forward pass: 8 in place of 6
    arithmetic_s = again * model_flops / device.flops_per_s
    activation = microbatch * model.context * model.width * _N_BYTES  # what a block hands to the next one
    # forward and backward, one sum after attention and one after the MLP (Shoeybi et al. 2019, arXiv:1909.08053)
    sums = m * 4 * blocks
    tensor_s = sums * all_reduce_seconds("ring", k, activation, links["tensor"])
    idle, first_and_last_s = bubble_parts(p, m, stages_per_rank, activation / k, links["pipe"])
    bubble_s = idle * (arithmetic_s + tensor_s) + first_and_last_s
    data_s = all_reduce_seconds("ring", d, _N_BYTES * params, links["data"])
    if overlap:
        # the last backward pass hides an all-reduce, and of ZeRO's two halves the first; the second one, the all-gather
        # of parameters, comes after the update
        after_s = data_s / 2 if stage else 0.0
        data_s = after_s + max(0.0, data_s - after_s - (1 - 1 / 3 / again) * arithmetic_s / m)
    sent = {
        "tensor": sums * lower_bound_n_bytes(k, activation),
        "pipe": 2.0 * m * stages_per_rank * activation / k if p > 1 else 0.0,
        "data": lower_bound_n_bytes(d, _N_BYTES * params),
    }
    of_a_microbatch = partial(
        transformer_activations,
        *(microbatch, model.context, model.width),
        num_heads=model.num_heads,
        num_characters=model.num_characters,
        bytes_per_number=_N_BYTES,
        keep_scores=keep_scores,
    )
    kept = of_a_microbatch(num_blocks=model.num_blocks, checkpointing=checkpointing)
    # with checkpointing the block that is computed again is there once, for any number of microbatches and stages
    block = of_a_microbatch(num_blocks=2) - of_a_microbatch(num_blocks=1) if checkpointing else 0.0
    # 1F1B holds a microbatch per stage; interleaved stages: Korthikanti et al. 2022 (arXiv:2205.05198), 4.2.3
    held = min(m, p + ((p - 1) / stages_per_rank if stages_per_rank > 1 else 0))
    kept = (held * (kept - block) / p + block) / k
    # logits of one microbatch, on the last stage, divided among the ranks of `tensor`; `kept` has them in 16 bits
    loss = (LOSS_N_BYTES - _N_BYTES) * microbatch * model.context * model.num_characters / k
    memory = replace(predict_memory(params, "Adam", precision, stage, d, kept), loss_n_bytes=loss)
    return MeshStep(
        mesh=mesh,
        compute_s=arithmetic_s + device.overhead_s,
        tensor_s=tensor_s,
        bubble_s=bubble_s,
        data_s=data_s,
        microbatch=microbatch,
        num_microbatches=m,
        stages_per_rank=stages_per_rank,
        sent_n_bytes=sent,
        links=links,
        memory=memory,
        model_flops_per_gpu=model_flops,
    )


def bubble_parts(
    num_ranks: int, num_microbatches: int, stages_per_rank: int, message_n_bytes: float, link: Link
) -> tuple[float, float]:
    """Return (how many times as long as their passes ranks are idle, the seconds of the messages that they wait for).

    The first activations and the last gradient are waited for; all others are sent beside the computation. Huang et al.
    2019 (arXiv:1811.06965); with several stages per rank Narayanan et al. 2021 (arXiv:2104.04473), 2.2.
    """
    idle = (num_ranks - 1) / (num_microbatches * stages_per_rank)
    return idle, 2 * (num_ranks - 1) * link.seconds(message_n_bytes)


def microbatches_per_replica(
    model: MemoryModel, mesh: Mesh, batch_size: int, microbatch: int = 1, stages_per_rank: int = 1
) -> int:
    """Return how many microbatches go through each replica in a step, if the mesh can train this model.

    Raises ValueError or TypeError as `predict_mesh_step` does.
    """
    instance_of("model", model, MemoryModel)
    instance_of("mesh", mesh, Mesh)
    batch_size, microbatch = positive_int("batch_size", batch_size), positive_int("microbatch", microbatch)
    stages = mesh.pipe * positive_int("stages_per_rank", stages_per_rank)
    if batch_size % (mesh.data * microbatch):
        raise ValueError(
            f"batch_size: expected a multiple of {mesh.data * microbatch} (data {mesh.data} times microbatch "
            f"{microbatch}), got {batch_size}. Each replica gets whole microbatches."
        )
    if model.num_heads % mesh.tensor:
        raise ValueError(
            f"mesh: expected a tensor that divides the {model.num_heads} heads of {model.name}, got {mesh.tensor}. "
            "A rank computes whole heads."
        )
    if stages > model.num_blocks + 2:
        raise ValueError(
            f"mesh: expected at most {model.num_blocks + 2} stages for {model.name} ({model.num_blocks} blocks, an "
            f"embedding, a head), got {stages}. Each stage has a layer."
        )
    num_microbatches = batch_size // (mesh.data * microbatch)
    if stages_per_rank > 1 and num_microbatches < mesh.pipe:
        raise ValueError(
            f"stages_per_rank: expected 1 with {num_microbatches} microbatches on {mesh.pipe} ranks of a pipeline, got "
            f"{stages_per_rank}. Interleaved stages need at least as many microbatches as ranks."
        )
    return num_microbatches


def group_link(cluster: Cluster, mesh: Mesh, size: int, stride: int) -> Link:
    """Return the link for the rings of groups of `size` ranks, each `stride` from the next; the slowest group counts.

    Each GPU has a port to the network. A ring can be cut into as many rings as the group has ranks in each host, one
    for each of their ports. The host with the fewest ranks of the group limits their number. Rings with several ranks
    in a host are no faster than the link inside of it.
    """
    span = size * stride
    period = min(mesh.num_ranks, lcm(span, cluster.per_host or 1))  # after it, groups lie in hosts as from rank 0 on
    groups = (range(start + i, start + span, stride) for start in range(0, period, span) for i in range(stride))
    hosts = [Counter(map(cluster.host, group)) for group in groups]  # of each group: host -> how many ranks
    fewest = [min(ranks.values()) for ranks in hosts if len(ranks) > 1]
    if not fewest:
        return cluster.inside
    link, inside = cluster.between, cluster.inside
    latency_s, bandwidth = link.latency_s, min(fewest) * link.bandwidth_bytes_per_s
    if any(len(ranks) < size for ranks in hosts):  # several ranks of a group in one host
        latency_s, bandwidth = max(latency_s, inside.latency_s), min(bandwidth, inside.bandwidth_bytes_per_s)
    return replace(link, latency_s=latency_s, bandwidth_bytes_per_s=bandwidth)
