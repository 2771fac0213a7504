"""The museum of bugs: steps of data-parallel training that are each one small change away from `train_batch`.

Each function is a wrong `train_batch` or a wrong `replicate`, next to the right one. Nothing raises an error: a symptom
is all that there is.
"""

from collections.abc import Callable, Sequence
from typing import Any

import torch
import torch.nn.functional as F

from d2lite import lenet, lenet_params, one_intra_op_thread, parallel_apply
from d2lite.collectives import all_reduce
from d2lite.labs.chapter_03.d2l import sgd
from d2lite.labs.chapter_11 import DRIFT, LATER, LONG, NOTHING, SHORT, SIZES, BugExhibit
from d2lite.training import forward_backward, replicate, sgd_step, split_batch

PIECE = 16  # examples of one backward pass, where gradients are accumulated
NOISE = 0.3  # standard deviation of the noise that augmentation adds to each pixel


def rebinding(X, y, device_params, devices, lr):
    """Bind the sum to an entry of a list, instead of writing it into the gradients of the other devices."""
    X_shards, y_shards = split_batch(X, y, devices)
    parallel_apply(forward_backward, devices, X_shards, y_shards, device_params)
    for i in range(len(device_params[0])):
        grads = [params[i].grad for params in device_params]
        for grad in grads[1:]:
            grads[0] += grad.to(devices[0])
        for j in range(1, len(grads)):
            grads[j] = grads[0].to(devices[j])  # an entry of the list, and not the gradient
    parallel_apply(lambda params: sgd_step(params, lr, len(X)), devices, device_params)


def without_all_reduce(X, y, device_params, devices, lr):
    """Update each replica with the mean gradient of its own shard."""
    X_shards, y_shards = split_batch(X, y, devices)
    parallel_apply(forward_backward, devices, X_shards, y_shards, device_params)
    parallel_apply(lambda params, y: sgd_step(params, lr, len(y)), devices, device_params, y_shards)


def update_first(X, y, device_params, devices, lr):
    """Update the replicas, and add up their gradients afterwards."""
    X_shards, y_shards = split_batch(X, y, devices)
    parallel_apply(forward_backward, devices, X_shards, y_shards, device_params)
    parallel_apply(lambda params: sgd_step(params, lr, len(X)), devices, device_params)  # two lines too early
    for i in range(len(device_params[0])):
        all_reduce([params[i].grad for params in device_params], op="sum")


def mean_backward(X: torch.Tensor, y: torch.Tensor, params: Sequence[torch.Tensor]) -> None:
    """Leave the gradient of the shard's mean loss in `.grad`, where forward_backward leaves that of the sum."""
    for param in params:
        param.grad = None
    loss = F.cross_entropy(lenet(X, params), y)
    loss.backward()


def sum_for_mean(X, y, device_params, devices, lr):
    """Add the gradients of means over shards."""
    X_shards, y_shards = split_batch(X, y, devices)
    parallel_apply(mean_backward, devices, X_shards, y_shards, device_params)
    for i in range(len(device_params[0])):
        all_reduce([params[i].grad for params in device_params], op="sum")  # of means
    parallel_apply(lambda params: sgd_step(params, lr, 1), devices, device_params)


def lr_twice(X, y, device_params, devices, lr):
    """Add the gradients of means over shards, and multiply the learning rate by their number as well."""
    X_shards, y_shards = split_batch(X, y, devices)
    parallel_apply(mean_backward, devices, X_shards, y_shards, device_params)
    for i in range(len(device_params[0])):
        all_reduce([params[i].grad for params in device_params], op="sum")  # k times the mean
    parallel_apply(lambda params: sgd_step(params, lr * len(devices), 1), devices, device_params)  # and k again


def mean_of_means(X, y, device_params, devices, lr):
    """Average the gradients of means over shards, which may differ in size."""
    X_shards, y_shards = split_batch(X, y, devices)
    parallel_apply(mean_backward, devices, X_shards, y_shards, device_params)
    for i in range(len(device_params[0])):
        all_reduce([params[i].grad for params in device_params], op="mean")  # right for equal shards alone
    parallel_apply(lambda params: sgd_step(params, lr, 1), devices, device_params)


def mean_for_sum(X, y, device_params, devices, lr):
    """Average the gradients of sums over shards, and divide by the number of examples as well."""
    X_shards, y_shards = split_batch(X, y, devices)
    parallel_apply(forward_backward, devices, X_shards, y_shards, device_params)
    for i in range(len(device_params[0])):
        all_reduce([params[i].grad for params in device_params], op="mean")
    parallel_apply(lambda params: sgd_step(params, lr, len(X)), devices, device_params)


def backward_again(X: torch.Tensor, y: torch.Tensor, params: Sequence[torch.Tensor]) -> None:
    """Add this step's gradient to whatever `.grad` holds."""
    loss = F.cross_entropy(lenet(X, params), y, reduction="sum")
    loss.backward()


def forgotten_zero_grad(X, y, device_params, devices, lr):
    """Add to the gradients of the step before."""
    X_shards, y_shards = split_batch(X, y, devices)
    parallel_apply(backward_again, devices, X_shards, y_shards, device_params)
    for i in range(len(device_params[0])):
        all_reduce([params[i].grad for params in device_params], op="sum")
    parallel_apply(lambda params: sgd_step(params, lr, len(X)), devices, device_params)


def chunk_loses_a_device(X, y, device_params, devices, lr):
    """Cut with chunk, which may give fewer shards than there are devices."""
    X_shards, y_shards = X.chunk(len(devices)), y.chunk(len(devices))  # 6 examples for 4 devices: three shards of 2
    used, device_params = devices[: len(X_shards)], device_params[: len(X_shards)]
    X_shards = [shard.to(device) for shard, device in zip(X_shards, used, strict=True)]
    y_shards = [shard.to(device) for shard, device in zip(y_shards, used, strict=True)]
    parallel_apply(forward_backward, used, X_shards, y_shards, device_params)
    for i in range(len(device_params[0])):
        all_reduce([params[i].grad for params in device_params], op="sum")
    parallel_apply(lambda params: sgd_step(params, lr, len(X)), used, device_params)


def rest_dropped(X, y, device_params, devices, lr):
    """Leave out the examples that remain when their number is divided by that of the devices."""
    n = len(X) // len(devices) * len(devices)  # what is left over is in no shard
    X_shards, y_shards = split_batch(X[:n], y[:n], devices)
    parallel_apply(forward_backward, devices, X_shards, y_shards, device_params)
    for i in range(len(device_params[0])):
        all_reduce([params[i].grad for params in device_params], op="sum")
    parallel_apply(lambda params: sgd_step(params, lr, n), devices, device_params)


def pieces_backward(X: torch.Tensor, y: torch.Tensor, params: Sequence[torch.Tensor]) -> None:
    """Accumulate the gradients of pieces: the mean over each, divided by the number of pieces."""
    for param in params:
        param.grad = None
    pieces = list(zip(X.split(PIECE), y.split(PIECE), strict=True))
    for X_piece, y_piece in pieces:
        (F.cross_entropy(lenet(X_piece, params), y_piece) / len(pieces) * len(X)).backward()


def divided_by_pieces(X, y, device_params, devices, lr):
    """Accumulate the means of pieces, divided by the number of pieces."""
    X_shards, y_shards = split_batch(X, y, devices)
    parallel_apply(pieces_backward, devices, X_shards, y_shards, device_params)
    for i in range(len(device_params[0])):
        all_reduce([params[i].grad for params in device_params], op="sum")
    parallel_apply(lambda params: sgd_step(params, lr, len(X)), devices, device_params)


def summed_pieces(X: torch.Tensor, y: torch.Tensor, params: Sequence[torch.Tensor]) -> None:
    """Accumulate the gradients of pieces: the sum over each."""
    for param in params:
        param.grad = None
    pieces = list(zip(X.split(PIECE), y.split(PIECE), strict=True))
    for X_piece, y_piece in pieces:
        F.cross_entropy(lenet(X_piece, params), y_piece, reduction="sum").backward()


def sum_of_pieces(X, y, device_params, devices, lr):
    """Accumulate the sums of pieces: right code."""
    X_shards, y_shards = split_batch(X, y, devices)
    parallel_apply(summed_pieces, devices, X_shards, y_shards, device_params)
    for i in range(len(device_params[0])):
        all_reduce([params[i].grad for params in device_params], op="sum")
    parallel_apply(lambda params: sgd_step(params, lr, len(X)), devices, device_params)


def noisy(X: torch.Tensor, seed: int, noise: float = NOISE) -> torch.Tensor:
    """Return images with random noise of that standard deviation, as data augmentation adds it."""
    drawn = torch.randn(X.shape, generator=torch.Generator().manual_seed(seed))
    return X + noise * drawn.to(X.device, X.dtype)


def same_seed(X, y, device_params, devices, lr):
    """Add noise to the images, the same on each replica."""
    seed = int(torch.randint(2**31, ()))  # of this step
    X_shards, y_shards = split_batch(X, y, devices)
    X_shards = [noisy(X, seed) for X in X_shards]  # the seed lacks the rank
    parallel_apply(forward_backward, devices, X_shards, y_shards, device_params)
    for i in range(len(device_params[0])):
        all_reduce([params[i].grad for params in device_params], op="sum")
    parallel_apply(lambda params: sgd_step(params, lr, len(X)), devices, device_params)


def seed_with_rank(X, y, device_params, devices, lr, noise=NOISE):
    """Add noise to the images, other noise on each replica: right code."""
    seed = int(torch.randint(2**31, ()))
    X_shards, y_shards = split_batch(X, y, devices)
    X_shards = [noisy(X, seed + rank, noise) for rank, X in enumerate(X_shards)]
    parallel_apply(forward_backward, devices, X_shards, y_shards, device_params)
    for i in range(len(device_params[0])):
        all_reduce([params[i].grad for params in device_params], op="sum")
    parallel_apply(lambda params: sgd_step(params, lr, len(X)), devices, device_params)


def own_lesson(X, y, device_params, devices, lr):
    """Take a step in the calls of d2l's section 13.5: the sum of the losses, an all-reduce by hand, and d2l's sgd."""
    X_shards, y_shards = split_batch(X, y, devices)
    for X_shard, y_shard, params in zip(X_shards, y_shards, device_params, strict=True):
        X_shard, y_shard = X_shard.to(params[0].device), y_shard.to(params[0].device)  # where aliased replicas are
        with one_intra_op_thread(devices):
            F.cross_entropy(lenet(X_shard, params), y_shard, reduction="sum").backward()
    for i in range(len(device_params[0])):
        grads = [params[i].grad for params in device_params]
        for grad in grads[1:]:
            grads[0] += grad.to(devices[0])
        for grad in grads[1:]:
            grad.copy_(grads[0])
    for params in device_params:
        sgd(params, lr, len(X))


def moved_only(params: Sequence[torch.Tensor], devices: Sequence[torch.device]) -> list[list[torch.Tensor]]:
    """Return a list of parameters per device: `.to` gives the same tensor again where it is on that device already."""
    return [[param.to(device).requires_grad_() for param in params] for device in devices]


def listed_again(params: Sequence[torch.Tensor], devices: Sequence[torch.device]) -> list[list[torch.Tensor]]:
    """Return the same list once per device."""
    return [[param.to(devices[0], copy=True).requires_grad_() for param in params]] * len(devices)


def seeded_apart(params: Sequence[torch.Tensor], devices: Sequence[torch.device]) -> list[list[torch.Tensor]]:
    """Return new random parameters for each device, from a seed of its own."""
    every = [[p.to(params[0].dtype) for p in lenet_params(seed)] for seed in range(len(devices))]
    return [replicate(own, [device])[0] for own, device in zip(every, devices, strict=True)]


_LONGER = "the step is 2**(k-1) times as long; no drift"
_ALL = (
    BugExhibit(
        "sum for mean",
        "the step is k times too long",
        "average the means, or divide by all examples",
        (LONG,),
        sum_for_mean,
        helpers=(forward_backward, mean_backward),
    ),
    BugExhibit(
        "lr times k twice",
        "the step is k*k times too long, and the loss often rises",
        "scale the learning rate once, and only by choice",
        (LONG,),
        lr_twice,
        helpers=(forward_backward, mean_backward),
    ),
    BugExhibit(
        "mean for sum",
        "the step is k times too short: training is slow",
        "add sums, average means",
        (SHORT,),
        mean_for_sum,
    ),
    BugExhibit(
        "loss divided by the local batch",
        "right for equal shards; with others an example in a small shard counts for more",
        "sum the losses, divide by all examples",
        (SIZES,),
        mean_of_means,
        helpers=(forward_backward, mean_backward),
    ),
    BugExhibit(
        "pieces divided by their number",
        "wrong where the last piece is smaller, on one device as well",
        "sum over each piece, divide by all examples",
        (SIZES,),
        divided_by_pieces,
        right_step=sum_of_pieces,
        helpers=(summed_pieces, pieces_backward),
    ),
    BugExhibit(
        "examples left over are dropped",
        "right where k divides the minibatch; otherwise up to k-1 examples are not used in that step",
        "cut into k shards whose sizes differ by at most one",
        (SIZES,),
        rest_dropped,
    ),
    BugExhibit(
        "chunk loses a device",
        "with few examples a replica gets nothing, and is left behind",
        "tensor_split",
        (SIZES, DRIFT),
        chunk_loses_a_device,
    ),
    BugExhibit(
        "rebinding all-reduce",
        "only replica 0 gets the sum; the others drift away",
        "write in place: copy_",
        (DRIFT,),
        rebinding,
    ),
    BugExhibit(
        "no all-reduce",
        "each replica learns alone from its shard; they drift apart",
        "all-reduce the gradients",
        (DRIFT,),
        without_all_reduce,
    ),
    BugExhibit(
        "update before all-reduce",
        "each replica is updated with its own gradient; they drift apart",
        "first the all-reduce, then the update",
        (DRIFT,),
        update_first,
    ),
    BugExhibit(
        "forgotten zero_grad",
        "the first step is right, then old gradients are added again, k times as large in each step",
        "discard the gradients before each backward pass",
        (LATER,),
        forgotten_zero_grad,
        helpers=(forward_backward, backward_again),
    ),
    BugExhibit(
        "same random numbers on each replica",
        "no drift, and no length of step shows it: only 1/k of the noise is independent",
        "make the rank a part of the seed",
        (NOTHING,),
        same_seed,
        right_step=seed_with_rank,
    ),
    BugExhibit(
        "different initial weights",
        "the replicas begin apart, and remain apart by the same amount",
        "copy the weights of one to all",
        (DRIFT,),
        replicate=seeded_apart,
    ),
    BugExhibit(
        "aliased replicas",
        "the shards' gradients add up in one tensor, and the all-reduce doubles it k-1 times: " + _LONGER,
        "copy once for each replica: replicate",
        (LONG,),
        own_lesson,
        listed_again,
        own_lesson,
    ),
    BugExhibit(
        "the published loop, on CPUs",
        "without GPUs p.to(device) is p itself: " + _LONGER,
        "copies: p.to(device, copy=True)",
        (LONG,),
        own_lesson,
        moved_only,
        own_lesson,
        found_as="aliased replicas",
    ),
)
EXHIBITS = {exhibit.name: exhibit for exhibit in _ALL}


def _unnamed(step: Callable[..., Any]) -> Callable[..., Any]:
    """Return a step that does the same, under a name that gives nothing away."""

    def train_batch(X, y, device_params, devices, lr):
        return step(X, y, device_params, devices, lr)

    return train_batch


UNNAMED = {
    "A": _unnamed(mean_of_means),
    "B": _unnamed(forgotten_zero_grad),
    "C": _unnamed(rebinding),
    "D": _unnamed(update_first),
}


def show_changes(name: str) -> None:
    """Print the lines in which an exhibit differs from right code.

    Raises:
        ValueError: if there is no exhibit of that name.

    Example:
        >>> show_changes("forgotten zero_grad")
        in forward_backward:
        right: for param in params:
        right:     param.grad = None
               loss = F.cross_entropy(lenet(X, params), y, reduction='sum')
    """
    if name not in EXHIBITS:
        raise ValueError(f"name: expected one of {', '.join(EXHIBITS)}, got {name!r}.")
    print("\n".join(EXHIBITS[name].changes))
