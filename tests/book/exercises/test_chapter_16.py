"""Answers to the exercises of chapter 16: right ones of other forms, and wrong ones that are not among its mistakes."""

from itertools import product
from math import inf, prod

import numpy as np
import torch

from tests.book.exercises.scoring import Answers, RightAnswers, WrongAnswers

answers = Answers()
right, wrong = answers.right, answers.wrong


@right("16.1")
def with_rows_of_the_mesh(shape, rank):
    """The groups are tensors."""
    mesh, found = torch.arange(prod(shape)).view(shape), []
    for i, size in enumerate(shape):
        rows = mesh.movedim(i, -1).reshape(-1, size)
        found.append(rows[(rows == rank).any(1)][0])
    return found


@right("16.1")
def with_places(shape, rank):
    """Ranks that differ from the rank in no other place; the groups are tuples, and arrays of NumPy."""
    places = [np.unravel_index(other, shape) for other in range(prod(shape))]
    found = []
    for i in range(len(shape)):
        others = [[*place[:i], *place[i + 1 :]] for place in places]
        found.append(tuple(other for other in range(len(places)) if others[other] == others[rank]))
    found[-1] = np.array(found[-1])
    return tuple(found)


@right("16.1")
def with_ranges(shape, rank):
    found, distance = [], 1
    for size in reversed(shape):
        first = rank - distance * (rank // distance % size)
        found.insert(0, range(first, first + size * distance, distance))
        distance *= size
    return found


@wrong("16.1", "expected [[0, 1, 2, 3]], got [[0, 1, 2]]")
def leaves_out_the_last_rank(shape, rank):
    return [group[:-1].tolist() for group in with_rows_of_the_mesh(shape, rank)]


@wrong("16.1", "expected [[2, 6], [4, 5, 6, 7]], got [2, 6, 4, 5, 6, 7]")
def returns_one_list(shape, rank):
    groups = [group.tolist() for group in with_rows_of_the_mesh(shape, rank)]
    return groups if len(groups) < 2 else sum(groups, [])


@wrong("16.1", "it raised ValueError")
def knows_three_dimensions_alone(shape, rank):
    _, _, _ = shape
    return [group.tolist() for group in with_rows_of_the_mesh(shape, rank)]


@right("16.2")
def with_three_loops(num_ranks, num_blocks, num_heads, held, seconds, limit):
    best = None
    for tensor in range(num_heads, 0, -1):
        for data in range(1, num_ranks + 1):
            for pipe in range(1, min(num_blocks, num_ranks) + 1):
                mesh = (pipe, data, tensor)
                if pipe * data * tensor != num_ranks or num_heads % tensor or held(mesh) > limit:
                    continue
                if best is None or (seconds(mesh), tensor, pipe) < (seconds(best), best[2], best[0]):
                    best = mesh
    return best


@right("16.2")
def in_the_order_of_the_rule(num_ranks, num_blocks, num_heads, held, seconds, limit):
    """The first of equally fast meshes stays; data is computed as a float."""
    best, fewest = None, inf
    for tensor, pipe in product(range(1, num_ranks + 1), range(1, num_blocks + 1)):
        data = num_ranks / (tensor * pipe)
        if data.is_integer() and num_heads % tensor == 0:
            mesh = [pipe, data, tensor]
            if held(mesh) <= limit and seconds(mesh) < fewest:
                best, fewest = mesh, seconds(mesh)
    return best


@wrong("16.2", "it raised TypeError")
def passes_three_sizes(num_ranks, num_blocks, num_heads, held, seconds, limit):
    return (1, num_ranks, 1) if held(1, num_ranks, 1) <= limit else None


@wrong("16.2", "expected (4, 2, 1), got (1, 8, 1)")
def knows_data_parallelism_alone(num_ranks, num_blocks, num_heads, held, seconds, limit):
    return (1, num_ranks, 1) if held((1, num_ranks, 1)) <= limit else None


@wrong("16.2", "expected (4, 2, 1), got [(4, 2, 1)]")
def returns_a_list_of_meshes(num_ranks, num_blocks, num_heads, held, seconds, limit):
    best = with_three_loops(num_ranks, num_blocks, num_heads, held, seconds, limit)
    return None if best is None else [best]


class TestAnswers(RightAnswers, WrongAnswers):
    answers = answers
