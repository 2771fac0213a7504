"""LeNet, trained data-parallel from scratch: the loop that chapter 2 shows is the loop that runs."""

from collections.abc import Callable, Sequence
from typing import Any

import torch
import torch.nn.functional as F

from d2lite.collectives.on_devices import all_reduce
from d2lite.data.fashion_mnist import load_data_fashion_mnist
from d2lite.devices import try_gpus
from d2lite.meters import Timer
from d2lite.models import lenet, lenet_params
from d2lite.replica_threads import parallel_apply
from d2lite.training.evaluation import evaluate_accuracy
from d2lite.training.replicate import replicate
from d2lite.training.run_record import Run
from d2lite.training.scatter import split_batch

__all__ = ["forward_backward", "sgd_step", "train", "train_batch"]


def forward_backward(X: torch.Tensor, y: torch.Tensor, params: Sequence[torch.Tensor]) -> torch.Tensor:
    """Return LeNet's summed cross-entropy on one shard, and leave its gradient in `.grad` of each parameter.

    `X` are images [b, 1, 28, 28], on the device of the `params` (those of `lenet_params`, requiring gradients); `y` are
    labels [b], int64. The sum is a 0-d tensor without a graph. An existing `.grad` is discarded.

    Example:
        >>> params = [p.requires_grad_() for p in lenet_params()]
        >>> loss = forward_backward(torch.zeros(4, 1, 28, 28), torch.zeros(4, dtype=torch.int64), params)
        >>> loss.shape, params[-1].grad.shape
        (torch.Size([]), torch.Size([10]))
    """
    for param in params:
        param.grad = None
    loss = F.cross_entropy(lenet(X, params), y, reduction="sum")
    loss.backward()
    return loss.detach()


def sgd_step(params: Sequence[torch.Tensor], lr: float, batch_size: int) -> None:
    """Take one step of SGD in place, with rate `lr`; `.grad` of `params` is the sum over all `batch_size` examples.

    Example:
        >>> param = torch.tensor([1.0])
        >>> param.grad = torch.tensor([4.0])
        >>> sgd_step([param], lr=0.1, batch_size=2)
        >>> round(param.item(), 6)
        0.8
    """
    with torch.no_grad():
        for param in params:
            param.sub_(param.grad, alpha=lr / batch_size)  # param -= lr / batch_size * param.grad, in one pass


def train_batch(
    X: torch.Tensor,
    y: torch.Tensor,
    device_params: Sequence[Sequence[torch.Tensor]],
    devices: Sequence[torch.device],
    lr: float,
) -> torch.Tensor:
    """Train all replicas on one minibatch; return its mean loss before the update, a 0-d tensor on devices[0].

    `X` are images [b, 1, 28, 28], `y` labels [b], int64, on any device. `device_params` holds one list of LeNet's
    parameters per device of `devices`, from `replicate`; they are updated in place, with learning rate `lr`. Gradients
    are summed over examples, not averaged, so that the update is the same as on one device, for shards of any sizes. If
    a replica fails, a RuntimeError names its device.

    Example:
        >>> devices = try_gpus(2)
        >>> device_params = replicate(lenet_params(), devices)
        >>> X, y = torch.rand(8, 1, 28, 28), torch.zeros(8, dtype=torch.int64)
        >>> losses = [train_batch(X, y, device_params, devices, lr=0.1).item() for _ in range(5)]
        >>> losses[-1] < losses[0]
        True
    """
    X_shards, y_shards = split_batch(X, y, devices)
    losses = parallel_apply(forward_backward, devices, X_shards, y_shards, device_params)
    for i in range(len(device_params[0])):
        all_reduce([params[i].grad for params in device_params], op="sum")
    parallel_apply(lambda params: sgd_step(params, lr, len(X)), devices, device_params)
    return sum(loss.to(devices[0]) for loss in losses) / len(X)


def train(
    num_gpus: int,
    batch_size: int,
    lr: float,
    *,
    num_epochs: int = 10,
    num_examples: int | None = None,
    seed: int = 0,
    scale: float | None = None,
    step: Callable[..., torch.Tensor] = train_batch,
    animator: Any = None,
) -> Run:
    """Train LeNet on `num_gpus` replicas, and return the Run: losses, accuracies, seconds per epoch, devices, data set.

    Args:
        num_gpus: the number of replicas; without that many GPUs they share GPUs, or compute on CPU cores.
        batch_size: examples per minibatch, of all replicas together.
        lr, num_epochs: the learning rate; passes over the training examples.
        num_examples: how many training examples to use, with a sixth as many test examples; by default the 12,000 that
            come with d2lite, and all 10,000 test examples.
        seed, scale: the seed of order and initial weights; the standard deviation of these weights, by default He's.
        step: what is done with each minibatch: a function with the arguments and the result of `train_batch`.
        animator: an Animator, or whatever has `add(x, y)`: it gets the test accuracy after every epoch.

    Raises ValueError or TypeError for a wrong setting, and Diverged, which holds the run so far, if the loss is no
    number.

    Example:
        >>> run = train(num_gpus=2, batch_size=64, lr=0.1, num_epochs=1, num_examples=512)
        >>> run.status, len(run.losses), run.settings["num_gpus"]
        ('finished', 8, 2)
    """
    devices = try_gpus(num_gpus)
    train_iter, test_iter = load_data_fashion_mnist(batch_size, num_examples, seed=seed)
    device_params = replicate(lenet_params(seed, scale), devices)
    run = Run.begin(devices, train_iter, lr, num_epochs, seed=seed)
    timer = Timer(devices)
    for epoch in range(num_epochs):
        timer.start()
        for X, y in train_iter:
            run.add_loss(step(X, y, device_params, devices, lr))
        seconds = timer.stop()
        accuracy = evaluate_accuracy(lambda X: lenet(X, device_params[0]), test_iter, devices[0])
        run.add_epoch(seconds, accuracy)
        if animator is not None:
            animator.add(epoch + 1, accuracy)
    return run.finish()
