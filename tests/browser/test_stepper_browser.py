"""The stepper in JupyterLab: what the page shows at a step is in the Trace, for each of the controls."""

import json

import pytest
from notebook import control, errors, move, open_notebook, run_all, save_and_reload, until, write

from d2lite.labs.chapter_04.collective_stepper import trace_collective
from d2lite.labs.chapter_04.collective_steps import MORE, SOME, WHOLE
from notebook_ranks.shared.format import format_bytes

MAKE = 'from d2lite.labs.chapter_04 import CollectiveStepper\nstepper = CollectiveStepper("ring", 4)\n'
STEPPER = MAKE + 'stepper.drawn_as.value = "grid"\nstepper'
FIGURE = """() => {
    const plot = document.querySelector('.js-plotly-plot');  // plotly fills it after it is there
    const texts = (selector) => [...plot.querySelectorAll(selector)].map(e => e.textContent);
    const [cells, added, kept, bars] = plot?._fullData ?? [];
    if (!bars) return '{"title": "not drawn yet"}';
    const arrows = (t) => Array.from(t.x).map((x, i) => [x, t.y[i], t.y[i + 1]]).filter((a, i) => i % 3 == 0);
    return JSON.stringify({
        title: texts('.gtitle tspan.line').join(', '),
        held: texts('.heatmap-label').filter(t => t !== ''),
        z: Array.from(cells.z).map(row => Array.from(row).filter(n => n != null)),
        added: arrows(added), kept: arrows(kept),
        heads: plot.querySelectorAll('.scatterlayer .trace .points path').length,
        sent: Array.from(bars.x), ticks: texts('.y2tick text').filter(t => t !== ''),
    });
}"""

COLOURS = """async () => {  // [number, [red, green, blue]]: the pixel under each number of the drawn picture
    const image = document.querySelector('.js-plotly-plot .hm image'), picture = new Image();
    if (!image?.href.baseVal) return [];
    picture.src = image.href.baseVal;
    await picture.decode();
    const canvas = document.createElement('canvas'), box = image.getBoundingClientRect();
    [canvas.width, canvas.height] = [picture.width, picture.height];
    const pen = canvas.getContext('2d');
    pen.drawImage(picture, 0, 0);
    return [...document.querySelectorAll('.heatmap-label')].filter(e => e.textContent).map(e => {
        const here = e.getBoundingClientRect();
        const x = (here.left + here.width / 2 - box.left) / box.width * picture.width;
        const y = (here.top + here.height / 2 - box.top) / box.height * picture.height;
        return [Number(e.textContent), [...pen.getImageData(x, y, 1, 1).data].slice(0, 3)];
    });
}"""


def shown(page):
    return json.loads(page.evaluate(FIGURE))


def colour(n, trace):
    """What a cell with n of all contributions should look like: blue, the darker the more; green when whole."""
    if n == trace.world_size:
        return [int(WHOLE[i : i + 2], 16) for i in (1, 3, 5)]
    return [round(a + n / trace.world_size * (b - a)) for a, b in zip(SOME, MORE, strict=True)]


def assert_shows(page, trace, step):
    """Wait for the picture of a step, and compare all that stands in it with the Trace."""
    sends = trace.steps[step - 1] if step else []
    held = [[len(chunk) for chunk in row] for row in trace.replay()[step]]
    sent = trace.sent_n_bytes(step)
    expected = {
        "title": f"{trace.algorithm} all-reduce on {trace.world_size} devices, step {step} of {len(trace.steps)}",
        "z": held,
        "held": sorted(str(n) for row in held for n in row),  # in the cells, for the eye
        "added": sorted((s.src, s.dst, s.chunk) for s in sends if s.adds),
        "kept": sorted((s.src, s.dst, s.chunk) for s in sends if not s.adds),
        "heads": 2 * len(sends),  # a dot and a head each
        "sent": sent,
        "ticks": [format_bytes(n_bytes) for n_bytes in sent],
    }
    pixels = [(n, colour(n, trace)) for row in held for n in row]

    def now():
        found = shown(page)
        if found["title"] == expected["title"]:
            found["held"] = sorted(found["held"])
            for name in ("added", "kept"):
                found[name] = sorted((src, dst, int(x)) for x, src, dst in found[name])
        return found

    try:  # plotly draws a step piece by piece
        until(lambda: now() == expected and sorted((n, p) for n, p in page.evaluate(COLOURS)) == sorted(pixels))
    except TimeoutError:
        assert now() == expected
        assert sorted((n, p) for n, p in page.evaluate(COLOURS)) == sorted(pixels)
        raise


def show(page, lab, code):
    """Run the code in a notebook of its own and wait for the figure."""
    write(lab.folder / "stepper.ipynb", code)
    open_notebook(page, lab, "stepper.ipynb")
    run_all(page)
    page.wait_for_selector(".js-plotly-plot .main-svg")


@pytest.fixture
def stepper(lab, page):
    show(page, lab, STEPPER)
    return page


@pytest.mark.slow
def test_controls_that_are_set_before_it_is_shown(lab, page):
    show(page, lab, STEPPER + ".step.value = 2\nstepper")
    assert_shows(page, trace_collective("all_reduce", "ring", 4), 2)
    assert errors(page) == [] and page.errors == []


@pytest.mark.slow
def test_a_page_that_is_loaded_again(stepper, lab):
    trace = trace_collective("all_reduce", "ring", 4)
    move(stepper, "step", "ArrowRight", 3)
    assert_shows(stepper, trace, 3)
    stepper.wait_for_selector(".widget-play button >> nth=0")
    until(lambda: stepper.locator(".widget-play button").first.get_attribute("aria-label") == "Play")
    save_and_reload(stepper, lab.folder / "stepper.ipynb")
    assert_shows(stepper, trace, 3)
    until(lambda: control(stepper, "step").locator(".widget-readout").inner_text() == "3")


SLOW_LOADING = """(() => {  // a page that takes three seconds to read plotly's code
    const create = URL.createObjectURL;
    URL.createObjectURL = (blob) => {
        const end = performance.now() + (blob.size > 1e6 ? 3000 : 0);
        while (performance.now() < end);
        return create(blob);
    };
})()"""


@pytest.mark.slow
def test_a_page_that_loads_plotly_slowly_follows(lab, page):
    page.add_init_script(SLOW_LOADING)
    write(lab.folder / "stepper.ipynb", STEPPER, "stepper.step.value = 2", "stepper.step.value = 3")
    open_notebook(page, lab, "stepper.ipynb")
    run_all(page)
    page.wait_for_selector(".js-plotly-plot .main-svg")
    trace = trace_collective("all_reduce", "ring", 4)
    assert_shows(page, trace, 3)
    move(page, "step", "ArrowRight", 1)
    assert_shows(page, trace, 4)
    assert errors(page) == [] and page.errors == []


@pytest.mark.slow
def test_arrows_colours_and_bytes_are_the_trace_s(stepper):
    trace = trace_collective("all_reduce", "ring", 4)
    assert_shows(stepper, trace, 0)
    for step in (1, 2, 3, 4):
        move(stepper, "step", "ArrowRight", 1)
        assert_shows(stepper, trace, step)
    move(stepper, "step", "End", 1)
    assert_shows(stepper, trace, 6)

    control(stepper, "algorithm").locator("select").select_option(label="tree")
    trace = trace_collective("all_reduce", "tree", 4)
    assert_shows(stepper, trace, 0)
    move(stepper, "devices", "ArrowRight", 1)
    trace = trace_collective("all_reduce", "tree", 5)
    assert_shows(stepper, trace, 0)
    stepper.locator(".jupyter-widgets.widget-play button").first.click()  # plays to the end by itself
    assert_shows(stepper, trace, len(trace.steps))
    words = stepper.locator(".d2lite .widget-html-content").last
    summary = "tree, a tensor of n = 336 KB: 6 steps; the busiest device sends 1.01 MB"
    until(lambda: words.inner_text().startswith(summary))
    assert errors(stepper) == [] and stepper.errors == []


CELLS = """() => JSON.stringify([...document.querySelectorAll('.d2lite-shape .cell')].map(e => e.textContent))"""
MOVES = """() => document.getAnimations().filter(a => a.animationName === 'd2lite-glide').length"""


@pytest.mark.slow
def test_the_shape_follows_the_keyboard_and_its_chunks_glide(lab, page):
    write(lab.folder / "stepper.ipynb", MAKE + "stepper")
    open_notebook(page, lab, "stepper.ipynb")
    run_all(page)
    shape, trace = page.locator(".d2lite-shape"), trace_collective("all_reduce", "ring", 4)
    until(lambda: json.loads(page.evaluate(CELLS)) == ["1"] * 16)
    for step in (1, 2):
        move(page, "step", "ArrowRight", 1)
        held = [str(len(chunk)) for row in trace.replay()[step] for chunk in row]
        until(lambda: f"step {step} of 6" in shape.get_attribute("aria-label"))  # noqa: B023
        assert shape.locator("rect.glide").count() == 4 and shape.locator("path.move").count() == 4
        last = {}
        for element in shape.locator(".cell").all():
            last[element.get_attribute("x"), element.get_attribute("y")] = element.text_content()
        assert sorted(last.values()) == sorted(held)
    page.get_by_role("button", name="grid").click()
    page.wait_for_selector(".js-plotly-plot .main-svg")
    assert_shows(page, trace, 2)
    assert not shape.count() and errors(page) == [] and page.errors == []


@pytest.mark.slow
def test_nothing_glides_for_readers_who_want_reduced_motion(lab, page):
    page.emulate_media(reduced_motion="reduce")
    write(lab.folder / "stepper.ipynb", MAKE + "stepper.step.value = 1\nstepper")
    open_notebook(page, lab, "stepper.ipynb")
    run_all(page)
    page.wait_for_selector(".d2lite-shape .device")
    assert page.evaluate(MOVES) == 0 and not page.locator(".d2lite-shape rect.glide").first.is_visible()
