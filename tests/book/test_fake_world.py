"""Chapter 16: what its functions count as rank 0 of a fake world, against formulas, for meshes of every kind."""

import math
import sys

import pytest
import torch.distributed as dist

from benchmarks.records.chapter_code import chapter_code
from d2lite import Transformer, Workers, WorkersError
from d2lite.costs import Link, find_device
from d2lite.labs.chapter_13 import MemoryModel
from d2lite.labs.chapter_16 import Mesh, predict_mesh_step

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="needs ranks")

WIDTH, PIECES, PLACES, BLOCKS = 64, 16, 64, 8
MESHES = [(1, 64, 8), (4, 1, 4), (8, 8, 8), (2, 3, 2), (1, 512, 1)]  # chapter 16 counts each way alone


@pytest.fixture(scope="module")
def chapter():
    given = {"__name__": "__main__"}  # so that functions travel to ranks by value
    return chapter_code("16-rank-0-of-512.ipynb", given, values=("WAYS", "PLAN", "whole", "MENDED_PLAN"))


def shapes_on_rank(shape):
    """The shapes of the parameters that rank 0 has before FSDP cuts them: {of which layer: shapes}."""
    pipe, _, tensor = shape
    net = Transformer(WIDTH, num_blocks=BLOCKS, num_heads=8)
    layers = [net.embedding, *net.blocks[: BLOCKS // pipe], *([net.head] if pipe == 1 else [])]
    by_outputs = ("query.weight", "key.weight", "value.weight", "up.weight", "query.bias", "key.bias", "value.bias")
    found = []
    for layer in layers:
        for name, param in layer.named_parameters():
            size = list(param.shape)
            if name.endswith((*by_outputs, "up.bias")):
                size[0] //= tensor
            elif name.endswith(("out.weight", "down.weight")):
                size[1] //= tensor
            found.append(tuple(size))
    return found


@pytest.mark.parametrize("shape", MESHES, ids=str)
def test_bytes_are_those_of_the_formulas(chapter, shape):
    """Parameters are padded and gathered for each forward pass, a block has six sums, a microbatch is sent once."""
    pipe, data, tensor = shape
    m = 8 if pipe > 1 else 1
    calls, num_params, _ = count_on_rank_0(chapter, math.prod(shape), shape, PIECES * data, m)
    sent = {"pipe": 0.0, "data": 0.0, "tensor": 0.0}
    for call in calls:
        distance = call.ranks[1] - call.ranks[0]
        way = "tensor" if tensor > 1 and distance == 1 else "pipe" if call.name == "send" else "data"
        sent[way] += call.sent_n_bytes
    activations = 4 * PIECES * PLACES * WIDTH  # all microbatches of a rank together
    shapes = shapes_on_rank(shape)
    padded = sum(4 * math.ceil(rows / data) * data * math.prod(rest) for rows, *rest in shapes)
    gathers = m + 1  # the first stage frees its parameters after each forward pass, and keeps them backward
    expected = {
        "tensor": 6 * BLOCKS / pipe * 2 * (tensor - 1) / tensor * activations,
        "pipe": activations if pipe > 1 else 0.0,
        "data": (gathers + 1) * (data - 1) / data * padded,
    }
    assert {way: round(n_bytes) for way, n_bytes in sent.items()} == {w: round(n) for w, n in expected.items()}
    assert num_params == sum(math.ceil(rows / data) * math.prod(rest) for rows, *rest in shapes)


def count_on_rank_0(chapter, world_size, *args):
    return chapter["as_rank"](0, world_size, chapter["count_step"], *args, WIDTH)


def test_bytes_of_a_middle_rank_are_those_that_the_model_of_a_step_predicts(chapter):
    """As the appendix of chapter 16 says: tensor exactly, data within 0.2%, and pipe eight times, as nothing is cut."""
    options = {"plan": chapter["MENDED_PLAN"], "reshard_after_forward": False}
    calls, _, _ = chapter["as_rank"](200, 512, chapter["count_step"], (8, 8, 8), 128, 16, **options)
    sizes = {"width": 576, "num_blocks": BLOCKS, "num_heads": 8, "context": 64, "num_characters": 96}
    num_params = sum(param.numel() for param in Transformer(576, num_blocks=BLOCKS, num_heads=8).parameters())
    model = MemoryModel("that of the chapter", num_params=num_params, source="Transformer", **sizes)
    step = predict_mesh_step(model, Mesh(8, 8, 8), 128, find_device("H100, bfloat16, GPT 1.3B"), Link(0.0, 1e9))
    kinds = {"tensor": ["all_reduce"], "pipe": ["send"], "data": ["all_gather", "reduce_scatter"]}
    times = {
        way: sum(call.sent_n_bytes for call in calls if call.name in names) / (2 * step.sent_n_bytes[way])
        for way, names in kinds.items()
    }
    assert times == {"tensor": 1, "pipe": 8, "data": pytest.approx(1, abs=0.002)}


def test_values_mean_nothing(chapter):
    assert chapter["as_rank"](0, 512, chapter["sum_of_ones"]) == [1.0, 1.0, 1.0]
    assert not dist.is_initialized()  # the fake group is in another process
    assert chapter["as_rank"](0, 512, chapter["rows_from_others"]) == [0, 1, 2, 3]  # its own numbers


def test_a_forgotten_collective_shows_in_the_calls_of_two_ranks(chapter):
    calls = [chapter["as_rank"](rank, 512, chapter["names"], chapter["forgetful_step"]) for rank in (0, 1)]
    assert calls == [[], ["all_reduce"]]


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:.*ranks share .* CPU cores")
@pytest.mark.parametrize("mended", [False, True])
def test_three_ways_at_once_are_one_device_on_eight_real_ranks(chapter, mended):
    options = {"plan": chapter["MENDED_PLAN"], "reshard_after_forward": False} if mended else {}
    with Workers(8, timeout_s=120) as workers:
        workers.backend = "gloo"
        assert max(workers.run(chapter["gradients_apart"], (2, 2, 2), options)) < 1e-9


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:.*ranks share .* CPU cores")
def test_gradients_are_right_in_any_order_of_dimensions(chapter):
    with Workers(4, timeout_s=120) as workers:
        workers.backend = "gloo"
        for shape, order in (((2, 2, 1), ("tensor", "data", "pipe")), ((2, 1, 2), ("tensor", "data", "pipe"))):
            assert max(workers.run(chapter["gradients_apart"], shape, {}, order)) < 1e-9


def test_wrong_sizes_are_refused(chapter):
    with pytest.raises(WorkersError, match="8 heads cannot be shared by 3 ranks"):
        count_on_rank_0(chapter, 3, (1, 1, 3), PIECES)
    with pytest.raises(WorkersError, match="16 texts cannot be cut into 3 x 2 equal microbatches"):
        count_on_rank_0(chapter, 6, (2, 3, 1), PIECES, 2)
