"""The exercises of chapter 2: an all-reduce for the mean, the accuracy on several devices, batches of k*b and lr."""

import functools
import inspect
from collections.abc import Callable, Iterator, Sequence
from operator import itemgetter
from types import CodeType
from typing import Any

import torch

from d2lite import lenet, lenet_params, parallel_apply
from d2lite.exercises import Exercise, Mistake, PretendDevices, Unfit
from d2lite.training import replicate, split_batch

Tensors = list[torch.Tensor]
GIVEN = {"all_reduce", "all_reduce_naive"}  # the functions that exercise 1 asks to do without


def _names_in(code: CodeType) -> Iterator[str]:
    """Yield the global names and attributes that a function uses, those of functions inside it included."""
    yield from code.co_names
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from _names_in(constant)


def _observe_in_place(answer: Callable[..., Any], shape: Sequence[int], k: int) -> dict[str, Any]:
    """Call an answer with k tensors, and return what is in them afterwards, in their own memory.

    An answer that is right is called again with tensors on k devices. Raises Unfit if an operation has tensors of two
    devices, or if the answer uses an all-reduce that is already there.
    """
    code = getattr(inspect.unwrap(answer), "__code__", None)
    if code is not None and (used := GIVEN.intersection(_names_in(code))):
        raise Unfit(
            f"it uses {' and '.join(sorted(used))}, and the exercise is to write an all-reduce without it.",
            "Which operations of PyTorch add a tensor, divide it, and write into it?",
        )
    generator = torch.Generator().manual_seed(k)
    tensors = [torch.randint(-50, 50, tuple(shape), generator=generator).double().T for _ in range(k)]
    places, mean = [tensor.data_ptr() for tensor in tensors], torch.stack(tensors).mean(0)
    answer(list(tensors))  # what it returns does not matter: in place is asked
    are_own = [tensor.data_ptr() for tensor in tensors] == places
    # with one tensor an answer that does nothing is right, too
    if k > 1 and mean.numel() and are_own and all(torch.allclose(tensor.detach(), mean) for tensor in tensors):
        pretend = PretendDevices(lambda *_: None)
        try:
            answer([pretend.put(tensor.clone(), i) for i, tensor in enumerate(tensors)])
        except Unfit:
            raise
        except Exception:  # an operation that a PretendTensor does not support says nothing about the answer
            pass
    return {
        "numbers": [tensor.detach().clone() for tensor in tensors],
        "in their own memory": are_own,
    }


def _all_reduce_mean(tensors: Tensors) -> None:
    mean = torch.stack([tensor.to(tensors[0].device) for tensor in tensors]).mean(0)
    for tensor in tensors:
        tensor.copy_(mean)


def _nothing_in_place(tensors: Tensors) -> Tensors:
    mean = torch.stack(list(tensors)).mean(0)
    return [mean.clone() for _ in tensors]


def _sum_in_place(tensors: Tensors) -> None:
    total = torch.stack(list(tensors)).sum(0)
    for tensor in tensors:
        tensor.copy_(total)


def _reduce_only(tensors: Tensors) -> None:
    tensors[0].copy_(torch.stack(list(tensors)).mean(0))


def _first_not_divided(tensors: Tensors) -> None:
    total = torch.stack(list(tensors)).sum(0)
    for tensor in tensors[1:]:
        tensor.copy_(total / len(tensors))
    tensors[0].copy_(total)


def _divided_late(tensors: Tensors) -> None:
    _sum_in_place(tensors)
    tensors[0].div_(len(tensors))


def _read_after_write(tensors: Tensors) -> None:
    for tensor in tensors:
        tensor.copy_(torch.stack(list(tensors)).mean(0))


def _divided_and_not_sent(tensors: Tensors) -> None:
    tensors[0].copy_(torch.stack(list(tensors)).sum(0))
    for tensor in tensors:
        tensor.div_(len(tensors))


def _running_mean(tensors: Tensors) -> None:
    mean = tensors[0].clone()
    for tensor in tensors[1:]:
        mean = (mean + tensor) / 2
    for tensor in tensors:
        tensor.copy_(mean)


def _one_memory(tensors: Tensors) -> None:
    mean = torch.stack(list(tensors)).mean(0)
    for tensor in tensors:
        tensor.data = mean


MEAN = Exercise(
    name="2.1",
    title="An all-reduce for the mean, in place",
    solution=_all_reduce_mean,
    cases=lambda: {
        f"{k} tensor{'s' if k > 1 else ''} of shape {list(shape)}": (shape, k)
        for shape, k in (((2, 1), 3), ((3, 2), 2), ((1, 1), 1), ((2, 3), 5), ((0, 4), 2))
    },
    observe=_observe_in_place,
    mistakes=(
        Mistake(
            _nothing_in_place,
            "the tensors that it was given still hold their old numbers: new ones were made.",
            "copy_ and += write into a tensor that exists. What does tensors[i] = ... change?",
        ),
        Mistake(
            _sum_in_place,
            "the tensors hold the sum, and the mean is asked for.",
            "By which number is a sum divided to give the mean?",
        ),
        Mistake(
            _reduce_only,
            "only the first tensor has the mean: that is a reduce.",
            "An all-reduce has a second half. What must still be sent, and where to?",
        ),
        Mistake(
            _divided_late,
            "only the first tensor has the mean, the others have the sum.",
            "Look at the order: what is copied to the others, and when is it divided?",
        ),
        Mistake(
            _first_not_divided,
            "the first tensor has the sum, the others have the mean.",
            "Which tensors are divided, and which are written?",
        ),
        Mistake(
            _read_after_write,
            "tensors that were already written are read again, so each mean differs from the one before.",
            "Read everything before you write anything, or add in a tensor that nobody else reads.",
        ),
        Mistake(
            _divided_and_not_sent,
            "the first tensor has the mean, and the others still hold their own numbers, divided.",
            "What must the others receive before or after the division?",
        ),
        Mistake(
            _running_mean,
            "the mean of a mean and the next tensor does not count all tensors the same.",
            "Add all of them first. How often is divided then?",
        ),
        Mistake(
            _one_memory,
            "the mean is in new memory: what still uses the tensors' old memory, such as a view, does not get it.",
            "copy_ writes numbers into a tensor's own memory. What does tensor.data = ... do?",
        ),
    ),
    think="Take two tensors, 1 and 3, and write down what both hold after each line. Which lines write, and where?",
)


def _count_right(X: torch.Tensor, y: torch.Tensor, params: Sequence[torch.Tensor]) -> int:
    with torch.no_grad():
        return int((lenet(X, params).argmax(1) == y).sum())


def _counts(X: Any, y: Any, device_params: Any, devices: Any) -> tuple[list[int], list[int]]:
    """Return the number of right answers and of examples of each shard."""
    X_shards, y_shards = split_batch(X, y, devices)
    counts = parallel_apply(_count_right, devices, X_shards, y_shards, device_params)
    return counts, [len(shard) for shard in y_shards]


def _accuracy_on_devices(X: Any, y: Any, device_params: Any, devices: Any) -> float:
    return sum(_counts(X, y, device_params, devices)[0]) / len(y)


def _mean_of_fractions(X: Any, y: Any, device_params: Any, devices: Any) -> float:
    return sum(c / n for c, n in zip(*_counts(X, y, device_params, devices), strict=True)) / len(devices)


def _sum_of_fractions(X: Any, y: Any, device_params: Any, devices: Any) -> float:
    return sum(c / n for c, n in zip(*_counts(X, y, device_params, devices), strict=True))


def _all_see_all(X: Any, y: Any, device_params: Any, devices: Any) -> float:
    return sum(_count_right(X, y, params) for params in device_params) / (len(devices) * len(y))


def _observe_accuracy(answer: Callable[..., Any], n: int, k: int) -> Any:
    """Call an answer with replicas that differ, so that it matters which of them has which examples.

    The first examples are mostly right and the last ones mostly wrong: shards differ in their accuracies.
    """
    X, y, device_params = _different_replicas(n, k)
    return answer(X.clone(), y.clone(), list(device_params), [torch.device("cpu")] * k)


@functools.cache
def _different_replicas(n: int, k: int) -> tuple[torch.Tensor, torch.Tensor, list[Tensors]]:
    generator = torch.Generator().manual_seed(100 * n + k)
    X = torch.rand(n, 1, 28, 28, generator=generator)
    device_params = [replicate(lenet_params(seed), [torch.device("cpu")])[0] for seed in range(k)]
    with torch.no_grad():
        shards = zip(X.tensor_split(k), device_params, strict=True)
        predicted = torch.cat([lenet(shard, params).argmax(1) for shard, params in shards])
    is_right = torch.rand(n, generator=generator) < torch.linspace(1, 0.2, n)
    return X, torch.where(is_right, predicted, (predicted + 1) % 10), device_params


ACCURACY = Exercise(
    name="2.2",
    title="Test accuracy on several devices",
    solution=_accuracy_on_devices,
    cases=lambda: {
        f"{n} examples on {k} device{'s' if k > 1 else ''}": (n, k) for n, k in ((13, 3), (7, 3), (10, 4), (4, 1))
    },
    observe=_observe_accuracy,
    mistakes=(
        Mistake(
            _mean_of_fractions,
            "the accuracies of the shards are averaged, and the shards differ in size.",
            "What can be added over shards of any size, a number of right answers or a fraction?",
        ),
        Mistake(
            _sum_of_fractions,
            "the accuracies of the shards are added: the result can be above 1.",
            "What can be added over shards of any size, a number of right answers or a fraction?",
        ),
        Mistake(
            lambda X, y, device_params, devices: sum(_counts(X, y, device_params, devices)[0]),
            "it is the number of right answers, and the fraction is asked for.",
            "By which number is a count divided to give an accuracy?",
        ),
        Mistake(
            lambda X, y, device_params, devices: sum(_counts(X, y, device_params, devices)[0]) / len(devices),
            "the number of right answers is divided by the number of devices.",
            "An accuracy is a fraction of examples. How many examples are there in all?",
        ),
        Mistake(
            lambda X, y, device_params, devices: _counts(X, y, device_params, devices)[0][0] / len(y),
            "only the right answers of the first shard are counted.",
            "parallel_apply returns one result for each replica.",
        ),
        Mistake(
            lambda X, y, device_params, devices: _mean_of_fractions(X, y, device_params[:1], devices[:1]),
            "the first replica computes all shards, and the other replicas compute nothing.",
            "split_batch gives each device its examples. Which replica reads which shard?",
        ),
        Mistake(
            _all_see_all,
            "every replica computes the complete minibatch: that takes as long as one device.",
            "split_batch gives each device its examples. Which replica reads which shard?",
        ),
        Mistake(
            lambda X, y, device_params, devices: _accuracy_on_devices(X, y, device_params[::-1], devices),
            "the shards and the replicas do not belong together: shard i is for replica i.",
            "Look at the order in which parameters and shards are passed on.",
        ),
    ),
    think="Take shards of 3 and 1 examples with 3 and 0 right answers. What is the accuracy, and what does each know?",
    limit_s=20.0,
)


_DISTANCE = (
    "With a batch k times as large an epoch has fewer steps. If the gradient hardly changes, how long "
    "must each step be for an epoch to go equally far?"
)


SETTINGS = Exercise(
    name="2.3",
    title="Batch size and learning rate for k devices",
    solution=lambda k, batch_size, lr: (k * batch_size, k * lr),
    cases=lambda: {
        f"{k} device{'s' if k > 1 else ''}; one had batches of {b} and lr {lr}": (k, b, lr)
        for k, b, lr in ((1, 256, 0.2), (2, 256, 0.2), (4, 128, 0.1), (8, 32, 0.05), (3, 100, 0.3))
    },
    mistakes=(
        Mistake(
            lambda k, b, lr: (k * lr, k * b),
            "the two numbers are in the wrong order.",
            "The first is the batch size of all devices together, the second the learning rate.",
        ),
        Mistake(
            lambda k, b, lr: (b, None),
            "the minibatch of all devices is only as large as for one device, so each device has less work per step.",
            "How many examples does each of k devices get from a minibatch?",
            part=itemgetter(0),
        ),
        Mistake(
            lambda k, b, lr: (b // k, None),
            "the minibatch is smaller than for one device: it is cut once more among the devices.",
            "How many examples does each of k devices get from a minibatch?",
            part=itemgetter(0),
        ),
        Mistake(
            lambda k, b, lr: (None, lr),
            "the learning rate is the same as for one device: an epoch has fewer steps, each as short as before.",
            _DISTANCE,
            part=itemgetter(1),
        ),
        Mistake(
            lambda k, b, lr: (None, lr * k**0.5),
            "the learning rate grows with the square root of k. That keeps the noise of a step, not the distance.",
            _DISTANCE,
            part=itemgetter(1),
        ),
        Mistake(
            lambda k, b, lr: (None, lr / k),
            "the learning rate falls with k: an epoch has fewer steps, and each step is also shorter.",
            _DISTANCE,
            part=itemgetter(1),
        ),
        Mistake(
            lambda k, b, lr: (None, lr * k * k),
            "the learning rate is multiplied by k * k: the larger batch is counted twice.",
            _DISTANCE,
            part=itemgetter(1),
        ),
        Mistake(
            lambda k, b, lr: (None, 2 * lr),
            "the learning rate is doubled for every k.",
            _DISTANCE,
            part=itemgetter(1),
        ),
    ),
    think=_DISTANCE,
)
