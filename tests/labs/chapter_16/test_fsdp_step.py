"""A step of FSDP: what is hidden, from which batch on, and a published change."""

from dataclasses import replace

import pytest

from d2lite.costs import Cluster, Link, all_reduce_seconds, find_device, find_link
from d2lite.labs.chapter_13 import MEMORY_MODELS, PUBLISHED_MEMORY
from d2lite.labs.chapter_16 import Mesh, predict_fsdp_step, predict_mesh_step, tokens_that_hide

LLAMA = next(model for model in MEMORY_MODELS if model.name == "Llama 2, 7 B")
H100, FREE = find_device("H100, bfloat16, GPT 1.3B"), Link(0.0, 1e30)
CLUSTER = Cluster(find_link("NVLink 4 (H100, 18 links)"), find_link("InfiniBand NDR 400 Gb/s"), per_host=8)


def test_without_communication_a_step_computes_alone():
    step = predict_fsdp_step(LLAMA, 8, 16, H100, FREE)
    assert step.exposed_s == pytest.approx(0, abs=1e-9) and step.num_microbatches == 2
    assert step.compute_s == pytest.approx(6 * LLAMA.num_params * 2 * LLAMA.context / H100.flops_per_s)
    assert step.tokens_per_gpu == 2 * LLAMA.context
    mesh = predict_mesh_step(LLAMA, Mesh(data=8), 16, H100, FREE)
    assert step.seconds == pytest.approx(mesh.seconds)
    again = predict_fsdp_step(LLAMA, 8, 16, H100, FREE, checkpointing=True)
    assert again.compute_s == pytest.approx(step.compute_s * 4 / 3)
    late = predict_fsdp_step(LLAMA, 8, 16, replace(H100, overhead_s=0.5), FREE)
    assert late.seconds == pytest.approx(step.seconds + 0.5)


def test_one_rank_sends_nothing():
    step = predict_fsdp_step(LLAMA, 1, 1, H100, Link(1.0, 1.0))
    assert step.communication_s == step.exposed_s == 0


def test_a_slow_link_is_waited_for_all_the_time():
    link = Link(0.0, 1e6)
    step = predict_fsdp_step(LLAMA, 4, 4, H100, link)
    layer = LLAMA.num_params / (LLAMA.num_blocks + 1)
    whole = all_reduce_seconds("ring", 4, 2 * layer, link) + all_reduce_seconds("ring", 4, 4 * layer, link) / 2
    assert step.communication_s == pytest.approx((LLAMA.num_blocks + 1) * whole)
    assert step.communication_s < step.seconds < step.communication_s * 1.01


@pytest.mark.parametrize("bandwidth", [1e9, 5e10])
def test_from_these_tokens_on_the_messages_are_hidden(bandwidth):
    link, k = Link(0.0, bandwidth), 64
    least = tokens_that_hide(H100, link, k)
    assert least == pytest.approx(1.5 * tokens_that_hide(H100, link, k, backward=False))
    for share, is_hidden in ((0.9, False), (1.01, True)):
        model = replace(LLAMA, context=int(least * share))
        step = predict_fsdp_step(model, k, k, H100, link)
        # the first gather of each pass and the last reduction have nothing beside them
        layer = LLAMA.num_params / (LLAMA.num_blocks + 1)
        ends_s = (2 * 2 + 4) * layer * 63 / 64 / bandwidth
        assert (step.exposed_s < 1.001 * ends_s) is is_hidden


def test_hybrid_sharding_gathers_in_the_host_and_sums_across():
    slow = Cluster(CLUSTER.inside, Link(1e-5, 1e9), per_host=8)
    flat, hybrid = (predict_fsdp_step(LLAMA, 64, 64, H100, slow, replicas=r) for r in (1, 8))
    assert hybrid.communication_s < flat.communication_s and hybrid.seconds < flat.seconds
    assert hybrid.memory.parameters_n_bytes == 8 * flat.memory.parameters_n_bytes


def test_a_published_change():
    """torchtitan, Tables 1 and 3 of its report: 5,762 tokens a second and GPU on 8 GPUs, and 5,605 on 128 (-2.7%)."""
    model = PUBLISHED_MEMORY[0].model
    options = {"microbatch": 2, "checkpointing": "selective"}
    few, many = (predict_fsdp_step(model, k, 2 * k, H100, CLUSTER, **options) for k in (8, 128))
    assert -0.027 < few.seconds / many.seconds - 1 < 0  # the formula has no slow ranks


@pytest.mark.parametrize(
    ("change", "kind", "message"),
    [
        ({"num_ranks": 0}, ValueError, "num_ranks: expected a positive whole number"),
        ({"replicas": 3}, ValueError, "replicas: expected a number that divides the 8 ranks, got 3"),
        ({"batch_size": 12}, ValueError, "batch_size: expected a multiple of 8"),
        ({"device": 1e14}, TypeError, "device: expected"),
    ],
)
def test_wrong_input_is_refused(change, kind, message):
    given = {"model": LLAMA, "num_ranks": 8, "batch_size": 8, "device": H100, "cluster": FREE} | change
    with pytest.raises(kind, match=message):
        predict_fsdp_step(**given)
