"""Answers to the exercises of chapter 15: right ones of other forms, and wrong ones that are not among its mistakes."""

import os

import pytest
import torch
import torch.distributed as dist

from d2lite.labs.chapter_15 import one_f_one_b
from tests.book.exercises.scoring import Answers, RightAnswers, WrongAnswers
from tests.by_value import by_value

pytestmark = pytest.mark.skipif(os.name == "nt", reason="Workers needs Linux or macOS")
answers = Answers()
right, wrong = answers.right, answers.wrong


@right("15.1")
def with_a_set_of_numbers(passes):
    held, most = set(), 0
    for kind, number in ((one[0], int(one[1:])) for one in passes):
        if kind == "F":
            held.add(number)
        elif kind in "BW":
            held.remove(number)
        most = max(most, len(held))
    return most


@right("15.1")
def with_the_interval_of_each_microbatch(passes):
    begin = {one[1:]: i for i, one in enumerate(passes) if one[0] == "F"}
    end = {one[1:]: i for i, one in enumerate(passes) if one[0] in "BW"}
    return max((sum(begin[j] <= i < end[j] for j in begin) for i in range(len(passes))), default=0)


@wrong("15.1", "it reads one digit of the number")
def with_a_digit_as_the_number(passes):
    held, most = [], 0
    for kind, number in ((one[0], int(one[1])) for one in passes):
        if kind == "F" and number not in held:
            held.append(number)
        elif kind in "BW" and number in held:
            held.remove(number)
        most = max(most, len(held))
    return most


@wrong("15.1", "it raised KeyError: 'I'")
def forgets_a_kind(passes):
    held = most = 0
    for one in passes:
        held += {"F": 1, "B": -1, "W": -1}[one[0]]
        most = max(most, held)
    return most


@wrong("15.1", "expected 3, got 5")
def takes_away_at_W_alone(passes):
    held = most = 0
    for one in passes:
        held += (one[0] == "F") - (one[0] == "W")
        most = max(most, held)
    return most


@right("15.2")
def one_microbatch_after_the_other(weight, X, sizes):
    weight.requires_grad_()
    rank, begin = dist.get_rank(), 0
    for size in sizes:
        if rank == 0:
            mine = X[begin : begin + size]
        else:
            mine = torch.zeros(size, len(weight), dtype=torch.float64)
            dist.recv(mine, src=rank - 1)
            mine.requires_grad_()
        begin += size
        Y = torch.tanh(mine @ weight)
        if rank == 2:
            (Y**2).sum().div(sum(sizes) * len(weight)).backward()
        else:
            dist.send(Y.detach(), dst=rank + 1)
            grad = torch.zeros_like(Y)
            dist.recv(grad, src=rank + 1)
            Y.backward(grad)
        if rank > 0:
            dist.send(mine.grad, dst=rank - 1)
    return weight.grad


@right("15.2")
def one_loss_of_all_outputs(weight, X, sizes):
    """All forward, the last rank with one backward pass; the sends do not wait."""
    weight.requires_grad_()
    rank, works = dist.get_rank(), []
    inputs = [torch.empty(size, weight.shape[0], dtype=weight.dtype) for size in sizes] if X is None else X.split(sizes)
    outputs = []
    for i, mine in enumerate(inputs):
        if rank > 0:
            dist.irecv(mine, rank - 1, tag=i).wait()
            mine.requires_grad_()
        outputs.append((mine @ weight).tanh())
        if rank < 2:
            works.append(dist.isend(outputs[-1].detach(), rank + 1, tag=i))
    if rank == 2:
        torch.cat(outputs).square().mean().backward()
    for i in reversed(range(len(sizes))):
        if rank < 2:
            grad = torch.empty_like(outputs[i])
            dist.recv(grad, rank + 1, tag=i)
            outputs[i].backward(grad)
        if rank > 0:
            works.append(dist.isend(inputs[i].grad, rank - 1, tag=i))
    for work in works:
        work.wait()
    return weight.grad


def run_1F1B(weight, X, sizes, send):
    """Autograd is not used; `send` sends, and returns what to wait for at the end."""
    rank, inputs, outputs, sent, total = dist.get_rank(), {}, {}, [], torch.zeros_like(weight)
    for kind, _, i in one_f_one_b(rank, 3, len(sizes)):
        if kind == "F":
            inputs[i] = weight.new_empty(sizes[i], len(weight)) if rank > 0 else X.split(sizes)[i]
            if rank > 0:
                dist.recv(inputs[i], rank - 1)
            outputs[i] = torch.tanh(inputs[i] @ weight)
            if rank < 2:
                sent.append(send(outputs[i], rank + 1))
        else:
            grad = 2 * outputs[i] / (sum(sizes) * len(weight))
            if rank < 2:
                dist.recv(grad, rank + 1)
            grad *= 1 - outputs.pop(i) ** 2
            total += inputs.pop(i).T @ grad
            if rank > 0:
                sent.append(send(grad @ weight.T, rank - 1))
    for work in filter(None, sent):
        work.wait()
    return total


by_value(run_1F1B)


@right("15.2")
def in_1F1B(weight, X, sizes):
    return run_1F1B(weight, X, sizes, dist.isend)


@wrong(
    "15.2", "no rank can go on: rank 0 waits in send to rank 1, rank 1 waits in send to rank 2, rank 2 waits in send"
)
def in_1F1B_with_sends_that_wait(weight, X, sizes):
    return run_1F1B(weight, X, sizes, dist.send)


@wrong("15.2", "no rank can go on: rank 0 waits in recv from rank 2, rank 1 waits in recv from rank 0, rank 2 waits")
def everybody_receives_first(weight, X, sizes):
    rank, tensor = dist.get_rank(), weight.new_empty(sizes[0], len(weight))
    dist.recv(tensor, (rank + 2) % 3)
    dist.send(tensor, (rank + 1) % 3)
    return weight


@wrong("15.2", "rank 0 sends 12 numbers (float64) to rank 1, which expects 12 (float32)")
def receives_in_float32(weight, X, sizes):
    rank = dist.get_rank()
    for size in sizes:
        room = torch.empty(size, len(weight))
        if rank > 0:
            dist.recv(room, rank - 1)
        if rank < 2:
            dist.send(torch.empty(size, len(weight), dtype=torch.float64), rank + 1)
    return weight


@wrong("15.2", "rank 0 sends 6 numbers to rank 1, which expects 4")
def makes_equal_room_for_all_microbatches(weight, X, sizes):
    rank, n, m = dist.get_rank(), sum(sizes), len(sizes)
    for i in range(m):
        if rank > 0:
            dist.recv(weight.new_empty(n // m, len(weight)), rank - 1)
        if rank < 2:
            dist.send(weight.new_empty(sizes[i], len(weight)), rank + 1)
    return weight


@wrong("15.2", "rank 0 sends 1 message for 3 microbatches.")
def sends_the_minibatch_in_one_piece(weight, X, sizes):
    weight.requires_grad_()
    rank = dist.get_rank()
    X = torch.empty(sum(sizes), len(weight), dtype=torch.float64) if X is None else X
    if rank > 0:
        dist.recv(X, rank - 1)
        X.requires_grad_()
    Y = torch.tanh(X @ weight)
    if rank == 2:
        Y.square().mean().backward()
    else:
        dist.send(Y.detach(), rank + 1)
        grad = torch.empty_like(Y)
        dist.recv(grad, rank + 1)
        Y.backward(grad)
    if rank > 0:
        dist.send(X.grad, rank - 1)
    return weight.grad


@wrong("15.2", "on rank 2 it raised RuntimeError: One of the differentiated Tensors does not require grad")
def asks_autograd_for_what_requires_no_gradient(weight, X, sizes):
    weight.requires_grad_()
    rank, total = dist.get_rank(), torch.zeros_like(weight)
    for i, size in enumerate(sizes):
        mine = weight.new_empty(size, len(weight)) if X is None else X.split(sizes)[i]
        if rank > 0:
            dist.recv(mine, rank - 1)
        Y = torch.tanh(mine @ weight)
        if rank < 2:
            dist.send(Y.detach(), rank + 1)
            grad = torch.empty_like(Y)
            dist.recv(grad, rank + 1)
        else:
            grad = 2 * Y / (sum(sizes) * len(weight))
        for_weight, for_X = torch.autograd.grad(Y, [weight, mine], grad)
        total += for_weight
        if rank > 0:
            dist.send(for_X, rank - 1)
    return total


class TestAnswers(RightAnswers, WrongAnswers):
    answers = answers
