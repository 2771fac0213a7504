"""Answers to the exercises of chapter 13: right ones of other forms, and wrong ones that are not among its mistakes."""

import os

import pytest
import torch
import torch.distributed as dist

from tests.book.exercises.scoring import Answers, RightAnswers, WrongAnswers

pytestmark = pytest.mark.skipif(os.name == "nt", reason="Workers needs Linux or macOS")
answers = Answers()
right, wrong = answers.right, answers.wrong


@right("13.1")
def with_an_all_reduce(params, momenta, lr):
    for i, param in enumerate(params):
        dist.all_reduce(param.grad)
        if momenta[i] is not None:
            momenta[i] += -0.1 * momenta[i] + param.grad
            param.data -= lr * momenta[i]
        dist.broadcast(param.data, src=i % dist.get_world_size())


@right("13.1")
def in_three_loops(params, momenta, lr):
    rank, k = dist.get_rank(), dist.get_world_size()
    for i, param in enumerate(params):
        dist.reduce(param.grad, dst=i % k)
    for i in range(rank, len(params), k):
        momenta[i].mul_(0.9).add_(params[i].grad)
        with torch.no_grad():
            params[i] -= lr * momenta[i]
    for i, param in enumerate(params):
        dist.broadcast(param.detach(), src=i % k)


@wrong("13.1", "the ranks do not call the same collectives")
def the_owner_alone_calls(params, momenta, lr):
    for i, param in enumerate(params):
        if momenta[i] is not None:
            dist.all_reduce(param.grad)
            momenta[i].mul_(0.9).add_(param.grad)
            param.data.sub_(lr * momenta[i])


@wrong("13.1", "it takes the momentum of an owner away")
def forgets_the_momenta(params, momenta, lr):
    for i, param in enumerate(params):
        dist.all_reduce(param.grad)
        param.data.sub_(lr * param.grad)
        momenta[i] = None


@right("13.2")
def with_one_flat_tensor(parts, max_norm):
    square = torch.cat(parts).norm() ** 2
    dist.all_reduce(square)
    norm = square.sqrt()
    for part in parts:
        part *= (max_norm / norm).clamp(max=1)
    return norm


@right("13.2")
def with_a_gather(parts, max_norm):
    norms = [torch.zeros((), dtype=torch.float64) for _ in range(dist.get_world_size())]
    dist.all_gather(norms, torch.cat(parts).norm())
    norm = torch.stack(norms).norm().item()
    if norm > max_norm:
        for part in parts:
            part.mul_(max_norm / norm)
    return norm


@wrong("13.2", "the ranks do not call the same collectives")
def asks_the_others_only_when_its_own_is_long(parts, max_norm):
    square = torch.cat(parts).norm() ** 2
    if square > max_norm**2:
        dist.all_reduce(square)
    for part in parts:
        part.mul_((max_norm / square.sqrt()).clamp(max=1))
    return square.sqrt()


class TestAnswers(RightAnswers, WrongAnswers):
    answers = answers
