"""Minibatches of SimpleCNN on two devices in MXNet's Gluon.

The appendix to chapter 3 shows it, and `make frameworks` runs it: `python step_in_gluon.py IN.npz OUT.npz`.
"""

import sys

import mxnet as mx
import numpy as np
from mxnet import autograd, gluon
from mxnet.gluon import nn

# Two stand-ins for GPUs. Gluon's default device, cpu(0), is none of them.
devices = [mx.cpu(1), mx.cpu(2)]
loss_fn = gluon.loss.SoftmaxCrossEntropyLoss()  # one loss per example


def make_net(weights, devices):
    """Return SimpleCNN with these weights on each device; Gluon's layouts are those of PyTorch."""
    net = nn.Sequential()
    net.add(nn.Conv2D(32, 3, padding=1, activation="relu", in_channels=1), nn.MaxPool2D(2))
    net.add(nn.Dense(10, in_units=32 * 14 * 14))  # it flattens its input
    net.cast(weights[0].dtype)
    net.initialize(ctx=devices)
    for parameter, value in zip(net.collect_params().values(), weights, strict=True):
        parameter.set_data(mx.nd.array(value, dtype=value.dtype))
    return net


def split_batch(X, y, devices):
    """Return the shards of images and labels, one per device."""
    X, y = mx.nd.array(X, dtype=X.dtype), mx.nd.array(y, dtype=X.dtype)
    return tuple(gluon.utils.split_and_load(tensor, devices, even_split=False) for tensor in (X, y))


def train_batch(net, X, y, trainer, divide_by):
    """Make one step: a backward pass for each shard, then the update on all devices."""
    X_shards, y_shards = split_batch(X, y, devices)
    with autograd.record():
        losses = [loss_fn(net(X_shard), y_shard) for X_shard, y_shard in zip(X_shards, y_shards, strict=True)]
    for loss in losses:
        loss.backward()
    trainer.step(divide_by)


def evaluate_accuracy_gpus(net, data_iter, split_f=split_batch):
    """Return the share of right answers, with each minibatch split over the devices of the parameters."""
    devices = next(iter(net.collect_params().values())).list_ctx()
    num_correct = num_examples = 0
    for X, y in data_iter:
        X_shards, y_shards = split_f(X, y, devices)
        outputs = [net(X_shard) for X_shard in X_shards]  # all devices have begun before the first is waited for
        for output, y_shard in zip(outputs, y_shards, strict=True):
            num_correct += int((output.argmax(axis=1) == y_shard).sum().asscalar())
        num_examples += len(y)
    return num_correct / num_examples


def message(function):
    """Return the error of a call, "" without one."""
    try:
        function()
    except Exception as error:
        return f"{type(error).__name__}: {error}"
    return ""


def main(data, out):
    """Train twice from the same weights: `step` gets the size of the minibatch, then always `batch_size`."""
    weights = [data[f"weights_{i}"] for i in range(4)]
    n = int(data["batch_size"])
    minibatches = [(data["X"][i : i + n], data["y"][i : i + n]) for i in range(0, len(data["y"]), n)]
    for name, divisor in (("trainer.step(len(y))", len), ("trainer.step(batch_size)", lambda y: n)):
        net = make_net(weights, devices)
        trainer = gluon.Trainer(net.collect_params(), "sgd", {"learning_rate": float(data["lr"])})
        after = []
        for X, y in minibatches * int(data["num_epochs"]):
            train_batch(net, X, y, trainer, divisor(y))
            parameters = net.collect_params().values()
            copies = [np.concatenate([p.data(d).asnumpy().ravel() for p in parameters]) for d in devices]
            assert np.array_equal(*copies), "the devices have different weights"
            after.append(copies[0])
        out[f"after each step, {name}"] = np.stack(after)
        out[f"accuracy, {name}"] = evaluate_accuracy_gpus(net, minibatches)
    X = mx.nd.array(minibatches[-1][0])
    out["shards of the last minibatch"] = [len(shard) for shard in gluon.utils.split_data(X, 2, even_split=False)]
    out["message, split_and_load"] = message(lambda: gluon.utils.split_and_load(X, devices))
    out["message, weight.data()"] = message(net[0].weight.data)
    out["version"] = f"mxnet {mx.__version__}, numpy {np.__version__}"


if __name__ == "__main__":
    result = {}
    main(np.load(sys.argv[1]), result)
    np.savez(sys.argv[2], **result)
