"""The machine at work: a recorded step of a run in slow motion, one lane per device, and some test images."""

import base64
import json
from pathlib import Path
from typing import Any

import torch
from anywidget import AnyWidget
from ipywidgets import Layout
from traitlets import Unicode

from d2lite.figures.palette import COLOURS, PALETTE
from d2lite.profiling.watched_training import ImageGuesses, RecordedStep
from notebook_ranks.shared.format import format_bytes, format_seconds

__all__ = ["CLOTHES", "DeviceLanes"]

CLOTHES = ("T-shirt", "trouser", "pullover", "dress", "coat", "sandal", "shirt", "sneaker", "bag", "boot")
_MOST_LANES = 8
_RIGHT, _WRONG = PALETTE[2], PALETTE[1]

_CSS = f"""
.d2lite-lanes {{ font-size: 14px; line-height: 1.3; color: var(--jp-ui-font-color1, inherit); padding: 4px 0;
  container-type: inline-size; }}
.d2lite-lanes.empty {{ display: none; }}
.d2lite-lanes .head {{ display: flex; flex-wrap: wrap; gap: 8px; align-items: center; margin-bottom: 4px; }}
.d2lite-lanes .head span {{ flex: 1 1 340px; font-weight: 600; }}
.d2lite-lanes button {{ font: inherit; color: inherit; background: none;
  border: 1px solid var(--jp-border-color1, #888);
  border-radius: 4px; padding: 1px 10px; cursor: pointer; }}
.d2lite-lanes .rows {{ position: relative; }}
.d2lite-lanes .lane {{ display: flex; align-items: center; height: 36px; gap: 8px; }}
.d2lite-lanes .who {{ flex: 0 0 76px; border-radius: 4px; padding: 2px 4px; }}
.d2lite-lanes .who.updated {{ outline: 2px solid {COLOURS["update"]}; outline-offset: -2px; }}
.d2lite-lanes .shard {{ flex: 0 0 218px; display: flex; gap: 3px; align-items: center; overflow: hidden; }}
.d2lite-lanes .track {{ flex: 1 1 120px; position: relative; height: 26px; min-width: 0;
  border-bottom: 1px solid var(--jp-border-color2, #bbb); }}
.d2lite-lanes .block {{ position: absolute; top: 0; height: 26px; overflow: hidden; box-sizing: border-box;
  border: 1px solid var(--jp-border-color1, #888); }}
.d2lite-lanes .fill {{ position: absolute; left: 0; top: 0; bottom: 0; opacity: 0.35; }}
.d2lite-lanes .text {{ position: relative; display: inline-block; padding: 0 4px; line-height: 24px;
  white-space: nowrap; }}
.d2lite-lanes .way {{ flex: 0 0 120px; position: relative; height: 14px; }}
.d2lite-lanes .dot {{ position: absolute; left: 0; width: 14px; height: 14px; border-radius: 7px;
  background: {COLOURS["all_reduce"]}; }}
.d2lite-lanes .hub {{ position: absolute; right: 0; top: 50%; width: 34px; height: 34px; margin-top: -17px;
  border: 2px solid {COLOURS["all_reduce"]}; border-radius: 18px; box-sizing: border-box; text-align: center;
  font-size: 18px; line-height: 30px; background: var(--jp-layout-color0, Canvas); }}
.d2lite-lanes .parts {{ display: flex; flex-wrap: wrap; gap: 0 18px; margin: 4px 0; }}
.d2lite-lanes .parts .active {{ text-decoration: underline; text-decoration-thickness: 3px;
  text-underline-offset: 4px; text-decoration-color: {COLOURS["update"]}; }}
.d2lite-lanes .tests {{ display: flex; flex-wrap: wrap; gap: 4px 12px; margin-top: 8px; align-items: center; }}
.d2lite-lanes .test {{ display: flex; flex-direction: column; align-items: center; min-width: 62px; }}
.d2lite-lanes .right canvas {{ outline: 3px solid {_RIGHT}; }}
.d2lite-lanes .wrong canvas {{ outline: 3px solid {_WRONG}; }}
.d2lite-lanes .test span {{ margin-top: 3px; }}
.d2lite-lanes .tests .who {{ flex-basis: auto; }}
@container (max-width: 560px) {{ /* a lane is two rows: the shard; the passes and the gradient */
  .d2lite-lanes .lane {{ flex-wrap: wrap; height: 68px; gap: 0 8px; }}
  .d2lite-lanes .who {{ flex-basis: 66px; }}
  .d2lite-lanes .shard {{ flex: 1 1 180px; }}
  .d2lite-lanes .shard canvas {{ width: 23px !important; height: 23px !important; }}
  .d2lite-lanes .way {{ flex-basis: 70px; }}
}}
@container (max-width: 300px) {{
  .d2lite-lanes .shard {{ flex-basis: 150px; gap: 2px; }}
  .d2lite-lanes .shard canvas {{ width: 20px !important; height: 20px !important; }}
}}
"""


class DeviceLanes(AnyWidget):
    """A recorded step on the page, in slow motion, until the next one comes; nothing is shown before the first.

    Each device has a lane: the images of its shard, its forward and backward pass in the times that were measured, and
    its gradient on the way to the sum and back. The mouse over the lanes slows them down; buttons let them stand still,
    or show part after part. A page that wants reduced motion gets the complete step without movement.
    `alternative_text` has the same in words. Any thread may call `show_step` and `show_tests`.
    """

    _esm = Path(__file__).with_suffix(".js").read_text(encoding="utf-8")
    _css = _CSS
    _step = Unicode().tag(sync=True)
    _tests = Unicode().tag(sync=True)
    alternative_text = Unicode().tag(sync=True)

    def __init__(self) -> None:
        super().__init__(layout=Layout(width="100%", min_width="0", margin="0"))
        self._parts = {"step": "", "tests": ""}

    def show_step(self, recorded: RecordedStep) -> None:
        """Show this step after the one that is on the page now."""
        state = _lanes_for_page(recorded)
        self._step = json.dumps(state)
        lanes = [f"{lane['name']}: " + ", ".join(f"{b[0]} {b[4]}" for b in lane["blocks"]) for lane in state["lanes"]]
        self._say(step=f"Step {recorded.step}, {state['time']}, {state['batch']} images. " + ". ".join(lanes))

    def show_tests(self, tested: ImageGuesses) -> None:
        """Show what the network takes these test images for now."""
        guesses = [CLOTHES[int(i)] for i in tested.predicted]
        is_right = (tested.predicted == tested.labels).tolist()
        images = [_base64(image) for image in tested.images]
        entries = zip(images, guesses, is_right, strict=True)
        self._tests = json.dumps([{"image": i, "taken": g, "isRight": right} for i, g, right in entries])
        self._say(tests=f"{sum(is_right)} of {len(is_right)} test images are right")

    def _say(self, **parts: str) -> None:
        self._parts |= parts
        self.alternative_text = ". ".join(part for part in self._parts.values() if part) + "."


def _lanes_for_page(recorded: RecordedStep) -> dict[str, Any]:
    """Return what the page needs: for each lane its images and its blocks (kind, colour, from, to, time)."""
    own = [event for event in recorded.events if event.kind in ("forward", "backward")]
    first, last = min(event.start_s for event in own), max(event.end_s for event in own)
    start, end = (pick(getattr(e, name) for e in recorded.events) for pick, name in ((min, "start_s"), (max, "end_s")))
    lanes = []
    for i, images in enumerate(recorded.images[:_MOST_LANES]):
        blocks = []
        for e in own:
            if e.rank == i:
                ends = ((s - first) / (last - first) for s in (e.start_s, e.end_s))
                blocks.append([e.kind, COLOURS[e.kind], *ends, format_seconds(e.end_s - e.start_s)])
        more = recorded.shard_sizes[i] - len(images)
        lanes.append({"name": f"device {i}", "images": _base64(images), "more": more, "blocks": blocks})
    size = {"batch": sum(recorded.shard_sizes), "bytes": format_bytes(recorded.n_bytes)}
    return {"step": recorded.step, "time": format_seconds(end - start), "lanes": lanes} | size


def _base64(images: torch.Tensor) -> str:
    return base64.b64encode(images.contiguous().numpy().tobytes()).decode()
