"""How all widgets look: one style sheet, one row, boxes that scroll, and the card of a state."""

from collections.abc import Iterable
from typing import Any

from ipywidgets import HTML, Box, Layout, Widget

from d2lite.figures.card import card
from d2lite.figures.figure import TEXT_RULE
from d2lite.figures.palette import PALETTE
from d2lite.widgets.accessibility import Accessibility

__all__ = ["CLASS", "card", "control_style", "growing", "row", "scrolling", "sheet"]

CLASS = "d2lite"  # of the widget that holds all others: the style sheet is for what is inside it
# of a select: the page's own is black on dark
_ARROW = (
    "data:image/svg+xml,%3Csvg xmlns='http://www.w3.org/2000/svg' viewBox='0 0 18 18'%3E%3Cpath fill='%23797979' "
    "d='M4.5 6.5L9 11.5l4.5-5z'/%3E%3C/svg%3E"
)
_CSS = f"""<style>
.d2lite .widget-html, .d2lite .widget-html-content {{ height: auto; line-height: 1.4; margin: 0; }}
.d2lite .widget-inline-hbox {{ max-width: calc(100% - 4px); }} /* of a narrow box */
.d2lite .widget-html-content {{ color: var(--jp-ui-font-color1, inherit); }}
{TEXT_RULE}
.d2lite button.mod-primary:disabled {{ color: inherit; background: var(--jp-layout-color2, #ccc); }}
.d2lite select {{ background-image: url("{_ARROW}") !important; }}
.d2lite .js-plotly-plot .hoverlayer text {{ fill: #fff !important; }}
.d2lite .js-plotly-plot .hoverlayer text.name {{ fill: #333 !important; }} /* beside the box, on white */
.d2lite table {{ border-collapse: collapse; font-size: 13px; width: 100%; }}
.d2lite th, .d2lite td {{ text-align: left; padding: 3px 10px 3px 0; vertical-align: bottom; }}
.d2lite tr {{ border-bottom: 1px solid var(--jp-border-color2, #888); background: none !important; }}
.d2lite thead th {{ font-weight: 600; position: sticky; top: 0; /* in dark Colab keeps JupyterLab's light colour */
  background: var(--colab-primary-surface-color, var(--jp-layout-color0, Canvas)); }}
.d2lite tbody th, .d2lite td {{ font-weight: 400; white-space: nowrap; }}
.d2lite tbody th, .d2lite-runs :is(.status, .devices, .data) {{ white-space: normal; }} /* long: as wide as the page */
.d2lite-runs {{ container-type: inline-size; }}
@container (max-width: 520px) {{ /* each run in four lines, under a head in four lines */
  .d2lite-runs tr {{ display: grid; grid-template-columns: repeat(4, minmax(0, 1fr)); }}
  .d2lite-runs thead {{ position: sticky; top: 0; }}
  .d2lite-runs thead th {{ position: static; padding: 0 6px 0 0; overflow-wrap: anywhere; }}
  .d2lite-runs td {{ white-space: normal !important; }}
  .d2lite-runs th:first-child, .d2lite-runs .data, .d2lite-runs [colspan] {{ grid-column: 1 / -1; }}
  .d2lite-runs .status {{ grid-column: 1; }}
  .d2lite-runs .devices {{ grid-column: 2 / -1; }}
}}
.d2lite td.d2lite-words {{ white-space: normal; overflow-wrap: anywhere; }}
.d2lite-speed {{ padding: 4px 0 0 8px; font-size: 14px; line-height: 1.4; }}
.d2lite-number {{ font-size: 44px; font-weight: 700; line-height: 1.1; }}
.d2lite-disturbed {{ border-left: 4px solid {PALETTE[1]}; padding-left: 8px; margin-top: 4px; }}
/* static_picture.py: in JupyterLab each output is a child of its own, in Colab the page shows one cell's outputs */
.jp-OutputArea-child:has(.d2lite) + .jp-OutputArea-child:has(.d2lite-static) {{ display: none !important; }}
body:not(:has(.jp-OutputArea-child)) .d2lite-static {{ display: none !important; }}
/* after a restart of the kernel ipywidgets would put a broken link before each control */
.d2lite .jupyter-widgets-disconnected::before {{ content: none; }}
.d2lite.jupyter-widgets-disconnected {{ opacity: 0.6; pointer-events: none; }}
.d2lite.jupyter-widgets-disconnected::before {{ content: "The kernel has ended: run this cell again."; position: static;
  color: inherit; font: 600 14px sans-serif; padding: 4px 0; }}
.d2lite .newest {{ flex-direction: column-reverse; }} /* scrolled to its end */
.d2lite .newest > * {{ margin-bottom: auto; }}
.d2lite pre {{ margin: 0; font-size: 12px; white-space: pre-wrap; color: inherit; background: none;
  word-break: normal; overflow-wrap: anywhere; }}
.d2lite pre.problem {{ border-left: 4px solid {PALETTE[1]}; padding-left: 8px; }}
</style>"""


def sheet() -> Box:
    """Return an invisible widget with the style sheet and Accessibility, for the box into which it is put."""
    none = Layout(height="0", margin="0")
    return Box([HTML(_CSS, layout=none), Accessibility(layout=none)], layout=none)


def row(children: Iterable[Widget]) -> Box:
    """Return a box with the widgets next to each other, in further rows where the page is narrow."""
    return Box(list(children), layout=Layout(display="flex", flex_flow="row wrap"))


def scrolling(child: Widget, height: int) -> Box:
    """Return a box as high as its child, up to that height in pixels; then it scrolls."""
    layout = Layout(max_height=f"{height}px", overflow="auto", flex="0 0 auto", display="block")
    return _scrolling(Box([child], layout=layout))


def growing(child: Widget, least: int, most: int) -> Box:
    """Return a box that grows with its child, between two heights in pixels; then it scrolls and shows the end."""
    heights = {"min_height": f"{least}px", "max_height": f"{most}px"}
    box = _scrolling(Box([child], layout=Layout(overflow="auto", flex="0 0 auto", **heights)))
    box.add_class("newest")
    return box


def _scrolling(box: Box) -> Box:
    box.add_class("d2lite-scrolls")
    return box


def control_style(description: str, width: int, name_width: int) -> dict[str, Any]:
    """Return the arguments of a control for the name in front of it and for both widths in pixels."""
    layout, style = Layout(width=f"{width}px"), {"description_width": f"{name_width}px"}
    return {"description": description, "layout": layout, "style": style}
