"""Answers to the exercises of chapter 17: right ones of other forms, and wrong ones that are not among its mistakes."""

import os

import pytest
import torch
import torch.distributed as dist

from tests.book.exercises.scoring import Answers, RightAnswers, WrongAnswers

pytestmark = pytest.mark.skipif(os.name == "nt", reason="Workers needs Linux or macOS")
answers = Answers()
right, wrong = answers.right, answers.wrong


@right("17.1")
def with_an_all_gather(largest, total, out):
    k = dist.get_world_size()
    packed = torch.cat([largest[:, None], total[:, None], out], 1)
    parts = [torch.empty_like(packed) for _ in range(k)]
    dist.all_gather(parts, packed)
    every = torch.stack(parts)  # [k, n, 2 + d]
    weights = every[..., 0].softmax(0) * every[..., 1]
    return (every[..., 0].softmax(0)[..., None] * every[..., 2:]).sum(0) / weights.sum(0)[:, None]


@right("17.1")
def with_the_logarithm_of_the_total(largest, total, out):
    top = largest.clone()
    dist.all_reduce(top, op=dist.ReduceOp.MAX)
    share = (largest + total.log() - top).exp()  # of the mean of this rank
    both = torch.cat([share[:, None], share[:, None] * out / total[:, None]], 1)
    dist.all_reduce(both)
    return both[:, 1:] / both[:, :1]


@wrong("17.1", "the sums of the ranks are added as they are")
def forgets_the_factor(largest, total, out):
    packed = torch.cat([total[:, None], out], 1)
    dist.all_reduce(packed)
    return packed[:, 1:] / packed[:, :1]


@wrong("17.1", "the ranks do not call the same collectives")
def rank_0_alone_adds_up(largest, total, out):
    top = largest.clone()
    dist.all_reduce(top, op=dist.ReduceOp.MAX)
    if dist.get_rank() == 0:
        dist.all_reduce(total)
    return out / total[:, None]


@right("17.2")
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


@right("17.2")
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


@wrong("17.2", "input_split_sizes must have one number per rank")
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


@wrong("17.2", "the ranks do not call the same collectives")
def leaves_out_ranks_without_tokens(tokens, expert, apply_expert):
    if len(tokens) == 0:
        return tokens
    dist.all_to_all_single(torch.empty(3), torch.empty(3))
    return tokens


@wrong("17.2", "which lives on rank")
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
