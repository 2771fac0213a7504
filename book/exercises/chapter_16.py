"""The exercises of chapter 16: the groups of a rank in a mesh, and the fastest mesh that fits into the memory."""

from collections.abc import Callable, Sequence
from itertools import product
from math import ceil, prod
from typing import Any

import torch

from d2lite.exercises import Exercise, Mistake

Shape = Sequence[int]


def _distances(shape: Shape) -> list[int]:
    """Return for each dimension how far apart the numbers of two neighbours are."""
    return [prod(shape[i + 1 :]) for i in range(len(shape))]


def _groups(shape: Shape, rank: int, distances: Callable[[Shape], list[int]] = _distances) -> list[list[int]]:
    found = []
    for size, distance in zip(shape, distances(shape), strict=True):
        first = rank - rank // distance % size * distance
        found.append([first + i * distance for i in range(size)])
    return found


def _from_the_rank_on(shape: Shape, rank: int) -> list[list[int]]:
    return [[rank + i * distance for i in range(size)] for size, distance in zip(shape, _distances(shape), strict=True)]


def _past_the_end(shape: Shape, rank: int) -> list[list[int]]:
    return [sorted(other % prod(shape) for other in group) for group in _from_the_rank_on(shape, rank)]


def _with_the_same_place(shape: Shape, rank: int) -> list[list[int]]:
    places = list(product(*map(range, shape)))
    return [[other for other, place in enumerate(places) if place[i] == places[rank][i]] for i in range(len(shape))]


def _with_the_same_local_rank(shape: Shape, rank: int) -> list[list[int]]:
    outside = list(range(rank % shape[-1], prod(shape), shape[-1]))
    return [outside] * (len(shape) - 1) + [_groups(shape, rank)[-1]]


def _observe_groups(answer: Callable[..., Any], shape: Shape, rank: int) -> Any:
    """Return the groups that an answer returns; a group may be a tensor."""
    groups = answer(shape, rank)
    if groups is None:
        return None
    return [group.tolist() if isinstance(group, torch.Tensor) else group for group in groups]


_DRAW = (
    "Draw a mesh of 2 x 3 x 4, write the numbers of the ranks into it, and mark rank 17. Which ranks have the same "
    "place as it in all dimensions but one?"
)
_LAST_FASTEST = "Print torch.arange(6).view(2, 3). Which rank stands beside rank 0, and which one below it?"
GROUPS = Exercise(
    name="16.1",
    title="The groups of a rank in a mesh",
    solution=_groups,
    cases=lambda: {
        "the shape (4,), rank 2": ((4,), 2),
        "the shape (2, 4), rank 6": ((2, 4), 6),
        "the shape (2, 3, 4), rank 17": ((2, 3, 4), 17),
        "the shape (8, 8, 8), rank 0": ((8, 8, 8), 0),
        "the shape (8, 8, 8), rank 299": ((8, 8, 8), 299),
        "the shape (8, 8, 8), rank 511": ((8, 8, 8), 511),
        "sizes of 1: the shape (1, 6, 1), rank 4": ((1, 6, 1), 4),
        "four dimensions: the shape (2, 3, 2, 5), rank 33": ((2, 3, 2, 5), 33),
        "a single rank": ((1, 1), 0),
    },
    mistakes=(
        Mistake(
            lambda shape, rank: _groups(shape, rank, lambda shape: [prod(shape[:i]) for i in range(len(shape))]),
            "the ranks are numbered column by column, and a mesh numbers them row by row.",
            _LAST_FASTEST,
        ),
        Mistake(
            lambda shape, rank: _groups(shape, rank, lambda shape: [1] * len(shape)),
            "the ranks of every group follow each other, and in a mesh only those of one dimension do.",
            _LAST_FASTEST,
        ),
        Mistake(
            lambda shape, rank: _groups(shape, rank, lambda shape: [*shape[1:], 1]),
            "neighbours are as far apart as the next dimension is large. With three dimensions it is more in one of "
            "them.",
            "Print torch.arange(24).view(2, 3, 4). Where is rank 0, and where is the rank that differs from it in the "
            "first dimension alone?",
        ),
        Mistake(
            _with_the_same_local_rank,
            "all dimensions but the last one have the same group: every rank with the same place in the last one.",
            "In a mesh of 8 x 8 x 8, how many ranks are in a group of each dimension? How many did you return?",
        ),
        Mistake(
            _with_the_same_place,
            "it returns the ranks with the same place in the dimension. A group holds those that differ in it alone.",
            _DRAW,
        ),
        Mistake(
            lambda shape, rank: [[other for other in group if other != rank] for group in _groups(shape, rank)],
            "the rank itself is missing in its groups.",
            "A rank takes part in an all-reduce of its group. How many ranks are in a group of a dimension of size 4?",
        ),
        Mistake(
            lambda shape, rank: _groups(shape, 0),
            "these are the groups of rank 0, whatever the rank is.",
            "Is rank 0 in every group? What is the first rank in the group of rank 6?",
        ),
        Mistake(
            _from_the_rank_on,
            "each group begins with the rank itself, and there may be ranks of the group before it.",
            "What does the last rank of a mesh get from your function? Are there such ranks?",
        ),
        Mistake(
            _past_the_end,
            "it counts on past the end of a group, and after the last rank of all it goes on with rank 0.",
            _DRAW,
        ),
        Mistake(
            lambda shape, rank: [
                group[group.index(rank) :] + group[: group.index(rank)] for group in _groups(shape, rank)
            ],
            "the ranks of a group are right, and they are not in ascending order.",
            "The list of a group is the same for all of its ranks. Which rank comes first?",
        ),
        Mistake(
            lambda shape, rank: _groups(shape, rank)[::-1],
            "the groups are right, and the dimensions are in the reverse order.",
            "How many ranks has the first group that you return, and how large is the first dimension?",
        ),
        Mistake(
            lambda shape, rank: [group for group in _groups(shape, rank) if len(group) > 1],
            "the dimensions of size 1 are left out.",
            "How many lists are asked for? Which ranks are in a group of one rank?",
        ),
        Mistake(
            lambda shape, rank: [list(range(size)) for size in shape],
            "it returns places along the dimensions, and the numbers of the ranks are asked for.",
            "Which numbers have the ranks of the last row of a mesh of 2 x 4?",
        ),
    ),
    think=_DRAW,
    observe=_observe_groups,
)


def _fastest(
    sizes: Callable[[int], Sequence[int]] = lambda num_ranks: range(1, num_ranks + 1),
    pipe_fits: Callable[[int, int], bool] = lambda pipe, num_blocks: pipe <= num_blocks,
    tensor_fits: Callable[[int, int], bool] = lambda tensor, num_heads: num_heads % tensor == 0,
    no_rank_left: bool = True,
    smallest_data: int = 1,
    has_room: Callable[[float, float], bool] = lambda held, limit: held <= limit,
    order: Callable[[float, float, int, int, int], Any] = lambda s, held, pipe, data, tensor: (s, tensor, pipe),
    without: Callable[[Any], Any] = lambda order: None,
    returned: Callable[[float, int, int, int], Any] = lambda s, pipe, data, tensor: (pipe, data, tensor),
) -> Callable[..., Any]:
    """Return an answer; by default the right one. `without` gets all meshes in their order where none has room."""

    def best_mesh(
        num_ranks: int,
        num_blocks: int,
        num_heads: int,
        held: Callable[..., float],
        seconds: Callable[..., float],
        limit: float,
    ) -> Any:
        found = []
        for pipe, tensor in product(sizes(num_ranks), repeat=2):
            data, left = divmod(num_ranks, pipe * tensor)
            if not pipe_fits(pipe, num_blocks) or not tensor_fits(tensor, num_heads):
                continue
            if data >= smallest_data and not (left and no_rank_left):
                found.append((pipe, data, tensor))
        found.sort(key=lambda mesh: order(seconds(mesh), held(mesh), *mesh))
        best = next((mesh for mesh in found if has_room(held(mesh), limit)), None)
        return without(found) if best is None else returned(seconds(best), *best)

    return best_mesh


def _powers_of_two(num_ranks: int) -> list[int]:
    return [2**i for i in range(num_ranks.bit_length())]


def _first_of(found: Sequence[Any]) -> Any:
    return found[0] if found else None


def _raises(found: Sequence[Any]) -> Any:
    raise ValueError("min() iterable argument is empty")


def _observe_fastest(
    answer: Callable[..., Any],
    num_ranks: int,
    num_blocks: int,
    num_heads: int,
    n_bytes: Sequence[float],
    cost_s: Sequence[float],
    limit: float,
) -> Any:
    """Return the mesh that an answer returns. `held` and `seconds` are made of a few numbers each.

    n_bytes are the bytes of parameters and gradients, of the optimizer's state, and of the activations. cost_s are the
    seconds of the computation, and those that each further stage, replica and part of a layer adds.
    """

    def held(mesh: Any) -> float:
        pipe, data, tensor = mesh
        params, state, activations = n_bytes
        return params / (pipe * tensor) + state / (pipe * data * tensor) + activations / tensor

    def seconds(mesh: Any) -> float:
        pipe, data, tensor = mesh
        compute_s, pipe_s, data_s, tensor_s = cost_s
        return compute_s + pipe_s * (pipe - 1) + data_s * (data - 1) + tensor_s * (tensor - 1)

    return answer(num_ranks, num_blocks, num_heads, held, seconds, limit)


_LIST = (
    "Write down all meshes of 12 ranks. Which of them are left with 4 heads, with 3 blocks, and with a limit? Ask for "
    "the seconds only then."
)
_EQUAL = "List all meshes that take equally long, and read the rule once more. Which of them comes first?"
FASTEST = Exercise(
    name="16.2",
    title="The fastest mesh that fits",
    solution=_fastest(),
    cases=lambda: {
        "8 ranks, room for every mesh": (8, 32, 16, (4e9, 8e9, 2e9), (8.0, 0.5, 1.0, 2.0), 80e9),
        "8 ranks, room for some meshes": (8, 32, 16, (64e9, 128e9, 16e9), (8.0, 2.0, 0.25, 1.5), 45e9),
        "64 ranks, 96 blocks, 96 heads": (64, 96, 96, (700e9, 2100e9, 80e9), (16.0, 0.5, 0.25, 1.0), 80e9),
        "12 ranks": (12, 24, 12, (16e9, 32e9, 8e9), (8.0, 1.0, 2.0, 1.25), 80e9),
        "12 ranks, 6 blocks, 4 heads": (12, 6, 4, (16e9, 32e9, 8e9), (8.0, 2.0, 4.0, 0.5), 80e9),
        "16 ranks, 12 heads": (16, 48, 12, (16e9, 32e9, 8e9), (8.0, 4.0, 2.0, 0.25), 80e9),
        "16 ranks, 3 blocks": (16, 3, 16, (16e9, 32e9, 8e9), (8.0, 0.25, 2.0, 4.0), 80e9),
        "16 ranks, 6 blocks": (16, 6, 16, (16e9, 32e9, 8e9), (8.0, 0.5, 2.0, 2.0), 80e9),
        "8 ranks, 4 blocks, as many stages as blocks": (8, 4, 2, (16e9, 32e9, 8e9), (8.0, 0.125, 2.0, 4.0), 80e9),
        "8 ranks, 2 heads, one for each rank of tensor": (8, 8, 2, (16e9, 32e9, 8e9), (8.0, 2.0, 2.0, 0.125), 80e9),
        "12 ranks, a pipeline alone": (12, 12, 4, (16e9, 32e9, 8e9), (8.0, 0.125, 4.0, 4.0), 80e9),
        "7 ranks, 7 heads": (7, 7, 7, (16e9, 32e9, 8e9), (8.0, 1.0, 2.0, 0.5), 80e9),
        "10 ranks, all for data parallelism": (10, 8, 8, (16e9, 32e9, 8e9), (8.0, 3.0, 0.125, 2.0), 80e9),
        "a mesh that holds exactly the limit": (8, 32, 16, (64e9, 64e9, 16e9), (8.0, 1.0, 0.5, 8.0), 40e9),
        "4 ranks, meshes that are equally fast": (4, 8, 8, (16e9, 32e9, 8e9), (8.0, 1.0, 1.0, 1.0), 80e9),
        "12 ranks, meshes that are equally fast": (12, 12, 12, (16e9, 32e9, 8e9), (8.0, 1.0, 1.0, 1.0), 80e9),
        "no mesh fits": (8, 4, 2, (640e9, 640e9, 16e9), (8.0, 1.0, 1.0, 1.0), 40e9),
        "one rank": (1, 4, 4, (16e9, 32e9, 8e9), (8.0, 1.0, 1.0, 1.0), 80e9),
    },
    mistakes=(
        Mistake(
            _fastest(has_room=lambda held, limit: True),
            "the mesh that it returns does not fit: the limit is not looked at.",
            "How many bytes does a rank hold in the mesh that you return? Ask held.",
        ),
        Mistake(
            _fastest(has_room=lambda held, limit: held < limit),
            "a mesh that holds exactly the limit is left out.",
            "80 GB are allowed, and a rank holds 80 GB. Does it fit?",
        ),
        Mistake(
            _fastest(tensor_fits=lambda tensor, num_heads: True),
            "it allows a tensor that does not divide the number of heads: a rank would get a part of a head.",
            "12 heads on 8 ranks: how many heads does each rank get?",
        ),
        Mistake(
            _fastest(tensor_fits=lambda tensor, num_heads: tensor <= num_heads),
            "it allows every tensor up to the number of heads: some ranks would get more heads than others.",
            "12 heads on 8 ranks: how many heads does each rank get?",
        ),
        Mistake(
            _fastest(pipe_fits=lambda pipe, num_blocks: True),
            "there are more stages than blocks: some stages would be empty.",
            "How many stages can a network of 3 blocks have, if each of them has a block?",
        ),
        Mistake(
            _fastest(pipe_fits=lambda pipe, num_blocks: pipe < num_blocks),
            "a mesh with as many stages as blocks is left out.",
            "Where does range(1, n) end? Can a stage have one block?",
        ),
        Mistake(
            _fastest(tensor_fits=lambda tensor, num_heads: tensor < num_heads and num_heads % tensor == 0),
            "a mesh with as many ranks of tensor as heads is left out.",
            "Where does range(1, n) end? Can a rank have one head?",
        ),
        Mistake(
            _fastest(sizes=lambda num_ranks: range(2, num_ranks + 1)),
            "it tries only meshes with a pipeline and with tensor parallelism.",
            "What does pipe = 1 mean? Is it allowed?",
        ),
        Mistake(
            _fastest(order=lambda s, held, pipe, data, tensor: (pipe, s, tensor)),
            "it takes the smallest pipe that fits, and a mesh with a larger one may be faster.",
            "What does seconds say of the other meshes that fit? Compare all of them.",
        ),
        Mistake(
            _fastest(order=lambda s, held, pipe, data, tensor: (s, tensor, -pipe)),
            "of equally fast meshes with the same tensor it takes the one with the largest pipe.",
            _EQUAL,
        ),
        Mistake(
            _fastest(pipe_fits=lambda pipe, num_blocks: num_blocks % pipe == 0),
            "it allows only a pipe that divides the number of blocks, and stages need not be equal.",
            "Can 6 blocks be cut into 4 stages? Which condition for pipe is in the exercise?",
        ),
        Mistake(
            _fastest(sizes=_powers_of_two),
            "it tries powers of two alone for pipe and tensor, and other sizes are allowed.",
            "Write down all meshes of 3 ranks. Which of them does your function try?",
        ),
        Mistake(
            _fastest(no_rank_left=False),
            "the product of the three sizes is not the number of ranks: some ranks have nothing to do.",
            "With 12 ranks and pipe = 5, how many ranks are left over? What does // do with them?",
        ),
        Mistake(
            _fastest(sizes=lambda num_ranks: range(1, num_ranks)),
            "meshes in which one size is the number of ranks are left out.",
            "Where does range(1, n) end? Which meshes does one rank have?",
        ),
        Mistake(
            _fastest(smallest_data=2),
            "meshes without data parallelism are left out.",
            "What does data = 1 mean? Is it allowed?",
        ),
        Mistake(
            _fastest(order=lambda s, held, pipe, data, tensor: (-tensor, s, pipe)),
            "it takes the largest tensor that fits, and a mesh with a smaller one may be faster.",
            "What does seconds say of the other meshes that fit? Compare all of them.",
        ),
        Mistake(
            _fastest(order=lambda s, held, pipe, data, tensor: (-data, s, tensor)),
            "it takes as much data parallelism as fits, and a mesh with less of it may be faster.",
            "What does seconds say of the other meshes that fit? Compare all of them.",
        ),
        Mistake(
            _fastest(order=lambda s, held, pipe, data, tensor: (held, s, tensor, pipe)),
            "it returns the mesh that holds least, and the fastest one that fits is asked for.",
            "Is memory that is left over worth anything here? What are the two functions for?",
        ),
        Mistake(
            _fastest(order=lambda s, held, pipe, data, tensor: (-s, tensor, pipe)),
            "it is the slowest mesh that fits.",
            "seconds is a time, and not a speed. Which of two meshes is better, the one with 8 or the one with 9?",
        ),
        Mistake(
            _fastest(order=lambda s, held, pipe, data, tensor: (s, pipe, tensor)),
            "of equally fast meshes it takes the one with the smallest pipe, and tensor decides first.",
            _EQUAL,
        ),
        Mistake(
            _fastest(order=lambda s, held, pipe, data, tensor: (s, pipe, data, tensor)),
            "of equally fast meshes it takes the smallest tuple, and a tuple is compared from its first number on.",
            _EQUAL,
        ),
        Mistake(
            _fastest(order=lambda s, held, pipe, data, tensor: (s, -pipe, -tensor)),
            "of equally fast meshes it takes the last one that it has tried.",
            _EQUAL,
        ),
        Mistake(
            _fastest(without=_raises),
            "it raises an error where no mesh fits.",
            "What does min() say of an empty list? What is to be returned if nothing fits?",
        ),
        Mistake(
            _fastest(without=_first_of),
            "where no mesh fits it returns one that does not fit.",
            "What is to be returned if nothing fits? Can the job run with your mesh?",
        ),
        Mistake(
            _fastest(returned=lambda s, pipe, data, tensor: (data, pipe, tensor)),
            "the mesh is right, and its three sizes are in another order.",
            "Which of the three sizes comes first in the mesh that held gets?",
        ),
        Mistake(
            _fastest(returned=lambda s, pipe, data, tensor: (s, (pipe, data, tensor))),
            "it returns the seconds as well, and the mesh alone is asked for.",
            "What do you have to unpack before you return it?",
        ),
    ),
    think=_LIST,
    observe=_observe_fastest,
)


def _tokens(
    n_bytes: float = 2,
    flops: float = 2,
    share: Callable[[int], float] = lambda k: (k - 1) / k,
    rounded: Callable[[float], int] = ceil,
) -> Callable[[int, float, float], int]:
    """Return an answer; by default the right one."""

    def tokens_to_hide(num_ranks: int, flops_per_s: float, bytes_per_s: float) -> int:
        return rounded(n_bytes * share(num_ranks) / bytes_per_s * flops_per_s / flops)

    return tokens_to_hide


_BOTH_SIDES = "Write down the seconds of the computation and of the messages for one parameter. What must be larger?"
TOKENS = Exercise(
    name="16.3",
    title="From how many tokens on does the forward pass of FSDP hide its messages?",
    solution=_tokens(),
    cases=lambda: {
        "2 ranks": (2, 4e14, 1e11),
        "64 ranks": (64, 4e14, 5e10),
        "64 ranks, a slow link": (64, 4e14, 1.2e9),
        "3 ranks": (3, 1e14, 7e10),
        "8 ranks, a whole number": (8, 1.6e14, 1.4e11),
        "512 ranks": (512, 9e14, 3.7e11),
        "one rank": (1, 4e14, 1e11),
    },
    mistakes=(
        Mistake(
            _tokens(n_bytes=6, flops=4),
            "these are the messages and the operations of the backward pass.",
            "What does a rank do with a layer before it can compute forward, and what does it do only backward?",
        ),
        Mistake(
            _tokens(flops=4),
            "it is half of what is needed: the operations are those of the backward pass.",
            "How many operations per parameter and token hide the gather of the forward pass?",
        ),
        Mistake(
            _tokens(n_bytes=6),
            "the gradient is reduced as well: that happens in the backward pass.",
            "Which of the messages of a step are on their way while the forward pass computes?",
        ),
        Mistake(
            _tokens(share=lambda k: 2 * (k - 1) / k),
            "it is twice too large: the message counts as an all-reduce, or its numbers have 32 bits.",
            "An all-reduce is a reduce-scatter and an all-gather. Which of the two is the message here?",
        ),
        Mistake(
            _tokens(share=lambda k: 1.0),
            "a rank sends a little less: its own part is there already.",
            "How much does one rank alone send?",
        ),
        Mistake(
            _tokens(share=lambda k: k - 1),
            "it is the number of ranks times too large: these are the tokens of all ranks, or the bytes that all send.",
            "Whose computation hides the messages of one rank? How many bytes does that rank send?",
        ),
        Mistake(
            _tokens(rounded=int),
            "with so many tokens the messages still take a little longer.",
            "Put your number into both sides. Which one is larger?",
        ),
        Mistake(
            _tokens(rounded=lambda tokens: ceil(tokens) + 1),
            "one token fewer would do.",
            "If a number is whole already, what does your function add?",
        ),
    ),
    think=_BOTH_SIDES,
)
