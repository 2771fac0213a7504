"""Minibatches of SimpleCNN on two devices in TensorFlow.

The appendix to chapter 3 shows it, and `make frameworks` runs it: `python step_in_tensorflow.py IN.npz OUT.npz`.
"""

import sys

import keras
import numpy as np
import tensorflow as tf

# two stand-ins for GPUs: one CPU as two logical devices
(cpu,) = tf.config.list_physical_devices("CPU")
tf.config.set_logical_device_configuration(cpu, [tf.config.LogicalDeviceConfiguration()] * 2)
strategy = tf.distribute.MirroredStrategy(["CPU:0", "CPU:1"])


def from_pytorch(weights):
    """Return the weights in TensorFlow's layout: the channels are the last axis, and the outputs of a layer, too."""
    W1, b1, W2, b2 = weights
    W2 = W2.reshape(10, 32, 14, 14).transpose(2, 3, 1, 0)  # [outputs, channels, h, w] -> [h, w, channels, outputs]
    return [W1.transpose(2, 3, 1, 0), b1, W2.reshape(-1, 10), b2]


def to_pytorch(weights):
    """Return the weights in PyTorch's layout."""
    W1, b1, W2, b2 = (np.asarray(w) for w in weights)
    W2 = W2.reshape(14, 14, 32, 10).transpose(3, 2, 0, 1)
    return [W1.transpose(3, 2, 0, 1), b1, W2.reshape(10, -1), b2]


def make_net(weights):
    """Return SimpleCNN with these weights, on each device of the strategy."""
    with strategy.scope():
        net = keras.Sequential([keras.Input((28, 28, 1))])
        net.add(keras.layers.Conv2D(32, 3, padding="same", activation="relu"))
        net.add(keras.layers.MaxPooling2D(2))
        net.add(keras.layers.Flatten())
        net.add(keras.layers.Dense(10))
        net.set_weights(from_pytorch(weights))
    return net


def fit(net, minibatches, num_epochs, lr, after_step):
    """Train as Keras does it: `compile` and `fit`."""
    with strategy.scope():
        loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
        net.compile(keras.optimizers.SGD(lr), loss, metrics=["accuracy"])
    callback = keras.callbacks.LambdaCallback(on_train_batch_end=lambda batch, logs: after_step())
    net.fit(minibatches, epochs=num_epochs, shuffle=False, verbose=0, callbacks=[callback])


def own_loop(net, minibatches, num_epochs, lr, after_step):
    """Train with a loop of your own, which divides by the number of examples of all devices."""
    with strategy.scope():
        optimizer = keras.optimizers.SGD(lr)
        optimizer.build(net.trainable_variables)
        loss_fn = keras.losses.SparseCategoricalCrossentropy(from_logits=True, reduction="none")  # one loss per example

    def train_batch(X, y):
        n = tf.distribute.get_replica_context().all_reduce(tf.distribute.ReduceOp.SUM, tf.shape(y)[0])
        with tf.GradientTape() as tape:
            loss = tf.nn.compute_average_loss(loss_fn(y, net(X, training=True)), global_batch_size=n)
        grads = tape.gradient(loss, net.trainable_variables)
        optimizer.apply_gradients(zip(grads, net.trainable_variables, strict=True))  # adds those of all devices

    @tf.function
    def run(X, y):
        strategy.run(train_batch, args=(X, y))

    for _ in range(num_epochs):
        for X, y in strategy.experimental_distribute_dataset(minibatches):
            run(X, y)
            after_step()


def shards(minibatches):
    """Return how many examples of each minibatch each device gets."""
    dataset = strategy.experimental_distribute_dataset(minibatches)
    return [[len(part) for part in strategy.experimental_local_results(y)] for _, y in dataset]


def main(data, out):
    """Train twice from the same weights: with `fit`, and with a loop of its own."""
    weights = [data[f"weights_{i}"] for i in range(4)]
    keras.config.set_floatx(str(data["X"].dtype))
    num_epochs, lr = int(data["num_epochs"]), float(data["lr"])
    X = data["X"].transpose(0, 2, 3, 1)  # the channels last
    minibatches = tf.data.Dataset.from_tensor_slices((X, data["y"])).batch(int(data["batch_size"]))
    for name, train in (("fit", fit), ("a loop of its own", own_loop)):
        net, after = make_net(weights), []

        def after_step(net=net, after=after):
            copies = []
            for device in (0, 1):
                values = [strategy.experimental_local_results(v.value)[device] for v in net.trainable_variables]
                copies.append(np.concatenate([w.ravel() for w in to_pytorch(values)]))
            assert np.array_equal(*copies), "the devices have different weights"
            after.append(copies[0])

        train(net, minibatches, num_epochs, lr, after_step)
        out[f"after each step, {name}"] = np.stack(after)
        if name == "fit":
            out[f"accuracy, {name}"] = net.evaluate(minibatches, verbose=0)[1]
    out["shards of the last minibatch"] = shards(minibatches)[-1]
    out["version"] = f"tensorflow-cpu {tf.__version__}, keras {keras.__version__}, numpy {np.__version__}"


if __name__ == "__main__":
    result = {}
    main(np.load(sys.argv[1]), result)
    np.savez(sys.argv[2], **result)
