import re

import pytest

from d2lite.labs.chapter_01.partition_explorer import NETS, sizes_of
from d2lite.labs.chapter_01.partition_figure import COLOURS, partition_figure, traffic_bars
from d2lite.labs.chapter_01.partitioning import WAYS, all_ways, bytes_sent, messages
from notebook_ranks.shared.format import format_bytes

pytest.importorskip("plotly")
LENET = "LeNet"


def luminance(colour):
    colour = {"white": "#FFFFFF", "black": "#000000"}.get(colour, colour)
    channels = [int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5)]
    linear = [c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in channels]
    return sum(weight * c for weight, c in zip((0.2126, 0.7152, 0.0722), linear, strict=True))


def contrast(a, b):
    light, dark = sorted((luminance(a), luminance(b)), reverse=True)
    return (light + 0.05) / (dark + 0.05)


def test_text_is_legible_on_light_and_dark_pages():
    for fill, ink in COLOURS.values():
        assert contrast(fill, ink) >= 4.5
    for page in ("#FFFFFF", "#111111"):
        assert all(contrast(COLOURS[kind][0], page) >= 3 for kind in ("activations", "gradients"))


@pytest.mark.parametrize("model", NETS)
@pytest.mark.parametrize("k", [1, 2, 3, 4])
@pytest.mark.parametrize("way", WAYS)
def test_numbers_in_a_picture_are_those_computed(way, k, model):
    layers = sizes_of(model, 16)
    if all_ways(layers, k)[way] is None:
        pytest.skip("not possible with so many devices")
    figure = partition_figure(way, layers, k)
    computed = bytes_sent(way, layers, k)
    drawn = {kind: sum(t.customdata[0] for t in figure.data if t.name == kind) for kind in ("activations", "gradients")}
    assert drawn == {"activations": computed.activations_n_bytes, "gradients": computed.gradients_n_bytes}
    notes = [note.text for note in figure.layout.annotations]
    for trace in figure.data:
        assert f"{trace.name} {format_bytes(trace.customdata[0])}" in notes
    assert format_bytes(computed.n_bytes).replace(" ", "\u00a0") in figure.layout.title.text  # in one line
    counted = sum(int(n) for t in figure.data for n in re.findall(r"<br>(\d+) messages", t.hovertemplate))
    single = sum("messages" not in t.hovertemplate for t in figure.data)
    assert counted + single == len(messages(way, layers, k))
    assert sum(note.startswith("device ") for note in notes) == k


@pytest.mark.parametrize("k", [2, 4, 8])
@pytest.mark.parametrize("way", WAYS)
def test_rows_hold_either_boxes_or_one_arrow(way, k):
    model = "ResNet-18, width 8"
    figure = partition_figure(way, sizes_of(model, 16), k)
    arrows = {round(note.y) for note in figure.layout.annotations if note.showarrow}
    boxes = {(shape.y0 + shape.y1) / 2 for shape in figure.layout.shapes if shape.type == "rect"}
    assert not arrows & boxes
    words = [note for note in figure.layout.annotations if not note.showarrow and note.xref != "paper"]
    assert len({(note.x, note.y) for note in words}) == len(words)
    assert all(note.x % 1 or note.y == 0 for note in words if note.yshift)  # of arrows: on no device's line


@pytest.mark.parametrize("k", [1, 2, 3, 4, 8])
@pytest.mark.parametrize("way", WAYS)
def test_boxes_have_room_for_their_words_on_a_narrow_page(way, k):
    figure = partition_figure(way, sizes_of("ResNet-18, width 8", 256), k)
    column = (344 if k <= 4 else figure.layout.width - 16) / k  # of 360 pixels
    assert k > 4 or figure.layout.width is None
    for note in figure.layout.annotations:
        if note.bgcolor:
            assert 7 * max(map(len, note.text.split("<br>"))) <= column


def test_boxes_of_data_parallelism_divide_the_batch_and_hold_the_parameters():
    notes = [note.text for note in partition_figure("data", sizes_of(LENET, 10), 3).layout.annotations]
    assert notes.count("4 of 10<br>examples") == 1 and notes.count("3 of 10<br>examples") == 2
    assert notes.count("linear1<br>410 KB") == 3


def test_boxes_of_tensor_parallelism_divide_the_channels():
    notes = [note.text for note in partition_figure("tensor", sizes_of(LENET, 10), 4).layout.annotations]
    assert notes.count("conv2<br>13 of 50") == 2 and notes.count("conv2<br>12 of 50") == 2
    assert notes.count("linear2<br>3 of 10") == 2


@pytest.mark.parametrize(("k", "batch_size"), [(1, 8), (2, 256), (8, 4096), (16, 8)])
def test_numbers_in_the_bars_are_those_computed(k, batch_size):
    traffics = all_ways(sizes_of(LENET, batch_size), k)
    figure = traffic_bars(traffics, "a title")
    sizes = [t.n_bytes if t else 0 for t in traffics.values()]
    assert list(figure.data[0].customdata) == sizes
    assert [x or 0 for x in figure.data[0].x] == sizes
    notes = [note.text for note in figure.layout.annotations]
    assert notes.count("not possible with so many devices") == sum(t is None for t in traffics.values())
    assert notes.count("nothing") == (3 if k == 1 else 0)
    least = min((size for size in sizes if size), default=0)
    for name, size in zip(WAYS.values(), sizes, strict=True):
        if size:
            times = "the least" if size == least else f"{size / least:.3g} × the least"
            assert format_bytes(size) in notes and f"{name}, {times}" in notes
        else:
            assert name in notes
    assert figure.layout.xaxis.title.text == "bytes, computed from shapes"


def test_bars_begin_at_zero_and_leave_room_for_their_words():
    for k, batch_size in ((1, 8), (2, 8), (16, 4096)):
        figure = traffic_bars(all_ways(sizes_of(LENET, batch_size), k))
        low, high = figure.layout.xaxis.range
        assert low == 0 and figure.layout.xaxis.type is None and high >= 1.25 * max(x or 0 for x in figure.data[0].x)


def test_backgrounds_are_transparent():
    for figure in (partition_figure("data", sizes_of(LENET, 8), 2), traffic_bars(all_ways(sizes_of(LENET, 8), 2))):
        assert figure.layout.paper_bgcolor == figure.layout.plot_bgcolor == "rgba(0,0,0,0)"


def test_refuses_more_columns_than_can_be_read():
    with pytest.raises(ValueError, match=r"k: expected a whole number from 1 to 8, got 9\. More columns"):
        partition_figure("data", sizes_of(LENET, 64), 9)
    with pytest.raises(ValueError, match="way: expected one of"):
        partition_figure("time", sizes_of(LENET, 64), 2)
