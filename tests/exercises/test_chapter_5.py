"""Each wrong answer of chapter 5 draws its hint; right ones of any form are right."""

import os

import pytest
import torch
import torch.distributed as dist
from torch.distributed import all_reduce as sum_over_ranks

from d2lite.exercises import check
from d2lite.exercises.chapter_5 import EXERCISES
from tests.by_value import by_value
from tests.exercises.answers import Answers, AnswerTests

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


@wrong("5.1", "it is the mean of the ranks' means")
def mean_of_means(my_mean, my_count):
    mean = torch.tensor(my_mean)
    dist.all_reduce(mean)
    return mean.item() / dist.get_world_size()


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


@wrong("5.1", "it is the sum over all examples")
def not_divided(my_mean, my_count):
    total = torch.tensor([my_mean * my_count, my_count])
    dist.all_reduce(total)
    return total[0].item()


@wrong("5.1", "the sum over all examples is divided by the number of ranks")
def divided_by_ranks(my_mean, my_count):
    total = torch.tensor(my_mean * my_count)
    dist.all_reduce(total)
    return total / dist.get_world_size()


@wrong("5.1", "only rank 0 has the result")
def reduced_to_rank_0(my_mean, my_count):
    total = torch.tensor([my_mean * my_count, my_count], dtype=torch.float64)
    dist.reduce(total, dst=0)
    return total[0] / total[1]


@wrong("5.1", "it returns nothing")
def returns_nothing(my_mean, my_count):
    total = torch.tensor([my_mean * my_count, my_count])
    dist.all_reduce(total)
    total[0] /= total[1]


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


@wrong("5.2", "the gradients are summed")
def only_summed(params):
    for param in params:
        dist.all_reduce(param.grad)
    return params


@wrong("5.2", "the sum is divided by the number of parameters")
def divided_by_their_number(params):
    for param in params:
        dist.all_reduce(param.grad)
        param.grad /= len(params)


@wrong("5.2", "the sum is divided by 2")
def divided_by_two(params):
    for param in params:
        dist.all_reduce(param.grad)
        param.grad /= 2


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


@wrong("5.2", "the gradients are what they were before")
def averages_copies(params):
    averages = [param.grad / dist.get_world_size() for param in params]
    for average in averages:
        dist.all_reduce(average)
    return averages


@wrong("5.2", "only the first parameter's gradient is averaged")
def returns_too_early(params):
    for param in params:
        dist.all_reduce(param.grad)
        param.grad /= dist.get_world_size()
        return params


@wrong("5.2", "the function does not wait for the collective")
def does_not_wait(params):
    for param in params:
        dist.all_reduce(param.grad, async_op=True)
    for param in params:
        param.grad /= dist.get_world_size()


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


@wrong("5.3", "dropout leaves out the same units on every rank")
def one_seed(make_net, seed):
    torch.manual_seed(seed)
    return make_net()


@wrong("5.3", "the ranks begin with different weights")
def seed_by_rank_first(make_net, seed):
    torch.manual_seed(seed + dist.get_rank())
    return make_net()


@wrong("5.3", "nothing depends on the seed")
def no_seed(make_net, seed):
    return make_net()


@wrong("5.3", "the seed is not used")
def constant_seeds(make_net, seed):
    torch.manual_seed(42)
    net = make_net()
    torch.manual_seed(dist.get_rank())
    return net


@wrong("5.3", "a second run with the same seed leaves out other units")
def not_repeatable(make_net, seed):
    torch.manual_seed(seed)
    net = make_net()
    torch.seed()
    return net


@wrong("5.3", "it does not return the network")
def returns_the_seed(make_net, seed):
    torch.manual_seed(seed)
    make_net()
    return seed


@wrong("5.3", "with seed 0 dropout leaves out the same units on every rank")
def seed_times_rank(make_net, seed):  # 0 on all ranks where the seed is 0
    torch.manual_seed(seed)
    net = make_net()
    torch.manual_seed(seed * dist.get_rank())
    return net


@right("5.4")
def counts_pieces(piece_size, num_examples):
    return len({len(piece) for piece in torch.zeros(num_examples).split(piece_size)}) == 1


@wrong("5.4", "one piece that holds all examples is said to be wrong")
def only_divides(piece_size, num_examples):
    return num_examples % piece_size == 0


@wrong("5.4", "several pieces of one size are said to be wrong")
def only_one_piece(piece_size, num_examples):
    return piece_size >= num_examples


@wrong("5.4", "True and False are exchanged")
def exchanged(piece_size, num_examples):
    return num_examples % piece_size > 0 and piece_size < num_examples


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


class TestAnswers(AnswerTests):
    exercises, answers = EXERCISES, answers
