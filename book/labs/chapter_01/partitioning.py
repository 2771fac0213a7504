"""Three ways to split training over k devices, and the bytes that each must send: computed from shapes, no training.

Data parallelism splits the minibatch, pipeline parallelism the list of layers, tensor parallelism every layer. The
pipeline is the plainest one, of a single microbatch: the complete minibatch goes from stage to stage, and only one
device computes at a time (also called naive model parallelism). The tensor-parallel scheme splits the output channels
(or features) of every layer and gathers the activations. The layers of a network are measured once, by running it;
everything else here is arithmetic on their sizes. A KB is 1,000 bytes, an MB 1,000,000.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate
from math import inf

import torch
from torch import nn

from notebook_ranks.shared.checks import instance_of, non_negative_number, one_of, positive_int

from .forward_pass import forward_calls

__all__ = [
    "WAYS",
    "Layer",
    "PlannedMessage",
    "Traffic",
    "all_ways",
    "bytes_sent",
    "layers_of",
    "messages",
    "stages",
]

WAYS = {"data": "data parallelism", "pipeline": "pipeline parallelism", "tensor": "tensor parallelism"}
MOST_TENSOR = 256  # devices that split each layer: all send to all, so that messages grow with the square
SLACK = 0.05  # how much longer than the best the slowest stage may work, where that saves bytes


@dataclass(frozen=True, kw_only=True)
class Layer:
    """One layer of a network, with the sizes it has for one minibatch.

    `reads` holds, for each activation that weights inside the layer multiply, its bytes and the number of channels
    (or features) it was computed in: two for a residual block, none for a layer without weights. `n_macs` counts
    multiplications of weights with inputs.
    """

    name: str
    kind: str
    output_shape: tuple[int, ...]
    params_n_bytes: int
    input_n_bytes: int
    output_n_bytes: int
    reads: tuple[tuple[int, int], ...]
    n_macs: int


@dataclass(frozen=True)
class PlannedMessage:
    """`n_bytes` bytes of `kind` ("activations", "gradients") from device `src` to `dst`; `what` names the tensor."""

    src: int
    dst: int
    kind: str
    n_bytes: int
    what: str


@dataclass(frozen=True, kw_only=True)
class Traffic:
    """What one iteration sends: in total, of each kind, and from each device; `inputs_n_bytes` comes from the CPU."""

    way: str
    k: int
    n_bytes: int
    activations_n_bytes: int
    gradients_n_bytes: int
    sent_n_bytes: tuple[int, ...]
    inputs_n_bytes: int


def layers_of(net: nn.Sequential, X: torch.Tensor) -> list[Layer]:
    """Return one Layer for each layer of `net`, an nn.Sequential, as measured by a forward pass of the minibatch X.

    X is [b, ...]. Network and X may be on the device "meta", where tensors have shapes but no numbers. Raises TypeError
    for a different kind of network, or for weights other than those of Conv2d, Linear and BatchNorm2d, and ValueError
    for a layer that is used twice, or for an X without examples.
    """
    if not isinstance(net, nn.Sequential):
        raise TypeError(f"net: expected an nn.Sequential, got {type(net).__name__}. List its layers in one.")
    if not len(instance_of("X", X, torch.Tensor).shape) or not len(X):
        raise ValueError(f"X: expected a minibatch of at least one example, got the shape {tuple(X.shape)}.")
    for name, module in net.named_modules():
        if [*module.parameters(recurse=False)] and not isinstance(module, (nn.Conv2d, nn.Linear, nn.BatchNorm2d)):
            raise TypeError(f"net: expected Conv2d, Linear or BatchNorm2d at {name}, got {type(module).__name__}.")
    calls = forward_calls(net, X)
    if len({call.module for call in calls}) < len(calls):
        raise ValueError("net: expected each layer to run once, got one that runs twice. Make a second one.")
    names = {module: name for name, module in net.named_children()}
    channels, layers = 1, []
    reads: dict[int, tuple[int, int]] = {}  # id of a tensor -> what is read of it: read twice, sent once
    n_macs = 0
    for module, args, output, macs in calls:
        if macs:
            reads.setdefault(id(args[0]), (_n_bytes(args[0]), channels))
            channels, n_macs = output.shape[1], n_macs + macs
        if module in names:  # its inner layers have run by now
            layers.append(
                Layer(
                    name=names[module],
                    kind=type(module).__name__.lstrip("_"),
                    output_shape=tuple(output.shape),
                    params_n_bytes=sum(_n_bytes(p) for p in module.parameters()),
                    input_n_bytes=_n_bytes(args[0]),
                    output_n_bytes=_n_bytes(output),
                    reads=tuple(reads.values()),
                    n_macs=n_macs,
                )
            )
            reads, n_macs = {}, 0
    return layers


def _n_bytes(tensor: torch.Tensor) -> int:
    return tensor.numel() * tensor.element_size()


def stages(layers: Sequence[Layer], k: int, slack: float = SLACK) -> list[list[Layer]]:
    """Return `layers` as k stages, one per device, cut in front of layers with weights.

    The best cuts are those whose slowest stage has the least work (n_macs). Cuts whose slowest stage has at most
    1 + `slack` times this work are allowed. Of the allowed cuts, those that send the fewest bytes are chosen, and the
    earliest among equals. Both steps use dynamic programming: the best way to cut the rest of the layers does not
    depend on how the layers before it were cut.
    Raises ValueError for more stages than layers with weights or a negative slack, and TypeError for other types.
    """
    layers = _as_layers(layers)
    starts = [i for i, layer in enumerate(layers) if layer.n_macs]
    k = positive_int("k", k, max(1, len(starts)), "Each device needs a layer with weights.")
    slack = non_negative_number("slack", slack)
    starts[:1] = [0]  # what precedes the first layer with weights stays with it
    before, end = [0, *accumulate(layer.n_macs for layer in layers)], len(layers)  # before[i]: work of layers[:i]

    slowest: dict[int, float] = {i: before[end] - before[i] for i in starts}  # of layers[i:], cut once, twice, ...
    for _ in range(k - 1):
        slowest = {
            i: min((max(before[j] - before[i], slowest[j]) for j in starts if j > i), default=inf) for i in starts
        }
    most = (1 + slack) * slowest[0]

    # i -> (bytes, cuts): the fewest bytes for layers[i:], and the first of the cuts that send so few
    fewest: dict[int, tuple[int, tuple[int, ...]]] = {i: (0, ()) for i in starts if before[end] - before[i] <= most}
    for _ in range(k - 1):
        fewest = {
            i: min((layers[j].input_n_bytes + n_bytes, (j, *cuts)) for j, (n_bytes, cuts) in rest.items())
            for i in starts
            if (rest := {j: found for j, found in fewest.items() if j > i and before[j] - before[i] <= most})
        }
    cuts = fewest[0][1]
    return [layers[i:j] for i, j in zip((0, *cuts), (*cuts, end), strict=True)]


def messages(way: str, layers: Sequence[Layer], k: int) -> list[PlannedMessage]:
    """Return the messages of one iteration in the order in which they are sent.

    "data": each device but the first sends its gradients to the first, which sends back their sum.
    "pipeline": at each cut the activations go to the next device; later their gradients come back.
    "tensor": before each layer with weights but the first, each device sends its channels to all others, and at the end
    its logits; in the backward pass, each sends to each other its part of the gradient of the other's channels. A
    tensor that two layers read is sent once.
    Raises ValueError for an unknown way, an empty list or a number of devices that is not possible (for "tensor": more
    than MOST_TENSOR), and TypeError for one that is not an integer.
    """
    one_of("way", way, WAYS)
    k, layers = positive_int("k", k), _as_layers(layers)
    return {"data": _data_parallel, "pipeline": _pipeline_parallel, "tensor": _tensor_parallel}[way](layers, k)


def _as_layers(layers: Sequence[Layer]) -> list[Layer]:
    if not isinstance(layers, Sequence) or not layers or not all(isinstance(layer, Layer) for layer in layers):
        raise ValueError(f"layers: expected the list that layers_of(net, X) returns, got {layers!r:.80}.")
    return list(layers)


def _data_parallel(layers: Sequence[Layer], k: int) -> list[PlannedMessage]:
    positive_int("k", k, layers[-1].output_shape[0], "Each device needs an example: take a larger batch.")
    n_bytes = sum(layer.params_n_bytes for layer in layers)
    gather = [PlannedMessage(i, 0, "gradients", n_bytes, "all parameters") for i in range(1, k)]
    return gather + [PlannedMessage(0, i, "gradients", n_bytes, "all parameters, summed") for i in range(1, k)]


def _pipeline_parallel(layers: Sequence[Layer], k: int) -> list[PlannedMessage]:
    cuts = [(i, run[-1]) for i, run in enumerate(stages(layers, k)[:-1])]
    forward = [
        PlannedMessage(i, i + 1, "activations", last.output_n_bytes, f"output of {last.name}") for i, last in cuts
    ]
    backward = [
        PlannedMessage(i + 1, i, "gradients", last.output_n_bytes, f"output of {last.name}") for i, last in cuts
    ]
    return forward + backward[::-1]


def _tensor_parallel(layers: Sequence[Layer], k: int) -> list[PlannedMessage]:
    reads = [(f"input of {layer.name}", *read) for layer in layers for read in layer.reads][1:]
    last = layers[-1]
    positive_int("k", k, MOST_TENSOR, "Each device sends to each other.")
    if len(last.output_shape) < 2:
        raise ValueError(f"layers: expected logits [b, classes] at the end, got the shape {last.output_shape}.")
    forward, backward = [], []
    for what, n_bytes, channels in [*reads, ("logits", last.output_n_bytes, last.output_shape[1])]:
        pieces = _bytes_of_channels(n_bytes, channels, k)
        forward += [PlannedMessage(i, j, "activations", pieces[i], what) for i in range(k) for j in range(k) if i != j]
    for what, n_bytes, channels in reads[::-1]:
        pieces = _bytes_of_channels(n_bytes, channels, k)
        backward += [PlannedMessage(i, j, "gradients", pieces[j], what) for i in range(k) for j in range(k) if i != j]
    return forward + backward


def _bytes_of_channels(n_bytes: int, channels: int, k: int) -> list[int]:
    """Return the bytes of each device's channels; the channels are cut as by torch.tensor_split."""
    return [n_bytes // channels * (channels // k + (i < channels % k)) for i in range(k)]


def bytes_sent(way: str, layers: Sequence[Layer], k: int) -> Traffic:
    """Return the Traffic of one iteration over k devices; `layers` is what layers_of(net, X) gave for a minibatch X.

    With P bytes of parameters, A_c bytes of activations at cut c and R_l bytes read by weight layer l, of which the
    first reads the minibatch, and L bytes of logits, the sums of `messages` over all devices are

    - data: (k - 1) P gathered and (k - 1) P sent back, 2 (k - 1) P;
    - pipeline: each A_c forward and the same number of bytes back, 2 (A_1 + ... + A_(k-1));
    - tensor: of each R_l a device lacks (k - 1) / k, so k devices receive (k - 1) R_l, and as much backwards; the
      logits go forward only, since each device then computes the loss: 2 (k - 1) (R_2 + R_3 + ...) + (k - 1) L.

    One device sends 0. The minibatch comes from the CPU's memory (`inputs_n_bytes`, not in `n_bytes`): one slice to
    each device for data, all of it to the first device for pipeline, all of it to every device for tensor. Raises like
    `messages`.
    """
    sent = messages(way, layers, k)
    return Traffic(
        way=way,
        k=k,
        n_bytes=sum(m.n_bytes for m in sent),
        activations_n_bytes=sum(m.n_bytes for m in sent if m.kind == "activations"),
        gradients_n_bytes=sum(m.n_bytes for m in sent if m.kind == "gradients"),
        sent_n_bytes=tuple(sum(m.n_bytes for m in sent if m.src == i) for i in range(k)),
        inputs_n_bytes=layers[0].input_n_bytes * (k if way == "tensor" else 1),
    )


def all_ways(layers: Sequence[Layer], k: int) -> dict[str, Traffic | None]:
    """Return {way: its Traffic, or None where the batch or the layers are too few for k devices}.

    Raises ValueError or TypeError for layers or a number of devices that cannot be.
    """
    layers, k = _as_layers(layers), positive_int("k", k)
    weights = max(1, sum(layer.n_macs > 0 for layer in layers))
    most = {"data": layers[-1].output_shape[0], "pipeline": weights, "tensor": MOST_TENSOR}
    return {way: bytes_sent(way, layers, k) if k <= most[way] else None for way in WAYS}
