import pytest
import torch

from d2lite import replicate, try_gpus
from d2lite.labs.chapter_11 import check_replicas
from d2lite.labs.chapter_11.check_replicas import judge_replicas


def two(*values, dtype=torch.float32):
    return [[torch.tensor(value, dtype=dtype), torch.zeros(2, dtype=dtype)] for value in values]


def test_copies_pass_and_the_verdict_is_printed(capsys):
    verdict = check_replicas(replicate([torch.rand(3), torch.rand(2)], try_gpus(3)))
    assert verdict.passed and verdict.name == "copies"
    assert capsys.readouterr().out == "copies: 3 replicas are equal, bit for bit, and share no memory.\n"


@pytest.mark.parametrize("share", [lambda p: p, lambda p: p[:2], lambda p: p.view(4)[1:], lambda p: p.detach()])
def test_shared_memory_is_aliased_whatever_the_views(share):
    base = torch.ones(4)
    verdict = judge_replicas([[torch.zeros(1), base[:2]], [torch.zeros(1), share(base)[:2]]])
    assert verdict.name == "aliased replicas" and "parameter 1 of replica 0 and of replica 1" in verdict.words


def test_parts_of_one_buffer_share_no_memory():
    flat = torch.ones(2, 5)
    assert judge_replicas([[flat[0]], [flat[1]]]).name == "copies"
    turns = torch.ones(10)
    assert judge_replicas([[turns[::2]], [turns[1::2]]]).name == "copies"


@pytest.mark.parametrize("value", [float("nan"), float("inf")])
def test_equal_replicas_of_a_run_that_diverged_are_copies(value):
    assert judge_replicas(two([1.0, value], [1.0, value])).name == "copies"
    assert judge_replicas(two([1.0, value], [1.0, 0.0])).name == "different replicas"


def test_shared_memory_of_two_different_parameters_is_named():
    shared = torch.ones(2)
    verdict = judge_replicas([[shared, torch.ones(2)], [torch.ones(2), shared]])
    assert "parameter 0 of replica 0 and parameter 1 of replica 1 are in the same memory" in verdict.words


def test_rounding_is_told_from_a_difference():
    assert judge_replicas(two([1.0, 2.0], [1.0, 2.000001])).name == "equal up to rounding"
    assert judge_replicas(two([1.0, 2.0], [1.0, 2.000001], dtype=torch.float64)).name == "different replicas"
    verdict = judge_replicas(two([1.0, 2.0], [1.0, 2.0], [1.0, 3.0]))
    assert not verdict.passed and "most in parameter 0 of replica 2 (by 1)" in verdict.words
    assert "not finite" in judge_replicas(two([1.0, 2.0], [1.0, float("nan")])).words


def test_other_shapes_types_and_numbers_are_named():
    assert (
        "parameter 0 of replica 1 is [1] (float32), and that of replica 0 is [2]"
        in judge_replicas([[torch.ones(2)], [torch.ones(1)]]).words
    )
    assert "(float64)" in judge_replicas([[torch.ones(2)], [torch.ones(2).double()]]).words
    assert (
        "replica 1 has 1 parameters, and replica 0 has 2"
        in judge_replicas([[torch.ones(2), torch.ones(1)], [torch.ones(2)]]).words
    )


@pytest.mark.parametrize("given", [torch.ones(2), [torch.ones(2)], [[1.0]], {"a": 1}])
def test_what_is_no_list_of_lists_of_tensors_is_refused(given):
    with pytest.raises(TypeError, match="expected one list of tensors per device"):
        check_replicas(given)


@pytest.mark.parametrize("given", [[], [[]]])
def test_no_devices_and_no_parameters_are_refused(given):
    with pytest.raises(ValueError, match="expected at least one device, each with parameters"):
        check_replicas(given)
