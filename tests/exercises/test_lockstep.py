"""The watch over collectives on a group of one rank; the tests of chapters 5 and 6 have three ranks that disagree."""

import functools

import pytest
import torch
import torch.distributed as dist
from torch.distributed import broadcast as sent

from d2lite.exercises.lockstep import Lockstep, _misfit
from d2lite.exercises.observed import Unfit


@pytest.fixture(scope="module", autouse=True)
def group():
    dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    yield
    dist.destroy_process_group()


def count(answer, *args):
    ranks = Lockstep()
    ranks.call(answer, *args)
    return ranks.num_collectives


def test_a_collective_that_calls_others_counts_once():
    assert count(lambda: dist.all_gather_object([None], "a")) == 1
    assert count(lambda: (dist.barrier(), dist.all_reduce(torch.ones(2)))) == 2


def test_a_collective_counts_under_any_name_and_inside_a_function_of_the_arguments():
    def helper():
        sent(torch.ones(1), src=0)

    assert count(lambda fn: fn(), helper) == 1
    assert count(lambda: sent(torch.ones(1), src=0)) == 1
    assert count(lambda: dist.distributed_c10d.all_reduce(torch.ones(1))) == 1


class Sender:
    def __call__(self):
        self.method()

    def method(self):
        sent(torch.ones(1), src=0)


def test_a_collective_counts_inside_an_object_a_method_a_partial_and_a_class():
    assert count(Sender()) == 1
    assert count(Sender().method) == 1
    assert count(functools.partial(Sender.method, None)) == 1
    assert count(lambda kind: kind()(), Sender) == 1
    assert sent is dist.broadcast


def test_what_is_no_collective_does_not_count():
    assert count(lambda: (dist.get_rank(), dist.get_world_size(), dist.is_initialized())) == 0


def test_a_collective_of_another_group_counts_without_an_exchange():
    others = dist.new_group([0])
    assert count(lambda: dist.all_reduce(torch.ones(1), group=others)) == 1


@pytest.mark.parametrize("fails", [False, True])
def test_the_functions_are_what_they_were_afterwards(fails):
    before = dist.all_reduce, dist.distributed_c10d.all_reduce, sent

    def answer():
        assert dist.all_reduce is not before[0] and sent is not before[2]
        if fails:
            raise ZeroDivisionError

    if fails:
        with pytest.raises(ZeroDivisionError):
            Lockstep().call(answer)
    else:
        Lockstep().call(answer)
    assert (dist.all_reduce, dist.distributed_c10d.all_reduce, sent) == before


def test_the_result_of_an_async_collective_arrives_when_it_is_waited_for():
    def answer(ways):
        tensor = torch.ones(1)
        handle = dist.all_reduce(tensor, async_op=True)
        tensor += 5  # overwritten by what arrives
        done = handle.is_completed()
        if ways == "wait":
            handle.wait()
        elif ways == "future":
            assert handle.get_future().value() == [tensor]
        return done, tensor.item()

    assert Lockstep().call(answer, "wait") == (False, 1.0)
    assert Lockstep().call(answer, "future") == (False, 1.0)
    assert Lockstep().call(answer, "neither") == (False, 6.0)


def test_arguments_that_a_collective_does_not_take_are_an_error_of_the_answer():
    with pytest.raises(TypeError, match="missing a required argument: 'tensor'"):
        Lockstep().call(lambda: dist.all_reduce())


def test_an_unfit_answer_stays_unfit():
    def answer():
        raise Unfit("it is no answer.")

    with pytest.raises(Unfit, match=r"it is no answer\."):
        Lockstep().call(answer)


def test_an_all_to_all_counts_once_and_moves_its_rows():
    def answer(given, **splits):
        received = torch.zeros_like(given)
        dist.all_to_all_single(received, given, **splits)
        return received.tolist()

    assert Lockstep().call(answer, torch.arange(6.0).view(3, 2)) == [[0, 1], [2, 3], [4, 5]]
    assert Lockstep().call(answer, torch.zeros(0, 2)) == []
    assert count(lambda: answer(torch.ones(2), input_split_sizes=[2], output_split_sizes=[2])) == 1


def test_an_all_to_all_whose_sizes_do_not_fit_is_unfit_before_it_begins():
    def answer(room, splits):
        dist.all_to_all_single(torch.zeros(room, 2), torch.ones(3, 2), output_split_sizes=splits)

    with pytest.raises(Unfit, match="rank 0 sends 6 numbers to rank 0, which expects 4"):
        Lockstep().call(answer, 2, [2])
    for splits in ([2], [3, 0], []):
        with pytest.raises(Unfit, match="rank 0: output_split_sizes must have one number per rank") as error:
            Lockstep().call(answer, 3, splits)
        assert "input_split_sizes says on the sender" in error.value.think


def test_what_a_rank_sends_is_compared_with_what_the_receiver_expects():
    right = [[[0, 2], [0, 4], "float32"], [[4, 1], [2, 1], "float32"]]
    assert _misfit(right) == ""
    right[1][2] = "int64"
    assert _misfit(right).endswith("rank 0 sends 2 numbers (float32) to rank 1, which expects 2 (int64).")
    right[1] = [[3, 1], [2, 1], "float32"]
    assert _misfit(right).endswith("rank 1 sends 3 numbers to rank 0, which expects 4.")


def test_what_has_begun_is_pending_until_it_is_waited_for_and_held_as_long_as_its_handle_is():
    ranks, seen, handles = Lockstep(), [], []

    def answer():
        dist.all_reduce(torch.ones(1))
        seen.append((ranks.num_pending, ranks.num_held))
        handles.extend(dist.all_reduce(torch.ones(1), async_op=True) for _ in range(2))
        seen.append((ranks.num_pending, ranks.num_held))
        handles[0].wait()
        handles[0].wait()
        seen.append((ranks.num_pending, ranks.num_held))
        handles.clear()
        seen.append((ranks.num_pending, ranks.num_held))

    ranks.call(answer)
    assert seen == [(0, 0), (2, 2), (1, 2), (1, 0)] and ranks.num_collectives == 3
