"""The figures of this room: plotly figures that also carry a picture (SVG) and an alternative text.

Pages without plotly show the picture. Screen readers read the text.
"""

import base64
import html

import plotly.graph_objects as go
import plotly.io as pio

from d2lite.figures.alternative_text import alternative_text
from d2lite.figures.svg import figure_svg
from notebook_ranks.shared.notebook import WRAP_RULE

__all__ = ["TEXT_RULE", "Figure", "picture"]

# Plotly's grey has 4.35:1 on white and on dark. A page with a theme shows such texts in its own colour.
# JupyterLab shows a saved figure as a picture first, which is as wide as the page was then; brightness takes its grey
# to 5:1 and more.
TEXT_RULE = f"""{WRAP_RULE}
.jp-RenderedPlotly img.plot-img {{ max-width: 100%; height: auto; }}
[data-jp-theme-light="true"] .jp-RenderedPlotly img.plot-img {{ filter: brightness(0.88); }}
[data-jp-theme-light="false"] .jp-RenderedPlotly img.plot-img {{ filter: brightness(1.25); }}
.js-plotly-plot text[style*="rgb(121, 121, 121)"] {{
  fill: var(--jp-ui-font-color1, #444) !important; }}"""
_DOT = "data:image/gif;base64,R0lGODlhAQABAIAAAAAAAP///yH5BAEAAAAALAAAAAABAAEAAAIBRAA7"  # one transparent pixel


def picture(svg: str, words: str) -> str:
    """Return an HTML image of an SVG text, with `words` as its alternative text."""
    data = base64.b64encode(svg.encode("utf-8", "replace")).decode()
    return f'<img alt="{html.escape(words)}" src="data:image/svg+xml;base64,{data}" style="max-width: 100%">'


class Figure(go.Figure):
    """A plotly figure that a notebook keeps as plotly's JSON and as a picture (SVG), after its alternative text.

    Plotly's code (5 MB) is never in the notebook: JupyterLab has it, and an exported page shows the picture. Where
    plotly has chosen another way for the page, in Colab for instance, the figure is shown in that way.
    """

    def words(self) -> dict[str, str]:
        """Return the alternative text as the bundle of an image of one pixel: JupyterLab's plotly figures have none."""
        words = alternative_text(self)
        dot = f'<img alt="{html.escape(words)}" width="1" height="1" style="display: block" src="{_DOT}">'
        return {"text/html": f"<style>{TEXT_RULE}</style>{dot}", "text/plain": words}

    def _ipython_display_(self) -> None:
        if "plotly_mimetype" not in (pio.renderers.default or ""):
            super()._ipython_display_()
            return
        from IPython.display import display

        display(self.words(), raw=True)
        bundle = pio.renderers["plotly_mimetype"].to_mimebundle(self.to_dict())
        display(bundle | {"text/html": picture(figure_svg(self), ""), "text/plain": ""}, raw=True)
