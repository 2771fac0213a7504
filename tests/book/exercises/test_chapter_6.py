"""Answers to the exercises of chapter 6: right ones of other forms, and wrong ones that are not among its mistakes."""

import os

import pytest
import torch
import torch.distributed as dist
import torch.nn.functional as F

from tests.book.exercises.scoring import Answers, RightAnswers, WrongAnswers
from tests.by_value import by_value

pytestmark = pytest.mark.skipif(os.name == "nt", reason="Workers needs Linux or macOS")
answers = Answers()
right, wrong = answers.right, answers.wrong


@by_value
def allreduce(tensor, op="mean"):
    """Chapter 6 gives learners this function."""
    total = tensor.detach().clone()
    dist.all_reduce(total)
    return total / dist.get_world_size() if op == "mean" else total


@right("6.1")
def adds_log_probabilities(logits, y_shard, batch_size, size):
    picked = F.log_softmax(logits, 1).gather(1, y_shard[:, None])
    return -picked.sum() * (size / batch_size)


@right("6.1")
def mean_of_none_is_none(logits, y_shard, batch_size, size):
    if not len(y_shard):
        return logits.sum()
    return F.cross_entropy(logits, y_shard) * len(y_shard) * size / batch_size


@wrong("6.1", "the loss of a shard calls a collective")
def reduces_inside(logits, y_shard, batch_size, size):
    return allreduce(F.cross_entropy(logits, y_shard, reduction="sum"), op="sum") / batch_size


@wrong("6.1", "no gradient can be computed")
def a_plain_number(logits, y_shard, batch_size, size):
    return F.cross_entropy(logits, y_shard, reduction="sum").item() / batch_size * size


@wrong("6.1", "no gradient can be computed")
def one_number_per_example(logits, y_shard, batch_size, size):
    return F.cross_entropy(logits, y_shard, reduction="none") / batch_size * size


@wrong("6.1", "no gradient reaches the logits")
def a_new_tensor(logits, y_shard, batch_size, size):
    return torch.tensor(
        F.cross_entropy(logits, y_shard, reduction="sum").item() / batch_size * size, requires_grad=True
    )


@wrong("6.1", "it returns nothing")
def forgets_return(logits, y_shard, batch_size, size):
    loss = F.cross_entropy(logits, y_shard, reduction="sum")
    loss = loss / batch_size * size


@right("6.2")
def in_place_without_return(optimizer, root_rank=0):
    for group in optimizer.param_groups:
        for param in group["params"]:
            for name in sorted(optimizer.state[param]):
                dist.broadcast(optimizer.state[param][name], src=root_rank)


@right("6.2")
def through_a_list(optimizer, root_rank=0):
    state = [[list(optimizer.state[p].values()) for p in g["params"]] for g in optimizer.param_groups]
    sent = [state]
    dist.broadcast_object_list(sent, src=root_rank)
    for mine, others in zip(state, sent[0], strict=True):
        for tensors, roots in zip(mine, others, strict=True):
            for tensor, root in zip(tensors, roots, strict=True):
                tensor.copy_(root)
    return optimizer


@wrong("6.2", "the state has other tensors now")
def replaces_tensors(optimizer, root_rank=0):
    for state in optimizer.state.values():
        for name in state:
            state[name] = state[name].clone()
            dist.broadcast(state[name], src=root_rank)


@wrong("6.2", "it changes the parameters")
def sends_parameters(optimizer, root_rank=0):
    for group in optimizer.param_groups:
        for param in group["params"]:
            dist.broadcast(param.data, src=root_rank)


@wrong("6.2", "it asks for the momentum_buffer of each parameter")
def asks_by_name(optimizer, root_rank=0):
    for state in [optimizer.state[param] for group in optimizer.param_groups for param in group["params"]]:
        dist.broadcast(state["momentum_buffer"], root_rank)


@wrong("6.2", "rank 0 calls broadcast of 2 numbers from rank 0, rank 1 returns, rank 2 returns")
def root_alone(optimizer, root_rank=0):
    if dist.get_rank() == root_rank:
        for state in optimizer.state.values():
            for value in state.values():
                dist.broadcast(value, src=root_rank)


@by_value
def sending(optimizer, params, sends, divides=True, waits=True):
    """Return step() for hooks that send where sends(number of calls) says so."""
    calls, handles = {}, {}

    def hook(param):
        calls[param] = calls.get(param, 0) + 1
        if sends(calls[param]):
            handles[param] = dist.all_reduce(param.grad, async_op=True)

    for param in params:
        param.register_post_accumulate_grad_hook(hook)

    def step():
        for param, handle in handles.items():
            if waits:
                handle.wait()
            param.grad /= dist.get_world_size() if divides else 1
        handles.clear()
        optimizer.step()

    return step


@right("6.3")
def sends_at_once_and_waits_in_the_hook(optimizer, params, n):
    calls = [0] * len(params)

    def hook(i, param):
        calls[i] += 1
        if calls[i] == n:
            dist.all_reduce(param.grad)
            param.grad /= dist.get_world_size()
            calls[i] = 0

    for i, param in enumerate(params):
        param.register_post_accumulate_grad_hook(lambda param, i=i: hook(i, param))
    return optimizer.step


@wrong("6.3", "it returns no function")
def returns_no_step(optimizer, params, n):
    sending(optimizer, params, lambda calls: calls % n == 0)


@wrong("6.3", "one counter counts the calls for all parameters together")
def one_counter_for_all_parameters(optimizer, params, n):
    passes = []

    def sends(calls):
        passes.append(1)
        return len(passes) % n == 0

    return sending(optimizer, params, sends)


@wrong("6.3", "a hook raised KeyError")
def forgets_to_begin_counting(optimizer, params, n):
    calls = {}

    def hook(param):
        calls[param] += 1

    for param in params:
        param.register_post_accumulate_grad_hook(hook)
    return optimizer.step


@right("6.4")
def splits_and_returns(tensors):
    together = torch.cat([tensor.reshape(-1) for tensor in tensors])
    dist.all_reduce(together)
    for tensor, part in zip(tensors, together.split([tensor.numel() for tensor in tensors]), strict=True):
        tensor[...] = part.reshape(tensor.shape)
    return tensors


@wrong("6.4", "it calls 3 collectives, and one is asked for")
def one_each(tensors):
    for tensor in tensors:
        dist.all_reduce(tensor)


@wrong("6.4", "it fails for a transposed tensor")
def views_a_transposed_tensor(tensors):
    together = torch.cat([tensor.view(-1) for tensor in tensors])
    dist.all_reduce(together)
    begin = 0
    for tensor in tensors:
        tensor.view(-1).copy_(together[begin : begin + tensor.numel()])
        begin += tensor.numel()


@wrong("6.4", "rank 1 returns")
def root_sends(tensors):
    if dist.get_rank() == 0:
        splits_and_returns(tensors)


class TestAnswers(RightAnswers, WrongAnswers):
    answers = answers
