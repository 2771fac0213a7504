"""The drawings of the chapters: the committed files, their words, and that nothing is cut or hard to read."""

import json
import re
import xml.etree.ElementTree as ET

import pytest

from d2lite.figures.palette import PALETTE
from tools.drawings import DRAWINGS, FOLDER

EACH = pytest.mark.parametrize("name", DRAWINGS)
SVG = "{http://www.w3.org/2000/svg}"
WIDE = 7.6  # pixels of a character of 14 px, as Chromium draws DejaVu Sans: no usual font is wider on average


@EACH
def test_the_committed_file_is_what_the_code_draws(name):
    assert (FOLDER / f"{name}.svg").read_text("utf-8") == DRAWINGS[name](), "run: python -m tools.drawings"


def test_there_is_no_other_drawing():
    assert {path.stem for path in FOLDER.iterdir()} == set(DRAWINGS)


def extent(text):
    x, width = float(text.get("x")), WIDE * len(text.text)
    start = {"start": x, "middle": x - width / 2, "end": x - width}[text.get("text-anchor")]
    return start, start + width, float(text.get("y"))


@EACH
def test_no_words_are_cut_or_lie_on_each_other(name):
    root = ET.fromstring(DRAWINGS[name]())
    texts = [extent(text) for text in root.iter(f"{SVG}text")]
    assert len(texts) > 5
    for start, end, y in texts:
        assert start >= 0 and end <= float(root.get("width")) and 14 <= y <= float(root.get("height")) - 4
    for i, (start, end, y) in enumerate(texts):
        for other_start, other_end, other_y in texts[:i]:
            if name in ("ring", "tree") and (start, y) == (other_start, other_y):
                continue  # a cell over its state before the step
            assert abs(y - other_y) >= 14 or end <= other_start or other_end <= start


@EACH
def test_a_chapter_shows_it_with_its_words(name):
    words = ET.fromstring(DRAWINGS[name]()).find(f"{SVG}desc").text
    shown = f"![{words}](images/{name}.svg)"
    chapters = [path for path in FOLDER.parent.glob("[0-9]*.ipynb") if shown in markdown(path)]
    assert len(chapters) == 1, f"expected one chapter with {shown}"


def markdown(path):
    return "\n".join(
        "".join(c["source"]) for c in json.loads(path.read_text("utf-8"))["cells"] if c["cell_type"] == "markdown"
    )


def contrast(colour, other):
    one, two = sorted(map(luminance, (colour, other)))
    return (two + 0.05) / (one + 0.05)


def luminance(colour):
    parts = [int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5)]
    red, green, blue = (c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in parts)
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue


def test_words_have_a_contrast_of_4_5_on_their_ground():
    style = DRAWINGS["five-phases"]()
    light, dark = re.findall(r"text {[^}]*fill: (#\w+)", style), re.findall(r"\.(?:page|soft) { fill: (#\w+)", style)
    full = [c if len(c) == 7 else "#" + "".join(2 * x for x in c[1:]) for c in light + dark]
    ink, ink_dark, page, soft, page_dark, soft_dark = full
    for pair in ((ink, page), (ink, soft), (ink_dark, page_dark), (ink_dark, soft_dark)):
        assert contrast(*pair) >= 4.5, pair
    for colour in PALETTE:
        assert max(contrast(colour, "#ffffff"), contrast(colour, "#000000")) >= 4.5
