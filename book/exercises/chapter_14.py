"""The exercises of chapter 14: a row-parallel layer with its backward pass, and tokens that go to their experts."""

from collections.abc import Callable, Sequence
from typing import Any

import torch
import torch.distributed as dist

from d2lite.exercises import NEVER_ENDS, WORLD_SIZE, Exercise, Lockstep, Mistake, Unfit

Change = Callable[[torch.Tensor], torch.Tensor]
OUTPUTS = "Y", "grad_X", "grad_weight", "grad_bias"


def _same(tensor: torch.Tensor) -> torch.Tensor:
    return tensor


def _summed(tensor: torch.Tensor) -> torch.Tensor:
    total = tensor.clone()
    dist.all_reduce(total)
    return total


def _averaged(tensor: torch.Tensor) -> torch.Tensor:
    return _summed(tensor) / dist.get_world_size()


def _row_parallel(
    add_up: Change = _summed,
    early_bias: bool = False,
    late_bias: bool = True,
    of_loss: Change = _same,
    of_X: Change = _same,
    of_weight: Change = _same,
    of_bias: Change = lambda grad_Y: grad_Y.sum(0),
) -> Callable[..., Any]:
    """Return an answer; by default the right one."""

    def row_parallel(X: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor, grad_Y: torch.Tensor) -> Any:
        Y = add_up(X @ weight.T + bias * early_bias) + bias * late_bias
        grad_Y = of_loss(grad_Y)
        return Y, of_X(grad_Y @ weight), of_weight(grad_Y.T @ X), of_bias(grad_Y)

    return row_parallel


def _observe_row_parallel(answer: Callable[..., Any], b: int, inputs: int, outputs: int, seed: int) -> Any:
    """Return what this rank is given, by name, for a layer of random numbers."""
    generator = torch.Generator().manual_seed(seed)
    shapes = (b, inputs), (outputs, inputs), (outputs,), (b, outputs)
    X, weight, bias, grad_Y = (torch.randn(shape, dtype=torch.float64, generator=generator) for shape in shapes)
    mine = [whole.tensor_split(dist.get_world_size(), 1)[dist.get_rank()].clone() for whole in (X, weight)]
    result = Lockstep().call(answer, *mine, bias, grad_Y)
    if result is None:
        return None
    if not isinstance(result, (tuple, list)) or len(result) != len(OUTPUTS):
        raise Unfit("it does not return four tensors.", f"The result is a tuple: {', '.join(OUTPUTS)}.")
    return {name: tensor.tolist() for name, tensor in zip(OUTPUTS, result, strict=True)}


def _output(name: str) -> Callable[[Any], Any]:
    return lambda result: result[name]


_FOLLOW = (
    "Write down the shapes of all tensors. Which of them are the same on all ranks, of which does a rank have a part, "
    "and which one is a sum over the ranks?"
)
_OWN_PART = (
    "How many rows and columns has this gradient on one device, and which of them belong to this rank's part? Does any "
    "other rank have numbers that go into them?"
)
ROW_PARALLEL = Exercise(
    name="14.1",
    title="A row-parallel layer, forward and backward",
    solution=_row_parallel(),
    cases=lambda: {
        "six inputs, two for each rank": (4, 6, 2, 0),
        "seven inputs: three, two and two": (3, 7, 5, 1),
        "two inputs, rank 2 has none": (2, 2, 3, 2),
        "one example": (1, 9, 4, 3),
        "one output": (5, 3, 1, 4),
    },
    mistakes=(
        Mistake(
            _row_parallel(early_bias=True, late_bias=False),
            "the bias is in the sum once per rank.",
            "Three ranks add up their results. How many biases are in the sum?",
            part=_output("Y"),
        ),
        Mistake(
            _row_parallel(add_up=_same),
            "each rank returns a summand of Y, and not the sum.",
            "A rank has multiplied its part of the inputs only. What do the other ranks have?",
            part=_output("Y"),
        ),
        Mistake(
            _row_parallel(add_up=_averaged),
            "the ranks' results are averaged.",
            "With 1 on each of three inputs and weights of 1, the output is 3. What does a mean give?",
            part=_output("Y"),
        ),
        Mistake(
            _row_parallel(late_bias=False),
            "the bias is missing in Y.",
            "What does a linear layer add to X @ weight.T?",
            part=_output("Y"),
        ),
        Mistake(
            _row_parallel(of_X=_summed),
            "the gradient of X is added up over the ranks, and each rank has inputs of its own.",
            _OWN_PART,
            part=_output("grad_X"),
        ),
        Mistake(
            _row_parallel(of_X=_averaged),
            "the gradient of X is averaged over the ranks, and each rank has inputs of its own.",
            _OWN_PART,
            part=_output("grad_X"),
        ),
        Mistake(
            _row_parallel(of_weight=_summed),
            "the gradient of the weight is added up over the ranks, and each rank has weights of its own.",
            _OWN_PART,
            part=_output("grad_weight"),
        ),
        Mistake(
            _row_parallel(of_weight=_averaged),
            "the gradient of the weight is averaged over the ranks, and each rank has weights of its own.",
            _OWN_PART,
            part=_output("grad_weight"),
        ),
        Mistake(
            _row_parallel(of_weight=lambda grad: grad.T),
            "the gradient of the weight is transposed.",
            "A gradient has the shape of its parameter, and weight is [outputs, inputs].",
            part=_output("grad_weight"),
        ),
        Mistake(
            _row_parallel(of_loss=_summed),
            "grad_Y is added up over the ranks, and each rank has had the complete one: the gradients are too large.",
            "All ranks compute the same loss from the same Y. Is grad_Y replicated or partial?",
        ),
        Mistake(
            _row_parallel(of_bias=lambda grad_Y: _summed(grad_Y.sum(0))),
            "the gradient of the bias is added up over the ranks, and each rank has had the complete one.",
            "Each rank has all of bias and all of grad_Y. What could another rank add?",
        ),
        Mistake(
            _row_parallel(of_bias=lambda grad_Y: grad_Y.mean(0)),
            "the gradient of the bias is a mean over the examples.",
            "One bias is added to the output of every example. Do the gradients of several uses add up, or average?",
        ),
        Mistake(
            _row_parallel(of_bias=lambda grad_Y: grad_Y.sum(0) / dist.get_world_size()),
            "the gradient of the bias is divided by the number of ranks.",
            "Do the ranks share the bias, or does each of them have all of it?",
        ),
        Mistake(
            _row_parallel(of_bias=lambda grad_Y: grad_Y.sum(0) * (dist.get_rank() == 0)),
            "rank 0 alone has a gradient of the bias, and each rank updates its own copy of it.",
            "What do the biases of the ranks look like after a step of gradient descent?",
            part=_output("grad_bias"),
        ),
        Mistake(
            _row_parallel(of_bias=_same),
            "the gradient of the bias has a row for each example.",
            "A gradient has the shape of its parameter. One bias is added to every row: what becomes of the rows?",
            part=_output("grad_bias"),
        ),
        Mistake(
            _row_parallel(of_loss=lambda grad_Y: grad_Y / len(grad_Y)),
            "all gradients are divided by the number of examples, and grad_Y is the gradient of the loss already.",
            "Does the loss stand before grad_Y or after it? Where would a mean over the examples be?",
        ),
        Mistake(
            _row_parallel(of_loss=lambda grad_Y: grad_Y / dist.get_world_size()),
            "all gradients are divided by the number of ranks.",
            "All ranks compute the same loss from the same Y. Which of them has a share of it only?",
        ),
        Mistake(
            _row_parallel(of_X=lambda grad_X: grad_X.T),
            "the gradient of X is transposed.",
            "A gradient has the shape of its tensor, and X is [b, inputs].",
            part=_output("grad_X"),
        ),
        NEVER_ENDS,
    ),
    think=_FOLLOW,
    observe=_observe_row_parallel,
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
    name="14.2",
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
