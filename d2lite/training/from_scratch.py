"""Data parallelism from scratch: the loop that the learner reads is the loop that runs."""

import torch
import torch.nn.functional as F

from d2lite._checks import positive_number
from d2lite.collectives.on_devices import all_reduce
from d2lite.data.fashion_mnist import load_data_fashion_mnist
from d2lite.devices import try_gpus
from d2lite.meters import Timer
from d2lite.models import lenet, lenet_params
from d2lite.parallel import one_intra_op_thread, parallel_apply
from d2lite.training.evaluation import evaluate_accuracy
from d2lite.training.run import Run
from d2lite.training.sharding import replicate, split_batch

__all__ = ["forward_backward", "sgd", "train", "train_batch"]


def forward_backward(X, y, params):
    """Return the summed cross-entropy of one shard; its gradient stands in `.grad` of each parameter afterwards."""
    for param in params:
        param.grad = None
    loss = F.cross_entropy(lenet(X, params), y, reduction="sum")
    loss.backward()
    return loss.detach()


def sgd(params, lr, batch_size):
    """Take one step of minibatch SGD, in place: the gradients are sums over `batch_size` examples."""
    with torch.no_grad():
        for param in params:
            param -= lr * param.grad / batch_size


def train_batch(X, y, device_params, devices, lr):
    """Train all replicas on one minibatch and return its mean loss (0-d tensor on the first device).

    X [b, 1, 28, 28] and y [b] are cut into one shard a device; `device_params` comes from `replicate`.
    Every gradient is a sum over examples, so the update is that of one device with the whole minibatch,
    whatever the shards' sizes.
    """
    positive_number("lr", lr)
    X_shards, y_shards = split_batch(X, y, devices)
    shards = list(zip(X_shards, y_shards, device_params, strict=True))
    losses = parallel_apply(forward_backward, shards, devices)
    for i in range(len(device_params[0])):
        all_reduce([params[i].grad for params in device_params], op="sum")
    for params in device_params:
        sgd(params, lr, len(X))
    return sum(loss.to(devices[0]) for loss in losses) / len(X)


def train(num_gpus, batch_size, lr, num_epochs=10, num_examples=None, seed=0, scale=None, animator=None):
    """Train LeNet on `num_gpus` replicas with minibatches of `batch_size` (all replicas together); return the Run.

    `num_examples`, `seed` and `scale` go to the data set and to `lenet_params`. After every epoch the test accuracy
    is added to `animator`. Raises ValueError or TypeError for
    settings out of range and Diverged, with the run so far, if the loss stops being finite.
    """
    devices = try_gpus(num_gpus)
    train_iter, test_iter = load_data_fashion_mnist(batch_size, num_examples, seed=seed)
    device_params = replicate(lenet_params(seed, scale), devices)
    run = Run.begin(devices, train_iter, lr, num_epochs, seed=seed)
    timer = Timer(devices)
    with one_intra_op_thread(devices):
        for epoch in range(num_epochs):
            timer.start()
            for X, y in train_iter:
                run.add_loss(train_batch(X, y, device_params, devices, lr))
            seconds = timer.stop()
            accuracy = evaluate_accuracy(lambda X: lenet(X, device_params[0]), test_iter, devices[0])
            run.add_epoch(seconds, accuracy)
            if animator is not None:
                animator.add(epoch + 1, accuracy)
    return run.finish()
