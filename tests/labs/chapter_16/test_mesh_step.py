"""One step on a mesh: with one dimension it is what the models of that dimension say, and its bytes are counted."""

import math
from collections import Counter
from dataclasses import replace
from itertools import pairwise, product

import pytest
import torch
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from d2lite.costs import Cluster, Device, Link, all_reduce_seconds, find_device, find_link
from d2lite.labs.chapter_08 import Workload, predict_step
from d2lite.labs.chapter_13 import MEMORY_MODELS, MemoryModel, predict_memory, transformer_activations
from d2lite.labs.chapter_15 import bubble_formula, one_f_one_b, predict_pipeline
from d2lite.labs.chapter_16 import Mesh, MeshStep, predict_mesh_step

MODEL = MemoryModel(
    "small", num_params=1.2e9, width=2048, num_blocks=24, num_heads=16, context=1024, num_characters=50_000, source=""
)
DEVICE, FREE = Device(1e14), Link(0.0, 1e30)
NVLINK, NETWORK = find_link("NVLink 4 (H100, 18 links)"), find_link("InfiniBand NDR 400 Gb/s")
CLUSTER = Cluster(NVLINK, NETWORK, 8)
GPT3 = next(model for model in MEMORY_MODELS if model.name == "GPT-3, 175 B")
powers = st.sampled_from([1, 2, 4, 8, 16])


def step_on(*shape, batch_size=64, device=DEVICE, cluster=CLUSTER, model=MODEL, **options):
    return predict_mesh_step(model, Mesh(*shape), batch_size, device, cluster, **options)


def test_ranks_are_numbered_as_by_torch():
    mesh = Mesh(pipe=2, data=3, tensor=4)
    assert (mesh.shape, mesh.num_ranks, str(mesh)) == ((2, 3, 4), 24, "2 x 3 x 4")
    assert Mesh().shape == (1, 1, 1)


def test_one_rank_computes_and_sends_nothing():
    step = step_on(1, 1, 1, batch_size=4, device=Device(1e14, overhead_s=0.25))
    assert step.seconds == step.compute_s == pytest.approx(6 * 1.2e9 * 4 * 1024 / 1e14 + 0.25)
    assert set(step.sent_n_bytes.values()) == {0.0} and step.num_microbatches == 4
    assert step.tflops_per_gpu == pytest.approx(6 * 1.2e9 * 4 * 1024 / step.seconds / 1e12)
    free = step_on(2, 2, 4, cluster=FREE)
    assert free.seconds - free.bubble_s == pytest.approx(free.compute_s) and free.bubble_s > 0


def test_data_alone_is_the_step_of_data_parallelism():  # which has no ZeRO: stage 0
    layers = 100
    tokens_macs = int(MODEL.num_params / layers) * MODEL.context  # one example is a piece of text
    net = Workload("", (int(2 * MODEL.num_params / layers),) * layers, (tokens_macs,) * layers)
    link = Link(0.0, 1e10)
    apart = predict_step(net, 2, 4, DEVICE, link, overlap=False)
    assert step_on(1, 4, 1, batch_size=8, cluster=link, overlap=False, stage=0).seconds == pytest.approx(apart.seconds)
    for microbatch, bandwidth in ((2, 1e10), (2, 1e12)):
        link = Link(0.0, bandwidth)
        beside = predict_step(net, 2, 4, DEVICE, link, caps=(1,))
        mine = step_on(1, 4, 1, batch_size=8, cluster=link, microbatch=microbatch, stage=0)
        assert mine.seconds == pytest.approx(beside.seconds, rel=0.02)  # there one layer is sent after the end
        assert mine.data_s > 0 if bandwidth == 1e10 else mine.data_s == 0


def test_tensor_alone_is_what_chapter_14_prints():
    for link, waits_s in ((NVLINK, 0.11), (NETWORK, 0.76)):
        step = step_on(1, 1, 8, batch_size=1, model=GPT3, device=Device(400e12), cluster=link)
        assert step.tensor_s == pytest.approx(4 * 96 * all_reduce_seconds("ring", 8, 2048 * 12288 * 2, link))
        assert round(step.tensor_s, 2) == waits_s and (step.bubble_s, step.data_s) == (0, 0)


@given(st.integers(1, 8), st.integers(1, 16))
def test_pipe_alone_is_the_step_of_1f1b(p, m):
    step = step_on(p, 1, 1, batch_size=m, cluster=FREE)
    pass_s = step.compute_s / m / 3  # of the blocks of a stage
    events = predict_pipeline([one_f_one_b(stage, p, m) for stage in range(p)], pass_s, 2 * pass_s)
    assert step.seconds == pytest.approx(max(event.end_s for event in events))
    assert step.bubble_s / step.seconds == pytest.approx(bubble_formula(p, m), abs=1e-9)


def test_sending_through_the_pipeline_is_waited_for_at_both_ends():
    link = Link(1e-3, 1e9)
    send_s = link.seconds(2 * 1024 * 2048 * 2)  # a microbatch of two pieces of text
    step, free = (step_on(4, 1, 1, microbatch=2, cluster=one) for one in (link, FREE))
    assert step.bubble_s - free.bubble_s == pytest.approx(2 * 3 * send_s)
    one_by_one = step_on(4, 1, 1, batch_size=1, cluster=link)  # a microbatch alone is sent in front of every pass
    pass_s = one_by_one.compute_s / 3
    events = predict_pipeline([one_f_one_b(i, 4, 1) for i in range(4)], pass_s, 2 * pass_s, link.seconds(2**22))
    assert one_by_one.seconds == pytest.approx(max(event.end_s for event in events))


def test_ranks_of_a_tensor_group_send_their_parts_to_the_next_stage():
    link = Link(1e-3, 1e9)
    whole, parts, free = (step_on(4, 1, k, cluster=one) for k, one in ((1, link), (8, link), (8, FREE)))
    assert parts.sent_n_bytes["pipe"] == whole.sent_n_bytes["pipe"] / 8 == 64 * 2 * (1024 * 2048 * 2 / 8)
    passes_s = 3 / 64 * (parts.tensor_s - free.tensor_s)  # they wait for all-reduces
    assert parts.bubble_s - free.bubble_s - passes_s == pytest.approx(2 * 3 * link.seconds(1024 * 2048 * 2 / 8))


def test_overhead_comes_once_and_is_no_time_to_wait_in_or_to_hide_behind():
    for stage, microbatch in product((0, 1), (1, 4)):
        options = {"cluster": Link(1e-5, 1e9), "stage": stage, "microbatch": microbatch}
        with_it, without = (step_on(4, 2, 2, device=Device(1e14, overhead_s=s), **options) for s in (0.25, 0.0))
        assert with_it.compute_s - without.compute_s == pytest.approx(0.25)
        assert with_it.seconds - without.seconds == pytest.approx(0.25)
        assert (with_it.bubble_s, with_it.data_s) == (without.bubble_s, without.data_s) > (0, 0)


def test_more_stages_per_rank_make_the_bubble_smaller_and_send_more():
    one, two = step_on(4, 1, 1, cluster=FREE), step_on(4, 1, 1, cluster=FREE, stages_per_rank=2)
    assert two.bubble_s == pytest.approx(one.bubble_s / 2)
    assert two.sent_n_bytes["pipe"] == 2 * one.sent_n_bytes["pipe"]
    # Korthikanti et al. 2022, 4.2.3: 1 + (p - 1) / (p v) times as much
    assert two.memory.activations_n_bytes == pytest.approx(one.memory.activations_n_bytes * (1 + 3 / 8))


def test_bytes_are_those_of_each_message():
    p, d, k, b = 2, 4, 8, 2
    step = step_on(p, d, k, microbatch=b)
    m, activation = 64 // (d * b), b * 1024 * 2048 * 2
    ring = sum(activation / k for _ in range(2 * (k - 1)))  # a chunk in each step of the ring
    assert step.num_microbatches == m == 8
    assert step.sent_n_bytes["tensor"] == pytest.approx(
        sum(ring for _ in range(m) for _ in range(24 // p) for _ in "12345"[:4])
    )
    assert step.sent_n_bytes["pipe"] == m * (activation / k + activation / k)
    assert step.sent_n_bytes["data"] == pytest.approx(sum(2 * 1.2e9 / (p * k) / d for _ in range(2 * (d - 1))))


def rings_of(group, host_of):
    """A ring for each rank of the group in the host with the fewest: in ring i a host is left through its rank i."""
    hosts = {}
    for rank in group:
        hosts.setdefault(host_of(rank), []).append(rank)
    for i in range(min(map(len, hosts.values())) if len(hosts) > 1 else 1):
        yield [rank for ranks in hosts.values() for rank in [*ranks[i + 1 :], *ranks[: i + 1]]]


@given(
    st.tuples(st.integers(1, 6), st.integers(1, 6), st.sampled_from([1, 2, 4, 8])),
    st.integers(1, 9),
    st.sampled_from([(NVLINK, NETWORK), (NETWORK, NVLINK)]),
)
@settings(deadline=None)
def test_a_group_is_as_fast_as_rings_through_the_ports_of_its_ranks(shape, per_host, pair):
    p, d, k = shape
    ranks = torch.arange(p * d * k).reshape(shape)  # the numbers that init_device_mesh gives
    groups = {"data": ranks.permute(0, 2, 1).reshape(-1, d), "tensor": ranks.reshape(-1, k)}
    cluster = Cluster(*pair, per_host)
    links = step_on(*shape, batch_size=d, cluster=cluster).links
    for name, members in groups.items():
        if (size := members.shape[-1]) == 1:
            continue
        inside, network, used = Counter(), Counter(), set()  # what each rank sends of a tensor of one byte
        for group in members.tolist():
            rings = list(rings_of(group, lambda rank: rank // per_host))
            for ring in rings:
                for src, dst in pairwise([*ring, ring[0]]):
                    leaves = src // per_host != dst // per_host
                    (network if leaves else inside)[src] += 2 * (size - 1) / size / len(rings)
                    used.add(pair[leaves])
        inside_s, network_s = (
            max(sent.values(), default=0) / link.bandwidth_bytes_per_s
            for sent, link in zip((inside, network), pair, strict=True)
        )
        whole = 2 * (size - 1) / size
        mine_s = whole / links[name].bandwidth_bytes_per_s
        # a rank that one of g rings leaves through sends g - 1 of them inside; counted as if it were all of them
        most_inside_s = whole / pair[0].bandwidth_bytes_per_s if inside else 0
        assert mine_s == pytest.approx(max(network_s, most_inside_s)) and mine_s >= inside_s * (1 - 1e-9), name
        assert links[name].latency_s == max(link.latency_s for link in used)


@pytest.mark.parametrize(
    ("shape", "name", "per_host", "ports"),
    [
        ((2, 4, 8), "tensor", 8, None),  # in a host
        ((4, 2, 2), "data", 4, None),
        ((1, 8, 8), "data", 8, 1),  # ranks 0, 8, 16, ...: one in each host
        ((1, 8, 4), "data", 8, 2),  # ranks 0, 4, 8, ...
        ((1, 32, 2), "data", 8, 4),
        ((2, 1, 16), "tensor", 6, 2),  # ranks 16 and 17 are alone with the next group
        ((1, 1, 16), "tensor", 4, 4),
        ((1, 4, 16), "data", 8, 1),  # ranks 0, 16, ...: one in every other host
        ((2, 6, 2), "data", 8, 2),  # ranks 0, 2, ..., 10: four and two
        ((3, 2, 2), "data", 6, 1),  # ranks 4, 6: their host has ranks 0 to 5
        ((3, 1, 4), "tensor", 6, 2),  # ranks 4 to 7, two and two
        ((5, 1, 2), "tensor", 5, 1),  # ranks 4 and 5
        ((5, 3, 1), "data", 4, 1),  # ranks 3 to 5: one and two
    ],
)
def test_a_group_uses_as_many_ports_as_it_has_ranks_in_the_host_with_the_fewest(shape, name, per_host, ports):
    link = step_on(*shape, batch_size=12 * shape[1], cluster=Cluster(NVLINK, NETWORK, per_host)).links[name]
    assert link.bandwidth_bytes_per_s == (ports * 48e9 if ports else NVLINK.bandwidth_bytes_per_s)
    assert link.latency_s == (NETWORK if ports else NVLINK).latency_s


def test_ports_together_are_no_faster_than_the_link_inside():
    # eight ports with 48 GB/s are 384 GB/s, NVLink has 370.8 GB/s
    link = step_on(2, 1, 16).links["tensor"]
    assert link == replace(NETWORK, bandwidth_bytes_per_s=NVLINK.bandwidth_bytes_per_s)
    links = step_on(1, 2, 8, cluster=Cluster(NETWORK, NVLINK, 8)).links
    assert links == {"tensor": NETWORK, "data": NVLINK, "pipe": NVLINK}


@given(st.tuples(st.integers(2, 6), st.integers(1, 6), st.sampled_from([1, 2, 4, 8])), st.integers(1, 9))
def test_a_message_to_the_next_stage_leaves_a_host_through_one_port(shape, per_host):
    ranks = torch.arange(math.prod(shape)).reshape(shape[0], -1)
    leaves = any((ranks[:-1] // per_host != ranks[1:] // per_host).flatten().tolist())
    links = step_on(*shape, batch_size=shape[1], cluster=Cluster(NVLINK, NETWORK, per_host)).links
    assert links["pipe"] == (NETWORK if leaves else NVLINK)


def test_in_one_host_there_is_one_link():
    assert set(step_on(2, 2, 4, cluster=NVLINK).links.values()) == {NVLINK}
    assert step_on(2, 2, 4, cluster=NVLINK) == step_on(2, 2, 4, cluster=Cluster(NVLINK))


def test_memory_is_that_of_a_part_of_the_network():
    sizes = (1, 1024, 2048, 24, 16, 50_000, 2)
    step = step_on(4, 2, 8)
    kept = transformer_activations(*sizes, keep_scores=False) / 8  # four microbatches of a fourth of the blocks
    loss = 12 * 1024 * 50_000 / 8  # log-probabilities and two gradients of 32 bits; logits are in `kept`
    assert step.memory == replace(predict_memory(1.2e9 / 32, "Adam", "mixed", 1, 2, kept), loss_n_bytes=loss)
    more = step_on(4, 2, 8, precision="mixed, gradients in 32 bits").memory
    assert more.gradients_n_bytes == 3 * step.memory.gradients_n_bytes
    assert step_on(4, 2, 8, batch_size=2).memory.activations_n_bytes == pytest.approx(kept / 4)
    assert step_on(4, 2, 8, keep_scores=True).memory.activations_n_bytes == transformer_activations(*sizes) / 8
    assert step_on(4, 2, 8, stage=0).memory.optimizer_n_bytes == 2 * step.memory.optimizer_n_bytes
    assert step.fits(step.memory.total_n_bytes) and not step.fits(0.99 * step.memory.total_n_bytes)


def test_checkpointing_computes_again_and_keeps_less():
    plain, again = step_on(4, 2, 2), step_on(4, 2, 2, checkpointing=True)
    assert again.compute_s == pytest.approx(8 / 6 * plain.compute_s)
    assert again.tflops_per_gpu < plain.tflops_per_gpu and again.sent_n_bytes == plain.sent_n_bytes
    inputs, head = 24 * 1024 * 2048, 1024 * (2 * 2048 + 50_000)
    block = 16 * 1024 * 2048
    assert again.memory.activations_n_bytes == 2 * (inputs + head + block) / 2
    more = step_on(4, 2, 2, checkpointing=True, keep_scores=True).memory.activations_n_bytes
    assert more - again.memory.activations_n_bytes == 2 * 16 * 1024**2 / 2  # of the block that is computed again


@pytest.mark.parametrize("stage", [0, 1])
@pytest.mark.parametrize(("checkpointing", "backward"), [(False, 4), (True, 6)])
def test_gradients_are_sent_behind_the_backward_pass_of_the_last_microbatch(checkpointing, backward, stage):
    beside, after = (
        step_on(4, 2, 2, cluster=Link(0.0, 1e8), overlap=overlap, checkpointing=checkpointing, stage=stage)
        for overlap in (True, False)
    )
    assert after.data_s - beside.data_s == pytest.approx(backward * 1.2e9 * 1024 / 8 / 1e14)  # of one piece of text
    assert after.seconds - beside.seconds == pytest.approx(after.data_s - beside.data_s)


@given(st.sampled_from([2, 4, 8]), st.floats(8, 12), st.floats(0, 1e-2), st.sampled_from([1, 2, 4]))
def test_zero_scatters_gradients_beside_the_backward_pass_and_gathers_parameters_after_it(
    d, log, latency_s, microbatch
):
    link = Link(latency_s, 10**log)
    plain, zero = (step_on(2, d, 1, cluster=link, microbatch=microbatch, stage=stage) for stage in (0, 1))
    backward_s = 2 / 3 * zero.compute_s / zero.num_microbatches
    half_s = (d - 1) * link.seconds(2 * 1.2e9 / 2 / d)  # one way around the ring, a chunk at a time
    gathered_s = max(half_s, backward_s) + half_s - backward_s
    assert zero.data_s == pytest.approx(gathered_s, abs=1e-12)
    assert plain.data_s == pytest.approx(max(2 * half_s, backward_s) - backward_s, abs=1e-12)


meshes = st.builds(Mesh, powers, powers, powers)


@given(meshes, st.sampled_from([16, 64]), st.sampled_from([1, 2]), st.booleans())
def test_faster_hardware_is_never_slower(mesh, batch_size, microbatch, overlap):
    assume(batch_size % (mesh.data * microbatch) == 0)

    def seconds(device=DEVICE, cluster=CLUSTER, batch_size=batch_size):
        options = {"microbatch": microbatch, "overlap": overlap}
        return predict_mesh_step(MODEL, mesh, batch_size, device, cluster, **options).seconds

    base = seconds()
    assert math.isfinite(base)
    assert seconds(replace(DEVICE, flops_per_s=2e14)) <= base * (1 + 1e-9)
    assert seconds(cluster=Cluster(NVLINK, replace(NETWORK, bandwidth_bytes_per_s=1e12), 8)) <= base
    assert seconds(cluster=Cluster(NVLINK, NETWORK, 16)) <= base  # larger hosts
    assert seconds(cluster=FREE) <= base
    assert base < seconds(batch_size=2 * batch_size)


@given(meshes, st.sampled_from([16, 64]))
def test_a_step_takes_at_least_the_arithmetic_and_the_parts_hold_at_least_the_whole(mesh, batch_size):
    assume(batch_size % mesh.data == 0)
    step = step_on(*mesh.shape, batch_size=batch_size)
    assert min(step.tensor_s, step.bubble_s, step.data_s, *step.sent_n_bytes.values()) >= 0
    assert 0 < step.tflops_per_gpu <= DEVICE.flops_per_s / 1e12 * (1 + 1e-9)
    assert step.memory.optimizer_n_bytes * mesh.num_ranks == pytest.approx(12 * MODEL.num_params)
    assert step.memory.parameters_n_bytes * mesh.pipe * mesh.tensor == pytest.approx(2 * MODEL.num_params)
    assert isinstance(step, MeshStep) and step.mesh == mesh


@pytest.mark.parametrize(
    ("call", "error", "words"),
    [
        (lambda: Mesh(pipe=0), ValueError, "pipe: expected a positive whole number, got 0."),
        (lambda: Mesh(1, 2.0), TypeError, "data: expected a positive whole number, got 2.0 (float)."),
        (lambda: Mesh(tensor="8"), TypeError, "tensor: expected a positive whole number, got '8' (str)."),
        (
            lambda: step_on(1, 3, 1, microbatch=2),
            ValueError,
            "batch_size: expected a multiple of 6 (data 3 times microbatch 2), got 64. Each replica gets whole "
            "microbatches.",
        ),
        (
            lambda: step_on(1, 1, 5),
            ValueError,
            "mesh: expected a tensor that divides the 16 heads of small, got 5. A rank computes whole heads.",
        ),
        (
            lambda: step_on(9, 1, 1, stages_per_rank=3),
            ValueError,
            "mesh: expected at most 26 stages for small (24 blocks, an embedding, a head), got 27. Each stage has a "
            "layer.",
        ),
        (
            lambda: step_on(8, 16, 1, stages_per_rank=2),
            ValueError,
            "stages_per_rank: expected 1 with 4 microbatches on 8 ranks of a pipeline, got 2. Interleaved stages need "
            "at least as many microbatches as ranks.",
        ),
        (
            lambda: step_on(1, 1, 1, stage=2),
            ValueError,
            "stage: expected a whole number from 0 to 1, got 2. Stages 2 and 3 send at each microbatch, which is not "
            "counted here.",
        ),
        (
            lambda: predict_mesh_step(MODEL, (1, 1, 1), 64, DEVICE, CLUSTER),
            TypeError,
            "mesh: expected Mesh, got (1, 1, 1) (tuple).",
        ),
        (
            lambda: step_on(1, 1, 1).fits(-1),
            ValueError,
            "n_bytes: expected a finite number from 0 on, got -1.",
        ),
    ],
)
def test_wrong_input_is_explained(call, error, words):
    with pytest.raises(error) as caught:
        call()
    assert str(caught.value) == words


def test_as_many_stages_as_layers_and_as_many_microbatches_as_ranks_are_enough():
    assert step_on(26, 1, 1).mesh.pipe == 26 and step_on(13, 1, 1, stages_per_rank=2).stages_per_rank == 2
    assert step_on(4, 16, 1, stages_per_rank=2).num_microbatches == 4
    assert step_on(8, 16, 1).num_microbatches == 4  # one stage per rank needs no more


def test_the_sizes_of_llama_3_give_its_parameters():
    model = next(model for model in MEMORY_MODELS if model.name.startswith("Llama 3"))
    width, kv, mlp = 16_384, 8 * 128, 53_248  # Table 3: 8 key-value heads of 128 numbers
    block = 2 * width * width + 2 * width * kv + 3 * width * mlp + 2 * width  # and two RMSNorms
    assert model.num_params == 126 * block + 2 * 128_256 * width + width
    # blocks need not divide by stages: 126 on 16, tensor 8 inside of hosts (Table 4)
    mesh, device = Mesh(16, 128, 8), find_device("H100, bfloat16, GPT 1.3B")
    step = predict_mesh_step(model, mesh, 2048, device, CLUSTER)
    assert step.num_microbatches == 16 and [step.links[name] for name in ("tensor", "data")] == [NVLINK, NETWORK]
