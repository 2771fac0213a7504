"""Steps on meshes as bars: each term is the predicted one, and a time without terms keeps them to itself."""

import pytest

from d2lite.costs import Device, Link
from d2lite.figures.alternative_text import alternative_text
from d2lite.figures.svg import figure_svg
from d2lite.labs.chapter_13 import MEMORY_MODELS
from d2lite.labs.chapter_16 import Mesh, mesh_step_figure, predict_mesh_step

STEP = predict_mesh_step(MEMORY_MODELS[2], Mesh(2, 2, 4), 16, Device(4e14), Link(1e-5, 1e9))
ALONE = predict_mesh_step(MEMORY_MODELS[2], Mesh(1, 1, 1), 16, Device(4e14), Link(1e-5, 1e9))


def bars(figure):
    return {bar.name: dict(zip(bar.y, bar.x, strict=True)) for bar in figure.data}


def test_the_bars_are_the_terms():
    mine, alone = f"mine: {STEP.seconds:.3g} s", f"alone: {ALONE.seconds:.3g} s"
    figure = mesh_step_figure({"mine": STEP, "alone": ALONE})
    assert bars(figure) == {
        "computing": {mine: STEP.compute_s, alone: ALONE.compute_s},
        "tensor: all-reduces": {mine: STEP.tensor_s},
        "pipe: bubble": {mine: STEP.bubble_s},
        "data: gradients": {mine: STEP.data_s},
        "the whole step": {},
    }
    assert sum(terms.get(mine, 0) for terms in bars(figure).values()) == pytest.approx(STEP.seconds)
    assert f"{STEP.seconds:.3g} s" in figure_svg(figure) and "predicted" in alternative_text(figure)


def test_a_time_has_one_empty_bar_and_none_has_none():
    figure = mesh_step_figure({"the fastest": 12.5, "no mesh": None})
    assert bars(figure)["the whole step"] == {"the fastest: 12.5 s": 12.5}
    assert all(not terms for name, terms in bars(figure).items() if name != "the whole step")
    assert "no mesh: none" in [note.text for note in figure.layout.annotations]
    assert figure.layout.xaxis.range[1] >= 12.5
    assert mesh_step_figure({"no mesh": None}).layout.xaxis.range[1] > 0
