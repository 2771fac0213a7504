"""A plotly widget for pages that open at any time: its state is current, it has words, its code is sent once."""

import threading
from copy import deepcopy
from functools import cache
from pathlib import Path
from typing import Any

import nbformat  # noqa: F401  before FigureWidget, which would import it in a way that builds 38 grammars (4 s)
import plotly
from ipywidgets import Widget
from plotly.graph_objects import FigureWidget
from traitlets import Unicode, default

from d2lite.figures.alternative_text import alternative_text

__all__ = ["CurrentFigure"]

_BUNDLE = Path(plotly.__file__).parent / "package_data" / "widgetbundle.js"
_CURRENT = ("_widget_data", "_widget_layout")


class _Code(Widget):
    """Plotly's code for the page (5 MB): one widget without a view, which all figures of a kernel refer to."""

    _model_name = Unicode("WidgetModel").tag(sync=True)
    _model_module = Unicode("@jupyter-widgets/base").tag(sync=True)
    code = Unicode().tag(sync=True)


@cache
def _code() -> _Code:
    return _Code(code=_BUNDLE.read_text("utf-8"))


class CurrentFigure(FigureWidget):
    """Plotly sends a change to the pages that are open now. A page that opens later asks for the state: it is this one.

    Hold `drawing` while traces and layout change in several steps, and call `describe` afterwards.
    """

    _esm = """
    const found = async (manager, id) => {  // a page that is loaded again may make the figure's model first
        for (let tries = 0; tries < 600; tries++)
            try { return await manager.get_model(id); } catch { await new Promise((go) => setTimeout(go, 100)); }
        throw new Error("plotly's code is not in this page: run the cell again");
    };
    const load = async (model) => {
        const codes = (globalThis.d2litePlotly ??= {}), version = model.get("_code_version");
        return codes[version] ??= (async () => {
            await new Promise((go) => setTimeout(go, 100));  // small widgets first: plotly takes the page for a while
            const holder = await found(model.widget_manager, model.get("_code_id"));
            const url = URL.createObjectURL(new Blob([holder.get("code")], { type: "text/javascript" }));
            try { return await import(url); } finally { URL.revokeObjectURL(url); }
        })();
    };
    const messages = ["addTraces", "deleteTraces", "moveTraces", "restyle", "relayout", "update", "animate",
                      "removeLayoutProps", "removeTraceProps"].map((name) => "_py2js_" + name);
    const gate = (model) => {  // keeps plotly's messages in their order until a figure is drawn that they can change
        const queue = [], now = {};
        let listeners = [], isOpen = false;
        const flush = () => {
            for (const [name, value] of queue.splice(0)) {
                now[name] = value;
                for (const [event, callback] of listeners) if (event === "change:" + name) callback();
                delete now[name];
            }
        };
        for (const name of messages)
            model.on("change:" + name, () => {
                if (model.get(name)) queue.push([name, model.get(name)]);
                if (isOpen) flush();
            });
        model.on("change:_widget_data", () => queue.splice(0));  // the complete state: it includes them
        return {
            model: {
                get: (name) => (name in now ? now[name] : model.get(name)),
                set: (name, value) => model.set(name, value),
                save_changes: () => model.save_changes(),
                on: (event, callback) => {
                    if (event.includes("_py2js_")) listeners.push([event, callback]);
                    else model.on(event, callback);
                },
            },
            open() { isOpen = true; flush(); },
            added(register) {  // [what register() returns, a function that removes the listeners of register()]
                const before = [...listeners], result = register();
                const own = listeners.filter((listener) => !before.includes(listener));
                return [result, () => { listeners = listeners.filter((listener) => !own.includes(listener)); }];
            },
        };
    };
    export default () => {
        let figure, messageGate, isWanted = false;
        return {
            // Does not wait for plotly: anywidget drops all later changes of a widget that takes more than two seconds.
            initialize(context) {
                messageGate = gate(context.model);
                figure = load(context.model).then((plotly) => {
                    const made = plotly.default();
                    made.initialize({ ...context, model: messageGate.model });
                    if (!isWanted) messageGate.open();
                    return made;
                });
                figure.catch(() => {});  // a view reports it
            },
            async render(context) {
                const { model, el } = context;
                isWanted = true;
                const made = await figure;
                const describe = () => el.setAttribute("aria-label", model.get("alternative_text"));
                el.setAttribute("role", "img");
                describe();
                model.on("change:alternative_text", describe);
                const drawn = ({ detail }) => {
                    if (detail.element !== el) return;
                    document.removeEventListener("plotlywidget-after-render", drawn);
                    messageGate.open();
                };
                document.addEventListener("plotlywidget-after-render", drawn);
                const [remove, forget] = messageGate.added(() => made.render(context));
                return () => { model.off("change:alternative_text", describe); forget(); remove?.(); };
            },
        };
    };"""
    alternative_text = Unicode().tag(sync=True)
    _code_id = Unicode().tag(sync=True)
    _code_version = Unicode(plotly.__version__).tag(sync=True)

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.__dict__["drawing"] = threading.RLock()  # plotly's own __setattr__ allows only its properties
        self._config = {"responsive": True, "displayModeBar": False}
        self.describe()

    def _repr_mimebundle_(self, *args: Any, **kwargs: Any) -> Any:
        self.send_state(["_config", "alternative_text"])  # a page that makes the figure just now may have lost them
        return super()._repr_mimebundle_(*args, **kwargs)

    @default("_code_id")
    def _id_of_the_code(self) -> str:
        return str(_code().model_id)

    def describe(self) -> None:
        """Make the alternative text say what is drawn now."""
        self.alternative_text = alternative_text(self)

    @classmethod
    def _remove_overlapping_props(cls, *_: Any) -> list[Any]:
        """Remove nothing: plotly would drop what a page has sent back, the places of cells for instance."""
        return []

    def get_state(self, key: Any = None, drop_defaults: bool = False) -> dict[str, Any]:
        """Return the state as ipywidgets wants it; the complete one with the traces and the layout of now."""
        state: dict[str, Any] = super().get_state(key, drop_defaults)
        if key is None and "drawing" in self.__dict__:
            with self.__dict__["drawing"]:
                now = deepcopy(self._data), deepcopy(self._layout_obj._props)
            for name, value in zip(_CURRENT, now, strict=True):
                state[name] = self.trait_metadata(name, "to_json")(value, self)
        return state
