"""What learners read explains its arguments, results and errors, and its example runs."""

import doctest
import inspect
import sys

import pytest

import d2lite

READ = [
    "Accumulator", "Animator", "DataParallel", "Timer", "Trace", "Workers", "all_reduce", "check", "describe",
    "evaluate_accuracy", "evaluate_accuracy_gpus", "forward_backward", "init_all", "lenet", "lenet_params",
    "load_data_fashion_mnist", "parallel_apply", "replicate", "scatter", "sgd_step", "split_batch", "train",
    "train_batch", "train_concise", "training.ddp_step", "try_gpus", "wrap",
]  # fmt: skip


def find(name):
    found = d2lite
    for part in name.split("."):
        found = getattr(found, part)
    return found


@pytest.mark.slow
@pytest.mark.parametrize("name", READ)
def test_it_explains_its_arguments_and_its_example_runs(name):
    function = find(name)
    text = inspect.getdoc(function)
    assert "Example:" in text
    signature = inspect.signature(function)
    for parameter in signature.parameters if name != "Trace" else ():  # a learner makes one without arguments
        assert f"{parameter}:" in text or f"`{parameter}`" in text or f"{parameter}," in text, parameter
    module = sys.modules[function.__module__]
    tests = doctest.DocTestFinder(recurse=False).find(function, name, globs={**vars(module)})
    assert sum(len(test.examples) for test in tests) > 0
    for test in tests:
        result = doctest.DocTestRunner(optionflags=doctest.ELLIPSIS).run(test)
        assert result.failed == 0
