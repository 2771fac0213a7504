"""A Trace in the shape of its algorithm: every number is the trace's, and nothing is cut or lies on something else."""

import re
import xml.etree.ElementTree as ET

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from d2lite.collectives.plans import ALGORITHMS, COLLECTIVES
from d2lite.labs.chapter_04.collective_shapes import collective_shape, shape_words
from d2lite.labs.chapter_04.collective_stepper import trace_collective
from d2lite.trace import Trace
from notebook_ranks.shared.format import format_bytes

SVG = "{http://www.w3.org/2000/svg}"


def drawn(trace, step):
    return ET.fromstring(collective_shape(trace, step))


def numbers(root, of="x"):
    return [float(element.get(of)) for element in root]


@given(
    collective=st.sampled_from(COLLECTIVES),
    algorithm=st.sampled_from(ALGORITHMS),
    k=st.integers(1, 8),
    n=st.integers(0, 50),
)
@settings(max_examples=30)
def test_cells_bytes_and_messages_are_the_trace_s(collective, algorithm, k, n):
    trace = trace_collective(collective, algorithm, k, torch.zeros(n))
    for step, state in enumerate(trace.replay()):
        root = drawn(trace, step)
        texts = [text for text in root.iter(f"{SVG}text") if text.get("class") != "cell"]
        sent = [text.text for text in texts if text.text.startswith("sent ")]
        assert sent == [f"sent {format_bytes(b)}" if b else "sent nothing" for b in trace.sent_n_bytes(step)]
        if len(trace.chunk_n_bytes) <= 8:
            cells = {}  # place -> the number that is on top
            for cell in root.iter(f"{SVG}text"):
                if cell.get("class") == "cell":
                    cells[cell.get("x"), cell.get("y")] = int(cell.text)
            assert sorted(cells.values()) == sorted(len(chunk) for row in state for chunk in row)
        sends = trace.steps[step - 1] if step else []
        pairs = {(send.src, send.dst, send.adds) for send in sends}
        assert len([path for path in root.iter(f"{SVG}path") if path.get("class") == "move"]) == len(pairs)
        gliding = [rect for rect in root.iter(f"{SVG}rect") if rect.get("class") == "glide"]
        assert len(gliding) == (len(sends) if len(pairs) <= 16 else 0)
        assert all(f"device {s.src} sends chunk {s.chunk} to device {s.dst}" in root.get("aria-label") for s in sends)


@pytest.mark.parametrize("algorithm", ALGORITHMS)
@pytest.mark.parametrize("k", range(1, 9))
def test_devices_are_apart_and_inside(algorithm, k):
    trace = trace_collective("all_reduce", algorithm, k)
    sizes = set()
    for step in range(len(trace.steps) + 1):
        root = drawn(trace, step)
        _, _, width, height = map(float, root.get("viewBox").split())
        sizes.add((width, height))
        boxes = [
            [float(rect.get(name)) for name in ("x", "y", "width", "height")]
            for rect in root.iter(f"{SVG}rect")
            if rect.get("class") == "device"
        ]
        assert len(boxes) == k
        for i, (x, y, w, h) in enumerate(boxes):
            assert x >= 1 and y >= 1 and x + w <= width - 1 and y + h <= height - 1
            for other_x, other_y, _, _ in boxes[:i]:
                assert abs(x - other_x) >= w + 2 or abs(y - other_y) >= h + 8
    assert len(sizes) == 1  # nothing jumps from one step to the next


def test_the_shapes():
    def centres(algorithm, k):
        root = drawn(trace_collective("all_reduce", algorithm, k), 0)
        boxes = [rect for rect in root.iter(f"{SVG}rect") if rect.get("class") == "device"]
        return list(zip(numbers(boxes), numbers(boxes, "y"), strict=True)), root

    ring, _ = centres("ring", 4)
    assert ring[0][0] == ring[2][0] and ring[1][1] == ring[3][1] and ring[3][0] < ring[0][0] < ring[1][0]
    tree, _ = centres("tree", 8)
    levels = [sum(y == level for _, y in tree) for level in sorted({y for _, y in tree})]
    assert levels == [1, 3, 3, 1] and min(y for _, y in tree) == tree[0][1]
    star, _ = centres("parameter server", 5)
    assert star[0][0] == sum(x for x, _ in star) / 5
    hosts, root = centres("two-level", 8)
    assert {x for x, _ in hosts[:4]} != {x for x, _ in hosts[4:]} and len({x for x, _ in hosts}) == 2
    assert [text.text for text in root.iter(f"{SVG}text") if text.text.startswith("host")] == ["host 0", "host 1"]


def test_a_chunk_glides_from_the_cell_of_its_sender():
    trace = trace_collective("all_reduce", "ring", 4)
    root = drawn(trace, 1)
    first = {}
    for rect in root.iter(f"{SVG}rect"):
        if rect.get("class") == "device":
            first[len(first)] = float(rect.get("x")), float(rect.get("y"))
    gliding = [rect for rect in root.iter(f"{SVG}rect") if rect.get("class") == "glide"]
    for send, rect in zip(trace.steps[0], gliding, strict=True):
        dx, dy = map(float, re.findall(r"(-?[\d.]+)px", rect.get("style")))
        (x0, y0), (x1, y1) = first[send.src], first[send.dst]
        assert (dx, dy) == pytest.approx((x0 - x1, y0 - y1), abs=0.1)


def test_what_cannot_be_drawn_is_refused_and_names_are_escaped():
    trace = trace_collective("all_reduce", "ring", 2)
    for step in (-1, 3, "1"):
        with pytest.raises(ValueError, match="step: expected a whole number from 0 to 2, got"):
            collective_shape(trace, step)
    with pytest.raises(ValueError, match="got an empty one"):
        collective_shape(Trace(), 0)
    with pytest.raises(ValueError, match="trace: expected at most 8 devices, got 9. Draw the grid."):
        collective_shape(trace_collective("all_reduce", "naive", 9, torch.zeros(1)), 0)
    trace.algorithm = '"><script>'
    assert "<script" not in collective_shape(trace, 0) and shape_words(trace, 0).startswith('"><script>')
