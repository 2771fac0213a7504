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
def with_an_embedding_layer(weight, first, tokens, grad_X):
    mine = (tokens >= first) & (tokens < first + len(weight))
    leaf = weight.clone().requires_grad_()
    own = torch.nn.functional.embedding(tokens[mine] - first, leaf)
    (grad_weight,) = torch.autograd.grad(own, leaf, grad_X[mine])
    X = torch.zeros_like(grad_X)
    X[mine] = own.detach()
    dist.all_reduce(X)
    return X, grad_weight


@right("14.2")
def with_one_hot_rows(weight, first, tokens, grad_X):
    rows = first + torch.arange(len(weight))
    chosen = (tokens[:, None] == rows).to(weight.dtype)
    X = chosen @ weight
    dist.all_reduce(X)
    return [X, chosen.T @ grad_X]


@wrong("14.2", "it does not return two tensors")
def returns_the_rows_alone(weight, first, tokens, grad_X):
    return with_one_hot_rows(weight, first, tokens, grad_X)[0]


@wrong("14.2", "of a token that occurs several times only the last gradient counts")
def assigns_the_gradients(weight, first, tokens, grad_X):
    X, grad_weight = with_one_hot_rows(weight, first, tokens, grad_X)
    grad_weight = torch.zeros_like(weight)
    for token, grad in zip(tokens.tolist(), grad_X, strict=True):
        if first <= token < first + len(weight):
            grad_weight[token - first] = grad
    return X, grad_weight


@wrong("14.2", "it raised IndexError")
def takes_every_token_for_its_own(weight, first, tokens, grad_X):
    return weight[tokens - first], torch.zeros_like(weight)


class TestAnswers(RightAnswers, WrongAnswers):
    answers = answers
