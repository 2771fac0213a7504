"""Answers to the exercises of chapter 5: right ones of other forms, and wrong ones that are not among its mistakes."""

import os

import pytest
import torch
import torch.distributed as dist
from torch.distributed import all_reduce as sum_over_ranks

from d2lite.exercises import check
from tests.book.exercises.scoring import Answers, RightAnswers, WrongAnswers
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
def assigns_buckets_in_advance_and_sends_the_last_one_in_its_hook(params, bucket_size):
    buckets, place, handles = [[]], {}, []
    for param in reversed(params):
        if sum(p.numel() for p in buckets[-1]) >= bucket_size:
            buckets.append([])
        buckets[-1].append(param)
        place[param] = len(buckets) - 1
    missing = [len(bucket) for bucket in buckets]

    def hook(param):
        i = place[param]
        missing[i] -= 1
        if missing[i] == 0:
            flat = torch.cat([p.grad.reshape(-1) for p in buckets[i]])
            handles.append((i, flat, dist.all_reduce(flat, async_op=True)))

    def finish():
        for i, flat, handle in handles:
            handle.wait()
            flat /= dist.get_world_size()
            for p, part in zip(buckets[i], flat.split([p.numel() for p in buckets[i]]), strict=True):
                p.grad = part.reshape(p.shape)  # a view of the bucket, as with gradient_as_bucket_view=True
        handles.clear()
        missing[:] = [len(bucket) for bucket in buckets]

    for param in params:
        param.register_post_accumulate_grad_hook(hook)
    return finish


@wrong("5.2", "a hook waits for its all-reduce")
def waits_in_the_hook(params, bucket_size):
    bucket = []

    def send():
        flat = torch.cat([p.grad.flatten() for p in bucket])
        sum_over_ranks(flat)
        begin = 0
        for p in bucket:
            p.grad[...] = flat[begin : begin + p.numel()].view(p.shape) / dist.get_world_size()
            begin += p.numel()
        bucket.clear()

    def hook(param):
        bucket.append(param)
        if sum(p.numel() for p in bucket) >= bucket_size:
            send()

    def finish():
        if bucket:
            send()

    for param in params:
        param.register_post_accumulate_grad_hook(hook)
    return finish


@right("5.2")
def a_class_with_keyword_only_settings(params, bucket_size, *, op=None):
    class Buckets:
        def __init__(self):
            self.waiting, self.held, self.sent = [], 0, []

        def send(self):
            flat = torch.cat([p.grad.flatten() for p in self.waiting]) / dist.get_world_size()
            self.sent.append((dist.all_reduce(flat, op or dist.ReduceOp.SUM, async_op=True), flat, self.waiting))
            self.waiting, self.held = [], 0

        def __call__(self):
            if self.waiting:
                self.send()
            for handle, flat, members in self.sent:
                handle.wait()
                torch._foreach_copy_(
                    [p.grad for p in members],
                    [f.view_as(p) for f, p in zip(flat.split([p.numel() for p in members]), members, strict=True)],
                )
            self.sent = []

        def ready(self, param):
            self.waiting.append(param)
            self.held += param.numel()
            if self.held >= bucket_size:
                self.send()

    finish = Buckets()
    for param in params:
        param.register_post_accumulate_grad_hook(finish.ready)
    return finish


@by_value
def with_send(params, bucket_size, send, finish):
    """Return finish for hooks that call send(bucket) where it is full."""
    bucket = []

    def hook(param):
        bucket.append(param)
        if sum(p.numel() for p in bucket) >= bucket_size:
            send(bucket)
            bucket.clear()

    for param in params:
        param.register_post_accumulate_grad_hook(hook)

    def at_the_end():
        finish(bucket)
        bucket.clear()

    return at_the_end


@by_value
def with_handles(params, bucket_size, put_away, finished):
    """Return finish for hooks that send full buckets; `put_away(sent, entry, bucket)` keeps what finish() needs."""
    bucket, sent = [], []

    def send():
        flat = torch.cat([p.grad.flatten() for p in bucket])
        put_away(sent, dist.all_reduce(flat, async_op=True), flat, bucket)
        bucket.clear()

    def hook(param):
        bucket.append(param)
        if sum(p.numel() for p in bucket) >= bucket_size:
            send()

    def finish():
        if bucket:
            send()
        for handle, flat, members in sent:
            handle.wait()
            for p, part in zip(members, flat.split([p.numel() for p in members])):  # noqa: B905
                p.grad = part.view_as(p) / dist.get_world_size()
        finished(sent)

    for param in params:
        param.register_post_accumulate_grad_hook(hook)
    return finish


@right("5.2")
def keeps_the_last_step_until_the_next(params, bucket_size):
    kept = []

    def finished(sent):
        kept[:] = sent
        sent.clear()

    def put_away(sent, handle, flat, bucket):
        sent.append((handle, flat, list(bucket)))

    return with_handles(params, bucket_size, put_away, finished)


@wrong("5.2", "time and memory grow with each step")
def a_list_that_grows(params, bucket_size):
    def put_away(sent, handle, flat, bucket):
        sent.append((handle, flat, list(bucket)))

    return with_handles(params, bucket_size, put_away, len)


@wrong("5.2", "put away in the list that is emptied afterwards")
def puts_away_the_list_that_is_emptied(params, bucket_size):
    return with_handles(params, bucket_size, lambda sent, *entry: sent.append(entry), list.clear)


@wrong("5.2", "it changes the parameters")
def averages_parameters(params, bucket_size):
    def send(bucket):
        for p in bucket:
            dist.all_reduce(p.data)
            p.data /= dist.get_world_size()

    return with_send(params, bucket_size, send, send)


@wrong("5.2", "it returns no function, and finish")
def returns_no_finish(params, bucket_size):
    with_send(params, bucket_size, len, len)


@wrong("5.2", "a hook waits for its all-reduce")
def one_all_reduce_for_each_gradient_of_a_bucket(params, bucket_size):
    def send(bucket):
        for p in bucket:
            dist.all_reduce(p.grad)
            p.grad /= dist.get_world_size()

    return with_send(params, bucket_size, send, send)


@wrong("5.2", "finish() raised ")
def finish_sends_an_empty_bucket(params, bucket_size):
    def send(bucket):
        flat = torch.cat([p.grad.flatten() for p in bucket])
        dist.all_reduce(flat)
        for p, part in zip(bucket, flat.split([p.numel() for p in bucket]), strict=True):
            p.grad.copy_(part.view_as(p) / dist.get_world_size())

    return with_send(params, bucket_size, send, send)


@wrong("5.2", "rank 0 calls all_reduce of 1 number, rank 1 returns, rank 2 returns")
def root_alone(params, bucket_size):
    for param in params:
        if dist.get_rank() == 0:
            param.register_post_accumulate_grad_hook(lambda param: dist.all_reduce(param.grad))
    return lambda: None


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


@right("5.3")
def draws_its_own_seed(make_net, seed):
    torch.manual_seed(seed)
    net = make_net()
    torch.rand(1000 * dist.get_rank() + 1)
    return net


@wrong("5.3", "with a different seed at least one rank leaves out the same units")
def rank_0_has_one_seed_for_all(make_net, seed):
    torch.manual_seed(seed)
    net = make_net()
    torch.manual_seed((seed + 1) * dist.get_rank())
    return net


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
