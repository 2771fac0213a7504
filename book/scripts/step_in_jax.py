"""Minibatches of SimpleCNN on two devices in JAX.

The appendix to chapter 3 shows it, and `make frameworks` runs it: `python step_in_jax.py IN.npz OUT.npz`.
"""

import re
import sys

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec

jax.config.update("jax_num_cpu_devices", 2)  # two stand-ins for GPUs
jax.config.update("jax_enable_x64", True)  # without it JAX turns float64 into float32

mesh = Mesh(np.array(jax.devices()), ["devices"])
cut_by_example = NamedSharding(mesh, PartitionSpec("devices"))  # the first axis is cut into shards
copied = NamedSharding(mesh, PartitionSpec())  # every device has all of it


def forward(params, X):
    """Return the logits of SimpleCNN. The layouts are those of PyTorch, because we say so."""
    W1, b1, W2, b2 = params
    h = jax.lax.conv_general_dilated(X, W1, (1, 1), "SAME", dimension_numbers=("NCHW", "OIHW", "NCHW"))
    h = jax.nn.relu(h + b1[:, None, None])
    h = jax.lax.reduce_window(h, -jnp.inf, jax.lax.max, (1, 1, 2, 2), (1, 1, 2, 2), "VALID")
    return h.reshape(len(X), -1) @ W2.T + b2


def mean_loss(params, X, y, weight):
    """Return the mean over all examples with weight 1, on whichever device they are."""
    log_p = jax.nn.log_softmax(forward(params, X))
    return -(weight * log_p[jnp.arange(len(y)), y]).sum() / weight.sum()


@jax.jit
def train_batch(params, X, y, weight, lr):
    """Make one step: the code of one device. The compiler adds the all-reduce, because of where the arrays are."""
    grads = jax.grad(mean_loss)(params, X, y, weight)
    return [param - lr * grad for param, grad in zip(params, grads, strict=True)]


@jax.jit
def num_correct(params, X, y, weight):
    return ((forward(params, X).argmax(1) == y) * weight).sum()


def split_batch(X, y):
    """Return images, labels and weights in shards of equal size: JAX has no others, so examples of weight 0 fill up."""
    missing = -len(y) % len(mesh.devices)
    weight = np.concatenate([np.ones(len(y), X.dtype), np.zeros(missing, X.dtype)])
    X, y = (np.concatenate([array, np.zeros((missing, *array.shape[1:]), array.dtype)]) for array in (X, y))
    return [jax.device_put(array, cut_by_example) for array in (X, y, weight)]


def message(function, *args):
    """Return the error of a call, "" without one."""
    try:
        function(*args)
    except Exception as error:
        return f"{type(error).__name__}: {error}"
    return ""


def main(data, out):
    """Train, and look at what the compiler has made of the step."""
    weights = [data[f"weights_{i}"] for i in range(4)]
    n, lr = int(data["batch_size"]), data["lr"].astype(data["X"].dtype)
    minibatches = [(data["X"][i : i + n], data["y"][i : i + n]) for i in range(0, len(data["y"]), n)]
    params, after = jax.device_put(weights, copied), []
    for X, y in minibatches * int(data["num_epochs"]):
        params = train_batch(params, *split_batch(X, y), lr)
        copies = [np.concatenate([np.ravel(p.addressable_data(i)) for p in params]) for i in (0, 1)]
        assert np.array_equal(*copies), "the devices have different weights"
        after.append(copies[0])
    out["after each step, NamedSharding"] = np.stack(after)
    right = sum(num_correct(params, *split_batch(X, y)).item() for X, y in minibatches)
    out["accuracy, NamedSharding"] = right / len(data["y"])
    compiled = train_batch.lower(params, *split_batch(*minibatches[0]), lr).compile().as_text()
    out["all-reduces of a step"] = len(re.findall(r" all-reduce(?:-start)?\(", compiled))
    out["message, device_put"] = message(jax.device_put, minibatches[-1][0], cut_by_example)
    out["version"] = f"jax {jax.__version__}, numpy {np.__version__}"


if __name__ == "__main__":
    result = {}
    main(np.load(sys.argv[1]), result)
    np.savez(sys.argv[2], **result)
