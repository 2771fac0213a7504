"""Make docs/index-light.gif and docs/index-dark.gif: the index at work, on two devices and then on one, in six seconds.

`python -m tools.moving_picture` trains without a page first, so that drawing takes no core from the training, and
keeps what the panel shows. Then it shows that in JupyterLab, in both themes, and takes the pictures. It needs
Chromium, and a machine that does nothing else: the large number, or a warning, is in the picture.
"""

import io
import tempfile
import time
from pathlib import Path

from PIL import Image

from tests.browser.lab import ARGUMENTS, CHROMIUM, ROOT, serving
from tests.browser.notebook import open_notebook, run_cell, write

__all__ = ["main"]

NUM_FRAMES, FRAME_MS = 48, 125  # six seconds
LAST_MS = 1500  # the last frame stays longer
COLOURS = 96
EDGE = 10  # pixels around the panel
EVERY_S = 0.4  # between two pictures: the lanes go on meanwhile
# what the index runs, twice; `states` holds what the panel showed at each moment: {widget: {trait: value}}
_TRAIN = """
import threading, time
from d2lite import Panel
from d2lite.profiling import train_watched

panel = Panel(train_watched, num_gpus=2, lr=0.2, batch_size=256, num_epochs=20, fixed={"num_examples": 4_000})
parts, states = [panel.layout.widget], []
for part in parts:
    parts += getattr(part, "children", ())
names = ("value", "disabled", "alternative_text", "_json", "_step", "_tests")

def keep():
    states.append([{name: getattr(part, name) for name in names if part.has_trait(name)} for part in parts])

def show(state):
    for part, traits in zip(parts, state):
        for name, value in traits.items():
            if getattr(part, name) != value:
                part.set_trait(name, value)

for num_gpus in (2, 1):
    panel.controls["num_gpus"].value = num_gpus
    panel.train.click()
    while panel.running:
        if panel.runs and len(panel.runs[0].accuracies) > 1:  # the first picture has a curve and lanes
            keep()
        time.sleep(0.1)
    panel.wait()
    keep()  # the end: the speed-up
"""
_SHOW = """
def replay():
    time.sleep(1)
    for i in range({frames}):
        show(states[min(len(states) - 1, i * len(states) // ({frames} - 4))])
        time.sleep({every_s})

show(states[0])
panel
"""


def main():
    """Write both pictures, and print their sizes."""
    from playwright.sync_api import sync_playwright

    with (
        tempfile.TemporaryDirectory() as folder,
        tempfile.TemporaryDirectory() as home,
        sync_playwright() as playwright,
    ):
        show = _SHOW.format(frames=NUM_FRAMES, every_s=EVERY_S)
        write(Path(folder, "index.ipynb"), _TRAIN, show, "threading.Thread(target=replay).start()")
        with serving(Path(folder), Path(home)) as lab:
            browser = playwright.chromium.launch(executable_path=CHROMIUM, args=ARGUMENTS)
            for theme in ("Light", "Dark"):
                lab.theme(theme)
                page = browser.new_page(viewport={"width": 1280, "height": 2600})  # nothing is scrolled out of sight
                open_notebook(page, lab, "index.ipynb")
                path = ROOT / "docs" / f"index-{theme.lower()}.gif"
                if theme == "Light":  # the kernel stays when its notebook is opened again
                    run_cell(page, 0, 600)
                _write_gif(path, _pictures(page))
                print(f"{path.name}: {path.stat().st_size / 1e6:.2f} MB")
                page.close()
            browser.close()


def _pictures(page):
    """Return pictures of the panel while it shows the states that were kept."""
    run_cell(page, 1)
    panel = page.locator(".d2lite").first
    panel.locator(".js-plotly-plot .main-svg").nth(2).wait_for()
    run_cell(page, 2)
    pictures, start = [], time.monotonic()
    for i in range(NUM_FRAMES):
        time.sleep(max(0.0, start + i * EVERY_S - time.monotonic()))
        box = panel.bounding_box()
        clip = {
            "x": box["x"] - EDGE,
            "y": box["y"] - EDGE,
            "width": box["width"] + 2 * EDGE,
            "height": box["height"] + EDGE,
        }
        pictures.append(Image.open(io.BytesIO(page.screenshot(clip=clip))).convert("RGB"))
    return pictures


def _write_gif(path, pictures):
    """Write pictures as a GIF that repeats, all with the colours of the last one and as high as the highest."""
    width, height = (max(picture.size[i] for picture in pictures) for i in (0, 1))
    ground = pictures[-1].getpixel((0, 0))
    palette = pictures[-1].quantize(COLOURS)
    frames = []
    for picture in pictures:
        whole = Image.new("RGB", (width, height), ground)
        whole.paste(picture)
        frames.append(whole.quantize(palette=palette, dither=Image.Dither.NONE))
    durations = [FRAME_MS] * (len(frames) - 1) + [LAST_MS]
    frames[0].save(path, save_all=True, append_images=frames[1:], duration=durations, loop=0, optimize=True)


if __name__ == "__main__":
    main()
