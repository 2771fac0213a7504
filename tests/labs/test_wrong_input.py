"""What a learner types wrong is refused by the name of its argument."""

import importlib
import math
import re

import pytest
import torch
from torch import nn

from d2lite import costs
from d2lite.costs import Device, Link
from d2lite.labs.chapter_01 import all_ways, bytes_sent, layers_of
from d2lite.labs.chapter_08 import Setup, Workload, crossover_batch_size, predict_step, workload
from d2lite.labs.chapter_13 import MEMORY_MODELS
from d2lite.labs.chapter_16 import Measured, Mesh, PredictionCard

LINK, DEVICE = Link(1e-5, 1e9), Device(1e12)
NET = Workload("two layers", (400, 40), (100, 10), 1000)
TRAINED = nn.Sequential(nn.Linear(4, 4), nn.Linear(4, 2))
LAYERS = layers_of(TRAINED, torch.ones(8, 4))
LENET = Setup("LeNet")
CARD = {"what": "", "mesh": {"data": 2}, "compute_s": 0.2, "num_messages": 4, "latency_s": 0.01, "n_bytes": 1e6}
CARD |= {"bandwidth_bytes_per_s": 1e8, "hidden_s": 0.01, "straggler_s": 0.0}
MEASURED = {"step_s": [0.3], "compute_s": [0.2, 0.2], "latency_s": 0.01, "bandwidth_bytes_per_s": 1e8}
MEASURED |= {"communication_s": 0.1}
STEPPED = {"workload": NET, "batch_size": 32, "k": 2, "device": DEVICE, "cluster": LINK}
SCALED = {"workload": NET, "batch_size": 32, "ks": [1, 2], "device": DEVICE, "cluster": LINK}
SPLIT = {"way": "data", "layers": LAYERS, "k": 2}
MESHES = {"model": MEMORY_MODELS[0], "num_ranks": 4, "batch_size": 8, "microbatch": 2, "stages_per_rank": 2}

# name -> arguments that are right
VALID = {
    "Cluster": {"inside": LINK, "across": LINK, "per_host": 4},
    "Device": {"flops_per_s": 1e12, "overhead_s": 0.0, "name": ""},
    "Link": {"latency_s": 0.0, "bandwidth_bytes_per_s": 1e9, "name": "", "ports": 1},
    "Measured": MEASURED,
    "PredictionCard": CARD,
    "Setup": vars(LENET),
    "Mesh": {"pipe": 1, "data": 2, "tensor": 4},
    "all_reduce_seconds": {"algorithm": "ring", "k": 2, "n_bytes": 8.0, "cluster": LINK},
    "all_ways": {"layers": LAYERS, "k": 2},
    "bubble_formula": {"num_stages": 2, "num_microbatches": 4},
    "bytes_sent": SPLIT,
    "card_of_step": {"what": "", "step": predict_step(NET, 32, 2, DEVICE, LINK), "k": 2, "link": LINK},
    "compare_with_measured": {"card": PredictionCard(**CARD), "measured": Measured(**MEASURED)},
    "crossover": {"setup": LENET},
    "crossover_batch_size": {"workload": NET, "device": DEVICE, "cluster": LINK, "k": 2, "most": 2**10},
    "fastest_mesh": MESHES | {"device": DEVICE, "cluster": LINK, "device_n_bytes": 80e9},
    "find_device": {"name": "P100, float32"},
    "find_link": {"name": "PCIe 3 x16"},
    "layers_of": {"net": TRAINED, "X": torch.ones(2, 4)},
    "maximum_of_sample": {"k": 2, "seconds": [1.0, 2.0]},
    "messages": SPLIT,
    "messages_seconds": {"messages": [], "cluster": LINK},
    "named_workload": {"name": "LeNet"},
    "normal_wait": {"k": 2, "std_s": 0.1},
    "possible_meshes": MESHES,
    "predict_mesh_step": {
        "model": MEMORY_MODELS[0],
        "mesh": Mesh(2, 2, 2),
        "batch_size": 8,
        "device": DEVICE,
        "cluster": LINK,
        "microbatch": 2,
        "stages_per_rank": 2,
        "overlap": True,
        "stage": 1,
        "checkpointing": False,
        "keep_scores": True,
    },
    "predict_scaling": {"setup": LENET, "k": 2},
    "predict_step": STEPPED | {"algorithm": "ring", "overlap": True, "caps": (100,), "wait_s": 0.0},
    "shortest_step": {
        "num_ranks": 1,
        "num_microbatches": 2,
        "most_held": 2,
        "forward": 1,
        "backward": 2,
        "split": True,
    },
    "stages": {"layers": LAYERS, "k": 2, "slack": 0.05},
    "strong_scaling": SCALED | {"algorithm": "ring"},
    "torch_schedule": {"name": "GPipe", "num_ranks": 2, "num_microbatches": 2},
    "weak_scaling": SCALED | {"algorithm": "ring"},
    "workload": {"net": TRAINED, "X": torch.ones(1, 4), "num_examples": 10},
}
PLACES = [costs, *(importlib.import_module(f"d2lite.labs.chapter_{n:02d}") for n in (1, 4, 8, 13, 15, 16))]
CALLED = {name: next(getattr(place, name) for place in PLACES if name in place.__all__) for name in VALID}
ARGUMENTS = [(name, argument) for name, arguments in VALID.items() for argument in arguments]


@pytest.mark.parametrize(("name", "argument"), ARGUMENTS)
def test_a_wrong_argument_is_refused_by_its_name(name, argument):
    right = VALID[name][argument]
    CALLED[name](**VALID[name])
    wrong = [math.nan, -1, object()]
    if isinstance(right, bool):
        wrong += [0, "no", None]
    elif isinstance(right, (int, float)):
        wrong += [math.inf, -0.5, "32", True, [1]]
    # find_link and find_device name what they look for
    said = name.removeprefix("find_") if name.startswith("find_") else argument
    for value in wrong:
        with pytest.raises((TypeError, ValueError)) as caught:
            CALLED[name](**VALID[name] | {argument: value})
        assert re.search(rf"\b{said}\b.*expected .*got ", str(caught.value)), (value, str(caught.value))


def test_numbers_of_numpy_are_numbers():
    np = pytest.importorskip("numpy")
    step = predict_step(NET, np.float32(32), np.int64(2), Device(np.float64(1e12)), LINK)
    assert step == predict_step(NET, 32, 2, DEVICE, LINK)


@pytest.mark.parametrize(
    ("call", "text"),
    [
        (lambda: predict_step(NET, 32, 2, DEVICE, LINK, caps=()), "caps: expected 1 or more, got 0"),
        (lambda: predict_step(NET, 0, 2, DEVICE, LINK), "batch_size: expected a finite number above 0, got 0"),
        (lambda: predict_step(NET, 1e300, 2, Device(1e-9), LINK), "expected a step that ends, got inf"),
        (lambda: crossover_batch_size(NET, DEVICE, LINK, 4, most=3), "most: expected a whole number from 4 on"),
        (lambda: workload(TRAINED, torch.ones(0, 4)), "X: expected a minibatch of at least one example"),
        (lambda: layers_of(TRAINED, torch.ones(0, 4)), "X: expected a minibatch of at least one example"),
        (lambda: bytes_sent("tensor", LAYERS, 257), "k: expected a whole number from 1 to 256, got 257"),
        (lambda: LINK.seconds(-1), "n_bytes: expected a finite number from 0 on, got -1"),
    ],
)
def test_a_value_that_does_not_fit_is_explained(call, text):
    with pytest.raises(ValueError, match=text):
        call()
    assert all_ways(LAYERS, 300)["tensor"] is None
