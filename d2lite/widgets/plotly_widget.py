"""A plotly figure as a widget: every page shows its present state, and loads plotly's code once, from the kernel.

plotly's FigureWidget brings 5 MB of code with each figure, and only the pages that are open at that moment get its
changes. Here the figure is one trait (JSON text), so that a page that opens later has the present state, too.
"""

import threading

import plotly
from anywidget import AnyWidget
from ipywidgets import Layout
from plotly.basedatatypes import BaseFigure
from traitlets import Unicode, default

from d2lite.figures.alternative_text import alternative_text
from d2lite.widgets.plotly_code import LOAD, load_plotly

__all__ = ["PlotlyWidget"]


class PlotlyWidget(AnyWidget):
    """A plotly figure on the page, as wide as its box and as high as the figure says; `show` replaces it.

    `figure` is the present figure, and `alternative_text` describes it to screen readers. Any thread may call `show`. A
    zoom and curves that a reader has hidden stay when the figure changes.
    """

    _esm = (
        LOAD
        + """
    const found = async (manager, id) => {  // a page that is loaded again may make the figure's model first
        for (let tries = 0; tries < 600; tries++)
            try { return await manager.get_model(id); } catch { await new Promise((go) => setTimeout(go, 100)); }
        throw new Error("plotly's code is not in this page: run the cell again");
    };
    const visible = (text) => text.replace(/<[^>]*>/g, "").length;
    const wrapped = (parts, between, most) => {  // in as few lines of at most so many characters as there can be
        const lines = [];
        for (const part of parts) {
            const longer = lines.at(-1) + between + part;
            if (lines.length && visible(longer) <= most) lines[lines.length - 1] = longer; else lines.push(part);
        }
        return lines;
    };
    const fitting = (layout, width) => {  // the title and the key in as many lines as a narrow box needs
        if (width > 400) return layout;
        const most = (width - 16) / 7.5, own = (layout.title?.text ?? "").split("<br>");
        const lines = own.every((line) => visible(line) <= most) ? own : wrapped(own.join(" ").split(" "), " ", most);
        const left = (layout.margin?.l ?? 60) < 60 ? 52 : 92;  // where names of rows widen the margin, at most
        const inside = (width - left) / 8.2;
        let more = lines.length - own.length;
        const annotations = layout.annotations?.map((note) => {
            if (note.yref !== "paper" || !note.text.includes("\u2003")) return note;  // not a key
            const before = note.text.split("<br>");
            const after = before.flatMap((line) => wrapped(line.split("\u2003"), "\u2003", inside));
            more += after.length - before.length;
            return { ...note, text: after.join("<br>") };
        });
        if (!more && lines === own) return layout;
        const pad = { ...layout.title.pad, t: 10 + 9 * (lines.length - 1) };
        const title = { ...layout.title, text: lines.join("<br>"), pad };
        return { ...layout, annotations, title, margin: { ...layout.margin, t: layout.margin.t + 19 * more } };
    };
    export default { render({ model, el }) {
        const plot = el.appendChild(document.createElement("div"));
        const figure = () => JSON.parse(model.get("_json"));
        let plotly, width, isOld = true, isDrawing = false, isClosed = false;
        const draw = async () => {  // the latest state; those that came while plotly was drawing are left out
            isOld = true;
            if (!plotly || isDrawing) return;
            isDrawing = true;
            try {
                while (isOld && !isClosed && el.clientWidth) {  // 0 where it is hidden
                    isOld = false;
                    width = el.clientWidth;
                    const { data, layout } = figure();
                    const room = { width: layout.width ?? width, autosize: false };
                    const fixed = { uirevision: "kept", ...fitting(layout, width), ...room };
                    await plotly.react(plot, data, fixed, { displayModeBar: false });
                    plot.style.minHeight = "";
                }
            } finally { isDrawing = false; }
        };
        const describe = () => el.setAttribute("aria-label", model.get("alternative_text"));
        const fit = new ResizeObserver(() => { if (isOld || el.clientWidth !== width) draw(); });
        el.setAttribute("role", "img");
        plot.style.minHeight = (figure().layout.height ?? 450) + "px";  // nothing moves when it is drawn
        describe();
        model.on("change:alternative_text", describe);
        model.on("change:_json", draw);
        // Does not wait for plotly: anywidget drops all later changes of a widget that takes more than two seconds.
        const start = (code) => { plotly = code; fit.observe(el); };
        const find = () => found(model.widget_manager, model.get("_code_id"));
        load(find, model.get("_code_version")).then(start, (error) => { plot.textContent = error.message; });
        return () => {
            isClosed = true;
            fit.disconnect();
            model.off("change:alternative_text", describe);
            model.off("change:_json", draw);
            plotly?.purge(plot);
        };
    } };"""
    )
    alternative_text = Unicode().tag(sync=True)
    _json = Unicode().tag(sync=True)
    _code_id = Unicode().tag(sync=True)
    _code_version = Unicode(plotly.__version__).tag(sync=True)
    figure: BaseFigure

    def __init__(self, figure: BaseFigure) -> None:
        layout = Layout(width="100%", min_width="0", margin="0", overflow="hidden")
        super().__init__(**_state(figure), layout=layout, _view_count=0)
        self.figure, self._showing = figure, threading.Lock()

    @default("_code_id")
    def _id_of_the_code(self) -> str:
        return str(load_plotly().model_id)

    def show(self, figure: BaseFigure) -> None:
        """Show `figure` on all pages, in place of the present one; nothing is sent if the two look the same."""
        state = _state(figure)
        with self._showing, self.hold_sync():  # one message, so that picture and words change together
            self.figure = figure
            for name, value in state.items():
                self.set_trait(name, value)


def _state(figure: BaseFigure) -> dict[str, str]:
    """Return what a page needs: the figure as JSON, its arrays as base64, and its words."""
    return {"_json": figure.to_json(), "alternative_text": alternative_text(figure)}
