"""Each public function and dataclass of the room refuses nonsense for each of its arguments, and names the argument."""

import inspect
import math
import re

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

from d2lite import costs
from d2lite.costs import CASES, Case, Cluster, Device, Layer, Link, Message, Setup, Step, Traffic, Workload
from d2lite.trace import Event, Send

LINK, DEVICE = Link(1e-5, 1e9), Device(1e12)
NET = Workload("two layers", (400, 40), (100, 10), 1000)
STEP = Step(1.0, 0.1, 0.9, 0.0, 0.0, 0.0, (Event(0, "forward", "forward", 0.0, 1.0),))
LAYER = Layer("1", "Linear", (8, 10), 40, 32, 80, ((32, 4),), 40)
TRAINED = nn.Sequential(nn.Linear(4, 4), nn.Linear(4, 2))
CASE = {field: getattr(CASES[0], field) for field in Case.__dataclass_fields__}
LENET = Setup("LeNet")
LOGGED = {"messages": [Send(0, 0, 1, 0, 8, True)], "cluster": LINK}
STEPPED = {"workload": NET, "batch_size": 32, "k": 2, "device": DEVICE, "cluster": LINK}
SCALED = {"workload": NET, "batch_size": 32, "ks": [1, 2], "device": DEVICE, "cluster": LINK}
SPLIT = {"way": "data", "layers": [LAYER, LAYER], "k": 2}

# name -> arguments that are right; what is not given has a default that is right
VALID = {
    "Case": CASE,
    "Cluster": {"inside": LINK, "across": LINK, "per_host": 4},
    "Device": {"flops_per_s": 1e12, "overhead_s": 0.0, "name": "", "source": ""},
    "Layer": vars(LAYER),
    "Link": {"latency_s": 0.0, "bandwidth_bytes_per_s": 1e9, "name": "", "source": "", "ports": 1},
    "Message": vars(Message(0, 1, "gradients", 8, "all")),
    "Outcome": {"k": 1, "step": STEP, "epoch_s": 1.0, "efficiency": 1.0},
    "Setup": vars(LENET),
    "Step": vars(STEP),
    "Traffic": vars(Traffic("data", 2, 8, 0, 8, (4, 4), 1)),
    "Workload": vars(NET),
    "all_reduce_seconds": {"algorithm": "ring", "k": 2, "n_bytes": 8.0, "cluster": LINK},
    "all_ways": {"layers": [LAYER, LAYER], "k": 2},
    "bucket_sums": {"workload": NET, "caps": (100,)},
    "buckets": {"n_bytes": [400, 40], "caps": (100,)},
    "bytes_sent": SPLIT,
    "compare": {"cases": CASES[:1]},
    "comparison_table": {"rows": costs.compare(CASES[:1])},
    "crossover": {"setup": LENET},
    "crossover_batch_size": {
        "workload": NET,
        "device": DEVICE,
        "cluster": LINK,
        "k": 2,
        "most": 2**10,
    },
    "expected_maximum": {"k": 2, "cdf": lambda x: x, "low": 0.0, "high": 1.0},
    "find_device": {"name": "P100, float32"},
    "find_link": {"name": "PCIe 3 x16"},
    "gpu_hours": {"seconds": 1.0, "k": 2},
    "layers_of": {"net": TRAINED, "X": torch.ones(2, 4)},
    "lower_bound_n_bytes": {"k": 2, "n_bytes": 8.0},
    "maximum_of_sample": {"k": 2, "seconds": [1.0, 2.0]},
    "messages": SPLIT,
    "messages_seconds": LOGGED,
    "named_workload": {"name": "LeNet"},
    "needed": {"case": CASES[0]},
    "normal_wait": {"k": 2, "std_s": 0.1},
    "outcome": {"setup": LENET, "k": 2},
    "outcomes": {"setup": LENET, "ks": [1, 2]},
    "predict_step": STEPPED | {"algorithm": "ring", "overlap": True, "caps": (100,), "wait_s": 0.0},
    "predicted_efficiency": {"case": CASES[0], "overlap": True, "bandwidth": 1.0, "latency": 1.0, "spread": 0.0},
    "stages": {"layers": [LAYER, LAYER], "k": 2, "slack": 0.05},
    "strong_scaling": SCALED | {"algorithm": "ring", "wait_s": 0.0},
    "summary": {"setup": LENET, "k": 2, "price": 0.0},
    "weak_scaling": SCALED | {"algorithm": "ring", "wait_s": 0.0},
    "workload": {"net": TRAINED, "X": torch.ones(1, 4), "name": "", "num_examples": 10},
}
NO_NUMBER = [math.nan, math.inf, -math.inf, -1, -0.5, 10**400, "32", b"32", True, 1j, [1], object()]
NOTHING_RIGHT = [math.nan, -1, 10**400, True, 1j, object(), b"2"]


def wrong_for(value):
    """Values that are wrong wherever `value` is right, since they are of another type or out of any range."""
    if isinstance(value, bool):
        return [0, 1, "no", None, 0.5]
    if isinstance(value, (int, float)):
        return NO_NUMBER
    if isinstance(value, (list, tuple)) and value and isinstance(value[0], (int, float)):
        return [*NOTHING_RIGHT, "32", *([wrong] for wrong in NO_NUMBER)]
    return [*NOTHING_RIGHT, [object()], {"a": 1}, [None]] if isinstance(value, str) else [*NOTHING_RIGHT, "32", [None]]


ARGUMENTS = [(name, argument) for name, arguments in VALID.items() for argument in arguments]


def test_every_public_name_that_can_be_called_is_in_the_table():
    named = {name for name in costs.__all__ if callable(getattr(costs, name))}
    assert named == VALID.keys()
    for name, arguments in VALID.items():
        fixed = [p for p in inspect.signature(getattr(costs, name)).parameters.values() if p.kind is not p.VAR_KEYWORD]
        assert {p.name for p in fixed} <= arguments.keys(), name
        getattr(costs, name)(**arguments)


def refuses(name, argument, wrong):
    with pytest.raises((TypeError, ValueError)) as caught:
        getattr(costs, name)(**VALID[name] | {argument: wrong})
    # find_link and find_device name what they look for
    said = name.removeprefix("find_") if name.startswith("find_") else argument
    assert re.search(rf"\b{said}\b.*expected .*got ", str(caught.value)), (name, argument, wrong, str(caught.value))


@pytest.mark.parametrize(("name", "argument"), ARGUMENTS)
def test_nonsense_is_refused_by_the_name_of_its_argument(name, argument):
    for wrong in wrong_for(VALID[name][argument]):
        if (argument, wrong) not in (("low", -1), ("low", -0.5)):  # bounds of a distribution may be negative
            refuses(name, argument, wrong)


@settings(max_examples=300)
@given(st.sampled_from(ARGUMENTS), st.floats(max_value=-1e-300) | st.text(max_size=3) | st.binary(max_size=3))
def test_no_argument_takes_a_negative_number_or_a_text_for_a_number(place, wrong):
    name, argument = place
    right = VALID[name][argument]
    if argument not in ("low", "high") and not (isinstance(right, str) and isinstance(wrong, str)):
        refuses(name, argument, wrong)


@pytest.mark.parametrize("wrong", NO_NUMBER)
def test_methods_of_links_and_clusters_refuse_nonsense(wrong):
    for call, said in (
        (lambda: LINK.seconds(wrong), "n_bytes"),
        (lambda: LINK.seconds(1, wrong), "receivers"),
        (lambda: Cluster(LINK, LINK, 2).shape(wrong), "k"),
        (lambda: Cluster(LINK, LINK, 2).host(wrong), "i"),
        (lambda: costs.messages_seconds([Send(0, 0, 1, 0, wrong, True)], LINK), r"messages\[0\].n_bytes"),
    ):
        with pytest.raises((TypeError, ValueError), match=f"^{said}: expected .*got "):
            call()


def test_numbers_of_numpy_are_numbers():
    np = pytest.importorskip("numpy")
    step = costs.predict_step(NET, np.float32(32), np.int64(2), Device(np.float64(1e12)), LINK)
    assert step == costs.predict_step(NET, 32, 2, DEVICE, LINK)


@pytest.mark.parametrize(
    ("call", "text"),
    [
        (lambda: Workload("", (4, 4), (1,)), "macs: expected 2, one per tensor of n_bytes, got 1"),
        (lambda: Workload("", (4,), (0,)), "macs: expected one above 0 at least"),
        (lambda: Workload("", (), ()), "n_bytes: expected 1 or more, got 0"),
        (lambda: costs.buckets([4], ()), "caps: expected 1 or more, got 0"),
        (lambda: costs.predict_step(NET, 0, 2, DEVICE, LINK), "batch_size: expected a finite number above 0, got 0"),
        (lambda: costs.predict_step(NET, 1e300, 2, Device(1e-9), LINK), "expected a step that ends, got inf"),
        (lambda: costs.crossover_batch_size(NET, DEVICE, LINK, 4, most=3), "most: expected a whole number from 4 on"),
        (lambda: costs.workload(TRAINED, torch.ones(0, 4)), "X: expected a minibatch of at least one example"),
        (lambda: costs.layers_of(TRAINED, torch.ones(0, 4)), "X: expected a minibatch of at least one example"),
        (lambda: costs.bytes_sent("tensor", [LAYER], 257), "k: expected a whole number from 1 to 256, got 257"),
        (lambda: costs.expected_maximum(2, lambda x: math.nan, 0, 1), r"cdf\(0\): expected a finite number"),
    ],
)
def test_what_is_wrong_in_another_way_is_explained(call, text):
    with pytest.raises(ValueError, match=text):
        call()
    assert costs.all_ways([LAYER], 300)["tensor"] is None
