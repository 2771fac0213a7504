import time
from itertools import combinations

import pytest
import torch
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from torch import nn

from d2lite.costs.alpha_beta import lower_bound_n_bytes
from d2lite.labs.chapter_01.partition_explorer import NETS, PartitionExplorer, sizes_of, traffic_summary
from d2lite.labs.chapter_01.partitioning import WAYS, Layer, all_ways, bytes_sent, layers_of, messages, stages
from d2lite.models import LeNet
from notebook_ranks.shared.format import format_bytes

MODELS = st.sampled_from(list(NETS))


def params_of(layers):
    return sum(layer.params_n_bytes for layer in layers)


@pytest.mark.parametrize("model", [name for name in NETS if name != "ResNet-18, width 64"])
def test_sizes_are_those_of_the_real_network(model):
    net, X = NETS[model](), torch.rand(3, 1, 28, 28)
    layers = layers_of(net, X)
    assert layers == sizes_of(model, 3)  # on the device "meta"
    assert params_of(layers) == sum(p.numel() * 4 for p in net.parameters())
    h = X
    for layer, module in zip(layers, net, strict=True):
        assert layer.input_n_bytes == h.numel() * 4
        h = module(h)
        assert layer.output_shape == tuple(h.shape) and layer.output_n_bytes == h.numel() * 4
    assert not any(module._forward_hooks for module in net.modules())


def test_work_and_reads_of_lenet():
    layers = {layer.name: layer for layer in sizes_of("LeNet", 2)}
    assert layers["conv2"].n_macs == 2 * (50 * 9 * 9) * (20 * 5 * 5)
    assert layers["linear1"].n_macs == 2 * 800 * 128
    assert layers["conv2"].reads == ((2 * 20 * 13 * 13 * 4, 20),)
    assert layers["linear1"].reads == ((2 * 800 * 4, 50),)  # the 50 channels that were flattened
    assert layers["relu1"].reads == () and layers["relu1"].n_macs == 0


def test_what_a_residual_block_reads_twice_goes_once():
    block = sizes_of("ResNet-18, width 8", 1)[5]  # its first convolution and its shortcut read the same
    assert block.kind == "Residual"
    assert block.reads == ((8 * 28 * 28 * 4, 8), (16 * 14 * 14 * 4, 16))


@given(MODELS, st.integers(1, 12), st.integers(12, 40))
def test_sums_of_messages_are_the_formulas(model, k, batch_size):
    layers = sizes_of(model, batch_size)
    P, L = params_of(layers), layers[-1].output_n_bytes
    R = [n_bytes for layer in layers for n_bytes, _ in layer.reads]
    data, tensor = bytes_sent("data", layers, k), bytes_sent("tensor", layers, k)
    assert (data.n_bytes, data.activations_n_bytes) == (2 * (k - 1) * P, 0)
    assert tensor.n_bytes == 2 * (k - 1) * sum(R[1:]) + (k - 1) * L
    assert tensor.gradients_n_bytes == (k - 1) * sum(R[1:])
    assert tensor.inputs_n_bytes == k * data.inputs_n_bytes == k * batch_size * 784 * 4
    if k <= sum(layer.n_macs > 0 for layer in layers):
        cuts = [run[-1].output_n_bytes for run in stages(layers, k)[:-1]]
        assert bytes_sent("pipeline", layers, k).n_bytes == 2 * sum(cuts)
    for way, traffic in all_ways(layers, k).items():
        if traffic is None:
            with pytest.raises(ValueError, match="k: expected a whole number from 1 to"):
                bytes_sent(way, layers, k)
        else:
            assert len(traffic.sent_n_bytes) == k and sum(traffic.sent_n_bytes) == traffic.n_bytes
            assert traffic.activations_n_bytes + traffic.gradients_n_bytes == traffic.n_bytes
            assert k > 1 or traffic.n_bytes == 0


@given(MODELS, st.integers(2, 8))
def test_every_device_sends_and_receives(model, k):
    for way, traffic in all_ways(sizes_of(model, 16), k).items():
        if traffic:
            sent = messages(way, sizes_of(model, 16), k)
            assert {m.src for m in sent} == {m.dst for m in sent} == set(range(k))
            assert all(m.src != m.dst and m.n_bytes >= 0 for m in sent)


@given(MODELS, st.integers(1, 10), st.sampled_from([0, 0.05, 1]))
def test_stages_are_the_layers_in_order_and_within_the_slack(model, k, slack):
    layers = sizes_of(model, 1)
    if k > sum(layer.n_macs > 0 for layer in layers):
        with pytest.raises(ValueError, match="Each device needs a layer with weights"):
            stages(layers, k)
        return

    def slowest(runs):
        return max(sum(layer.n_macs for layer in run) for run in runs)

    runs = stages(layers, k, slack)
    assert [layer for run in runs for layer in run] == layers and len(runs) == k
    assert all(run[0].n_macs for run in runs[1:])
    assert slowest(runs) <= (1 + slack) * slowest(stages(layers, k, 0)) * (1 + 1e-12)


def by_trying_all_cuts(layers, k, slack):
    """The first, in order, of the choices of cuts that send the fewest bytes, among those that are fast enough."""
    places = [i for i, layer in enumerate(layers) if layer.n_macs][1:]
    choices = list(combinations(places, k - 1))
    runs = [[layers[i:j] for i, j in zip((0, *cuts), (*cuts, len(layers)), strict=True)] for cuts in choices]
    work = [max(sum(layer.n_macs for layer in run) for run in each) for each in runs]
    allowed = [i for i, n in enumerate(work) if n <= (1 + slack) * min(work)]
    return runs[min(allowed, key=lambda i: sum(layers[cut].input_n_bytes for cut in choices[i]))]


# few different sizes, so that many choices of cuts are equal
drawn_layers = st.lists(st.tuples(st.integers(0, 4), st.integers(0, 5)), min_size=1, max_size=10).map(
    lambda sizes: [
        Layer(
            name=str(i),
            kind="Linear",
            output_shape=(1, 1),
            params_n_bytes=0,
            input_n_bytes=n,
            output_n_bytes=0,
            reads=(),
            n_macs=work,
        )
        for i, (n, work) in enumerate(sizes)
    ]
)


@settings(max_examples=200)
@given(drawn_layers, st.integers(1, 6), st.sampled_from([0, 0.05, 0.5, 1]))
def test_stages_are_those_that_trying_all_cuts_finds(layers, k, slack):
    assume(k <= max(1, sum(layer.n_macs > 0 for layer in layers)))
    assert stages(layers, k, slack) == by_trying_all_cuts(layers, k, slack)


def test_stages_of_many_layers_take_no_time():
    layers = [
        Layer(
            name=str(i),
            kind="Linear",
            output_shape=(1, 1),
            params_n_bytes=4,
            input_n_bytes=4,
            output_n_bytes=4,
            reads=(),
            n_macs=1,
        )
        for i in range(100)
    ]  # 10**22 choices of cuts
    begin = time.monotonic()
    sizes = [len(run) for run in stages(layers, 32)]
    assert sum(sizes) == 100 and len(sizes) == 32 and max(sizes) == 4
    assert time.monotonic() - begin < 20


def test_data_and_pipeline_change_places_for_lenet_between_161_and_162():
    for batch_size, least in ((161, "pipeline"), (162, "data")):
        traffics = all_ways(sizes_of("LeNet", batch_size), 2)
        assert min(traffics.values(), key=lambda t: t.n_bytes).way == least


def test_gathering_is_at_the_bound_for_two_devices_only():
    layers = sizes_of("LeNet", 8)
    for k in range(1, 9):
        sent, bound = max(bytes_sent("data", layers, k).sent_n_bytes), lower_bound_n_bytes(k, params_of(layers))
        assert sent == bound if k <= 2 else sent > bound
    assert lower_bound_n_bytes(4, 100) == 150


def test_refuses_what_it_cannot_measure():
    X = torch.rand(2, 4)
    with pytest.raises(TypeError, match="net: expected an nn.Sequential, got LeNet"):
        layers_of(LeNet(), X)
    with pytest.raises(TypeError, match="expected Conv2d, Linear or BatchNorm2d at 1, got LayerNorm"):
        layers_of(nn.Sequential(nn.Linear(4, 4), nn.LayerNorm(4)), X)
    relu = nn.ReLU()
    with pytest.raises(ValueError, match="each layer to run once"):
        layers_of(nn.Sequential(nn.Linear(4, 4), relu, nn.Linear(4, 4), relu), X)


def test_refuses_ways_and_numbers_that_cannot_be():
    layers = sizes_of("LeNet", 8)
    with pytest.raises(ValueError, match="way: expected one of data, pipeline, tensor, got 'batch'"):
        bytes_sent("batch", layers, 2)
    with pytest.raises(ValueError, match="k: expected a whole number from 1 to 8, got 9. Each device needs an example"):
        bytes_sent("data", layers, 9)
    with pytest.raises(ValueError, match="k: expected a positive whole number, got 0"):
        bytes_sent("tensor", layers, 0)
    with pytest.raises(TypeError, match="k: expected a positive whole number, got 2.0"):
        bytes_sent("pipeline", layers, 2.0)
    with pytest.raises(ValueError, match="layers: expected the list that layers_of"):
        bytes_sent("data", [], 2)
    with pytest.raises(ValueError, match="model: expected one of LeNet, "):
        sizes_of("VGG", 8)


@given(MODELS, st.integers(1, 16), st.sampled_from([8, 256, 4096]))
def test_summary_names_the_least(model, k, batch_size):
    words = traffic_summary(model, k, batch_size)
    possible = [t for t in all_ways(sizes_of(model, batch_size), k).values() if t]
    least = min(possible, key=lambda t: t.n_bytes)
    if k == 1:
        assert "sends nothing" in words
    else:
        assert f"<b>{WAYS[least.way].capitalize()}</b> sends the fewest bytes, {format_bytes(least.n_bytes)}" in words
    assert words.count("is not possible with") == len(WAYS) - len(possible)


def test_explorer_shows_what_its_controls_say():
    pytest.importorskip("ipywidgets")
    explorer = PartitionExplorer()
    height = explorer.figure.layout.height
    for model, k, batch_size in (("LeNet", 1, 8), ("MLP, three layers of 4096", 8, 256), ("SimpleCNN", 16, 8)):
        explorer.model.value, explorer.k.value, explorer.batch_size.value = model, k, batch_size
        traffics = all_ways(sizes_of(model, batch_size), k)
        assert explorer.traffics == traffics
        sizes = [t.n_bytes if t else 0 for t in traffics.values()]
        assert list(explorer.figure.data[0].customdata) == sizes
        assert explorer.summary.value == traffic_summary(model, k, batch_size)
        texts = [note.text for note in explorer.figure.layout.annotations]
        assert all(any(text.startswith(format_bytes(size)) for text in texts) for size in sizes if size)
        assert explorer.figure.layout.height == height and len(explorer.figure.data) == 1
