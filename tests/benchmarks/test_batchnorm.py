"""The record behind chapter 10: it is measured with the chapter's own functions, and holds plain numbers."""

import json

import pytest
import torch

from benchmarks.records import batchnorm
from d2lite import load_data_fashion_mnist
from d2lite.training import evaluate_accuracy


@pytest.fixture(autouse=True)
def one_thread():
    before = torch.get_num_threads()
    torch.set_num_threads(1)  # as main does: sums in one order
    yield
    torch.set_num_threads(before)


@pytest.fixture(scope="module")
def small():
    settings = {"seeds": range(2), "num_examples": 256, "num_epochs": 1}
    return batchnorm.record(numbers=(64, 2), num_test_examples=256, **settings), settings


def test_each_arm_has_one_accuracy_per_seed(small):
    record, _ = small
    names = [arm["name"] for arm in record["arms"]]
    assert names == ["BatchNorm, 64 examples per replica", "BatchNorm, 2 examples per replica", "GroupNorm, one device"]
    for arm in record["arms"]:
        for what in ("accuracies", "on the chapter's test images", *(["again"] if "again" in arm else [])):
            assert len(arm[what]) == 2 and all(0 <= accuracy <= 1 for accuracy in arm[what]), (arm["name"], what)
    assert ["again" in arm for arm in record["arms"]] == [True, True, False]


def test_the_record_is_plain_json_and_names_its_settings(small):
    record, settings = small
    again = json.loads(json.dumps(record))
    assert again == record
    assert again["seeds"] == [0, 1] and again["num_examples"] == 256 and again["num_test_examples"] >= 256


def test_the_networks_are_those_that_the_chapter_s_functions_train(small):
    record, settings = small
    names = batchnorm.chapter_names(**settings)
    nets, few = names["over_seeds"](names["group_norm"])
    test_iter = load_data_fashion_mnist(500, 6 * 256)[1]
    assert record["arms"][-1]["accuracies"] == [evaluate_accuracy(net, test_iter) for net in nets]
    assert record["arms"][-1]["on the chapter's test images"] == list(few)
