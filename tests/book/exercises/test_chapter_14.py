"""Answers to the exercises of chapter 14: right ones of other forms, and wrong ones that are not among its mistakes."""

import os

import pytest
import torch
import torch.distributed as dist

from tests.book.exercises.scoring import Answers, RightAnswers, WrongAnswers

pytestmark = pytest.mark.skipif(os.name == "nt", reason="Workers needs Linux or macOS")
answers = Answers()
right, wrong = answers.right, answers.wrong


@right("14.1")
def with_autograd(X, weight, bias, grad_Y):
    leaves = [tensor.requires_grad_() for tensor in (X, weight, bias)]
    Y = torch.nn.functional.linear(X, weight, bias)
    grads = torch.autograd.grad(Y, leaves, grad_Y)
    total = (Y - bias).detach()
    dist.all_reduce(total)
    return total + bias.detach(), *grads


@right("14.1")
def with_the_bias_of_rank_0(X, weight, bias, grad_Y):
    Y = X @ weight.T
    if dist.get_rank() == 0:
        Y += bias
    dist.all_reduce(Y)
    return [Y, grad_Y @ weight, torch.einsum("bo,bi->oi", grad_Y, X), grad_Y.sum(0)]


@wrong("14.1", "the ranks do not call the same collectives")
def only_rank_0_adds_up(X, weight, bias, grad_Y):
    Y = X @ weight.T
    if dist.get_rank() == 0:
        dist.all_reduce(Y)
    return Y + bias, grad_Y @ weight, grad_Y.T @ X, grad_Y.sum(0)


@wrong("14.1", "it does not return four tensors")
def returns_the_outputs_alone(X, weight, bias, grad_Y):
    Y = X @ weight.T
    dist.all_reduce(Y)
    return Y + bias


@wrong("14.1", "the bias is in the sum once per rank")
def two_mistakes_at_once(X, weight, bias, grad_Y):
    Y = X @ weight.T + bias
    dist.all_reduce(Y)
    return Y, grad_Y @ weight, grad_Y.T @ X, grad_Y


@right("14.2")
def in_a_few_lines(tokens, expert, apply_expert):
    k = dist.get_world_size()
    order = (expert % k).argsort()
    sent = (expert % k).bincount(minlength=k)
    received = torch.zeros_like(sent)
    dist.all_to_all_single(received, sent)
    sent, received = sent.tolist(), received.tolist()
    there, which = tokens.new_zeros(sum(received), tokens.shape[1]), expert.new_zeros(sum(received))
    dist.all_to_all_single(there, tokens[order], received, sent)
    dist.all_to_all_single(which, expert[order], output_split_sizes=received, input_split_sizes=sent)
    for i, e in enumerate(which.tolist()):  # token by token
        there[i : i + 1] = apply_expert(e, there[i : i + 1])
    back = torch.empty_like(tokens)
    dist.all_to_all_single(back, there, sent, received)
    result = torch.empty_like(tokens)
    result[order] = back
    return result


@right("14.2")
def with_the_expert_as_a_column(tokens, expert, apply_expert):
    k, rank = dist.get_world_size(), dist.get_rank()
    table = torch.zeros(k, k, dtype=torch.int64)
    table[rank] = (expert % k).bincount(minlength=k)
    dist.all_reduce(table)
    order = (expert % k).argsort(stable=True)
    sent, received = table[rank].tolist(), table[:, rank].tolist()
    packed = torch.cat([tokens, expert[:, None].to(tokens.dtype)], 1)
    there = packed.new_empty(sum(received), packed.shape[1])
    dist.all_to_all_single(there, packed[order], received, sent)
    for e in range(rank, 12, k):  # experts without tokens, too
        mine = there[:, -1] == e
        there[mine, :-1] = apply_expert(e, there[mine, :-1])
    back = torch.empty_like(packed)
    dist.all_to_all_single(back, there, sent, received)
    return back[order.argsort(), :-1]


@wrong("14.2", "input_split_sizes must have one number per rank")
def counts_without_the_last_ranks(tokens, expert, apply_expert):
    k = dist.get_world_size()
    home = expert % k
    sent, order = home.bincount().tolist(), home.argsort()
    counts = [torch.zeros(k, dtype=torch.int64) for _ in range(k)]
    dist.all_gather(counts, home.bincount(minlength=k))
    received = torch.stack(counts)[:, dist.get_rank()].tolist()
    there, which = tokens.new_zeros(sum(received), tokens.shape[1]), expert.new_zeros(sum(received))
    dist.all_to_all_single(there, tokens[order], received, sent)
    dist.all_to_all_single(which, expert[order], received, sent)
    for i, e in enumerate(which.tolist()):
        there[i] = apply_expert(e, there[i : i + 1])
    back = torch.empty_like(tokens)
    dist.all_to_all_single(back, there, sent, received)
    return back[order.argsort()]


@wrong("14.2", "the ranks do not call the same collectives")
def leaves_out_ranks_without_tokens(tokens, expert, apply_expert):
    if len(tokens) == 0:
        return tokens
    dist.all_to_all_single(torch.empty(3), torch.empty(3))
    return tokens


@wrong("14.2", "which lives on rank")
def shifts_the_ranks(tokens, expert, apply_expert):
    k = dist.get_world_size()
    home = (expert + 1) % k
    sent = home.bincount(minlength=k)
    received = torch.zeros_like(sent)
    dist.all_to_all_single(received, sent)
    which = expert.new_zeros(int(received.sum()))
    dist.all_to_all_single(which, expert[home.argsort()], received.tolist(), sent.tolist())
    for e in which.unique().tolist():
        apply_expert(e, tokens.new_ones(1, tokens.shape[1]))
    return tokens


class TestAnswers(RightAnswers, WrongAnswers):
    answers = answers
