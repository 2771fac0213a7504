"""Plotly's code for the page (5 MB), sent once per kernel; the page loads it while the kernel does other things."""

from functools import cache

import plotly
from anywidget import AnyWidget
from plotly.offline import get_plotlyjs
from traitlets import Unicode

__all__ = ["LOAD", "load_plotly"]

# (function that gives the model of PlotlyCode, plotly's version) -> a promise of plotly, one for each version and page
LOAD = """
    const load = (find, version) => {
        const codes = (globalThis.d2litePlotly ??= {});
        codes[version] ??= (async () => {
            await new Promise((go) => setTimeout(go, 100));  // small widgets first: plotly takes the page for a while
            const holder = await find();
            const code = ["const module = { exports: {} };", holder.get("code"), "export default module.exports;"];
            const url = URL.createObjectURL(new Blob(code.map((part) => part + "\\n"), { type: "text/javascript" }));
            const own = globalThis.Plotly;  // another plotly of the page: the code overwrites its name
            try { return (await import(url)).default; } finally { globalThis.Plotly = own; URL.revokeObjectURL(url); }
        })();
        codes[version].catch(() => { delete codes[version]; });  // the next figure tries again
        return codes[version];
    };"""


class PlotlyCode(AnyWidget):
    """Plotly's code: a widget without a view, to which all figures of a kernel refer. The page loads it at once."""

    _esm = LOAD + "\nexport default { initialize({ model }) { load(() => model, model.get('version')); } };"
    code = Unicode().tag(sync=True)
    version = Unicode(plotly.__version__).tag(sync=True)


@cache
def _first() -> PlotlyCode:
    return PlotlyCode(code=get_plotlyjs())


def load_plotly() -> PlotlyCode:
    """Send plotly's code to the page, once per kernel, and return its widget.

    It needs no PyTorch: if it is called first, the page loads plotly while the kernel loads PyTorch.
    """
    if _first().comm is None:  # Widget.close_all() has closed it
        _first.cache_clear()
    return _first()
