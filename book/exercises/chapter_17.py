"""The exercises of chapter 17: attention over keys on several ranks, and tokens that go to their experts."""

from collections.abc import Callable, Sequence
from typing import Any

import torch
import torch.distributed as dist

from d2lite.exercises import NEVER_ENDS, WORLD_SIZE, Exercise, Lockstep, Mistake, Unfit

Change = Callable[[torch.Tensor], torch.Tensor]
Factor = Callable[[torch.Tensor, torch.Tensor], torch.Tensor]


def _same(tensor: torch.Tensor) -> torch.Tensor:
    return tensor


def _all_reduced(tensor: torch.Tensor, op: Any = dist.ReduceOp.SUM) -> torch.Tensor:
    total = tensor.clone()
    dist.all_reduce(total, op=op)
    return total


def _shrunk(largest: torch.Tensor, top: torch.Tensor) -> torch.Tensor:
    return (largest - top).exp()


def _grown(largest: torch.Tensor, top: torch.Tensor) -> torch.Tensor:
    return (top - largest).exp()


def _ones(largest: torch.Tensor, top: torch.Tensor) -> torch.Tensor:
    return torch.ones_like(largest)


def _uncut(largest: torch.Tensor, top: torch.Tensor) -> torch.Tensor:
    return largest.exp()


def _join(
    of_total: Factor = _shrunk,
    of_out: Factor = _shrunk,
    add_total: Change = _all_reduced,
    divide: bool = True,
) -> Callable[..., Any]:
    """Return an answer; by default the right one."""

    def join_attention(largest: torch.Tensor, total: torch.Tensor, out: torch.Tensor) -> torch.Tensor:
        top = _all_reduced(largest, dist.ReduceOp.MAX)
        total = add_total(total * of_total(largest, top))
        out = _all_reduced(out * of_out(largest, top)[:, None])
        return out / total[:, None] if divide else out

    return join_attention


def _own_mean(largest: torch.Tensor, total: torch.Tensor, out: torch.Tensor) -> torch.Tensor:
    return out / total[:, None]


def _mean_of_means(largest: torch.Tensor, total: torch.Tensor, out: torch.Tensor) -> torch.Tensor:
    return _all_reduced(out / total[:, None]) / dist.get_world_size()


def _of_the_highest(largest: torch.Tensor, total: torch.Tensor, out: torch.Tensor) -> torch.Tensor:
    top = _all_reduced(largest, dist.ReduceOp.MAX)
    is_top = (largest == top).to(out.dtype)
    return _all_reduced(out * is_top[:, None]) / _all_reduced(total * is_top)[:, None]


def _observe_join(answer: Callable[..., Any], n: int, keys: int, d: int, scale: float, seed: int) -> Any:
    """Return the attention of n queries over keys of which each rank has a part, with scores of the size `scale`."""
    generator = torch.Generator().manual_seed(seed)
    scores = scale * torch.randn(n, keys, dtype=torch.float64, generator=generator)
    values = torch.randn(keys, d, dtype=torch.float64, generator=generator)
    k, rank = dist.get_world_size(), dist.get_rank()
    scores, values = scores.tensor_split(k, 1)[rank], values.tensor_split(k)[rank]
    largest = scores.amax(1)
    weights = (scores - largest[:, None]).exp()
    result = Lockstep().call(answer, largest, weights.sum(1), weights @ values)
    return None if result is None else result.tolist()


_TWO_MAXIMA = (
    "A rank has subtracted its own largest score before `exp`. With the largest scores 1 and 3, by which number must "
    "the sums of each rank be multiplied, as if all had subtracted 3?"
)
JOIN = Exercise(
    name="17.1",
    title="Attention over keys that lie on several ranks",
    solution=_join(),
    cases=lambda: {
        "one query, two keys for each rank": (1, 6, 2, 1.0, 0),
        "four queries, seven keys": (4, 7, 3, 2.0, 1),
        "small scores": (2, 9, 2, 0.1, 2),
        "large scores": (3, 6, 2, 30.0, 3),
        "very large scores": (3, 8, 4, 900.0, 4),
    },
    mistakes=(
        Mistake(
            _join(of_total=_ones, of_out=_ones),
            "the sums of the ranks are added as they are, and each rank has subtracted another maximum.",
            _TWO_MAXIMA,
        ),
        Mistake(
            _join(of_total=_ones),
            "`out` belongs to the common maximum, and `total` still to those of the ranks.",
            _TWO_MAXIMA,
        ),
        Mistake(
            _join(of_out=_ones),
            "`total` belongs to the common maximum, and `out` still to those of the ranks.",
            _TWO_MAXIMA,
        ),
        Mistake(
            _join(of_total=_grown, of_out=_grown),
            "the factor is upside down: a rank with smaller scores counts more.",
            _TWO_MAXIMA,
        ),
        Mistake(
            _join(of_total=_uncut, of_out=_uncut),
            "the sums are multiplied by exp(largest), which overflows for large scores.",
            "exp(800) is no number of 64 bits. Which exponents are never larger than 0?",
        ),
        Mistake(
            _join(add_total=_same),
            "the weighted values of all ranks are divided by the total of one.",
            "The numerator is a sum over all keys. Over which keys does the denominator go?",
        ),
        Mistake(
            _join(divide=False),
            "the weighted sum is not divided by the sum of the weights.",
            "What do the weights of a mean add up to?",
        ),
        Mistake(
            _own_mean,
            "each rank returns the attention over its own keys.",
            "Each rank has some of the keys. Which of your numbers come from other ranks?",
        ),
        Mistake(
            _mean_of_means,
            "the ranks' means are averaged, as if each rank's keys had the same weight.",
            "Two ranks have the means 0 and 1, and the keys of the second have hardly any weight. What is the mean of "
            "all?",
        ),
        Mistake(
            _of_the_highest,
            "only the rank with the largest score counts.",
            "One rank has the largest score 3, another one 2.9. Has the second one no weight?",
        ),
        NEVER_ENDS,
    ),
    think="Write the result as a fraction of two sums over all keys. What must a rank do with its own two sums first?",
    observe=_observe_join,
    world_size=WORLD_SIZE,
)


def _exchange(rows: torch.Tensor, sent: torch.Tensor, received: torch.Tensor) -> torch.Tensor:
    """Send each rank its number of rows, and return those that have come."""
    result = rows.new_empty(int(received.sum()), *rows.shape[1:])
    dist.all_to_all_single(result, rows.contiguous(), received.tolist(), sent.tolist())
    return result


def _counts(sent: torch.Tensor) -> torch.Tensor:
    received = torch.empty_like(sent)
    dist.all_to_all_single(received, sent)
    return received


def _all_experts(apply_expert: Callable[..., Any], tokens: torch.Tensor, expert: torch.Tensor) -> torch.Tensor:
    results = torch.zeros_like(tokens)
    for e in expert.unique().tolist():
        results[expert == e] = apply_expert(e, tokens[expert == e])
    return results


def _expert_of_rank(apply_expert: Callable[..., Any], tokens: torch.Tensor, expert: torch.Tensor) -> torch.Tensor:
    return apply_expert(dist.get_rank(), tokens)


def _in_order(order: torch.Tensor, rows: torch.Tensor) -> torch.Tensor:
    return rows[order.argsort()]


def _route(
    home: Change = lambda expert: expert % dist.get_world_size(),
    sort: Change = lambda ranks: ranks.argsort(stable=True),
    exchange_counts: Change = _counts,
    apply_all: Callable[..., torch.Tensor] = _all_experts,
    send_back: bool = True,
    unsort: Callable[[torch.Tensor, torch.Tensor], torch.Tensor] = _in_order,
) -> Callable[..., Any]:
    """Return an answer; by default the right one."""

    def route(tokens: torch.Tensor, expert: torch.Tensor, apply_expert: Callable[..., Any]) -> Any:
        ranks = home(expert)
        order = sort(ranks)
        sent = ranks.bincount(minlength=dist.get_world_size())
        received = exchange_counts(sent)
        here = _exchange(tokens[order], sent, received)
        results = apply_all(apply_expert, here, _exchange(expert[order], sent, received))
        return unsort(order, _exchange(results, received, sent)) if send_back else results

    return route


def _equal_splits(tokens: torch.Tensor, expert: torch.Tensor, apply_expert: Callable[..., Any]) -> Any:
    order = (expert % dist.get_world_size()).argsort(stable=True)
    here, which, back = torch.empty_like(tokens), torch.empty_like(expert), torch.empty_like(tokens)
    dist.all_to_all_single(here, tokens[order])
    dist.all_to_all_single(which, expert[order])
    dist.all_to_all_single(back, _all_experts(apply_expert, here, which))
    return back[order.argsort()]


def _with_capacity(most: int) -> Callable[..., Any]:
    """Return an answer in which a rank sends an expert `most` of its tokens; the others get zeros."""

    def route(tokens: torch.Tensor, expert: torch.Tensor, apply_expert: Callable[..., Any]) -> Any:
        earlier = torch.stack([(expert[:i] == e).sum() for i, e in enumerate(expert)]) if len(expert) else expert
        stays = earlier < most
        results = torch.zeros_like(tokens)
        results[stays] = _route()(tokens[stays], expert[stays], apply_expert)
        return results

    return route


def _observe_route(answer: Callable[..., Any], experts: Sequence[Sequence[int]], width: int) -> Any:
    """Return the results of this rank's tokens, and how many tokens each expert on this rank has got."""
    rank, k = dist.get_rank(), dist.get_world_size()
    expert = torch.tensor(experts[rank], dtype=torch.int64)
    tokens = torch.arange(1.0, 1 + len(expert) * width, dtype=torch.float64).view(-1, width) + 100 * rank
    counts: dict[int, int] = {}

    def apply_expert(e: int, tokens: torch.Tensor) -> torch.Tensor:
        counts[int(e)] = counts.get(int(e), 0) + len(tokens)
        return tokens * (2 + int(e)) - 7 * int(e)

    result = Lockstep().call(answer, tokens, expert, apply_expert)
    if result is None:
        return None
    strangers = sorted(e for e, n in counts.items() if n and e % k != rank)
    if strangers:
        named = " and ".join(f"expert {e}, which lives on rank {e % k}" for e in strangers)
        raise Unfit(f"rank {rank} calls {named}.", _HOME)
    return {"the results": result.tolist(), "tokens per expert": sorted([e, n] for e, n in counts.items() if n)}


_HOME = (
    "Only the rank of an expert has its weights. Write down for each rank which tokens it sends to rank 0, to rank 1 "
    "and to rank 2: in which order do they have to lie in the tensor that it sends?"
)
_THERE_AND_BACK = (
    "Follow one token: to which place does the sorting move it, on which rank does it arrive, and how does its result "
    "come back to the place where the token was?"
)
ROUTE = Exercise(
    name="17.2",
    title="Send tokens to their experts, and back",
    solution=_route(),
    cases=lambda: {
        "one expert per rank": ([[2, 0, 1, 0], [1, 1, 2], [0, 2, 2, 1, 0]], 2),
        "eight experts on three ranks": ([[7, 3, 0, 5, 4], [2, 6, 1, 1, 0, 3], [4, 4, 7, 5]], 3),
        "all tokens to the experts of rank 1": ([[1, 4, 1], [4, 1], [4, 4, 1, 1]], 2),
        "one expert gets most tokens": ([[1, 1, 0, 1, 1, 1], [1, 1, 1, 2, 1], [0, 1, 1, 1, 1]], 2),
        "no tokens on rank 2": ([[5, 0, 4, 1], [3, 2, 0], []], 1),
        "as many tokens on each rank": ([[0, 4, 2, 1, 5, 3], [5, 4, 3, 2, 1, 0], [2, 0, 4, 0, 3, 5]], 2),
    },
    mistakes=(
        Mistake(
            _route(unsort=lambda order, rows: rows),
            "the results are in the order in which the tokens were sent, and not in that of `tokens`.",
            _THERE_AND_BACK,
        ),
        Mistake(
            _route(unsort=lambda order, rows: rows[order]),
            "the results are sorted a second time, where the sorting is to be undone.",
            "With order = [2, 0, 1], the first row that is sent is token 2. To which place does the first row that "
            "comes back belong?",
        ),
        Mistake(
            _route(exchange_counts=_same),
            "a rank expects from each rank as many tokens as it sends there.",
            "How many tokens rank 0 sends to rank 1, only rank 0 knows. How does rank 1 learn it beforehand?",
        ),
        Mistake(
            _equal_splits,
            "every rank gets equally many tokens from each other rank, whatever their experts are.",
            "Without split sizes all_to_all_single cuts a tensor into equal parts. How many tokens does your rank have "
            "for each of the others?",
        ),
        Mistake(
            _route(sort=lambda ranks: torch.arange(len(ranks))),
            "the tokens are sent in the order in which they lie, so that tokens arrive on a rank that has not their "
            "expert.",
            _HOME,
        ),
        Mistake(
            _route(home=lambda expert: expert.div(3, rounding_mode="floor").clamp(max=dist.get_world_size() - 1)),
            "experts are looked for in blocks of three, and expert e lives on rank e % k.",
            "On which rank does expert 3 live, with three ranks? To which one do you send its tokens?",
        ),
        Mistake(
            _route(apply_all=_expert_of_rank),
            "all tokens that arrive on a rank go through one expert.",
            "With eight experts on three ranks, rank 0 has three of them. How does it learn which of them a token is "
            "for?",
        ),
        Mistake(
            _route(send_back=False),
            "it returns the results of the tokens that have arrived, and not those of its own tokens.",
            "Whose tokens are these? Which call sends their results to the rank that waits for them?",
        ),
        Mistake(
            lambda tokens, expert, apply_expert: _all_experts(apply_expert, tokens, expert),
            "each rank calls all experts itself, for its own tokens. Nothing is sent.",
            "Which ranks have the weights of expert 1?",
        ),
        Mistake(
            _with_capacity(2),
            "where a rank has more than two tokens for an expert, the others get no result.",
            "How many tokens may go to one expert? Which part of your code counts them?",
        ),
        Mistake(
            lambda tokens, expert, apply_expert: tokens,
            "the tokens come back as they were: no expert is called.",
            _THERE_AND_BACK,
        ),
        NEVER_ENDS,
    ),
    think=_THERE_AND_BACK,
    observe=_observe_route,
    world_size=WORLD_SIZE,
)
