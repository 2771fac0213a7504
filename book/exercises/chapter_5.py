"""The exercises of chapter 5: a mean over ranks, gradients in buckets, seeds per rank, pieces of a minibatch."""

from collections.abc import Callable, Sequence
from typing import Any

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn

from d2lite.exercises import NEVER_ENDS, WORLD_SIZE, Exercise, Lockstep, Mistake, Unfit, errors_named

Params = Sequence[Any]  # tensors with gradients


def _summed(*numbers: float) -> list[float]:
    total = torch.tensor(numbers, dtype=torch.float64)
    dist.all_reduce(total)
    return total.tolist()


def _weighted_mean(my_mean: float, my_count: int) -> float:
    total, count = _summed(my_mean * my_count, my_count)
    return total / count


def _observe_mean(answer: Callable[..., Any], means: Sequence[float], counts: Sequence[int]) -> Any:
    """Return the mean that this rank is given; refuse more or fewer collectives than one."""
    rank, ranks = dist.get_rank(), Lockstep()
    mean = ranks.call(answer, means[rank], counts[rank])
    if ranks.num_collectives > 1:
        raise Unfit(
            f"it calls {ranks.num_collectives} collectives, and one is asked for.",
            "Each collective has its own latency. What has one tensor room for?",
        )
    if not ranks.num_collectives:
        raise Unfit(
            "it calls no collective of all ranks, and one is asked for.",
            "What has a rank that only the others need, and how does it get there?",
        )
    return mean.item() if isinstance(mean, torch.Tensor) and mean.numel() == 1 else mean


def _only_on_rank_0(my_mean: float, my_count: int) -> float | None:
    mean = _weighted_mean(my_mean, my_count)
    return mean if dist.get_rank() == 0 else None


def _reduced_to_rank_0(my_mean: float, my_count: int) -> float:
    total = torch.tensor([my_mean * my_count, my_count], dtype=torch.float64)
    dist.reduce(total, dst=0)
    return (total[0] / total[1]).item()


def _not_waited_for(my_mean: float, my_count: int) -> float:
    total = torch.tensor([my_mean * my_count, my_count], dtype=torch.float64)
    dist.all_reduce(total, async_op=True)
    return (total[0] / total[1]).item()


def _whole_numbers(my_mean: float, my_count: int) -> float:
    total = torch.tensor([int(my_mean * my_count), my_count])
    dist.all_reduce(total)
    return (total[0] / total[1]).item()


_SAME = "The result is asked for on every rank. Which collectives give all ranks a result, and which give it to one?"
MEAN = Exercise(
    name="5.1",
    title="A mean over all ranks, with one collective",
    solution=_weighted_mean,
    cases=lambda: {
        "30, 10 and 20 examples": ([1.0, 4.0, 2.5], [30, 10, 20]),
        "as many examples on each rank": ([1.0, 2.0, 6.0], [5, 5, 5]),
        "no example on rank 1": ([0.3, 0.0, -1.0], [8, 0, 24]),
        "one example on rank 0": ([3.0, -7.0, 0.25], [1, 100, 1000]),
        "a million examples": ([0.125, 0.5, 2.0], [1_000_000, 3_000_000, 7]),
    },
    mistakes=(
        Mistake(
            lambda mean, count: _summed(mean)[0] / dist.get_world_size(),
            "it is the mean of the ranks' means: a rank with one example counts as much as one with a thousand.",
            "A mean cannot be added to another mean. Which two numbers of a rank can be added?",
        ),
        Mistake(
            lambda mean, count: _summed(mean * count)[0],
            "it is the sum over all examples, not yet their mean.",
            "How many examples are there on all ranks together, and does a rank have that number?",
        ),
        Mistake(
            lambda mean, count: _summed(mean * count)[0] / dist.get_world_size(),
            "the sum over all examples is divided by the number of ranks.",
            "A mean over examples is divided by the number of examples.",
        ),
        Mistake(
            lambda mean, count: _summed(mean * count)[0] / count if count else 0.0,
            "the sum over all ranks is divided by this rank's own count.",
            "The sum and the count must be of the same examples.",
        ),
        Mistake(_only_on_rank_0, "only rank 0 has the result.", _SAME),
        Mistake(_reduced_to_rank_0, "only rank 0 has the result.", _SAME),
        Mistake(
            _not_waited_for,
            "the sums of the ranks do not arrive: the function does not wait for the collective.",
            "What does a collective with async_op=True return, and what has to be done with it?",
        ),
        Mistake(
            _whole_numbers,
            "the sum is rounded to a whole number before it is sent.",
            "Of which type are the numbers in your tensor, and is a sum of losses a whole number?",
        ),
        Mistake(
            lambda mean, count: _summed(mean * count, count) and None,
            "it returns nothing.",
            "A collective writes into its tensor and returns nothing, and so does a function without return.",
        ),
        NEVER_ENDS,
    ),
    think="Write down what rank 0 has before the collective and after it: means of 1 and 4, counts of 30 and 10.",
    observe=_observe_mean,
    world_size=WORLD_SIZE,
)


Finish = Callable[[], Any]
ROUNDS = 3


def _ddp(
    is_full: Callable[[Sequence[int], int], bool] = lambda sizes, bucket_size: sum(sizes) >= bucket_size,
    divisor: Callable[[], float] = dist.get_world_size,
    order: Callable[[Params], Params] = list,
    in_hooks: bool = True,
    empties: bool = True,
    sends_rest: bool = True,
    waits: bool = True,
    writes: bool = True,
    overlaps: bool = True,
    clears: bool = True,
) -> Callable[[Params, int], Finish]:
    """Return an answer, whose buckets are full where is_full(sizes of its gradients, bucket_size) says so."""

    def my_ddp(params: Params, bucket_size: int) -> Finish:
        bucket: list[Any] = []
        sent: list[tuple[Any, torch.Tensor, Params]] = []

        def send() -> None:
            together = torch.cat([param.grad.flatten() for param in bucket])
            handle = dist.all_reduce(together, async_op=True)
            if not overlaps:
                handle.wait()
            sent.append((handle, together, order(bucket)))
            if empties:
                bucket.clear()

        def hook(param: Any) -> None:
            bucket.append(param)
            if in_hooks and is_full([param.numel() for param in bucket], bucket_size):
                send()

        def finish() -> None:
            if bucket and sends_rest:
                send()
            for handle, together, members in sent:
                if waits:
                    handle.wait()
                for param, part in zip(members, together.split([param.numel() for param in members]), strict=True):
                    if writes:
                        param.grad.copy_(part.view_as(param) / divisor())
            if clears:
                sent.clear()
            bucket.clear()

        for param in params:
            param.register_post_accumulate_grad_hook(hook)
        return finish

    return my_ddp


def _never_too_large(params: Params, bucket_size: int) -> Finish:
    """An answer that sends a bucket before a gradient comes for which it has no room."""
    bucket: list[Any] = []
    sent: list[tuple[Any, torch.Tensor, Params]] = []

    def send() -> None:
        together = torch.cat([param.grad.flatten() for param in bucket])
        sent.append((dist.all_reduce(together, async_op=True), together, list(bucket)))
        bucket.clear()

    def hook(param: Any) -> None:
        if bucket and sum(p.numel() for p in bucket) + param.numel() > bucket_size:
            send()
        bucket.append(param)

    def finish() -> None:
        if bucket:
            send()
        for handle, together, members in sent:
            handle.wait()
            for param, part in zip(members, together.split([param.numel() for param in members]), strict=True):
                param.grad.copy_(part.view_as(param) / dist.get_world_size())
        sent.clear()

    for param in params:
        param.register_post_accumulate_grad_hook(hook)
    return finish


def _observe_ddp(answer: Callable[..., Any], shapes: Sequence[Sequence[int]], bucket_size: int) -> dict[str, Any]:
    """Return the gradients after three steps, and how many all-reduces had begun when each gradient was ready."""
    ranks = Lockstep()
    result: dict[str, Any] = ranks.call(_steps, answer, ranks, shapes, bucket_size)
    return result


def _steps(
    answer: Callable[..., Any], ranks: Lockstep, shapes: Sequence[Sequence[int]], bucket_size: int
) -> dict[str, Any]:
    rank = dist.get_rank()
    weight = 1.0 + rank**2  # on no rank the average over the ranks
    params: list[Any] = [torch.full(list(shape), weight, requires_grad=True) for shape in shapes]
    finish = answer(list(params), bucket_size)
    if not callable(finish):
        raise Unfit(
            "it returns no function, and finish() is asked for.", "A function may define another and return it."
        )
    num_begun: list[int] = []
    before = 0
    for param in params:  # after the hook of the answer
        param.register_post_accumulate_grad_hook(lambda param: num_begun.append(ranks.num_collectives - before))
    gradients, begun, in_all, waited, held = [], [], [], [], []
    for i in range(ROUNDS):
        before, pending = ranks.num_collectives, ranks.num_pending
        num_begun.clear()
        terms = [(torch.arange(p.numel()).view_as(p) + 10.0 * j + 3 * rank**2 + i) * p for j, p in enumerate(params)]
        with errors_named("a hook"):
            sum(term.sum() for term in terms).backward()
        begun.append(num_begun[:-1])  # the last bucket may be sent by its hook or by finish()
        waited.append(ranks.num_collectives - before != ranks.num_pending - pending)
        _finished(finish)
        in_all.append(ranks.num_collectives - before)
        held.append(ranks.num_held)
        gradients.append([param.grad if param.grad is None else param.grad.tolist() for param in params])
        for param in params:
            param.grad = None  # as zero_grad() does
    if any((param != weight).any() for param in params):
        raise Unfit(
            "it changes the parameters, and their gradients are to be averaged.",
            "The argument of a hook is the parameter. In which of its attributes is the gradient?",
        )
    return {
        "all-reduces begun as each gradient but the last is ready": begun,
        "all-reduces in a step": in_all,
        "gradients": gradients,
        "a hook waits": any(waited),
        "finish() waits for more handles in each step": held[-1] > held[-2],
    }


def _finished(finish: Finish) -> None:
    try:
        with errors_named("finish()"):
            finish()
    except Unfit as error:
        raise Unfit(error.wrong, _SAME_LIST if "split" in error.wrong or "zip" in error.wrong else "") from error


def _begun(observed: dict[str, Any]) -> Any:
    return observed["all-reduces begun as each gradient but the last is ready"]


def _sent(observed: dict[str, Any]) -> Any:
    return _begun(observed), observed["all-reduces in a step"]


def _waited(observed: dict[str, Any]) -> Any:
    return observed["a hook waits"]


def _grown(observed: dict[str, Any]) -> Any:
    return observed["finish() waits for more handles in each step"]


_SAME_LIST = "Print what finish() finds in its lists. Is a list that it reads the same object as one that was emptied?"
_BUCKET = (
    "Gradients of 3, 1, 2 and 1 numbers become ready, in this order, and 4 numbers fill a bucket. After each gradient: "
    "what is in the bucket, and what has been sent?"
)
DDP = Exercise(
    name="5.2",
    title="Write DDP: hooks, then buckets",
    solution=_ddp(),
    cases=lambda: {
        "3, 2 and 1 numbers, one number fills a bucket": ([[3], [2], [1]], 1),
        "2, 2, 1 and 3 numbers, four fill a bucket": ([[2], [2], [1], [3]], 4),
        "2, 3 and 2 numbers, four fill a bucket": ([[2], [3], [2]], 4),
        "matrices, five numbers fill a bucket": ([[2, 2], [2, 1], [1, 3], [1]], 5),
        "one bucket is not even full with all": ([[2, 2], [2]], 100),
    },
    mistakes=(
        Mistake(
            _ddp(is_full=lambda sizes, bucket_size: True),
            "it sends each gradient alone, whatever the size of a bucket is.",
            "Let the hook keep a list of what has come. Which of its calls sends, and what happens to the list then?",
            part=_sent,
        ),
        Mistake(
            _ddp(in_hooks=False),
            "nothing is sent before finish(), when the backward pass is over.",
            "A hook runs during the backward pass. What can it begin there?",
            part=_begun,
        ),
        Mistake(
            _ddp(is_full=lambda sizes, bucket_size: sum(sizes) > bucket_size),
            "a bucket that is exactly full is not sent.",
            _BUCKET,
            part=_sent,
        ),
        Mistake(
            _ddp(is_full=lambda sizes, bucket_size: len(sizes) >= bucket_size),
            "a bucket is said to be full by its number of gradients, and the numbers in them are to be counted.",
            _BUCKET,
            part=_sent,
        ),
        Mistake(
            _never_too_large,
            "a bucket is sent before it is full, when the next gradient has no room in it.",
            _BUCKET,
            part=_sent,
        ),
        Mistake(
            _ddp(empties=False),
            "a bucket is not emptied when it has been sent: its gradients are sent again.",
            "What does the next call of the hook find in the list?",
        ),
        Mistake(
            _ddp(sends_rest=False),
            "the last bucket is never sent if it is not full.",
            "Which gradients are still in the list after the backward pass?",
        ),
        Mistake(
            _ddp(divisor=lambda: 1),
            "the gradients are summed, and their average is asked for.",
            "dist.all_reduce adds unless it is told otherwise. Over how many ranks?",
        ),
        Mistake(
            _ddp(divisor=lambda: 2),
            "the sum is divided by 2, and this check runs on three ranks.",
            "The process group has the number of its ranks.",
        ),
        Mistake(
            _ddp(waits=False),
            "finish() does not wait until the sums have arrived.",
            "What does a collective with async_op=True return, and what has to be done with it?",
        ),
        Mistake(
            _ddp(writes=False),
            "the averages are in the buckets only: every .grad is what it was before.",
            "Does torch.cat share its memory with the small tensors?",
        ),
        Mistake(
            _ddp(order=lambda bucket: list(bucket)[::-1]),
            "the averages are given back in the reverse order, to other parameters.",
            "In which order did the hooks fill the bucket?",
        ),
        Mistake(
            _ddp(order=lambda bucket: bucket),
            "the gradients of a bucket are put away in the list that is emptied afterwards.",
            _SAME_LIST,
        ),
        Mistake(
            _ddp(overlaps=False),
            "a hook waits for its all-reduce, and the backward pass waits with it: nothing is computed meanwhile.",
            "Which call returns at once, and when is the sum needed?",
            part=_waited,
        ),
        Mistake(
            _ddp(clears=False),
            "what finish() has waited for stays in its list: time and memory grow with each step.",
            "How long are your lists after one step, and after a hundred?",
            part=_grown,
        ),
        NEVER_ENDS,
    ),
    think=_BUCKET,
    observe=_observe_ddp,
    world_size=WORLD_SIZE,
)


def _seeded_net(make_net: Callable[[], nn.Module], seed: int) -> nn.Module:
    torch.manual_seed(seed)
    net = make_net()
    torch.manual_seed(seed + 1 + dist.get_rank())
    return net


def _observe_seeds(answer: Callable[..., Any], width: int, seed: int) -> dict[str, bool]:
    """Return what holds for the networks of two runs with this seed and of one with another."""

    def make_net() -> nn.Module:
        return nn.Sequential(nn.Linear(width, 4), nn.Dropout(), nn.Linear(4, 2))

    runs = [_one_run(answer, make_net, s) for s in (seed, seed, seed + 1)]
    if any(weights is None for weights, _ in runs):
        raise Unfit("it does not return the network.", "make_net() makes it.")
    (weights, masks), (again, masks_again), (others, other_masks) = runs
    return {
        "same weights on all ranks": all(torch.equal(w, weights[0]) for w in weights),
        "other dropout on each rank": len({tuple(mask.tolist()) for mask in masks}) == len(masks),
        "the same in a second run": torch.equal(weights, again) and torch.equal(masks, masks_again),
        "other weights with another seed": not torch.equal(weights, others),
        "other dropout with another seed": not any(map(torch.equal, masks, other_masks)),
    }


def _one_run(answer: Callable[..., Any], make_net: Callable[[], nn.Module], seed: int) -> tuple[Any, torch.Tensor]:
    """Return the weights [ranks, ...], or None if it is no such network, and the dropout masks [ranks, 64]."""
    expected = _weights(make_net())
    torch.seed()  # as in a new process: other random numbers on each rank and in each run
    net = Lockstep().call(answer, make_net, seed)
    mine = _weights(net) if isinstance(net, nn.Module) else torch.zeros(0)
    is_net = mine.shape == expected.shape
    weights, masks = (_of_all_ranks(x) for x in (mine if is_net else expected, F.dropout(torch.ones(64))))
    return weights if is_net else None, masks


def _weights(net: nn.Module) -> torch.Tensor:
    return torch.cat([torch.zeros(0), *(p.detach().flatten() for p in net.parameters())])


def _of_all_ranks(mine: torch.Tensor) -> torch.Tensor:
    all_of_them = [torch.empty_like(mine) for _ in range(dist.get_world_size())]
    dist.all_gather(all_of_them, mine)
    return torch.stack(all_of_them)


def _seeds(before: Callable[[int], Any], after: Callable[[int], Any]) -> Callable[..., nn.Module]:
    def answer(make_net: Callable[[], nn.Module], seed: int) -> nn.Module:
        before(seed)
        net = make_net()
        after(seed)
        return net

    return answer


def _by_rank(seed: int) -> None:
    torch.manual_seed(seed + dist.get_rank())


_APART = "Random numbers come from the generator in the order in which they are asked for. Who asks first, who later?"
SEEDS = Exercise(
    name="5.3",
    title="The same weights on all ranks, other dropout on each",
    solution=_seeded_net,
    cases=lambda: {f"seed {seed}, {width} inputs": (width, seed) for seed, width in ((0, 3), (1, 2), (12345, 5))},
    mistakes=(
        Mistake(
            _seeds(torch.manual_seed, lambda seed: None),
            "dropout leaves out the same units on every rank.",
            _APART,
        ),
        Mistake(_seeds(_by_rank, lambda seed: None), "the ranks begin with different weights.", _APART),
        Mistake(
            _seeds(lambda seed: torch.manual_seed(0), lambda seed: torch.manual_seed(1 + dist.get_rank())),
            "the seed is not used: another seed gives the same weights.",
            "A second experiment must be able to begin with other weights.",
        ),
        Mistake(
            _seeds(torch.manual_seed, lambda seed: torch.seed()),
            "a second run with the same seed leaves out other units.",
            "Let the numbers after the weights depend on the seed as well.",
        ),
        Mistake(
            _seeds(lambda seed: None, lambda seed: None),
            "nothing depends on the seed: the ranks begin with different weights, and a second run with others again.",
            _APART,
        ),
        Mistake(
            _seeds(torch.manual_seed, lambda seed: torch.manual_seed(dist.get_rank())),
            "with a different seed at least one rank leaves out the same units as before.",
            "A rank has its number, and the run has its seed. On which of them do its random numbers depend?",
        ),
        Mistake(
            _seeds(torch.manual_seed, lambda seed: torch.manual_seed(seed * dist.get_rank())),
            "with seed 0 dropout leaves out the same units on every rank.",
            "Write down the seed of each rank after the weights, for seed 0.",
        ),
        NEVER_ENDS,
    ),
    think=_APART,
    observe=_observe_seeds,
    world_size=WORLD_SIZE,
)


def _mean_is_right(piece_size: int, num_examples: int) -> bool:
    return piece_size >= num_examples or num_examples % piece_size == 0


_COUNT = "Write down the sizes of the pieces: 10 examples in pieces of 5, of 4, of 10 and of 16."
PIECES = Exercise(
    name="5.4",
    title="When is a mean of means right?",
    solution=_mean_is_right,
    cases=lambda: {
        f"pieces of {p}, {n} examples": (p, n)
        for p, n in ((16, 40), (20, 40), (40, 40), (64, 40), (1, 7), (3, 7), (7, 1), (2, 3), (8, 12))
    },
    mistakes=(
        Mistake(
            lambda p, n: n % p == 0,
            "one piece that holds all examples is said to be wrong where it has room for more.",
            _COUNT,
        ),
        Mistake(lambda p, n: p >= n, "several pieces of one size are said to be wrong.", _COUNT),
        Mistake(lambda p, n: p <= n, "several pieces of different sizes are said to be right.", _COUNT),
        Mistake(lambda p, n: p == n, "it is said to be right only for one piece that is exactly full.", _COUNT),
        Mistake(
            lambda p, n: p % n == 0 or n % p == 0,
            "one piece that holds all examples is said to be wrong where it has room for more.",
            _COUNT,
        ),
        Mistake(
            lambda p, n: n % p != 0 and p < n,
            "True and False are exchanged.",
            "True stands for: the mean of means is right.",
        ),
        Mistake(
            lambda p, n: n % 2 == p % 2 or p == 1,
            "whether both numbers are even does not decide it.",
            _COUNT,
        ),
    ),
    think=_COUNT,
    observe=lambda answer, *args: bool(result) if isinstance(result := answer(*args), int) else result,
)
