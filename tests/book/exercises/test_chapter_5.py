"""Answers to the exercises of chapter 5: right ones of other forms, and wrong ones that are not among its mistakes."""

import os

import pytest
import torch
import torch.distributed as dist
from torch.distributed import all_reduce as sum_over_ranks

from d2lite.exercises import check
from tests.book.exercises.answers import Answers, RightAnswers, WrongAnswers
from tests.by_value import by_value

pytestmark = [pytest.mark.slow, pytest.mark.skipif(os.name == "nt", reason="Workers needs Linux or macOS")]
answers = Answers()
right, wrong = answers.right, answers.wrong


@right("5.1")
def gathers_pairs(my_mean, my_count):
    pairs = [torch.zeros(2) for _ in range(dist.get_world_size())]
    dist.all_gather(pairs, torch.tensor([my_mean * my_count, my_count]))
    total = torch.stack(pairs).sum(0)
    return total[:1] / total[1]


@right("5.1")
def waits_for_a_handle(my_mean, my_count):
    total = torch.tensor([my_mean * my_count, my_count], dtype=torch.float64)
    dist.all_reduce(total, async_op=True).wait()
    return (total[0] / total[1]).item()


@wrong("5.1", "it calls 2 collectives, and one is asked for")
def two_collectives(my_mean, my_count):
    total, count = torch.tensor(my_mean * my_count), torch.tensor(float(my_count))
    dist.all_reduce(total)
    dist.all_reduce(count)
    return (total / count).item()


@wrong("5.1", "it calls 2 collectives, and one is asked for")
def two_collectives_by_another_name(my_mean, my_count):
    numbers = [torch.tensor(my_mean * my_count), torch.tensor(float(my_count))]
    for number in numbers:
        sum_over_ranks(number)
    return numbers[0] / numbers[1]


@wrong("5.1", "it calls no collective")
def own_mean(my_mean, my_count):
    return my_mean * my_count / my_count if my_count else 0.0


@wrong("5.1", "it calls no collective")
def a_constant(my_mean, my_count):
    return 2.25


@wrong(
    "5.1", "the ranks do not call the same collectives: rank 0 calls all_reduce of 2 numbers, rank 1 returns, rank 2"
)
def only_the_root_calls(my_mean, my_count):
    total = torch.tensor([my_mean * my_count, my_count])
    if dist.get_rank() == 0:
        dist.all_reduce(total)
    return (total[0] / total[1]).item()


@wrong("5.1", "rank 0 calls all_reduce of 1 number, rank 1 calls all_reduce of 2 numbers, rank 2 calls")
def other_sizes(my_mean, my_count):
    total = torch.ones(min(2, 1 + dist.get_rank()))
    dist.all_reduce(total)
    return total[0].item()


@wrong("5.1", "it raised ZeroDivisionError")
def fails_on_one_rank(my_mean, my_count):
    share = torch.tensor([my_mean, 1 / my_count])
    dist.all_reduce(share)
    return share[0].item()


@right("5.2")
def in_place_without_return(params):
    for param in params:
        dist.all_reduce(param.grad)
        param.grad.div_(dist.get_world_size())


@right("5.2")
def one_large_tensor(params):
    flat = torch.cat([param.grad.flatten() for param in params])
    dist.all_reduce(flat)
    flat /= dist.get_world_size()
    for param, part in zip(params, flat.split([param.numel() for param in params]), strict=True):
        param.grad.copy_(part.view_as(param))
    return params


@right("5.2")
def all_at_once(params):
    handles = [dist.all_reduce(param.grad, async_op=True) for param in params]
    for param, handle in zip(params, handles, strict=True):
        handle.wait()
        param.grad /= dist.get_world_size()


@wrong("5.2", "it changes the parameters")
def averages_parameters(params):
    for param in params:
        dist.all_reduce(param.data)
        param.data /= dist.get_world_size()
    return params


@wrong("5.2", "param.grad is another tensor now")
def replaces_the_gradient(params):
    for param in params:
        dist.all_reduce(param.grad)
        param.grad = param.grad / dist.get_world_size()
    return params


@wrong("5.2", "rank 0 calls all_reduce of 2 numbers, rank 1 returns, rank 2 returns")
def root_alone(params):
    if dist.get_rank() == 0:
        in_place_without_return(params)


by_value(root_alone)


@right("5.3")
def seeds_again_by_rank(make_net, seed):
    torch.manual_seed(seed)
    net = make_net()
    torch.manual_seed(1000 * (seed + 1) + dist.get_rank())
    return net


@right("5.3")
def sends_the_weights_of_rank_0(make_net, seed):
    torch.manual_seed(100 * seed + dist.get_rank())
    net = make_net()
    for param in net.parameters():
        dist.broadcast(param.data, src=0)
    return net


@wrong("5.3", "it does not return the network")
def returns_the_seed(make_net, seed):
    torch.manual_seed(seed)
    make_net()
    return seed


@right("5.4")
def counts_pieces(piece_size, num_examples):
    return len({len(piece) for piece in torch.zeros(num_examples).split(piece_size)}) == 1


@wrong("5.4", "it gives True in every case")
def always(piece_size, num_examples):
    return True


@wrong("5.4", "it gives False in every case")
def never(piece_size, num_examples):
    return False


@pytest.mark.slow
def test_check_ends_an_answer_of_which_only_the_root_calls(capsys, tmp_path, monkeypatch):
    monkeypatch.setenv("D2LITE_LEDGER", str(tmp_path / "ledger.json"))
    assert not check("5.2", root_alone).solved
    assert "the ranks do not call the same collectives" in capsys.readouterr().out


class TestAnswers(RightAnswers, WrongAnswers):
    answers = answers
